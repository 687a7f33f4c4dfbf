"""How the nights of a metric table are held against clicks: frozen, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date

from ndcg_spark.errors import InvalidParameterError

EPOCH = date(1970, 1, 1)
MAX_LAG = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """Everything that determines the link between a metric and clicks, except the data.

    Parameters
    ----------
    start, as_of : date or None
        First and last night that count. None is no bound; then the windows of the alarms end with the last night of
        each series.
    min_impressions : int
        A night with fewer impressions is left out.
    max_lag : int
        Correlations are also computed between the metric of night t and the rate of night t + h, for h from -max_lag
        to max_lag.
    confidence : float
        Level of the intervals.
    window : int
        Nights in each of the two windows that the alarms compare, at least 2.
    window_days : int
        Both windows must lie within so many days up to the last night.
    min_change : float
        Relative change from which a mean is up or down.
    noise_limit : float
        Standard errors that a change must reach to be up or down, and that are added to it before it is called flat.
        The default is the 97.5 % quantile of Student's t with 6 degrees of freedom, for windows of 7 nights.
    max_flat : float
        A mean is flat if its relative change and the noise together are at most this.

    Raises
    ------
    InvalidParameterError
    """

    start: date | None = None
    as_of: date | None = None
    min_impressions: int = 1000
    max_lag: int = 7
    confidence: float = 0.95
    window: int = 7
    window_days: int = 28
    min_change: float = 0.01
    noise_limit: float = 2.447
    max_flat: float = 0.02

    def __post_init__(self) -> None:
        check_nights(self.start, self.as_of)
        if self.min_impressions < 0:
            raise InvalidParameterError(f"min_impressions must be at least 0; got {self.min_impressions}.")
        if not 0 <= self.max_lag <= MAX_LAG:
            raise InvalidParameterError(f"max_lag must lie between 0 and {MAX_LAG}; got {self.max_lag}.")
        if not 0 < self.confidence < 1:
            raise InvalidParameterError(f"confidence must lie between 0 and 1; got {self.confidence}.")
        if self.window < 2:
            raise InvalidParameterError(f"window must be at least 2 nights; got {self.window}.")
        if self.window_days < 2 * self.window:
            raise InvalidParameterError(
                f"window_days must be at least {2 * self.window}, for two windows of {self.window}; got "
                f"{self.window_days}."
            )
        for name in ("min_change", "noise_limit", "max_flat"):
            if not getattr(self, name) >= 0:
                raise InvalidParameterError(f"{name} must be at least 0; got {getattr(self, name)}.")

    @property
    def limits(self) -> str:
        """All choices but the nights, as text that is stored beside the numbers."""
        names = [one.name for one in fields(self) if one.name not in ("start", "as_of")]
        return ",".join(f"{name}={getattr(self, name):g}" for name in names)


def check_nights(start: date | None, end: date | None) -> None:
    """Raise unless one night is not after the other.

    Parameters
    ----------
    start, end : date or None

    Raises
    ------
    InvalidParameterError
    """
    if start is not None and end is not None and start > end:
        raise InvalidParameterError(f"the first night, {start}, is after the last, {end}.")
