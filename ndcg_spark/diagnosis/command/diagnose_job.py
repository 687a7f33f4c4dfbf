"""The jobs that say why a mean moved: read, compute, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ndcg_spark.diagnosis.command.diagnose_config import NightsConfig, RunsConfig
from ndcg_spark.diagnosis.command.diagnose_report import show_changes, show_losses, show_shifts
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.jobs.accounts import refusal_of
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import sort_key, to_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ndcg_spark.evaluation.command.inputs import Inputs

EXIT_DONE = 0


def run_nights_job(config: NightsConfig) -> int:
    """Explain the change of a mean between two nights."""
    dataset = config.dataset or ""
    with job_run("diagnose nights", config, short_lists=True, run_date=config.after, dataset=dataset) as run:
        return run.exit(_nights(run.spark, config, run.progress))


def _nights(spark: SparkSession, config: NightsConfig, progress: Progress) -> int:
    from ndcg_spark.diagnosis.frames import shift_of_means
    from ndcg_spark.sources.formats import read_table

    source = config.source
    metrics = read_table(spark, source.reference, source.kind, source.options).frame
    table = _means(metrics, config)
    nights = [table.where(_day() == day.isoformat()) for day in (config.before, config.after)]
    rows = _collected(shift_of_means(*nights), "comparing nights", progress)
    if {*config.runs} - {row["run"] for row in rows} or {*config.segments} - {row["segment_by"] for row in rows}:
        rows = []
    if not rows:
        _require_names(metrics, config)
        raise InputRefusedError(
            f"{config.source.reference!r} has no segments of {config.metric} on both {config.before} and "
            f"{config.after}."
        )
    rows.sort(key=lambda row: (*sort_key(row)[:2], not row["is_total"], -abs(row["change"]), *sort_key(row)[2:]))
    show_shifts(rows, config)
    dates = {"before": config.before.isoformat(), "after": config.after.isoformat()}
    return _answer({"shifts": rows, **dates, "metric": config.metric}, config.json_path, progress)


def _collected(frame: DataFrame, what: str, progress: Progress) -> list[dict[str, Any]]:
    from ndcg_spark.core.failures import plain_refusals

    with progress.step(what), plain_refusals():
        return [row.asDict() for row in frame.collect()]


def _day() -> Column:
    from pyspark.sql import functions as F

    return F.col("run_date").cast("string")


def _require_names(table: DataFrame, config: NightsConfig) -> None:
    """Run actions: raise for the first name that the metric table does not have."""
    from pyspark.sql import functions as F

    from ndcg_spark.history.frames.nights import metric_at, require_present

    for what, column, names in (
        ("data set", F.col("dataset"), [] if config.dataset is None else [config.dataset]),
        ("metric", F.col("metric"), [config.metric]),
        ("metric", metric_at(), [f"{config.metric}@{k or 'all'}" for k in config.cutoffs or ()]),
        ("run", F.col("run"), config.runs),
        ("segment column", F.col("segment_by"), config.segments),
        ("night", _day(), [str(config.before), str(config.after)]),
    ):
        require_present(table, what, column, names)


def _means(table: DataFrame, config: NightsConfig) -> DataFrame:
    """Rows of the metric table that were asked for, of all nights."""
    from pyspark.sql import functions as F

    from ndcg_spark.core.expressions import require_column

    for name in ("run_date", "metric", "segment_by", "k", "dataset"):
        require_column(table, name, "metric-table", "metric table")
    rows = table.where(F.col("metric") == config.metric)
    if config.dataset is not None:
        rows = rows.where(F.col("dataset") == config.dataset)
    if config.runs:
        rows = rows.where(F.col("run").isin(*config.runs))
    if config.cutoffs is not None:
        rows = rows.where(F.col("k").eqNullSafe(F.lit(config.cutoffs[0])))
    return rows.where(F.col("segment_by").isin(*config.segments)) if config.segments else rows


def run_runs_job(config: RunsConfig) -> int:
    """Explain what runs lose, and which queries changed most between two."""
    with job_run("diagnose runs", config, short_lists=True) as run:
        return run.exit(_runs(run.spark, config, run.progress))


def _runs(spark: SparkSession, config: RunsConfig, progress: Progress) -> int:
    from ndcg_spark.diagnosis.frames import score_losses, summarize_losses
    from ndcg_spark.evaluation.command.inputs import read_inputs

    inputs = read_inputs(spark, config)
    plan = inputs.plan
    losses = summarize_losses(score_losses(inputs.rankings, plan), plan)
    changed = _changed(inputs, config)
    if config.explain:
        ranking = inputs.ranking
        print(f"input     {inputs.name}\nstrategy  {ranking.strategy}, read by {ranking.source}: {ranking.reason}")
        print("Nothing was run.")
        return EXIT_DONE
    try:
        with progress.step("ranking and scoring"):
            rows = sorted((row.asDict() for row in losses.collect()), key=sort_key)
        if changed is not None:
            _require_runs(rows, config)
        queries: list[dict[str, Any]] = []
        if changed is not None:
            with progress.step("finding the queries that changed most"):
                queries = [row.asDict(recursive=True) for row in changed.orderBy("change", "place").collect()]
    except Exception as error:
        raise refusal_of(error, inputs) or error from error
    if not any(row["n_queries"] for row in rows):
        raise InputRefusedError("there is no query with a relevant item to diagnose.")
    show_losses(rows)
    if changed is not None:
        show_changes(queries, plan.columns.query, config)
    shown = [{name: value for name, value in row.items() if name != "state"} for row in rows]
    return _answer({"losses": shown, "queries": queries, "input": inputs.name}, config.json_path, progress)


def _require_runs(rows: list[dict[str, Any]], config: RunsConfig) -> None:
    """Refuse a run that has no rows, before its queries are looked for."""
    there = sorted({row["run"] for row in rows})
    for flag, name in (("--baseline", config.baseline), ("--run", config.run)):
        if name not in there:
            raise InputRefusedError(f"run {name!r} ({flag}) has no rows; the runs are {', '.join(map(repr, there))}.")


def _changed(inputs: Inputs, config: RunsConfig) -> DataFrame | None:
    from ndcg_spark.diagnosis.api import changed_queries
    from ndcg_spark.evaluation.api import Evaluation

    if config.baseline is None or config.run is None:
        return None
    evaluation = Evaluation(plan=inputs.plan, ranking=inputs.ranking)
    return changed_queries(evaluation, baseline=config.baseline, run=config.run, n=config.top, depth=config.depth)


def _answer(found: dict[str, Any], json_path: str | None, progress: Progress) -> int:
    from ndcg_spark.jobs.outputs import write_text

    if json_path == "-":
        sys.stdout.flush()
        print(to_json(found), flush=True)
    elif json_path is not None:
        write_text("JSON", json_path, to_json(found), progress)
    return EXIT_DONE
