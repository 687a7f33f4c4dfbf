"""Lists without lists: which grade is on each of the first K ranks, and how many items have each grade.

Where relevances are whole and no duplicates are looked for, that is all that NDCG needs to know of a query: digits
and counts packed into a few whole numbers, which hash aggregation keeps in place. Counts make the ideal list; digits
make the ranked list where ranks are given. Rows whose relevance is no grade are listed like any others, apart.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import named
from ndcg_spark.spark.ranking.ideal import needs_ideal
from ndcg_spark.spark.ranking.lists import ENTRIES, every_row_ranks, rankable
from ndcg_spark.worker.grades import (
    COUNT_BITS,
    DIGIT_BITS,
    FLIPPED,
    HIGHEST,
    OTHER,
    RANKS_OF_A_WORD,
    UNJUDGED,
    digit_of,
)

_DIGIT = "relevance:digit"
_OTHER_ENTRIES, _OTHER_IDEAL = "entries:others", "ideal:others"


def with_digits(rows: DataFrame) -> DataFrame:
    """Add what stands for a row's relevance in packed grades.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows whose relevances are whole.

    Returns
    -------
    DataFrame
        Lazy.
    """
    relevance = F.col("relevance")
    digit = relevance.bitwiseXOR(F.lit(FLIPPED)).cast("int")
    graded = F.when(relevance.isNull(), UNJUDGED).when(relevance.between(0, HIGHEST), digit)
    return rows.withColumn(_DIGIT, graded.otherwise(OTHER))


def packed_grades(rows: DataFrame, plan: EvaluationPlan, *, ranks: bool) -> Column:
    """Aggregate the grades of a query, which `worker.grades` turns into lists.

    Parameters
    ----------
    rows : DataFrame
        From `with_digits`.
    plan : EvaluationPlan
        With a largest cutoff, up to 63 where `ranks`.
    ranks : bool
        Whether ranks are given, and grades packed by rank.

    Returns
    -------
    Column
        Struct of `counts`, for the ideal list; with `ranks` also of `words` and `n_within`.
    """
    packed = {"counts": F.array(*_grade_counts(rows, plan))}
    if ranks:
        packed |= {"words": F.array(*_words(plan)), "n_within": F.sum(F.when(_within(plan), 1).otherwise(0))}
    return F.struct(*[column.alias(name) for name, column in packed.items()])


def _within(plan: EvaluationPlan) -> Column:
    return F.col("rank") <= (plan.longest or 0)


def _words(plan: EvaluationPlan) -> list[Column]:
    """Numbers that hold the digits of the first K ranks, sixteen each."""
    found, longest = [], plan.longest or 0
    place = F.col("rank").bitwiseAND(F.lit(RANKS_OF_A_WORD - 1))
    n_bits = F.call_function("shiftleft", place, F.lit(DIGIT_BITS.bit_length() - 1))  # four of each: see FLIPPED
    digit = F.call_function("shiftleft", named(_DIGIT).cast("bigint"), n_bits)
    for first in range(0, longest + 1, RANKS_OF_A_WORD):
        held = F.col("rank").between(first, min(first + RANKS_OF_A_WORD - 1, longest))
        found.append(F.bit_or(F.when(held, digit).otherwise(F.lit(0).cast("bigint"))))
    return found


def _grade_counts(rows: DataFrame, plan: EvaluationPlan) -> list[Column]:
    """Numbers of items of the ideal list of each grade, two grades in a number."""
    found = []
    for low in range(0, HIGHEST, 2):
        one = F.when(named(_DIGIT) == digit_of(low), F.lit(1).cast("bigint"))
        one = one.when(named(_DIGIT) == digit_of(low + 1), F.lit(2**COUNT_BITS)).otherwise(F.lit(0).cast("bigint"))
        found.append(F.sum(F.when(_in_ideal(rows, plan), one).otherwise(0)))
    return found


def _in_ideal(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """Whether the ideal list takes an item if it is judged."""
    if not needs_ideal(plan) or plan.convention.ideal != "retrieved" or every_row_ranks(rows, plan):
        return F.lit(needs_ideal(plan))
    return rankable(rows, plan)


def other_rows(rows: DataFrame) -> DataFrame:
    """Take the rows whose relevances are no grades from 0 to 9, without their items.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows.

    Returns
    -------
    DataFrame
        Lazy; of parquet, what statistics rule out is not read.
    """
    relevance = F.col("relevance")
    return rows.where((relevance < 0) | (relevance > HIGHEST)).drop("item")


def named_others(lists: DataFrame) -> DataFrame:
    """Rename lists of `other_rows` so that they can stand beside the ranked list of a query.

    Parameters
    ----------
    lists : DataFrame
        One row per query, with `entries`, `ideal` or both.

    Returns
    -------
    DataFrame
        Lazy.
    """
    return lists.withColumnsRenamed({"entries": _OTHER_ENTRIES, "ideal": _OTHER_IDEAL})


def with_others(grouped: DataFrame) -> DataFrame:
    """Put the lists of `named_others` into one column: `others`.

    Parameters
    ----------
    grouped : DataFrame

    Returns
    -------
    DataFrame
        `others` is a struct of `ranked` (relevances on given ranks, in rank order) and `ideal` (best first), each
        null where there is none. Lazy.
    """
    found = {"ranked": F.lit(None), "ideal": F.lit(None)}
    if _OTHER_ENTRIES in grouped.columns:
        found["ranked"] = named(_OTHER_ENTRIES).getField("relevance")
    if _OTHER_IDEAL in grouped.columns:
        found["ideal"] = named(_OTHER_IDEAL)
    others = F.struct(*[column.cast(ENTRIES).alias(name) for name, column in found.items()])
    return grouped.withColumn("others", others).drop(_OTHER_ENTRIES, _OTHER_IDEAL)
