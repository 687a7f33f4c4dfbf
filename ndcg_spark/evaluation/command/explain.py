"""What a job would do, for a person who wants to know before it runs."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import printable
from ndcg_spark.evaluation.command.inputs import Inputs
from ndcg_spark.jobs.cells import cell
from ndcg_spark.jobs.config import JobConfig, Target


def explain_job(inputs: Inputs, config: JobConfig) -> str:
    """Describe a job: how it ranks and why, what it costs, what it would write. Evaluates nothing.

    Reads what opening a table reads: schemas, footers of files, and of json the rows that tell its columns.
    """
    plan, ranking = inputs.plan, inputs.ranking  # finds missing columns and wrong types
    cutoffs = ", ".join("all" if k is None else str(k) for k in plan.cutoffs)
    changed = plan.convention.differences()
    choices = ", ".join(f"{name}={value}" for name, value in changed.items()) or "all as by default"
    segments = ", ".join("+".join(names) for names in plan.segment_sets) or "none"
    actions = 1 + sum(target is not None for target in (config.output, config.per_query_output, config.rejects))
    # Others count bad rows by reason (only if there are any) and rows of catalog tables, and write the run log.
    if plan.on_invalid == "reject":
        actions += 1 if inputs.judgments is None else 2
    # Means of a table with metrics of queries are made of that table.
    costs = ranking.costs(means_only=config.per_query_output is None)
    lines = [
        f"input        {inputs.name}",
        f"cutoffs      {cutoffs} (all in one pass)",
        f"metrics      {', '.join(map(str, plan.reported)) if plan.metrics else 'ndcg, dcg, idcg'}",
        f"convention   {plan.convention} (digest {plan.convention.digest}; {choices})",
        f"segments     {segments}",
        f"strategy     {ranking.strategy}",
        f"source       {ranking.source}: {ranking.reason}",
        f"cost         {'; '.join(costs)}; at least {actions} action{'s' if actions > 1 else ''}",
        f"bad rows     {plan.on_invalid}",
        f"would write  {_targets(config)}",
        "Nothing was evaluated or written.",
    ]
    return "\n".join(printable(redacted(line)) for line in lines)


def _targets(config: JobConfig) -> str:
    named: list[tuple[str, Target | None]] = [
        ("metrics", config.output),
        ("queries", config.per_query_output),
        ("rejects", config.rejects),
    ]
    found = [f"{what} to {target.reference}" for what, target in named if target is not None]
    night = f"replacing {config.run_date.isoformat()} of data set {config.dataset!r} only"
    return f"{', '.join(found)}, {night}" if found else "nothing"


def show_difference(steps: list[dict[str, Any]], queries: list[dict[str, Any]]) -> None:
    """Print how a gap between two conventions comes about: its steps, by run, and queries that carry most of it."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for run, rows in groupby(steps, key=lambda row: row["run"]):
        found = list(rows)
        table = Table(title=cell(f"run {run}") if run else None, box=box.SIMPLE)
        for name in ("part", "from", "to"):
            table.add_column(name)
        for name in ("mean NDCG", "contribution", "queries"):
            table.add_column(name, justify="right")
        for row in found:
            cells = [cell(one) for one in (row["part"] or "(start)", row["before"], row["after"])]
            table.add_row(*cells, _number(row["value"]), _number(row["contribution"]), str(row["n_queries"]))
        console.print(table)
        if found[0]["value"] is not None and found[-1]["value"] is not None:
            print(f"gap {found[-1]['value'] - found[0]['value']:+.6f}")
    print("queries that carry most of it:")
    for query in queries:
        named = ", ".join(f"{k}={v}" for k, v in query.items() if k not in _QUERY_VALUES and v != "")
        values = f"{_number(query['value_a'])} -> {_number(query['value_b'])}"
        print(printable(f"  {named}: {values}, {query['contribution']:+.6f} of the gap"))


_QUERY_VALUES = ("value_a", "value_b", "contribution")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"
