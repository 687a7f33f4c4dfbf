"""Rows of queries to their two lists: the first K by score or given rank, and the K best relevances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.kernels.cut import NumberArray, falling_order, first_ranked, kth_largest, largest
from ndcg_spark.kernels.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    lengths_of,
    offsets_of,
    query_of_rows,
    rank_of_rows,
)
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker.batches import int_values, number_values
from ndcg_spark.worker.entries import Entries, Values


@dataclass(slots=True)
class QueryRows:
    """Usable rows of a batch, those of a query (or of a stretch of it) next to each other.

    Parameters
    ----------
    batch : pyarrow record batch
        Under the column names of the input.
    offsets : int64, shape (n_queries + 1,)
    relevance : numbers, shape (n_rows,)
        As doubles hold them, in the type of the column where that is narrower.
    judged : bool or None
        Which rows have a relevance; here and below, None is all of them.
    value : numbers, shape (n_rows,)
        Score, or given rank.
    retrieved, ranked : bool or None
        Which rows have it; and which of these the ranking keeps.
    """

    batch: pa.RecordBatch
    offsets: IntArray
    relevance: NumberArray
    judged: BoolArray | None
    value: NumberArray
    retrieved: BoolArray | None
    ranked: BoolArray | None


def query_rows(batch: pa.RecordBatch, offsets: IntArray, plan: EvaluationPlan) -> QueryRows:
    """Take from a batch what its lists are made of.

    Parameters
    ----------
    batch : pyarrow record batch
        Usable rows.
    offsets : int64, shape (n_queries + 1,)
    plan : EvaluationPlan

    Returns
    -------
    QueryRows
    """
    columns = plan.columns
    relevance, judged = number_values(batch.column(plan.columns.relevance))
    value, retrieved = number_values(batch.column(columns.rank or columns.score[0]))
    if columns.rank is None and plan.convention.score_precision == "float32":
        with np.errstate(over="ignore"):  # what is too large is infinite, as in Spark
            value = value.astype(np.float32).astype(np.float64)
    ranked = _both(retrieved, judged) if plan.convention.unjudged == "condensed" else retrieved
    return QueryRows(batch, offsets, relevance, judged, value, retrieved, ranked)


def _both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def count_rows(rows: QueryRows) -> dict[str, IntArray]:
    """Count the rows of each query.

    Parameters
    ----------
    rows : QueryRows

    Returns
    -------
    dict from name to int64, shape (n_queries,)
        `n_rows`, `n_left_out`, `n_items`, `n_judged`.
    """
    n_items = _n_where(rows.retrieved, rows.offsets)
    return {
        "n_rows": lengths_of(rows.offsets),
        "n_left_out": n_items - _n_where(rows.ranked, rows.offsets),
        "n_items": n_items,
        "n_judged": _n_where(rows.judged, rows.offsets),
    }


def count_relevant(rows: QueryRows) -> IntArray:
    """Count the rows of each query whose relevance is above 0.

    Parameters
    ----------
    rows : QueryRows

    Returns
    -------
    int64, shape (n_queries,)
    """
    return _n_where(_both(rows.relevance > 0, rows.judged), rows.offsets)


def _n_where(flags: BoolArray | None, offsets: IntArray) -> IntArray:
    """How many rows of each query are flagged; no query is without rows."""
    if flags is None or len(offsets) == 1:
        return lengths_of(offsets)
    return np.add.reduceat(flags, offsets[:-1], dtype=np.int64)


def ranked_list(rows: QueryRows, plan: EvaluationPlan, *, looks: bool) -> Entries:
    """Give the first rows of each query in rank order: K, or where ranks are given K + 1.

    Parameters
    ----------
    rows : QueryRows
    plan : EvaluationPlan
        With a largest cutoff.
    looks : bool
        Whether items are wanted, to find duplicates among them.

    Returns
    -------
    Entries
        With what tells rows of one score apart.
    """
    columns, by_order = plan.columns, plan.convention.ties == "input_order"
    lists: dict[str, Values] = {}
    if columns.rank is not None:
        at, lengths = _first_by_rank(rows, plan)
        lists["ranks"], tie = rows.value[at].astype(np.int64), None
    else:
        tie = "order" if by_order else "items"
        at, lengths = _first_by_score(rows, plan, str(columns.order if by_order else columns.item))
        lists["scores"] = rows.value[at].astype(np.float64)
    lists["relevances"] = _relevances(rows, at)
    if looks or tie == "items":
        lists["items"] = _taken(rows.batch.column(columns.item), at)
    if tie == "order":
        lists["order"] = _taken(rows.batch.column(columns.order), at)
    return Entries(lists, offsets_of(lengths))


def _first_by_rank(rows: QueryRows, plan: EvaluationPlan) -> tuple[IntArray, IntArray]:
    """Rows on the first k ranks, and how many of each query; one more shows that two items are on one rank."""
    k = plan.longest or 0
    ranks = rows.value if rows.ranked is None else np.where(rows.ranked, rows.value.astype(np.int64), k + 1)
    return first_ranked(ranks, rows.offsets, k, k + 1)


def _first_by_score(rows: QueryRows, plan: EvaluationPlan, tie: str) -> tuple[IntArray, IntArray]:
    """Rows of the first k by score, and how many of each query."""
    k = plan.longest or 0
    chosen = _at_least_kth(rows, k)
    at = np.flatnonzero(chosen if rows.ranked is None else chosen & rows.ranked)
    query, score = query_of_rows(rows.offsets)[at], rows.value[at].astype(np.float64)
    ties = rows.batch.column(tie).take(pa.array(at))
    largest_first = plan.convention.ties == "item_desc"
    at = at[rank_order(query, score, ties, _relevances(rows, at), largest_first=largest_first)]
    lengths = np.bincount(query, minlength=len(rows.offsets) - 1)
    if lengths.max(initial=0) > k:
        at = at[rank_of_rows(offsets_of(lengths)) < k]
    return at, np.minimum(lengths, k)


def _at_least_kth(rows: QueryRows, k: int) -> BoolArray:
    """Which rows score no less than the k-th of their query."""
    score = rows.value if rows.ranked is None else np.where(rows.ranked, rows.value, -np.inf)
    return np.asarray(score >= np.repeat(kth_largest(score, rows.offsets, k), lengths_of(rows.offsets)))


def _relevances(rows: QueryRows, at: IntArray) -> FloatArray:
    found = rows.relevance[at].astype(np.float64)
    return found if rows.judged is None else np.where(rows.judged[at], found, np.nan)


def _taken(column: pa.Array, at: IntArray) -> Values:
    return int_values(column)[at] if pa.types.is_integer(column.type) else column.take(pa.array(at))


def rank_order(
    query: IntArray, value: FloatArray, ties: pa.Array | None, relevance: FloatArray, *, largest_first: bool
) -> IntArray:
    """Order rows by query and rank.

    Parameters
    ----------
    query : int64, shape (n_rows,)
    value : float64, shape (n_rows,)
        The largest ranks first.
    ties : pyarrow array or None
        What tells rows of equal value apart; nothing does where it is None.
    relevance : float64, shape (n_rows,)
        Which tells apart what is equal in that too, so that the order of rows does not count; NaN is the lowest.
    largest_first : bool
        Of those two.

    Returns
    -------
    int64, shape (n_rows,)
    """
    begins = np.ones(len(query) + 1, dtype=np.bool_)
    begins[1:-1] = query[1:] != query[:-1]
    order = falling_order(value, np.flatnonzero(begins))
    if ties is None:
        return order
    in_order = value[order]
    if not ((in_order[1:] == in_order[:-1]) & ~begins[1:-1]).any():
        return order
    place = pc.rank(ties, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    last = np.where(np.isnan(relevance), -np.inf, relevance)
    return np.lexsort((-last, -place, -value, query) if largest_first else (last, place, -value, query))


def ideal_list(rows: QueryRows, plan: EvaluationPlan, *, looks: bool) -> Entries:
    """Give the K best relevances of each query, the best first; K + 1 where duplicates are looked for.

    Parameters
    ----------
    rows : QueryRows
    plan : EvaluationPlan
        With a largest cutoff.
    looks : bool
        Whether their items are wanted.

    Returns
    -------
    Entries
    """
    offsets, k = rows.offsets, (plan.longest or 0) + int(looks)
    listed = _both(rows.judged, rows.ranked) if plan.convention.ideal == "retrieved" else rows.judged
    value = rows.relevance if listed is None else np.where(listed, rows.relevance.astype(np.float64), -np.inf)
    best, lengths = largest(value, offsets, _n_where(listed, offsets), k)
    entries = Entries({"best": best.astype(np.float64)}, offsets_of(lengths))
    if looks:
        entries.columns["best_items"] = _best_items(rows, value, entries, k, str(plan.columns.item))
    return entries


def _best_items(rows: QueryRows, value: NumberArray, best: Entries, k: int, name: str) -> Values:
    """Items of the best relevances. Of rows that tie for the k-th, which are among the k is chance: any item does."""
    lengths, starts = lengths_of(best.offsets), best.offsets[:-1]
    lowest = np.full(len(lengths), -np.inf)
    lowest[lengths == k] = best.columns["best"][starts[lengths == k] + k - 1]
    at = np.flatnonzero(value > np.repeat(lowest, lengths_of(rows.offsets)))
    query = query_of_rows(rows.offsets)[at]
    order = np.lexsort((-value[at].astype(np.float64), query))
    place = rank_of_rows(offsets_of(np.bincount(query, minlength=len(lengths))))
    found = np.repeat(rows.offsets[:-1], lengths)
    found[starts[query] + place] = at[order]
    return _taken(rows.batch.column(name), found)
