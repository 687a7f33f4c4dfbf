"""The job behind `roll-up`: read, add up, write, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.comparison.command.compare_report import difference_text, verdict_text
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.command.job import EXIT_DONE, persisted
from ndcg_spark.history.command.nights import (
    COMPANIONS,
    check_output,
    found_nights,
    refusals,
    stamped_results,
    taken_rows,
)
from ndcg_spark.history.command.roll_up import RollUpConfig
from ndcg_spark.history.settings import RollUpPlan
from ndcg_spark.history.tasks.nights import series_name
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import interval_text, show_cells, to_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_SHOWN = 40


def run_roll_up(config: RollUpConfig) -> int:
    """Run the job: 0 done. Where input or options are refused, nothing has been written."""
    # Stored replicates are long: Spark must weigh rows that it sends to workers.
    with job_run(
        "roll-up", config, short_lists=False, run_date=config.plan.end, dataset=config.rows.dataset or ""
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: RollUpConfig, progress: Progress) -> int:
    from ndcg_spark.history.frames.roll_up import roll_up, roll_up_columns
    from ndcg_spark.sources.formats import read_table

    source = config.rows.source
    table = read_table(spark, source.reference, source.kind, source.options)
    rows = taken_rows(table, config.rows)
    roll_up(rows, config.plan)  # finds missing columns and wrong types
    check_output(spark, config.rows, table, config.output, roll_up_columns(table.frame), config.json_path, progress)
    with refusals():
        with progress.step("looking for nights"):
            nights = found_nights(table, rows, config.rows)
        plan = replace(config.plan, as_of=config.plan.as_of or nights.last)
        progress.note(night=plan.end or plan.as_of, dataset=nights.dataset)
        periods = roll_up(rows, plan)
        kept = persisted(periods)
        try:
            with progress.step("adding nights up"):
                outcome = _outcome(periods, config)
            outcome |= {"as_of": str(plan.as_of), "dataset": nights.dataset, "limits": plan.text}
            outcome |= {"input": table.name, "package_version": __version__}
            _write(periods, outcome, config, progress)
        finally:
            if kept:
                periods.unpersist()
    _show(outcome, plan)
    if config.json_path == "-":
        sys.stdout.flush()
        print(
            to_json({name: value for name, value in outcome.items() if name not in ("slices", "shown")}), flush=True
        )
    return EXIT_DONE


def _outcome(periods: DataFrame, config: RollUpConfig) -> dict[str, Any]:
    """Run two actions, one more for `--json`: find the slices, and the overall means of the last periods."""
    from pyspark.sql import functions as F

    slices = periods.select("period_end", _sliced_by(periods), "period").distinct().collect()
    if not slices:
        raise InputRefusedError("no night of the table is in a period that was asked for")
    plain = periods.drop("state")
    overall = plain.where((F.col("segment_by") == "") & ~F.col("metric").isin(*COMPANIONS))
    order: list[Column | str] = [
        F.desc("period_end"),
        "period",
        *dict.fromkeys((_sliced_by(periods), "run")),
        "metric",
        "k",
    ]
    latest = overall.orderBy(*order).limit(MOST_SHOWN).collect()
    outcome: dict[str, Any] = {"slices": slices, "shown": [row.asDict() for row in latest]}
    if config.json_path is not None:
        outcome["periods"] = [row.asDict() for row in plain.collect()]
    return outcome


def _sliced_by(periods: DataFrame) -> str:
    """Column by which the rows of a period are divided into slices: Holm ties those of a baseline together."""
    return "baseline" if "baseline" in periods.columns else "run"


def _write(periods: DataFrame, outcome: dict[str, Any], config: RollUpConfig, progress: Progress) -> None:
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.tables import ManyNights, NightlySlice

    by = _sliced_by(periods)
    slices = tuple(NightlySlice(row["period_end"], row[by], row["period"]) for row in outcome["slices"])
    partition = ManyNights(dataset=outcome["dataset"], night="period_end", part="period", slices=slices, run=by)
    planned = []
    if config.output is not None:
        frame = stamped_results(periods, outcome).repartition("period", "period_end", by)
        planned.append(Planned("periods", config.output, frame, list(partition.names), []))
    shown = {name: value for name, value in outcome.items() if name not in ("slices", "shown")}
    write_together(planned, partition, config.json_path, shown, progress)


def _show(outcome: dict[str, Any], plan: RollUpPlan) -> None:
    shown = [_cells(row) for row in reversed(outcome["shown"])]
    compared = any("baseline" in row for row in outcome["shown"])
    show_cells("differences of periods" if compared else "means of periods (± half of the interval)", shown)
    n = len(outcome["slices"])
    print(
        f"periods: {n:,}, with nights up to {plan.as_of}; the latest overall means are shown, --output has all rows"
    )
    assumed = dict.fromkeys(row["independence"] for row in outcome["shown"])
    print(f"intervals: independence={', '.join(assumed) or plan.independence}")


def _cells(row: dict[str, Any]) -> dict[str, str]:
    missing = ", ".join(map(str, row["missing_days"]))
    found = {"value": interval_text(row)}
    if "baseline" in row:
        found = {"difference": difference_text(row), "verdict": verdict_text(row)}
    return {
        "period": f"{row['period']} {row['period_start']}..{row['period_end']}",
        "series": series_name(row),
        **found,
        "queries": f"{row['n_queries']:,}",
        "days": str(row["n_days"]) + (f" (missing: {missing})" if missing else ""),
    }
