"""The options of `build-judgments`, in the groups that its help shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ndcg_spark.jobs.fields import grouped, options_of, settings_of
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    allow_empty_option,
    explain_option,
    json_option,
    operation_options,
    reject_options,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)
from ndcg_spark.judgments.command.judgments_config import judgments_config
from ndcg_spark.judgments.settings import EventPlan, RatingPlan

Groups = dict[str, list[click.Option]]


def _groups(settings: Groups, what: str, *, more: Sequence[click.Option] = ()) -> Groups:
    """Put options of settings between those that both commands have; `what` is read, and `more` tables written."""
    output = [
        *slice_options(),
        *table_to_write("--output", "Judgments table to write: a folder or a catalog table."),
        json_option("counts"),
        allow_empty_option(),
        *more,
    ]
    titles = [title for title in settings if title != "Checks"]
    return grouped(
        {"Input": table_to_read("--input", f"{what}: a path, a catalog table, or a SQL query.")},
        {title: [] for title in titles} | {"Output": output},
        settings,
        {
            "Checks": reject_options(),
            "Running": [explain_option(), spark_option()],
            "Operations": operation_options(),
        },
    )


EVENT_GROUPS = _groups(options_of(EventPlan), "Event log, one row per event")
"""Options of `build-judgments events` by the group under which `--help` lists them."""
RATING_GROUPS = _groups(
    options_of(RatingPlan),
    "Ratings, one row per query, item and annotator",
    more=table_to_write("--disputes", "Table of the items in dispute and their ratings to write."),
)
"""Options of `build-judgments annotators` by the group under which `--help` lists them."""


@click.group("build-judgments", no_args_is_help=False)
def build_judgments() -> None:
    """Graded judgments from what users did, or from what annotators said."""


@build_judgments.command("events", short_help="From an event log.", cls=GroupedCommand, groups=EVENT_GROUPS)
def from_events(**options: Any) -> int:
    """Make graded judgments from an event log: views, carts, purchases, impressions.

    Each judgment says which event decided it, how many events it rests on, and when they were. Nothing is written
    unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    config = judgments_config(options, settings_of(EventPlan, options))
    with needed_packages():
        from ndcg_spark.judgments.command.judgments_job import run_judgments_job
    return run_judgments_job(config)


@build_judgments.command(
    "annotators", short_help="From the ratings of several annotators.", cls=GroupedCommand, groups=RATING_GROUPS
)
def from_annotators(**options: Any) -> int:
    """Make one judgment of each item from the ratings of several annotators, and measure how far they agree.

    Each judgment says whose ratings decided it. Agreement is Krippendorff's alpha for ordinal ratings. Nothing is
    written unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    config = judgments_config(options, settings_of(RatingPlan, options))
    with needed_packages():
        from ndcg_spark.judgments.command.judgments_job import run_judgments_job
    return run_judgments_job(config)
