"""The part of roll-up that both engines share: which nights are added up, and what is said of the periods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ndcg_spark._version import __version__
from ndcg_spark.comparison.printed import format_verdict
from ndcg_spark.core import labels
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import RULES, format_rules_notes
from ndcg_spark.history.flagging import Nights, add_provenance_columns
from ndcg_spark.history.settings import COMPANIONS, RollUpJobSettings, RollUpSettings
from ndcg_spark.history.tasks.judging import SERIES, format_series
from ndcg_spark.history.tasks.period_sums import MEANS_SCHEMA, PAIRS_SCHEMA
from ndcg_spark.jobs.outputs import SOURCE_TIME
from ndcg_spark.jobs.printing import print_rows
from ndcg_spark.jobs.runner import Outcome, Work
from ndcg_spark.tables import Rows, SliceKey, Slices
from ndcg_spark.tables.slices import Frame

MAX_PERIODS = 40
"""Limit for printed rows."""


class RollUpBase(Work[RollUpJobSettings], ABC):
    """Add up nights. Subclasses set `is_comparison`: whether the input is a comparison table."""

    is_comparison: bool

    # ---------------------------------------------------------------------------------------- methods of each engine

    @property
    @abstractmethod
    def input_name(self) -> str:
        """Identity of the input."""

    @abstractmethod
    def find_nights(self) -> Nights:
        """Find the data set and the nights of the requested rows. Reads the input."""

    @abstractmethod
    def add_up(self, settings: RollUpSettings) -> None:
        """Add up nights; the methods below return the periods."""

    @abstractmethod
    def list_keys(self) -> list[SliceKey]:
        """List the distinct nights (last days), runs (`by`) and parts (names) of periods."""

    @abstractmethod
    def list_rows(self, newest: int | None = None) -> list[dict[str, Any]]:
        """List the rows of periods, without states; with `newest`, at most so many: the latest of those to print."""

    @abstractmethod
    def period_table(self, facts: Mapping[str, Any]) -> Frame:
        """Build the table of periods."""

    # ------------------------------------------------------------------------------------- methods of both engines

    @property
    def by(self) -> str:
        """Column of runs whose rows are one slice: Holm corrects all rows of a baseline together."""
        return "baseline" if self.is_comparison else "run"

    @property
    def hidden_metrics(self) -> tuple[str, ...]:
        """Metrics that are printed only if they are named."""
        return () if self.settings.rows.metrics else COMPANIONS

    @property
    def series(self) -> list[str]:
        """Columns by which the rows of a period are sorted."""
        return [*dict.fromkeys((self.by, *SERIES))]

    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"output": add_provenance_columns(PAIRS_SCHEMA if self.is_comparison else MEANS_SCHEMA)}

    def run(self) -> Outcome:
        """Find the nights and add them up."""
        settings = self.settings.roll_up
        with self.job.step("looking for nights"):
            nights = self.find_nights()
        settings = replace(settings, as_of=settings.as_of or nights.last)
        self.job.record(night=settings.end or settings.as_of, dataset=nights.dataset)
        with self.job.step("adding nights up"):
            self.add_up(settings)
            keys = tuple(self.list_keys())
            if not keys:
                existing = f"its nights are from {nights.first} to {nights.last}"
                raise InputRefusedError(f"no night of the table is in a requested period; {existing}.")
            shown = sorted(self.list_rows(MAX_PERIODS + 1), key=self.sort_key)
            all_rows = sorted(self.list_rows(), key=self.sort_key) if self.job.is_requested("json") else []
        facts = {
            "periods": all_rows,  # empty unless JSON was requested
            "as_of": str(settings.as_of),
            "dataset": nights.dataset,
            "limits": settings.text,
            "input": self.input_name,
            "package_version": __version__,
            SOURCE_TIME: nights.computed_at,
        }
        slices = Slices(
            dataset=nights.dataset, keys=keys, columns={"night": "period_end", "part": "period", "run": self.by}
        )
        assumptions = dict.fromkeys(row["independence"] for row in shown)
        more = f"; the newest {MAX_PERIODS} rows are shown, --output has all" if len(shown) > MAX_PERIODS else ""
        title = "differences of periods" if self.is_comparison else "means of periods (± half of the interval)"
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=self.period_table(facts), slices=slices)},
            lines=(
                lambda: print_rows(title, [_format_cells(row, nights) for row in shown[-MAX_PERIODS:]]),
                f"periods: {len(keys):,}, with nights up to {settings.as_of}{more}",
                f"intervals: independence={', '.join(assumptions) or settings.independence}",
                *format_rules_notes(row[RULES] for row in shown),
            ),
        )

    def sort_key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Sort by kind of period in the requested order, then by period and series; null comes first, as in Spark."""
        position = self.settings.roll_up.periods.index(row["period"])
        return position, row["period_end"], [(row[name] is not None, row[name]) for name in self.series]


def _format_cells(row: dict[str, Any], nights: Nights) -> dict[str, str]:
    """Format a row for printing. Days before the first night of the table are not missing."""
    missing = ", ".join(str(day) for day in row["missing_days"] if day >= nights.first)
    values = {"value": labels.mean(row)}
    if "baseline" in row:
        values = {"difference": labels.estimate(row, "difference", form="+.4f"), "verdict": format_verdict(row)}
    return {
        "period": f"{row['period']} {row['period_start']}..{row['period_end']}",
        "series": format_series(row),
        **values,
        "queries": f"{row['n_queries']:,}",
        "days": str(row["n_days"]) + (f" (missing: {missing})" if missing else ""),
    }
