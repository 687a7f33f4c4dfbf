"""Ragged batches: the values of all queries end to end, and the offsets between them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def offsets_of(lengths: IntArray) -> IntArray:
    """Offsets of a ragged batch from the length of each query.

    Parameters
    ----------
    lengths : int64, shape (n_queries,)
        Rows of every query; zero is allowed.

    Returns
    -------
    int64, shape (n_queries + 1,)
        Query q owns rows offsets[q]:offsets[q + 1].

    Examples
    --------
    >>> offsets_of(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def lengths_of(offsets: IntArray) -> IntArray:
    """Length of each query from the offsets of a ragged batch.

    Parameters
    ----------
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    int64, shape (n_queries,)

    Examples
    --------
    >>> lengths_of(np.array([0, 2, 2, 3])).tolist()
    [2, 0, 1]
    """
    return np.asarray(offsets[1:] - offsets[:-1])  # np.diff takes several times as long for small batches


def query_of_rows(offsets: IntArray) -> IntArray:
    """Index of the query that owns each row.

    Parameters
    ----------
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    int64, shape (n_rows,)

    Examples
    --------
    >>> query_of_rows(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), lengths_of(offsets))


def rank_of_rows(offsets: IntArray) -> IntArray:
    """0-based rank of each row within its query.

    Parameters
    ----------
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    int64, shape (n_rows,)

    Examples
    --------
    >>> rank_of_rows(np.array([0, 2, 2, 3])).tolist()
    [0, 1, 0]
    """
    return np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], lengths_of(offsets))


def chosen_offsets(chosen: BoolArray | IntArray, offsets: IntArray) -> IntArray:
    """Offsets of a ragged batch of which only some rows are kept.

    Parameters
    ----------
    chosen : bool, shape (n_rows,), or int64, shape (n_chosen,)
        Flags, or numbers of rows.
    offsets : int64, shape (n_queries + 1,)
        Of all rows.

    Returns
    -------
    int64, shape (n_queries + 1,)

    Examples
    --------
    >>> chosen_offsets(np.array([True, False, True]), np.array([0, 2, 2, 3])).tolist()
    [0, 1, 1, 2]
    """
    return offsets_of(np.bincount(query_of_rows(offsets)[chosen], minlength=len(offsets) - 1))


def rows_of(queries: IntArray, offsets: IntArray) -> IntArray:
    """Rows of some queries, end to end.

    Parameters
    ----------
    queries : int64, shape (n_chosen,)
        In any order.
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    int64, shape (n_rows of these queries,)

    Examples
    --------
    >>> rows_of(np.array([2, 0]), np.array([0, 2, 2, 3])).tolist()
    [2, 0, 1]
    """
    lengths = lengths_of(offsets)[queries]
    ends = np.cumsum(lengths)
    return np.repeat(offsets[:-1][queries] - (ends - lengths), lengths) + np.arange(lengths.sum())


def equals_previous(values: NDArray[Any], offsets: IntArray) -> BoolArray:
    """Whether each value equals the one before it in its query.

    Parameters
    ----------
    values : shape (n_rows,)
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    bool, shape (n_rows,)
        False for the first row of a query.

    Examples
    --------
    >>> equals_previous(np.array([5, 5, 5]), np.array([0, 2, 2, 3])).tolist()
    [False, True, False]
    """
    same = np.zeros(len(values), dtype=np.bool_)
    same[1:] = values[1:] == values[:-1]
    same[offsets[:-1][lengths_of(offsets) > 0]] = False
    return same


def segment_sum(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Sum of each query's rows, added strictly in row order.

    The order of addition is part of the contract: the sum of a query depends on nothing but
    its own rows, whatever batch they arrive in (`np.add.reduceat` would also hand an empty
    query its neighbour's value).

    Parameters
    ----------
    values : float64, shape (n_rows,)
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    float64, shape (n_queries,)
        0.0 for a query without rows. NaN propagates.

    Examples
    --------
    >>> segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    n_queries = len(offsets) - 1
    sums = np.bincount(query_of_rows(offsets), weights=values, minlength=n_queries)
    return sums.astype(np.float64)  # bincount answers in int64 when there are no rows


def first_where(flags: BoolArray, offsets: IntArray) -> int | None:
    """Index of the first query that owns a flagged row, or None.

    Parameters
    ----------
    flags : bool, shape (n_rows,)
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    int or None

    Examples
    --------
    >>> first_where(np.array([False, False, True]), np.array([0, 2, 2, 3]))
    2
    """
    rows = np.flatnonzero(flags)
    return int(np.searchsorted(offsets, rows[0], side="right") - 1) if len(rows) else None
