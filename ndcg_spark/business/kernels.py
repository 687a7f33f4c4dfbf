"""Correlations of two series, their intervals, and the change between two windows of nights."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray

_MIN_PAIRS = 4
"""An interval needs this many pairs, because its width divides by the root of n - 3."""
_COLLINEAR = 1e-12
"""A correlation this close to 1 or -1 differs from it by rounding error only."""


class Correlation(NamedTuple):
    """A correlation with its interval; None if it is not defined."""

    n: int
    r: float | None
    low: float | None
    high: float | None


def pearson(x: FloatArray, y: FloatArray, *, confidence: float) -> Correlation:
    """Return Pearson's correlation of finite values, with Fisher's interval tanh(atanh r -+ z / sqrt(n - 3)).

    `r` is None if one series is constant; the interval is also None for fewer than 4 pairs and if |r| is 1.
    Fisher, On the "probable error" of a coefficient of correlation deduced from a small sample, Metron 1, 1921.

    >>> correlation = pearson(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0]), confidence=0.95)
    >>> correlation.n, round(correlation.r, 12)
    (4, 0.8)
    """
    r = _correlate(x, y)
    return _add_interval(r, len(x), 1.0, confidence)


def spearman(x: FloatArray, y: FloatArray, *, confidence: float) -> Correlation:
    """Return Spearman's correlation with an interval; equal values share their mean rank.

    The variance on the scale of atanh is (1 + r^2 / 2) / (n - 3).
    Bonett and Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.

    >>> correlation = spearman(np.array([1.0, 2.0, 30.0, 4.0]), np.array([1.0, 3.0, 9.0, 4.0]), confidence=0.95)
    >>> correlation.r, correlation.low
    (1.0, None)
    """
    r = _correlate(rank_values(x), rank_values(y))
    return _add_interval(r, len(x), 1.0 if r is None else 1 + r * r / 2, confidence)


def rank_values(values: FloatArray) -> FloatArray:
    """Rank values from 1; equal values share the mean of their ranks.

    >>> rank_values(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(times) - (times - 1) / 2)[place.reshape(-1)]
    return ranks


def compute_decimal_changes(values: FloatArray) -> FloatArray:
    """Return the decimal change from each value to the next, shape (n - 1,).

    Changes are differences of the shortest decimals that print the values, each rounded once. Changes that are equal
    in decimal are therefore equal here, unlike 0.3 - 0.2 and 0.2 - 0.1 in floats.

    >>> values = np.array([0.1, 0.2, 0.3])
    >>> compute_decimal_changes(values).tolist(), np.diff(values).tolist()
    ([0.1, 0.1], [0.1, 0.09999999999999998])
    """
    decimals = [Fraction(repr(value)) for value in values.tolist()]
    return np.array([float(b - a) for a, b in pairwise(decimals)], dtype=np.float64)


def match_days(days: IntArray, other: IntArray, lag: int) -> tuple[IntArray, IntArray]:
    """Return the positions of days t in one series and t + lag in the other; days are ascending and unique.

    >>> places, others = match_days(np.array([1, 2, 4]), np.array([2, 3, 5]), 1)
    >>> places.tolist(), others.tolist()
    ([0, 1, 2], [0, 1, 2])
    """
    _, places, others = np.intersect1d(days + lag, other, assume_unique=True, return_indices=True)
    return places.astype(np.int64), others.astype(np.int64)


def _correlate(x: FloatArray, y: FloatArray) -> float | None:
    """Return the correlation, computed with correctly rounded sums; None if a series is constant."""
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():
        return None
    dx, dy = x - math.fsum(x) / len(x), y - math.fsum(y) / len(y)
    r = math.fsum(dx * dy) / (math.sqrt(math.fsum(dx * dx)) * math.sqrt(math.fsum(dy * dy)))
    return math.copysign(1.0, r) if abs(r) > 1 - _COLLINEAR else r


def _add_interval(r: float | None, n: int, factor: float, confidence: float) -> Correlation:
    if r is None or n < _MIN_PAIRS or abs(r) == 1:
        return Correlation(n, r, None, None)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(factor / (n - 3))
    middle = math.atanh(r)
    return Correlation(n, r, math.tanh(middle - half), math.tanh(middle + half))


class WindowChange(NamedTuple):
    """Change of a mean between two windows, relative to the earlier |mean|, and its standard error."""

    change: float
    error: float

    def is_up(self, min_change: float, noise_limit: float) -> bool:
        return self.change >= min_change and self.change >= noise_limit * self.error

    def is_down(self, min_change: float, noise_limit: float) -> bool:
        return WindowChange(-self.change, self.error).is_up(min_change, noise_limit)

    def is_flat(self, max_flat: float, noise_limit: float) -> bool:
        return abs(self.change) + noise_limit * self.error <= max_flat


def compare_windows(earlier: FloatArray, later: FloatArray) -> WindowChange | None:
    """Compare two windows of at least two nights each; None if the earlier mean is 0.

    The standard error adds the variances of both windows, each divided by its number of nights. Welch, Biometrika 34,
    1947.
    """
    before, after = math.fsum(earlier) / len(earlier), math.fsum(later) / len(later)
    if before == 0:
        return None
    variance = _variance(earlier, before) / len(earlier) + _variance(later, after) / len(later)
    return WindowChange((after - before) / abs(before), math.sqrt(variance) / abs(before))


def _variance(values: FloatArray, mean: float) -> float:
    return math.fsum((values - mean) ** 2) / (len(values) - 1)
