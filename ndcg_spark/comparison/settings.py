"""How runs are compared: frozen, without Spark."""

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
from ndcg_spark.metrics import EVERY, MetricAt, NamedMetric, in_order
from ndcg_spark.metrics.normalized_gain import NDCG

Unpaired: TypeAlias = Literal["zero", "drop", "error"]
LiftInterval: TypeAlias = Literal["fieller", "delta"]
MAX_REPLICATES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """How differences are tested, whatever runs are compared. A new setting of `compare` stands here.

    Parameters
    ----------
    replicates
        Replicates of the bootstrap; 0 for none.
    flips
        Random sign flips, where more than 16 queries differ; 0 for none.
    seed
        Seed of the bootstrap and of the sign flips.

        From 0 to 2^63 - 1.
    alpha
        Level of the tests; intervals have the level 1 - X.
    margin
        A run is not worse if its interval lies above minus this; where smaller is better, below this.
    effect
        Also say how many queries it takes to find this difference with probability 0.8.
    lift
        Interval of the relative lift: Fieller's (`fieller`), or by the `delta` method.
    keep_replicates
        Store the sums of the replicates, too, so that nights can be added.

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
        for name in ("replicates", "flips"):
            value = getattr(self, name)
            if not 0 <= value <= MAX_REPLICATES:
                raise InvalidParameterError(f"{name} must lie between 0 and {MAX_REPLICATES:,}; got {value}.")
        if not 0 <= self.seed < 2**63:
            raise InvalidParameterError(f"seed must lie between 0 and 2^63 - 1; got {self.seed}.")
        check_fraction("alpha", self.alpha)
        check_margin(self.margin)
        if self.effect is not None and not 0 < abs(self.effect) < float("inf"):
            raise InvalidParameterError(f"effect must be a number other than 0; got {self.effect}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRuns:
    """Which runs are compared, and over which queries.

    Parameters
    ----------
    baseline
        Run that the others are compared with.
    runs
        Runs of the table to compare, by their stored names; the baseline is always one of them.
    unpaired
        A query that only one of two runs has: the other value is 0 (`zero`), it is left out (`drop`), or the job is
        refused (`error`).
    cluster
        Column whose values are independent of each other, such as the user or session; queries that share one are
        not.
    across_rules
        Compare metrics of queries that were computed by different rules, as by two conventions, all the same.
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
    """What `compare-runs` is asked to do.

    Either `rankings` are evaluated and compared in one go, or per-query tables are compared: then `of_queries` are
    the options of `compare` that say what they hold, and `run_column` names the column of the run.

    Parameters
    ----------
    verbose
        Print a line for each metric and segment, in place of three lines a pair of runs.
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
        del chosen["runs"]  # which are there is looked up: `choose_runs`
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
        Metrics to compare, at their cutoffs. What comes with ndcg and was not asked for, that is dcg, gets
        differences and intervals, and no test.
    query
        Columns that identify a query.
    segment_sets
        Sets of columns to group by. All queries together are always compared.
    weight
        Column with the weight of a query.
    cluster
        Column whose values are independent of each other, such as the user; queries of one value are not.
    unpaired
        What happens to a query that only one of two runs has: the other value is `zero`; the query is left out
        (`drop`); or the comparison is refused (`error`).
    same_ideal
        Whether both runs must have the same IDCG for a query, as those of one judgments table have.
    skips_no_relevant
        Whether queries with nothing relevant count in no mean (`no_relevant=skip`), of whatever metric.
    across_rules
        Whether runs of different rules are compared all the same.
    rules
        Rules of the queries, empty where they are not known; those that most rows have where `rules_in_rows`.
    rules_in_rows
        Whether rows say by which rules they were computed.

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
        Statistics.__post_init__(self)  # of slots, super() knows nothing
        if len(set(self.runs)) < 2:
            got = ", ".join(map(repr, self.runs)) or "none"
            raise InvalidParameterError(f"a comparison needs two runs; got {got}.")
        if len(set(self.runs)) < len(self.runs):
            raise InvalidParameterError(f"a run is named twice: {', '.join(self.runs)}.")
        if self.baseline is not None:
            check_choice("baseline", self.baseline, self.runs)
        if not self.metrics:
            raise InvalidParameterError("metrics must name at least one metric, such as ndcg.")
        if not self.query:
            raise InvalidParameterError(f"{option('query')} must name at least one column.")
        if any(str(one.metric) == "idcg" for one in self.metrics):
            raise InvalidParameterError("idcg is the same for all runs and cannot be compared; leave it out.")

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the baseline and of the run of each pair."""
        if self.baseline is None:
            return tuple(combinations(range(len(self.runs)), 2))
        first = self.runs.index(self.baseline)
        return tuple((first, other) for other in range(len(self.runs)) if other != first)

    @property
    def compared(self) -> tuple[NamedMetric, ...]:
        """The metrics without their cutoffs; workers know them by their places."""
        return tuple(dict.fromkeys(one.metric for one in self.metrics))

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """The columns of all segment sets, each once, in the order of first use."""
        return tuple(dict.fromkeys(name for names in self.segment_sets for name in names))

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with any choice that can change a number."""
        parts = asdict(self) | {"keep_replicates": False}  # it changes no number
        # Which rows are tested changes no row's own numbers.
        for name in ("across_rules", "rules", "rules_in_rows"):
            del parts[name]
        if not self.skips_no_relevant:
            del parts["skips_no_relevant"]
        cutoffs = {metric: [one.k for one in self.metrics if one.metric == metric] for metric in self.compared}
        parts["metrics"] = [
            [str(metric), metric.column, None if EVERY in at else sorted(map(str, at))]
            for metric, at in cutoffs.items()
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def compared_metrics(
    names: str | Sequence[str] | None, k: int | str | Sequence[int | str | None] | None
) -> tuple[MetricAt, ...]:
    """Read which metrics of per-query tables are compared; None: `ndcg`.

    A name without `@` is compared at each `k`, and where that is None at every cutoff of the tables.

    >>> [str(one) for one in compared_metrics("ndcg@10,p(rel=2)@5", None)]
    ['ndcg@10', 'p(rel=2)@5']
    """
    everywhere = (EVERY,) if k is None else parse_cutoffs(k)
    metrics: dict[MetricAt, None] = {}
    for text in split_metrics("ndcg" if names is None else names):
        one, asked = read_metric(text), normalize_metric_name(text)
        if MetricAt(one.metric, EVERY) not in metrics:  # whose name holds at each cutoff
            ks = everywhere if one.k == EVERY else (one.k,)
            metrics |= dict.fromkeys(MetricAt(one.metric, k, asked) for k in ks)  # which keeps the first name
    return in_order(metrics)


def is_companion(one: MetricAt) -> bool:
    """Check if a metric comes with ndcg and was not asked for, so that it is not tested."""
    return one.metric in NDCG.comes_with and not one.asked


def check_margin(margin: float) -> None:
    """Raise unless a margin is a number from 0 on."""
    if not 0 <= margin < float("inf"):
        raise InvalidParameterError(f"margin must be 0 or more; got {margin}.")


def refuse_unread_seed(replicates: int, flips: int, *, given: bool) -> None:
    """Raise for a seed that nothing reads."""
    if given and not replicates and not flips:
        raise InvalidParameterError(
            f"nothing reads {option('seed')}: there are no replicates and no flips; leave it out."
        )
