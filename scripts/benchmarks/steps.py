"""Where the time goes: operations of Spark and steps of workers that ranking needs, beside the library and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ndcg_spark
from ndcg_spark.evaluation import Evaluation
from scripts.benchmarks.timing import Contender, compute_medians, format_table, run_in_turns, time_contender

COLUMNS = ("query_id", "item_id", "score", "relevance")
HANDED_OVER = "all rows, four columns, to Python"
WEIGHED = f"{HANDED_OVER}, each weighed (Spark's default)"
BATCH_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
DEFAULT_LIMIT = str(64 * 2**20)


def steps(rows: DataFrame, path: str, k: int) -> dict[str, DataFrame]:
    """Frames to compute, by what they show."""

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # local, as workers lack this module
        for _ in batches:
            yield from ()

    ordered = rows.withColumn("entry", F.struct((-F.col("score")).alias("falling"), "item_id"))
    by_query, by_order = rows.groupBy("query_id"), ordered.groupBy("query_id")
    by_score = F.expr(f"max_by(relevance, score, {k})")
    by_score_and_item = F.expr(f"min_by(relevance, entry, {k})")
    best = F.expr(f"max_by(relevance, relevance, {k})")
    grades = [F.sum(F.when(F.col("relevance") == grade, 1).otherwise(0)) for grade in range(10)]
    off = {"k": k, "check_duplicates": "none"}
    by_spark, by_files = ndcg_spark.evaluate(rows, **off), ndcg_spark.evaluate(path, **off)
    evaluation = ndcg_spark.evaluate(path, rank="rank", **off)
    return {
        "read four columns": rows.select(*[F.sum(name) for name in COLUMNS]),
        "count by query, by hashing": by_query.agg(F.count(F.lit(1))),
        "count ten grades by query, by hashing": by_query.agg(*grades),
        "sort by query": rows.select(*COLUMNS).sortWithinPartitions("query_id"),
        "sort, one top-K by score": by_query.agg(by_score),
        "sort, one top-K by score and item": by_order.agg(by_score_and_item),
        "sort, the same and the ideal list": by_order.agg(by_score_and_item, best),
        HANDED_OVER: rows.select(*COLUMNS).mapInArrow(nothing, "n int"),
        WEIGHED: rows.select(*COLUMNS).mapInArrow(nothing, "n int"),
        "three columns to Python": rows.select("query_id", "score", "relevance").mapInArrow(nothing, "n int"),
        **{f"read by Spark: {name}": frame for name, frame in engine_steps(by_spark).items()},
        **{f"path given: {name}": frame for name, frame in engine_steps(by_files).items()},
        **{f"path given, ranks: {name}": frame for name, frame in engine_steps(evaluation).items()},
    }


def engine_steps(evaluation: Evaluation) -> dict[str, DataFrame]:
    """Return the steps of the engine: up to the exchange, with it, and complete."""
    return {
        "partial rankings": evaluation.ranking.implementation.exchange(shuffled=False),
        "partial rankings, exchanged": evaluation.ranking.implementation.exchange(),
        "rankings": evaluation.rankings,
        "means": evaluation.summary,
    }


def time_steps(
    session: SparkSession,
    frames: dict[str, DataFrame],
    others: dict[str, Contender],
    rounds: int,
    *,
    warm_ups: int,
) -> list[str]:
    """Return table lines: medians of rounds in which every step runs once."""
    mine = {name: partial(_timed, session, frame, name) for name, frame in frames.items()}
    seconds = compute_medians(run_in_turns({**mine, **others}, rounds, warm_ups=warm_ups))
    return format_table(("step",), ("seconds",), [(name, f"{duration:.2f}") for name, duration in seconds.items()])


def _timed(session: SparkSession, frame: DataFrame, name: str) -> tuple[object, float]:
    limit = session.conf.get(BATCH_LIMIT)
    if name == WEIGHED:
        session.conf.set(BATCH_LIMIT, DEFAULT_LIMIT)
    duration = time_contender(frame.write.format("noop").mode("overwrite").save)()
    session.conf.set(BATCH_LIMIT, limit)
    return duration
