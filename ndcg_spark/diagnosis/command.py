"""The commands `diagnose nights` and `diagnose runs`, which explain why a mean changed."""

from __future__ import annotations

import click

from ndcg_spark.diagnosis.settings import ChangeJobSettings, RunsJobSettings, ShiftJobSettings
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.command import (
    JUDGMENTS,
    evaluation_options,
    rankings,
    read_evaluation_settings,
    refuse_unread_flags,
)
from ndcg_spark.jobs.command import Command, CommandGroup, Input, Request
from ndcg_spark.jobs.options import build_options, build_settings, merge_groups

NIGHTS = Command(
    name="diagnose nights",
    reads_results=True,
    short="Between two nights.",
    about="""
    Split the change of a mean between two nights into mix and within.

    Mix: the segments' shares of the queries changed. Within: the means of segments changed. Both are computed from
    the sums in the metric table; no ranking is read. They add up to the change.

    Exit codes: 0 done, 2 refused input or options, 130 interrupted.
    """,
    settings=ShiftJobSettings,
    reads=(
        Input(
            name="metric_table",
            about="Metric table, as --output of mean-ndcg writes it.",
            follows=("mean-ndcg.output",),
        ),
    ),
    nights={"before": -1, "after": 0},
    find_night_and_dataset=lambda settings: (settings.after, settings.dataset or ""),
    work="diagnosis.work:DiagnoseNights",
)


def _build_options() -> dict[str, list[click.Option]]:
    return merge_groups(
        build_options(ChangeJobSettings),
        evaluation_options(without=("tie_bounds", "confidence", "metrics", "allow_unmatched")),
    )


def _check_request(request: Request[RunsJobSettings]) -> None:
    refuse_unread_flags(request.settings.evaluation)
    chosen = request.settings.chosen
    if (chosen.baseline is None) != (chosen.run is None):
        raise InvalidParameterError(
            "--baseline and --run must be used together: they name the two runs whose queries changed."
        )


RUNS = Command(
    name="diagnose runs",
    short="Of one run, or between two.",
    about="""
    Report what runs lose against the ideal, and which queries changed most between two of them.

    NDCG is below 1 because relevant items were not retrieved, or because they were ranked too low; the two losses and
    NDCG add up to 1. With --baseline and --run, the queries that gained and lost most are listed with both lists side
    by side.

    Exit codes: 0 done, 2 refused input or options, 130 interrupted.
    """,
    settings=RunsJobSettings,
    options=_build_options,
    parse_settings=lambda values: RunsJobSettings(
        evaluation=read_evaluation_settings(values), chosen=build_settings(ChangeJobSettings, values)
    ),
    reads=(rankings("Rankings to diagnose: a path, a catalog table, or a SQL query."), JUDGMENTS),
    explains=True,
    check=_check_request,
    work="diagnosis.work:DiagnoseRuns",
)

DIAGNOSE = CommandGroup(
    name="diagnose",
    about="Find out why a mean changed, between nights or between runs.",
    commands=(NIGHTS, RUNS),
)
