"""The commands of `ndcg-spark`, by name: one is loaded when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import click

from ndcg_spark._version import __version__

_WHERE = {
    "mean-ndcg": "mean_ndcg:mean_ndcg",
    "retrieve": "retrieve:retrieve",
    "compare-runs": "compare_runs:compare_runs",
    "diagnose": "diagnose:diagnose",
    "build-judgments": "build_judgments:build_judgments",
    "position-bias": "position_bias:position_bias",
    "report": "make_report:report",
    "business-link": "business_link:business_link",
    "roll-up": "roll_up:roll_up",
    "flag-changes": "flag_changes:flag_changes",
    "conventions": "conventions:conventions",
    "metrics": "metrics:metrics",
}
"""Modules of this package and what they call the command."""


class _Commands(Mapping[str, click.Command]):
    """Commands by name, loaded when they are asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, attribute = _WHERE[name].partition(":")
        found: click.Command = getattr(import_module(f"ndcg_spark.cli.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


commands: Any = _Commands()  # click's annotation wants to add commands, which it does not do


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, commands=commands)
@click.version_option(__version__, prog_name="ndcg-spark")
def cli() -> None:
    """Evaluate rankings on Apache Spark: NDCG of every query, and its mean per ranker and segment."""
