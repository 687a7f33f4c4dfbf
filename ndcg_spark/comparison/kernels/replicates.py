"""P-values of sign flips and intervals of a Poisson bootstrap, from the sums of their replicates.

A unit is a query, or a cluster of queries. All sums are whole numbers in units of 2^-256: nothing is rounded before
the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.exact import LIMB_BITS, LOWEST_BIT, Limbs, Moments
from ndcg_spark.core.ragged import FloatArray

Ends: TypeAlias = tuple[float | None, float | None]
"""Ends of an interval; None where they are not defined."""
DRAWN = Moments("m", "a", "d", "aa", "ad", "dd")
"""Sums of a replicate: how often units are drawn, their weights A and differences D, and the products of these."""
MOST_EXACT = 16
"""Differing units up to which all signs are tried."""
SCALE = 1 << -LOWEST_BIT
_ROUNDING = 50
"""A spread below 2^-50 of the sum of squares is what rounding the squares has left."""


def whole_numbers(limbs: Limbs, size: int) -> NDArray[Any]:
    """Put limbs of shape (size,) together: Python integers in units of 2^-256."""
    total = np.zeros(size, dtype=object)
    for place, limb in limbs.items():
        total = total + (limb.astype(object) << (LIMB_BITS * place))
    return total


def exact_flip_p(differences: Sequence[float], slack: Fraction) -> float:
    """P-value of the sign-flip test, all signs of at most `MOST_EXACT` differences other than 0 being tried.

    The share of signs whose sum is as large in size as the observed one; sums closer than `slack`, by which rounded
    differences may be off, count as equal. Fisher, The Design of Experiments, 1935, chapter 3.

    >>> exact_flip_p([0.25, 0.125, 0.125], Fraction(0))
    0.25
    """
    if not differences:
        return 1.0
    wholes = [int(Fraction(one) * SCALE) for one in differences]
    least = abs(sum(wholes)) - int(slack * SCALE)
    sums = np.array(wholes[:1], dtype=object)  # the other half of the signs has the same sums, negative
    for one in wholes[1:]:
        sums = np.concatenate([sums + one, sums - one])
    return float(np.count_nonzero(np.abs(sums) >= least)) / len(sums)


def hashed_flip_p(sums: Limbs, observed: Fraction, slack: Fraction, n_flips: int) -> float:
    """P-value of the sign-flip test from the sums under random signs; `slack` as for `exact_flip_p`.

    It is (1 + count) / (1 + n_flips), as the observed sum is possible. Phipson and Smyth, Permutation p-values should
    never be zero, Stat. Appl. Genet. Mol. Biol. 9(1), 2010.
    """
    least = abs(observed * SCALE) - slack * SCALE
    count = np.count_nonzero(np.abs(whole_numbers(sums, n_flips)) >= math.ceil(least))
    return (1 + int(count)) / (1 + n_flips)


def replicate_values(drawn: dict[str, Limbs], difference: float, n_replicates: int) -> tuple[FloatArray, FloatArray]:
    """Means of the replicates that drew anything, and distances from the estimate in standard errors.

    `drawn` has sums by the names in `DRAWN`, shape (n_replicates,); only `m`, `d` and `dd` where all weights are 1.
    Replicates with one draw, or without a spread, have no distance. Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, section 12.5 (bootstrap-t).
    """
    sums = {name: whole_numbers(limbs, n_replicates).tolist() for name, limbs in drawn.items()}
    ones = sums["m"]
    means, distances = [], []
    for r in range(n_replicates):
        m, d, dd = ones[r] // SCALE, sums["d"][r], sums["dd"][r]
        a = sums["a"][r] if "a" in sums else ones[r]
        aa = sums["aa"][r] if "aa" in sums else ones[r]
        ad = sums["ad"][r] if "ad" in sums else d
        if a == 0:
            continue
        mean = d / a  # of whole numbers: rounded once
        means.append(mean)
        spread = dd * a * a - 2 * d * ad * a + d * d * aa
        if m >= 2 and spread > dd * a * a >> _ROUNDING:
            std_error = math.sqrt(m * spread * SCALE / ((m - 1) * a**4))
            distances.append((mean - difference) / std_error)
    return np.array(means), np.array(distances)


def percentile_interval(means: FloatArray, *, alpha: float) -> Ends:
    """Percentile interval of a bootstrap, of level 1 - alpha."""
    if not len(means):
        return None, None
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def studentised_interval(distances: FloatArray, difference: float, std_error: float, *, alpha: float) -> Ends:
    """Studentised interval of a bootstrap (bootstrap-t), from the distances of `replicate_values`."""
    if not len(distances):
        return None, None
    low, high = np.quantile(distances, [alpha / 2, 1 - alpha / 2])
    return float(difference - high * std_error), float(difference - low * std_error)
