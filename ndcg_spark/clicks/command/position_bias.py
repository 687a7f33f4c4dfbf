"""The options of `position-bias`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.clicks.command.position_bias_config import position_bias_config, propensity_plan, weight_plan
from ndcg_spark.clicks.settings import FITS, METHODS, PROPENSITIES_OF, PropensityPlan, WeightPlan
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    allow_empty_option,
    bad_row_options,
    confidence_option,
    explain_option,
    item_column,
    json_option,
    operation_options,
    query_column,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)

Groups = dict[str, list[click.Option]]


def _input() -> list[click.Option]:
    return table_to_read("--input", "Log of impressions, one row per item shown: a path, a catalog table, or a SQL "
                         "query.")  # fmt: skip


def _columns() -> list[click.Option]:
    return [
        query_column(),
        item_column(),
        click.Option(["--position-col"], default="position", show_default=True, metavar="NAME", help="Column with "
                     "the position at which the item was shown, from 1."),
        click.Option(["--click-col"], default="click", show_default=True, metavar="NAME", help="Column that is 1 if "
                     "the item was clicked, else 0; labels and estimates also take a gain."),
    ]  # fmt: skip


def _propensities() -> list[click.Option]:
    return [
        *table_to_read("--propensities", "Table with columns position and propensity, such as `position-bias "
                       "propensities` writes.", required=False),
        click.Option(["--propensity-col"], metavar="NAME", help="Column of the input with the propensity of each "
                     "impression; the position is then not read."),
        click.Option(["--power"], type=float, metavar="X", help="Propensity of a position: 1 / position^X."),
        click.Option(["--clip"], type=float, metavar="M", help="Largest weight, 1 / propensity; it lowers the "
                     "variance and adds a bias.  [default: no limit]"),
    ]  # fmt: skip


def _output(what: str, shown: str) -> list[click.Option]:
    return [*table_to_write("--output", what), *slice_options(), json_option(shown), allow_empty_option()]


def _running() -> list[click.Option]:
    return [explain_option(), spark_option()]


PROPENSITY_GROUPS: Groups = {
    "Input": _input(),
    "Columns": _columns(),
    "Method": [
        click.Option(["--method"], type=click.Choice(METHODS), default="pbm", show_default=True, help="A "
                     "position-based click model fitted by EM; click-through of traffic whose order was shuffled; or "
                     "click-through of items shown at both positions."),
        click.Option(["--tolerance"], type=float, default=1e-6, show_default=True, metavar="X", help="EM has "
                     "converged when no propensity moves by this much in a step."),
        click.Option(["--max-iter"], type=int, default=1000, show_default=True, metavar="N", help="Steps after which "
                     "EM ends in any case."),
        click.Option(["--fit"], type=click.Choice(FITS), default="worker", show_default=True, help="Where counts are "
                     "held: in one Python worker, up to 8,000,000 of them, or in all workers, with a Spark job for "
                     "each step of EM."),
    ],
    "Output": _output("Table of propensities to write: a folder or a catalog table.", "propensities and likelihoods"),
    "Checks": bad_row_options(),
    "Running": _running(),
    "Operations": operation_options(),
}  # fmt: skip
"""Options of `position-bias propensities` by the group under which `--help` lists them."""
JUDGMENT_GROUPS: Groups = {
    "Input": _input(),
    "Columns": _columns(),
    "Propensities": _propensities(),
    "Output": _output("Judgments table to write: a folder or a catalog table.", "counts"),
    "Checks": bad_row_options(),
    "Running": _running(),
    "Operations": operation_options(),
}
"""Options of `position-bias judgments`."""
ESTIMATE_GROUPS: Groups = {
    "Input": _input(),
    "Columns": [
        *_columns(),
        click.Option(["--run-col"], metavar="NAME", help="Column that tells several rankers apart."),
        click.Option(["--segment-cols"], metavar="A,B+C", help="Also estimate by A, and by B and C together."),
    ],
    "Propensities": [
        *_propensities(),
        click.Option(
            ["--propensity-of"],
            type=click.Choice(PROPENSITIES_OF),
            default="position",
            show_default=True,
            help="What --propensity-col holds: the probability that the position was examined, or that the "
            "logging policy showed this item. SNIPS needs the latter.",
        ),
    ],
    "Estimates": [confidence_option()],
    "Output": _output("Table of estimates to write: a folder or a catalog table.", "estimates"),
    "Checks": bad_row_options(),
    "Running": _running(),
    "Operations": operation_options(),
}
"""Options of `position-bias estimates`."""


@click.group("position-bias", no_args_is_help=False)
def position_bias() -> None:
    """Labels and estimates from clicks, corrected for the position at which items were shown."""


@position_bias.command(
    "propensities",
    short_help="How likely each position is examined.",
    cls=GroupedCommand,
    groups=PROPENSITY_GROUPS,
)
def propensities(**options: Any) -> int:
    """Estimate how likely each position is examined, relative to the first, from clicks.

    The propensities, the log-likelihood, and whether EM has converged are printed. Nothing is written unless an
    output is named; `position-bias judgments --propensities` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    return _run("propensities", options, propensity_plan(options))


@position_bias.command(
    "judgments", short_help="Labels weighted by inverse propensities.", cls=GroupedCommand, groups=JUDGMENT_GROUPS
)
def judgments(**options: Any) -> int:
    """Make judgments from clicks: the mean over impressions of click / propensity.

    Propensities come from a table (--propensities), a column (--propensity-col) or a formula (--power). Nothing is
    written unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    return _run("judgments", options, weight_plan(options))


@position_bias.command(
    "estimates", short_help="Clicks per query, with intervals.", cls=GroupedCommand, groups=ESTIMATE_GROUPS
)
def estimates(**options: Any) -> int:
    """Estimate clicks per query as if every impression had been examined, by IPS.

    SNIPS is printed beside it if propensities are those of showing an item (--propensity-of action).
    Standard errors, intervals and the effective sample size are printed beside them. Nothing is written unless an
    output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    return _run("estimates", options, weight_plan(options))


def _run(makes: str, options: dict[str, Any], plan: PropensityPlan | WeightPlan) -> int:
    config = position_bias_config(makes, options, plan)
    with needed_packages():
        from ndcg_spark.clicks.command.position_bias_job import run_position_bias_job
    return run_position_bias_job(config)
