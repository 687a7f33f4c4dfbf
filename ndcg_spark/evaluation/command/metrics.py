"""The command that lists metrics."""

from __future__ import annotations

import sys
from dataclasses import fields

import click

from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.metrics import all_metrics


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
