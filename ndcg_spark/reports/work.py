"""The work of the `report` job. `run` reads the tables; `DrawReport` does so by Spark actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ndcg_spark.jobs.runner import Outcome, Work
from ndcg_spark.reports.assembly import Report
from ndcg_spark.reports.message import build_message
from ndcg_spark.reports.sentences import list_contrary_gates, write_headline
from ndcg_spark.reports.settings import ReportJobSettings


class DrawReport(Work[ReportJobSettings]):
    """Draw the page of a night."""

    @staticmethod
    def require_packages() -> None:
        import ndcg_spark.reports.figures
        import ndcg_spark.reports.page  # noqa: F401  # fails without matplotlib or Jinja2

    def build_report(self, **options: Any) -> Report:
        """Build the report from the tables."""
        from ndcg_spark.reports.api import report

        frames: dict[str, Any] = {name: table.frame for name, table in self.tables.items()}
        return report(frames.pop("metrics"), **frames, query_text_col=self.settings.query_text_col, **options)

    def run(self) -> Outcome:
        """Read the tables and draw the page."""
        settings = self.settings
        with self.job.step("reading tables"):
            night_report = self.build_report(
                changed=settings.diagnosis,
                summary=settings.summary,
                night=settings.run_date,
                dataset=settings.dataset,
                runs=tuple(dict.fromkeys(settings.runs)),
                metric=settings.metric,
                gates=self.request.gates,
                baseline=settings.baseline,
                production=settings.production,
                title=settings.title,
                today=datetime.now(timezone.utc).date() if settings.run_date is None else None,
                limits=settings.limits,
            )
        contents = replace(night_report.contents, problems=self.request.problems)
        output = self.request.files["output"]
        self.job.record(night=contents.run_date, dataset=contents.dataset)
        with self.job.step(f"drawing {output}"):
            from ndcg_spark.reports.index import draw_index

            page = Report(contents).html
        gates: list[Mapping[str, Any]] = [
            {"gate": gate.text, "run": gate.run, "value": gate.value, "met": gate.met} for gate in contents.gates
        ]
        lines = (write_headline(contents), *list_contrary_gates(contents))
        facts = {"gates": gates, "message": build_message(contents)}
        pages = {"output": page}
        if "index" in self.request.files:
            index = Path(self.request.files["index"])
            previous = index.read_text(encoding="utf-8", errors="replace") if index.is_file() else ""
            pages["index"] = draw_index(contents, output, previous)
        return Outcome(facts=facts, tables=pages, lines=lines)
