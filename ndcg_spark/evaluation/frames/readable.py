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


def places(value: Column, names: Sequence[str]) -> list[Column]:
    """Sort by the place of a text among names; those that are not among them come last."""
    if not names:
        return []
    # F.array_position of Spark 3.5 takes no column as the value.
    place = F.call_function("array_position", F.array(*map(F.lit, names)), value)
    return [place == 0, place]


def in_order(rows: DataFrame, *last: Column, asked: Sequence[str] = ()) -> DataFrame:
    """Sort rows of means: all queries first, metrics as `asked`, else main metrics first, then by `last`."""
    by_metric = [*places(metric_label(), asked), *places(F.col("metric"), SHOWN_FIRST), F.col("metric")]
    k = F.col("k").asc_nulls_last()
    return rows.orderBy("segment_by", F.col("segment").asc_nulls_last(), *by_metric, k, *last)


def interval_of(low: str, high: str) -> Column:
    """An interval as text with four digits, null where it has no bounds."""
    return F.when(F.col(low).isNotNull(), F.format_string("[%.4f, %.4f]", low, high))


def readable_means(
    summary: DataFrame, *, asked: Sequence[str] = (), without: Sequence[str] = (), beside: Sequence[str] = ()
) -> DataFrame:
    """Means, one row per segment, metric and run, as `Evaluation.means` describes them. Lazy.

    `asked` are metrics, as `ndcg@10`, in the order in which they were asked for; `without` those that were not.
    Segments as `country=DE`, `all` for all queries,
    which come first; metrics by the name that was asked for, as `ndcg@10`; the interval as text with four digits,
    null below two queries; `n` are the queries that count. `beside` are columns of the summary to take along, for
    all queries, in the column `BESIDE`. Spark cost: one small shuffle, to sort.
    """
    ordered = in_order(summary.where(~metric_label().isin(*without)), F.col("run"), asked=asked)
    shown = (
        "run",
        segment_label().alias("segment"),
        asked_label().alias("metric"),
        "value",
        interval_of("ci_low", "ci_high").alias("interval"),
        "ci_low",
        "ci_high",
        F.col("n_queries").alias("n"),
    )
    overall = F.when(F.col("segment_by") == "", F.struct(*beside))
    return ordered.select(*shown, *([overall.alias(BESIDE)] if beside else []))
