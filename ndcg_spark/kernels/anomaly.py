"""Whether a night stands out from the nights before it, by a robust rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from statistics import NormalDist, median

FEWEST_SAME_WEEKDAY, FEWEST_ALL = 8, 28
LIMITS = {8: 5.9, 10: 5.0, 12: 4.5, 16: 3.9, 26: 3.3, 52: 2.9}
"""By the number of nights in the history: the |z| that 1 % of normal nights exceed. With few nights a median and its
spread are uncertain themselves: the usual limit of 3.5 would flag 4.8 % with 8 of them."""
_TO_SIGMA = 1 / NormalDist().inv_cdf(0.75)
"""Median absolute deviations in a standard deviation of a normal distribution: 1.4826."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a night stands to its history; None where there is too little of it.

    Parameters
    ----------
    flagged : bool
    nights : int
        Nights that it was held against.
    same_weekday : bool
        Whether these are of its weekday.
    median, spread, z, limit : float or None
        z = (value - median) / max(spread, std_error) is flagged if its size exceeds the limit.
    note : str
        `short_history`, or empty.
    """

    flagged: bool
    nights: int
    same_weekday: bool
    median: float | None = None
    spread: float | None = None
    z: float | None = None
    limit: float | None = None
    note: str = ""


def standing(value: float, std_error: float | None, night: date, history: Sequence[tuple[date, float]]) -> Standing:
    """Hold a night against the nights before it.

    Parameters
    ----------
    value : float
    std_error : float or None
        Of the value: a change that could be chance is no anomaly, however steady the history was.
    night : date
    history : sequence of (date, float)
        Earlier nights of the same mean and configuration; later ones are ignored.

    Returns
    -------
    Standing
        Against nights of the same weekday, if there are 8; else against all, if there are 28.

    References
    ----------
    Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993 (median absolute deviation).
    """
    earlier = [(day, its) for day, its in history if day < night]
    same = [its for day, its in earlier if day.weekday() == night.weekday()]
    same_weekday = len(same) >= FEWEST_SAME_WEEKDAY
    values = same if same_weekday else [its for _, its in earlier]
    if not same_weekday and len(values) < FEWEST_ALL:
        return Standing(flagged=False, nights=len(values), same_weekday=False, note="short_history")
    middle = median(values)
    spread = _TO_SIGMA * median(abs(its - middle) for its in values)
    limit = LIMITS[max(n for n in LIMITS if n <= len(values))]
    scale, distance = max(spread, std_error or 0.0), value - middle
    z = distance / scale if scale else math.copysign(math.inf, distance) if distance else 0.0
    return Standing(
        flagged=abs(z) > limit, nights=len(values), same_weekday=same_weekday, median=middle, spread=spread, z=z,
        limit=limit,
    )  # fmt: skip


def in_words(value: float, found: Standing) -> str:
    """Say in a sentence what was found, and by which rule.

    Parameters
    ----------
    value : float
    found : Standing

    Returns
    -------
    str
    """
    which = "of the same weekday" if found.same_weekday else "of all weekdays"
    if found.z is None or found.median is None or found.spread is None:
        return (
            f"not judged: {found.nights} earlier nights, and it takes {FEWEST_SAME_WEEKDAY} of the same weekday or "
            f"{FEWEST_ALL} of all"
        )
    verdict = "flagged" if found.flagged else "as usual"
    return (
        f"{verdict}: {value:.4f} is {abs(found.z):.1f} spreads {'below' if found.z < 0 else 'above'} the median "
        f"{found.median:.4f} of {found.nights} nights {which} (limit {found.limit:g})"
    )
