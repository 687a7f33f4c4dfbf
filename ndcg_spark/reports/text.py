"""The plain form of a report, for terminals and logs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ndcg_spark.reports import sentences
from ndcg_spark.reports.contents import Contents, run_name
from ndcg_spark.reports.wording import count, cutoff_name, day, interval, listed, number, p_value, signed

MOST_ROWS = 20
"""Rows of a table; the page has more."""
Row = TypeVar("Row")


def print_report(contents: Contents, console: Console | None = None) -> None:
    """Print a report, by default on standard output; in a log lines are 100 characters wide."""
    out = console or Console(width=None if sys.stdout.isatty() else 100)
    when = f", {day(contents.run_date)}" if contents.run_date else ""
    out.print(Text(contents.title + when, style="bold"))
    out.print(Text(sentences.headline(contents)))
    if sentences.way_on(contents):
        out.print(Text(sentences.way_on(contents)))
    for _, line in sentences.changes(contents):
        out.print(Text(line))
    for line in sentences.attention(contents):
        out.print(Text(f"! {line}"))
    if sentences.gates_met(contents) and all(one.met for one in contents.gates):
        texts = dict.fromkeys(one.text for one in contents.gates)
        out.print(Text(f"{sentences.gates_met(contents)}: {listed(texts)}"))
    for row in contents.comparisons:
        if not row.by and row.verdict != "worse":
            out.print(Text(sentences.difference_text(row, contents)))
    for table in (
        _standings(contents),
        _curve(contents),
        _comparisons(contents),
        _segments(contents),
        _changed(contents),
        _queries(contents),
    ):
        if table is not None:
            out.print()
            out.print(table)
    out.print()
    out.print(Text(sentences.accounting_text(contents.accounting)))
    out.print(Text("queries: " + ", ".join(f"{count(n)} {name}" for name, n in contents.accounting.queries)))
    for one in contents.provenance:
        out.print(Text(f"convention {one.convention or 'unknown'}, configuration {one.config_hash or 'unknown'}"))
    for line in contents.left_out:
        out.print(Text(line))


def _table(title: str, *heads: str, texts: int = 1) -> Table:
    """Make a table whose first `texts` columns are text, the others numbers."""
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, head in enumerate(heads):
        table.add_column(Text(head), justify="left" if at < texts else "right", overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(one) for one in cells))  # as text: no cell is markup


def _standings(contents: Contents) -> Table | None:
    if len(contents.standings) < 2:
        return None
    table = _table(f"{contents.label} by ranker", "ranker", contents.label, "interval", "change", "queries")
    for one in contents.standings:
        mean, decimals = one.mean, contents.decimals
        change = f"{one.change.kind} {signed(one.change.difference, decimals)}" if one.change.difference else "-"
        bounds = interval(mean.low, mean.high, decimals)
        _add(table, run_name(mean.run), number(mean.value, decimals), bounds, change, count(mean.n_queries))
    return table


def _curve(contents: Contents) -> Table | None:
    cutoffs = list(dict.fromkeys(one.k for one in contents.curve))
    if len(cutoffs) < 2:
        return None
    shown = cutoffs[:10]
    table = _table(f"{contents.metric.upper()} at k", "ranker", *[cutoff_name(k) for k in shown])
    for run in contents.runs:
        values = {one.k: one.value for one in contents.curve if one.run == run}
        _add(table, run_name(run), *[number(values.get(k), contents.decimals) for k in shown])
    return table


def _comparisons(contents: Contents) -> Table | None:
    if not contents.comparisons:
        return None
    decimals = sentences.difference_decimals(contents)
    heads = ("ranker", "baseline", "segment", "verdict", "difference", "interval", "p (Holm)", "queries")
    table = _table(f"Differences in {contents.label}{_more(contents.comparisons)}", *heads, texts=4)
    for row in contents.comparisons[:MOST_ROWS]:
        _add(table, run_name(row.run), run_name(row.baseline), row.name, row.verdict.replace("_", " "),
             signed(row.difference, decimals), interval(row.low, row.high, decimals), p_value(row.p_holm),
             count(row.n_queries))  # fmt: skip
    return table


def _segments(contents: Contents) -> Table | None:
    if not contents.segments:
        return None
    title = f"{contents.label} by segment{_more(contents.segments)}"
    table = _table(title, "by", "segment", "ranker", contents.label, "interval", "queries", texts=3)
    for row in contents.segments[:MOST_ROWS]:
        mean, decimals = row.mean, contents.decimals
        n = count(mean.n_queries) + (" (few)" if mean.is_small else "")
        bounds = interval(mean.low, mean.high, decimals)
        _add(table, mean.by, mean.name, run_name(mean.run), number(mean.value, decimals), bounds, n)
    return table


def _changed(contents: Contents) -> Table | None:
    if not contents.changed:
        return None
    heads = ("query", "change", "ranker", "baseline", "from", "to")
    table = _table(f"Queries that lost and gained the most{_more(contents.changed)}", *heads, texts=4)
    for row in _first_of_each(contents.changed, lambda row: row.change):
        names = (row.query, row.change, run_name(row.run), run_name(row.baseline))
        _add(table, *names, number(row.before), number(row.value))
    return table


def _queries(contents: Contents) -> Table | None:
    if not contents.lowest:
        return None
    title = f"Lowest {contents.label}{_more(contents.lowest)}"
    table = _table(title, "query", "ranker", contents.label, "relevant", texts=2)
    for row in _first_of_each(contents.lowest, lambda row: row.run):
        _add(table, row.query, run_name(row.run), number(row.value), count(row.n_relevant))
    return table


def _more(rows: Sequence[object]) -> str:
    """Say in the title of a table how many rows it leaves out, if any."""
    rest = len(rows) - MOST_ROWS
    return f", {rest:,} more on the page" if rest > 0 else ""


def _first_of_each(rows: Sequence[Row], group: Callable[[Row], str]) -> list[Row]:
    """Cut rows to as many as are shown, the first ones of each group alike, in their order."""
    seen: Counter[str] = Counter()
    places = []
    for at, row in enumerate(rows):
        places.append((seen[group(row)], at))
        seen[group(row)] += 1
    return [rows[at] for at in sorted(at for _, at in sorted(places)[:MOST_ROWS])]
