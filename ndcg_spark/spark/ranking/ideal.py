"""The ideal list by top-K aggregates, and what it may leave out.

Where an item of relevance 0 gains 0, it need not be listed, and most items are such: what is sorted for the ideal
list is then a small part of the rows. Zeros are counted instead, as they stand before negative items.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.kernels.gains import parse_gain_table
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.lists import every_row_ranks, rankable


def needs_ideal(plan: EvaluationPlan) -> bool:
    """Whether the ideal list is made from judged items.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    return plan.convention.ideal != "k_ones"


def ideal_order(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """By what judged items are put in ideal order: relevance, or gain where a table need not rise with it.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    Column
        Null for rows that are not in the ideal list.
    """
    convention = plan.convention
    order = F.col("relevance")
    if convention.has_gain_table:
        level = F.when(order < 0, F.lit(0.0)).otherwise(order) if convention.negative == "clip" else order
        gain = F.lit(None).cast("double")
        for relevance, value in parse_gain_table(str(convention.gain).partition(":")[2]).items():
            gain = F.when(level == relevance, F.lit(value)).otherwise(gain)
        order = gain
    if convention.ideal == "retrieved" and not every_row_ranks(rows, plan):
        order = F.when(rankable(rows, plan), order)
    return order


def zero_gains_nothing(plan: EvaluationPlan) -> bool:
    """Whether an item of relevance 0 is known to gain 0: all named gains but tables.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    return isinstance(plan.convention.gain, str) and not plan.convention.has_gain_table


def listed_order(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """Give `ideal_order`, null also for items of relevance 0 that gain nothing.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    Column
        A list by this order wants `zeros_left_out` and `with_zeros`.
    """
    order = ideal_order(rows, plan)
    return F.when(order != 0, order) if zero_gains_nothing(plan) else order


def with_judged(rows: DataFrame) -> DataFrame:
    """Add `judged`: what an ideal list in which duplicates are looked for holds of a row.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows.

    Returns
    -------
    DataFrame
        The same rows where they lack item or relevance; lazy.
    """
    if "item" not in rows.columns or "relevance" not in rows.columns:
        return rows
    return rows.withColumn("judged", F.struct("relevance", "item"))


def top_relevant(rows: DataFrame, plan: EvaluationPlan, order: Column, *, with_item: bool) -> dict[str, Column]:
    """Aggregate the best judged rows of a query by gain.

    Parameters
    ----------
    rows : DataFrame
        With items also `judged`, or where it is the same for this purpose, `entry`.
    plan : EvaluationPlan
    order : Column
        From `ideal_order`; rows for which it is null are left out.
    with_item : bool
        Whether duplicates are looked for.

    Returns
    -------
    dict from name to aggregate
        `ideal`: relevances, best first. With items instead `best`: structs with `relevance` and `item`, one more
        than the largest cutoff; and beside it `orders`, where these are not the relevances.
    """
    k = (plan.longest or 0) + int(with_item)

    def best(value: Column) -> Column:
        return F.call_function("max_by", value, order, F.lit(k))

    if not with_item:
        return {"ideal": best(F.col("relevance"))}
    found = {"best": best(F.col("judged" if "judged" in rows.columns else "entry"))}
    return found | ({"orders": best(order)} if plan.convention.has_gain_table else {})


def ideal_lists(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], *, with_item: bool) -> DataFrame:
    """One row per query that has anything to list: `ideal`, or with items `best`, without zeros.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with relevances.
    plan : EvaluationPlan
        With a largest cutoff.
    keys : tuple of str
    with_item : bool
        Whether duplicates are looked for.

    Returns
    -------
    DataFrame
        Lazy; see `with_zeros`.

    Notes
    -----
    Spark cost: one shuffle of at most K rows a query and input partition, one sort of the rows that are listed.
    """
    order = listed_order(rows, plan)
    listed = with_judged(rows.where(order.isNotNull()))
    wanted = top_relevant(listed, plan, order, with_item=with_item)
    return listed.groupBy(*columns_of(keys)).agg(*[column.alias(name) for name, column in wanted.items()])


def zeros_left_out(rows: DataFrame, plan: EvaluationPlan) -> dict[str, Column]:
    """Aggregate `n_zero`, how many items `with_zeros` must know of; nothing where it is not needed.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    dict from name to aggregate
    """
    if not needs_ideal(plan) or not zero_gains_nothing(plan) or plan.convention.negative != "keep":
        return {}
    return {"n_zero": F.sum(F.when(ideal_order(rows, plan) == 0, 1).otherwise(0))}


def with_zeros(grouped: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Put items of relevance 0 back before negative ones, which they keep from the first ranks of the ideal list.

    Parameters
    ----------
    grouped : DataFrame
        With `n_zero`, and `ideal` or `best`, best first.
    plan : EvaluationPlan

    Returns
    -------
    DataFrame
        Without `n_zero`; lazy.
    """
    name = "best" if "best" in grouped.columns else "ideal"
    kind = grouped.schema[name].dataType
    nullable = kind.simpleString()  # which says nothing of fields that cannot be null
    zero, relevance = F.lit(0.0), _itself
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StructType):
        nought = [F.lit(0.0 if field in ("relevance", "order") else None) for field in kind.elementType.names]
        zero, relevance = F.struct(*nought), _relevance
    most = 2**31 - 1 if plan.longest is None else plan.longest + (1 if name == "best" else 0)
    zeros = F.array_repeat(zero, F.least("n_zero", F.lit(most)).cast("int")).cast(nullable)
    found = F.col(name)
    above = F.filter(found.cast(nullable), lambda one: relevance(one) > 0)
    below = F.filter(found.cast(nullable), lambda one: relevance(one) < 0)
    whole = F.slice(F.concat(above, zeros, below), 1, most)
    lowest = relevance(F.get(found, F.size(found) - 1))
    return grouped.withColumn(name, F.when(lowest < 0, whole).otherwise(found)).drop("n_zero")


def _itself(element: Column) -> Column:
    return element


def _relevance(element: Column) -> Column:
    return element["relevance"]
