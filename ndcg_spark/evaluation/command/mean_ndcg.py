"""The options of `mean-ndcg`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.conventions import Convention
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.jobs.config import job_config
from ndcg_spark.jobs.fields import changes_of, grouped, options_of
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    READ_FORMATS,
    allow_empty_option,
    explain_option,
    gate_option,
    json_option,
    operation_options,
    reject_options,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)

_WITHOUT = ("cutoffs", "metrics", "as_of")
GROUPS = grouped(
    {
        "Input": [
            *table_to_read("--input", "Rankings: a path, a catalog table, or a SQL query.",
                           formats=f"trec-run, {READ_FORMATS}"),
            *table_to_read("--judgments", "Table with the relevances, if the input has none.", required=False,
                           formats=f"trec-qrels, {READ_FORMATS}"),
            *table_to_read("--items", "Catalogue: one row per item, for metrics that need it, such as ild and "
                           "coverage.", required=False),
            *table_to_read("--interactions", "What users have met before: user and item, for novelty and first_new.",
                           required=False),
        ],
        "Columns": [],
        "Metric": [
            click.Option(["--k"], metavar="1,3,5,10", help="Cutoffs, computed in one pass; `all` is the whole list.  "
                         "[default: 10; with --metrics, names without @ use the whole list]"),
            click.Option(["--metrics"], metavar="ndcg@10,ap,...", help="Metrics to compute in the same pass, such as "
                         "ndcg@10,ap@100,p(rel=2)@5,rr; `ndcg-spark metrics` lists them.  [default: ndcg at each k]"),
        ],
        "Output": [
            *slice_options(),
            *table_to_write("--output", "Metric table to write: a folder or a catalog table."),
            *table_to_write("--per-query-output", "Table of the metrics of every query to write."),
            json_option(),
            allow_empty_option(),
        ],
        "Checks": [],
    },
    {"Metric": options_of(EvaluationPlan, without=_WITHOUT)["Metric"][:1]},
    changes_of(Convention, without=("name",)),
    options_of(EvaluationPlan, without=(*_WITHOUT, "convention")),
    {
        "Checks": [*reject_options(), gate_option()],
        "Running": [
            explain_option(),
            click.Option(["--explain-difference"], metavar="CONVENTION", help="Print why this convention gives "
                         "another mean, rule by rule, at one k; nothing is written."),
            spark_option(),
        ],
        "Operations": operation_options(),
    },
)  # fmt: skip
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
