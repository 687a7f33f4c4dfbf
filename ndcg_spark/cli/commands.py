"""The commands of `ndcg-spark`."""

from __future__ import annotations

import click

from ndcg_spark._version import __version__
from ndcg_spark.cli.build_judgments import build_judgments
from ndcg_spark.cli.business_link import business_link
from ndcg_spark.cli.compare_runs import compare_runs
from ndcg_spark.cli.conventions import conventions
from ndcg_spark.cli.diagnose import diagnose
from ndcg_spark.cli.flag_changes import flag_changes
from ndcg_spark.cli.make_report import report
from ndcg_spark.cli.mean_ndcg import mean_ndcg
from ndcg_spark.cli.metrics import metrics
from ndcg_spark.cli.position_bias import position_bias
from ndcg_spark.cli.retrieve import retrieve
from ndcg_spark.cli.roll_up import roll_up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ndcg-spark")
def cli() -> None:
    """Evaluate rankings on Apache Spark: NDCG of every query, and its mean per ranker and segment."""


cli.add_command(mean_ndcg)
cli.add_command(retrieve)
cli.add_command(compare_runs)
cli.add_command(diagnose)
cli.add_command(build_judgments)
cli.add_command(position_bias)
cli.add_command(report)
cli.add_command(business_link)
cli.add_command(roll_up)
cli.add_command(flag_changes)
cli.add_command(conventions)
cli.add_command(metrics)
