"""The k largest values of queries, orders and repeats, against plain Python."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ndcg_spark.kernels.cut import falling_order, kth_largest, largest, repeats
from ndcg_spark.kernels.ragged import offsets_of

VALUES = st.one_of(st.integers(-4, 4), st.integers(-(2**30), 2**30))
RAGGED = st.lists(st.lists(VALUES, max_size=9), min_size=1, max_size=8)
"""Queries of uneven sizes, often some of one value, some empty."""
EVEN = st.integers(1, 6).flatmap(lambda size: st.lists(st.lists(VALUES, min_size=size, max_size=size), min_size=1))
QUERIES = st.one_of(RAGGED, EVEN)
KINDS = (np.int16, np.int32, np.float64)


def end_to_end(queries: list[list[int]], kind: type = np.int64) -> tuple[np.ndarray, np.ndarray]:
    within = 2**15 if kind is np.int16 else 2**31
    rows = [value % within for query in queries for value in query]
    return np.array(rows, dtype=kind), offsets_of(np.array([len(query) for query in queries]))


def of_queries(values: np.ndarray, offsets: np.ndarray) -> list[list]:
    return [values[start:end].tolist() for start, end in itertools.pairwise(offsets)]


@pytest.mark.parametrize("kind", KINDS)
@given(queries=QUERIES, k=st.integers(1, 10))
@example(queries=[[1, 2, 3, 4], [1, 2, 3], [1]], k=9)  # as many as two queries of four
def test_the_k_largest(kind, queries, k):
    values, offsets = end_to_end(queries, kind)
    best, lengths = largest(values, offsets, np.diff(offsets), k)
    expected = [heapq.nlargest(k, query) for query in of_queries(values, offsets)]
    assert of_queries(best, offsets_of(lengths)) == expected
    lowest = -np.inf if kind is np.float64 else np.iinfo(kind).min
    assert kth_largest(values, offsets, k).tolist() == [one[-1] if len(one) == k else lowest for one in expected]


@given(queries=QUERIES)
def test_rows_that_do_not_count_are_not_among_the_largest(queries):
    values, offsets = end_to_end(queries, np.float64)
    counts = values % 3 > 0
    there = np.array([sum(value % 3 > 0 for value in query) for query in of_queries(values, offsets)])
    best, lengths = largest(np.where(counts, values, -np.inf), offsets, there, 2)
    expected = [heapq.nlargest(2, [v for v in query if v % 3 > 0]) for query in of_queries(values, offsets)]
    assert of_queries(best, offsets_of(lengths)) == expected


@given(queries=QUERIES)
def test_rows_in_falling_order_keep_their_order_where_values_tie(queries):
    values, offsets = end_to_end(queries, np.float64)
    expected = [sorted(range(start, end), key=lambda row: -values[row]) for start, end in itertools.pairwise(offsets)]
    assert of_queries(falling_order(values, offsets), offsets) == expected


@given(queries=QUERIES)
def test_a_code_that_comes_twice_in_a_query(queries):
    codes, offsets = end_to_end(queries)
    assert repeats(codes, offsets).tolist() == [len(set(query)) < len(query) for query in of_queries(codes, offsets)]
