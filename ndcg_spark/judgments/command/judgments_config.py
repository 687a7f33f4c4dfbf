"""Everything a user said to `build-judgments`, checked, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from ndcg_spark.jobs.config import (
    Operations,
    Source,
    Target,
    check_places,
    dataset_of,
    operations_of,
    pairs_of,
    reject_fraction_of,
    run_date_of,
    source_of,
    target_of,
)
from ndcg_spark.judgments.settings import EventPlan, RatingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentsConfig:
    """What one run of `build-judgments` is asked to do."""

    source: Source
    plan: EventPlan | RatingPlan
    run_date: date
    dataset: str
    output: Target | None
    disputes: Target | None
    rejects: Target | None
    max_reject_fraction: float | None
    json_path: str | None
    explain: bool
    allow_empty: bool
    spark_settings: dict[str, str]
    operations: Operations


def judgments_config(options: dict[str, Any], plan: EventPlan | RatingPlan) -> JudgmentsConfig:
    """Check the options that do not depend on what judgments are made from."""
    source = source_of(options, "input")
    config = JudgmentsConfig(
        source=source,
        plan=plan,
        run_date=run_date_of(options["run_date"]),
        dataset=dataset_of(options, source),
        output=target_of(options, "output"),
        disputes=target_of(options, "disputes"),
        rejects=target_of(options, "rejects"),
        max_reject_fraction=reject_fraction_of(options),
        json_path=options["json"],
        explain=options["explain"],
        allow_empty=options["allow_empty"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    written = [("--output", config.output), ("--disputes", config.disputes), ("--rejects", config.rejects)]
    check_places([("--input", source.reference)], written, config.json_path)
    return config
