"""Ranked lists by top-K aggregates: the first K by score or by given rank.

They are `max_by(value, order, K)`, which merges before the shuffle.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import named

ENTRIES = "array<double>"


def rankable(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """Whether a row is in the ranking at all: retrieved, and judged where unjudged items are removed.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows.
    plan : EvaluationPlan

    Returns
    -------
    Column
        Boolean.
    """
    retrieved = named("rank" if "rank" in rows.columns else "score").isNotNull()
    if plan.convention.unjudged == "condensed" and "relevance" in rows.columns:
        return retrieved & F.col("relevance").isNotNull()
    return retrieved


def every_row_ranks(rows: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether `rankable` is always true, so that no filter is needed.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    condensed = plan.convention.unjudged == "condensed" and "relevance" in rows.columns
    return plan.null_score == "bad" and not condensed


def tie_order(plan: EvaluationPlan) -> tuple[bool, dict[str, Column]]:
    """How rows rank by score, as the leading fields of a struct.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    tuple
        Whether the largest struct ranks first, and its fields by name.
    """
    ties = plan.convention.ties
    if ties == "item_desc":
        return True, {"score": F.col("score"), "item": F.col("item")}
    second = "position" if ties == "input_order" else "item"
    return False, {"falling": -F.col("score"), second: F.col(second)}


def with_entries(rows: DataFrame, plan: EvaluationPlan, *, given: bool, only_order: bool = False) -> DataFrame:
    """Add `entry`: what a ranked list holds of a row, in a struct that orders as rows rank.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows.
    plan : EvaluationPlan
    given : bool
        Whether ranks are given.
    only_order : bool
        Whether an entry is only to order rows by their score: it is then as small as can be.

    Returns
    -------
    DataFrame
        `entry` is null for a row that is not in the ranking, or beyond the largest cutoff by its given rank.
        Lazy. A column of its own, as an aggregate would build a struct of arguments twice for every row.
    """
    held = {name: F.col(name) for name in ("item", "relevance") if name in rows.columns and not only_order}
    if given:
        entry = _struct({"rank": F.col("rank")} | held)
        within = F.col("rank").isNotNull() if plan.longest is None else F.col("rank") <= plan.longest
        return rows.withColumn("entry", F.when(within, entry))
    entry = _struct(tie_order(plan)[1] | held)
    if every_row_ranks(rows, plan):
        return rows.withColumn("entry", entry)
    return rows.withColumn("entry", F.when(rankable(rows, plan), entry))


def _struct(fields: dict[str, Column]) -> Column:
    return F.struct(*[column.alias(name) for name, column in fields.items()])


def top_ranked(plan: EvaluationPlan, k: int, value: str = "entry") -> Column:
    """Aggregate something of the k first rows of a query, in rank order.

    Parameters
    ----------
    plan : EvaluationPlan
    k : int
    value : str
        `entry`, or where items are not needed `relevance`, which is cheaper to hold.

    Returns
    -------
    Column
        Array; null where no row ranks.
    """
    largest_first = tie_order(plan)[0]
    aggregate = "max_by" if largest_first else "min_by"  # these skip rows whose order is null
    return F.call_function(aggregate, F.col(value), F.col("entry"), F.lit(k))


def given_ranks(plan: EvaluationPlan, *, top_k: bool) -> Column:
    """Aggregate the entries whose given rank is within the largest cutoff, in rank order.

    Parameters
    ----------
    plan : EvaluationPlan
    top_k : bool
        Whether this Spark has top-K aggregates.

    Returns
    -------
    Column
        Array of `entry`: one more than the cutoff, so that two items on one rank always show.
    """
    if not top_k or plan.longest is None:
        return F.sort_array(F.collect_list("entry"))
    return F.call_function("min_by", F.col("entry"), F.col("entry"), F.lit(plan.longest + 1))


def empty_list() -> Column:
    """Give a list of nothing.

    Returns
    -------
    Column
        Array of double.
    """
    return F.array().cast(ENTRIES)
