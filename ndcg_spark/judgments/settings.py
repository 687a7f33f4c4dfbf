"""Settings of judgments from events and from ratings: frozen, without Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Annotated, Literal, TypeAlias

from ndcg_spark.core.flag import Flag, OnInvalid, check_values
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.settings import refuse_special_characters

EventRule: TypeAlias = Literal["best", "sum", "last"]
NegativeRule: TypeAlias = Literal["override", "latest"]
DedupRule: TypeAlias = Literal["none", "event_id", "time"]
RatingRule: TypeAlias = Literal["mean", "median", "majority"]
TieRule: TypeAlias = Literal["lower", "higher", "null"]
GRADES = {"view": 1.0, "cart": 2.0, "purchase": 3.0}
MAX_SECONDS = 10_000_000_000
"""Three centuries; in microseconds they fit into 64 bits."""
MAX_GRADE = 1e6
"""A sum of 2^43 such grades fits into 64 bits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
EVENT_RESERVED = (
    "relevance", "rule", "event", "n_events", "n_negative", "n_impressions", "n_duplicates", "first_ts", "last_ts",
    "run",
)  # fmt: skip
RATING_RESERVED = (
    "relevance", "rule", "decided_by", "n_ratings", "n_zero_weight", "weight_sum", "lowest", "highest", "disputed",
    "ratings", "run",
)  # fmt: skip
"""Column names of judgments, which query and item columns must not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventColumns:
    """Names of the columns of an event log.

    Parameters
    ----------
    query
        Columns that identify a query.
    item
        Column that identifies an item.
    event
        Column with the kind of event.
    ts
        Column with the time of the event, a timestamp; UTC if it has no time zone.
    event_id
        Column that identifies an event, for `dedup` by event_id.
    user
        Column that identifies a user, for `dedup` by time.
    """

    query: Annotated[tuple[str, ...], Flag(group="Columns", metavar="A,B")] = ("query_id",)
    item: str = "item_id"
    event: str = "event"
    ts: str = "ts"
    event_id: str = "event_id"
    user: str = "user_id"

    def __post_init__(self) -> None:
        check_values(self)
        check_keys(self.query, self.item, EVENT_RESERVED)


def read_grades(text: str) -> dict[str, float]:
    """Parse the grades of `EventSettings`, as in view=1,cart=2."""
    pairs = [pair.strip().partition("=") for pair in text.split(",")]
    if len({event for event, _, _ in pairs}) < len(pairs):
        raise InvalidParameterError(f"{option('grades')} names an event twice: {text!r}.")
    try:
        return {event.strip(): float(grade) for event, _, grade in pairs}
    except ValueError:
        raise InvalidParameterError(f"{option('grades')} must look like view=1,cart=2; got {text!r}.") from None


def format_grades(grades: Mapping[str, float]) -> str:
    """Format grades such that `read_grades` reads them."""
    return ",".join(f"{event}={grade:g}" for event, grade in grades.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Settings that determine judgments from an event log.

    Parameters
    ----------
    columns
        Names of the columns of the events.
    grades
        Grade of each event; a grade below 0 makes a negative event. Other events are bad rows.
    impression
        Event of an item that was shown; it has no grade.
    rule
        How the events of an item are combined: the highest value (`best`), their `sum`, up to `cap`, or the value of
        the latest event (`last`).

        Of latest events with the same time, the highest value counts.
    cap
        Largest relevance if values are summed.
    half_life
        Days in which the value of an event halves, counted back from `as_of`, which is then required.

        value = grade * 0.5^(age / half_life). Negative events keep their grade.
    min_impressions
        Impressions without any graded event from which on an item has relevance 0; with fewer it is unjudged.
    negative
        Whether a negative event always sets the relevance (`override`), or only if nothing positive follows
        (`latest`).

        The latest negative event counts; of several with the same time, the lowest grade.
    start
        Start of the window, included: 2026-01-31 or 2026-01-31T18:00:00Z, UTC.
    as_of
        End of the window, excluded; the age of an event is its distance from this time.
    dedup
        Which repeated events count once: events with the same id (`event_id`), or the same event of a user on an item
        within `dedup_seconds` (`time`).

        Of rows with the same event id, the earliest time and the highest grade count. Intervals of `dedup_seconds`
        are counted from 1970; the earliest event of each counts.
    dedup_seconds
        Length of the intervals of `dedup` by time.
    on_invalid
        What a bad row does: stop everything before a result is there (`fail`), or be left out and counted (`reject`).
    """

    columns: EventColumns = field(default_factory=EventColumns)
    grades: Annotated[
        Mapping[str, float],
        Flag(group="Grades", metavar="EVENT=GRADE,...", read=read_grades, text=format_grades),
    ] = field(default_factory=lambda: dict(GRADES))
    impression: Annotated[str, Flag(metavar="EVENT")] = "impression"
    rule: EventRule = "best"
    cap: Annotated[float | None, Flag(metavar="X", shown="the highest grade")] = None
    half_life: Annotated[float | None, Flag(metavar="DAYS", shown="no decay")] = None
    min_impressions: Annotated[int, Flag(metavar="N")] = 1
    negative: NegativeRule = "override"
    start: Annotated[datetime | None, Flag(group="Events that count", name="from start", shown="no bound")] = None
    as_of: Annotated[datetime | None, Flag(shown="no bound")] = None
    dedup: DedupRule = "none"
    dedup_seconds: Annotated[int | None, Flag(metavar="N")] = None
    on_invalid: Annotated[OnInvalid, Flag(group="Checks")] = "fail"

    def __post_init__(self) -> None:
        check_values(self)
        self._check_grades()
        self._check_window()
        if self.cap is not None and self.rule != "sum":
            raise InvalidParameterError(
                f"{option('cap')} needs {option('rule', 'sum')}; got {option('rule', self.rule)}."
            )
        if self.cap is not None and not 0 < self.cap <= MAX_GRADE:
            raise InvalidParameterError(f"cap must be above 0 and at most {MAX_GRADE:,.0f}; got {self.cap:g}.")
        if self.min_impressions < 1:
            raise InvalidParameterError(f"{option('min_impressions', str(self.min_impressions))} must be at least 1.")
        if (self.dedup == "time") != (self.dedup_seconds is not None):
            raise InvalidParameterError(
                f"{option('dedup', 'time')} and {option('dedup_seconds')} must be used together; got {self.dedup} "
                f"and {self.dedup_seconds}."
            )
        if self.dedup_seconds is not None and not 1 <= self.dedup_seconds <= MAX_SECONDS:
            raise InvalidParameterError(
                f"{option('dedup_seconds', str(self.dedup_seconds))} must be between 1 and {MAX_SECONDS:,}."
            )

    def _check_grades(self) -> None:
        for event, grade in self.grades.items():
            if not abs(grade) <= MAX_GRADE:
                raise InvalidParameterError(
                    f"the grade of {event!r} must be between -{MAX_GRADE:,.0f} and {MAX_GRADE:,.0f}; got {grade:g}."
                )
        if not any(grade > 0 for grade in self.grades.values()):
            raise InvalidParameterError("grades must contain an event with a grade above 0.")
        if self.impression in self.grades:
            raise InvalidParameterError(
                f"{self.impression!r} is the impression event, which has no grade: remove it from the grades, or "
                "name another impression event."
            )

    def _check_window(self) -> None:
        if self.start_micros is not None and self.as_of_micros is not None and self.start_micros >= self.as_of_micros:
            raise InvalidParameterError(
                f"the window is empty: it starts at {self.start} and ends before {self.as_of}."
            )
        if self.half_life is None:
            return
        if not 0 < self.half_life < math.inf:
            raise InvalidParameterError(
                f"{option('half_life', f'{self.half_life:g}')} must be a number of days above 0."
            )
        if self.as_of is None:
            raise InvalidParameterError(
                f"{option('half_life')} needs {option('as_of')}, from which the age of events is counted."
            )

    @property
    def start_micros(self) -> int | None:
        """Start of the window in microseconds since 1970, or None."""
        return None if self.start is None else _to_micros(self.start)

    @property
    def as_of_micros(self) -> int | None:
        """End of the window in microseconds since 1970, or None."""
        return None if self.as_of is None else _to_micros(self.as_of)

    @property
    def ranked_grades(self) -> tuple[tuple[str, float], ...]:
        """Events and grades, the lowest grade first; the index of an event here is its code."""
        return tuple(
            sorted(((event, float(grade)) for event, grade in self.grades.items()), key=lambda pair: pair[::-1])
        )

    @property
    def n_negative(self) -> int:
        """Number of events with a grade below 0; their codes come first."""
        return sum(grade < 0 for grade in self.grades.values())

    @property
    def highest(self) -> float:
        """Largest relevance under `rule=sum`."""
        return float(max(self.grades.values()) if self.cap is None else self.cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingColumns:
    """Names of the columns of a table of ratings.

    Parameters
    ----------
    query
        Columns that identify a query.
    item
        Column that identifies an item.
    annotator
        Column that identifies the annotator.
    relevance
        Column of ratings; null means not rated.
    weight
        Weight of a rating, at least 0.
    """

    query: Annotated[tuple[str, ...], Flag(group="Columns", metavar="A,B")] = ("query_id",)
    item: str = "item_id"
    annotator: str = "annotator"
    relevance: str = "relevance"
    weight: Annotated[str | None, Flag(shown="all weigh 1")] = None

    def __post_init__(self) -> None:
        check_values(self)
        check_keys(self.query, self.item, RATING_RESERVED)
        refuse_special_characters("query or item", (*self.query, self.item))


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingSettings:
    """Settings that determine judgments from ratings.

    Parameters
    ----------
    columns
        Names of the columns of the ratings.
    rule
        How the ratings of an item are combined, by weight: their `mean`, `median` (the mean of the lower and upper
        median), or the grade with the most weight (`majority`).
    tie
        Which of several grades with the most weight counts if the `majority` decides; `null` leaves the item
        unjudged.
    dispute_range
        An item is in dispute if its ratings are this far apart, or if no grade has more than half of the weight.
    on_invalid
        What a bad row does: stop everything before a result is there (`fail`), or be left out and counted (`reject`).
    """

    columns: RatingColumns = field(default_factory=RatingColumns)
    rule: Annotated[RatingRule, Flag(group="Grades")] = "mean"
    tie: TieRule = "lower"
    dispute_range: Annotated[float, Flag(metavar="X")] = 2.0
    on_invalid: Annotated[OnInvalid, Flag(group="Checks")] = "fail"

    def __post_init__(self) -> None:
        check_values(self)
        if not 0 < self.dispute_range < math.inf:
            raise InvalidParameterError(
                f"{option('dispute_range', f'{self.dispute_range:g}')} must be a number above 0."
            )


def check_keys(query: tuple[str, ...], item: str, reserved: tuple[str, ...]) -> None:
    """Raise if query and item columns repeat or have a `reserved` name (in lower case) of an output column."""
    if not query:
        raise InvalidParameterError(f"{option('query')} must name at least one column.")
    keys = (*query, item)
    if len(set(keys)) < len(keys):
        raise InvalidParameterError(f"query and item columns must differ; got {', '.join(keys)}.")
    clashes = [column for column in keys if column.lower() in reserved]
    if clashes:
        raise InvalidParameterError(f"column {clashes[0]!r} has the name of a judgments column; rename it.")


def _to_micros(instant: datetime) -> int:
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)
