"""The job that makes a report: read tables, draw the page, write it. Everything here runs actions."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ndcg_spark.errors import printable
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import gate_line
from ndcg_spark.reports.command.make_report_config import ReportConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ndcg_spark.reports.assembly import Report
    from ndcg_spark.reports.contents import Contents
    from ndcg_spark.reports.limits import ReportLimits
    from ndcg_spark.sources.formats import Table

EXIT_DONE, EXIT_GATE = 0, 3


def run_report_job(config: ReportConfig) -> int:
    """Run the job: 0 done, 3 a gate was not met; the page has been written then, too.

    Where input or options are refused, nothing has been written.
    """
    with needed_packages():  # what is not installed is missed here, before Spark starts
        import ndcg_spark.reports.figures
        import ndcg_spark.reports.page  # noqa: F401
        from ndcg_spark.reports.limits import ReportLimits
    limits = ReportLimits(nights=config.n_nights, segments=config.n_segments, queries=config.n_queries)
    with job_run("report", config, short_lists=True, run_date=config.run_date, dataset=config.dataset or "") as run:
        found = _read(run.spark, config, limits, run.progress)
        _answer(found.contents, config)
        return run.exit(EXIT_DONE if all(gate.met for gate in found.contents.gates) else EXIT_GATE)


def _answer(contents: Contents, config: ReportConfig) -> None:
    """Print what the page says first, and how the gates did."""
    from ndcg_spark.reports.sentences import headline

    print(printable(headline(contents)))
    for gate in contents.gates:
        print(gate_line({"gate": gate.text, "value": gate.value, "met": gate.met}, gate.run))


def _read(spark: SparkSession, config: ReportConfig, limits: ReportLimits, progress: Progress) -> Report:
    from ndcg_spark.core.failures import plain_refusals
    from ndcg_spark.jobs.outputs import write_text
    from ndcg_spark.reports.assembly import report
    from ndcg_spark.sources.formats import read_table

    tables = {
        name: read_table(spark, source.reference, source.kind, source.options)
        for name, source in config.sources.items()
    }
    _check_output(spark, config, tables, progress)
    frames = {name: table.frame for name, table in tables.items()}
    with progress.step("reading tables"), plain_refusals():
        found = report(
            frames.pop("metrics"),
            **frames,
            changed=config.changed,
            summary=config.summary,
            run_date=config.run_date,
            dataset=config.dataset,
            runs=config.runs,
            metric=config.metric,
            gates=config.gates,
            baseline=config.baseline,
            production=config.production,
            title=config.title,
            today=datetime.now(timezone.utc).date() if config.run_date is None else None,
            limits=limits,
        )
    progress.note(night=found.contents.run_date, dataset=found.contents.dataset)
    with progress.step(f"drawing {config.output}"):
        write_text("page", config.output, found.html, progress)
    return found


def _check_output(spark: SparkSession, config: ReportConfig, tables: dict[str, Table], progress: Progress) -> None:
    """Refuse to write the page into a table that is read."""
    from ndcg_spark.jobs.outputs import refuse_outputs
    from ndcg_spark.tables import reading_of

    readings = []
    for name, table in tables.items():
        source = config.sources[name]
        flag = "--" + name.replace("_", "-")
        readings.append(reading_of(spark, f"{flag} {source.reference!r}", source.reference, source.kind, table.frame))
    refuse_outputs(spark, [], readings, config.output, progress)
