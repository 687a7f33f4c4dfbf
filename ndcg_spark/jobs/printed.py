"""What a person reads, whatever the job: cells, tables, intervals, gates; and the JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ndcg_spark.errors import json_printable, printable

MOST_SEGMENTS = 30


def cell(text: str, style: str = "") -> Text:
    """Make a cell of any text, such as a name from the data: brackets and colons in it are no markup and no emoji."""
    return Text(printable(text), style=style)


def interval_text(row: dict[str, Any]) -> str:
    """Mean and half of its interval, as text."""
    if row["value"] is None:
        return "-"
    if row["ci_high"] is None:
        return f"{row['value']:.4f}"
    return f"{row['value']:.4f} ± {(row['ci_high'] - row['ci_low']) / 2:.4f}"


def show_cells(title: str, rows: list[dict[str, str]]) -> None:
    """Print rows of named texts: a table at a terminal, else a line each.

    All rows have the same names; the first two texts stand without theirs in a line.
    """
    if not sys.stdout.isatty():
        for row in rows:
            first, second, *others = row.items()
            print(printable("  ".join([first[1], second[1], *(f"{name} {text}" for name, text in others)])))
        return
    table = Table(title=cell(title))
    for name in rows[0] if rows else ():
        table.add_column(cell(name))
    for row in rows:
        table.add_row(*map(cell, row.values()))
    Console().print(table)


def gate_line(gate: Mapping[str, Any], who: str) -> str:
    """Say whether a gate is met, by whom (empty: by one ranker without a name) and with what value."""
    value = "-" if gate["value"] is None else f"{gate['value']:.6f}"
    about = f"{who}: {value}" if who else value
    return printable(f"gate {gate['gate']}: {'met' if gate['met'] else 'NOT MET'} ({about})")


def to_json(outcome: dict[str, Any]) -> str:
    """Write an outcome as one line of JSON."""
    return json_printable(json.dumps(outcome, ensure_ascii=False, allow_nan=False, default=str))
