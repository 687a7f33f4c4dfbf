"""Summaries for people, and rows of metric tables and per-query tables as nights store them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core import labels
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.shown import BESIDE
from ndcg_spark.core.workers import filter_rows
from ndcg_spark.evaluation.frames.scoring import per_query_schema
from ndcg_spark.evaluation.frames.summary import SUMMARY_SCHEMA
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.partial_sums import OF_ITEMS
from ndcg_spark.evaluation.tasks.scoring import dropped


def readable_means(
    summary: DataFrame, *, asked: Sequence[str] = (), without: Sequence[str] = (), beside: Sequence[str] = ()
) -> DataFrame:
    """Select means as `Evaluation.means` describes them: metrics in the order of `asked`, without those of `without`.

    `beside` are columns to carry for all queries, in `BESIDE`. Lazy; one small shuffle to sort.
    """
    rows = filter_rows(summary, ~F.expr(labels.METRIC_AT_SQL).isin(*without))
    ordered = rows.orderBy(*map(F.expr, labels.row_order_sql(asked)))
    shown = (
        "run",
        F.expr(labels.SEGMENT_SQL).alias("segment"),
        F.expr(labels.METRIC_SQL).alias("metric"),
        "value",
        F.expr(labels.INTERVAL_SQL).alias("interval"),
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


def _for_sums(settings: EvaluationSettings) -> tuple[str, ...]:
    return (*_ACCOUNTS, "items") if settings.catalogue_metrics else _ACCOUNTS


def per_query_rows(per_query: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Metrics of the queries that were not dropped, without the accounts that only sums need; lazy."""
    return per_query.where(~F.col("status").isin(*dropped(settings.convention))).drop(*_for_sums(settings))
