"""Where the time goes: operations of Spark and steps of workers that ranking needs, beside the library and DuckDB."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
from ndcg_spark.spark.ranking.files import by_part, cut_task
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.cutting import count_rows, ideal_list, query_rows, ranked_list
from ndcg_spark.worker.files import read_part
from ndcg_spark.worker.pieces import piece_offsets
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ndcg_spark
from ndcg_spark.evaluation import evaluation_plan

COLUMNS = ("query_id", "item_id", "score", "relevance")
HANDED_OVER = "all rows, four columns, to Python"
WEIGHED = f"{HANDED_OVER}, each weighed (Spark's default)"
BATCH_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
DEFAULT_LIMIT = str(64 * 2**20)


def steps(rows: DataFrame, k: int) -> dict[str, DataFrame]:
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
    unchecked = {"k": k, "check_duplicates": "none"}
    by_rows = ndcg_spark.evaluate(rows, way="top_k", **unchecked)
    by_grades = ndcg_spark.evaluate(rows, rank="rank", way="given", **unchecked)
    by_files = ndcg_spark.evaluate(rows, **unchecked)
    given_files = ndcg_spark.evaluate(rows, rank="rank", **unchecked)
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
        "ndcg-spark, no look, top-k: rankings": by_rows.rankings,
        "ndcg-spark, no look, top-k: means": by_rows.summary,
        "ndcg-spark, no look, files: rankings": by_files.rankings,
        "ndcg-spark, no look, files: means": by_files.summary,
        "ndcg-spark, no look, rank given by grades: means": by_grades.summary,
        **worker_steps(rows, k),
        "ndcg-spark, no look, rank given, files: means": given_files.summary,
    }


def worker_steps(rows: DataFrame, k: int) -> dict[str, DataFrame]:
    """What Python workers do with files where ranks are given, each frame a step more than the one before."""
    plan = evaluation_plan(k=k, rank="rank", check_duplicates="none")
    task = cut_task(rows, plan)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from read_part(task.parts[number], task.columns)

    def just_read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in read(batches):
            yield from ()

    def checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for found in read(batches):
            piece_offsets(usable_rows(found, plan), plan.columns.keys)
            yield from ()

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for found in read(batches):
            usable = usable_rows(found, plan)
            its = query_rows(usable, piece_offsets(usable, plan.columns.keys), plan)
            count_rows(its), ranked_list(its, plan, looks=False), ideal_list(its, plan, looks=False)
            yield from ()

    named = {"query, rank, relevance read by workers": just_read, "the same, and checked": checked}
    return {name: by_part(rows, task, step) for name, step in {**named, "the same, and cut": cut}.items()}


def time_steps(
    session: SparkSession,
    frames: dict[str, DataFrame],
    others: dict[str, Callable[[], float]],
    rounds: int,
    *,
    warm_ups: int,
) -> list[str]:
    """Lines of a table: medians of rounds in which every step runs once; `others` are functions that give seconds."""
    taken: dict[str, list[float]] = {name: [] for name in [*frames, *others]}
    for turn in range(warm_ups + rounds):
        for name in taken:
            seconds = _timed(session, frames[name], name) if name in frames else others[name]()
            print(f"{name}: {seconds:.2f} s", file=sys.stderr, flush=True)
            if turn >= warm_ups:
                taken[name].append(seconds)
    lines = ["| step | seconds |", "| --- | ---: |"]
    return lines + [f"| {name} | {statistics.median(found):.2f} |" for name, found in taken.items()]


def _timed(session: SparkSession, frame: DataFrame, name: str) -> float:
    limit = session.conf.get(BATCH_LIMIT)
    if name == WEIGHED:
        session.conf.set(BATCH_LIMIT, DEFAULT_LIMIT)
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - began
    session.conf.set(BATCH_LIMIT, limit)
    return seconds
