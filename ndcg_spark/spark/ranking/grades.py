"""Rankings of a table whose ranks are given and whose relevances are grades, without a list and without a sort.

All that NDCG needs to know of such a query is which grade stands on each of the first K ranks, and how many items
have each grade: digits and counts packed into a few whole numbers, which hash aggregation keeps in place.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, named
from ndcg_spark.spark.ranking.counts import carried, counts, settled
from ndcg_spark.spark.ranking.ideal import needs_ideal
from ndcg_spark.spark.ranking.lists import every_row_ranks
from ndcg_spark.spark.rows import keys_of
from ndcg_spark.worker.grades import COUNT_BITS, DIGIT_BITS, HIGHEST, OTHER, RANKS_OF_A_WORD, UNJUDGED, digit_of

_DIGIT = "relevance:digit"


def rank_by_grades(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Rank a long table with ranks and whole relevances, most of which are grades from 0 to 10.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with ranks and relevances.
    plan : EvaluationPlan
        With a largest cutoff up to 60, and no look for duplicates among lists.

    Returns
    -------
    DataFrame
        Rankings with `grades` and `others` (see `worker.grades`) in place of lists; lazy.

    Notes
    -----
    Spark cost: one shuffle of a row a query and input partition, by hash aggregation. A second pass over the rows
    that have another relevance, of which parquet need not read what its statistics rule out: two shuffles of a row
    for every such relevance in a query, and a join that adaptive execution leaves away where there are none.
    """
    keys = keys_of(plan)
    graded = rows.withColumn(_DIGIT, _digit())
    wanted = counts(rows, plan)
    packed = {
        "words": F.array(*_words(plan)),
        "n_within": F.sum(F.when(_within(plan), 1).otherwise(0)),
        "counts": F.array(*_grade_counts(rows, plan)),
        "n_ideal": F.count(F.when(_in_ideal(rows, plan), F.col("relevance"))),
    }
    wanted |= {"grades": F.struct(*[column.alias(name) for name, column in packed.items()])}
    grouped = graded.groupBy(*columns_of(keys)).agg(*[column.alias(name) for name, column in wanted.items()])
    grouped = settled(grouped, keys, carried(rows, plan), plan)
    return grouped.join(_others(rows, plan), list(keys), "left")


def _digit() -> Column:
    """What stands for a row's relevance in the packed ranks."""
    relevance = F.col("relevance")
    graded = F.when(relevance.between(0, HIGHEST), (relevance + digit_of(0)).cast("int"))
    return F.when(relevance.isNull(), UNJUDGED).otherwise(F.coalesce(graded, F.lit(OTHER)))


def _within(plan: EvaluationPlan) -> Column:
    return F.col("rank") <= (plan.longest or 0)


def _words(plan: EvaluationPlan) -> list[Column]:
    """Numbers that hold the digits of the first K ranks, fifteen each."""
    found, longest = [], plan.longest or 0
    for start in range(0, longest, RANKS_OF_A_WORD):
        place = F.col("rank") - 1 - start
        held = place.between(0, min(RANKS_OF_A_WORD, longest - start) - 1)
        digit = F.call_function("shiftleft", named(_DIGIT).cast("bigint"), (place * DIGIT_BITS).cast("int"))
        found.append(F.coalesce(F.bit_or(F.when(held, digit)), F.lit(0).cast("bigint")))
    return found


def _grade_counts(rows: DataFrame, plan: EvaluationPlan) -> list[Column]:
    """Numbers of items of the ideal list of each grade from 1 on, two grades in a number."""
    found = []
    for low in range(1, HIGHEST, 2):
        one = F.when(named(_DIGIT) == digit_of(low), F.lit(1).cast("bigint"))
        one = one.when(named(_DIGIT) == digit_of(low + 1), F.lit(2**COUNT_BITS)).otherwise(F.lit(0).cast("bigint"))
        found.append(F.sum(F.when(_in_ideal(rows, plan), one).otherwise(0)))
    return found


def _in_ideal(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """Whether the ideal list takes an item if it is judged."""
    if not needs_ideal(plan) or plan.convention.ideal != "retrieved" or every_row_ranks(rows, plan):
        return F.lit(needs_ideal(plan))
    return F.col("rank").isNotNull()


def _others(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """One row per query that has relevances which are no grades: `others`."""
    keys = keys_of(plan)
    relevance = F.col("relevance")
    bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), (F.col("rank") - 1).cast("int"))
    each = {
        "n_ideal": F.count(F.when(_in_ideal(rows, plan), 1)),
        "ranks": F.coalesce(F.bit_or(F.when(_within(plan), bit)), F.lit(0).cast("bigint")),
    }
    other = rows.where((relevance < 0) | (relevance > HIGHEST))
    levels = other.groupBy(*columns_of([*keys, "relevance"])).agg(*[c.alias(name) for name, c in each.items()])
    listed = F.collect_list(F.struct(relevance.cast("double").alias("relevance"), *each))
    return levels.groupBy(*columns_of(keys)).agg(listed.alias("others"))
