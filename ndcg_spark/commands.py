"""The commands of `ndcg-spark`, by name: one is loaded when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import click

from ndcg_spark._version import __version__
from ndcg_spark.jobs.command import Command, CommandGroup

_WHERE = {
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


def _loaded(name: str) -> Command[Any] | CommandGroup | click.Command:
    module, _, attribute = _WHERE[name].partition(":")
    found: Command[Any] | CommandGroup | click.Command = getattr(import_module(f"ndcg_spark.{module}"), attribute)
    return found


def all_jobs() -> Iterator[Command[Any]]:
    """Load every command that is a job, those of groups one by one."""
    for one in map(_loaded, _WHERE):
        yield from (one.commands if isinstance(one, CommandGroup) else [one] if isinstance(one, Command) else [])


class _Commands(Mapping[str, click.Command]):
    def __getitem__(self, name: str) -> click.Command:
        found = _loaded(name)
        return found.as_click() if isinstance(found, Command | CommandGroup) else found

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


commands: Any = _Commands()  # click's annotation wants to add commands, which it does not do


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, commands=commands)
@click.version_option(__version__, prog_name="ndcg-spark")
def cli() -> None:
    """Evaluate rankings on Apache Spark: NDCG of every query, and its mean per ranker and segment."""
