"""The options of `mean-ndcg`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.conventions import CHOICES
from ndcg_spark.evaluation.settings import DUPLICATE_CHECKS, SOURCES, STRATEGIES
from ndcg_spark.jobs.config import job_config
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    READ_FORMATS,
    allow_empty_option,
    bad_row_options,
    confidence_option,
    explain_option,
    gate_option,
    item_column,
    json_option,
    operation_options,
    query_column,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)

_CHOICE_HELP: dict[str, tuple[str, dict[str, str]]] = {
    "ties": ("Order of items with equal scores", {"input_order": "by --order-col", "expected": "average of all"}),
    "score_precision": ("Precision in which scores are compared", {}),
    "ideal": (
        "Items of the ideal list",
        {
            "judged": "the best judged items",
            "retrieved": "judged items of the list",
            "k_ones": "k of relevance 1",
            "as_many": "the best judged items, no more than are ranked",
            "unsorted": "judged items in the order of their array",
        },
    ),
    "unjudged": ("Items without judgment", {"zero": "gain 0", "condensed": "removed before ranking"}),
    "negative": ("Relevances below 0", {"clip": "to 0", "error": "bad rows"}),
    "no_relevant": ("NDCG of a query with nothing relevant", {"skip": "left out of the mean"}),
    "missing_query": ("Judged queries that the run misses", {"zero": "NDCG 0"}),
    "unjudged_query": ("Queries of the run without any judgment", {"zero": "NDCG 0"}),
    "duplicates": (
        "An item that comes twice in a query",
        {"best": "the best score counts", "first": "by --order-col"},
    ),
}
"""What a choice is about, and notes on those of its values that need one."""


def _choice(name: str) -> click.Option:
    """Build the option of a choice whose values are listed in `CHOICES`; conventions check the value."""
    title, notes = _CHOICE_HELP[name]
    values = ", ".join(f"{value} ({notes[value]})" if value in notes else value for value in CHOICES[name])
    return click.Option([f"--{name.replace('_', '-')}"], metavar="RULE", help=f"{title}: {values}.")


GROUPS: dict[str, list[click.Option]] = {
    "Input": [
        *table_to_read("--input", "Rankings: a path, a catalog table, or a SQL query.",
                       formats=f"trec-run, {READ_FORMATS}"),
        *table_to_read("--judgments", "Table with the relevances, if the input has none.", required=False,
                       formats=f"trec-qrels, {READ_FORMATS}"),
        *table_to_read("--items", "Catalogue: one row per item, for metrics that need it, such as ild and coverage.",
                       required=False),
        *table_to_read("--interactions", "What users have met before: user and item, for novelty and first_new.",
                       required=False),
        click.Option(["--sample"], type=float, default=1.0, metavar="X", help="Evaluate this share of the queries, "
                     "chosen by hash.  [default: all]"),
    ],
    "Columns": [
        query_column(),
        item_column(),
        click.Option(["--score-col"], default="score", show_default=True, metavar="A,B", help="Scores, higher is "
                     "better; several columns are evaluated as one run each."),
        click.Option(["--rank-col"], metavar="NAME", help="Ranks from 1, used instead of scores.  [default: rank, if "
                     "the input has no score]"),
        click.Option(["--relevance-col"], default="relevance", show_default=True, metavar="NAME", help="Relevances; "
                     "an array column means one row per query, in rank order."),
        click.Option(["--ideal-col"], metavar="NAME", help="With arrays: all judged relevances of the query."),
        click.Option(["--run-col"], metavar="NAME", help="Column that names the ranker, if the input has several."),
        click.Option(["--segment-cols"], metavar="A,B+C", help="Also compute means by A, and by B and C together."),
        click.Option(["--weight-col"], metavar="NAME", help="Weight of a query in the means; constant within a "
                     "query."),
        click.Option(["--order-col"], metavar="NAME", help="Position of a row in its source, for "
                     "--ties input_order and --duplicates first."),
        click.Option(["--vector-col"], default="vector", show_default=True, metavar="NAME", help="Column of "
                     "--items with an array of numbers, for ild and ils."),
        click.Option(["--categories-col"], default="categories", show_default=True, metavar="NAME", help="Column "
                     "of --items with an array of categories, or with one category."),
        click.Option(["--first-seen-col"], default="first_seen", show_default=True, metavar="NAME", help="Column "
                     "of --items with a date, for first_appearance; ages are counted on --run-date."),
        click.Option(["--topics-col"], default="topics", show_default=True, metavar="NAME", help="Column beside "
                     "the relevances with an array of topics, or with one topic, for alpha_ndcg."),
        click.Option(["--user-col"], metavar="NAME", help="Column that identifies a user: of --interactions, and "
                     "for first_new of the input.  [default: the query column]"),
    ],
    "Metric": [
        click.Option(["--k"], metavar="1,3,5,10", help="Cutoffs, computed in one pass; `all` is the whole list.  "
                     "[default: 10; with --metrics, names without @ use the whole list]"),
        click.Option(["--metrics"], metavar="ndcg@10,ap,...", help="Metrics to compute in the same pass, such as "
                     "ndcg@10,ap@100,p(rel=2)@5,rr; `ndcg-spark metrics` lists them.  [default: ndcg at each k]"),
        click.Option(["--convention"], default="default", show_default=True, metavar="NAME", help="Named set of the "
                     "rules below, each of which can be changed; `ndcg-spark conventions` lists them."),
        click.Option(["--gain"], metavar="G", help="How a relevance becomes a gain: exponential "
                     "(2^rel - 1), linear, or binary, each also as NAME:LEVEL with gain 0 below that level; power:P; "
                     "or table:LEVEL=GAIN,... for a gain by level."),
        click.Option(["--discount"], metavar="D", help="How the weight of a rank falls: log2, ln, log:BASE, or "
                     "reciprocal (1 / rank); or table:D1,D2,... for a weight by rank."),
        *[_choice(name) for name in CHOICES],
        click.Option(["--pad-to-k"], metavar="REL", help="Relevance of the items that a list shorter than k misses; "
                     "off for none."),
        click.Option(["--tie-bounds"], is_flag=True, help="Also compute NDCG with ties in the best and in the worst "
                     "order, and the tied share at k."),
        confidence_option(),
    ],
    "Output": [
        *slice_options(),
        *table_to_write("--output", "Metric table to write: a folder or a catalog table."),
        *table_to_write("--per-query-output", "Table of the metrics of every query to write."),
        json_option(),
        allow_empty_option(),
    ],
    "Checks": [
        *bad_row_options(),
        click.Option(["--null-score"], type=click.Choice(["bad", "unretrieved"]), default="bad", show_default=True,
                     help="Whether a row without score is bad, or a judged item that was not retrieved."),
        click.Option(["--check-duplicates"], type=click.Choice(DUPLICATE_CHECKS), default="top", show_default=True,
                     help="Where to look for items that come twice: at the top of the lists, in all rows (one more "
                     "shuffle; of arrays, also for queries that come twice), or nowhere (faster)."),
        gate_option(),
    ],
    "Running": [
        click.Option(["--strategy"], type=click.Choice(STRATEGIES), default="auto", show_default=True, help="How "
                     "items are ranked: by the engine, or by window functions, a slow reference with the same "
                     "results."),
        click.Option(["--source"], type=click.Choice(SOURCES), default="auto", show_default=True, help="Who reads "
                     "Parquet files given by their path: Spark, or Python workers (faster); auto: workers where they "
                     "can."),
        explain_option(),
        click.Option(["--explain-difference"], metavar="CONVENTION", help="Print why this convention gives another "
                     "mean, rule by rule, at one k; nothing is written."),
        spark_option(),
    ],
    "Operations": operation_options(),
}  # fmt: skip
"""Options by the group under which `--help` lists them."""


@click.command("mean-ndcg", cls=GroupedCommand, groups=GROUPS)
def mean_ndcg(**options: Any) -> int:
    """Mean NDCG@k per run and segment, written to a nightly metric table.

    The input is a long table (query, item, score or rank, relevance), a run with --judgments beside it, or one
    row per query with an array of relevances. Nothing is written unless an output is named; the means are printed.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """
    config = job_config(options)
    with needed_packages():
        from ndcg_spark.evaluation.command.job import run_job
    return run_job(config)
