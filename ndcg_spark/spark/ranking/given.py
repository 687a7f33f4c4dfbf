"""Lists of a table whose ranks are given: few rows matter to them, so the others are only counted.

Sorting is what top-K aggregates cost, and here they sort the rows within rank K and those that gain something; all
rows are counted by hashing. Both merge before the shuffle and meet by query.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.ideal import listed_order, needs_ideal, top_relevant, with_judged
from ndcg_spark.spark.ranking.lists import given_ranks, with_entries


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
    order = listed_order(rows, plan)
    within = F.col("rank") <= (plan.longest or 0)
    matter = rows.where(within | order.isNotNull() if needs_ideal(plan) else within)
    matter = with_judged(with_entries(matter, plan, given=True))
    wanted = {"entries": given_ranks(plan, top_k=True)}
    if needs_ideal(plan):
        wanted |= top_relevant(matter, plan, order, with_item=with_item)
    return matter.groupBy(*columns_of(keys)).agg(*[column.alias(name) for name, column in wanted.items()])
