"""How nights of a metric table are added up, judged by their history, and held against clicks: without Spark."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date, timedelta

from ndcg_spark.comparison.settings import check_margin
from ndcg_spark.errors import InvalidParameterError, one_of, option

EPOCH = date(1970, 1, 1)
MAX_LAG = 60
PERIODS = ("week", "month", "rolling_7")
INDEPENDENCE = ("query_day", "query", "day")
LONGEST_PERIOD = 31
"""Days."""
MANY_REJECTED = 0.1
"""Share of rejected rows from which the job says so, and the report if it is also more than twice the usual share."""


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
            raise InvalidParameterError(f"{option('min_impressions', str(self.min_impressions))} must be at least 0.")
        if not 0 <= self.max_lag <= MAX_LAG:
            raise InvalidParameterError(f"{option('max_lag', str(self.max_lag))} must lie between 0 and {MAX_LAG}.")
        check_confidence(self.confidence)
        if self.window < 2:
            raise InvalidParameterError(f"window must be at least 2 nights; got {self.window}.")
        if self.window_days < 2 * self.window:
            raise InvalidParameterError(
                f"{option('window_days', str(self.window_days))} must be at least {2 * self.window}, for two windows "
                f"of {self.window}."
            )
        for name in ("min_change", "noise_limit", "max_flat"):
            if not getattr(self, name) >= 0:
                raise InvalidParameterError(f"{option(name, str(getattr(self, name)))} must be at least 0.")

    @property
    def text(self) -> str:
        """All choices but the nights, as text that is stored beside the numbers."""
        names = [one.name for one in fields(self) if one.name not in ("start", "as_of")]
        return ",".join(f"{name}={getattr(self, name):g}" for name in names)


def check_nights(start: date | None, end: date | None) -> None:
    """Raise unless nights are dates, and one is not after the other."""
    for night in (start, end):
        if night is not None and type(night) is not date:  # a datetime is one, too
            raise InvalidParameterError(f"a night is a datetime.date; got {night!r}.")
    if start is not None and end is not None and start > end:
        raise InvalidParameterError(f"the first night, {start}, is after the last, {end}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUpPlan:
    """Everything that determines how nights are added up, except the data.

    Parameters
    ----------
    periods : tuple of str
        `week` (ISO, from Monday), `month`, `rolling_7` (the seven days up to each day from the first night
        to the last).
    start, end : date or None
        Nights that are new or have changed: periods that hold one of them are computed. None is no bound.
    as_of : date or None
        Last night that is known; later ones are ignored. None: the last one of the table.
    independence : str or None
        What the intervals assume. `query_day`: queries are independent of each other and from day to day; too narrow
        where the same queries come back. `query`: queries are, whatever each does from day to day; for comparisons
        with replicates alone. `day`: days are, and queries of one day need not be; needs scipy. None: `query` for
        comparisons with replicates, else `query_day`.
    confidence : float
        Level of the intervals.
    margin : float
        Of comparisons: a run is `not_worse` if its interval lies above minus this margin.

    Raises
    ------
    InvalidParameterError
    """

    periods: tuple[str, ...] = PERIODS
    start: date | None = None
    end: date | None = None
    as_of: date | None = None
    independence: str | None = None
    confidence: float = 0.95
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not self.periods:
            raise InvalidParameterError(f"periods must name at least one of {', '.join(PERIODS)}.")
        for one in self.periods:
            one_of("periods", one, PERIODS)
        if self.independence is not None:
            one_of("independence", self.independence, INDEPENDENCE)
        check_nights(self.start, self.end)
        check_confidence(self.confidence)
        check_margin(self.margin)

    @property
    def alpha(self) -> float:
        """Level of tests; rounded, so that 0.95 gives 0.05."""
        return round(1 - self.confidence, 12)

    @property
    def text(self) -> str:
        """All choices but the nights, as text that is stored beside the numbers."""
        chosen = f"confidence={self.confidence:g},independence={self.independence or 'default'}"
        return f"{chosen},margin={self.margin:g}" if self.margin else chosen

    @property
    def read(self) -> tuple[date | None, date | None]:
        """First and last night that the periods can need; no week or rolling week is longer than a month."""
        first = None if self.start is None else min(self.start - timedelta(days=6), self.start.replace(day=1))
        last = None if self.end is None else self.end + timedelta(days=LONGEST_PERIOD)
        return first, last


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagPlan:
    """Everything that determines which nights are flagged, except the data.

    Parameters
    ----------
    start, end : date or None
        Nights that are judged. None is no bound.
    lookback : int or None
        Days of history before a night. None: all.
    limits : tuple of (int, float)
        How many spreads from the median a value is flagged at, by the number of nights of history: the last pair
        whose number is not above it counts. The first number is the fewest nights of one weekday. The default flags
        about 1 % of normal nights.
    fewest_any_day : int
        Nights of all weekdays that serve where there are too few of one weekday.

    Raises
    ------
    InvalidParameterError
    """

    start: date | None = None
    end: date | None = None
    lookback: int | None = None
    limits: tuple[tuple[int, float], ...] = ((8, 5.9), (10, 5.0), (12, 4.5), (16, 3.9), (26, 3.3), (52, 2.9))
    fewest_any_day: int = 28

    def __post_init__(self) -> None:
        check_nights(self.start, self.end)
        if self.lookback is not None and self.lookback < 1:
            raise InvalidParameterError(f"lookback must be at least 1 day; got {self.lookback}.")
        numbers = [nights for nights, _ in self.limits]
        if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 2:
            raise InvalidParameterError(f"limits must name rising numbers of nights from 2 on; got {numbers}.")
        for nights, limit in self.limits:
            if not limit > 0:
                raise InvalidParameterError(f"the limit for {nights} nights must be above 0; got {limit}.")
        if self.fewest_any_day < 2:
            raise InvalidParameterError(f"{option('fewest_any_day', str(self.fewest_any_day))} must be at least 2.")

    @property
    def text(self) -> str:
        """All choices but the nights, as text that is stored beside the numbers."""
        limits = " ".join(f"{nights}:{limit:g}" for nights, limit in self.limits)
        lookback = "all" if self.lookback is None else self.lookback
        return f"limits={limits},fewest_any_day={self.fewest_any_day},lookback={lookback}"


def is_behind(last: date, today: date, *, apart: int = 1) -> bool:
    """Tell whether a table should have a later night by now; `apart` are the days from one night to the next.

    A night may be a day late: many jobs date it by the day before they run.
    """
    return (today - last).days > apart


def check_confidence(confidence: float) -> None:
    """Raise unless a level lies between 0 and 1."""
    if not 0 < confidence < 1:
        raise InvalidParameterError(f"confidence must lie between 0 and 1; got {confidence}.")
