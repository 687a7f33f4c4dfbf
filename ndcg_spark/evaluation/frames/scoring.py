"""Rankings to metrics: one row per (run, query, k)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.given import takes_rows
from ndcg_spark.core.workers import in_workers
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.scoring import (
    N_TOP_ITEMS,
    N_UNJUDGED_ITEMS,
    carried_columns,
    score_rankings,
    scoring_task,
)


@takes_rows
def score_queries(rankings: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Metrics of every query, one row per (run, query, k).

    Parameters
    ----------
    rankings : DataFrame
        From `rank_queries` with the same settings.
    settings : EvaluationSettings

    Returns
    -------
    DataFrame
        `run`, the query columns, `k` (int; null = the whole list), `dcg`, `idcg`, `ndcg` (double), `status`
        (`evaluated`, `no_relevant`, `missing`, `unjudged`), `n_unjudged_items` and `n_top_items` (unjudged items
        among the first k, and all of these), `n_items`, `n_judged`, `n_relevant`, `n_rows`, `n_left_out` (bigint),
        segment columns, `weight`. All metrics are null for a query that a rule drops, and each at cutoffs at which it
        is not asked for (`dcg`, `idcg` and `ndcg` come together); only `ndcg` is null for a query with nothing
        relevant under `no_relevant=skip`. With metrics of the catalogue also `items`, the first k items in rank
        order, at their cutoffs. Last comes `rules`, all that changes the value of a query, as one text. Lazy.

    Raises
    ------
    MissingColumnError
        When the rankings were made without the metrics of the settings.

    Notes
    -----
    Spark cost: no shuffle, no action, one pass through Python workers of about 2 K numbers per query.
    """
    task, schema = scoring_task(rankings.columns, settings), scored_schema(rankings, settings)
    return with_rules(in_workers(rankings, score_rankings, task, schema=schema), settings)


def with_rules(queries: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Add the rules to metrics of queries: a constant, which workers need not hand over."""
    return queries.withColumn(RULES, F.lit(settings.rules).cast("string"))


def per_query_schema(rankings: DataFrame, settings: EvaluationSettings) -> T.StructType:
    return T.StructType([*scored_schema(rankings, settings), T.StructField(RULES, T.StringType())])


def scored_schema(rankings: DataFrame, settings: EvaluationSettings) -> T.StructType:
    """Columns that workers give of `score_queries`. Reads a schema, runs no action."""
    known = rankings.schema
    keys = ("run", *settings.columns.query_columns(rankings.columns))
    fields = [T.StructField(name, known[name].dataType) for name in keys]
    fields.append(T.StructField("k", T.IntegerType()))
    fields += [T.StructField(name, T.DoubleType()) for name in settings.metric_columns]
    fields.append(T.StructField("status", T.StringType()))
    fields += [T.StructField(name, T.LongType()) for name in (N_UNJUDGED_ITEMS, N_TOP_ITEMS)]
    fields += [T.StructField(name, known[name].dataType) for name in carried_columns(rankings.columns, settings)]
    if settings.catalogue_metrics:
        fields.append(T.StructField("items", known["items"].dataType))
    return T.StructType(fields)
