"""Settings of a comparison: frozen, without Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Annotated, Any, Literal, TypeAlias

from ndcg_spark.conventions import Convention
from ndcg_spark.core.flag import Flag, check_values
from ndcg_spark.errors import InvalidParameterError, check_choice, check_fraction, option
from ndcg_spark.evaluation.settings import (
    EvaluationSettings,
    normalize_metric_name,
    parse_cutoffs,
    read_metric,
    split_metrics,
)
from ndcg_spark.metrics import EVERY, MetricAt, NamedMetric, has_value_when_missing, in_order
from ndcg_spark.metrics.normalized_gain import NDCG

Unpaired: TypeAlias = Literal["zero", "drop", "error"]
LiftInterval: TypeAlias = Literal["fieller", "delta"]
MAX_REPLICATES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Settings of the tests of differences, whatever runs are compared. A new setting of `compare` belongs here.

    Parameters
    ----------
    replicates
        Replicates of the bootstrap; 0 for none.
    flips
        Random sign flips, if more than 16 queries differ; 0 for none.
    seed
        Seed of the bootstrap and of the sign flips.

        From 0 to 2^63 - 1.
    alpha
        Level of the tests; intervals have the level 1 - X.
    margin
        A run is not worse if its interval is above minus this; if smaller is better, below this.
    effect
        Also report how many queries are needed to detect this difference with probability 0.8.
    lift
        Interval of the relative lift: Fieller's (`fieller`), or by the `delta` method.
    keep_replicates
        Also store the sums of the replicates, so that nights can be added.

    Raises
    ------
    InvalidParameterError
    """

    replicates: Annotated[int, Flag(group="Statistics", metavar="N")] = 1000
    flips: Annotated[int, Flag(metavar="N")] = 9999
    seed: Annotated[int, Flag(metavar="N")] = 42
    alpha: Annotated[float, Flag(metavar="X")] = 0.05
    margin: Annotated[float, Flag(metavar="X")] = 0.0
    effect: Annotated[float | None, Flag(metavar="X")] = None
    lift: LiftInterval = "fieller"
    keep_replicates: bool = False

    def __post_init__(self) -> None:
        check_values(self)
        for setting in ("replicates", "flips"):
            value = getattr(self, setting)
            if not 0 <= value <= MAX_REPLICATES:
                raise InvalidParameterError(f"{setting} must be between 0 and {MAX_REPLICATES:,}; got {value}.")
        if not 0 <= self.seed < 2**63:
            raise InvalidParameterError(f"seed must be between 0 and 2^63 - 1; got {self.seed}.")
        check_fraction("alpha", self.alpha)
        check_margin(self.margin)
        if self.effect is not None and not 0 < abs(self.effect) < float("inf"):
            raise InvalidParameterError(f"effect must be finite and not 0; got {self.effect}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRuns:
    """The runs to compare, and over which queries.

    Parameters
    ----------
    baseline
        Run that the others are compared with.
    runs
        Runs of the table to compare, by their stored names; the baseline is always one of them.
    unpaired
        What to do with a query that only one of two runs has: count the other value as 0 (`zero`), leave the query
        out (`drop`), or refuse the job (`error`).
    cluster
        Column whose values are independent of each other, such as the user or session. Queries that share a value
        may depend on each other.
    across_rules
        Compare metrics of queries even if they were computed by different rules, such as two conventions.
    """

    baseline: Annotated[str | None, Flag(group="Runs", metavar="NAME", shown="each run with each one before it")] = (
        None
    )
    runs: Annotated[tuple[str, ...], Flag(metavar="A,B", shown="all of the table")] = ()
    unpaired: Annotated[Unpaired | None, Flag(shown="as the convention says of missing queries")] = None
    across_rules: bool = False
    cluster: Annotated[str | None, Flag(group="Columns")] = None

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonJobSettings:
    """Settings of a `compare-runs` job.

    The job either evaluates and compares `rankings`, or compares per-query tables. For these, `of_queries` are the
    options of `compare` that describe their columns, and `run_column` names the run column.

    Parameters
    ----------
    verbose
        Print a line for each metric and segment, instead of three lines for each pair of runs.
    """

    rankings: EvaluationSettings | None
    of_queries: Mapping[str, Any]
    run_column: str
    convention: Convention
    chosen: ChosenRuns
    statistics: Statistics
    verbose: Annotated[bool, Flag(group="Output")] = False

    @property
    def options(self) -> dict[str, Any]:
        """Options of `compare`."""
        chosen = asdict(self.chosen)
        del chosen["runs"]  # `choose_runs` looks up the existing runs
        return {**asdict(self.statistics), **chosen, **self.of_queries}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings(Statistics):
    """Everything that determines a comparison, except the data.

    Parameters
    ----------
    replicates, flips, seed, alpha, margin, effect, lift, keep_replicates
        As for `compare`.
    runs
        At least two.
    baseline
        The run that the others are compared with. None: every run with every run before it.
    metrics
        Metrics to compare, at their cutoffs. dcg is added to ndcg; unless it was requested, it gets differences and
        intervals, but no test.
    query
        Columns that identify a query.
    segment_sets
        Sets of columns to group by. All queries together are always compared.
    weight
        Column with the weight of a query.
    cluster
        Column whose values are independent of each other, such as the user; queries that share a value may depend on
        each other.
    unpaired
        What to do with a query that only one of two runs has: count the other value as 0 (`zero`), leave the query
        out (`drop`), or refuse the comparison (`error`).
    same_ideal
        Require the same IDCG of a query in both runs, as they have with one judgments table.
    skips_no_relevant
        Leave queries without relevant items out of the means of all metrics (`no_relevant=skip`).
    across_rules
        Compare runs even if their rules differ.
    rules
        Rules of the queries, empty if unknown; with `rules_in_rows`, the rules that most rows have.
    rules_in_rows
        True if rows have the rules that they were computed by.

    Examples
    --------
    >>> settings = ComparisonSettings(runs=("a", "b", "c"), baseline=None, metrics=(MetricAt(NDCG, EVERY),))
    >>> [(settings.runs[x], settings.runs[y]) for x, y in settings.pairs]
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """

    runs: tuple[str, ...]
    baseline: str | None
    metrics: tuple[MetricAt, ...]
    query: tuple[str, ...] = ("query_id",)
    segment_sets: tuple[tuple[str, ...], ...] = ()
    weight: str | None = None
    cluster: str | None = None
    unpaired: Unpaired = "zero"
    same_ideal: bool = True
    skips_no_relevant: bool = False
    across_rules: bool = False
    rules: str = ""
    rules_in_rows: bool = False

    def __post_init__(self) -> None:
        Statistics.__post_init__(self)  # super() does not work in dataclasses with slots
        if len(set(self.runs)) < 2:
            named = ", ".join(map(repr, self.runs)) or "none"
            raise InvalidParameterError(f"a comparison needs two runs; got {named}.")
        if len(set(self.runs)) < len(self.runs):
            twice = next(run for run in self.runs if self.runs.count(run) > 1)
            raise InvalidParameterError(f"run {twice!r} is named twice.")
        if self.baseline is not None:
            check_choice("baseline", self.baseline, self.runs)
        if not self.metrics:
            raise InvalidParameterError("metrics must name at least one metric, such as ndcg.")
        if not self.query:
            raise InvalidParameterError(f"{option('query')} must name at least one column.")
        if any(str(metric_at.metric) == "idcg" for metric_at in self.metrics):
            raise InvalidParameterError("idcg is the same for all runs and cannot be compared; remove it.")

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Indices of the baseline and the run of each pair."""
        if self.baseline is None:
            return tuple(combinations(range(len(self.runs)), 2))
        first = self.runs.index(self.baseline)
        return tuple((first, run) for run in range(len(self.runs)) if run != first)

    @property
    def compared(self) -> tuple[NamedMetric, ...]:
        """The metrics without their cutoffs; workers refer to them by index."""
        return tuple(dict.fromkeys(metric_at.metric for metric_at in self.metrics))

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """The distinct columns of all segment sets, in the order of first use."""
        return tuple(dict.fromkeys(column for columns in self.segment_sets for column in columns))

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with every setting that can change a number."""
        parts = asdict(self) | {"keep_replicates": False}  # it changes no number
        # These settings accept or refuse rows, but do not change the numbers of a row.
        for field in ("across_rules", "rules", "rules_in_rows"):
            del parts[field]
        if not self.skips_no_relevant:
            del parts["skips_no_relevant"]
        cutoffs = {
            metric: [metric_at.k for metric_at in self.metrics if metric_at.metric == metric]
            for metric in self.compared
        }
        parts["metrics"] = [
            [str(metric), metric.column, None if EVERY in ks else sorted(map(str, ks))]
            for metric, ks in cutoffs.items()
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def parse_metrics(
    names: str | Sequence[str] | None, k: int | str | Sequence[int | str | None] | None
) -> tuple[MetricAt, ...]:
    """Parse the metrics of per-query tables to compare; None: `ndcg`.

    A name without `@` is compared at each `k`, or at every cutoff of the tables if `k` is None.

    >>> [str(metric) for metric in parse_metrics("ndcg@10,p(rel=2)@5", None)]
    ['ndcg@10', 'p(rel=2)@5']
    """
    everywhere = (EVERY,) if k is None else parse_cutoffs(k)
    metrics: dict[MetricAt, None] = {}
    for text in split_metrics("ndcg" if names is None else names):
        metric_at, requested = read_metric(text), normalize_metric_name(text)
        if MetricAt(metric_at.metric, EVERY) not in metrics:  # else it is compared at every cutoff already
            ks = everywhere if metric_at.k == EVERY else (metric_at.k,)
            metrics |= dict.fromkeys(MetricAt(metric_at.metric, k, requested) for k in ks)
    return in_order(metrics)


def is_companion(metric_at: MetricAt) -> bool:
    """Check if a metric was added to ndcg without being requested, so that it is not tested."""
    return metric_at.metric in NDCG.comes_with and not metric_at.asked


def describe_unpaired(unpaired: str, metric: str) -> str:
    """Describe what a comparison does with queries that one run lacks."""
    return "counted as 0" if unpaired == "zero" and has_value_when_missing(metric) else "left out"


def check_margin(margin: float) -> None:
    """Raise unless a margin is finite and at least 0."""
    if not 0 <= margin < float("inf"):
        raise InvalidParameterError(f"margin must be 0 or more; got {margin}.")


def refuse_unread_seed(replicates: int, flips: int, *, is_given: bool) -> None:
    """Raise if a seed was passed, but no replicates or flips that use it."""
    if is_given and not replicates and not flips:
        raise InvalidParameterError(f"{option('seed')} has no effect without replicates or flips; remove it.")
