"""Ragged sums, gains, discounts and DCG, compared with their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndcg_spark.conventions.forms import check_discount, discount_table, exponential, gain_function, relevance_range
from ndcg_spark.core.ragged import first_query_with, query_of_rows, rank_of_rows, segment_sum, to_offsets
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.metrics.kernels import dcg, ndcg, padding, rank_weights, sort_within_queries

LOG2 = np.array([1 / math.log2(rank + 1) for rank in range(1, 41)])
INVERSE = np.array([1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5])

numbers = st.floats(-1e6, 1e6)
lists = st.lists(st.lists(numbers, max_size=6), max_size=6)


def concatenate(values: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    flat = np.array([value for listed in values for value in listed], dtype=np.float64)
    return flat, to_offsets(np.array([len(value) for value in values], dtype=np.int64))


def sum_by_loop(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


# --- Ragged batches


@given(lists)
def test_rows_know_their_query_and_rank(values):
    _, offsets = concatenate(values)
    owners = [(query, rank) for query, listed in enumerate(values) for rank in range(len(listed))]
    assert list(zip(query_of_rows(offsets), rank_of_rows(offsets), strict=True)) == owners


@given(lists)
def test_a_query_sums_its_own_rows_in_order(values):
    """Bit for bit the sum from left to right; neighbours have no influence."""
    got = segment_sum(*concatenate(values))
    assert got.dtype == np.float64
    assert got.tolist() == [sum_by_loop(value) for value in values]


def test_empty_queries_sum_to_zero_wherever_they_are():
    assert segment_sum(*concatenate([[], [1.0], [], [2.0, 4.0], []])).tolist() == [0, 1, 0, 6, 0]
    assert segment_sum(*concatenate([[], []])).tolist() == [0, 0]
    assert segment_sum(*concatenate([])).tolist() == []


def test_nan_stays_in_its_query():
    got = segment_sum(*concatenate([[1.0], [math.nan, 1.0], [2.0]]))
    assert got[[0, 2]].tolist() == [1, 2]
    assert math.isnan(got[1])


@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=6))
def test_first_query_with_returns_the_first_flagged_query(flags):
    flat, offsets = concatenate(flags)
    expected = next((query for query, query_flags in enumerate(flags) if any(query_flags)), None)
    assert first_query_with(flat.astype(bool), offsets) == expected


# --- Gains


@pytest.mark.parametrize(
    ("spec", "relevances", "gains"),
    [
        ("exponential", [0, 1, 2, 3, 4, -1, -2], [0, 1, 3, 7, 15, -0.5, -0.75]),
        ("exponential", [0.5, 1.0], [math.sqrt(2) - 1, 1]),
        ("linear", [0, 1.5, -2], [0, 1.5, -2]),
        ("power:2", [0, 3, 1.5], [0, 9, 2.25]),
        ("power:2", [-2, -0.5], [-4, -0.25]),  # an item that is worse than nothing gains less than nothing
        ("power:0.5", [4, 2.25], [2, 1.5]),
        ("table:0=0,1=1,2=4", [2, 0, 1, 2], [4, 0, 1, 4]),
        ("table:2=4e2,-1=-3,0.5=1e2", [-1, 0.5, 2], [-3, 100, 400]),
        (lambda relevance: relevance * relevance + 1, [0, 3], [1, 10]),
    ],
)
def test_gains(spec, relevances, gains):
    function = gain_function(spec)
    given_values = np.array(relevances, dtype=np.float64)
    assert function(given_values).tolist() == pytest.approx(gains, rel=1e-15)
    assert given_values.tolist() == relevances  # not changed
    assert function(np.zeros(0)).shape == (0,)


def test_the_exponential_gain_of_whole_numbers_is_exact():
    levels = range(-60, 64)
    assert exponential(np.array(levels, dtype=np.float64)).tolist() == [2.0**level - 1.0 for level in levels]


def test_the_exponential_gain_does_not_depend_on_its_neighbours(monkeypatch):
    """With an exp2 that is off by one ulp (see the comment in the kernel), 3 still gains 7."""
    exact = np.exp2
    # stands in for: a processor whose exp2 is an ulp off, because this one may be exact
    monkeypatch.setattr(np, "exp2", lambda values: np.nextafter(exact(values), np.inf))
    assert exponential(np.array([3.0])).tolist() == [7.0]
    assert exponential(np.array([3.0, 0.5]))[0] == 7.0


@pytest.mark.parametrize(
    "spec",
    [
        "", "Exponential", "exponential:x", "linear:", "linear:-1", "log2",
        "power", "power:", "power:0", "power:-1", "power:x", "power:inf", "power:nan",
        "table", "table:", "table:1", "table:a=1", "table:1=b", "table:1=", "table:1=1,1.0=2", "table:nan=1",
        "table:1=inf", "table:1=nan", "table:1=1e19",
    ],
)  # fmt: skip
def test_bad_gains_are_refused(spec):
    with pytest.raises(InvalidParameterError):
        gain_function(spec)


def test_a_relevance_outside_the_gain_table_is_named():
    with pytest.raises(InvalidParameterError, match=r"relevance 1\.5 has no gain"):
        gain_function("table:0=0,1=1,2=4")(np.array([1.0, 1.5]))
    with pytest.raises(InvalidParameterError, match="relevance 3 has no gain"):
        gain_function("table:0=0,1=1,2=4")(np.array([3.0]))


@pytest.mark.parametrize(
    "spec", ["exponential", "linear", "linear:2", "power:2", "power:3", "power:0.5", "power:0.05"]
)
def test_the_range_of_relevances_ends_where_the_gain_reaches_2_to_63(spec):
    for end in relevance_range(spec):
        if math.isinf(end):
            sign = math.copysign(1.0, end)
            assert abs(gain_function(spec)(np.array([sign * 1.7e308]))[0]) <= 2.0**63
            continue
        with np.errstate(over="ignore"):
            outside = abs(gain_function(spec)(np.array([end * (1 + 1e-9)]))[0])
            inside = abs(gain_function(spec)(np.array([end * (1 - 1e-9)]))[0])
        assert inside <= 2.0**63
        assert outside >= 2.0**63


@pytest.mark.parametrize("spec", ["binary", "table:0=0,1e300=5", lambda relevance: relevance])
def test_gains_without_bounds(spec):
    assert relevance_range(spec) == (-math.inf, math.inf)


# --- Discounts


@pytest.mark.parametrize(
    ("spec", "weights"),
    [
        ("log2", [1, 1 / math.log2(3), 1 / 2]),
        ("ln", [1 / math.log(2), 1 / math.log(3), 1 / math.log(4)]),
        ("log:2", [1, 1 / math.log2(3), 1 / 2]),
        ("log:10", [1 / math.log10(2), 1 / math.log10(3), 1 / math.log10(4)]),
        ("reciprocal", [1, 1 / 2, 1 / 3]),
        ("table:1.25,0.63,0.5,0.1", [1.25, 0.63, 0.5]),
        (lambda rank: 1 / (rank + 1), [1 / 2, 1 / 3, 1 / 4]),
    ],
)
def test_discounts(spec, weights):
    assert discount_table(spec, 3).tolist() == pytest.approx(weights, rel=1e-15)
    assert discount_table(spec, 0).shape == (0,)


@given(st.sampled_from(["log2", "ln", "log:3", "reciprocal"]), st.integers(0, 50), st.integers(0, 50))
def test_a_longer_table_starts_with_the_shorter_one(spec, n, more):
    assert discount_table(spec, n + more)[:n].tolist() == discount_table(spec, n).tolist()


@pytest.mark.parametrize(
    "spec",
    ["", "Log2", "log2:", "log", "log:", "log:1", "log:0.5", "log:x", "log:inf", "log:nan", "table", "table:",
     "table:1,,2", "table:1,x", "table:1,inf", "exponential"],
)  # fmt: skip
def test_bad_discounts_are_refused(spec):
    with pytest.raises(InvalidParameterError):
        check_discount(spec, 0)


def test_a_discount_table_must_cover_the_largest_cutoff():
    check_discount("table:1,0.5", 2)
    with pytest.raises(InvalidParameterError, match=r"2 ranks, too few for k=3"):
        check_discount("table:1,0.5", 3)
    with pytest.raises(InvalidParameterError, match="too few for all ranks"):
        check_discount("table:1,0.5", None)
    with pytest.raises(InvalidParameterError, match=r"shape \(2,\) for 3 ranks"):
        discount_table(lambda rank: rank[:2], 3)


# --- DCG


@pytest.mark.parametrize("k", [1, 2, 3, 5, None])
@given(values=lists)
def test_dcg_equals_the_definition(values, k):
    got = dcg(*concatenate(values), LOG2, k=k)
    for value, listed in zip(got, values, strict=True):
        terms = [gain / math.log2(rank + 1) for rank, gain in enumerate(listed[:k], start=1)]
        assert value == pytest.approx(math.fsum(terms), rel=1e-12, abs=1e-9)


@given(lists, st.integers(1, 8))
def test_a_query_scores_the_same_alone_and_among_others(values, k):
    together = dcg(*concatenate(values), LOG2, k=k)
    assert together.tolist() == [dcg(*concatenate([value]), LOG2, k=k)[0] for value in values]


def test_an_empty_query_between_two_others_scores_zero():
    assert dcg(*concatenate([[1.0], [], [1.0, 1.0]]), INVERSE).tolist() == [1, 0, 1.5]


def test_given_ranks_may_have_gaps():
    """Ranks 1, 3 | 2, 5: 6 + 3/3 | 4/2 + 5/5; the last is beyond the cutoff of 4."""
    gains, offsets = concatenate([[6.0, 3.0], [4.0, 5.0]])
    rank = np.array([0, 2, 1, 4])
    for k, expected in ((None, [7, 3]), (4, [7, 2]), (1, [6, 0])):
        assert segment_sum(gains * rank_weights(rank, INVERSE, k=k), offsets).tolist() == expected


def test_ranks_beyond_the_cutoff_need_no_discount():
    assert rank_weights(np.array([0, 1, 2, 700]), np.array([1.0, 0.5]), k=2).tolist() == [1, 0.5, 0, 0]
    assert rank_weights(np.zeros(0, dtype=np.int64), np.zeros(0), k=2).tolist() == []


@given(lists)
def test_sorting_within_queries(values):
    flat, offsets = concatenate(values)
    before = flat.tolist()
    assert sort_within_queries(flat, offsets).tolist() == [
        value for listed in values for value in sorted(listed)[::-1]
    ]
    assert flat.tolist() == before


@given(st.lists(st.integers(0, 8), max_size=5), st.integers(1, 5), st.sampled_from([-0.5, 0.0, 1.0, 7.0]))
def test_padding_fills_the_ranks_from_the_end_of_the_list_to_k(lengths, k, gain):
    got = padding(np.array(lengths, dtype=np.int64), gain, INVERSE, k=k)
    expected = [math.fsum(gain / rank for rank in range(length + 1, k + 1)) for length in lengths]
    assert got.tolist() == pytest.approx(expected, rel=1e-12)
    assert padding(np.array(lengths, dtype=np.int64), gain, INVERSE, k=None).tolist() == [0] * len(lengths)


@pytest.mark.parametrize("no_relevant", [0.0, 1.0, math.nan])
def test_ndcg_without_relevant_items(no_relevant):
    got = ndcg(np.array([1.0, -1.0, 0.0, 3.0]), np.array([2.0, 4.0, 0.0, -1.0]), no_relevant=no_relevant)
    assert got.tolist() == pytest.approx([0.5, -0.25, no_relevant, no_relevant], nan_ok=True)
