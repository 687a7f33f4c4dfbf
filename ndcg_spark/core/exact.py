"""Exact sums of doubles: as whole numbers, so that no order or partitioning can change a bit.

A double is cut into signed limbs of 32 bits on a fixed grid, from 2^-256 up to 2^160. Limbs add as int64,
without rounding, in NumPy, in Arrow and in Spark; only the end result is rounded, once. Bits below
2^-256 are cut off (of each value alone, so the order still cannot matter).

The state of a mean has five moments over the queries of a group, each an exact sum: w, w v, w^2, w^2 v, w^2 v^2,
where v is a query's value and w its weight. States of disjoint sets of queries merge by adding them, each number by
itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError

Limbs: TypeAlias = dict[int, IntArray]
"""Whole numbers by the number of the limb, the lowest 0; a missing limb is zero."""
Term: TypeAlias = FloatArray | tuple[FloatArray, FloatArray]
"""A number of each query, or a product of two, which is not rounded."""

LIMB_BITS = 32
LOWEST_BIT = -256
N_LIMBS = 13
MAX_WEIGHT = 1e18
"""Largest weight of a query or rating. Its square, times that of a metric, is far below the limit of the limbs."""
_LIMIT = 2.0 ** (LOWEST_BIT + LIMB_BITS * N_LIMBS - 1)


def to_limbs(values: FloatArray) -> Limbs:
    """Cut finite values below 2^159 in size into limbs: value = sum of limb[j] * 2^(32 j - 256).

    Limbs that are zero for every value may be left out. Up to 2^31 of them add without overflow.

    >>> limbs = to_limbs(np.array([0.1, 1e16, -0.1]))
    >>> float(from_limbs(limbs[j].sum() if j in limbs else 0 for j in range(N_LIMBS)))
    1e+16
    """
    largest = check_size(values)
    limbs: Limbs = {}
    rest = values
    for j in range(N_LIMBS - 1, -1, -1):
        unit = 2.0 ** (LOWEST_BIT + LIMB_BITS * j)
        if largest < unit:
            continue
        limb = np.trunc(rest * (1 / unit))  # exact, as units are powers of two
        limbs[j] = limb.astype(np.int64)
        rest = rest - limb * unit  # exact: it only takes leading bits away
        if not rest.any():
            break
    return limbs


def check_size(values: FloatArray) -> float:
    """Return the largest size of values; refuse values that limbs cannot hold."""
    largest = float(np.abs(values).max(initial=0.0))
    if not largest < _LIMIT:
        raise InputRefusedError("a metric or weight is not finite or too large to add exactly (limit 2^159).")
    return largest


def add_limbs(total: Limbs, *parts: Limbs) -> Limbs:
    """Add sums of the same values, limb by limb, to `total`, which is changed and returned."""
    for part in parts:
        for j, limb in part.items():
            total[j] = total[j] + limb if j in total else limb
    return total


def from_limbs(limbs: Iterable[int]) -> Fraction:
    """Return the exact number that limbs, or sums of limbs, represent, lowest first; `float()` of it rounds once."""
    whole = sum(int(limb) << (LIMB_BITS * j) for j, limb in enumerate(limbs))
    return Fraction(whole, 1 << -LOWEST_BIT)


def two_product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split the product a * b into its rounded value and the rounding error, exactly, barring underflow.

    Factors must be below 2^996 in size. Dekker, A floating-point technique for extending the available precision,
    1971.

    >>> product, error = two_product(np.array([0.1]), np.array([0.1]))
    >>> Fraction(product[0]) + Fraction(error[0]) == Fraction(0.1) ** 2
    True
    """
    product = a * b
    a_high, a_low = _split_halves(a)
    b_high, b_low = _split_halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def round_sums(parts: Sequence[FloatArray], offsets: IntArray) -> FloatArray:
    """Sums of segments, none of them empty, each rounded once: the same for any order of the rows.

    Each number is the sum of its parts, such as a product and its error.

    >>> round_sums([np.array([1e16, 1.0, -1e16, 0.5])], np.array([0, 3, 4])).tolist()
    [1.0, 0.5]
    """
    starts = offsets[:-1]
    sums = np.asarray(sum(part[starts] for part in parts), dtype=np.float64)  # right where a segment has one row
    for segment in np.flatnonzero(np.diff(offsets) > 1).tolist():
        inside = slice(offsets[segment], offsets[segment + 1])
        sums[segment] = math.fsum(number for part in parts for number in part[inside].tolist())
    return sums


