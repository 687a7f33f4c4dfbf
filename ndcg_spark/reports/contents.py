"""Values that a report shows: frozen, without control characters, in the order in which they are shown."""

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
from ndcg_spark.evaluation.rules import count_with_list, have_same_rules
from ndcg_spark.metrics import parse_metric
from ndcg_spark.reports.wording import clean_text, list_segment_values, name_metric, name_segment

Row = Mapping[str, Any]
_Content = TypeVar("_Content")

SMALL_SEGMENT = 30
"""Number of queries below which a normal interval is a rough guide; such segments are marked."""
UNCOUNTED = {
    "n_no_relevant": "with nothing relevant",
    "n_missing": "judged, but without a list",
    "n_unjudged": "without any judgment",
    "n_lost_queries": "whose rows were all rejected",
}


def column(name: str, **default: Any) -> Any:
    """Declare a field that is read from a column of another name."""
    return field(metadata={"column": name}, **default)


def read(kind: type[_Content], row: Row, **known: Any) -> _Content:
    """Build a value from a row; nulls become the default of their field, or the text `null` if a text has none."""
    for target in fields(kind):  # type: ignore[arg-type]  # a dataclass
        value = row.get(target.metadata.get("column", target.name))
        if target.name not in known and (value is not None or target.default is MISSING):
            known[target.name] = clean_text(value) if isinstance(value, str) or target.type == "str" else value
    return kind(**known)


def list_columns(kind: type) -> dict[str, str]:
    """List the columns that a class is read from, with the types of its fields."""
    return {target.metadata.get("column", target.name): str(target.type) for target in fields(kind)}


