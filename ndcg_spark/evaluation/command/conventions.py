"""The command that lists conventions."""

from __future__ import annotations

import sys

import click

from ndcg_spark.conventions import ABOUT, PRESETS
from ndcg_spark.jobs.needed_packages import needed_packages


@click.command("conventions")
def conventions() -> None:
    """List the conventions: what each changes against the default, and which tool it reproduces."""
    with needed_packages():
        from rich import box
        from rich.console import Console
        from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in ("convention", "against the default", "reproduces"):
        table.add_column(name, overflow="fold")
    for name, convention in PRESETS.items():
        changes = ", ".join(f"{choice}={value}" for choice, value in convention.differences().items())
        table.add_row(name, changes or "-", ABOUT[name])
    Console(width=None if sys.stdout.isatty() else 120).print(table)
