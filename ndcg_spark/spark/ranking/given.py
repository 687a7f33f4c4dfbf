"""Lists of a table whose ranks are given: few rows matter to them, so the others are only counted.

Sorting is what top-K aggregates cost, and here they sort the rows within rank K and those that gain something; all
rows are counted by hashing. Both merge before the shuffle and meet by query.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.lists import (
    given_ranks,
    ideal_order,
    needs_ideal,
    top_relevant,
    with_entries,
    with_judged,
)


def given_lists(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], *, with_item: bool) -> DataFrame:
    """One row per query that has rows which matter: `entries`, and `ideal` or `best`.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with ranks and relevances.
    plan : EvaluationPlan
        With a largest cutoff.
    keys : tuple of str
    with_item : bool
        Whether duplicates are looked for: among these rows.

    Returns
    -------
    DataFrame
        Lazy. The ideal list lacks items of relevance 0 where these gain nothing: see `with_zeros`.

    Notes
    -----
    Spark cost: one shuffle of at most 2 K rows a query and input partition, one sort of the rows that matter.
    """
    order = ideal_order(rows, plan)
    if zero_gains_nothing(plan):
        order = F.when(order != 0, order)
    within = F.col("rank") <= (plan.longest or 0)
    matter = rows.where(within | order.isNotNull() if needs_ideal(plan) else within)
    matter = with_judged(with_entries(matter, plan, given=True))
    wanted = {"entries": given_ranks(plan, top_k=True)}
    if needs_ideal(plan):
        wanted |= top_relevant(matter, plan, order, with_item=with_item)
    return matter.groupBy(*columns_of(keys)).agg(*[column.alias(name) for name, column in wanted.items()])


def zero_gains_nothing(plan: EvaluationPlan) -> bool:
    """Whether an item of relevance 0 is known to gain 0: all named gains but tables.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    gain = plan.convention.gain
    return isinstance(gain, str) and not gain.startswith("table:")


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
    relevance: Callable[[Column], Column] = (lambda one: one["relevance"]) if name == "best" else (lambda one: one)
    kind = grouped.schema[name].dataType.simpleString()
    zero = F.struct(F.lit(0.0), F.lit(None)) if name == "best" else F.lit(0.0)
    most = (plan.longest or 0) + 1
    zeros = F.array_repeat(zero, F.least("n_zero", F.lit(most)).cast("int")).cast(kind)
    found = F.col(name)
    above = F.filter(found, lambda one: relevance(one) > 0)
    below = F.filter(found, lambda one: relevance(one) < 0)
    whole = F.slice(F.concat(above, zeros, below), 1, most if name == "best" else most - 1)
    lowest = relevance(F.get(found, F.size(found) - 1))
    return grouped.withColumn(name, F.when(lowest < 0, whole).otherwise(found)).drop("n_zero")
