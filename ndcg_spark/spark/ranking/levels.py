"""Rankings of a table whose ranks are given by levels of relevance, without a list and without a sort.

All that NDCG needs to know of such a query is, for each different relevance, on which of the first K ranks it stands
and how many items have it: counts and the bits of a number, which hash aggregation keeps in place.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, named
from ndcg_spark.spark.ranking.counts import carried, counts, settled
from ndcg_spark.spark.rows import keys_of


def rank_by_levels(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Rank a long table with ranks and few different relevances.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with ranks and relevances.
    plan : EvaluationPlan
        With a largest cutoff up to 62, and no look for duplicates among lists.

    Returns
    -------
    DataFrame
        Rankings with `levels` (see `worker.levels`) in place of lists; lazy.

    Notes
    -----
    Spark cost: two shuffles of a row for every query and relevance in it, and one input partition.
    """
    keys = keys_of(plan)
    wanted = counts(rows, plan)
    in_ideal = F.count("rank") if plan.convention.ideal == "retrieved" else F.count(F.lit(1))
    within = F.col("rank") <= (plan.longest or 0)
    level = {
        "n_ideal": in_ideal,
        "n_within": F.sum(F.when(within, 1).otherwise(0)),
        "ranks": F.coalesce(F.bit_or(F.when(within, F.expr("shiftleft(1L, int(rank - 1))"))), F.lit(0)),
    }
    found = [column.alias(name) for name, column in wanted.items()]
    found += [column.alias(f"level:{name}") for name, column in level.items()]
    levels = rows.groupBy(*columns_of([*keys, "relevance"])).agg(*found)
    merged = [(F.min if name.startswith("low:") else F.max if name.startswith("high:") else F.sum) for name in wanted]
    lists = F.collect_list(F.struct("relevance", *[named(f"level:{name}").alias(name) for name in level]))
    grouped = levels.groupBy(*columns_of(keys)).agg(
        *[merge(named(name)).alias(name) for merge, name in zip(merged, wanted, strict=True)], lists.alias("levels")
    )
    return settled(grouped, keys, carried(rows, plan), plan)
