"""The options of `mean-ndcg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ndcg_spark.cli.config import job_config
from ndcg_spark.conventions import CHOICES
from ndcg_spark.kernels.discounts import DISCOUNT_FORMS
from ndcg_spark.kernels.gains import GAIN_FORMS
from ndcg_spark.plan import DUPLICATE_CHECKS, SOURCES, STRATEGIES

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_INPUTS = [
    click.option("--input", required=True, metavar="REF", help="Rankings: a path, a catalog table, or a query."),
    click.option("--input-format", metavar="F", help="parquet, orc, csv, tsv, json, table, sql, trec-run, or any "
                 "other that Spark reads. Guessed when left out."),
    click.option("--input-option", multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader; repeatable."),
    click.option("--judgments", metavar="REF", help="Relevances, when the input has none."),
    click.option("--judgments-format", metavar="F", help="As --input-format, or trec-qrels."),
    click.option("--judgments-option", multiple=True, metavar="NAME=VALUE", help="As --input-option."),
    click.option("--query-col", default="query_id", show_default=True, help="Several with commas."),
    click.option("--item-col", default="item_id", show_default=True),
    click.option("--score-col", default="score", show_default=True, help="Several with commas: a run each."),
    click.option("--rank-col", help="Ranks from 1, to be taken as they are. [used: rank, if there is no score]"),
    click.option("--relevance-col", default="relevance", show_default=True, help="An array: one row a query."),
    click.option("--ideal-col", help="With arrays: all judged relevances of the query."),
    click.option("--run-col", help="Names the ranker, where the input has several."),
    click.option("--segment-cols", metavar="A,B+C", help="Means by A, and by B and C together."),
    click.option("--weight-col", help="Weight of a query in means."),
    click.option("--order-col", help="Position in the source, for ties=input_order and duplicates=first."),
    click.option("--null-score", type=click.Choice(["bad", "unretrieved"]), default="bad", show_default=True,
                 help="A row without score: bad, or judged but not retrieved."),
]  # fmt: skip
_CHOICES = [
    click.option("--k", default="10", show_default=True, metavar="1,3,5,10", help="Cutoffs; also: all."),
    click.option("--convention", default="default", show_default=True, metavar="NAME",
                 help="See `ndcg-spark conventions`; may be followed by ;choice=value."),
    click.option("--gain", metavar="G", help=f"{GAIN_FORMS}."),
    click.option("--discount", metavar="D", help=f"{DISCOUNT_FORMS}."),
    click.option("--pad-to-k", metavar="REL", help="Relevance of items missing from lists shorter than k."),
    *[click.option(f"--{name.replace('_', '-')}", metavar="|".join(values)) for name, values in CHOICES.items()],
    click.option("--sample", type=float, default=1.0, metavar="X", help="Evaluate this share of the queries, chosen "
                 "by hash. [default: all]"),
    click.option("--check-duplicates", type=click.Choice(DUPLICATE_CHECKS), default="top", show_default=True,
                 help="Look for duplicates among items that matter, in all rows (a shuffle), or nowhere (quicker)."),
    click.option("--tie-bounds", is_flag=True, help="Also NDCG with ties in the best and worst order, and the tied "
                 "share at k."),
    click.option("--explain-difference", metavar="CONVENTION", help="Take the gap to this convention apart, "
                 "choice by choice, at one k; writes nothing."),
    click.option("--strategy", type=click.Choice(STRATEGIES), default="auto", show_default=True,
                 help="How items are ranked: engine, or window, the plain reference, which is slower."),
    click.option("--source", type=click.Choice(SOURCES), default="auto", show_default=True,
                 help="Who reads an --input that is a path of Parquet files: Spark, or Python workers (quicker)."),
    click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals."),
]  # fmt: skip
_OUTPUTS = [
    click.option("--run-date", metavar="YYYY-MM-DD", help="The night this is. [default: today, UTC]"),
    click.option("--dataset", metavar="NAME", help="[default: last part of --input]"),
    click.option("--output", metavar="REF", help="The metric table: a folder, or a catalog table."),
    click.option("--output-format", metavar="F", help="parquet, orc, json, or table."),
    click.option("--per-query-output", metavar="REF", help="Metrics of every query."),
    click.option("--per-query-format", metavar="F", help="As --output-format."),
    click.option("--on-invalid", type=click.Choice(["fail", "reject"]), default="fail", show_default=True,
                 help="Bad rows: stop before anything is written, or leave them out and report."),
    click.option("--rejects", metavar="REF", help="Where rejected rows go, with their reason."),
    click.option("--rejects-format", metavar="F", help="As --output-format."),
    click.option("--max-reject-fraction", type=float, metavar="X", help="Refuse when more of the rows are bad."),
    click.option("--gate", multiple=True, metavar='"ndcg@10>=0.40"', help="Exit 3 if a mean is below; repeatable."),
    click.option("--json", metavar="FILE", help="The summary as JSON; - is standard output."),
    click.option("--allow-empty", is_flag=True, help="Go on without data, and write that over what was there."),
    click.option("--explain", is_flag=True, help="Say what would be done, and what it costs; run nothing."),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Spark setting of a local run; repeatable."),
]  # fmt: skip


def _with(options: list[Decorator]) -> Decorator:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command("mean-ndcg")
@_with([*_INPUTS, *_CHOICES, *_OUTPUTS])
def mean_ndcg(**options: Any) -> int:
    """Mean NDCG@k per run and segment, to a nightly metric table.

    The input is a long table (query, item, score or rank, relevance), a run with --judgments beside it, or one
    row a query with an array of relevances. Not in this version yet: vectors.
    """
    config = job_config(options)
    from ndcg_spark.cli.job import run_job  # after the options are checked: importing Spark takes a second

    return run_job(config)
