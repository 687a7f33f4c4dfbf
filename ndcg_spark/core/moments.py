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

from ndcg_spark.core.exact import (
    LIMB_BITS,
    LOWEST_BIT,
    N_LIMBS,
    Limbs,
    add_limbs,
    from_limbs,
    placed,
    product_limbs,
    to_limbs,
    two_product,
)
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError

N_MOMENTS = 5
STATE_SIZE = N_MOMENTS * N_LIMBS
_W, _WV, _WW, _WWV, _WWVV = range(N_MOMENTS)
_ONE = -LOWEST_BIT // LIMB_BITS
"""The limb that counts ones."""
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
    `fill_unweighted`. Weights between 0 and 2^-256 count as 2^-256: nothing beside other weights, and `estimate`
    refuses a group of nothing else.
    """
    if weights is None:
        return placed({_WV: to_limbs(values), _WWVV: product_limbs(values, values)})
    weights = np.where(weights > 0, np.maximum(weights, 2.0**LOWEST_BIT), weights)
    w = to_limbs(weights)  # refuses what is not finite, before arithmetic on it can warn
    product, error = two_product(weights, values)  # w v = product + error, exactly
    moments = {
        _W: w,
        _WV: add_limbs(to_limbs(product), to_limbs(error)),
        _WW: product_limbs(weights, weights),
        _WWV: add_limbs(product_limbs(weights, product), product_limbs(weights, error)),
        _WWVV: add_limbs(
            product_limbs(product, product), product_limbs(2 * product, error), product_limbs(error, error)
        ),
    }
    return placed(moments)


def day_estimate(days: IntArray, *, quantiles: Sequence[float]) -> Estimate:
    """Mean over all days, with days as clusters: its error comes from how much days differ. No error below two days.

    Days of weight 0 are ignored. With A the weight and Y the sum of w v of a day, and C days, the error is sqrt(C /
    (C - 1) * sum((Y - mean A)^2)) / sum(w). `quantiles` are those of Student's t for 1, 2, ... degrees of freedom.
    Cochran, Sampling Techniques, 3rd ed. 1977, section 9A.1.
    """
    moments = [(from_limbs(day[:N_LIMBS].tolist()), from_limbs(day[N_LIMBS : 2 * N_LIMBS].tolist())) for day in days]
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


def fill_unweighted(states: IntArray, n_queries: IntArray) -> None:
    """Fill in, where every weight is 1, the moments that v and v^2 leave: w, w^2 and w^2 v. Changes `states`."""
    moments = states.reshape(-1, N_MOMENTS, N_LIMBS)
    moments[:, _W, _ONE] = moments[:, _WW, _ONE] = n_queries
    moments[:, _WWV] = moments[:, _WV]


def estimate(state: IntArray, n_queries: int, *, confidence: float) -> Estimate:
    """Mean, standard error and normal interval from a state, rounded once each.

    The mean is sum(w v) / sum(w). Its standard error is that of a ratio, sqrt(n / (n - 1) * sum(w^2 (v - mean)^2)) /
    sum(w): with equal weights, the sample standard deviation over sqrt(n). None for the mean of nothing, and for the
    error of fewer than two queries. Cochran, Sampling Techniques, 3rd ed. 1977, section 6.4.

    >>> import numpy as np
    >>> states = query_states(np.array([0.5, 1.0]), np.array([1.0, 1.0]))
    >>> state = np.array([states[at].sum() if at in states else 0 for at in range(STATE_SIZE)])
    >>> estimate(state, 2, confidence=0.95)[:3]
    (0.75, 2.0, 0.25)
    """
    moments = [from_limbs(part) for part in state.reshape(N_MOMENTS, N_LIMBS).tolist()]
    w, wv, ww, wwv, wwvv = moments
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
