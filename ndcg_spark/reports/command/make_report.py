"""The options of `report`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import gate_option, operation_options, spark_option, table_to_read
from ndcg_spark.reports.command.make_report_config import report_config

GROUPS: dict[str, list[click.Option]] = {
    "Input": [
        *table_to_read("--metrics", "Metric table of one or many nights: a path, a catalog table, or a SQL query."),
        *table_to_read("--per-query", "Per-query table: adds how queries are distributed, and those to look at.",
                       required=False),
        *table_to_read("--comparison", "Comparison table: adds the differences between runs.", required=False),
        *table_to_read("--flags", "Table that flag-changes wrote: marks the nights far from their history.",
                       required=False),
        click.Option(["--summary"], metavar="FILE", help="JSON that mean-ndcg wrote with --json: adds the rows that "
                     "were rejected."),
        click.Option(["--diagnosis"], metavar="FILE", help="JSON that diagnose runs wrote with --json for --baseline "
                     "and --run: adds the queries that lost and gained most, with both lists."),
    ],
    "Content": [
        click.Option(["--run-date"], metavar="YYYY-MM-DD", help="Night that the report is about.  [default: "
                     "the newest]"),
        click.Option(["--dataset"], metavar="NAME", help="Data set that the report is about.  [default: "
                     "the only one]"),
        click.Option(["--run"], multiple=True, metavar="NAME", help="Run to show; may be repeated.  [default: those "
                     "with the highest values]"),
        click.Option(["--metric"], metavar="ndcg@10", help="Metric that the headline shows.  "
                     "[default: NDCG at 10, or at the largest cutoff]"),
        click.Option(["--baseline"], metavar="RUN", help="Show the queries that lose the most against this run.  "
                     "[default: since the night before]"),
        click.Option(["--production"], metavar="RUN", help="Run that the headline is about.  [default: the run with "
                     "the worst news, else the one with the highest value]"),
        click.Option(["--queries"], type=int, default=10, show_default=True, metavar="N", help="Queries to list of "
                     "each run, the lowest and those that lost the most."),
        click.Option(["--segments"], type=int, default=500, show_default=True, metavar="N", help="Segments to list, "
                     "those with the most queries."),
        click.Option(["--nights"], type=int, default=400, show_default=True, metavar="N", help="Nights of the trend, "
                     "the newest."),
        click.Option(["--title"], metavar="TEXT", help="Title at the top of the page."),
        gate_option(),
    ],
    "Output": [
        click.Option(["--output"], metavar="FILE", help="HTML file to write; it is one file and loads nothing."),
    ],
    "Running": [spark_option()],
    "Operations": operation_options(),
}  # fmt: skip
"""Options by the group under which `--help` lists them."""


@click.command("report", cls=GroupedCommand, groups=GROUPS)
def report(**options: Any) -> int:
    """Show a night to people: one HTML page of the metric table.

    The headline is the worst news of the night. The page has means with their changes, the trend over nights, NDCG
    at each cutoff, and segments to sort and filter; with more tables the distribution of queries, those to look at,
    and differences between runs.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """
    config = report_config(options)
    with needed_packages():
        from ndcg_spark.reports.command.make_report_job import run_report_job
    return run_report_job(config)
