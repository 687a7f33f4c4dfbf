"""What a report says: frozen values, whose texts are plain, in the order in which they are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any, TypeVar

from ndcg_spark.core import labels
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.rules import have_same_rules
from ndcg_spark.metrics import parse_metric
from ndcg_spark.reports.wording import metric_name, plain, segment_name, segment_values

Row = Mapping[str, Any]
_Content = TypeVar("_Content")

SMALL = 30
"""Queries below which a normal interval is a rough guide; such segments are marked."""
OUTSIDE = {
    "n_no_relevant": "with nothing relevant",
    "n_missing": "judged, but not answered",
    "n_unjudged": "without any judgment",
    "n_lost_queries": "whose rows were all rejected",
}


def column(name: str, **default: Any) -> Any:
    """A field that is read from a column of another name."""
    return field(metadata={"column": name}, **default)


def read(kind: type[_Content], row: Row, **known: Any) -> _Content:
    """Make content of a row, with plain texts. A null is the default of its field; of a text without one, `null`."""
    for one in fields(kind):  # type: ignore[arg-type]  # a dataclass
        value = row.get(one.metadata.get("column", one.name))
        if one.name not in known and (value is not None or one.default is MISSING):
            known[one.name] = plain(value) if isinstance(value, str) or one.type == "str" else value
    return kind(**known)


def columns(kind: type) -> dict[str, str]:
    """Columns that content is made of, with the types of its fields."""
    return {one.metadata.get("column", one.name): str(one.type) for one in fields(kind)}


@cache
def is_within_1(metric: str) -> bool:
    """Return whether values of a metric lie between 0 and 1; False for names that are not of this package."""
    try:
        return parse_metric(metric)[0].within_1
    except InvalidParameterError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfSegment:
    """A metric of a run, in a segment."""

    run: str
    by: str = column("segment_by")
    segment: str | None
    metric: str
    k: int | None
    n_queries: int = 0

    @property
    def name(self) -> str:
        return segment_name(self.by, self.segment) if self.by else labels.OVERALL

    @property
    def full_name(self) -> str:
        """The segment with its columns: `country = DE · device = phone`."""
        if not self.by:
            return labels.OVERALL
        values = segment_values(self.by, self.segment)
        names = self.by.split("+") if len(values) > 1 else [self.by]
        return " · ".join(f"{plain(name)} = {value}" for name, value in zip(names, values, strict=True))

    @property
    def is_small(self) -> bool:
        """Whether the interval is a rough guide, because of few queries."""
        return self.n_queries < SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(OfSegment):
    """A row of the metric table: the mean of a metric over the queries of a segment."""

    value: float | None
    std_error: float | None = None
    low: float | None = column("ci_low", default=None)
    high: float | None = column("ci_high", default=None)
    n_rows: int | None = None
    n_left_out: int | None = None
    n_rejected: int | None = None
    n_no_relevant: int | None = None
    n_missing: int | None = None
    n_unjudged: int | None = None
    n_lost_queries: int | None = None
    n_unjudged_items: int | None = None
    n_top_items: int | None = None
    weight_sum: float | None = None

    @property
    def weight(self) -> float:
        """Weight of the queries; their number in tables without weights."""
        return float(self.n_queries if self.weight_sum is None else self.weight_sum)

    @property
    def n_read(self) -> int | None:
        if self.n_rows is None or self.n_rejected is None:
            return None
        return self.n_rows + (self.n_left_out or 0) + self.n_rejected

    @property
    def outside(self) -> list[tuple[str, int]]:
        """Why queries are not in the mean, and how many."""
        counts = [(words, getattr(self, name)) for name, words in OUTSIDE.items()]
        return [(words, n) for words, n in counts if n is not None]

    @property
    def rejected(self) -> float | None:
        """Share of the rows that were rejected; None where that is not known."""
        return None if not self.n_read or self.n_rejected is None else self.n_rejected / self.n_read

    @property
    def unjudged(self) -> float | None:
        """Share of the first items that have no judgment; None where that is not known."""
        known = self.n_top_items and self.n_unjudged_items is not None
        return (self.n_unjudged_items or 0) / (self.n_top_items or 1) if known else None

    @property
    def half(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def drawn_low(self) -> float | None:
        """Lower end of the interval in figures: not below the lowest value that the metric can have."""
        if self.low is None or self.value is None or not is_within_1(self.metric):
            return self.low
        return max(self.low, min(0.0, self.value))

    @property
    def drawn_high(self) -> float | None:
        """Upper end of the interval in figures: not above the highest value that the metric can have."""
        if self.high is None or self.value is None or not is_within_1(self.metric):
            return self.high
        return min(self.high, max(1.0, self.value))

    def goes_beyond(self, end: str) -> bool:
        """Return whether the interval is cut in figures, at the end `low` or `high`."""
        return bool(self.low != self.drawn_low if end == "low" else self.high != self.drawn_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Difference of a mean from that of an earlier night, `since`; `half` is half the width of its interval."""

    kind: str
    """`first` night; `lost`: no value now; `incomparable` rules; `unclear`: within its error; `up` or `down`."""
    difference: float | None = None
    half: float | None = None
    since: date | None = None


