"""Distances from a median."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ndcg_spark.history.tasks.judging import measure_deviation

MONDAYS = [0.4420, 0.4431, 0.4409, 0.4415, 0.4442, 0.4398, 0.4426, 0.4411, 0.4437, 0.4404, 0.4423, 0.4418]


def test_a_night_below_twelve_others():
    """The standard error, 0.0015, is larger than 1.4826 times the median absolute deviation, 0.0009."""
    actual = measure_deviation(0.4312, np.array(MONDAYS), 0.0015)
    expected = (0.441900000000, 0.001334341997, -7.133333333333)
    assert tuple(actual) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_spread_is_that_of_scipy(seed):
    values = np.random.default_rng(seed).normal(size=11 + seed)
    actual = measure_deviation(3.0, values, 0.0)
    assert actual.spread == pytest.approx(stats.median_abs_deviation(values, scale="normal"), abs=1e-12)
    assert actual.z == pytest.approx((3.0 - np.median(values)) / actual.spread, abs=1e-12)


def test_without_any_spread_a_change_is_infinitely_far():
    assert [measure_deviation(value, np.full(9, 0.5), 0.0).z for value in (0.4, 0.5, 0.6)] == [
        -math.inf,
        0.0,
        math.inf,
    ]
