"""What a report says: frozen values, whose texts are plain, in the order in which they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from statistics import NormalDist

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.rules import differing_rules, is_known, read_rules, same_rules
from ndcg_spark.metrics import direction_of, parse_metric
from ndcg_spark.reports.wording import decimals_for, metric_name, segment_name

SMALL = 30
"""Queries below which a normal interval is a rough guide; such segments are marked."""


@cache
def is_within_1(metric: str) -> bool:
    """Whether values of a metric lie between 0 and 1."""
    try:
        return parse_metric(metric)[0].within_1
    except InvalidParameterError:
        return False  # of another version


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A row of the metric table: the mean of a metric over the queries of a segment."""

    run: str
    by: str
    segment: str | None
    metric: str
    k: int | None
    value: float | None
    n_queries: int
    std_error: float | None
    low: float | None
    high: float | None
    n_read: int | None = None
    """Rows of the run that were read; None where the table does not say."""
    n_rejected: int | None = None
    outside: tuple[tuple[str, int], ...] = ()
    """Why queries are not in the mean, and how many are not for this reason."""

    @property
    def rejected(self) -> float | None:
        """Share of the rows that were rejected; None where that is not known."""
        return None if not self.n_read or self.n_rejected is None else self.n_rejected / self.n_read

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
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
        """Tell whether the interval goes on beyond what is drawn of it, at the end `low` or `high`."""
        return bool(self.low != self.drawn_low if end == "low" else self.high != self.drawn_high)

    @property
    def name(self) -> str:
        """Segment, for a person."""
        return segment_name(self.by, self.segment) if self.by else "all queries"

    @property
    def is_small(self) -> bool:
        """Whether so few queries are behind the mean that its interval is a rough guide."""
        return self.n_queries < SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How a mean differs from that of an earlier night.

    Parameters
    ----------
    kind : str
        `first`: there is no earlier night; `lost`: there is one, and this night has no value; `incomparable`: it was
        computed differently; `unclear`: the difference is within its error; `up`, `down`.
    difference : float or None
    half : float or None
        Half the width of its interval, as for independent nights.
    since : date or None
        The earlier night.
    """

    kind: str
    difference: float | None = None
    half: float | None = None
    since: date | None = None


def change_of(now: Mean, before: Mean | None, since: date | None, *, same: bool, level: float) -> Change:
    """Compare two nights; only a difference beyond its error is called one.

    `same` tells whether both were computed by the same configuration, `level` is the confidence of the interval of
    the difference. Its standard error is sqrt(a² + b²), as for independent nights. Nights that share queries vary
    together, so that it is too wide for them, and fewer changes are called.
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
    config_hash: str
    convention: str
    flag: str | None = None
    """Why the night was flagged; None if it was not."""
    rules: str | None = None
    """All that changes the value of a query; None where the table does not say."""

    def is_like(self, other: Night) -> bool:
        """Whether both were computed by the same rules or, where these are not known, configured alike."""
        same = same_rules(self.rules, other.rules)
        return self.config_hash == other.config_hash if same is None else same


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A gate, and how a run did against it."""

    text: str
    run: str
    metric: str
    k: int | None
    comparison: str
    bound: float
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
    """Median share of rejected rows of earlier nights; None where it is not known."""
    rules: str | None = None
    """As of `Night`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A run, or a segment of one, that has no value on the night of the report and had one on the latest nights.

    Parameters
    ----------
    last : Mean
        Of its last night.
    night : date
        Its last night.
    """

    last: Mean
    night: date


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A segment of a run, and its change since the night before.

    Parameters
    ----------
    mean : Mean
    change : Change
    share : float or None
        Part of the change of the run that lies in the segment, by the weights of tonight.
    before : Mean or None
        Of the night before.
    """

    mean: Mean
    change: Change
    share: float | None = None
    before: Mean | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFlag:
    """A segment of a run that is flagged on the night of the report."""

    run: str
    by: str
    segment: str | None
    flag: str

    @property
    def name(self) -> str:
        """Segment with its column, for a person."""
        return f"{self.by} = {segment_name(self.by, self.segment)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Values of the queries of a run, counted in bins of equal width; the last bin includes its upper end.

    Parameters
    ----------
    run : str
    low, high : float
        Ends of the first and of the last bin.
    counts : tuple of int
    n_below, n_above : int
        Queries outside.
    n_undefined : int
        Queries without a value.
    n_lowest, n_highest : int
        Queries at exactly `low` and `high`.
    quartiles : tuple of float or None
        Lower quartile, median, upper quartile; between two queries they are interpolated.
    quartile_error : float
        By how much the share of queries below a quartile may be off; 0 if quartiles are exact.
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
        """Queries with a value."""
        return sum(self.counts) + self.n_below + self.n_above

    @property
    def edges(self) -> tuple[float, ...]:
        """Ends of the bins, one more than there are bins."""
        width = (self.high - self.low) / len(self.counts)
        return tuple(self.low + at * width for at in range(len(self.counts) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRow:
    """A query of a run, and its value on another night or in another run, where there is one."""

    run: str
    query: str
    value: float | None
    before: float | None = None
    status: str = ""
    n_items: int | None = None
    n_relevant: int | None = None

    @property
    def loss(self) -> float | None:
        """How much less the value is."""
        return None if self.value is None or self.before is None else self.before - self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """An item of a ranked list, and its rank in the other list, if it is there."""

    rank: int
    name: str
    relevance: float | None
    other: int | None

    @property
    def rise(self) -> int:
        """How many ranks the other list has it lower; 0 if it lacks the item."""
        return 0 if self.other is None else self.other - self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedQuery:
    """A query that gained or lost from the baseline to a run, with the first items of both lists.

    Parameters
    ----------
    change : str
        `lost` or `gained`.
    run, baseline, query, metric : str
    k : int or None
    before, value : float
        Of the baseline, and of the run.
    baseline_list, run_list : tuple of ListedItem
    """

    change: str
    run: str
    baseline: str
    query: str
    metric: str
    k: int | None
    before: float
    value: float
    baseline_list: tuple[ListedItem, ...]
    run_list: tuple[ListedItem, ...]

    @property
    def difference(self) -> float:
        """Value of the run less that of the baseline."""
        return self.value - self.before

    @property
    def label(self) -> str:
        """The metric, as `NDCG@10`."""
        return metric_name(self.metric, self.k)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A row of the comparison table: a run against a baseline, in a segment."""

    run: str
    baseline: str
    by: str
    segment: str | None
    metric: str
    k: int | None
    n_queries: int
    value: float | None
    baseline_value: float | None
    difference: float | None
    low: float | None
    high: float | None
    lift: float | None
    wins: int | None
    ties: int | None
    losses: int | None
    p_value: float | None
    p_holm: float | None
    verdict: str
    note: str

    @property
    def name(self) -> str:
        """Segment, for a person."""
        return segment_name(self.by, self.segment) if self.by else "all queries"

    @property
    def is_small(self) -> bool:
        """As for `Mean`."""
        return self.n_queries < SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """What became of rows and queries.

    Parameters
    ----------
    rows : tuple of (str, int)
        Parts of the rows that were read.
    n_read : int or None
        None where only the metric table was given, which does not know of rejected rows without a run.
    rejected : tuple of (str, int)
        Rejected rows by reason.
    queries : tuple of (str, int)
    n_unjudged_items : int or None
        Unjudged items among the first k; None in a night of a version that did not count them.
    k : int or None
        The cutoff of the headline.
    runs_added : bool
        Whether rows and queries of several runs are added up.
    """

    rows: tuple[tuple[str, int], ...]
    n_read: int | None
    rejected: tuple[tuple[str, int], ...]
    queries: tuple[tuple[str, int], ...]
    n_unjudged_items: int | None = None
    k: int | None = None
    runs_added: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What the numbers were computed by and from."""

    convention: str
    words: tuple[tuple[str, str], ...]
    config_hash: str
    input: str
    package_version: str
    computed_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that a report says."""

    title: str
    dataset: str
    run_date: date | None
    metric: str
    k: int | None
    level: float
    standings: tuple[Standing, ...]
    means: tuple[Mean, ...]
    """Means over all queries, of each run, metric and cutoff."""
    trend: dict[str, tuple[Night, ...]]
    gates: tuple[GateResult, ...]
    segments: tuple[SegmentRow, ...]
    distributions: tuple[Distribution, ...]
    lowest: tuple[QueryRow, ...]
    losses: tuple[QueryRow, ...]
    losses_against: str
    """What queries lost against: an earlier night, or a run."""
    comparisons: tuple[Comparison, ...]
    compared_period: str
    """What the comparisons are over, where they are not of the night alone."""
    changed: tuple[ChangedQuery, ...]
    """Those that lost first, the largest change first."""
    accounting: Accounting
    provenance: tuple[Provenance, ...]
    left_out: tuple[str, ...] = field(default=())
    segment_flags: tuple[SegmentFlag, ...] = field(default=())
    """Of the night of the report, those farthest from the usual value first."""
    n_segment_flags: int = 0
    """How many segments are flagged on that night."""
    production: str | None = None
    """The run that the headline is about; None: any."""
    absent_runs: tuple[Absent, ...] = ()
    """Those that have no rows on the night of the report."""
    absent_segments: tuple[Absent, ...] = ()
    """Those of runs that are there, with the most queries first."""
    n_absent_segments: int = 0
    today: date | None = None
    """When the report is made, where it is to tell whether a later night should be there."""
    nights_apart: int = 1
    """Days from one night of the trend to the next, mostly."""
    not_covered: tuple[str, ...] = ()
    """Sentences about tables beside the metric table that do not have the night of the report."""
    rules_differ: str = ""
    """What differs between the rules of the runs; empty where nothing does."""

    @property
    def label(self) -> str:
        """The metric of the headline, as `NDCG@10`."""
        return metric_name(self.metric, self.k)

    @property
    def larger_is_better(self) -> bool | None:
        """Whether larger values of the metric of the headline are better; None if neither direction is."""
        return direction_of(self.metric)

    @property
    def runs(self) -> tuple[str, ...]:
        """Runs, the best first; those with the highest value first where neither direction is better."""
        return tuple(one.mean.run for one in self.standings)

    @property
    def standing_tables(self) -> list[tuple[str, list[Standing]]]:
        """Runs by the rules that they were computed by, and what is different about these; mostly there is one table.

        Where the rules of a run are not known, they are taken to be those of the first.
        """
        texts = [one.rules for one in self.standings if is_known(one.rules)]
        tables: dict[str, list[Standing]] = {}
        for one in self.standings:
            rules = one.rules if is_known(one.rules) else next(iter(texts), None)
            about = ", ".join(f"{name}={read_rules(rules).get(name)}" for name in differing_rules(texts))
            tables.setdefault(about, []).append(one)
        return list(tables.items())

    @property
    def decimals(self) -> int:
        """Decimals of the metric: the narrowest interval of the headline has two digits."""
        return decimals_for(one.mean.half for one in self.standings)

    @property
    def curve(self) -> tuple[Mean, ...]:
        """Means of the metric at all cutoffs."""
        return tuple(one for one in self.means if one.metric == self.metric)

    @property
    def has_trend(self) -> bool:
        """Whether there is more than one night."""
        return any(len(nights) > 1 for nights in self.trend.values())


def run_name(run: str) -> str:
    """Name a run for a person; one ranker without a name is just the ranker."""
    return run or "the ranker"
