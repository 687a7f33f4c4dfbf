"""The k largest values of queries, orders and repeats, compared with plain Python."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ndcg_spark.core.ragged import (
    MAX_SORTED_WIDTH,
    argsort_descending,
    flag_repeats,
    kth_largest,
    take_first_ranked,
    take_largest,
    to_offsets,
)

VALUES = st.one_of(st.integers(-4, 4), st.integers(-(2**30), 2**30))
RAGGED = st.lists(st.lists(VALUES, max_size=9), min_size=1, max_size=8)
"""Queries of uneven sizes, often some of one value, some empty."""
EVEN = st.integers(1, 6).flatmap(lambda size: st.lists(st.lists(VALUES, min_size=size, max_size=size), min_size=1))
QUERIES = st.one_of(RAGGED, EVEN)
KINDS = (np.int16, np.int32, np.float64)
LONG_QUERIES = [[value * 7919 % 1009 + 1 for value in range(MAX_SORTED_WIDTH + n)] for n in (1, 3)]
"""Too long for every line to be sorted whole."""


def concatenate(queries: list[list[int]], kind: type = np.int64) -> tuple[np.ndarray, np.ndarray]:
    within = 2**15 if kind is np.int16 else 2**31
    rows = [value % within for query in queries for value in query]
    return np.array(rows, dtype=kind), to_offsets(np.array([len(query) for query in queries]))


def split_queries(values: np.ndarray, offsets: np.ndarray) -> list[list]:
    return [values[start:end].tolist() for start, end in itertools.pairwise(offsets)]


@pytest.mark.parametrize("kind", KINDS)
@given(queries=QUERIES, k=st.integers(1, 10))
@example(queries=[[1, 2, 3, 4], [1, 2, 3], [1]], k=9)  # as many as two queries of four
@example(queries=LONG_QUERIES, k=3)
def test_the_k_largest(kind, queries, k):
    values, offsets = concatenate(queries, kind)
    best, lengths = take_largest(values, offsets, np.diff(offsets), k)
    expected = [heapq.nlargest(k, query) for query in split_queries(values, offsets)]
    assert split_queries(best, to_offsets(lengths)) == expected
    lowest = -np.inf if kind is np.float64 else np.iinfo(kind).min
    assert kth_largest(values, offsets, k).tolist() == [
        largest[-1] if len(largest) == k else lowest for largest in expected
    ]


@given(queries=QUERIES)
def test_rows_without_a_count_are_not_among_the_largest(queries):
    values, offsets = concatenate(queries, np.float64)
    counts = values % 3 > 0
    n_counted = np.array([sum(value % 3 > 0 for value in query) for query in split_queries(values, offsets)])
    best, lengths = take_largest(np.where(counts, values, -np.inf), offsets, n_counted, 2)
    expected = [heapq.nlargest(2, [v for v in query if v % 3 > 0]) for query in split_queries(values, offsets)]
    assert split_queries(best, to_offsets(lengths)) == expected


@pytest.mark.parametrize("kind", KINDS)
@given(queries=QUERIES, k=st.integers(1, 8), n_more=st.integers(0, 2))
@example(queries=LONG_QUERIES, k=3, n_more=1)
@example(queries=LONG_QUERIES, k=2**31, n_more=0)  # leaves no bits beside the position in a query, in 32 bits
def test_rows_of_the_first_ranks_keep_their_order_with_equal_ranks(kind, queries, k, n_more):
    ranks, offsets = concatenate([[abs(value) + 1 for value in query] for query in queries], kind)
    ranks = np.maximum(ranks, 1)
    rows, lengths = take_first_ranked(ranks, offsets, k, k + n_more)
    expected = [
        sorted((row for row in range(start, end) if ranks[row] <= k), key=lambda row: ranks[row])[: k + n_more]
        for start, end in itertools.pairwise(offsets)
    ]
    assert split_queries(rows, to_offsets(lengths)) == expected


@given(queries=QUERIES)
def test_rows_in_falling_order_keep_their_order_where_values_tie(queries):
    values, offsets = concatenate(queries, np.float64)
    expected = [sorted(range(start, end), key=lambda row: -values[row]) for start, end in itertools.pairwise(offsets)]
    assert split_queries(argsort_descending(values, offsets), offsets) == expected


@given(queries=QUERIES)
def test_repeated_code_in_a_query_is_found(queries):
    codes, offsets = concatenate(queries)
    assert flag_repeats(codes, offsets).tolist() == [
        len(set(query)) < len(query) for query in split_queries(codes, offsets)
    ]
