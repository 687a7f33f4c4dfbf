"""The options of `position-bias`, in the groups that its help shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ndcg_spark.clicks.command.position_bias_config import position_bias_config
from ndcg_spark.clicks.settings import PropensityPlan, WeightPlan
from ndcg_spark.jobs.fields import grouped, options_of, settings_of
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    allow_empty_option,
    explain_option,
    json_option,
    operation_options,
    reject_options,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)

Groups = dict[str, list[click.Option]]
_PROPENSITIES = table_to_read("--propensities", "Table with columns position and propensity, such as `position-bias "
                              "propensities` writes.", required=False)  # fmt: skip


def _groups(settings: Groups, what: str, shown: str, *, propensities: Sequence[click.Option] = ()) -> Groups:
    """Put options of settings between those that all three commands have; `what` is written, and `shown` as JSON."""
    log = "Log of impressions, one row per item shown: a path, a catalog table, or a SQL query."
    output = [*table_to_write("--output", what), *slice_options(), json_option(shown), allow_empty_option()]
    rest = [title for title in settings if title not in ("Columns", "Propensities", "Checks")]
    return grouped(
        {"Input": table_to_read("--input", log), "Columns": []},
        {"Propensities": propensities} if propensities else {},
        {title: [] for title in rest} | {"Output": output},
        settings,
        {
            "Checks": reject_options(),
            "Running": [explain_option(), spark_option()],
            "Operations": operation_options(),
        },
    )


PROPENSITY_GROUPS = _groups(
    options_of(PropensityPlan, without={"propensity"}),
    "Table of propensities to write: a folder or a catalog table.",
    "propensities and likelihoods",
)
"""Options of `position-bias propensities` by the group under which `--help` lists them."""
JUDGMENT_GROUPS = _groups(
    options_of(WeightPlan, without={"run", "segment_sets", "confidence", "propensity_of"}),
    "Judgments table to write: a folder or a catalog table.",
    "counts",
    propensities=_PROPENSITIES,
)
"""Options of `position-bias judgments`."""
ESTIMATE_GROUPS = _groups(
    options_of(WeightPlan),
    "Table of estimates to write: a folder or a catalog table.",
    "estimates",
    propensities=_PROPENSITIES,
)
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
    return _run("propensities", options, settings_of(PropensityPlan, options))


@position_bias.command(
    "judgments", short_help="Labels weighted by inverse propensities.", cls=GroupedCommand, groups=JUDGMENT_GROUPS
)
def judgments(**options: Any) -> int:
    """Make judgments from clicks: the mean over impressions of click / propensity.

    Propensities come from a table (--propensities), a column (--propensity-col) or a formula (--power). Nothing is
    written unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """
    return _run("judgments", options, settings_of(WeightPlan, options))


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
    return _run("estimates", options, settings_of(WeightPlan, options))


def _run(makes: str, options: dict[str, Any], plan: PropensityPlan | WeightPlan) -> int:
    config = position_bias_config(makes, options, plan)
    with needed_packages():
        from ndcg_spark.clicks.command.position_bias_job import run_position_bias_job
    return run_position_bias_job(config)
