"""The options of `roll-up` by help group, and the settings that they are turned into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ndcg_spark.history.command.nights import MetricRows, metric_rows_of, row_options
from ndcg_spark.history.settings import RollUpPlan
from ndcg_spark.jobs.config import (
    Operations,
    Target,
    check_places,
    operations_of,
    pairs_of,
    target_of,
)
from ndcg_spark.jobs.fields import grouped, options_of, settings_of
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    json_option,
    operation_options,
    spark_option,
    table_to_read,
    table_to_write,
)

GROUPS = grouped(
    {
        "Input": table_to_read("--input", "Metric table or comparison table, as mean-ndcg and compare-runs --output "
                               "write them: a path or a catalog table."),
        "Rows": row_options("all"),
    },
    options_of(RollUpPlan),
    {
        "Output": [
            *table_to_write("--output", "Table of periods to write: a folder or a catalog table."),
            json_option("periods"),
        ],
        "Running": [spark_option()],
        "Operations": operation_options(),
    },
)  # fmt: skip
"""Options by the group under which `--help` lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollUpConfig:
    """What one run of `roll-up` is asked to do."""

    rows: MetricRows
    plan: RollUpPlan
    output: Target | None
    json_path: str | None
    spark_settings: dict[str, str]
    operations: Operations


def roll_up_config(options: dict[str, Any]) -> RollUpConfig:
    """Check options and put them in their places."""
    config = RollUpConfig(
        rows=metric_rows_of(options),
        plan=settings_of(RollUpPlan, options),
        output=target_of(options, "output"),
        json_path=options["json"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    check_places([("--input", config.rows.source.reference)], [("--output", config.output)], config.json_path)
    return config


@click.command("roll-up", short_help="Weeks, months and rolling weeks of metrics or comparisons.", cls=GroupedCommand,
               groups=GROUPS)  # fmt: skip
def roll_up(**options: Any) -> int:
    """Add the nights of a metric table or comparison table up to ISO weeks, months and rolling seven days, exactly.

    Rankings are not read again: the states in the table are added, and the means are the same bits as of one
    evaluation of all queries of the period. Queries weigh, not days. Days without rows are named. When a night has
    changed, run it again with --from and --to set to that night. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    config = roll_up_config(options)
    with needed_packages():
        from ndcg_spark.history.command.roll_up_job import run_roll_up
    return run_roll_up(config)
