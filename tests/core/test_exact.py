"""Exact sums and the moments built on them, compared with whole numbers and fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ndcg_spark.core.exact import (
    MOMENTS,
    N_LIMBS,
    Limbs,
    add_limbs,
    estimate,
    estimate_days,
    from_limbs,
    query_states,
    refuse_small_weights,
    to_limbs,
    two_product,
)
from ndcg_spark.errors import InputRefusedError

GRID = Fraction(1, 2**256)
MAX_VALUE = 2.0**159


def is_on_grid(value: float) -> bool:
    return Fraction(value) % GRID == 0


wide = st.floats(-MAX_VALUE, MAX_VALUE, exclude_min=True, exclude_max=True)
exact = wide.filter(is_on_grid) | st.floats(-1, 1).filter(is_on_grid)
values_between_0_and_1 = st.floats(0, 1).filter(lambda value: value == 0 or value > 1e-6)
squares_on_the_grid = st.floats(0, 1).filter(lambda value: value == 0 or value >= 2.0**-10)
weights = st.floats(1e-3, 1e3)


def sum_exactly(values: list[float]) -> np.ndarray:
    return sum_limbs(to_limbs(np.array(values, dtype=np.float64)), N_LIMBS)


def sum_limbs(limbs: Limbs, size: int) -> np.ndarray:
    assert set(limbs) <= set(range(size))
    return np.array([limbs[at].sum() if at in limbs else 0 for at in range(size)])


def compute_state(
    values: list[float] | np.ndarray, its_weights: list[float] | np.ndarray | None = None
) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    state = sum_limbs(query_states(values, None if its_weights is None else np.asarray(its_weights)), MOMENTS.size)
    if its_weights is None:
        MOMENTS.fill_unweighted(state[None, :], np.array([len(values)]))
    return state


# --- Sums


@given(st.lists(exact, max_size=30))
@example([0.1] * 10)
@example([1e40, 1.0, -1e40])
@example([math.nextafter(MAX_VALUE, 0.0)] * 3)
@example([2.0**-256, -(2.0**-256), 5e-324 * 0])
def test_sums_are_those_of_fractions(values):
    assert from_limbs(sum_exactly(values)) == sum(map(Fraction, values), Fraction(0))


@given(st.lists(wide, max_size=20), st.integers(0, 2**32), st.integers(1, 6))
def test_neither_order_nor_partitioning_changes_a_bit(values, seed, n_parts):
    random_ = random.Random(seed)
    parts: list[list[float]] = [[] for _ in range(n_parts)]
    for value in random_.sample(values, len(values)):
        random_.choice(parts).append(value)
    assert sum(sum_exactly(part) for part in parts).tolist() == sum_exactly(values).tolist()


@given(wide | st.floats(-1e-30, 1e-30))
@example(5e-324)
@example(-(2.0**-257))
@example(1.5 * 2.0**-256)
def test_digits_below_the_grid_are_cut_off(value):
    expected = math.trunc(Fraction(value) / GRID) * GRID
    assert from_limbs(sum_exactly([value])) == expected


@given(st.lists(wide, max_size=10))
def test_limbs_are_small_enough_for_2_to_31_of_them(values):
    limbs = to_limbs(np.array(values, dtype=np.float64))
    assert set(limbs) <= set(range(N_LIMBS))
    for limb in limbs.values():
        assert (limb.shape, limb.dtype) == ((len(values),), np.int64)
        assert (np.abs(limb) < 2**32).all()


@given(st.lists(st.tuples(exact, exact), max_size=10))
@example([(2.0**100, 2.0**-200), (-(2.0**100), 0.0)])
def test_limbs_add_as_the_values_do(pairs):
    parts = [to_limbs(np.array(values)) for values in ([a for a, _ in pairs], [b for _, b in pairs])]
    both = sum((Fraction(a) + Fraction(b) for a, b in pairs), Fraction(0))
    assert from_limbs(sum_limbs(add_limbs(*parts), N_LIMBS)) == both


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, MAX_VALUE, -MAX_VALUE, 1e300])
def test_what_cannot_be_added_exactly_is_refused(bad):
    with pytest.raises(InputRefusedError, match="too large to add exactly"):
        to_limbs(np.array([0.5, bad]))


def test_the_values_given_are_not_changed():
    values = np.array([0.1, -3.5])
    to_limbs(values)
    assert values.tolist() == [0.1, -3.5]


@given(st.lists(st.tuples(st.floats(-1e50, 1e50), st.floats(-1e50, 1e50)), min_size=1, max_size=5))
def test_a_product_and_its_error_are_the_exact_product(pairs):
    pairs = [(a, b) for a, b in pairs if a * b == 0 or abs(a * b) > 1e-200]  # no underflow
    a, b = np.array([left for left, _ in pairs]), np.array([right for _, right in pairs])
    for x, y, product, error in zip(a, b, *two_product(a, b), strict=True):
        assert product == x * y
        assert Fraction(product) + Fraction(error) == Fraction(x) * Fraction(y) or x * y == 0


# --- Moments


def compute_plain_estimate(values: list[float], its_weights: list[float]) -> tuple[Fraction, Fraction]:
    """Return the weighted mean and the square of its standard error, from their definitions."""
    pairs = [(Fraction(v), Fraction(w)) for v, w in zip(values, its_weights, strict=True)]
    total, n = sum(w for _, w in pairs), len(pairs)
    mean = sum(w * v for v, w in pairs) / total
    return mean, Fraction(n, n - 1) * sum(w**2 * (v - mean) ** 2 for v, w in pairs) / total**2


def estimate_mean(values: list[float], its_weights: list[float] | None = None, confidence: float = 0.95):
    return estimate(compute_state(values, its_weights), len(values), confidence=confidence)


@given(st.lists(st.tuples(values_between_0_and_1, weights), min_size=2, max_size=20))
def test_the_weighted_mean_and_its_error(pairs):
    values, its_weights = [v for v, _ in pairs], [w for _, w in pairs]
    got = estimate_mean(values, its_weights)
    mean, squared_error = compute_plain_estimate(values, its_weights)
    assert got.value == float(mean)
    assert got.weight_sum == float(sum(map(Fraction, its_weights)))
    assert got.std_error == pytest.approx(math.sqrt(squared_error), rel=1e-9, abs=1e-15)


@given(st.lists(values_between_0_and_1, min_size=2, max_size=20))
def test_the_plain_mean_and_its_error(values):
    got = estimate_mean(values)
    mean, squared_error = compute_plain_estimate(values, [1.0] * len(values))
    assert (got.value, got.weight_sum) == (float(mean), len(values))
    assert got.std_error == pytest.approx(math.sqrt(squared_error), rel=1e-15)


@given(st.lists(squares_on_the_grid, min_size=2, max_size=20), st.sampled_from([1.0, 0.25, 1024.0]))
def test_equal_weights_equal_no_weights(values, weight):
    weighted, plain = estimate_mean(values, [weight] * len(values)), estimate_mean(values)
    assert weighted._replace(weight_sum=0) == plain._replace(weight_sum=0)
    assert weighted.weight_sum == weight * len(values)


@pytest.mark.parametrize("weight", [0.3, 7.0, 1e-3, 1e-9, 1e-12, 1e12])
def test_the_unit_of_weights_does_not_matter(weight):
    values = [0.0, 0.25, 1.0, 0.7]
    weighted, plain = estimate_mean(values, [weight] * 4), estimate_mean(values)
    assert weighted.value == plain.value
    assert weighted.std_error == pytest.approx(plain.std_error, rel=1e-6)


@given(squares_on_the_grid, st.integers(2, 12))
@example(0.1, 3)
@example(1 / 3, 10)
def test_constant_values_have_no_error(value, n):
    got = estimate_mean([value] * n)
    assert (got.value, got.std_error, got.ci_low, got.ci_high) == (value, 0.0, value, value)


@pytest.mark.parametrize("value", [1e-5, 1.1e-9])
def test_small_constant_values_have_no_error(value):
    assert estimate_mean([value] * 3)[:3] == (value, 3.0, 0.0)


def test_constant_values_have_no_error_whatever_their_weights():
    got = estimate_mean([0.1] * 3, [0.3, 0.7, 1.1])
    assert (got.value, got.std_error) == (0.1, 0.0)


@pytest.mark.parametrize("its_weights", [[0.3, 0.7, 1.1], [1e-3, 5.0, 0.1]])
def test_each_of_the_five_moments_is_an_exact_sum(its_weights):
    values = [0.1, 0.9, 1 / 3]
    state = compute_state(values, its_weights)
    got = MOMENTS.fractions(state).values()
    pairs = [(Fraction(v), Fraction(w)) for v, w in zip(values, its_weights, strict=True)]
    powers = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    expected = [sum(w**i * v**j for v, w in pairs) for i, j in powers]
    assert [abs(a - b) < 16 * GRID for a, b in zip(got, expected, strict=True)] == [True] * 5


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_the_interval_is_normal(confidence):
    """0, 1, 1, 1: mean 3/4, sample variance 1/4, standard error 1/4."""
    got = estimate_mean([0.0, 1.0, 1.0, 1.0], confidence=confidence)
    half = NormalDist().inv_cdf(1 - (1 - confidence) / 2) / 4
    assert got == pytest.approx((0.75, 4.0, 0.25, 0.75 - half, 0.75 + half), rel=1e-12)


def test_means_and_errors_that_are_not_defined_are_none():
    nothing = np.zeros(MOMENTS.size, dtype=np.int64)
    assert estimate(nothing, 0, confidence=0.95) == (None, 0.0, None, None, None)
    assert estimate_mean([0.3]) == (0.3, 1.0, None, None, None)
    assert estimate_mean([0.3, 0.4], [0.0, 0.0]) == (None, 0.0, None, None, None)


@given(st.lists(st.tuples(values_between_0_and_1, weights), min_size=1, max_size=12), st.integers(0, 12))
def test_states_of_disjoint_queries_merge(pairs, cut):
    values, its_weights = np.array([v for v, _ in pairs]), np.array([w for _, w in pairs])
    parts = [compute_state(values[at], its_weights[at]) for at in (slice(cut), slice(cut, None))]
    assert sum(parts).tolist() == compute_state(values, its_weights).tolist()


@given(st.lists(values_between_0_and_1, max_size=12))
def test_a_state_without_weights_is_that_of_weights_of_one(values):
    assert compute_state(values).tolist() == compute_state(values, [1.0] * len(values)).tolist()


def test_light_weights_of_pairs_are_refused_too():
    """Their squares would be cut off: the error would be 0, and any difference significant."""
    with pytest.raises(InputRefusedError, match="sum to 1e-40, too small for an exact mean"):
        refuse_small_weights(Fraction(1e-40))
    with pytest.raises(InputRefusedError, match="sum to almost nothing, too small for an exact mean"):
        refuse_small_weights(Fraction(1, 2**255))
    refuse_small_weights(Fraction(1e-20))


@pytest.mark.parametrize("weight", [1e-30, 1e-40, 1e-70, 1e-100, 5e-324])
def test_light_weights_are_refused_where_nothing_outweighs_them(weight):
    """Cut off at 2^-256, their squares would give an error of 0 and a wrong mean, or no mean."""
    values, light = np.array([0.3, 0.7, 0.123]), np.array([weight, weight, 3 * weight])
    state = sum_limbs(query_states(values, light), MOMENTS.size)
    for make in (
        lambda: estimate(state, 3, confidence=0.95),
        lambda: estimate_days(np.array([state, state]), quantiles=[1.0]),
    ):
        with pytest.raises(InputRefusedError, match="too small for an exact mean"):
            make()
    beside = sum_limbs(query_states(np.append(values, 0.5), np.append(light, 1.0)), MOMENTS.size)
    assert estimate(beside, 4, confidence=0.95)[:2] == (0.5, 1.0)
    nothing = sum_limbs(query_states(values, np.zeros(3)), MOMENTS.size)
    assert estimate(nothing, 3, confidence=0.95) == (None, 0.0, None, None, None)
