"""What a person reads: a short table at a terminal, plain lines in a log; and the JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from ndcg_spark.errors import json_printable, printable
from ndcg_spark.evaluation.settings import SHOWN_FIRST
from ndcg_spark.history.settings import MANY_REJECTED
from ndcg_spark.jobs.cells import cell
from ndcg_spark.metrics.normalized_gain import NDCG, TIE_BOUNDS

MOST_SEGMENTS = 30
NEARLY_CONSTANT = 0.5


def sort_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Order of summary rows: runs, overall before segments, segments by name, metrics, cutoffs; null last."""
    metric = SHOWN_FIRST.index(row["metric"]) if row["metric"] in SHOWN_FIRST else len(SHOWN_FIRST)
    k = math.inf if row["k"] is None else row["k"]
    return row["run"], row["segment_by"], row["segment"] is None, row["segment"] or "", metric, row["metric"], k


def show_summary(summary: list[dict[str, Any]]) -> None:
    """Print means per run and segment, from sorted rows: a table at a terminal, else a line a group."""
    bounds = {one.name for one in TIE_BOUNDS}
    beside = {one.name for one in NDCG.comes_with} | bounds
    rows = [row for row in summary if row["metric"] not in beside]
    rows = rows or [row for row in summary if row["metric"] not in bounds] or summary
    groups: dict[tuple[str, str, str | None], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["segment_by"], row["segment"]), []).append(row)
    shown = list(groups)[:MOST_SEGMENTS]
    if sys.stdout.isatty():
        _show_table({key: groups[key] for key in shown})
    else:
        for key in shown:
            print(_line(groups[key]))
    if len(groups) > len(shown):
        print(f"... and {len(groups) - len(shown)} more groups; --output and --json have all of them.")


def _show_table(groups: dict[tuple[str, str, str | None], list[dict[str, Any]]]) -> None:
    first = next(iter(groups.values()), [])
    with_runs = any(run for run, _, _ in groups)
    only_ndcg = all(row["metric"] == "ndcg" for row in first)
    table = Table(title=f"mean{' NDCG' if only_ndcg else ''} (± half of the interval)")
    if with_runs:
        table.add_column("run")
    table.add_column("segment")
    table.add_column("queries", justify="right")
    for row in first:
        table.add_column(f"@{_cutoff(row['k'])}" if only_ndcg else _name(row), justify="right")
    for (run, by, segment), rows in groups.items():
        name = "overall" if not by else f"{by} = {_segment(segment)}"
        cells = [interval_text(row) for row in rows]
        table.add_row(*([cell(run)] if with_runs else []), cell(name), f"{rows[0]['n_queries']:,}", *cells)
    Console().print(table)


def _line(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    run = f"run={first['run']} " if first["run"] else ""
    segment = f"{first['segment_by']}={_segment(first['segment'])}" if first["segment_by"] else "overall"
    values = "  ".join(f"{_name(row)} {interval_text(row)}" for row in rows)
    return f"{printable(run + segment)} queries={first['n_queries']}  {values}"


def _segment(segment: str | None) -> str:
    return "null" if segment is None else segment


def _name(row: dict[str, Any]) -> str:
    return f"{row['metric']}@{_cutoff(row['k'])}"


def _cutoff(k: int | None) -> str:
    return "all" if k is None else str(k)


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


def counted_rows(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Overall rows, one a run, by which rows and queries are counted: at the largest cutoff of a metric.

    Of the first one, or of one with more queries: some metrics have no value for some queries.
    """
    last = {(row["run"], row["metric"]): row for row in summary if not row["segment_by"]}
    found: dict[str, dict[str, Any]] = {}
    for (run, _), row in last.items():
        if run not in found or row["n_queries"] > found[run]["n_queries"]:
            found[run] = row
    return list(found.values())


def counts_line(outcome: dict[str, Any]) -> str:
    """Say what became of rows and queries, in a line."""
    rows, queries = outcome["rows"], outcome["queries"]
    parts = [f"rows: {rows['read']:,} read = {rows['evaluated']:,} evaluated"]
    parts.append(f"{rows['rejected']:,} rejected + {rows['left_out']:,} left out by rule")
    counted = [f"{queries['in_mean']:,} in the mean"]
    for name in ("no_relevant", "missing", "unjudged"):
        counted.append(f"{queries[name]:,} {name.replace('_', ' ')}")
    return f"{' + '.join(parts)}; queries: {', '.join(counted)}"


def gate_line(gate: Mapping[str, Any], who: str) -> str:
    """Say whether a gate is met, by whom (empty: by one ranker without a name) and with what value."""
    value = "-" if gate["value"] is None else f"{gate['value']:.6f}"
    about = f"{who}: {value}" if who else value
    return printable(f"gate {gate['gate']}: {'met' if gate['met'] else 'NOT MET'} ({about})")


def rejected_lines(outcome: dict[str, Any]) -> list[str]:
    """Say why rows were rejected, and how many queries lost all of theirs, in a line for each table.

    Empty where no row was rejected. The last line says if many were.
    """
    lost = outcome["queries"]["lost"]
    queries = f"; {lost:,} {'query lost all its' if lost == 1 else 'queries lost all their'} rows" if lost else ""
    tables = [("", outcome["rows"]["rejected_by_reason"], queries)]
    tables.append(("judgments: ", outcome.get("judgment_rows", {}).get("rejected", {}), ""))
    found = [f"{table}{reasons_text(reasons)}{rest}" for table, reasons, rest in tables if reasons]
    n_rejected, read = sum(outcome["rows"]["rejected_by_reason"].values()), outcome["rows"].get("read", 0)
    if read and (share := n_rejected / read) >= MANY_REJECTED:
        found.append(f"{share:.1%} of the rows were rejected; --max-reject-fraction refuses a night with so many")
    return found


def reasons_text(reasons: dict[str, int]) -> str:
    """Count rejected rows, and those of each reason."""
    parts = ", ".join(f"{reason} {n:,}" for reason, n in reasons.items())
    return f"{sum(reasons.values()):,} rejected: {parts}"


def tie_warnings(summary: list[dict[str, Any]]) -> list[str]:
    """Warn of scorers whose first k ranks are mostly one tie group; empty where tie bounds were not asked for."""
    shares = [row for row in summary if row["metric"] == "tied_share" and not row["segment_by"]]
    return [
        f"warning: run {row['run']!r} is nearly constant: on average {row['value']:.0%} of the first {row['k']} "
        "ranks tie with items beyond them"
        for row in shares
        if row["value"] is not None and row["value"] > NEARLY_CONSTANT
    ]


def to_json(outcome: dict[str, Any]) -> str:
    """Write an outcome as one line of JSON."""
    return json_printable(json.dumps(outcome, ensure_ascii=False, allow_nan=False, default=str))