def change_of(now: Mean, before: Mean | None, since: date | None, *, same: bool, level: float) -> Change:
    """Compare two nights, configured the `same`; only a difference beyond its interval of `level` is called one.

    The standard error is sqrt(a² + b²), as for independent nights. Nights that share queries vary together, so that
    it is too wide for them, and fewer changes are called.
    """
    if before is None or before.value is None:
        return Change(kind="first")
    if now.value is None:
        return Change(kind="lost", since=since)
    if not same:
        return Change(kind="incomparable", since=since)
    difference = now.value - before.value
    if now.std_error is None or before.std_error is None:
        return Change(kind="unclear", difference=difference, since=since)
    half = NormalDist().inv_cdf((1 + level) / 2) * math.hypot(now.std_error, before.std_error)
    kind = "unclear" if abs(difference) <= half else "up" if difference > 0 else "down"
    return Change(kind=kind, difference=difference, half=half, since=since)


def level_of(means: Sequence[Mean]) -> float:
    """Find the confidence level of intervals from their width; 0.95 where there are none."""
    for one in means:
        if one.half is not None and one.std_error:
            return round(2 * NormalDist().cdf(one.half / one.std_error) - 1, 4)
    return 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A point of the trend."""

    run_date: date
    mean: Mean
    config_hash: str | None
    flag: str | None = None
    """Why the night was flagged."""
    rules: str | None = None
    """Everything that changes the value of a query; None where it is not known."""

    def is_like(self, other: Night) -> bool:
        """Return whether both were computed by the same rules or, where these are not known, configured alike."""
        same = have_same_rules(self.rules, other.rules)
        return self.config_hash == other.config_hash if same is None else same


def split_at_gaps(nights: Sequence[Night]) -> list[list[Night]]:
    """Split nights, the oldest first, where one is missing and where they were computed differently."""
    gaps = sorted(after.run_date - before.run_date for before, after in pairwise(nights))
    usual = gaps[(len(gaps) - 1) // 2] if gaps else timedelta(days=1)
    parts: list[list[Night]] = []
    for night in nights:
        before = parts[-1][-1] if parts else None
        follows = before is not None and night.run_date - before.run_date <= 1.5 * usual
        if follows and before is not None and night.is_like(before):
            parts[-1].append(night)
        else:
            parts.append([night])
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult(Gate):
    """A gate, and how a run did against it."""

    run: str
    value: float | None
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A run on the night of the report."""

    mean: Mean
    change: Change
    flag: str | None = None
    before: Mean | None = None
    """The latest earlier night with a value."""
    week_before: Mean | None = None
    """The night a week before."""
    usually_rejected: float | None = None
    """Median share of rejected rows of earlier nights."""
    rules: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A run or segment without a value on the night of the report; `night` is the last one, with the mean `last`."""

    last: Mean
    night: date


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A segment of a run, its change since the night before, and its share of the change of the run."""

    mean: Mean
    change: Change
    share: float | None = None
    before: Mean | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFlag:
    """A segment of a run that is flagged on the night of the report."""

    run: str = ""
    by: str = column("segment_by")
    segment: str | None
    flag: str

    @property
    def name(self) -> str:
        return labels.segment_at(self.by, segment_name(self.by, self.segment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Values of the queries of a run, counted in bins of equal width from `low` to `high`, both included.

    `n_lowest` and `n_highest` are queries at exactly these ends. The share of queries below a quartile is off by at
    most `quartile_error`, 0 if quartiles are exact.
    """

    run: str
    low: float
    high: float
    counts: tuple[int, ...]
    n_below: int
    n_above: int
    n_undefined: int
    n_lowest: int
    n_highest: int
    quartiles: tuple[float | None, float | None, float | None]
    quartile_error: float

    @property
    def n_queries(self) -> int:
        return sum(self.counts) + self.n_below + self.n_above

    @property
    def edges(self) -> tuple[float, ...]:
        """Ends of the bins, one more than there are bins."""
        width = (self.high - self.low) / len(self.counts)
        return tuple(self.low + at * width for at in range(len(self.counts) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRow:
    """A query of a run, and its value on another night or in another run, if it has one."""

    run: str
    query: str
    value: float | None
    text: str = ""
    before: float | None = None
    n_items: int | None = None
    n_relevant: int | None = None

    @property
    def loss(self) -> float | None:
        return None if self.value is None or self.before is None else self.before - self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """An item of a ranked list, and its rank in the other list, if it is in it."""

    rank: int
    name: str
    relevance: float | None
    other: int | None

    @property
    def rise(self) -> int:
        """How many ranks lower the item is in the other list; 0 if it is not in it."""
        return 0 if self.other is None else self.other - self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedQuery:
    """A query that gained or lost from `before`, of the baseline, to `value`, with the first items of both lists."""

    change: str
    run: str
    baseline: str
    query: str
    text: str = ""
    metric: str
    k: int | None
    before: float = column("baseline_value")
    value: float
    baseline_list: tuple[ListedItem, ...]
    run_list: tuple[ListedItem, ...]

    @property
    def difference(self) -> float:
        return self.value - self.before

    @property
    def label(self) -> str:
        return metric_name(self.metric, self.k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(OfSegment):
    """A row of the comparison table: a run against a baseline, in a segment."""

    baseline: str
    difference: float | None
    low: float | None = column("ci_low")
    high: float | None = column("ci_high")
    lift: float | None
    wins: int | None = column("n_wins")
    ties: int | None = column("n_ties")
    losses: int | None = column("n_losses")
    n_only_run: int | None = None
    n_only_baseline: int | None = None
    unpaired: str = ""
    p_holm: float | None
    verdict: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Convention, input and package of the numbers."""

    convention: str = ""
    words: tuple[tuple[str, str], ...]
    config_hash: str = ""
    input: str = ""
    package_version: str = ""
    computed_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Sentences about what a section leaves out, and about tables that lack the night of the report."""

    left_out: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def run_name(run: str) -> str:
    """Name a run for a person; a single ranker may have no name."""
    return run or "the ranker"
