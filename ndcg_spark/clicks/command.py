"""The commands that correct clicks for the position at which items were shown."""

from __future__ import annotations

from ndcg_spark.clicks.settings import PropensitySettings, WeightSettings
from ndcg_spark.jobs.command import Command, CommandGroup, Input, Output, Request

_LOG = Input(
    name="input", about="Log of impressions, one row per item shown: a path, a catalog table, or a SQL query."
)
_TABLE = Input(
    name="propensities",
    about="Table with columns position and propensity, such as `position-bias propensities` writes.",
    required=False,
    group="Propensities",
)


def _check_source(request: Request[WeightSettings]) -> None:
    request.settings.check_source(table="propensities" in request.sources)


PROPENSITIES = Command(
    name="position-bias propensities",
    short="How likely each position is examined.",
    about="""
    Estimate how likely each position is examined, relative to the first, from clicks.

    The propensities, the log-likelihood, and whether EM has converged are printed. Nothing is written unless an
    output is named; `position-bias judgments --propensities` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """,
    settings=PropensitySettings,
    fields_without_option=frozenset({"propensity"}),
    reads=(_LOG,),
    writes=(
        Output(name="output", holds="propensities", about="Table of propensities to write: a folder or a catalog "
               "table."),
    ),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    long_rows=lambda settings: True,  # a pattern may have thousands of positions
    work="clicks.work:Propensities",
)  # fmt: skip


JUDGMENTS = Command(
    name="position-bias judgments",
    short="Labels weighted by inverse propensities.",
    about="""
    Make judgments from clicks: the mean over impressions of click / propensity.

    Propensities come from a table (--propensities), a column (--propensity-col) or a formula (--power). Nothing is
    written unless an output is named; the counts are printed. `ndcg-spark mean-ndcg --judgments` reads the table.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """,
    settings=WeightSettings,
    fields_without_option=frozenset({"run", "segment_sets", "confidence", "propensity_of"}),
    reads=(_LOG, _TABLE),
    writes=(
        Output(name="output", holds="judgments", about="Judgments table to write: a folder or a catalog table."),
    ),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    check=_check_source,
    long_rows=lambda settings: True,
    work="clicks.work:Judgments",
)


ESTIMATES = Command(
    name="position-bias estimates",
    short="Clicks per query, with intervals.",
    about="""
    Estimate clicks per query as if every impression had been examined, by IPS.

    Also prints SNIPS if the propensities are those of showing an item (--propensity-of action), standard errors,
    intervals and the effective sample size. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """,
    settings=WeightSettings,
    reads=(_LOG, _TABLE),
    writes=(
        Output(name="output", holds="estimates", about="Table of estimates to write: a folder or a catalog table."),
    ),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    check=_check_source,
    long_rows=lambda settings: True,
    work="clicks.work:Estimates",
)

POSITION_BIAS = CommandGroup(
    name="position-bias",
    about="Labels and estimates from clicks, corrected for the position at which items were shown.",
    commands=(PROPENSITIES, JUDGMENTS, ESTIMATES),
)
