"""Means for people: what a summary says, in a few columns and in order."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.evaluation.settings import SHOWN_FIRST


def readable_means(summary: DataFrame, *, without: Sequence[str] = ()) -> DataFrame:
    """Means, one row per segment, metric and run: `run`, `segment`, `metric`, `value`, `interval`, `n`. Lazy.

    `without` are metrics, as `dcg@10`, that were not asked for. Segments as `country=DE`, `all` for all queries,
    which come first; metrics as `ndcg@10`; the interval as text with four digits, null below two queries; `n` are
    the queries that count. Spark cost: one small shuffle, to sort.
    """
    by, cutoff = F.col("segment_by"), F.col("k")
    named = F.concat(by, F.lit("="), F.coalesce(F.col("segment"), F.lit("null")))
    interval = F.format_string("[%.4f, %.4f]", "ci_low", "ci_high")
    name = F.concat_ws("@", "metric", F.coalesce(cutoff.cast("string"), F.lit("all")))
    # F.array_position of Spark 3.5 takes no column as the value.
    place = F.call_function("array_position", F.array(*map(F.lit, SHOWN_FIRST)), F.col("metric"))
    last = [place == 0, place, F.col("metric"), cutoff.asc_nulls_last(), F.col("run")]
    ordered = summary.where(~name.isin(*without)).orderBy(by, F.col("segment").asc_nulls_last(), *last)
    return ordered.select(
        "run",
        F.when(by == "", F.lit("all")).otherwise(named).alias("segment"),
        name.alias("metric"),
        "value",
        F.when(F.col("ci_low").isNotNull(), interval).alias("interval"),
        F.col("n_queries").alias("n"),
    )
