"""The job behind `business-link`: read, join, correlate, write, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.business.command.business_link import LinkConfig
from ndcg_spark.business.command.business_link_report import show_links
from ndcg_spark.business.settings import LinkPlan
from ndcg_spark.business.tasks import LINK_COLUMNS
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.command.job import EXIT_DONE, EXIT_GATE
from ndcg_spark.history.command.nights import (
    Nights,
    check_output,
    found_nights,
    refusals,
    stamped_results,
    taken_rows,
)
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import sort_key, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.sources.formats import Table

MOST_SEGMENTS_NAMED = 10


def run_business_link(config: LinkConfig) -> int:
    """Run the job: 0 done, 3 alarm. Where input or options are refused, nothing has been written."""
    with job_run(
        "business-link", config, short_lists=True, run_date=config.plan.as_of, dataset=config.rows.dataset or ""
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: LinkConfig, progress: Progress) -> int:
    from ndcg_spark.sources.formats import read_table

    sources = (config.rows.source, config.clicks)
    table, clicks = (read_table(spark, one.reference, one.kind, one.options) for one in sources)
    rows = taken_rows(table, config.rows)
    _linked(rows, table, clicks, config.plan)  # finds missing columns and wrong types
    also = [("--clicks", config.clicks, clicks)]
    check_output(spark, config.rows, table, config.output, LINK_COLUMNS, config.json_path, progress, also)
    with refusals():
        with progress.step("looking for nights"):
            nights = found_nights(table, rows, config.rows)
        as_of = config.plan.as_of or nights.last
        progress.note(night=as_of, dataset=nights.dataset)
        plan = replace(config.plan, as_of=as_of)
        with progress.step("joining nights"):
            outcome = _outcome(rows, table, clicks, nights, plan)
    _write(spark, outcome, as_of, config, progress)
    show_links(outcome, plan)
    if config.json_path == "-":
        sys.stdout.flush()
        print(to_json(outcome), flush=True)
    return EXIT_GATE if outcome["alarms"] and config.fail_on_alarm else EXIT_DONE


def _linked(rows: DataFrame, table: Table, clicks: Table, plan: LinkPlan) -> DataFrame:
    from ndcg_spark.business.frames import business_link

    return business_link(rows, clicks.frame, plan, parse_text=table.parse_text or clicks.parse_text)


def _outcome(rows: DataFrame, table: Table, clicks: Table, nights: Nights, plan: LinkPlan) -> dict[str, Any]:
    """Run two actions: link the nights, and look for segments that only the clicks have."""
    from ndcg_spark.business.frames import unmatched_clicks

    links = [row.asDict(recursive=True) for row in _linked(rows, table, clicks, plan).collect()]
    if not any(row["n_nights"] for row in links):
        raise InputRefusedError(
            f"no night of a segment is in both tables and counts: {table.name} has nights from {nights.first} to "
            f"{nights.last}; compare run_date, segment_by and segment of {clicks.name}, and --min-impressions."
        )
    parse_text = table.parse_text or clicks.parse_text
    unmatched = unmatched_clicks(rows, clicks.frame, plan, parse_text=parse_text)
    named = [row.asDict() for row in unmatched.limit(MOST_SEGMENTS_NAMED).collect()]
    ordered = sorted(links, key=lambda row: (*sort_key(row), row["rate"]))
    return {
        "links": ordered,
        "alarms": [row for row in ordered if row["alarm"]],
        "clicks_without_metric": named,
        "as_of": str(plan.as_of),
        "dataset": nights.dataset,
        "limits": plan.text,
        "input": f"{table.name} with {clicks.name}",
        "package_version": __version__,
    }


def _write(spark: SparkSession, outcome: dict[str, Any], as_of: date, config: LinkConfig, progress: Progress) -> None:
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.tables import RunPartition

    planned = []
    if config.output is not None:
        schema = ", ".join(f"{name} {kind}" for name, kind in LINK_COLUMNS.items())
        values = [tuple(row[name] for name in LINK_COLUMNS) for row in outcome["links"]]
        frame = stamped_results(spark.createDataFrame(values, schema), outcome).coalesce(1)
        runs = sorted({row["run"] for row in outcome["links"]})
        planned.append(Planned("links", config.output, frame, runs, []))
    partition = RunPartition(run_date=as_of, dataset=outcome["dataset"])
    write_together(planned, partition, config.json_path, outcome, progress)
