"""Ragged batches: values of all queries end to end, the offsets between them, and the K best of each query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def to_offsets(lengths: IntArray) -> IntArray:
    """Offsets of a ragged batch from the length of each query: query q owns rows offsets[q]:offsets[q + 1].

    >>> to_offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def to_lengths(offsets: IntArray) -> IntArray:
    """Length of each query.

    >>> to_lengths(np.array([0, 2, 2, 3])).tolist()
    [2, 0, 1]
    """
    return np.asarray(offsets[1:] - offsets[:-1])  # np.diff takes several times as long for small batches


def query_of_rows(offsets: IntArray) -> IntArray:
    """Index of the query that owns each row.

    >>> query_of_rows(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), to_lengths(offsets))


def rank_of_rows(offsets: IntArray) -> IntArray:
    """0-based rank of each row within its query.

    >>> rank_of_rows(np.array([0, 2, 2, 3])).tolist()
    [0, 1, 0]
    """
    return np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], to_lengths(offsets))


def offsets_after_filter(rows: BoolArray | IntArray, offsets: IntArray) -> IntArray:
    """Offsets of a ragged batch of which only some rows, as flags or numbers, are kept.

    >>> offsets_after_filter(np.array([True, False, True]), np.array([0, 2, 2, 3])).tolist()
    [0, 1, 1, 2]
    """
    return to_offsets(np.bincount(query_of_rows(offsets)[rows], minlength=len(offsets) - 1))


def rows_of_queries(queries: IntArray, offsets: IntArray) -> IntArray:
    """Rows of some queries, in any order, end to end.

    >>> rows_of_queries(np.array([2, 0]), np.array([0, 2, 2, 3])).tolist()
    [2, 0, 1]
    """
    lengths = to_lengths(offsets)[queries]
    ends = np.cumsum(lengths)
    return np.repeat(offsets[:-1][queries] - (ends - lengths), lengths) + np.arange(lengths.sum())


def equals_previous(values: NDArray[Any], offsets: IntArray) -> BoolArray:
    """Check whether each value equals the one before it in its query; False for the first.

    >>> equals_previous(np.array([5, 5, 5]), np.array([0, 2, 2, 3])).tolist()
    [False, True, False]
    """
    same = np.zeros(len(values), dtype=np.bool_)
    same[1:] = values[1:] == values[:-1]
    same[offsets[:-1][to_lengths(offsets) > 0]] = False
    return same


def segment_sum(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Sum of each query's rows, added strictly in row order; 0 for a query without rows, and NaN propagates.

    The sum of a query depends on nothing but its own rows, whatever batch they arrive in. (`np.add.reduceat` would
    also hand an empty query its neighbour's value.)

    >>> segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3])).tolist()
    [3.0, 0.0, 4.0]
    """
    n_queries = len(offsets) - 1
    sums = np.bincount(query_of_rows(offsets), weights=values, minlength=n_queries)
    return sums.astype(np.float64)  # bincount answers in int64 when there are no rows


def first_query_with(flags: BoolArray, offsets: IntArray) -> int | None:
    """Index of the first query that owns a flagged row, or None.

    >>> first_query_with(np.array([False, False, True]), np.array([0, 2, 2, 3]))
    2
    """
    rows = np.flatnonzero(flags)
    return int(np.searchsorted(offsets, rows[0], side="right") - 1) if len(rows) else None


NumberArray = NDArray[Any]
ODD_NUMBERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)
"""Multiplying by one of them, modulo 2^64, loses nothing and spreads low bits to the high ones."""
MAX_SORTED_WIDTH = 256
"""NumPy sorts rows up to this length faster than it partitions them, on processors with AVX-512."""
_ALL = slice(None)
"""All queries, if they have one size and need no padding."""


def kth_largest(values: NumberArray, offsets: IntArray, k: int) -> NumberArray:
    """The k-th largest value of each query, without NaN; the lowest value of its type for a query with fewer rows.

    >>> kth_largest(np.array([3.0, 1.0, 2.0, 7.0]), np.array([0, 3, 4]), 2).tolist()
    [2.0, -inf]
    """
    lowest = _lowest(values.dtype)
    thresholds = np.full(len(offsets) - 1, lowest, dtype=values.dtype)
    for queries, matrix in _group_by_size(values, offsets, lowest):
        width = matrix.shape[1]
        if width >= k:
            in_parts = (
                np.sort(matrix, axis=1) if width <= MAX_SORTED_WIDTH else np.partition(matrix, width - k, axis=1)
            )
            thresholds[queries] = in_parts[:, width - k]
    return thresholds


def take_largest(values: NumberArray, offsets: IntArray, n_rows: IntArray, k: int) -> tuple[NumberArray, IntArray]:
    """The k largest values of each query, the largest first, queries end to end; and how many each query has.

    The `n_rows` rows of each query count; the others have the lowest value of the type. No value is NaN.

    >>> best, lengths = take_largest(np.array([3, 1, 2, 7]), np.array([0, 3, 4]), np.array([3, 1]), 2)
    >>> best.tolist(), lengths.tolist()
    ([3, 2, 7], [2, 1])
    """
    lengths = np.minimum(n_rows, k)
    starts = to_offsets(lengths)
    best = np.empty(starts[-1], dtype=values.dtype)
    for queries, matrix in _group_by_size(values, offsets, _lowest(values.dtype)):
        width = matrix.shape[1]
        n_kept = min(k, width)
        if width > MAX_SORTED_WIDTH:
            matrix = np.partition(matrix, width - n_kept, axis=1)[:, width - n_kept :]
        top = np.sort(matrix, axis=1)[:, ::-1][:, :n_kept]
        if queries is _ALL and top.size == len(best):
            return top.reshape(-1), lengths
        filled = np.arange(n_kept) < lengths[queries][:, None]
        places = starts[:-1][queries][:, None] + np.arange(n_kept)
        best[places[filled]] = top[filled]
    return best, lengths


