"""The commands that evaluate rankings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ndcg_spark.conventions import Convention
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.options import JUDGMENTS, evaluation_of, evaluation_options, rankings, refuse_unread_here
from ndcg_spark.evaluation.settings import DifferenceJobSettings, EvaluationSettings
from ndcg_spark.jobs.command import Command, Gates, Reads, Writes
from ndcg_spark.jobs.fields import grouped

SHORT = 200
"""Entries of a list, of which a batch of ten thousand rankings takes some tens of megabytes."""
PER_QUERY_OUTPUT = Writes(
    name="per_query_output", holds="queries", about="Table of the metrics of every query to write."
)
OUTPUT = Writes(name="output", holds="metrics", about="Metric table to write: a folder or a catalog table.")


def has_long_rows(settings: EvaluationSettings) -> bool:
    """Whether a list may be much longer than a small k, so that ten thousand rankings might not fit into memory."""
    return settings.max_k is None or settings.max_k > SHORT


def _difference_of(given: Mapping[str, Any]) -> DifferenceJobSettings:
    other = given["to"] if "to" in given else given["explain_difference"]
    return DifferenceJobSettings(evaluation=evaluation_of(given), to=Convention.parse(other))


EXPLAIN_DIFFERENCE = Command(
    name="explain-difference",
    short="Why two conventions give two means.",
    about="""
    Explain why another convention gives another mean on the same rankings, rule by rule, at one k.

    Rules are changed one after the other, so each contribution is the effect of a rule given those before it; they
    add up to the gap. The queries that carry most of it are listed. Nothing is written but the JSON.

    Exit codes: 0 done, 2 refused input or options, 130 interrupted.
    """,
    settings=DifferenceJobSettings,
    options=lambda: grouped(
        evaluation_options(without=("metrics", "tie_bounds", "confidence", "segment_sets", "allow_unmatched")),
        {"Metric": [click.Option(["--to"], required=True, metavar="CONVENTION", help="The other convention: a name "
                                 "that `ndcg-spark conventions` lists, and changes, as 'trec_eval;gain=linear'.")]},
    ),
    read=_difference_of,
    reads=(rankings("Rankings: a path, a catalog table, or a SQL query."), JUDGMENTS),
    sliced=True,  # in the run log
    long_rows=lambda settings: has_long_rows(settings.evaluation),
    work="evaluation.work:ExplainDifference",
)  # fmt: skip


MEAN_NDCG = Command(
    name="mean-ndcg",
    short="Mean NDCG@k per run and segment.",
    about="""
    Mean NDCG@k per run and segment, written to a nightly metric table.

    The input is a long table (query, item, score or rank, relevance), a run with --judgments beside it, or one
    row per query with lists of items (--ranked-cols) or with an array of relevances. Nothing is written unless an
    output is named; the means are printed.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """,
    settings=EvaluationSettings,
    options=lambda: grouped(
        evaluation_options(),
        {"Running": [click.Option(["--explain-difference"], metavar="CONVENTION", help="Print why this convention "
                                  "gives another mean, rule by rule, at one k; nothing is written. As "
                                  "`ndcg-spark explain-difference --to CONVENTION`.")]},
    ),
    read=evaluation_of,
    instead=lambda given: EXPLAIN_DIFFERENCE if given["explain_difference"] and not given["explain"] else None,
    reads=(
        rankings("Rankings: a path, a catalog table, or a SQL query."),
        JUDGMENTS,
        Reads(name="items", about="Catalogue: one row per item, for metrics that need it, such as ild and coverage.",
              required=False),
        Reads(name="interactions", about="What users have met before: user and item, for novelty and first_new.",
              required=False),
    ),
    writes=(PER_QUERY_OUTPUT, OUTPUT),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    check=lambda request: refuse_unread_here(request.settings),
    gates=Gates(example="ndcg@10>=0.40", about="an overall mean", read=Gate.parse),
    long_rows=has_long_rows,
    work="evaluation.work:MeanNdcg",
)  # fmt: skip
