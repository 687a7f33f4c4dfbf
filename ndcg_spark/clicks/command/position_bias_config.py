"""Everything a user said to `position-bias`, checked, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from ndcg_spark.clicks.settings import PropensityPlan, WeightPlan
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBiasConfig:
    """What one run of `position-bias` is asked to do; it makes `propensities`, `judgments` or `estimates`.

    `source` is the log of impressions, `propensities` a table of them by position.
    """

    makes: str
    source: Source
    propensities: Source | None
    plan: PropensityPlan | WeightPlan
    run_date: date
    dataset: str
    output: Target | None
    rejects: Target | None
    max_reject_fraction: float | None
    json_path: str | None
    explain: bool
    allow_empty: bool
    spark_settings: dict[str, str]
    operations: Operations

    @property
    def sources(self) -> list[tuple[str, Source]]:
        """The tables that are read, by the option that named them."""
        given = [("--propensities", self.propensities)] if self.propensities is not None else []
        return [("--input", self.source), *given]


def position_bias_config(
    makes: str, options: dict[str, Any], plan: PropensityPlan | WeightPlan
) -> PositionBiasConfig:
    """Check the options that do not depend on what is made of impressions."""
    source = source_of(options, "input")
    propensities = source_of(options, "propensities") if options.get("propensities") else None
    if isinstance(plan, WeightPlan):
        plan.check_source(table=propensities is not None)
    config = PositionBiasConfig(
        makes=makes,
        source=source,
        propensities=propensities,
        plan=plan,
        run_date=run_date_of(options["run_date"]),
        dataset=dataset_of(options, source),
        output=target_of(options, "output"),
        rejects=target_of(options, "rejects"),
        max_reject_fraction=reject_fraction_of(options),
        json_path=options["json"],
        explain=options["explain"],
        allow_empty=options["allow_empty"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    read = [(flag, source.reference) for flag, source in config.sources]
    check_places(read, [("--output", config.output), ("--rejects", config.rejects)], config.json_path)
    return config
