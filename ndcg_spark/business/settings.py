"""Settings of business-link: frozen, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from typing import Annotated

from ndcg_spark.core.flag import Flag, check_values
from ndcg_spark.errors import InvalidParameterError, check_fraction, option
from ndcg_spark.history.settings import MainMetricRows, check_nights

MAX_LAG = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Everything that determines the link between a metric and clicks, except the data.

    Parameters
    ----------
    start
        First night whose metrics and clicks count.
    as_of
        Last night that counts; results are stored under it.

        None: no bound; then the windows of the alarms end with the last night of each series.
    min_impressions
        Leave out nights with fewer impressions.
    max_lag
        Also compare the metric with the rate of up to so many nights earlier and later.
    confidence
        Level of the confidence intervals.
    window
        Nights in each of the two windows that are compared.
    window_days
        Both windows must be within this many days up to the last night.
    min_change
        Relative change from which a mean is up or down.
    noise_limit
        Standard errors that a change must reach to be up or down.

        They are also added to it before it is called flat. The default is the 97.5 % quantile of Student's t with 6
        degrees of freedom, for windows of 7 nights.
    max_flat
        A mean is flat if its relative change and `noise_limit` standard errors add up to at most this.
    across_rules
        Treat nights as one series even if they were computed by different rules, such as two conventions.

    Raises
    ------
    InvalidParameterError
    """

    start: Annotated[date | None, Flag(group="Rows", name="from start", shown="no bound")] = None
    as_of: Annotated[date | None, Flag(shown="the last one of the metric table")] = None
    min_impressions: Annotated[int, Flag(metavar="N")] = 1000
    max_lag: Annotated[int, Flag(group="Correlations", metavar="DAYS")] = 7
    confidence: Annotated[float, Flag(metavar="X")] = 0.95
    window: Annotated[int, Flag(group="Alarms", metavar="NIGHTS")] = 7
    window_days: Annotated[int, Flag(metavar="DAYS")] = 28
    min_change: Annotated[float, Flag(metavar="X")] = 0.01
    noise_limit: Annotated[float, Flag(metavar="X")] = 2.447
    max_flat: Annotated[float, Flag(metavar="X")] = 0.02
    across_rules: Annotated[bool, Flag(group="Rows")] = False

    def __post_init__(self) -> None:
        check_values(self)
        check_nights(self.start, self.as_of)
        if self.min_impressions < 0:
            raise InvalidParameterError(f"{option('min_impressions', str(self.min_impressions))} must be at least 0.")
        if not 0 <= self.max_lag <= MAX_LAG:
            raise InvalidParameterError(f"{option('max_lag', str(self.max_lag))} must be between 0 and {MAX_LAG}.")
        check_fraction("confidence", self.confidence)
        if self.window < 2:
            raise InvalidParameterError(f"window must be at least 2 nights; got {self.window}.")
        if self.window_days < 2 * self.window:
            raise InvalidParameterError(
                f"{option('window_days', str(self.window_days))} must be at least {2 * self.window}, for two windows "
                f"of {self.window}."
            )
        for setting in ("min_change", "noise_limit", "max_flat"):
            if not getattr(self, setting) >= 0:
                raise InvalidParameterError(f"{option(setting, str(getattr(self, setting)))} must be at least 0.")

    @property
    def text(self) -> str:
        """All settings except the nights, as text that is stored with the results."""
        names = [setting.name for setting in fields(self) if setting.name not in ("start", "as_of", "across_rules")]
        limits = ",".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"{limits},across_rules" if self.across_rules else limits


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkJobSettings:
    """Settings of a `business-link` job.

    Parameters
    ----------
    fail_on_alarm
        Exit with 3 if there is an alarm.
    """

    rows: MainMetricRows
    link: LinkSettings
    fail_on_alarm: Annotated[bool, Flag(group="Alarms")] = False