def take_first_ranked(ranks: NumberArray, offsets: IntArray, k: int, n_kept: int) -> tuple[IntArray, IntArray]:
    """Rows of each query on its ranks 1 to k in their order, queries end to end; and how many each query has.

    At most `n_kept` rows of a query; of two on one rank, the first comes first.

    >>> rows, lengths = take_first_ranked(np.array([3, 1, 2, 7]), np.array([0, 3, 4]), 2, 2)
    >>> rows.tolist(), lengths.tolist()
    ([1, 2], [2, 0])
    """
    if ranks.dtype.kind == "i" and k >= np.iinfo(ranks.dtype).max:
        ranks = ranks.astype(np.int64)
    lengths = np.zeros(len(offsets) - 1, dtype=np.int64)
    groups = []
    for queries, matrix in _group_by_size(np.minimum(ranks, k + 1), offsets, k + 1):
        width = matrix.shape[1]
        n_bits = width.bit_length()
        kind = np.int32 if (k + 2) << n_bits < 2**31 else np.int64
        keys: NumberArray = matrix.astype(kind, copy=False)  # may be changed: the lower of ranks and k + 1 are a copy
        keys <<= n_bits
        keys += np.arange(width, dtype=keys.dtype)  # so that places are sorted with ranks
        if width > max(n_kept, MAX_SORTED_WIDTH):
            keys = np.partition(keys, n_kept - 1, axis=1)[:, :n_kept]
        keys.sort(axis=1)
        keys = keys[:, :n_kept]
        in_range = keys < (k + 1) << n_bits
        lengths[queries] = in_range.sum(axis=1)
        groups.append((queries, (offsets[:-1][queries][:, None] + (keys & ((1 << n_bits) - 1)))[in_range]))
    return _concat_rows(groups, lengths), lengths


def _concat_rows(groups: list[tuple[Any, IntArray]], lengths: IntArray) -> IntArray:
    """Rows of some queries, and of others, in the order of queries."""
    if len(groups) == 1:
        return groups[0][1]
    rows = np.empty(lengths.sum(), dtype=np.int64)
    for queries, group_rows in groups:
        in_group = np.zeros(len(lengths), dtype=np.bool_)
        in_group[queries] = True
        rows[np.repeat(in_group, lengths)] = group_rows
    return rows


def argsort_descending(values: NumberArray, offsets: IntArray) -> IntArray:
    """Order the rows of each query by value, without NaN, the largest first; queries and equal values stay in place.

    >>> argsort_descending(np.array([1.0, 3.0, 2.0, 7.0]), np.array([0, 3, 4])).tolist()
    [1, 2, 0, 3]
    """
    order = np.empty(len(values), dtype=np.int64)
    sizes, starts = to_lengths(offsets), offsets[:-1]
    for queries, matrix in _group_by_size(values, offsets, _lowest(values.dtype)):
        rows: IntArray = starts[queries][:, None] + np.argsort(-matrix, axis=1, kind="stable")
        if queries is _ALL:
            return rows.reshape(-1)
        filled = np.arange(matrix.shape[1]) < sizes[queries][:, None]
        order[(starts[queries][:, None] + np.arange(matrix.shape[1]))[filled]] = rows[filled]
    return order


def flag_repeats(codes: IntArray, offsets: IntArray) -> BoolArray:
    """Check whether each query has the same code twice.

    >>> flag_repeats(np.array([3, 1, 3, 3]), np.array([0, 3, 4])).tolist()
    [True, False]
    """
    flags = np.zeros(len(offsets) - 1, dtype=np.bool_)
    if not _may_repeat(codes, offsets):
        return flags
    sizes = to_lengths(offsets)
    for queries, matrix in _group_by_size(codes, offsets, _lowest(codes.dtype)):
        width = matrix.shape[1]
        rising = np.sort(matrix, axis=1)  # what fills a line up comes first
        real = np.arange(1, width) > (width - sizes[queries])[:, None]
        flags[queries] = ((rising[:, 1:] == rising[:, :-1]) & real).any(axis=1)
    return flags


def _may_repeat(codes: IntArray, offsets: IntArray) -> bool:
    """Check whether two rows have one hash of query and code: rarely by chance, always if both are equal."""
    query = query_of_rows(offsets).astype(np.uint64)
    hashes = codes.astype(np.uint64) * ODD_NUMBERS[0] + query * ODD_NUMBERS[1]
    hashes.sort()
    return bool((hashes[1:] == hashes[:-1]).any())


def _group_by_size(values: NumberArray, offsets: IntArray, fill: float) -> Iterator[tuple[Any, NumberArray]]:
    """Yield groups of queries of similar size, and their values as a padded matrix, one row per query."""
    sizes = to_lengths(offsets)
    if len(sizes) and sizes[0] > 0 and (sizes == sizes[0]).all():
        yield _ALL, values.reshape(-1, sizes[0])
        return
    steps = np.frexp(sizes.astype(np.float64) - 0.5)[1]  # such that 2^step >= size
    for step in np.unique(steps[sizes > 0]):
        in_group = (steps == step) & (sizes > 0)
        queries = np.flatnonzero(in_group)
        filled = np.arange(sizes[queries].max()) < sizes[queries][:, None]
        matrix = np.full(filled.shape, fill, dtype=values.dtype)
        matrix[filled] = values[np.repeat(in_group, sizes)]
        yield queries, matrix


def _lowest(kind: np.dtype[Any]) -> float | int:
    return -np.inf if kind.kind == "f" else int(np.iinfo(kind).min)
