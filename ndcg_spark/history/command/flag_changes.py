"""The options of `flag-changes` by help group, and the settings that they are turned into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.history.command.nights import (
    COMPANIONS,
    MetricRows,
    metric_rows_of,
    metric_table_options,
    row_options,
)
from ndcg_spark.history.settings import FlagPlan
from ndcg_spark.jobs.config import (
    Operations,
    Source,
    Target,
    check_places,
    names_of,
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
    query_column,
    spark_option,
    table_to_read,
    table_to_write,
)

GROUPS = grouped(
    {
        "Input": [
            *metric_table_options(),
            *table_to_read("--per-query", "Metrics of every query, as --per-query-output of mean-ndcg writes them: a "
                           "night that is held against the night before it is compared query by query.",
                           required=False),
            query_column(),
        ],
        "Rows": row_options("all but dcg and idcg"),
    },
    options_of(FlagPlan),
    {
        "Rule": [click.Option(["--fail-on-flag"], is_flag=True, help="Exit with 3 if a night is flagged.")],
        "Output": [
            *table_to_write("--output", "Table of the nights judged to write: a folder or a catalog table."),
            json_option("flags"),
        ],
        "Running": [spark_option()],
        "Operations": operation_options(),
    },
)  # fmt: skip
"""Options by the group under which `--help` lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagConfig:
    """What one run of `flag-changes` is asked to do."""

    rows: MetricRows
    per_query: Source | None
    query: tuple[str, ...]
    plan: FlagPlan
    output: Target | None
    json_path: str | None
    fail_on_flag: bool
    spark_settings: dict[str, str]
    operations: Operations


def flag_config(options: dict[str, Any]) -> FlagConfig:
    """Check options and put them in their places."""
    if options["query_col"] != "query_id" and options["per_query"] is None:
        raise InvalidParameterError("--query-col names columns of --per-query, which is not given.")
    config = FlagConfig(
        rows=metric_rows_of(options, without=COMPANIONS),
        per_query=None if options["per_query"] is None else source_of(options, "per_query"),
        query=tuple(names_of(options["query_col"])),
        plan=settings_of(FlagPlan, options),
        output=target_of(options, "output"),
        json_path=options["json"],
        fail_on_flag=options["fail_on_flag"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    read = [("--input", config.rows.source), ("--per-query", config.per_query)]
    places = [(flag, source.reference) for flag, source in read if source is not None]
    check_places(places, [("--output", config.output)], config.json_path)
    return config


@click.command("flag-changes", short_help="Nights that are far from what was usual.", cls=GroupedCommand,
               groups=GROUPS)  # fmt: skip
def flag_changes(**options: Any) -> int:
    """Flag nights of a metric table whose value is far from the earlier nights of the same weekday.

    The distance from their median is measured in spreads (1.482602218505602 times the median absolute deviation) or
    in standard errors of the night, whichever is larger. With too few earlier nights a night is held against the one
    before it; --per-query makes that a test of pairs. Each flag says its rule in words. Nothing is written unless an
    output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a night is flagged (with --fail-on-flag),
    130 interrupted.
    """
    config = flag_config(options)
    with needed_packages():
        from ndcg_spark.history.command.flag_changes_job import run_flag_changes
    return run_flag_changes(config)
