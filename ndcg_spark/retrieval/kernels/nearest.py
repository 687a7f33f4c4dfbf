"""The K best of each query among scored pairs: as items, or as counts per score and relevance."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, offsets_of, rank_of_rows
from ndcg_spark.metrics.kernels.ties import tie_groups


def best_items(query: IntArray, score: FloatArray, item: IntArray, k: int | None, n_queries: int) -> IntArray:
    """Order pairs by query, score (highest first) and item, and keep the first k of each query.

    Parameters
    ----------
    query : int64, shape (n_pairs,)
    score : float64, shape (n_pairs,)
    item : int64, shape (n_pairs,)
        Numbers in the order of items.
    k : int or None
    n_queries : int

    Returns
    -------
    int64
        Pairs that are kept, in order.

    Examples
    --------
    >>> query, score, item = np.array([0, 0, 0]), np.array([1.0, 2.0, 1.0]), np.array([5, 7, 3])
    >>> best_items(query, score, item, 2, 1).tolist()
    [1, 2]
    """
    order = np.lexsort((item, -score, query))
    if k is None:
        return order
    return order[rank_of_rows(offsets_of(np.bincount(query, minlength=n_queries))) < k]


def tied_counts(
    query: IntArray, score: FloatArray, relevance: FloatArray, count: IntArray, k: int | None, n_queries: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Add up counts of pairs with the same query, score and relevance, down to the tie group at rank k.

    Parameters
    ----------
    query : int64, shape (n,)
    score, relevance : float64, shape (n,)
    count : int64, shape (n,)
    k : int or None
        None keeps all.
    n_queries : int

    Returns
    -------
    tuple of query, score, relevance and count
        By query, score (highest first) and relevance. A tie group is whole if one of its ranks is at most k.

    Examples
    --------
    >>> ones = np.ones(4, dtype=np.int64)
    >>> score, relevance = np.array([-1.0, -1, 0, -2]), np.array([1.0, 1, 0, 2])
    >>> [part.tolist() for part in tied_counts(0 * ones, score, relevance, ones, 2, 1)]
    [[0, 0], [0.0, -1.0], [0.0, 1.0], [1, 2]]
    """
    if not len(query):
        return query, score, relevance, count
    order = np.lexsort((relevance, -score, query))
    query, score, relevance, count = query[order], score[order], relevance[order], count[order]
    new = np.ones(len(query), dtype=np.bool_)
    new[1:] = (query[1:] != query[:-1]) | (score[1:] != score[:-1]) | (relevance[1:] != relevance[:-1])
    first = np.flatnonzero(new)
    query, score, relevance = query[first], score[first], relevance[first]
    count = np.add.reduceat(count, first)
    if k is None:
        return query, score, relevance, count
    kept = tie_groups(score, count, offsets_of(np.bincount(query, minlength=n_queries))).start < k
    return query[kept], score[kept], relevance[kept], count[kept]
