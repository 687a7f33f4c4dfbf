"""One table that has everything: scores or ranks, and relevances."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking import ideal, window
from ndcg_spark.spark.ranking.choose import Way
from ndcg_spark.spark.ranking.counts import carried, counts, settled
from ndcg_spark.spark.ranking.duplicates import certain_ideal, refuse_repeated_items, relevances_of
from ndcg_spark.spark.ranking.given import given_lists
from ndcg_spark.spark.ranking.grades import named_others, other_rows, packed_grades, with_digits, with_others
from ndcg_spark.spark.ranking.ideal import (
    ideal_order,
    needs_ideal,
    top_relevant,
    with_judged,
    with_zeros,
    zeros_left_out,
)
from ndcg_spark.spark.ranking.lists import empty_list, every_row_ranks, given_ranks, top_ranked, with_entries
from ndcg_spark.spark.rows import keys_of


def rank_single(rows: DataFrame, plan: EvaluationPlan, way: Way) -> DataFrame:
    """Rank a long table.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with relevances.
    plan : EvaluationPlan
    way : Way

    Returns
    -------
    DataFrame
        Rankings, with `run` only where rankers are named; lazy.

    Notes
    -----
    Spark cost: one shuffle with top-K aggregates, two with given ranks (one by grades), three with windows, of which
    two sort (one by grades). By grades, besides: lists of the rows whose relevances are no grades.
    """
    keys = keys_of(plan)
    with_item = looks_for_duplicates(rows, plan)
    wanted, apart = counts(rows, plan), _lists_apart(rows, plan, way, with_item=with_item)
    if way.ranked == way.ideal == "top_k":
        rows = with_entries(rows, plan, given=False, only_order=not with_item)
        rows = rows if every_row_ranks(rows, plan) else with_judged(rows)  # entries may be null then
        wanted |= _top_lists(rows, plan, with_item=with_item)
    elif way.ideal == "grades":
        rows = with_digits(rows)
        wanted |= {"grades": packed_grades(rows, plan, ranks=way.ranked == "given")}
    else:
        wanted |= zeros_left_out(rows, plan)
    grouped = rows.groupBy(*columns_of(keys)).agg(*[column.alias(name) for name, column in wanted.items()])
    grouped = settled(grouped, keys, carried(rows, plan), plan)
    for lists in apart:
        grouped = grouped.join(lists, list(keys), "left")
    if way.ideal == "grades":
        grouped = with_others(grouped)
    if plan.convention.groups_ties and way.ranked == "window":
        grouped = with_tied_lists(grouped)
    elif way.ranked == "given" and "entries" in grouped.columns:
        grouped = grouped.withColumn("ranks", F.col("entries").getField("rank"))
    return finished_lists(grouped, keys, plan, with_item=with_item)


def _top_lists(rows: DataFrame, plan: EvaluationPlan, *, with_item: bool) -> dict[str, Column]:
    k = plan.longest or 0
    found = {"entries": top_ranked(plan, k)} if with_item else {"ranked": top_ranked(plan, k, "relevance")}
    if needs_ideal(plan):
        found |= top_relevant(rows, plan, ideal_order(rows, plan), with_item=with_item)
    return found


def _lists_apart(rows: DataFrame, plan: EvaluationPlan, way: Way, *, with_item: bool) -> list[DataFrame]:
    """Lists of the rows that matter to them, one row a query, while all rows are only counted."""
    keys = keys_of(plan)
    if way.ranked == "top_k":
        return []
    if way.ideal == "grades":
        return _lists_beside_grades(rows, plan, way, with_item=with_item)
    if way.ranked == "given" and way.ideal == "top_k":
        return [given_lists(rows, plan, keys, with_item=with_item)]
    if way.ranked == "given":
        within = with_entries(rows.where(F.col("rank").isNotNull()), plan, given=True)
        found = [within.groupBy(*columns_of(keys)).agg(given_ranks(plan, top_k=False).alias("entries"))]
    else:
        found = [_window_lists(rows, plan, keys, with_item=with_item)]
    return [*found, *ideals_apart(rows, plan, way, keys, with_item=with_item)]


def _lists_beside_grades(rows: DataFrame, plan: EvaluationPlan, way: Way, *, with_item: bool) -> list[DataFrame]:
    """Lists of the rows whose relevances are no grades, and the ranked list where it is not packed."""
    others, way_of_others, keys = other_rows(rows), replace(way, ideal=way.others), keys_of(plan)
    if way.ranked == "given":
        return [named_others(lists) for lists in _lists_apart(others, plan, way_of_others, with_item=False)]
    ideals = ideals_apart(others, plan, way_of_others, keys, with_item=False)
    return [_window_lists(rows, plan, keys, with_item=with_item), *[named_others(lists) for lists in ideals]]


def ideals_apart(
    rows: DataFrame, plan: EvaluationPlan, way: Way, keys: tuple[str, ...], *, with_item: bool
) -> list[DataFrame]:
    """Ideal lists, one row a query, while all rows are only counted.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan
    way : Way
    keys : tuple of str
    with_item : bool

    Returns
    -------
    list of DataFrame
        One, or none where no ideal list is made from rows.
    """
    if not needs_ideal(plan):
        return []
    make = window.ideal_lists if way.ideal == "window" else ideal.ideal_lists
    return [make(rows, plan, keys, with_item=with_item)]


def _window_lists(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], *, with_item: bool) -> DataFrame:
    if not plan.convention.groups_ties:
        return window.ranked_lists(rows, plan, keys, with_item=with_item)
    top = window.tied_rows(rows, plan, keys)
    return window.tied_lists(refuse_repeated_items(top, keys) if with_item else top, keys)


def with_tied_lists(grouped: DataFrame) -> DataFrame:
    """Turn `entries` of tied items into `ranked`, `scores` and `tied`.

    Parameters
    ----------
    grouped : DataFrame

    Returns
    -------
    DataFrame
        Lazy.
    """
    for name, field in (("ranked", "relevance"), ("scores", "score"), ("tied", "n")):
        grouped = grouped.withColumn(name, F.col("entries").getField(field))
    return grouped.drop("entries")


def looks_for_duplicates(rows: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether lists must carry items so that duplicates among them are found.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    return plan.looks_at_items and "item" in rows.columns


def finished_lists(grouped: DataFrame, keys: tuple[str, ...], plan: EvaluationPlan, *, with_item: bool) -> DataFrame:
    """Turn `entries` into `ranked`, refusing items that come twice; see that there is an `ideal`.

    Parameters
    ----------
    grouped : DataFrame
        Maybe with `entries`; maybe with `ideal`, `best` or `grades`; maybe with `n_zero`.
    keys : tuple of str
    plan : EvaluationPlan
    with_item : bool
        Whether duplicates are looked for.

    Returns
    -------
    DataFrame
        Lazy.
    """
    if "entries" in grouped.columns:
        ranked = relevances_of(F.col("entries"), keys, "ranking", with_item=with_item)
        grouped = grouped.withColumn("ranked", ranked).drop("entries")
    has_zeros = "n_zero" in grouped.columns
    if has_zeros:
        grouped = with_zeros(grouped, plan)
    if "best" in grouped.columns:
        return certain_ideal(grouped, keys, plan.longest, with_nulls=has_zeros)
    has_ideal = "ideal" in grouped.columns or "grades" in grouped.columns
    return grouped if has_ideal else grouped.withColumn("ideal", empty_list())
