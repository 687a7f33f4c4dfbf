"""How runs are compared: frozen, without Spark."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import combinations

from ndcg_spark.errors import InvalidParameterError, one_of, option
from ndcg_spark.evaluation.settings import SummedMetric

UNPAIRED = ("zero", "drop", "error")
LIFT_INTERVALS = ("fieller", "delta")
MAX_REPLICATES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """Everything that determines a comparison, except the data.

    Parameters
    ----------
    runs : tuple of str
        At least two.
    baseline : str or None
        The run that the others are compared with. None: every run with every run before it.
    metrics : tuple of SummedMetric
        Metrics to compare, their columns in the per-query tables, and their cutoffs.
    companions : tuple of SummedMetric
        Those of `metrics`, by name and cutoff, that stand beside another metric and were not asked for, such as dcg
        beside ndcg. They get differences and intervals, and no test.
    query : tuple of str
        Columns that identify a query.
    segment_sets : tuple of tuple of str
        Sets of columns to group by. All queries together are always compared.
    weight : str or None
        Column with the weight of a query.
    cluster : str or None
        Column whose values are independent of each other, such as the user; queries of one value are not.
    unpaired : str
        What happens to a query that only one of two runs has: the other value is `zero`; the query is left out
        (`drop`); or the comparison is refused (`error`).
    same_ideal : bool
        Whether both runs must have the same IDCG for a query, as those of one judgments table have.
    skips_no_relevant : bool
        Whether queries with nothing relevant count in no mean (`no_relevant=skip`), of whatever metric.
    replicates : int
        Replicates of the bootstrap; 0 leaves it out.
    flips : int
        Random sign flips, where more than 16 queries differ; 0 leaves them out.
    seed : int
        From 0 to 2^63 - 1.
    alpha : float
        Level of tests; intervals have the level 1 - alpha.
    margin : float
        A run is `not_worse` if its interval lies above minus this margin.
    effect : float or None
        Difference that `n_required` is computed for.
    lift : str
        Interval of the relative lift: `fieller` or `delta`.
    keep_replicates : bool
        Whether results carry the sums of their replicates, so that nights can be added.

    Examples
    --------
    >>> plan = ComparisonPlan(runs=("a", "b", "c"), baseline=None, metrics=(SummedMetric("ndcg", "ndcg"),))
    >>> [(plan.runs[x], plan.runs[y]) for x, y in plan.pairs]
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """

    runs: tuple[str, ...]
    baseline: str | None
    metrics: tuple[SummedMetric, ...]
    companions: tuple[SummedMetric, ...] = ()
    query: tuple[str, ...] = ("query_id",)
    segment_sets: tuple[tuple[str, ...], ...] = ()
    weight: str | None = None
    cluster: str | None = None
    unpaired: str = "zero"
    same_ideal: bool = True
    skips_no_relevant: bool = False
    replicates: int = 1000
    flips: int = 9999
    seed: int = 42
    alpha: float = 0.05
    margin: float = 0.0
    effect: float | None = None
    lift: str = "fieller"
    keep_replicates: bool = False

    def __post_init__(self) -> None:
        one_of("unpaired", self.unpaired, UNPAIRED)
        one_of("lift", self.lift, LIFT_INTERVALS)
        if len(set(self.runs)) < 2:
            got = ", ".join(map(repr, self.runs)) or "none"
            apart = self.baseline is not None and self.baseline not in self.runs
            way_out = f"; name the baseline {self.baseline!r} among them, too" if apart else ""
            raise InvalidParameterError(f"a comparison needs two runs; got {got}{way_out}.")
        if len(set(self.runs)) < len(self.runs):
            raise InvalidParameterError(f"a run is named twice: {', '.join(self.runs)}.")
        if self.baseline is not None:
            one_of("baseline", self.baseline, self.runs)
        if not self.metrics:
            raise InvalidParameterError("metrics must name at least one metric, such as ndcg.")
        if not self.query:
            raise InvalidParameterError(f"{option('query')} must name at least one column.")
        if any(one.name == "idcg" for one in self.metrics):
            raise InvalidParameterError("idcg is the same for all runs and cannot be compared; leave it out.")
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name in ("replicates", "flips"):
            value = getattr(self, name)
            if not 0 <= value <= MAX_REPLICATES:
                raise InvalidParameterError(f"{name} must lie between 0 and {MAX_REPLICATES:,}; got {value}.")
        if not 0 <= self.seed < 2**63:
            raise InvalidParameterError(f"seed must lie between 0 and 2^63 - 1; got {self.seed}.")
        check_alpha(self.alpha)
        check_margin(self.margin)
        if self.effect is not None and not 0 < abs(self.effect) < float("inf"):
            raise InvalidParameterError(f"effect must be a number other than 0; got {self.effect}.")

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the baseline and of the run of each pair."""
        if self.baseline is None:
            return tuple(combinations(range(len(self.runs)), 2))
        first = self.runs.index(self.baseline)
        return tuple((first, other) for other in range(len(self.runs)) if other != first)

    def is_companion(self, metric: SummedMetric, k: int | None) -> bool:
        """Whether a metric at a cutoff stands beside another one and is not tested.

        Parameters
        ----------
        metric : SummedMetric
        k : int or None

        Returns
        -------
        bool
        """
        return any(one.name == metric.name and one.is_at(k) for one in self.companions)

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """The columns of all segment sets, each once, in the order of first use."""
        return tuple(dict.fromkeys(name for names in self.segment_sets for name in names))

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with any choice that can change a number."""
        parts = asdict(self) | {"keep_replicates": False}  # it changes no number
        del parts["companions"]  # which rows are tested changes no row's own numbers, and stored hashes must last
        if not self.skips_no_relevant:  # a field that came later
            del parts["skips_no_relevant"]
        parts["metrics"] = [
            [one.name, one.column, None if one.cutoffs is None else sorted(map(str, one.cutoffs))]
            for one in self.metrics
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def check_alpha(alpha: float) -> None:
    """Refuse a level of tests that is none."""
    if not 0 < alpha < 1:
        raise InvalidParameterError(f"alpha must lie between 0 and 1; got {alpha}.")


def check_margin(margin: float) -> None:
    """Raise unless a margin is a number from 0 on."""
    if not 0 <= margin < float("inf"):
        raise InvalidParameterError(f"margin must be 0 or more; got {margin}.")
