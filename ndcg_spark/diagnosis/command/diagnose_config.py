"""Everything a user said to `diagnose`, checked, in frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import name_and_cutoff
from ndcg_spark.evaluation.settings import EvaluationPlan, cutoffs_of
from ndcg_spark.jobs.config import (
    Operations,
    Source,
    check_places,
    evaluation_plan_of,
    names_of,
    operations_of,
    pairs_of,
    run_date_of,
    source_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightsConfig:
    """What one run of `diagnose nights` is asked to do; None takes all there are."""

    source: Source
    before: date
    after: date
    dataset: str | None
    runs: tuple[str, ...]
    metric: str
    cutoffs: tuple[int | None, ...] | None
    segments: tuple[str, ...]
    json_path: str | None
    spark_settings: dict[str, str]
    operations: Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsConfig:
    """What one run of `diagnose runs` is asked to do."""

    source: Source
    judgments: Source | None
    plan: EvaluationPlan
    baseline: str | None
    run: str | None
    top: int
    depth: int | None
    json_path: str | None
    explain: bool
    spark_settings: dict[str, str]
    operations: Operations


def nights_config(options: dict[str, Any]) -> NightsConfig:
    """Check options and put them in their places."""
    before, after = run_date_of(options["before"]), run_date_of(options["after"])
    if before == after:
        raise InvalidParameterError(f"--before and --after are both {before}; name two nights.")
    metric, at = name_and_cutoff(options["metric"], options["metric"])
    source = source_of(options, "metric_table")
    check_places([("--metric-table", source.reference)], [], options["json"])
    return NightsConfig(
        source=source,
        before=before,
        after=after,
        dataset=options["dataset"],
        runs=names_of(options["runs"]),
        metric=metric,
        cutoffs=None if at is None else cutoffs_of(at),
        segments=names_of(options["segment_cols"]),
        json_path=options["json"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )


def runs_config(options: dict[str, Any]) -> RunsConfig:
    """Check options and put them in their places."""
    if options["input"] is None:
        raise InvalidParameterError("name the rankings to diagnose: --input.")
    if (options["baseline"] is None) != (options["run"] is None):
        raise InvalidParameterError("--baseline and --run go together: they name the two runs whose queries changed.")
    for name in ("top", "depth"):
        if options[name] is not None and options[name] < 1:
            raise InvalidParameterError(f"--{name} must be at least 1; got {options[name]}.")
    source = source_of(options, "input")
    judgments = source_of(options, "judgments") if options["judgments"] else None
    read = [("--input", source.reference), *([("--judgments", judgments.reference)] if judgments else [])]
    check_places(read, [], options["json"])
    return RunsConfig(
        source=source,
        judgments=judgments,
        plan=evaluation_plan_of({**options, "metrics": None, "confidence": 0.95, "tie_bounds": False}),
        baseline=options["baseline"],
        run=options["run"],
        top=options["top"],
        depth=options["depth"],
        json_path=options["json"],
        explain=options["explain"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
