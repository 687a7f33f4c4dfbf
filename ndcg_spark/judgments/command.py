"""Commands that build judgments."""

from __future__ import annotations

from ndcg_spark.jobs.command import Command, CommandGroup, Input, Output
from ndcg_spark.judgments.settings import EventSettings, RatingSettings

_OUTPUT = Output(name="output", holds="judgments", about="Judgments table to write: a folder or a catalog table.")


EVENTS = Command(
    name="build-judgments events",
    short="From an event log.",
    about="""
    Build graded judgments from an event log: views, carts, purchases, impressions.

    Each judgment names the event that decided it, the number of its events, and their first and last time. Nothing is
    written unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """,
    settings=EventSettings,
    reads=(
        Input(name="input", about="Event log, one row per event: a path, a catalog table, or a SQL query."),
    ),
    writes=(_OUTPUT,),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    work="judgments.work:FromEvents",
)  # fmt: skip


ANNOTATORS = Command(
    name="build-judgments annotators",
    short="From the ratings of several annotators.",
    about="""
    Build one judgment of each item from the ratings of several annotators, and measure their agreement.

    Each judgment names the annotators who decided it. Agreement is Krippendorff's alpha for ordinal ratings. Nothing
    is written unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """,
    settings=RatingSettings,
    reads=(
        Input(name="input", about="Ratings, one row per query, item and annotator: a path, a catalog table, or a SQL "
              "query."),
    ),
    writes=(
        Output(name="disputes", holds="disputes", about="Table to write: disputed items and their ratings."),
        _OUTPUT,
    ),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    work="judgments.work:FromRatings",
)  # fmt: skip

BUILD_JUDGMENTS = CommandGroup(
    name="build-judgments",
    about="Graded judgments from user events or from ratings of annotators.",
    commands=(EVENTS, ANNOTATORS),
)
