"""How far a value lies from what was usual, by medians."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ndcg_spark.kernels.ragged import FloatArray

MAD_TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviation of normal values over their median absolute deviation: 1.482602218505602."""


class Deviation(NamedTuple):
    """Where a value lies among others.

    Parameters
    ----------
    median : float
    spread : float
        1.482602218505602 times the median absolute deviation from the median.
    z : float
        (value - median) / the larger of spread and the floor; infinite where both are 0 and the value differs.
    """

    median: float
    spread: float
    z: float


def deviation(value: float, others: FloatArray, floor: float) -> Deviation:
    """Place a value among others.

    Parameters
    ----------
    value : float
    others : float64, shape (n,)
        At least one.
    floor : float
        Least spread to divide by, such as the standard error of the value.

    Returns
    -------
    Deviation

    Examples
    --------
    >>> deviation(6.0, np.array([1.0, 2.0, 3.0]), 2.0)
    Deviation(median=2.0, spread=1.482602218505602, z=2.0)
    """
    median = float(np.median(others))
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(others - median)))
    scale, distance = max(spread, floor), value - median
    if scale == 0:
        return Deviation(median, spread, math.copysign(math.inf, distance) if distance else 0.0)
    return Deviation(median, spread, distance / scale)
