"""Settings of the diagnose commands: frozen, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated

from ndcg_spark.core.flag import Flag
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import parse_named_metric
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.metrics import MetricAt


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftJobSettings:
    """The means and the two nights to compare.

    Parameters
    ----------
    before
        Night whose mean the change starts from.
    after
        Night whose mean is to be explained.
    dataset
        Data set whose rows are read.
    runs
        Names of the runs to explain.
    metric
        Metric, such as ndcg@10; without @ at all cutoffs.
    segments
        Segment columns to explain the change by.
    across_rules
        Compare nights even if they were computed by different rules, such as two conventions.
    """

    before: Annotated[date, Flag(group="Input")]
    after: date
    dataset: Annotated[str | None, Flag(metavar="NAME", shown="all there are")] = None
    runs: Annotated[tuple[str, ...], Flag(metavar="A,B", shown="all there are")] = ()
    metric: Annotated[str, Flag(metavar="NAME")] = "ndcg"
    segments: Annotated[tuple[str, ...], Flag(metavar="A,B+C", shown="all there are")] = ()
    across_rules: bool = False

    def __post_init__(self) -> None:
        if self.before == self.after:
            raise InvalidParameterError(f"before and after are both {self.before}; name two nights.")
        _ = self.means  # refuses a text that is not a metric

    @property
    def means(self) -> MetricAt:
        """The metric, at its cutoff or at every one."""
        return parse_named_metric(self.metric, self.metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJobSettings:
    """The two runs to compare, and how many queries to list.

    Parameters
    ----------
    baseline
        Run to start from; with `run`, the queries that changed most are listed.
    run
        Name of the run to explain.
    top
        How many queries that gained, and how many that lost, to list.
    depth
        Items of each list to show.
    """

    baseline: Annotated[str | None, Flag(group="Runs", metavar="NAME")] = None
    run: Annotated[str | None, Flag(name="run run", metavar="NAME")] = None
    top: Annotated[int, Flag(metavar="N")] = 10
    depth: Annotated[int | None, Flag(metavar="N", shown="the largest k")] = None

    def __post_init__(self) -> None:
        for setting in ("top", "depth"):
            count = getattr(self, setting)
            if count is not None and count < 1:
                raise InvalidParameterError(f"{setting} must be at least 1; got {count}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsJobSettings:
    """Settings of a `diagnose runs` job."""

    evaluation: EvaluationSettings
    chosen: ChangeJobSettings
