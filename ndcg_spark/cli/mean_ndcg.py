"""The options of `mean-ndcg`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.cli.config import job_config
from ndcg_spark.cli.groups import GroupedCommand
from ndcg_spark.conventions import CHOICES
from ndcg_spark.kernels.discounts import DISCOUNT_FORMS
from ndcg_spark.kernels.gains import GAIN_FORMS
from ndcg_spark.plan import DUPLICATE_CHECKS, SOURCES, STRATEGIES

_CHOICE_HELP: dict[str, tuple[str, dict[str, str]]] = {
    "ties": ("Order of items with equal scores", {"input_order": "by --order-col", "expected": "average of all"}),
    "score_precision": ("Precision in which scores are compared", {}),
    "ideal": ("Items of the ideal list", {"retrieved": "judged items of the list", "k_ones": "k of relevance 1"}),
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
        click.Option(["--input"], required=True, metavar="REF", help="Rankings: a path, a catalog table, or a SQL "
                     "query."),
        click.Option(["--input-format"], metavar="F", help="Format of the input: parquet, orc, csv, tsv, json, "
                     "table, sql, trec-run, or any other that Spark reads.  [default: guessed from the reference]"),
        click.Option(["--input-option"], multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader; may be "
                     "repeated."),
        click.Option(["--judgments"], metavar="REF", help="Table with the relevances, if the input has none."),
        click.Option(["--judgments-format"], metavar="F", help="Format of the judgments: as --input-format, or "
                     "trec-qrels."),
        click.Option(["--judgments-option"], multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader for "
                     "the judgments; may be repeated."),
        click.Option(["--sample"], type=float, default=1.0, metavar="X", help="Evaluate this share of the queries, "
                     "chosen by hash.  [default: all]"),
    ],
    "Columns": [
        click.Option(["--query-col"], default="query_id", show_default=True, metavar="A,B", help="Columns that "
                     "identify a query."),
        click.Option(["--item-col"], default="item_id", show_default=True, metavar="NAME", help="Column that "
                     "identifies an item."),
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
    ],
    "Metric": [
        click.Option(["--k"], metavar="1,3,5,10", help="Cutoffs, computed in one pass; `all` is the whole list.  "
                     "[default: 10; with --metrics, names without @ use the whole list]"),
        click.Option(["--metrics"], metavar="ndcg@10,ap,...", help="Metrics to compute in the same pass, such as "
                     "ndcg@10,ap@100,p(rel=2)@5,rr; `ndcg-spark metrics` lists them.  [default: ndcg at each k]"),
        click.Option(["--convention"], default="default", show_default=True, metavar="NAME", help="Named set of the "
                     "rules below, each of which can be changed; `ndcg-spark conventions` lists them."),
        click.Option(["--gain"], metavar="G", help=f"Gain of a relevance: {GAIN_FORMS}"),
        click.Option(["--discount"], metavar="D", help=f"Discount of a rank: {DISCOUNT_FORMS}"),
        *[_choice(name) for name in CHOICES],
        click.Option(["--pad-to-k"], metavar="REL", help="Relevance of the items that a list shorter than k misses; "
                     "off for none."),
        click.Option(["--tie-bounds"], is_flag=True, help="Also compute NDCG with ties in the best and in the worst "
                     "order, and the tied share at k."),
        click.Option(["--confidence"], type=float, default=0.95, show_default=True, metavar="X", help="Level of the "
                     "confidence intervals."),
    ],
    "Output": [
        click.Option(["--run-date"], metavar="YYYY-MM-DD", help="Date under which results are stored.  [default: "
                     "today, UTC]"),
        click.Option(["--dataset"], metavar="NAME", help="Data set under which results are stored.  [default: last "
                     "part of --input]"),
        click.Option(["--output"], metavar="REF", help="Metric table to write: a folder or a catalog table."),
        click.Option(["--output-format"], metavar="F", help="Format of the metric table: parquet, orc, json, or "
                     "table."),
        click.Option(["--per-query-output"], metavar="REF", help="Table of the metrics of every query to write."),
        click.Option(["--per-query-format"], metavar="F", help="Format of that table: as --output-format."),
        click.Option(["--json"], metavar="FILE", help="Write the summary as JSON; - prints it as the last line."),
        click.Option(["--allow-empty"], is_flag=True, help="Accept an input without data, and replace earlier "
                     "results by none."),
    ],
    "Checks": [
        click.Option(["--on-invalid"], type=click.Choice(["fail", "reject"]), default="fail", show_default=True,
                     help="What a bad row does: stop the job before anything is written, or be left out and "
                     "counted."),
        click.Option(["--rejects"], metavar="REF", help="Table of the rejected rows and their reasons to write."),
        click.Option(["--rejects-format"], metavar="F", help="Format of that table: as --output-format."),
        click.Option(["--max-reject-fraction"], type=float, metavar="X", help="Stop the job if a larger share of the "
                     "rows is bad."),
        click.Option(["--null-score"], type=click.Choice(["bad", "unretrieved"]), default="bad", show_default=True,
                     help="Whether a row without score is bad, or a judged item that was not retrieved."),
        click.Option(["--check-duplicates"], type=click.Choice(DUPLICATE_CHECKS), default="top", show_default=True,
                     help="Where to look for items that come twice: at the top of the lists, in all rows (one more "
                     "shuffle), or nowhere (faster)."),
        click.Option(["--gate"], multiple=True, metavar='"ndcg@10>=0.40"', help="Exit with 3 if an overall mean "
                     "does not meet this; may be repeated."),
    ],
    "Running": [
        click.Option(["--strategy"], type=click.Choice(STRATEGIES), default="auto", show_default=True, help="How "
                     "items are ranked: by the engine, or by window functions, a slow reference with the same "
                     "results."),
        click.Option(["--source"], type=click.Choice(SOURCES), default="auto", show_default=True, help="Who reads "
                     "Parquet files given by their path: Spark, or Python workers (faster); auto: workers where they "
                     "can."),
        click.Option(["--explain"], is_flag=True, help="Print what the job would do and its cost, and run nothing."),
        click.Option(["--explain-difference"], metavar="CONVENTION", help="Print why this convention gives another "
                     "mean, rule by rule, at one k; nothing is written."),
        click.Option(["--conf"], multiple=True, metavar="NAME=VALUE", help="Spark setting of a local run; may be "
                     "repeated."),
    ],
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
    from ndcg_spark.cli.job import run_job  # after the options are checked: importing Spark takes a second

    return run_job(config)
