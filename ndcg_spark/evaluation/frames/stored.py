"""Summaries for people, and rows of metric tables and per-query tables as nights store them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.shown import BESIDE
from ndcg_spark.core.workers import filter_rows
from ndcg_spark.evaluation.frames.scoring import per_query_schema
from ndcg_spark.evaluation.frames.summary import SUMMARY_SCHEMA
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import ASKED, SHOWN_FIRST, EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.partial_sums import OF_ITEMS
from ndcg_spark.evaluation.tasks.scoring import dropped


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
    """Select means as `Evaluation.means` describes them: metrics in the order of `asked`, without those of `without`.

    `beside` are columns to carry for all queries, in `BESIDE`. Lazy; one small shuffle to sort.
    """
    ordered = in_order(filter_rows(summary, ~metric_label().isin(*without)), F.col("run"), asked=asked)
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
    kept = [REFUSAL] if REFUSAL in summary.columns else []
    return ordered.select(*shown, *([overall.alias(BESIDE)] if beside else []), *kept)


HIDDEN = ("state", RULES)
"""Columns of a summary that JSON leaves out of its rows."""
PROVENANCE = ("convention", "config_hash", "input", "package_version")
METRIC_SCHEMA = T.StructType(
    [
        *SUMMARY_SCHEMA.fields,
        *[T.StructField(name, T.StringType()) for name in PROVENANCE],
        T.StructField("computed_at", T.TimestampType()),
    ]
)
_ACCOUNTS = ("n_rows", "n_left_out", N_REJECTED, *OF_ITEMS)


def per_query_table_schema(rankings: DataFrame, settings: EvaluationSettings) -> T.StructType:
    return T.StructType([one for one in per_query_schema(rankings, settings) if one.name not in _for_sums(settings)])


def metric_rows(spark: SparkSession, summary: list[dict[str, Any]], facts: Any, computed_at: datetime) -> DataFrame:
    """Summary rows with what they were computed from, which facts say under the same names; one partition, lazy."""
    names = SUMMARY_SCHEMA.fieldNames()
    values = [tuple(row[name] for name in names) for row in summary]
    frame = spark.createDataFrame(values, SUMMARY_SCHEMA)
    for name in PROVENANCE:
        frame = frame.withColumn(name, F.lit(getattr(facts, name)))
    stamped = frame.withColumn("computed_at", F.lit(computed_at).cast(T.TimestampType()))
    return stamped.coalesce(1)


def _for_sums(settings: EvaluationSettings) -> tuple[str, ...]:
    return (*_ACCOUNTS, "items") if settings.catalogue_metrics else _ACCOUNTS


def per_query_rows(per_query: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Metrics of the queries that were not dropped, without the accounts that only sums need; lazy."""
    return per_query.where(~F.col("status").isin(*dropped(settings.convention))).drop(*_for_sums(settings))
