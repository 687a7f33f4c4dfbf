"""The K best rows of a query by window functions, for any Spark and for whole lists.

Spark turns `row_number() <= k` into a limit per group before and after the shuffle (up to k = 1000).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.ideal import listed_order
from ndcg_spark.spark.ranking.lists import every_row_ranks, rankable, tie_order


def ranked_rows(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], k: int | None) -> DataFrame:
    """Rows with their 1-based `rank` by score, down to rank k.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with scores.
    plan : EvaluationPlan
    keys : tuple of str
    k : int or None
        None keeps all.

    Returns
    -------
    DataFrame
        Lazy.

    Notes
    -----
    Spark cost: one shuffle by query of about k rows a query and input partition, one sort.
    """
    if not every_row_ranks(rows, plan):
        rows = rows.where(rankable(rows, plan))
    largest_first, fields = tie_order(plan)
    order = [part.desc() if largest_first else part.asc() for part in fields.values()]
    return _numbered(rows, keys, order, k)


def tied_rows(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...]) -> DataFrame:
    """Rows down to rank K by score, and all that tie with the one at rank K.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows with scores.
    plan : EvaluationPlan
    keys : tuple of str

    Returns
    -------
    DataFrame
        Lazy; all rows where there is no largest cutoff.

    Notes
    -----
    Spark cost: one shuffle by query, one sort: of about K rows a query and input partition, and what ties with them.
    """
    if not every_row_ranks(rows, plan):
        rows = rows.where(rankable(rows, plan))
    if plan.longest is None:
        return rows
    window = Window.partitionBy(*columns_of(keys)).orderBy(F.col("score").desc())
    return rows.withColumn("rank", F.rank().over(window)).where(F.col("rank") <= plan.longest).drop("rank")


def tied_lists(top: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """One row per query with `entries`: items with one score and one relevance together, best score first.

    Parameters
    ----------
    top : DataFrame
        Rows with `score` and `relevance`, from `tied_rows`.
    keys : tuple of str

    Returns
    -------
    DataFrame
        `entries` is an array of struct(falling, relevance, score, n): however many rows tie, a query has no more
        entries than different pairs of score and relevance. Lazy.

    Notes
    -----
    Spark cost: two aggregations; the first merges rows where they are.
    """
    pairs = top.groupBy(*columns_of(keys), "score", "relevance").agg(F.count(F.lit(1)).alias("n"))
    entry = F.struct((-F.col("score")).alias("falling"), "relevance", "score", "n")
    return pairs.groupBy(*columns_of(keys)).agg(F.sort_array(F.collect_list(entry)).alias("entries"))


def _numbered(rows: DataFrame, keys: tuple[str, ...], order: list[Column], k: int | None) -> DataFrame:
    window = Window.partitionBy(*columns_of(keys)).orderBy(*order)
    ranked = rows.withColumn("rank", F.row_number().over(window))
    return ranked if k is None else ranked.where(F.col("rank") <= k)


def ranked_lists(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], *, with_item: bool) -> DataFrame:
    """One row per query with `entries`, its first K rows by score in rank order.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan
    keys : tuple of str
    with_item : bool

    Returns
    -------
    DataFrame
        Lazy.

    Notes
    -----
    Spark cost: one shuffle, one sort.
    """
    ranked = ranked_rows(rows, plan, keys, plan.longest)
    entry = F.struct("rank", "relevance", *(["item"] if with_item else []))
    return ranked.groupBy(*columns_of(keys)).agg(F.sort_array(F.collect_list(entry)).alias("entries"))


def ideal_lists(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], *, with_item: bool) -> DataFrame:
    """One row per query with `ideal`, its K best relevances, or with items `best`, `orders`; without zeros.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan
    keys : tuple of str
    with_item : bool

    Returns
    -------
    DataFrame
        Lazy; see `certain_ideal` and `with_zeros`.

    Notes
    -----
    Spark cost: one shuffle, one sort of the rows that are listed.
    """
    by_gain, k = listed_order(rows, plan), plan.longest
    kept = None if k is None else k + (1 if with_item else 0)
    best = _numbered(rows.where(by_gain.isNotNull()), keys, [by_gain.desc()], kept)
    entry = F.struct("rank", "relevance", by_gain.alias("order"), *(["item"] if with_item else []))
    grouped = best.groupBy(*columns_of(keys)).agg(F.sort_array(F.collect_list(entry)).alias("best"))
    if with_item:
        with_orders = grouped.withColumn("orders", F.col("best").getField("order"))
        return with_orders if plan.convention.has_gain_table else grouped
    return grouped.select(*columns_of(keys), F.col("best").getField("relevance").alias("ideal"))
