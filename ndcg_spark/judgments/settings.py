"""How judgments are made from events or from ratings: frozen, without Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from ndcg_spark.errors import InvalidParameterError, one_of, option
from ndcg_spark.evaluation.settings import refuse_marks

EVENT_RULES = ("best", "sum", "last")
NEGATIVE_RULES = ("override", "latest")
DEDUP_RULES = ("none", "event_id", "time")
RATING_RULES = ("mean", "median", "majority")
TIE_RULES = ("lower", "higher", "null")
ON_INVALID = ("fail", "reject")
GRADES = {"view": 1.0, "cart": 2.0, "purchase": 3.0}
IMPRESSION = "impression"
MAX_SECONDS = 10_000_000_000
"""Three centuries; as microseconds they fit into 64 bits."""
MAX_GRADE = 1e6
"""A sum of 2^43 such grades fits into 64 bits."""
MAX_WEIGHT = 1e18
EVENT_RESERVED = (
    "relevance", "rule", "event", "n_events", "n_negative", "n_impressions", "n_duplicates", "first_ts", "last_ts",
    "run",
)  # fmt: skip
"""Columns of judgments made from events; query and item columns may not have these names."""
RATING_RESERVED = (
    "relevance", "rule", "decided_by", "n_ratings", "n_zero_weight", "weight_sum", "lowest", "highest", "disputed",
    "ratings", "run",
)  # fmt: skip
"""Columns of judgments made from ratings."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventColumns:
    """Names of the columns of an event log.

    Parameters
    ----------
    query : tuple of str
        One or more columns that together identify a query.
    item : str
    event : str
        What happened, as text.
    ts : str
        When it happened: a timestamp. One without time zone is UTC.
    event_id : str
        Needed by `dedup=event_id` alone.
    user : str
        Needed by `dedup=time` alone.
    """

    query: tuple[str, ...] = ("query_id",)
    item: str = "item_id"
    event: str = "event"
    ts: str = "ts"
    event_id: str = "event_id"
    user: str = "user_id"

    def __post_init__(self) -> None:
        check_keys(self.query, self.item, EVENT_RESERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlan:
    """Everything that determines judgments made from an event log, except the events.

    Parameters
    ----------
    columns : EventColumns
    grades : mapping from event to grade
        What each event says about an item. A grade below 0 makes a negative event.
    impression : str
        The event of an item that was shown. It has no grade.
    rule : str
        How the graded events of a (query, item) become its relevance. `best`: the highest value. `sum`: the sum of
        the values, at most `cap`. `last`: the value of the latest event; of several at that time, the highest.
    cap : float or None
        Largest relevance under `rule=sum`. None is the highest grade.
    start, as_of : datetime or None
        The window: events at or after `start` and before `as_of`. Without time zone: UTC. None is no bound.
    half_life : float or None
        Days in which the value of an event halves: value = grade * 0.5^(age / half_life), with the age at `as_of`.
        None: the value is the grade. Negative events keep their grade.
    min_impressions : int
        An item without graded events has relevance 0 if it was shown so often, else it stays unjudged.
    negative : str
        What a negative event does. `override`: its grade is the relevance. `latest`: the same, unless an event of
        a positive grade follows. The latest negative event counts; of several at that time, the lowest.
    dedup : str
        Which repeated events count once. `none`. `event_id`: rows of a (query, item) with one event id; the
        earliest time and the highest grade count. `time`: the same event of a user on a (query, item) within one
        interval of `dedup_seconds`, counted from 1970; the earliest counts.
    dedup_seconds : int or None
        Needed by `dedup=time` alone.
    on_invalid : str
        `fail`: a bad row stops the action; `reject`: it is left out.

    Raises
    ------
    InvalidParameterError
    """

    columns: EventColumns = field(default_factory=EventColumns)
    grades: Mapping[str, float] = field(default_factory=lambda: dict(GRADES))
    impression: str = IMPRESSION
    rule: str = "best"
    cap: float | None = None
    start: datetime | None = None
    as_of: datetime | None = None
    half_life: float | None = None
    min_impressions: int = 1
    negative: str = "override"
    dedup: str = "none"
    dedup_seconds: int | None = None
    on_invalid: str = "fail"

    def __post_init__(self) -> None:
        one_of("rule", self.rule, EVENT_RULES)
        one_of("negative", self.negative, NEGATIVE_RULES)
        one_of("dedup", self.dedup, DEDUP_RULES)
        one_of("on_invalid", self.on_invalid, ON_INVALID)
        self._check_grades()
        self._check_window()
        if self.cap is not None and self.rule != "sum":
            raise InvalidParameterError(
                f"{option('cap')} goes with {option('rule', 'sum')}, not {option('rule', self.rule)}."
            )
        if self.cap is not None and not 0 < self.cap <= MAX_GRADE:
            raise InvalidParameterError(f"cap must lie above 0, up to {MAX_GRADE:,.0f}; got {self.cap:g}.")
        if self.min_impressions < 1:
            raise InvalidParameterError(f"{option('min_impressions', str(self.min_impressions))} must be at least 1.")
        if (self.dedup == "time") != (self.dedup_seconds is not None):
            raise InvalidParameterError(
                f"{option('dedup', 'time')} and {option('dedup_seconds')} go together; got {self.dedup} and "
                f"{self.dedup_seconds}."
            )
        if self.dedup_seconds is not None and not 1 <= self.dedup_seconds <= MAX_SECONDS:
            raise InvalidParameterError(
                f"{option('dedup_seconds', str(self.dedup_seconds))} must lie between 1 and {MAX_SECONDS:,}."
            )

    def _check_grades(self) -> None:
        for event, grade in self.grades.items():
            if not abs(grade) <= MAX_GRADE:
                raise InvalidParameterError(
                    f"the grade of {event!r} must be a number of at most {MAX_GRADE:,.0f} in size; got {grade:g}."
                )
        if not any(grade > 0 for grade in self.grades.values()):
            raise InvalidParameterError("grades must hold an event of a grade above 0.")
        if self.impression in self.grades:
            raise InvalidParameterError(
                f"{self.impression!r} is the impression, which has no grade: take it out of the grades, or name "
                "another impression."
            )

    def _check_window(self) -> None:
        if self.start_micros is not None and self.as_of_micros is not None and self.start_micros >= self.as_of_micros:
            raise InvalidParameterError(
                f"the window is empty: it begins at {self.start} and ends before {self.as_of}."
            )
        if self.half_life is None:
            return
        if not 0 < self.half_life < math.inf:
            raise InvalidParameterError(
                f"{option('half_life', f'{self.half_life:g}')} must be a number of days above 0."
            )
        if self.as_of is None:
            raise InvalidParameterError(
                f"{option('half_life')} needs {option('as_of')}, the time at which ages are taken."
            )

    @property
    def start_micros(self) -> int | None:
        """Begin of the window in microseconds since 1970, or None."""
        return None if self.start is None else _micros(self.start)

    @property
    def as_of_micros(self) -> int | None:
        """End of the window in microseconds since 1970, or None."""
        return None if self.as_of is None else _micros(self.as_of)

    @property
    def ranked_grades(self) -> tuple[tuple[str, float], ...]:
        """Events and grades, the lowest grade first; the place of an event here is its code."""
        return tuple(sorted(((event, float(its)) for event, its in self.grades.items()), key=lambda one: one[::-1]))

    @property
    def n_negative(self) -> int:
        """How many events have a grade below 0; their codes come first."""
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
    query : tuple of str
        One or more columns that together identify a query.
    item : str
    annotator : str
        Who rated.
    relevance : str
        The rating, a number; null: the annotator did not rate the item.
    weight : str or None
        Weight of the rating, at least 0. None: every rating weighs 1.
    """

    query: tuple[str, ...] = ("query_id",)
    item: str = "item_id"
    annotator: str = "annotator"
    relevance: str = "relevance"
    weight: str | None = None

    def __post_init__(self) -> None:
        check_keys(self.query, self.item, RATING_RESERVED)
        refuse_marks("query or item", (*self.query, self.item))


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingPlan:
    """Everything that determines judgments made from ratings, except the ratings.

    Parameters
    ----------
    columns : RatingColumns
    rule : str
        `mean`: the weighted mean. `median`: the mean of lower and upper weighted median. `majority`: the grade with
        the largest sum of weights.
    tie : str
        Under `rule=majority`, of several grades with the largest sum of weights: the `lower`, the `higher`, or
        `null`, no relevance.
    dispute_range : float
        An item is in dispute if its highest and lowest rating are so far apart, or if no grade has more than half
        of the weight.
    on_invalid : str
        `fail`: a bad row stops the action; `reject`: it is left out.

    Raises
    ------
    InvalidParameterError
    """

    columns: RatingColumns = field(default_factory=RatingColumns)
    rule: str = "mean"
    tie: str = "lower"
    dispute_range: float = 2.0
    on_invalid: str = "fail"

    def __post_init__(self) -> None:
        one_of("rule", self.rule, RATING_RULES)
        one_of("tie", self.tie, TIE_RULES)
        one_of("on_invalid", self.on_invalid, ON_INVALID)
        if not 0 < self.dispute_range < math.inf:
            raise InvalidParameterError(
                f"{option('dispute_range', f'{self.dispute_range:g}')} must be a number above 0."
            )


def check_keys(query: tuple[str, ...], item: str, reserved: tuple[str, ...]) -> None:
    """Refuse query and item columns that are the same, or have the name of a column that is made.

    Parameters
    ----------
    query : tuple of str
    item : str
    reserved : tuple of str
        Names of columns that are made, in lower case.

    Raises
    ------
    InvalidParameterError
    """
    if not query:
        raise InvalidParameterError(f"{option('query')} must name at least one column.")
    keys = (*query, item)
    if len(set(keys)) < len(keys):
        raise InvalidParameterError(f"query and item columns must differ; got {', '.join(keys)}.")
    taken = [name for name in keys if name.lower() in reserved]
    if taken:
        raise InvalidParameterError(f"column {taken[0]!r} has the name of a column of judgments; rename it.")


def _micros(instant: datetime) -> int:
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(microseconds=1)
