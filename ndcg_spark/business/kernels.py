"""Correlations of two series, their intervals, and the change between two windows of nights."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray

_FEWEST = 4
"""Pairs that an interval needs: its width divides by the root of n - 3."""
_COLLINEAR = 1e-12
"""A correlation that lies so close to 1 or -1 differs from it by rounding alone."""


class Correlation(NamedTuple):
    """A correlation with its interval; None where it is not defined."""

    n: int
    r: float | None
    low: float | None
    high: float | None


def pearson(x: FloatArray, y: FloatArray, *, confidence: float) -> Correlation:
    """Pearson's correlation, with Fisher's interval tanh(atanh r -+ z / sqrt(n - 3)); values are finite.

    `r` is None where one series is constant; the interval is also None for fewer than 4 pairs and where |r| is 1.
    Fisher, On the "probable error" of a coefficient of correlation deduced from a small sample, Metron 1, 1921.

    >>> found = pearson(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0]), confidence=0.95)
    >>> found.n, round(found.r, 12)
    (4, 0.8)
    """
    r = _coefficient(x, y)
    return _with_interval(r, len(x), 1.0, confidence)


def spearman(x: FloatArray, y: FloatArray, *, confidence: float) -> Correlation:
    """Spearman's correlation: Pearson's of ranks, equal values sharing their mean rank; with an interval.

    The variance on the scale of atanh is (1 + r^2 / 2) / (n - 3).
    Bonett and Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.

    >>> found = spearman(np.array([1.0, 2.0, 30.0, 4.0]), np.array([1.0, 3.0, 9.0, 4.0]), confidence=0.95)
    >>> found.r, found.low
    (1.0, None)
    """
    r = _coefficient(midranks(x), midranks(y))
    return _with_interval(r, len(x), 1.0 if r is None else 1 + r * r / 2, confidence)


def midranks(values: FloatArray) -> FloatArray:
    """Rank values from 1; equal values share the mean of their ranks.

    >>> midranks(np.array([5.0, 1.0, 5.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(times) - (times - 1) / 2)[place.reshape(-1)]
    return ranks


def decimal_changes(values: FloatArray) -> FloatArray:
    """Change from each value to the next, as it is on paper; shape (n - 1,).

    These are differences of the shortest decimals that print the values, each rounded once: changes that are equal on
    paper are equal here, while in floats 0.3 - 0.2 and 0.2 - 0.1 are not.

    >>> values = np.array([0.1, 0.2, 0.3])
    >>> decimal_changes(values).tolist(), np.diff(values).tolist()
    ([0.1, 0.1], [0.1, 0.09999999999999998])
    """
    decimals = [Fraction(repr(value)) for value in values.tolist()]
    return np.array([float(b - a) for a, b in pairwise(decimals)], dtype=np.float64)


def paired_days(days: IntArray, other: IntArray, lag: int) -> tuple[IntArray, IntArray]:
    """Places of the days t in one series and t + lag in another, pair by pair; days are ascending, each once.

    >>> places, others = paired_days(np.array([1, 2, 4]), np.array([2, 3, 5]), 1)
    >>> places.tolist(), others.tolist()
    ([0, 1, 2], [0, 1, 2])
    """
    _, places, others = np.intersect1d(days + lag, other, assume_unique=True, return_indices=True)
    return places.astype(np.int64), others.astype(np.int64)


def _coefficient(x: FloatArray, y: FloatArray) -> float | None:
    """Correlation with correctly rounded sums; None where a series is constant."""
    if len(x) < 2 or x.min() == x.max() or y.min() == y.max():
        return None
    dx, dy = x - math.fsum(x) / len(x), y - math.fsum(y) / len(y)
    r = math.fsum(dx * dy) / (math.sqrt(math.fsum(dx * dx)) * math.sqrt(math.fsum(dy * dy)))
    return math.copysign(1.0, r) if abs(r) > 1 - _COLLINEAR else r


def _with_interval(r: float | None, n: int, factor: float, confidence: float) -> Correlation:
    if r is None or n < _FEWEST or abs(r) == 1:
        return Correlation(n, r, None, None)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(factor / (n - 3))
    middle = math.atanh(r)
    return Correlation(n, r, math.tanh(middle - half), math.tanh(middle + half))


class WindowChange(NamedTuple):
    """Change of a mean between two windows, relative to the earlier |mean|, and its standard error."""

    change: float
    error: float

    def is_up(self, least: float, errors: float) -> bool:
        return self.change >= least and self.change >= errors * self.error

    def is_down(self, least: float, errors: float) -> bool:
        return WindowChange(-self.change, self.error).is_up(least, errors)

    def is_flat(self, most: float, errors: float) -> bool:
        return abs(self.change) + errors * self.error <= most


def window_change(earlier: FloatArray, later: FloatArray) -> WindowChange | None:
    """Compare two windows of at least two nights each; None where the earlier mean is 0.

    The standard error has the variances of both windows, each over its number of nights. Welch, Biometrika 34, 1947.
    """
    before, after = math.fsum(earlier) / len(earlier), math.fsum(later) / len(later)
    if before == 0:
        return None
    variance = _variance(earlier, before) / len(earlier) + _variance(later, after) / len(later)
    return WindowChange((after - before) / abs(before), math.sqrt(variance) / abs(before))


def _variance(values: FloatArray, mean: float) -> float:
    return math.fsum((values - mean) ** 2) / (len(values) - 1)
