"""How new items are to users: how rare they are, and where the first one stands that a user does not know."""

from __future__ import annotations

import math

import numpy as np

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, lengths_of, query_of_rows, segment_sum


def information(counts: IntArray, total: int) -> FloatArray:
    """Bits of information in meeting each item: -log2(count / total).

    With counts of interactions this is self-information; with counts of users, inverse user frequency.

    Parameters
    ----------
    counts : int64, shape (n_items,)
        An item that was never seen, 0, counts as seen once.
    total : int
        Of all items; at least 1.

    Returns
    -------
    float64, shape (n_items,)

    References
    ----------
    Vargas and Castells, RecSys 2011, doi:10.1145/2043932.2043955.

    Examples
    --------
    >>> information(np.array([4, 2, 0]), 8).tolist()
    [1.0, 2.0, 3.0]
    """
    levels, place = np.unique(np.maximum(counts, 1), return_inverse=True)
    # One logarithm, that of the C library: NumPy's differs between processors in the last bit.
    return np.asarray(np.array([-math.log2(one / total) for one in levels.tolist()], dtype=np.float64)[place])


def list_means(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Mean of the values of each query, added in rank order.

    Parameters
    ----------
    values : float64, shape (n_rows,)
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    float64, shape (n_queries,)
        NaN for a query without rows.
    """
    lengths = lengths_of(offsets)
    return np.where(lengths > 0, segment_sum(values, offsets) / np.maximum(lengths, 1), np.nan)


def first_rank(flags: BoolArray, rank: IntArray, offsets: IntArray) -> FloatArray:
    """1-based rank of the first flagged row of each query.

    Parameters
    ----------
    flags : bool, shape (n_rows,)
    rank : int64, shape (n_rows,)
        0-based.
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    float64, shape (n_queries,)
        NaN where no row is flagged.

    Examples
    --------
    >>> first_rank(np.array([False, True, False]), np.arange(3), np.array([0, 2, 3])).tolist()
    [2.0, nan]
    """
    rows = np.flatnonzero(flags)[::-1]  # the first is written last
    found = np.full(len(offsets) - 1, np.nan)
    found[query_of_rows(offsets)[rows]] = rank[rows] + 1.0
    return found
