"""Rankings to metrics: one row per (run, query, k)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ndcg_spark.conventions.discounts import discount_table
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import MissingColumnError
from ndcg_spark.evaluation.settings import ITEM_RESERVED, EvaluationPlan
from ndcg_spark.evaluation.tasks.partial_ranking import COUNTS, N_REJECTED
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RANKED_ITEMS, RANKED_LIST, WEIGHT, canonical_names
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, make_scorer


def score_queries(rankings: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Metrics of every query, one row per (run, query, k).

    Parameters
    ----------
    rankings : DataFrame
        From `rank_queries` with the same plan.
    plan : EvaluationPlan

    Returns
    -------
    DataFrame
        `run`, the query columns, `k` (int; null = the whole list), `dcg`, `idcg`, `ndcg` (double), `status`
        (`evaluated`, `no_relevant`, `missing`, `unjudged`), `n_items`, `n_judged`, `n_relevant`, `n_rows`,
        `n_left_out` (bigint), segment columns, `weight`. All metrics are null for a query that a rule drops, and each
        at cutoffs at which it is not asked for (`dcg`, `idcg` and `ndcg` come together); only `ndcg` is null for a
        query with nothing relevant under `no_relevant=skip`. With metrics of the
        catalogue also `items`, the first k items in rank order, at their cutoffs. Lazy.

    Raises
    ------
    MissingColumnError
        When the rankings were made without the metrics of the plan.

    Notes
    -----
    Spark cost: no shuffle, no action, one pass through Python workers of about 2 K numbers per query.
    """
    return rankings.mapInArrow(
        as_shipped(make_scorer(scoring_task(rankings.columns, plan))), schema=per_query_schema(rankings, plan)
    )


def scoring_task(columns: Sequence[str], plan: EvaluationPlan) -> ScoringTask:
    """Build the task that is shipped to workers, from a plan and the columns of the rankings."""
    if plan.levels and "n_at_least" not in columns:
        raise MissingColumnError(
            "the rankings lack column n_at_least, which the metrics need; rank with the plan that names them."
        )
    if plan.needs and "items" not in columns:
        raise MissingColumnError(
            f"the rankings lack column items, which metric {plan.metric_with(plan.needs[0])!r} needs; rank with the "
            "plan that names it."
        )
    k = plan.max_k
    return ScoringTask(
        convention=plan.convention,
        cutoffs=plan.cutoffs,
        keys=("run", *plan.columns.query),
        carried=_carried(columns, plan),
        metrics=plan.scored,
        needs=plan.needs,
        item_column=plan.columns.item or "",
        listed=frozenset(k for _, k in plan.catalogue_metrics),
        levels=plan.levels,
        discount=None if k is None else discount_table(plan.convention.discount, k),
    )


def _carried(columns: Sequence[str], plan: EvaluationPlan) -> tuple[str, ...]:
    passed = {"run", *plan.columns.query, "ranked", "ranks", "scores", "tied", "ideal", "n_at_least"}
    passed |= set(ITEM_RESERVED if plan.needs else ())
    return tuple(name for name in columns if name not in passed)


def per_query_schema(rankings: DataFrame, plan: EvaluationPlan) -> T.StructType:
    """Schema of `score_queries`. Reads a schema, runs no action."""
    known = rankings.schema
    fields = [T.StructField(name, known[name].dataType) for name in ("run", *plan.columns.query)]
    fields.append(T.StructField("k", T.IntegerType()))
    fields += [T.StructField(name, T.DoubleType()) for name in plan.metric_columns]
    fields.append(T.StructField("status", T.StringType()))
    fields += [T.StructField(name, known[name].dataType) for name in _carried(rankings.columns, plan)]
    if plan.catalogue_metrics:
        fields.append(T.StructField("items", known["items"].dataType))
    return T.StructType(fields)


def rankings_schema(plan: EvaluationPlan, rows: DataFrame, judgments: DataFrame | None) -> T.StructType:
    """Columns of rankings, from canonical rows and judgments. Reads schemas, runs no action."""
    names, known = canonical_names(plan), rows.schema
    fields = [T.StructField("run", T.StringType())]
    fields += [T.StructField(label, known[name].dataType) for name, label in names.query.items()]
    rejected = [N_REJECTED] if plan.on_invalid == "reject" else []
    fields += [T.StructField(name, T.LongType()) for name in (*COUNTS, *rejected)]
    if plan.levels:
        fields.append(T.StructField("n_at_least", T.ArrayType(T.LongType())))
    for name, label in names.carried.items():
        for table in (rows, judgments):
            if table is not None and name in table.columns:
                kind = T.DoubleType() if name == WEIGHT else table.schema[name].dataType
                fields.append(T.StructField(label, kind))
                break
    fields.append(T.StructField("ranked", T.ArrayType(T.DoubleType())))
    from_rows = RANKED_LIST not in known.names
    if from_rows and plan.ranks_given:
        fields.append(T.StructField("ranks", T.ArrayType(T.LongType())))
    elif from_rows and plan.convention.groups_ties:
        fields.append(T.StructField("scores", T.ArrayType(T.DoubleType())))
        fields.append(T.StructField("tied", T.ArrayType(T.LongType())))
    if plan.lists_items:
        kind = T.ArrayType(known[ITEM].dataType) if from_rows else known[RANKED_ITEMS].dataType
        fields.append(T.StructField("items", kind))
    return T.StructType([*fields, T.StructField("ideal", T.ArrayType(T.DoubleType()))])
