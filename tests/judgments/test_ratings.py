"""Mean, median and majority of weighted ratings, compared with fractions in plain loops."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from packaging.version import Version

from ndcg_spark.judgments.kernels import (
    find_majority,
    rating_range,
    sort_ratings,
    sum_weights,
    to_whole_numbers,
    weighted_mean,
    weighted_median,
)

FOUR = ([3.0, 1.0, 2.0, -1.0], [1.0, 0.5, 1.0, 0.25])


def build_ratings(items):
    """Build ratings from items of (relevances, weights)."""
    relevance = np.array([value for values, _ in items for value in values], dtype=np.float64)
    weight = np.array([value for _, values in items for value in values], dtype=np.float64)
    return sort_ratings(relevance, weight, np.cumsum([0, *[len(values) for values, _ in items]]))


def test_the_worked_example():
    ratings = build_ratings([FOUR])
    assert weighted_mean(ratings) == pytest.approx(1.909090909091, abs=1e-12)
    assert [bound.tolist() for bound in weighted_median(ratings)] == [[2.0], [2.0]]
    assert find_majority(ratings)[0].tolist() == [2.0]  # 2 and 3 tie
    assert find_majority(ratings)[1].tolist() == [3.0]


@pytest.mark.skipif(Version(np.__version__) < Version("2"), reason="numpy has weighted quantiles from 2.0 on")
def test_the_median_of_the_example_is_that_of_numpy():
    values, weights = map(np.array, FOUR)
    expected = np.quantile(values, 0.5, weights=weights, method="inverted_cdf")
    assert weighted_median(build_ratings([FOUR]))[0].tolist() == [float(expected)]


@pytest.mark.parametrize(("n", "expected"), [(1, 1.0), (2, 1.5), (3, 2.0), (4, 2.5)])
def test_with_equal_weights_the_median_is_the_plain_one(n, expected):
    lower, upper = weighted_median(build_ratings([(list(range(n, 0, -1)), [0.1] * n)]))
    assert ((lower + upper) / 2).tolist() == [expected] == [np.median(range(1, n + 1))]


def summarize_by_loops(values, weights):
    pairs = sorted((value, Fraction(weight)) for value, weight in zip(values, weights, strict=True) if weight > 0)
    if not pairs:
        return None
    total = sum(weight for _, weight in pairs)
    votes: defaultdict[float, Fraction] = defaultdict(Fraction)
    for value, weight in pairs:
        votes[value] += weight
    medians = [
        min(value for value, _ in pairs if compare(2 * sum(w for v, w in pairs if v <= value), total))
        for compare in (Fraction.__ge__, Fraction.__gt__)
    ]
    winners = [value for value, weight in votes.items() if weight == max(votes.values())]
    return {
        "sum": float(total),
        "mean": float(sum(Fraction(value) * weight for value, weight in pairs) / total),
        "median": medians,
        "votes": [min(winners), max(winners), 2 * max(votes.values()) > total],
        "range": [pairs[0][0], pairs[-1][0]],
    }


def random_items(seed):
    generator = np.random.default_rng(seed)
    items = []
    for _ in range(40):
        n = generator.integers(0, 7)
        values = generator.choice([-1.0, 0.0, 0.1, 1.0, 2.5, 3.0, 1e-3], n)
        weights = generator.choice([0.0, 0.1, 0.2, 0.3, 1.0, 1e-9, 1e18], n)
        items.append((values.tolist(), weights.tolist()))
    return items


@pytest.mark.parametrize("seed", range(20))
def test_ratings_equal_loops_over_fractions(seed):
    items = random_items(seed)
    ratings = build_ratings(items)
    columns = [sum_weights(ratings), weighted_mean(ratings), *weighted_median(ratings), *find_majority(ratings)]
    columns += rating_range(ratings)
    for row, (values, weights) in zip(zip(*columns, strict=True), items, strict=True):
        expected = summarize_by_loops(values, weights)
        if expected is None:
            assert row[0] == 0
            assert np.isnan(np.array([*row[1:6], *row[7:]], dtype=float)).all()
            continue
        flat = [expected["sum"], expected["mean"], *expected["median"], *expected["votes"], *expected["range"]]
        assert [float(cell) for cell in row] == flat  # to the bit


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
def test_a_tie_that_doubles_miss_in_some_orders(order):
    """1e16 + 1 + 1 is 1e16 in doubles if added from the left, 1e16 + 2 if added from the right."""
    weights = [[1e16, 1.0, 1.0][at] for at in order]
    votes = find_majority(build_ratings([([1.0, 1.0, 1.0, 2.0], [*weights, 1e16 + 2])]))
    assert [votes.lower.tolist(), votes.higher.tolist()] == [[1.0], [2.0]]


@pytest.mark.parametrize("values", [[], [0.0], [1.0, 0.0, -3.5], [5e-324, 1e18], [0.1, -1e-300]])
def test_whole_numbers_are_exact(values):
    whole, unit = to_whole_numbers(np.array(values))
    assert [Fraction(int(number)) * Fraction(2) ** unit for number in whole] == [Fraction(value) for value in values]
