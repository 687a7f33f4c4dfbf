"""Student's t: quantiles, p-values and power. The numbers are SciPy's, which is imported when it is needed."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ndcg_spark.errors import cannot_import

POWER = 0.8
"""The power that a minimal detectable effect and a required number of queries are stated for."""


def require_scipy() -> Any:
    """Return `scipy.special`, a small part of SciPy; raise MissingPackageError if SciPy is missing.

    Its functions have the bits of `scipy.stats.t`, whose import takes most of a second more.
    """
    try:
        from scipy import special
    except ImportError as error:
        use = "distributions come from SciPy, on the driver and on workers"
        raise cannot_import(error, use, "scipy", "compare") from error
    return special


def t_quantile(level: float, df: float) -> float:
    return float(require_scipy().stdtrit(df, level))


def two_sided_p(t: float, df: float) -> float:
    """Probability that |T| is at least |t|."""
    return 2 * upper_p(abs(t), df)


def upper_p(t: float, df: float) -> float:
    """Probability that T is above t: the p-value of a one-sided test."""
    return float(require_scipy().stdtr(df, -t))


def power(effect: float, std_error: float, df: float, *, alpha: float) -> float:
    """Probability that a two-sided paired t-test at level alpha finds a true difference `effect` of the means."""
    limit, shift = t_quantile(1 - alpha / 2, df), abs(effect) / std_error
    lower = _shifted_cdf(-limit, df, shift) if shift < 8 else 0.0
    # SciPy has a NaN for some large shifts, the earlier the lower alpha is; the true value is below rounding.
    return _shifted_cdf(-limit, df, -shift) + (0.0 if math.isnan(lower) else lower)


def _shifted_cdf(t: float, df: float, shift: float) -> float:
    """Probability that a noncentral T is at most t."""
    special = require_scipy()
    if _has_exact_nctdtr():
        return float(special.nctdtr(df, shift, t))
    from scipy.stats import nct

    return float(nct.cdf(t, df, shift))


@cache
def _has_exact_nctdtr() -> bool:
    """Check for SciPy 1.15, whose `nctdtr` has the bits of `nct.cdf`; before, it was wrong by up to 0.001."""
    from scipy import __version__

    return tuple(map(int, __version__.split(".")[:2])) >= (1, 15)


def detectable_effect(std_error: float, df: float, *, alpha: float) -> float:
    """Smallest effect that a paired t-test at level alpha finds with probability 0.8; NaN if it is unknown."""
    if alpha >= POWER:
        return 0.0
    low, high = 0.0, 2.0
    while power(high, 1.0, df, alpha=alpha) < POWER:
        high *= 2
    if math.isnan(power(high, 1.0, df, alpha=alpha)):
        return math.nan
    while low < (middle := (low + high) / 2) < high:  # to the last bit; importing SciPy's solvers takes 0.2 s
        low, high = (middle, high) if power(middle, 1.0, df, alpha=alpha) < POWER else (low, middle)
    return high * std_error


def required_units(effect: float, std_error: float, n_units: int, *, alpha: float) -> int:
    """Smallest number of queries, or clusters, that finds an effect other than 0 with probability 0.8; at least 2.

    `std_error` is that of `n_units` queries.
    """

    def enough(n: int) -> bool:
        return power(effect, std_error * math.sqrt(n_units / n), n - 1, alpha=alpha) >= POWER

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
