"""The options of `diagnose`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.comparison.command.compare_runs import OF_RANKINGS, of_evaluation
from ndcg_spark.core.choices import ON_INVALID
from ndcg_spark.diagnosis.command.diagnose_config import nights_config, runs_config
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import explain_option, json_option, operation_options, spark_option, table_to_read

Groups = dict[str, list[click.Option]]

NIGHT_GROUPS: Groups = {
    "Input": [
        *table_to_read("--metric-table", "Metric table, as --output of mean-ndcg writes it."),
        click.Option(["--before"], required=True, metavar="YYYY-MM-DD", help="Night whose mean the "
                     "change starts from."),
        click.Option(["--after"], required=True, metavar="YYYY-MM-DD", help="Night whose mean is to be "
                     "explained."),
        click.Option(["--dataset"], metavar="NAME", help="Data set whose rows are taken.  [default: all there "
                     "are]"),
        click.Option(["--runs"], metavar="A,B", help="Names of the runs to explain.  [default: all there are]"),
        click.Option(["--metric"], default="ndcg", show_default=True, metavar="NAME", help="Metric, such as ndcg@10; "
                     "without @ at all cutoffs."),
        click.Option(["--segment-cols"], metavar="A,B+C", help="Segment columns to explain the "
                     "change by.  [default: all there are]"),
    ],
    "Output": [json_option("shifts")],
    "Running": [spark_option()],
    "Operations": operation_options(),
}  # fmt: skip
"""Options of `diagnose nights` by the group under which `--help` lists them."""

RUN_GROUPS: Groups = {
    "Input": OF_RANKINGS,
    "Runs": [
        click.Option(["--baseline"], metavar="NAME", help="Run to start from; with --run, the queries that changed "
                     "most are listed."),
        click.Option(["--run"], metavar="NAME", help="Name of the run to explain."),
        click.Option(["--top"], type=int, default=10, show_default=True, metavar="N", help="Queries that gained "
                     "and that lost to list."),
        click.Option(["--depth"], type=int, metavar="N", help="Items of each list to show.  "
                     "[default: the largest k]"),
    ],
    "Columns": of_evaluation("Columns"),
    "Metric": of_evaluation("Metric", without=frozenset({"--tie-bounds", "--confidence", "--metrics"})),
    "Output": [json_option("diagnosis")],
    "Checks": [
        click.Option(["--on-invalid"], type=click.Choice(ON_INVALID), default="fail", show_default=True,
                     help="What a bad row does: stop the job, or be left out."),
        *of_evaluation("Checks", without=frozenset({"--on-invalid", "--rejects", "--rejects-format", "--gate",
                                                    "--max-reject-fraction"})),
    ],
    "Running": [*of_evaluation("Running", without=frozenset({"--explain", "--explain-difference", "--conf"})),
                explain_option(), spark_option()],
    "Operations": operation_options(),
}  # fmt: skip
"""Options of `diagnose runs` by the group under which `--help` lists them."""


@click.group("diagnose", no_args_is_help=False)
def diagnose() -> None:
    """Find out why a mean moved, between nights or between runs."""


@diagnose.command("nights", short_help="Between two nights.", cls=GroupedCommand, groups=NIGHT_GROUPS)
def between_nights(**options: Any) -> int:
    """Divide the change of a mean between two nights into mix and within.

    Mix: segments have other shares of the queries. Within: the means of segments changed. Both come from the sums in
    the metric table; no ranking is read. They add up to the change.

    Exit codes: 0 done, 2 refused input or options, 130 interrupted.
    """
    config = nights_config(options)
    with needed_packages():
        from ndcg_spark.diagnosis.command.diagnose_job import run_nights_job
    return run_nights_job(config)


@diagnose.command("runs", short_help="Of one run, or between two.", cls=GroupedCommand, groups=RUN_GROUPS)
def between_runs(**options: Any) -> int:
    """Say what runs lose against the ideal, and which queries changed most between two of them.

    What NDCG lacks to 1 is lost because items were not retrieved, or because they were ranked too low; both add up.
    With --baseline and --run, the queries that gained and lost most are listed with both lists side by side.

    Exit codes: 0 done, 2 refused input or options, 130 interrupted.
    """
    config = runs_config(options)
    with needed_packages():
        from ndcg_spark.diagnosis.command.diagnose_job import run_runs_job
    return run_runs_job(config)
