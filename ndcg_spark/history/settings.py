"""Settings of roll-ups and flags. Does not import Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from ndcg_spark.comparison.settings import check_margin
from ndcg_spark.core.flag import Flag, check_values
from ndcg_spark.errors import InvalidParameterError, check_fraction, option
from ndcg_spark.evaluation.settings import read_metric, split_metrics
from ndcg_spark.metrics import MetricAt, direction_of
from ndcg_spark.metrics.normalized_gain import NDCG

EPOCH = date(1970, 1, 1)
METRIC_TABLE, COMPARISON_TABLE = "metric table", "comparison table"
NIGHT = "night"
"""Column of a metric table in place of `run_date`."""
Period: TypeAlias = Literal["week", "month", "rolling_7"]
PERIODS: tuple[Period, ...] = get_args(Period)
Independence: TypeAlias = Literal["query_day", "query", "day"]
Direction: TypeAlias = Literal["worse", "low", "high", "both"]
LIMITS = ((8, 5.9), (10, 5.0), (12, 4.5), (16, 3.9), (26, 3.3), (52, 2.9))
"""Minimum numbers of nights, and limits in spreads: about 1 % of normal nights are flagged."""
MAX_PERIOD_DAYS = 31
COMPANIONS = tuple(metric.name for metric in NDCG.comes_with)
"""Metrics that every evaluation has beside NDCG; they are selected by name only."""


def read_metrics(text: str) -> tuple[MetricAt, ...]:
    return tuple(map(read_metric, split_metrics(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRows:
    """Rows of a metric table to select.

    Parameters
    ----------
    dataset
        Data set whose rows to select.
    metrics
        Metrics to select, as ndcg@10, or ndcg for every cutoff.
    config_hash
        Configuration whose rows to select.
    """

    WITHOUT: ClassVar[tuple[str, ...]] = ()
    """Metrics that are selected only by name."""

    dataset: Annotated[str | None, Flag(group="Rows", metavar="NAME", shown="the one there is")] = None
    metrics: Annotated[tuple[MetricAt, ...], Flag(metavar="ndcg@10,ap,...", read=read_metrics, shown="all")] = ()
    config_hash: Annotated[str | None, Flag(metavar="HASH", shown="all")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainMetricRows(MetricRows):
    """Rows of a metric table to select; companions of NDCG only by name."""

    WITHOUT: ClassVar[tuple[str, ...]] = COMPANIONS

    metrics: Annotated[
        tuple[MetricAt, ...], Flag(metavar="ndcg@10,ap,...", read=read_metrics, shown="all but dcg and idcg")
    ] = ()


def check_nights(start: date | None, end: date | None) -> None:
    if start is not None and end is not None and start > end:
        raise InvalidParameterError(f"the first night, {start}, is after the last, {end}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUpSettings:
    """Everything that determines how nights are added up, except the data.

    Parameters
    ----------
    periods
        Periods to compute: ISO weeks (`week`, from Monday), months (`month`), and the seven days up to each night
        (`rolling_7`).
    start
        First night that is new or has changed: periods before it stay as they are.
    end
        Last night that is new or has changed.
    as_of
        Last night that is known; later ones are ignored.
    independence
        What the intervals assume to be independent: queries of all days (`query_day`); queries, whatever each does
        from day to day (`query`, of comparisons with replicates); or whole days (`day`, which needs scipy).

        Where the same queries come back, `query_day` gives intervals that are too narrow. Under `day` queries of one
        day need not be independent.
    confidence
        Level of the confidence intervals.
    margin
        Of comparisons: a run is not worse if its interval lies above minus this.

        Where smaller is better, it lies below this.
    across_rules
        Add nights up that were computed by different rules, as by two conventions, all the same.

    Raises
    ------
    InvalidParameterError
    """

    periods: Annotated[tuple[Period, ...], Flag(group="Periods", metavar="P,...")] = PERIODS
    start: Annotated[date | None, Flag(name="from start", shown="the first one")] = None
    end: Annotated[date | None, Flag(name="to end", shown="the last one")] = None
    as_of: Annotated[date | None, Flag(shown="the last one of the table")] = None
    independence: Annotated[
        Independence | None, Flag(group="Intervals", shown="query where replicates are stored, else query_day")
    ] = None
    confidence: Annotated[float, Flag(metavar="X")] = 0.95
    margin: Annotated[float, Flag(metavar="X")] = 0.0
    across_rules: Annotated[bool, Flag(group="Rows")] = False

    def __post_init__(self) -> None:
        check_values(self)
        if not self.periods:
            raise InvalidParameterError(f"periods must name at least one of {', '.join(PERIODS)}.")
        check_nights(self.start, self.end)
        check_fraction("confidence", self.confidence)
        check_margin(self.margin)

    @property
    def alpha(self) -> float:
        """Level of tests; rounded, so that 0.95 gives 0.05."""
        return round(1 - self.confidence, 12)

    @property
    def text(self) -> str:
        """Settings other than the nights, as text that is stored beside the numbers."""
        text = f"confidence={self.confidence:g},independence={self.independence or 'default'}"
        text += f",margin={self.margin:g}" if self.margin else ""
        return f"{text},across_rules" if self.across_rules else text

    @property
    def read(self) -> tuple[date | None, date | None]:
        """First and last night that the periods can need; no week or rolling week is longer than a month."""
        first, last = self.start, self.end
        ahead = MAX_PERIOD_DAYS - 1 if "month" in self.periods else 6
        if first is not None:
            first = min(first - timedelta(days=6), first.replace(day=1) if "month" in self.periods else first)
        return first, None if last is None else last + timedelta(days=ahead)


def read_limits(text: str) -> tuple[tuple[int, float], ...]:
    """Read the limits of `FlagSettings` from text."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    try:
        return tuple((int(nights), float(limit)) for nights, _, limit in pairs)
    except ValueError:
        raise InvalidParameterError(f"{option('limits')} must be as 8=5.9,26=3.3; got {text!r}.") from None


