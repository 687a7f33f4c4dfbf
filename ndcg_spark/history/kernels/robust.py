"""How far a value lies from what was usual, by medians; and whether a count of 0 is usual."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.ragged import FloatArray

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


def chance_of_none(n_before: int, n_nights: int) -> float:
    """Probability that a night has no query at all, given how many the nights before it had together.

    Parameters
    ----------
    n_before : int
        Queries of all earlier nights.
    n_nights : int
        Earlier nights, at least 1.

    Returns
    -------
    float
        (n_nights / (n_nights + 1)) ** n_before: if all nights are alike, a query is as likely to be of one of them as
        of any other. This is the conditional test of two Poisson counts.

    References
    ----------
    Przyborowski and Wilenski, Biometrika 31(3/4), 1940, doi:10.1093/biomet/31.3-4.313.

    Examples
    --------
    >>> round(chance_of_none(35, 7), 4), chance_of_none(3, 1)
    (0.0093, 0.125)
    """
    return (n_nights / (n_nights + 1)) ** n_before