def product_limbs(a: FloatArray, b: FloatArray) -> Limbs:
    """Cut every product a * b into limbs, without rounding it."""
    product, error = two_product(a, b)
    return add_limbs(to_limbs(product), to_limbs(error))


class Moments:
    """Sums over queries, by name. A state has the limbs of each, in the order of the names; states merge by adding.

    >>> moments = Moments("v", "vv")
    >>> values = np.array([0.5, 0.25])
    >>> state = moments.states(moments.limbs(v=[values], vv=[(values, values)]), 1, np.sum)[0]
    >>> moments.fractions(state)
    {'v': Fraction(3, 4), 'vv': Fraction(5, 16)}
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.size = len(names) * N_LIMBS

    def limbs(self, **numbers: Iterable[Term]) -> Limbs:
        """Cut numbers of queries, each the sum of its terms, into limbs by their place in a state.

        Places that are zero for every query may be left out.
        """
        limbs: Limbs = {}
        for name, terms in numbers.items():
            start = self.names.index(name) * N_LIMBS
            parts = (product_limbs(*term) if isinstance(term, tuple) else to_limbs(term) for term in terms)
            limbs |= {start + j: limb for j, limb in add_limbs({}, *parts).items()}
        return limbs

    def named(self, limbs: Limbs) -> dict[str, Limbs]:
        """Split limbs of a state by the names of their sums."""
        parts: dict[str, Limbs] = {}
        for place, limb in limbs.items():
            parts.setdefault(self.names[place // N_LIMBS], {})[place % N_LIMBS] = limb
        return parts

    def states(self, limbs: Limbs, n_groups: int, add: Callable[[IntArray], IntArray] = np.asarray) -> IntArray:
        """Put limbs of groups together, shape (n_groups, size); `add` adds up those of queries by group."""
        states = np.zeros((n_groups, self.size), dtype=np.int64)
        for place, limb in limbs.items():
            states[:, place] = add(limb)
        return states

    def fill_unweighted(self, states: IntArray, n_queries: IntArray) -> None:
        """Fill in `w` and the moments times w if every weight w is 1. Changes `states`."""
        sums = states.reshape(-1, len(self.names), N_LIMBS)
        sums[:, self.names.index("w"), -LOWEST_BIT // LIMB_BITS] = n_queries
        for index, name in enumerate(self.names):
            if name.startswith("ww") and name[1:] in self.names:
                sums[:, index] = sums[:, self.names.index(name[1:])]

    def fractions(self, state: IntArray, *names: str) -> dict[str, Fraction]:
        """Read sums of a state, shape (size,); all of them if none is named."""
        parts = dict(zip(self.names, state.reshape(-1, N_LIMBS).tolist(), strict=True))
        return {name: from_limbs(parts[name]) for name in names or self.names}


def _split_halves(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    scaled = value * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - value)
    return high, value - high


MOMENTS = Moments("w", "wv", "ww", "wwv", "wwvv")
_MIN_WEIGHT_SUM = Fraction(1, 2**80)
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
    `Moments.fill_unweighted`. Weights between 0 and 2^-256 count as 2^-256, which is negligible beside others;
    `estimate` refuses a group of such weights alone.
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


def estimate_days(days: IntArray, *, quantiles: Sequence[float]) -> Estimate:
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
    refuse_small_weights(total)
    mean = sum((wv for _, wv in clusters), Fraction(0)) / total
    value, n = float(mean), len(clusters)
    if n < 2:
        return Estimate(value, float(total), None, None, None)
    spread = sum(((wv - mean * w) ** 2 for w, wv in clusters), Fraction(0)) * Fraction(n, n - 1)
    std_error = math.sqrt(float(spread / (total * total)))
    half = quantiles[n - 2] * std_error
    return Estimate(value, float(total), std_error, value - half, value + half)


def refuse_small_weights(weight_sum: Fraction) -> None:
    """Raise `InputRefusedError` for weights, with a sum above 0, whose squares exact sums would cut off."""
    if weight_sum < _MIN_WEIGHT_SUM:
        # Exact sums cut off bits below 2^-256, so the sum of smaller weights is wrong.
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
    refuse_small_weights(w)
    mean = wv / w
    value = float(mean)
    if n_queries == 1:
        return Estimate(value, float(w), None, None, None)
    spread = max(Fraction(0), wwvv - 2 * mean * wwv + mean * mean * ww) * Fraction(n_queries, n_queries - 1)
    std_error = math.sqrt(float(spread / (w * w)))
    half = NormalDist().inv_cdf((1 + confidence) / 2) * std_error
    return Estimate(value, float(w), std_error, value - half, value + half)
