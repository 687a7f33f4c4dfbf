"""Means for people: what a summary says, in a few columns and in order."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.evaluation.settings import SHOWN_FIRST


def readable_means(summary: DataFrame, *, without: Sequence[str] = ()) -> DataFrame:
    """Means, one row per segment, metric and run: `run`, `segment`, `metric`, `value`, `interval`, `n`. Lazy.

    `without` are metrics that were not asked for. Segments as `country=DE`, `all` for all queries, which come first;
    metrics as `ndcg@10`; the interval as text with four digits, null below two queries; `n` are the queries that
    count. Spark cost: one small shuffle, to sort.
    """
    by, cutoff = F.col("segment_by"), F.col("k")
    named = F.concat(by, F.lit("="), F.coalesce(F.col("segment"), F.lit("null")))
    interval = F.format_string("[%.4f, %.4f]", "ci_low", "ci_high")
    first = F.array(*[F.lit(name) for name in SHOWN_FIRST])
    place = F.array_position(first, F.col("metric"))
    order = [
        by,
        F.col("segment").asc_nulls_last(),
        place == 0,
        place,
        F.col("metric"),
        cutoff.asc_nulls_last(),
        F.col("run"),
    ]
    return (
        summary.where(~F.col("metric").isin(*without))
        .orderBy(*order)
        .select(
            "run",
            F.when(by == "", F.lit("all")).otherwise(named).alias("segment"),
            F.concat_ws("@", "metric", F.coalesce(cutoff.cast("string"), F.lit("all"))).alias("metric"),
            "value",
            F.when(F.col("ci_low").isNotNull(), interval).alias("interval"),
            F.col("n_queries").alias("n"),
        )
    )