def _is_limit(pair: object) -> bool:
    return isinstance(pair, tuple) and [isinstance(number, int | float) for number in pair] == [True, True]


def format_limits(limits: tuple[tuple[int, float], ...]) -> str:
    return ",".join(f"{nights}={limit:g}" for nights, limit in limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSettings:
    """Everything that determines which nights are flagged, except the data.

    Parameters
    ----------
    start
        First night that is judged.

        None: no bound. The command takes the last night, if this is not given.
    end
        Last night that is judged.
    lookback
        Days of history before a night.
    limits
        From so many earlier nights of the weekday on, flag a value that is further from their median than so many
        spreads.

        The last pair counts whose number is not above that of the nights. The first number is the fewest nights of
        one weekday. The default flags about 1 % of normal nights.
    fewest_any_day
        With fewer nights of the weekday, take nights of all weekdays if there are so many.
    direction
        Flag values below the limit (`low`), above it (`high`), or `both`.

        `worse`: low where larger is better, high where smaller is better, both where neither is.

    Raises
    ------
    InvalidParameterError
    """

    start: Annotated[date | None, Flag(group="Nights", name="from start", shown="`end`")] = None
    end: Annotated[date | None, Flag(name="to end", shown="the last one of the table")] = None
    lookback: Annotated[int | None, Flag(metavar="DAYS", shown="all")] = None
    limits: Annotated[
        tuple[tuple[int, float], ...], Flag(group="Rule", metavar="N=Z,...", read=read_limits, text=format_limits)
    ] = LIMITS
    fewest_any_day: Annotated[int, Flag(metavar="N")] = 28
    direction: Annotated[Direction, Flag()] = "worse"

    def __post_init__(self) -> None:
        check_values(self)
        check_nights(self.start, self.end)
        if self.lookback is not None and self.lookback < 1:
            raise InvalidParameterError(f"lookback must be at least 1 day; got {self.lookback}.")
        if not all(map(_is_limit, self.limits)):
            raise InvalidParameterError(
                f"{option('limits')} must be pairs of nights and a limit, as ((8, 5.9), (26, 3.3)); got "
                f"{self.limits!r}."
            )
        numbers = [nights for nights, _ in self.limits]
        if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 2:
            raise InvalidParameterError(f"limits must have increasing numbers of nights, at least 2; got {numbers}.")
        for nights, limit in self.limits:
            if not limit > 0:
                raise InvalidParameterError(f"the limit for {nights} nights must be above 0; got {limit}.")
        if self.fewest_any_day < 2:
            raise InvalidParameterError(f"{option('fewest_any_day', str(self.fewest_any_day))} must be at least 2.")

    @property
    def text(self) -> str:
        """Settings other than the nights, as text that is stored beside the numbers."""
        limits = " ".join(f"{nights}:{limit:g}" for nights, limit in self.limits)
        text = f"limits={limits},fewest_any_day={self.fewest_any_day},lookback={self.lookback or 'all'}"
        return f"{text},direction={self.direction}"


def is_flagged_side(direction: Direction, metric: str, side: str) -> bool:
    """Return whether values of a metric that are beyond the limit on a side, `low` or `high`, are flagged."""
    worse = {True: "low", False: "high", None: "both"}[direction_of(metric)]
    return (worse if direction == "worse" else direction) in ("both", side)


def median_gap(nights: Sequence[date]) -> int:
    """Return the median number of days between sorted nights; 1 for a single night."""
    gaps = sorted((after - before).days for before, after in pairwise(nights))
    return gaps[(len(gaps) - 1) // 2] if gaps else 1


def missing_nights(nights: Sequence[date]) -> list[date]:
    """Return the days that are missing between sorted nights; empty if nights are mostly further than a day apart."""
    if not nights or median_gap(nights) != 1:
        return []
    all_days = {nights[0] + timedelta(days=n) for n in range((nights[-1] - nights[0]).days)}
    return sorted(all_days - set(nights))


def is_behind(last: date, today: date, *, apart: int = 1) -> bool:
    """Return whether a later night is due. It may be a day late, as many jobs date it by the day before they run."""
    return (today - last).days > apart


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUpJobSettings:
    """Settings of the command `roll-up`.

    Parameters
    ----------
    verbose
        Print the rows of segments, too.
    """

    rows: MetricRows
    roll_up: RollUpSettings
    verbose: Annotated[bool, Flag(group="Output")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagJobSettings:
    """Settings of the command `flag-changes`.

    Parameters
    ----------
    query
        Columns that identify a query.
    fail_on_flag
        Exit with 3 if a night is flagged.
    verbose
        Print every flag with its reason, not one line for those that have one cause.
    """

    query: Annotated[tuple[str, ...], Flag(group="Input", metavar="A,B")] = ("query_id",)
    rows: MainMetricRows
    flags: FlagSettings
    fail_on_flag: Annotated[bool, Flag(group="Rule")] = False
    verbose: Annotated[bool, Flag(group="Output")] = False
