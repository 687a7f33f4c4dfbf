"""The exact, mergeable state of a mean, and the mean and its interval from it.

Five moments over the queries of a group, each an exact sum: w, w v, w^2, w^2 v, w^2 v^2, where v is a query's
value and w its weight. States of disjoint sets of queries merge by adding them, number by number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.exact import LOWEST_BIT, Limbs, Moments, check_size, two_product
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError

MOMENTS = Moments("w", "wv", "ww", "wwv", "wwvv")
_LIGHTEST_SUM = Fraction(1, 2**80)
"""Weights and their squares are cut off below 2^-256: the error of lighter groups would have too few digits."""


class Estimate(NamedTuple):
    """A mean with its uncertainty; None where it is not defined."""

    value: float | None
    weight_sum: float
    std_error: float | None
    ci_low: float | None
    ci_high: float | None


def query_states(values: FloatArray, weights: FloatArray | None) -> Limbs:
    """State of each query by its place in a state, each of shape (n_queries,), to be added up.

    Places that are zero for every query may be left out. Without weights only those of v and v^2 are filled; see
    `Moments.fill_unweighted`. Weights between 0 and 2^-256 count as 2^-256: nothing beside other weights, and
    `estimate` refuses a group of nothing else.
    """
    if weights is None:
        return MOMENTS.limbs(wv=[values], wwvv=[(values, values)])
    weights = np.where(weights > 0, np.maximum(weights, 2.0**LOWEST_BIT), weights)
    check_size(weights)  # before arithmetic on what is not finite can warn
    product, error = two_product(weights, values)  # w v = product + error, exactly
    return MOMENTS.limbs(
        w=[weights],
        wv=[product, error],
        ww=[(weights, weights)],
        wwv=[(weights, product), (weights, error)],
        wwvv=[(product, product), (2 * product, error), (error, error)],
    )


def day_estimate(days: IntArray, *, quantiles: Sequence[float]) -> Estimate:
    """Mean over all days, with days as clusters: its error comes from how much days differ. No error below two days.

    Days of weight 0 are ignored. With A the weight and Y the sum of w v of a day, and C days, the error is sqrt(C /
    (C - 1) * sum((Y - mean A)^2)) / sum(w). `quantiles` are those of Student's t for 1, 2, ... degrees of freedom.
    Cochran, Sampling Techniques, 3rd ed. 1977, section 9A.1.
    """
    moments = [MOMENTS.fractions(day, "w", "wv").values() for day in days]
    clusters = [(w, wv) for w, wv in moments if w]
    total = sum((w for w, _ in clusters), Fraction(0))
    if not clusters:
        return Estimate(None, 0.0, None, None, None)
    refuse_light(total)
    mean = sum((wv for _, wv in clusters), Fraction(0)) / total
    value, n = float(mean), len(clusters)
    if n < 2:
        return Estimate(value, float(total), None, None, None)
    spread = sum(((wv - mean * w) ** 2 for w, wv in clusters), Fraction(0)) * Fraction(n, n - 1)
    std_error = math.sqrt(float(spread / (total * total)))
    half = quantiles[n - 2] * std_error
    return Estimate(value, float(total), std_error, value - half, value + half)


def refuse_light(weight_sum: Fraction) -> None:
    """Raise `InputRefusedError` for weights, with a sum above 0, whose squares exact sums would cut off."""
    if weight_sum < _LIGHTEST_SUM:
        # Exact sums end at 2^-256: what they hold of smaller weights is not their sum.
        total = f"{float(weight_sum):.3g}" if weight_sum > Fraction(1, 2**200) else "almost nothing"
        raise InputRefusedError(
            f"weights of queries sum to {total}, too small for an exact mean (limit 2^-80); multiply all weights by "
            "the same number."
        )


def estimate(state: IntArray, n_queries: int, *, confidence: float) -> Estimate:
    """Mean, standard error and normal interval from a state, rounded once each.

    The mean is sum(w v) / sum(w). Its standard error is that of a ratio, sqrt(n / (n - 1) * sum(w^2 (v - mean)^2)) /
    sum(w): with equal weights, the sample standard deviation over sqrt(n). None for the mean of nothing, and for the
    error of fewer than two queries. Cochran, Sampling Techniques, 3rd ed. 1977, section 6.4.

    >>> import numpy as np
    >>> states = query_states(np.array([0.5, 1.0]), np.array([1.0, 1.0]))
    >>> estimate(MOMENTS.states(states, 1, np.sum)[0], 2, confidence=0.95)[:3]
    (0.75, 2.0, 0.25)
    """
    w, wv, ww, wwv, wwvv = MOMENTS.fractions(state).values()
    if n_queries == 0 or w == 0:
        return Estimate(None, float(w), None, None, None)
    refuse_light(w)
    mean = wv / w
    value = float(mean)
    if n_queries == 1:
        return Estimate(value, float(w), None, None, None)
    spread = max(Fraction(0), wwvv - 2 * mean * wwv + mean * mean * ww) * Fraction(n_queries, n_queries - 1)
    std_error = math.sqrt(float(spread / (w * w)))
    half = NormalDist().inv_cdf((1 + confidence) / 2) * std_error
    return Estimate(value, float(w), std_error, value - half, value + half)
