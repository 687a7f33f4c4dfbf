"""Definitions of the commands `roll-up` and `flag-changes`."""

from __future__ import annotations

from ndcg_spark.core.flag import list_settings
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.history.settings import FlagJobSettings, RollUpJobSettings
from ndcg_spark.jobs.command import Command, Input, Output, Request

METRIC_TABLE = Input(
    name="input",
    about="Metric table, as mean-ndcg --output writes it: a path or a catalog table.",
    follows=("mean-ndcg.output",),
    nights="until",
)

ROLL_UP = Command(
    name="roll-up",
    reads_results=True,
    short="Weeks, months and rolling weeks of metrics or comparisons.",
    about="""
    Add the nights of a metric table or comparison table up to ISO weeks, months and rolling seven days, exactly.

    Rankings are not read again: the states in the table are added, and the means are the same bits as of one
    evaluation of all queries of the period. Queries weigh, not days. Days without rows are named. When a night has
    changed, run it again with --from and --to set to that night. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 130 interrupted.
    """,
    settings=RollUpJobSettings,
    reads=(
        Input(name="input", about="Metric table or comparison table, as mean-ndcg and compare-runs --output write "
              "them: a path or a catalog table.", follows=("mean-ndcg.output",), nights="period"),
    ),
    writes=(
        Output(name="output", holds="periods", about="Table of periods to write: a folder or a catalog table."),
    ),
    find_night_and_dataset=lambda settings: (settings.roll_up.end, settings.rows.dataset or ""),
    nights={"start": 0, "end": 0},
    long_rows=lambda settings: True,  # stored replicates are long
    work="history.work:RollUp",
    local="history.local_work:LocalRollUp",
)  # fmt: skip


def _check_query(request: Request[FlagJobSettings]) -> None:
    default = next(setting.default for setting in list_settings(FlagJobSettings) if setting.field == "query")
    if request.settings.query != default and "per_query" not in request.sources:
        raise InvalidParameterError("--query-col names columns of --per-query, which is not given.")


FLAG_CHANGES = Command(
    name="flag-changes",
    reads_results=True,
    short="Nights that are far from what was usual.",
    about="""
    Flag nights of a metric table whose value is far from the earlier nights of the same weekday.

    The distance from their median is measured in spreads (1.482602218505602 times the median absolute deviation) or
    in standard errors of the night, whichever is larger. With too few earlier nights a night is held against the one
    before it; --per-query makes that a test of pairs. Each flag says its rule in words. Nothing is written unless an
    output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a night is flagged (with --fail-on-flag),
    130 interrupted.
    """,
    settings=FlagJobSettings,
    reads=(
        METRIC_TABLE,
        Input(name="per_query", about="Metrics of every query, as --per-query-output of mean-ndcg writes them: a "
              "night that is held against the night before it is compared query by query.", required=False,
              follows=("mean-ndcg.per_query_output",), nights="until"),
    ),
    writes=(
        Output(name="output", holds="flags", about="Table of the nights judged to write: a folder or a catalog "
               "table."),
    ),
    check=_check_query,
    nights={"end": 0},
    find_night_and_dataset=lambda settings: (settings.flags.end, settings.rows.dataset or ""),
    work="history.work:FlagChanges",
    local="history.local_work:LocalFlagChanges",
)  # fmt: skip
