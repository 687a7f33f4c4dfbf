"""Commands by name; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import click

from ndcg_spark.jobs.command import Command, CommandGroup

COMMANDS = {
    "nightly": "nights.command:nightly",
    "init": "nights.command:init",
    "mean-ndcg": "evaluation.command:MEAN_NDCG",
    "explain-difference": "evaluation.command:EXPLAIN_DIFFERENCE",
    "retrieve": "retrieval.command:RETRIEVE",
    "compare-runs": "comparison.command:COMPARE_RUNS",
    "diagnose": "diagnosis.command:DIAGNOSE",
    "build-judgments": "judgments.command:BUILD_JUDGMENTS",
    "position-bias": "clicks.command:POSITION_BIAS",
    "report": "reports.command:REPORT",
    "business-link": "business.command:BUSINESS_LINK",
    "roll-up": "history.command:ROLL_UP",
    "flag-changes": "history.command:FLAG_CHANGES",
    "conventions": "evaluation.command:conventions",
    "metrics": "evaluation.command:metrics",
}


def load_command(name: str) -> Command[Any] | CommandGroup | click.Command:
    """Import a command, or a group of commands, by the first word of the command line."""
    module, _, attribute = COMMANDS[name].partition(":")
    command: Command[Any] | CommandGroup | click.Command = getattr(import_module(f"ndcg_spark.{module}"), attribute)
    return command


def load_jobs() -> Iterator[Command[Any]]:
    """Import every command that is a job, including the members of groups."""
    for name in COMMANDS:
        yield from _load_group(name)


def find_job(name: str) -> Command[Any] | None:
    """Import the job of a name, which may be a member of a group; None if no job has it."""
    first = name.partition(" ")[0]
    return next((job for job in _load_group(first) if job.name == name), None) if first in COMMANDS else None


def _load_group(name: str) -> Sequence[Command[Any]]:
    command = load_command(name)
    if isinstance(command, CommandGroup):
        return command.commands
    return [command] if isinstance(command, Command) else []
