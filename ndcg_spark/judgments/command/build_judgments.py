"""The options of `build-judgments`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    allow_empty_option,
    bad_row_options,
    explain_option,
    item_column,
    json_option,
    operation_options,
    query_column,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)
from ndcg_spark.judgments.command.judgments_config import event_plan, judgments_config, rating_plan
from ndcg_spark.judgments.settings import DEDUP_RULES, EVENT_RULES, NEGATIVE_RULES, RATING_RULES, TIE_RULES

Groups = dict[str, list[click.Option]]


def _output() -> list[click.Option]:
    return [
        *slice_options(),
        *table_to_write("--output", "Judgments table to write: a folder or a catalog table."),
        json_option("counts"),
        allow_empty_option(),
    ]


EVENT_GROUPS: Groups = {
    "Input": table_to_read("--input", "Event log, one row per event: a path, a catalog table, or a SQL query."),
    "Columns": [
        query_column(),
        item_column(),
        click.Option(["--event-col"], default="event", show_default=True, metavar="NAME", help="Column that says "
                     "what happened."),
        click.Option(["--ts-col"], default="ts", show_default=True, metavar="NAME", help="Column that says when: a "
                     "timestamp; without time zone it is UTC."),
        click.Option(["--event-id-col"], default="event_id", show_default=True, metavar="NAME", help="Column that "
                     "identifies an event, for --dedup event_id."),
        click.Option(["--user-col"], default="user_id", show_default=True, metavar="NAME", help="Column that "
                     "identifies a user, for --dedup time."),
    ],
    "Grades": [
        click.Option(["--grades"], default="view=1,cart=2,purchase=3", show_default=True, metavar="EVENT=GRADE,...",
                     help="Grade of each event; a grade below 0 makes a negative event. Other events are bad rows."),
        click.Option(["--impression"], default="impression", show_default=True, metavar="EVENT", help="Event of an "
                     "item that was shown; it has no grade."),
        click.Option(["--rule"], type=click.Choice(EVENT_RULES), default="best", show_default=True, help="How the "
                     "events of an item are combined: the highest value, their sum, or the value of the latest."),
        click.Option(["--cap"], type=float, metavar="X", help="Largest relevance under --rule sum.  [default: the "
                     "highest grade]"),
        click.Option(["--half-life"], type=float, metavar="DAYS", help="Days in which the value of an event halves, "
                     "counted back from --as-of, which it needs.  [default: no decay]"),
        click.Option(["--negative"], type=click.Choice(NEGATIVE_RULES), default="override", show_default=True,
                     help="Whether a negative event always sets the relevance, or only if nothing positive follows."),
        click.Option(["--min-impressions"], type=int, default=1, show_default=True, metavar="N", help="An item shown "
                     "at least N times and never acted on has relevance 0; shown less often it is unjudged."),
    ],
    "Events that count": [
        click.Option(["--from", "start"], metavar="TIME", help="Begin of the window: 2026-01-31 or "
                     "2026-01-31T18:00:00Z, UTC.  [default: no bound]"),
        click.Option(["--as-of"], metavar="TIME", help="End of the window, itself outside; ages are taken here.  "
                     "[default: no bound]"),
        click.Option(["--dedup"], type=click.Choice(DEDUP_RULES), default="none", show_default=True, help="Which "
                     "repeated events count once: those with one event id, or the same event of a user on an item "
                     "within --dedup-seconds."),
        click.Option(["--dedup-seconds"], type=int, metavar="N", help="Length of the intervals of --dedup time."),
    ],
    "Output": _output(),
    "Checks": bad_row_options(),
    "Running": [explain_option(), spark_option()],
    "Operations": operation_options(),
}  # fmt: skip
"""Options of `build-judgments events` by the group under which `--help` lists them."""

RATING_GROUPS: Groups = {
    "Input": table_to_read(
        "--input", "Ratings, one row per query, item and annotator: a path, a catalog table, or a SQL query."
    ),
    "Columns": [
        query_column(),
        item_column(),
        click.Option(["--annotator-col"], default="annotator", show_default=True, metavar="NAME", help="Column that "
                     "says who rated."),
        click.Option(["--relevance-col"], default="relevance", show_default=True, metavar="NAME", help="Ratings; a "
                     "null is no rating."),
        click.Option(["--weight-col"], metavar="NAME", help="Weight of a rating, at least 0.  [default: all weigh "
                     "1]"),
    ],
    "Grades": [
        click.Option(["--rule"], type=click.Choice(RATING_RULES), default="mean", show_default=True, help="How the "
                     "ratings of an item are combined, by weight."),
        click.Option(["--tie"], type=click.Choice(TIE_RULES), default="lower", show_default=True, help="Which of "
                     "several grades with the most weight counts under --rule majority; null leaves the item "
                     "unjudged."),
        click.Option(["--dispute-range"], type=float, default=2.0, show_default=True, metavar="X", help="An item is "
                     "in dispute if its ratings lie so far apart, or if no grade has more than half of the weight."),
    ],
    "Output": [
        *_output(),
        *table_to_write("--disputes", "Table of the items in dispute and their ratings to write."),
    ],
    "Checks": bad_row_options(),
    "Running": [explain_option(), spark_option()],
    "Operations": operation_options(),
}  # fmt: skip
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
    config = judgments_config(options, event_plan(options))
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
    config = judgments_config(options, rating_plan(options))
    with needed_packages():
        from ndcg_spark.judgments.command.judgments_job import run_judgments_job
    return run_judgments_job(config)
