"""Means for people: what a summary says, in a few columns and in order; and what other results share with that."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.shown import BESIDE
from ndcg_spark.evaluation.settings import ASKED, SHOWN_FIRST


def segment_label() -> Column:
    """A segment as `country=DE`, and `all` for all queries."""
    by = F.col("segment_by")
    return F.when(by == "", F.lit("all")).otherwise(
        F.concat(by, F.lit("="), F.coalesce(F.col("segment"), F.lit("null")))
    )


def metric_label() -> Column:
    """A metric as `ndcg@10`, and `ndcg@all` of the whole list."""
    return F.concat_ws("@", "metric", F.coalesce(F.col("k").cast("string"), F.lit("all")))


def asked_label() -> Column:
    """A metric by the name that was asked for, if the row has one."""
    return F.coalesce(ASKED, metric_label())


def in_order(rows: DataFrame, *last: Column) -> DataFrame:
    """Sort rows of means or differences: all queries first, main metrics first, then by `last`."""
    # F.array_position of Spark 3.5 takes no column as the value.
    place = F.call_function("array_position", F.array(*map(F.lit, SHOWN_FIRST)), F.col("metric"))
    by_metric = [place == 0, place, F.col("metric"), F.col("k").asc_nulls_last()]
    return rows.orderBy("segment_by", F.col("segment").asc_nulls_last(), *by_metric, *last)


def interval_of(low: str, high: str) -> Column:
    """An interval as text with four digits, null where it has no bounds."""
    return F.when(F.col(low).isNotNull(), F.format_string("[%.4f, %.4f]", low, high))


def readable_means(summary: DataFrame, *, without: Sequence[str] = (), beside: Sequence[str] = ()) -> DataFrame:
    """Means, one row per segment, metric and run: `run`, `segment`, `metric`, `value`, `interval`, `n`. Lazy.

    `without` are metrics, as `dcg@10`, that were not asked for. Segments as `country=DE`, `all` for all queries,
    which come first; metrics by the name that was asked for, as `ndcg@10`; the interval as text with four digits,
    null below two queries; `n` are the queries that count. `beside` are columns of the summary to take along, for
    all queries, in the column `BESIDE`. Spark cost: one small shuffle, to sort.
    """
    ordered = in_order(summary.where(~metric_label().isin(*without)), F.col("run"))
    shown = (
        "run",
        segment_label().alias("segment"),
        asked_label().alias("metric"),
        "value",
        interval_of("ci_low", "ci_high").alias("interval"),
        F.col("n_queries").alias("n"),
    )
    overall = F.when(F.col("segment_by") == "", F.struct(*beside))
    return ordered.select(*shown, *([overall.alias(BESIDE)] if beside else []))
