"""The retrieval job: read, search, evaluate, write, answer. Everything here runs actions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.errors import InputRefusedError, NdcgSparkError
from ndcg_spark.evaluation.command.job import EXIT_DONE, EXIT_GATE, persisted
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import counted_rows, gate_line, show_summary, sort_key, to_json
from ndcg_spark.retrieval.command.retrieve_config import RetrieveConfig, flag_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.sources.formats import Table


def run_retrieve(config: RetrieveConfig) -> int:
    """Run the retrieval job: 0 done, 3 gate not met. Where input or options are refused, nothing has been written."""
    # Blocks are some megabytes: Spark has to weigh what it hands to Python.
    with job_run(
        "retrieve",
        config,
        short_lists=False,
        run_date=config.run_date,
        dataset=config.dataset,
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


@dataclass(frozen=True, slots=True)
class _Results:
    """What the job computes; lazy."""

    frames: dict[str, DataFrame]
    per_query: DataFrame | None


def _run(spark: SparkSession, config: RetrieveConfig, progress: Progress) -> int:
    from ndcg_spark.core.failures import refusal_text
    from ndcg_spark.sources.formats import read_table

    tables = [read_table(spark, one.reference, one.kind, one.options) for one in (config.queries, config.corpus)]
    results = _results(tables, config)
    _check_outputs(spark, tables, results, config, progress)
    try:
        outcome, gates_met = _answer(spark, tables, results, config, progress)
    except NdcgSparkError:
        raise
    except Exception as error:
        message = refusal_text(error)
        if message is None:
            raise
        raise InputRefusedError(f"{message} Nothing was written.") from error
    if config.evaluates:
        show_summary(outcome["metrics"])
        print("queries: " + ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in outcome["queries"].items()))
    for gate in outcome["gates"]:
        print(gate_line(gate, gate["run"]))
    if config.json_path == "-":
        print(to_json(outcome), flush=True)
    return EXIT_DONE if gates_met else EXIT_GATE


def _results(tables: list[Table], config: RetrieveConfig) -> _Results:
    from pyspark.sql import functions as F

    from ndcg_spark.evaluation.frames.scoring import score_queries
    from ndcg_spark.retrieval.frames import judge_by_labels, rank_by_retrieval, retrieve

    queries, corpus = (table.frame for table in tables)
    frames: dict[str, DataFrame] = {}
    if "rankings" in config.targets:
        frames["rankings"] = retrieve(queries, corpus, config.plan, k=config.evaluation.max_k or 0)
    if "judgments" in config.targets:
        frames["judgments"] = judge_by_labels(queries, corpus, config.plan)
    frames = {name: frame.withColumn("run", F.lit(config.plan.run)) for name, frame in frames.items()}
    per_query = None
    if config.evaluates:
        rankings = rank_by_retrieval(queries, corpus, config.plan, config.evaluation)
        per_query = score_queries(rankings, config.evaluation)
    return _Results(frames, per_query)


def _check_outputs(
    spark: SparkSession, tables: list[Table], results: _Results, config: RetrieveConfig, progress: Progress
) -> None:
    """Raise when an output could not be written, or would overwrite what is not ours. Runs no action."""
    from ndcg_spark.evaluation.command.metric_table import METRIC_SCHEMA, per_query_rows
    from ndcg_spark.jobs.outputs import refuse_outputs
    from ndcg_spark.tables import reading_of

    schemas = {name: frame.schema for name, frame in results.frames.items()} | {"metrics": METRIC_SCHEMA}
    if results.per_query is not None:
        schemas["per_query"] = per_query_rows(results.per_query, config.evaluation).schema
    readings = [
        reading_of(spark, f"{flag} {source.reference!r}", source.reference, source.kind, table.frame)
        for flag, source, table in zip(
            ("--queries", "--corpus"), (config.queries, config.corpus), tables, strict=True
        )
    ]
    planned = [(flag_of(name), target, schemas[name]) for name, target in config.targets.items()]
    refuse_outputs(spark, planned, readings, config.json_path, progress)


def _answer(
    spark: SparkSession, tables: list[Table], results: _Results, config: RetrieveConfig, progress: Progress
) -> tuple[dict[str, Any], bool]:
    from ndcg_spark.evaluation.command.metric_table import metric_rows, per_query_rows
    from ndcg_spark.evaluation.frames.summary import summarize

    digest = hashlib.sha256(f"{config.evaluation.digest} {config.plan.digest}".encode()).hexdigest()[:16]
    outcome: dict[str, Any] = {
        "metrics": [],
        "queries": {},
        "gates": [],
        "run_date": config.run_date.isoformat(),
        "dataset": config.dataset,
        "metric": config.plan.metric,
        "convention": str(config.evaluation.convention),
        "config_hash": digest,
        "input": f"{tables[0].name} by {config.plan.metric} in {tables[1].name}",
        "package_version": __version__,
    }
    frames, kept = dict(results.frames), False
    try:
        if results.per_query is not None:
            kept = "per_query" in config.targets and persisted(results.per_query)
            with progress.step("searching and scoring"):
                rows = [row.asDict() for row in summarize(results.per_query, config.evaluation).collect()]
            summary = sorted(rows, key=sort_key)
            _fill(outcome, summary, config)
            now = datetime.now(timezone.utc).replace(microsecond=0)
            frames["metrics"] = metric_rows(spark, summary, outcome, now)
            frames["per_query"] = per_query_rows(results.per_query, config.evaluation)
        _write({name: frames[name] for name in config.targets}, outcome, config, progress)
    finally:
        if kept and results.per_query is not None:
            results.per_query.unpersist()
    outcome["metrics"] = _shown(outcome)
    return outcome, all(gate["met"] for gate in outcome["gates"])


def _fill(outcome: dict[str, Any], summary: list[dict[str, Any]], config: RetrieveConfig) -> None:
    """Put means, counts of queries and gates into the outcome."""
    overall = counted_rows(summary)
    counted = {name: sum(int(row[f"n_{name}"]) for row in overall) for name in ("no_relevant", "missing", "unjudged")}
    in_mean = sum(int(row["n_queries"]) for row in overall)
    if not in_mean:
        raise InputRefusedError(
            f"no query counts in the mean ({', '.join(f'{n} {name}' for name, n in counted.items())}); nothing was "
            "written."
        )
    outcome["metrics"], outcome["queries"] = summary, {"in_mean": in_mean, **counted}
    outcome["gates"] = [result for gate in config.gates for result in gate.results(summary)]


def _shown(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "state"} for row in outcome["metrics"]]


def _write(frames: dict[str, DataFrame], outcome: dict[str, Any], config: RetrieveConfig, progress: Progress) -> None:
    """Write all outputs, or none. Runs an action for each table, and one more for each catalog table."""
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.tables import RunPartition

    runs = [config.plan.run]
    planned = [
        Planned(name.replace("_", " "), config.targets[name], frame, runs, runs if name == "judgments" else [])
        for name, frame in frames.items()
    ]
    partition = RunPartition(run_date=config.run_date, dataset=config.dataset)
    write_together(planned, partition, config.json_path, {**outcome, "metrics": _shown(outcome)}, progress)
