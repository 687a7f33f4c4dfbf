"""Estimates from clicks weighted by inverse propensities, from exact sums that add up over workers and nights."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from ndcg_spark.core.exact import N_LIMBS, Limbs, add_limbs, from_limbs, to_limbs, two_product
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.core.student import t_quantile

N_SUMS = 6
STATE_SIZE = N_SUMS * N_LIMBS


class WeightedEstimate(NamedTuple):
    """A mean of weighted clicks with its uncertainty; None where it is not defined."""

    value: float | None
    std_error: float | None
    ci_low: float | None
    ci_high: float | None


NO_ESTIMATE = WeightedEstimate(None, None, None, None)


class PropensityEstimates(NamedTuple):
    """Inverse propensity scoring, its self-normalised form, and the effective sample size."""

    ips: WeightedEstimate
    snips: WeightedEstimate
    n_eff: float | None


def query_states(reward: FloatArray, weight: FloatArray, squared: FloatArray) -> Limbs:
    """State of each query by itself, to be added up.

    Parameters
    ----------
    reward : float64, shape (n_queries,)
        A: sum of weight times click (or gain) over the impressions of the query.
    weight : float64, shape (n_queries,)
        B: sum of the weights.
    squared : float64, shape (n_queries,)
        Sum of the squares of the weights.

    Returns
    -------
    dict from int to int64, shape (n_queries,)
        Limbs of A, B, A^2, AB, B^2 and the squares, by their place in a state.
    """
    sums = (
        to_limbs(reward),
        to_limbs(weight),
        _product(reward, reward),
        _product(reward, weight),
        _product(weight, weight),
        to_limbs(squared),
    )
    return {at * N_LIMBS + j: limb for at, limbs in enumerate(sums) for j, limb in limbs.items()}


def _product(a: FloatArray, b: FloatArray) -> Limbs:
    product, error = two_product(a, b)
    return add_limbs(to_limbs(product), to_limbs(error))


def estimates(state: IntArray, n_queries: int, *, confidence: float = 0.95) -> PropensityEstimates:
    """Estimates from a state, each rounded once from exact fractions.

    Parameters
    ----------
    state : int64, shape (STATE_SIZE,)
        Sum of the states of the queries.
    n_queries : int
    confidence : float
        Level of the intervals, which are Student's with n - 1 degrees of freedom.

    Returns
    -------
    PropensityEstimates
        IPS is the mean of A; its standard error the sample standard deviation over sqrt(n). SNIPS is
        sum A / sum B; its standard error sqrt(sum (A - SNIPS B)^2) / sum B. n_eff is (sum w)^2 / sum w^2. None for
        0 / 0, and for errors with fewer than two queries. SNIPS means something only if the expected weight is 1, as
        with the logged probabilities of actions: otherwise sum B does not estimate the number of impressions.

    References
    ----------
    Swaminathan and Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015.

    Examples
    --------
    >>> import numpy as np
    >>> w, r = np.array([1.0, 2.0, 5.0, 10.0]), np.array([1.0, 0.0, 1.0, 1.0])
    >>> states = query_states(w * r, w, w * w)
    >>> state = np.array([states[at].sum() if at in states else 0 for at in range(STATE_SIZE)])
    >>> found = estimates(state, 4)
    >>> found.ips.value, round(found.snips.value, 12), round(found.n_eff, 12)
    (4.0, 0.888888888889, 2.492307692308)
    """
    a, b, aa, ab, bb, ww = (from_limbs(part) for part in state.reshape(N_SUMS, N_LIMBS).tolist())
    ips, snips, n_eff = NO_ESTIMATE, NO_ESTIMATE, None
    several, ratio = n_queries > 1, a / b if b else None
    half = t_quantile((1 + confidence) / 2, n_queries - 1) if several else math.nan
    if n_queries:
        spread = (aa - a * a / n_queries) / ((n_queries - 1) * n_queries) if several else None
        ips = _estimate(a / n_queries, spread, half)
    if ratio is not None:
        spread = (aa - 2 * ratio * ab + ratio * ratio * bb) / (b * b) if several else None
        snips, n_eff = _estimate(ratio, spread, half), float(b * b / ww)
    return PropensityEstimates(ips, snips, n_eff)


def _estimate(value: Fraction, variance: Fraction | None, half: float) -> WeightedEstimate:
    if variance is None:
        return WeightedEstimate(float(value), None, None, None)
    error = math.sqrt(float(variance))
    return WeightedEstimate(float(value), error, float(value) - half * error, float(value) + half * error)
