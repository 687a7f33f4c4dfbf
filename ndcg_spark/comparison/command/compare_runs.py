"""The options of `compare-runs`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from ndcg_spark.comparison.command.compare_config import compare_config
from ndcg_spark.comparison.settings import UNPAIRED, Statistics
from ndcg_spark.core.choices import ON_INVALID
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.command.mean_ndcg import GROUPS as OF_EVALUATION
from ndcg_spark.jobs.fields import options_of
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    READ_FORMATS,
    explain_option,
    gate_option,
    json_option,
    operation_options,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)


def of_evaluation(*groups: str, without: frozenset[str] = frozenset()) -> list[click.Option]:
    """Options of `mean-ndcg`, which rankings are evaluated by."""
    return [one for group in groups for one in OF_EVALUATION[group] if not set(one.opts) & without]


OF_RANKINGS = [
    *table_to_read("--input", "Rankings to evaluate and compare: a path, a catalog table, or a SQL query.",
                   required=False, formats=f"trec-run, {READ_FORMATS}"),
    *table_to_read("--judgments", "Table with the relevances, if the input has none.", required=False,
                   formats=f"trec-qrels, {READ_FORMATS}"),
    click.Option(["--sample"], type=float, default=1.0, metavar="X", help="Evaluate this share of the queries, "
                 "chosen by hash.  [default: all]"),
]  # fmt: skip
"""The tables that are ranked."""

GROUPS: dict[str, list[click.Option]] = {
    "Input": [
        *OF_RANKINGS,
        *table_to_read("--per-query", "Metrics of every query, as --per-query-output of mean-ndcg writes them, "
                       "instead of rankings. Their stored weights are used; --weight-col '' turns them off.",
                       required=False),
        *table_to_read("--baseline-per-query", "Metrics of every query of the baseline, if they are in a table of "
                       "their own. --baseline names it in the result.", required=False),
    ],
    "Runs": [
        click.Option(["--baseline"], metavar="NAME", help="Run that the others are compared with.  [default: each "
                     "run with each one before it]"),
        click.Option(["--runs"], metavar="A,B", help="Runs of the table to compare, by their stored names.  "
                     "[default: all of the table]"),
        click.Option(["--unpaired"], type=click.Choice(UNPAIRED), help="A query that only one of two runs has: the "
                     "other value is 0, it is left out, or the job is refused.  [default: as --missing-query]"),
    ],
    "Columns": [
        *of_evaluation("Columns"),
        click.Option(["--cluster-col"], metavar="NAME", help="Column whose values are independent of each other, "
                     "such as the user or session; queries that share one are not."),
    ],
    **options_of(Statistics),
    "Metric": of_evaluation("Metric", without=frozenset({"--tie-bounds", "--confidence"})),
    "Output": [
        *slice_options("--input or --per-query"),
        *table_to_write("--output", "Comparison table to write: a folder or a catalog table."),
        json_option("comparison"),
    ],
    "Checks": [
        click.Option(["--on-invalid"], type=click.Choice(ON_INVALID), default="fail", show_default=True,
                     help="What a bad row of the rankings does: stop the job, or be left out and counted."),
        *of_evaluation("Checks", without=frozenset({"--on-invalid", "--gate"})),
        gate_option("ndcg@10.ci_low>-0.002", "a column of the rows over all queries"),
    ],
    "Running": [*of_evaluation("Running", without=frozenset({"--explain", "--explain-difference", "--conf"})),
                explain_option(), spark_option()],
    "Operations": operation_options(),
}  # fmt: skip
"""Options by the group under which `--help` lists them."""


_OF_QUERIES = frozenset((
    "query_col", "run_col", "segment_cols", "weight_col", "k", "metrics", "convention", "ideal", "no_relevant",
    "missing_query", "gate", "explain", "conf",
))  # fmt: skip
"""Options of `mean-ndcg` that say what is compared of queries, however these were evaluated."""


@click.command("compare-runs", cls=GroupedCommand, groups=GROUPS)
def compare_runs(**options: Any) -> int:
    """Compare runs: is one really better than another, where, and by how much.

    Compares runs over the same queries, per segment, metric and k: difference, interval, lift, tests by t, sign flips
    and bootstrap, adjusted for their number. The input is rankings of several runs (a run column or several score
    columns), or metrics of every query that were written before. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """
    if options["per_query"] is not None and options["input"] is None:
        _refuse_of_rankings(click.get_current_context())
    config = compare_config(options)
    with needed_packages():
        from ndcg_spark.comparison.command.compare_job import run_compare_job
    return run_compare_job(config)


def _refuse_of_rankings(context: click.Context) -> None:
    """Refuse options of the command line that say how rankings are evaluated: those of per-query tables have been.

    A file for --config may have them, as it serves other commands, too.
    """
    of_rankings = [*OF_RANKINGS, *of_evaluation("Columns", "Metric", "Checks", "Running")]
    for one in of_rankings:
        name = str(one.name)
        if name not in _OF_QUERIES and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InvalidParameterError(
                f"{one.opts[0]} is about rankings, and the queries of --per-query have been evaluated; leave it out."
            )
