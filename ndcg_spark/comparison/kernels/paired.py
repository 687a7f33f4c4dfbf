"""The paired difference of two runs: its exact, mergeable state, the estimates from it, and p-values of many.

Over the queries of a group, with weight w, value x of the baseline and y of the run: sums of w, wx, wy; of w^2,
w^2 x, w^2 y, w^2 x^2, w^2 xy, w^2 y^2; and of what sign flips add up. For clusters the six squares are those of the
sums of a cluster. All are exact (`core.exact`), so states of disjoint sets of queries merge by adding them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.exact import Limbs, Moments, check_size, two_product
from ndcg_spark.core.moments import refuse_light
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.core.student import t_quantile, two_sided_p
from ndcg_spark.errors import InputRefusedError

SQUARES = Moments("ww", "wwx", "wwy", "wwxx", "wwxy", "wwyy")
SUMS = Moments("w", "wx", "wy", *SQUARES.names, "delta", "n_differ")
DELTA_UNIT = 2.0**-32
_MOST_DELTA = 2.0**63
FEW_QUERIES, FEW_CLUSTERS = 10, 50


def deltas(x: FloatArray, y: FloatArray) -> FloatArray:
    """Differences y - x of each query, rounded to whole multiples of 2^-32, half to even.

    A tie is 0.0, so values that differ by up to 2^-33 are one. Refuses differences of 2^31 or more.
    """
    units = np.rint((y - x) / DELTA_UNIT)
    if not np.abs(units).max(initial=0.0) < _MOST_DELTA:
        raise InputRefusedError("a difference of two values is not finite or too large to compare (limit 2^31).")
    return np.asarray(units * DELTA_UNIT)


def pair_states(x: FloatArray, y: FloatArray, weights: FloatArray | None, delta: FloatArray) -> Limbs:
    """State of each query, from its values in the baseline and the run, its weight, and its `deltas`; to be added up.

    Limbs of shape (n_queries,), by their place in a state of `SUMS`. Without weights the places of w, w^2, w^2 x and
    w^2 y are left to `fill_unweighted`.
    """
    differ = (delta != 0).astype(np.float64)
    if weights is None:
        return SUMS.limbs(
            wx=[x], wy=[y], wwxx=[(x, x)], wwxy=[(x, y)], wwyy=[(y, y)], delta=[delta], n_differ=[differ]
        )
    check_size(weights)  # before arithmetic on what is not finite can warn
    wx, wy = two_product(weights, x), two_product(weights, y)
    return SUMS.limbs(
        w=[weights],
        wx=wx,
        wy=wy,
        ww=[(weights, weights)],
        wwx=[(weights, part) for part in wx],
        wwy=[(weights, part) for part in wy],
        wwxx=product(wx, wx),
        wwxy=product(wx, wy),
        wwyy=product(wy, wy),
        delta=[weights * delta],
        n_differ=[weights * differ],
    )


def cluster_squares(a: FloatArray, x: FloatArray, y: FloatArray) -> Limbs:
    """Squares of the sums of w, wx and wy of each cluster, by their place in a state of `SQUARES`."""
    return SQUARES.limbs(ww=[(a, a)], wwx=[(a, x)], wwy=[(a, y)], wwxx=[(x, x)], wwxy=[(x, y)], wwyy=[(y, y)])


class Squares(NamedTuple):
    """Sums of squares over `n` units, which are queries or clusters."""

    n: int
    ww: Fraction
    wwx: Fraction
    wwy: Fraction
    wwxx: Fraction
    wwxy: Fraction
    wwyy: Fraction

    def spread(self, x: Fraction, y: Fraction, one: Fraction) -> Fraction:
        """Sum of (x X + y Y + one A)^2, never below 0, scaled up for the loss of a degree of freedom."""
        total = (
            x * x * self.wwxx
            + y * y * self.wwyy
            + one * one * self.ww
            + 2 * (x * y * self.wwxy + x * one * self.wwx + y * one * self.wwy)
        )
        return max(Fraction(0), total) * Fraction(self.n, self.n - 1)


def read_squares(sums: Mapping[str, Fraction], n: int) -> Squares:
    """Choose the sums of squares among sums over n queries or clusters."""
    return Squares(n, **{name: sums[name] for name in SQUARES.names})


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """Estimates of a paired difference; None where one is not defined."""

    value: float | None = None
    baseline_value: float | None = None
    difference: float | None = None
    weight_sum: float = 0.0
    std_error: float | None = None
    df: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    t: float | None = None
    p_value: float | None = None
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None


def paired_estimate(
    sums: dict[str, Fraction], squares: Squares, *, alpha: float, lift: str = "fieller", no_spread: bool = False
) -> PairedEstimate:
    """Difference of two means over the same queries, its error, interval and t-test, and the relative lift.

    The difference is (sum(wy) - sum(wx)) / sum(w), its error that of a regression on a constant, weighted by w, with
    HC1 errors, or clustered ones where `squares` are of clusters. With `no_spread` all differences are the same, and
    there is no test. MacKinnon and White, J. Econometrics 29, 1985 (HC1); Liang and Zeger, Biometrika 73(1), 1986
    (clusters); Fieller, Some problems in interval estimation, JRSS B 16(2), 1954 (lift).
    """
    w = sums["w"]
    if w == 0:
        return PairedEstimate()
    refuse_light(w)
    x, y = sums["wx"] / w, sums["wy"] / w
    found = {"value": float(y), "baseline_value": float(x), "difference": float(y - x), "weight_sum": float(w)}
    ratio = y / x if x > 0 else None
    if ratio is not None:
        found["lift"] = float(ratio - 1)
    if squares.n < 2:
        return PairedEstimate(**found)
    quantile = t_quantile(1 - alpha / 2, squares.n - 1)
    std_error = 0.0 if no_spread else error_of_difference(sums, squares)
    half = quantile * std_error
    found |= {"std_error": std_error, "df": float(squares.n - 1)}
    found |= {"ci_low": found["difference"] - half, "ci_high": found["difference"] + half}
    if std_error > 0:
        found["t"] = found["difference"] / std_error
        found["p_value"] = two_sided_p(found["t"], squares.n - 1)
    if ratio is not None:
        ends = _fieller(x, y, w, squares, quantile) if lift == "fieller" else None
        if lift == "delta":
            half = quantile * lift_error(sums, squares)
            ends = (found["lift"] - half, found["lift"] + half)
        if ends is not None:
            found["lift_low"], found["lift_high"] = ends
    return PairedEstimate(**found)


def error_of_difference(sums: dict[str, Fraction], squares: Squares) -> float:
    """Standard error of the difference: sqrt(n/(n-1) sum((Y - X - difference A)^2)) / sum(w), for n >= 2."""
    w = sums["w"]
    difference = (sums["wy"] - sums["wx"]) / w
    return math.sqrt(float(squares.spread(Fraction(-1), Fraction(1), -difference) / (w * w)))


def lift_error(sums: dict[str, Fraction], squares: Squares) -> float:
    """Standard error of the lift R - 1 by the delta method: sqrt(n/(n-1) sum((Y - R X)^2)) / sum(wx)."""
    wx = sums["wx"]
    return math.sqrt(float(squares.spread(-sums["wy"] / wx, Fraction(1), Fraction(0)) / (wx * wx)))


def _fieller(x: Fraction, y: Fraction, w: Fraction, squares: Squares, quantile: float) -> tuple[float, float] | None:
    """Ends of the lift: the roots R of (y - R x)^2 = t^2 var(y - R x), less 1; None if they are not an interval."""
    variance_x = squares.spread(Fraction(1), Fraction(0), -x) / (w * w)
    variance_y = squares.spread(Fraction(0), Fraction(1), -y) / (w * w)
    variance_d = squares.spread(Fraction(-1), Fraction(1), x - y) / (w * w)
    covariance = (variance_x + variance_y - variance_d) / 2
    t2 = Fraction(quantile) ** 2
    a, b, c = x * x - t2 * variance_x, x * y - t2 * covariance, y * y - t2 * variance_y
    if a <= 0:
        return None
    half = math.sqrt(max(0.0, float((b * b - a * c) / (a * a))))
    return float(b / a - 1) - half, float(b / a - 1) + half


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the probability of any false finding; None, a test not made, does not count.

    Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 1979.

    >>> [round(p, 12) for p in holm([0.04, 0.001, 0.03])]
    [0.06, 0.003, 0.06]
    """
    known = _sorted(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, at) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[at] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the expected share of false findings; None, a test not made, does not count.

    Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57(1), 1995.

    >>> benjamini_hochberg([0.04, 0.001, None])
    [0.04, 0.002, None]
    """
    known = _sorted(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank, (p, at) in reversed(list(enumerate(known, start=1))):
        lowest = min(lowest, len(known) * p / rank)
        adjusted[at] = lowest
    return adjusted


def _sorted(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    """P-values of the tests that were made, the smallest first, with their places."""
    return sorted((p, at) for at, p in enumerate(p_values) if p is not None)
