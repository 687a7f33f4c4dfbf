"""The commands that list conventions and metrics."""

from __future__ import annotations

import sys
from dataclasses import fields

import click

from ndcg_spark.conventions import ABOUT, PRESETS
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.metrics import all_metrics


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


@click.command("metrics")
def metrics() -> None:
    """List the metrics: their parameters with defaults, what they are, and where they come from."""
    with needed_packages():
        from rich import box
        from rich.console import Console
        from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in ("metric", "parameters", "value of a query", "needs", "source"):
        table.add_column(name, overflow="fold", no_wrap=name == "metric")
    for name, metric in all_metrics().items():
        shown = f"{name}@k" if metric.takes_cutoff else name
        if metric.aliases:
            shown += f"\n({', '.join(metric.aliases)})"
        parameters = [
            f"{one.name}={one.default:g}" if isinstance(one.default, float) else f"{one.name}={one.default}"
            for one in fields(metric)
        ]
        needs = ", ".join(map(str, metric().needs)) or "relevances"
        table.add_row(shown, "\n".join(parameters) or "-", metric.about, needs, metric.source)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
