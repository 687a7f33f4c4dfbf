"""Student's t: quantiles, p-values and power. The numbers are SciPy's, which is imported when it is needed."""

from __future__ import annotations

import math
from typing import Any

from ndcg_spark.errors import cannot_import

POWER = 0.8
"""The power that a minimal detectable effect and a required number of queries are stated for."""


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError as error:
        use = "distributions come from SciPy, on the driver and on workers"
        raise cannot_import(error, use, "scipy", "compare") from error
    return stats


def require_scipy() -> None:
    """Raise now if SciPy is missing, rather than in the middle of a job.

    Raises
    ------
    MissingPackageError
        Names the extra to install.
    """
    _scipy_stats()


def t_quantile(level: float, df: float) -> float:
    """Quantile of Student's t distribution.

    Parameters
    ----------
    level : float
        Such as 0.975.
    df : float
        Degrees of freedom.

    Returns
    -------
    float
    """
    return float(_scipy_stats().t.ppf(level, df))


def two_sided_p(t: float, df: float) -> float:
    """Probability that |T| is at least |t|.

    Parameters
    ----------
    t, df : float

    Returns
    -------
    float
    """
    return float(2 * _scipy_stats().t.sf(abs(t), df))


def upper_p(t: float, df: float) -> float:
    """Probability that T is above t: the p-value of a one-sided test.

    Parameters
    ----------
    t, df : float

    Returns
    -------
    float
    """
    return float(_scipy_stats().t.sf(t, df))


def power(effect: float, std_error: float, df: float, *, alpha: float) -> float:
    """Probability that a paired t-test at level alpha finds an effect.

    Parameters
    ----------
    effect : float
        True difference of the means.
    std_error : float
        Of the difference, above 0.
    df : float
    alpha : float
        Level of the two-sided test.

    Returns
    -------
    float
    """
    noncentral, limit = _scipy_stats().nct, t_quantile(1 - alpha / 2, df)
    shift = abs(effect) / std_error
    lower = float(noncentral.cdf(-limit, df, shift)) if shift < 8 else 0.0
    # SciPy has a NaN for some large shifts, the earlier the lower alpha is; what it stands for is below rounding.
    return float(noncentral.sf(limit, df, shift)) + (0.0 if math.isnan(lower) else lower)


def detectable_effect(std_error: float, df: float, *, alpha: float) -> float:
    """Smallest effect that a paired t-test at level alpha finds with probability 0.8.

    Parameters
    ----------
    std_error, df, alpha : float
        As for `power`.

    Returns
    -------
    float
    """
    from scipy.optimize import brentq

    highest = 2.0
    while power(highest, 1.0, df, alpha=alpha) < POWER:
        highest *= 2
    shift = brentq(lambda one: power(one, 1.0, df, alpha=alpha) - POWER, 0.0, highest, xtol=1e-13, rtol=1e-14)
    return float(shift) * std_error


def required_units(effect: float, std_error: float, n_units: int, *, alpha: float) -> int:
    """Smallest number of queries, or clusters, with which an effect is found with probability 0.8.

    Parameters
    ----------
    effect : float
        Not 0.
    std_error : float
        Of `n_units` queries.
    n_units : int
    alpha : float

    Returns
    -------
    int
        At least 2.
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