@cache
def is_within_1(metric: str) -> bool:
    """Return True if values of a metric are between 0 and 1; False for metrics that this package does not have."""
    try:
        return parse_metric(metric)[0].within_1
    except InvalidParameterError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMetric:
    """A metric of a run in a segment."""

    run: str
    by: str = column("segment_by")
    segment: str | None
    metric: str
    k: int | None
    n_queries: int = 0

    @property
    def name(self) -> str:
        return name_segment(self.by, self.segment) if self.by else labels.OVERALL

    @property
    def full_name(self) -> str:
        """The segment with its columns: `country = DE · device = phone`."""
        if not self.by:
            return labels.OVERALL
        values = list_segment_values(self.by, self.segment)
        names = self.by.split("+") if len(values) > 1 else [self.by]
        return " · ".join(f"{clean_text(name)} = {value}" for name, value in zip(names, values, strict=True))

    @property
    def is_small(self) -> bool:
        """True if the interval is a rough guide, because of few queries."""
        return self.n_queries < SMALL_SEGMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(SegmentMetric):
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
    rules: str | None = None
    """Everything that changes the value of a query; None if unknown."""

    @property
    def n_with_list(self) -> int:
        return count_with_list(self.metric, self.n_queries, self.n_missing, self.rules)

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
    def uncounted(self) -> list[tuple[str, int]]:
        """Reasons why queries are not in the mean, with the number of queries."""
        counts = [(reason, getattr(self, name)) for name, reason in UNCOUNTED.items()]
        return [(reason, n) for reason, n in counts if n is not None]

    @property
    def rejected_share(self) -> float | None:
        """Share of the rows that were rejected; None if unknown."""
        return None if not self.n_read or self.n_rejected is None else self.n_rejected / self.n_read

    @property
    def unjudged_share(self) -> float | None:
        """Share of the first items that have no judgment; None if unknown."""
        known = self.n_top_items and self.n_unjudged_items is not None
        return (self.n_unjudged_items or 0) / (self.n_top_items or 1) if known else None

    @property
    def half(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def drawn_low(self) -> float | None:
        """Lower end of the interval in figures, cut at the lowest value of the metric."""
        if self.low is None or self.value is None or not is_within_1(self.metric):
            return self.low
        return max(self.low, min(0.0, self.value))

    @property
    def drawn_high(self) -> float | None:
        """Upper end of the interval in figures, cut at the highest value of the metric."""
        if self.high is None or self.value is None or not is_within_1(self.metric):
            return self.high
        return min(self.high, max(1.0, self.value))

    def goes_beyond(self, end: str) -> bool:
        """Return True if figures cut the interval at the end `low` or `high`."""
        return bool(self.low != self.drawn_low if end == "low" else self.high != self.drawn_high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Difference of a mean from that of an earlier night, `since`; `half` is half the width of its interval."""

    kind: str
    """`first` (no earlier night), `lost` (no value now), `incomparable` (other rules), `unclear`, `up` or `down`."""
    difference: float | None = None
    half: float | None = None
    since: date | None = None
    rules: str = ""
    """Rules that differ, if they are known."""


def compare_nights(
    now: Mean, before: Mean | None, since: date | None, *, same: bool, level: float, error: float | None = None
) -> Change:
    """Compare two nights; `same` if computed by the same rules. Changes whose interval excludes 0 are clear.

    `error` is the standard error of the change, if it is known; by default it is sqrt(a² + b²), as for independent
    nights. Nights that share queries vary together: for them that is too wide, and small changes are missed.
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
    half = NormalDist().inv_cdf((1 + level) / 2) * (error or math.hypot(now.std_error, before.std_error))
    kind = "unclear" if abs(difference) <= half else "up" if difference > 0 else "down"
    return Change(kind=kind, difference=difference, half=half, since=since)


def infer_level(means: Sequence[Mean]) -> float:
    """Infer the confidence level of intervals from their width; 0.95 without intervals."""
    for mean in means:
        if mean.half is not None and mean.std_error:
            return round(2 * NormalDist().cdf(mean.half / mean.std_error) - 1, 4)
    return 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """A night of a run in the trend."""

    run_date: date
    mean: Mean
    config_hash: str | None
    flag: str | None = None
    """Why the night was flagged."""

    def is_like(self, other: TrendPoint) -> bool:
        """Return True if both were computed by the same rules or, if unknown, with the same configuration."""
        same = have_same_rules(self.mean.rules, other.mean.rules)
        return self.config_hash == other.config_hash if same is None else same


def split_at_gaps(points: Sequence[TrendPoint]) -> list[list[TrendPoint]]:
    """Split points, sorted by night, at missing nights and where the rules changed."""
    gaps = sorted(after.run_date - before.run_date for before, after in pairwise(points))
    usual = gaps[(len(gaps) - 1) // 2] if gaps else timedelta(days=1)
    parts: list[list[TrendPoint]] = []
    for point in points:
        before = parts[-1][-1] if parts else None
        if before and point.run_date - before.run_date <= 1.5 * usual and point.is_like(before):
            parts[-1].append(point)
        else:
            parts.append([point])
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult(Gate):
    """A gate, the value of a run, and whether it meets the gate."""

    run: str
    value: float | None
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run on the night of the report."""

    mean: Mean
    change: Change
    flag: str | None = None
    before: Mean | None = None
    """The earlier night of `change`."""
    lost_from: TrendPoint | None = None
    """The night beside which this one has lost queries, by the rule of `flag-changes`."""
    week_before: Mean | None = None
    """The night a week before."""
    usual_rejected_share: float | None = None
    """Median share of rejected rows of earlier nights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSeries:
    """A run or segment without a value on the night of the report; `last` is its mean on its last night, `night`."""

    last: Mean
    night: date


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A segment of a run, its change since the night before, and the share of the change of the run it explains."""

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
    value: float | None = None
    before: float | None = column("median", default=None)
    error: float | None = column("spread", default=None)
    """Standard error of the change, if the flag is against an earlier night."""
    reference_night: date | None = None
    """The night that `before` is of; None if it is a median, or in tables without that column."""
    change_night: date | None = None
    """Night of the change that is ongoing, or that is recovered from."""

    @property
    def name(self) -> str:
        return labels.segment_at(self.by, name_segment(self.by, self.segment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Queries of a run by value, counted in bins of equal width from `low` to `high`, both included.

    `n_lowest` and `n_highest` count queries at exactly these ends. The share of queries below a quartile is off by at
    most `quartile_error`; it is 0 if quartiles are exact.
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
        """Edges of the bins, one more than there are bins."""
        width = (self.high - self.low) / len(self.counts)
        return tuple(self.low + at * width for at in range(len(self.counts) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRow:
    """A query of a run, and its value on another night or in another run, if there is one."""

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
    """An item of a ranked list, and its rank in the other list; None if it is not there."""

    rank: int
    name: str
    relevance: float | None
    other_rank: int | None

    @property
    def rise(self) -> int:
        """Ranks that the item is lower in the other list; 0 if it is not there."""
        return 0 if self.other_rank is None else self.other_rank - self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedQuery:
    """A query that changed from `before` (of the baseline) to `value`, with the first items of both lists."""

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
        return name_metric(self.metric, self.k)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(SegmentMetric):
    """A row of the comparison table: a run against a baseline in a segment."""

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
    """Convention, input and package version of the numbers."""

    convention: str = ""
    words: tuple[tuple[str, str], ...]
    config_hash: str = ""
    input: str = ""
    package_version: str = ""
    computed_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Sentences about what a section leaves out, and about tables without the night of the report."""

    left_out: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def name_run(run: str) -> str:
    """Return the name of a run; a single ranker may have none."""
    return run or "the ranker"
