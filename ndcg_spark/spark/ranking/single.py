"""One table that has everything: scores or ranks, and relevances."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking import window
from ndcg_spark.spark.ranking.choose import Way
from ndcg_spark.spark.ranking.duplicates import refuse_repeated_items, relevances_of
from ndcg_spark.spark.ranking.lists import (
    carried,
    counts,
    empty_list,
    entry,
    given_ranks,
    settled,
    top_ranked,
    top_relevant,
)
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
    Spark cost: one shuffle with top-K aggregates, three (of which two sort) with windows.
    """
    keys = keys_of(plan)
    with_item = looks_for_duplicates(rows, plan)
    wanted = counts(rows, plan)
    if way.ranked == "given":
        wanted["pairs"] = given_ranks(plan, entry(rows, with_item=with_item))
    elif way.ranked == "top_k":
        wanted["entries"] = top_ranked(rows, plan, entry(rows, with_item=with_item), plan.longest or 0)
    needs_ideal = plan.convention.ideal != "k_ones"
    if needs_ideal and way.ideal == "top_k":
        wanted["ideal_entries"] = top_relevant(rows, plan, plan.longest or 0, with_item=with_item)
    grouped = rows.groupBy(*columns_of(keys)).agg(*[column.alias(name) for name, column in wanted.items()])
    grouped = settled(grouped, keys, carried(rows, plan), plan)
    if way.ranked == "window":
        if plan.convention.groups_ties:
            top = window.tied_rows(rows, plan, keys)
            lists = window.tied_lists(refuse_repeated_items(top, keys) if with_item else top, keys)
        else:
            lists = window.ranked_lists(rows, plan, keys, with_item=with_item)
        grouped = grouped.join(lists, list(keys), "left")
    if needs_ideal and way.ideal == "window":
        lists = window.ideal_lists(rows, plan, keys, with_item=with_item)
        grouped = grouped.join(lists, list(keys), "left")
    if plan.convention.groups_ties and way.ranked == "window":
        grouped = with_tied_lists(grouped)
    return unpacked(grouped, keys, with_item=with_item)


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
        grouped = grouped.withColumn(name, _field(F.col("entries"), field))
    return grouped.drop("entries")


def _field(entries: Column, field: str) -> Column:
    return F.transform(entries, lambda one: one[field])


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
    unresolved = plan.convention.duplicates == "error" and plan.check_duplicates == "top"
    return unresolved and "item" in rows.columns


def unpacked(grouped: DataFrame, keys: tuple[str, ...], *, with_item: bool) -> DataFrame:
    """Turn `entries` or `pairs`, and `ideal_entries`, into `ranked`, `ranks` and `ideal`.

    Parameters
    ----------
    grouped : DataFrame
    keys : tuple of str
    with_item : bool

    Returns
    -------
    DataFrame
        Lazy.
    """

    def listed(entries: Column, kind: str) -> Column:
        return relevances_of(entries, keys, kind, with_item=with_item)

    if "pairs" in grouped.columns:
        entries = F.transform(F.col("pairs"), lambda pair: pair["entry"])
        grouped = grouped.withColumn("ranks", F.transform(F.col("pairs"), lambda pair: pair["rank"]))
        grouped = grouped.withColumn("ranked", listed(entries, "ranking")).drop("pairs")
    elif "entries" in grouped.columns:
        grouped = grouped.withColumn("ranked", listed(F.col("entries"), "ranking")).drop("entries")
    if "ideal_entries" not in grouped.columns:
        return grouped.withColumn("ideal", empty_list())
    return grouped.withColumn("ideal", listed(F.col("ideal_entries"), "judgments")).drop("ideal_entries")
