"""DCG, its ideal and their ratio for every query of a ragged batch."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    lengths_of,
    query_of_rows,
    rank_of_rows,
    segment_sum,
)


def rank_weights(rank: IntArray, discount: FloatArray, *, k: int | None) -> FloatArray:
    """Discount of each row by its 0-based rank, shape (n_rows,); 0 at and beyond the cutoff.

    >>> rank_weights(np.array([0, 5]), np.array([1.0, 0.6]), k=2).tolist()
    [1.0, 0.0]
    """
    if k is None or rank.max(initial=0) < k:
        return np.asarray(discount[rank])
    inside = rank < k
    return np.where(inside, discount[np.where(inside, rank, 0)], 0.0)


def dcg(
    ranked_gains: FloatArray,
    offsets: IntArray,
    discount: FloatArray,
    *,
    k: int | None = None,
    rank: IntArray | None = None,
) -> FloatArray:
    """DCG of every query, shape (n_queries,); 0 for a query without rows, and NaN gains propagate.

    Gains are ranked best first, queries end to end. `rank` holds 0-based ranks, which may have gaps; None: 0, 1, 2,
    ... in each query. Jarvelin and Kekalainen, TOIS 20(4), 2002, doi:10.1145/582415.582418.

    >>> from ndcg_spark.conventions.forms import discount_table
    >>> gains = np.array([3.0, 2.0, 3.0, 0.0, 1.0, 2.0])
    >>> dcg(gains, np.array([0, 6]), discount_table("log2", 6)).round(6).tolist()
    [6.861127]
    """
    rank = rank_of_rows(offsets) if rank is None else rank
    return segment_sum(ranked_gains * rank_weights(rank, discount, k=k), offsets)


def sort_within_queries(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Sort the values of each query, largest first.

    >>> sort_within_queries(np.array([1.0, 3.0, 0.0, 2.0]), np.array([0, 2, 4])).tolist()
    [3.0, 1.0, 2.0, 0.0]
    """
    falls = np.ones(len(values) + 1, dtype=np.bool_)
    falls[1:-1] = values[1:] <= values[:-1]
    falls[offsets] = True
    if falls.all():  # ranking hands lists on best first; only odd gains are out of order
        return values
    return np.asarray(values[np.lexsort((-values, query_of_rows(offsets)))])


def padding(
    lengths: IntArray,
    gain: float,
    discount: FloatArray,
    *,
    k: int | None,
    rank: IntArray | None = None,
    offsets: IntArray | None = None,
) -> FloatArray:
    """DCG of the items that are missing from each list up to rank `k`, each worth `gain`; 0 where k is None.

    `lengths` are the ranks that each list fills, or the last rank where ranks are given. `rank` holds these, 0-based
    and rising within a query; None: the lists have no gaps. A list without gaps has the same bits either way.

    >>> padding(np.array([1, 3, 0]), -1.0, np.array([1.0, 0.5, 0.25]), k=2).tolist()
    [-0.5, 0.0, -1.5]
    >>> gap = {"rank": np.array([0, 2]), "offsets": np.array([0, 2])}
    >>> padding(np.array([3]), 1.0, np.array([1.0, 0.5, 0.25]), k=3, **gap).tolist()
    [0.5]
    """
    if k is None:
        return np.zeros(len(lengths))
    tail = np.zeros(k + 1)
    for at in range(k - 1, -1, -1):
        tail[at] = tail[at + 1] + discount[at]
    missing = tail[np.minimum(lengths, k)]
    if rank is not None and offsets is not None:
        follows = np.zeros(len(rank), dtype=np.int64)  # the rank after the previous item; 0 for the first of a query
        follows[1:] = rank[:-1] + 1
        follows[offsets[:-1][lengths_of(offsets) > 0]] = 0
        missing = segment_sum(tail[np.minimum(follows, k)] - tail[np.minimum(rank, k)], offsets) + missing
    return np.asarray(gain * missing + 0.0)  # no -0.0


def ndcg(dcg_values: FloatArray, idcg_values: FloatArray, *, no_relevant: float) -> FloatArray:
    """DCG over IDCG of each query, and `no_relevant` where IDCG is 0 or less (NaN: left out of the mean).

    >>> ndcg(np.array([1.0, 0.0]), np.array([2.0, 0.0]), no_relevant=1.0).tolist()
    [0.5, 1.0]
    """
    relevant: BoolArray = idcg_values > 0
    return np.where(relevant, dcg_values / np.where(relevant, idcg_values, 1.0), no_relevant)
