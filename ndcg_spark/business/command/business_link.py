"""The options of `business-link` by help group, and the settings that they are turned into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ndcg_spark.business.settings import LinkPlan
from ndcg_spark.history.command.nights import (
    COMPANIONS,
    MetricRows,
    metric_rows_of,
    metric_table_options,
    row_options,
)
from ndcg_spark.jobs.config import (
    Operations,
    Source,
    Target,
    check_places,
    operations_of,
    pairs_of,
    source_of,
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
        "Input": [
            *metric_table_options(),
            *table_to_read("--clicks", "Clicks per night and segment, with the columns run_date, segment_by, "
                           "segment, impressions, clicks, conversions: a path, a catalog table, or a SQL query."),
        ],
        "Rows": row_options("all but dcg and idcg"),
    },
    options_of(LinkPlan),
    {
        "Alarms": [click.Option(["--fail-on-alarm"], is_flag=True, help="Exit with 3 if there is an alarm.")],
        "Output": [
            *table_to_write("--output", "Table of correlations and alarms to write: a folder or a catalog table."),
            json_option("results"),
        ],
        "Running": [spark_option()],
        "Operations": operation_options(),
    },
)  # fmt: skip
"""Options by the group under which `--help` lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """What one run of `business-link` is asked to do."""

    rows: MetricRows
    clicks: Source
    plan: LinkPlan
    output: Target | None
    json_path: str | None
    fail_on_alarm: bool
    spark_settings: dict[str, str]
    operations: Operations


def link_config(options: dict[str, Any]) -> LinkConfig:
    """Check options and put them in their places."""
    config = LinkConfig(
        rows=metric_rows_of(options, without=COMPANIONS),
        clicks=source_of(options, "clicks"),
        plan=settings_of(LinkPlan, options),
        output=target_of(options, "output"),
        json_path=options["json"],
        fail_on_alarm=options["fail_on_alarm"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    read = [("--input", config.rows.source.reference), ("--clicks", config.clicks.reference)]
    check_places(read, [("--output", config.output)], config.json_path)
    return config


@click.command(
    "business-link",
    short_help="A metric beside click-through and conversion, with alarms.",
    cls=GroupedCommand,
    groups=GROUPS,
)
def business_link(**options: Any) -> int:
    """Hold a ranking metric against click-through and conversion, night by night and for each segment.

    Prints correlations (of nights, of changes from night to night, and with a lag) and raises two alarms: the metric
    is up while click-through is down, and the metric is flat while conversion is up. Click-through is clicks /
    impressions, conversion is conversions / clicks. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 alarm (with --fail-on-alarm), 130
    interrupted.
    """
    config = link_config(options)
    with needed_packages():
        from ndcg_spark.business.command.business_link_job import run_business_link
    return run_business_link(config)
