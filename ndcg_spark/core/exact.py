"""Exact sums of doubles: as whole numbers, so that no order or partitioning can change a bit.

A double is cut into signed limbs of 32 bits on a fixed grid, from 2^-256 up to 2^160. Limbs add as int64,
without rounding, in NumPy, in Arrow and in Spark; only the end result is rounded, once. What lies below
2^-256 is cut off (of each value alone, so the order still cannot matter).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError

Limbs: TypeAlias = dict[int, IntArray]
"""Whole numbers by the number of the limb, the lowest 0; what is not there is zero."""
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
    """Return the largest size of values; refuse what limbs cannot hold."""
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
    """Return the exact number that limbs, or sums of limbs, stand for, lowest first; `float()` of it rounds once."""
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
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def rounded_sums(parts: Sequence[FloatArray], offsets: IntArray) -> FloatArray:
    """Sums of segments, none of them empty, each rounded once: the same for any order of the rows.

    Each number is the sum of its parts, such as a product and its error.

    >>> rounded_sums([np.array([1e16, 1.0, -1e16, 0.5])], np.array([0, 3, 4])).tolist()
    [1.0, 0.5]
    """
    starts = offsets[:-1]
    sums = np.asarray(sum(part[starts] for part in parts), dtype=np.float64)  # right where a segment has one row
    for at in np.flatnonzero(np.diff(offsets) > 1).tolist():
        inside = slice(offsets[at], offsets[at + 1])
        sums[at] = math.fsum(number for part in parts for number in part[inside].tolist())
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
        """Take limbs by their place in a state apart, by the names of the sums that have any."""
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
        """Fill in, where every weight w is 1, `w` and what is another moment times w. Changes `states`."""
        sums = states.reshape(-1, len(self.names), N_LIMBS)
        sums[:, self.names.index("w"), -LOWEST_BIT // LIMB_BITS] = n_queries
        for at, name in enumerate(self.names):
            if name.startswith("ww") and name[1:] in self.names:
                sums[:, at] = sums[:, self.names.index(name[1:])]

    def fractions(self, state: IntArray, *names: str) -> dict[str, Fraction]:
        """Read sums of a state, shape (size,); all of them if none is named."""
        parts = dict(zip(self.names, state.reshape(-1, N_LIMBS).tolist(), strict=True))
        return {name: from_limbs(parts[name]) for name in names or self.names}


def _halves(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    scaled = value * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - value)
    return high, value - high
