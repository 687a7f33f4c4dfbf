"""Where the time goes: the operations of Spark that ranking needs, each alone, beside the library and DuckDB."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import ndcg_spark

COLUMNS = ("query_id", "item_id", "score", "relevance")


def steps(rows: DataFrame, k: int) -> dict[str, DataFrame]:
    """Frames to compute, by what they show."""
    ordered = rows.withColumn("entry", F.struct((-F.col("score")).alias("falling"), "item_id"))
    by_query, by_order = rows.groupBy("query_id"), ordered.groupBy("query_id")
    by_score = F.expr(f"max_by(relevance, score, {k})")
    by_score_and_item = F.expr(f"min_by(relevance, entry, {k})")
    best = F.expr(f"max_by(relevance, relevance, {k})")
    unchecked = {"k": k, "check_duplicates": "none"}
    scored = ndcg_spark.evaluate(rows, **unchecked)
    given = ndcg_spark.evaluate(rows, rank="rank", **unchecked)
    return {
        "read four columns": rows.select(*[F.sum(name) for name in COLUMNS]),
        "count by query, by hashing": by_query.agg(F.count(F.lit(1))),
        "sort by query": rows.select(*COLUMNS).sortWithinPartitions("query_id"),
        "sort, one top-K by score": by_query.agg(by_score),
        "sort, one top-K by score and item": by_order.agg(by_score_and_item),
        "sort, the same and the ideal list": by_order.agg(by_score_and_item, best),
        "ndcg-spark, no look: rankings": scored.rankings,
        "ndcg-spark, no look: means": scored.summary,
        "ndcg-spark, rank given, no look: rankings": given.rankings,
        "ndcg-spark, rank given, no look: means": given.summary,
    }


def time_steps(rows: DataFrame, k: int, reference: Callable[[], float], rounds: int, *, warm_ups: int) -> list[str]:
    """Lines of a table: medians of rounds in which every step runs once; `reference` gives DuckDB's seconds."""
    frames = steps(rows, k)
    taken: dict[str, list[float]] = {name: [] for name in [*frames, "DuckDB, max_by(x, y, k)"]}
    for turn in range(warm_ups + rounds):
        for name in taken:
            seconds = _timed(frames[name]) if name in frames else reference()
            print(f"{name}: {seconds:.2f} s", file=sys.stderr, flush=True)
            if turn >= warm_ups:
                taken[name].append(seconds)
    lines = ["| step | seconds |", "| --- | ---: |"]
    return lines + [f"| {name} | {statistics.median(found):.2f} |" for name, found in taken.items()]


def _timed(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
