"""What a person reads of a diagnosis: tables at a terminal and in a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ndcg_spark.diagnosis.settings import ChangeJobSettings, ShiftJobSettings
from ndcg_spark.errors import printable
from ndcg_spark.jobs.printed import MOST_SEGMENTS, cell

WIDTH = 118
"""Of tables in a log, where no terminal says how wide it is."""
_PROFILE = 10


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def show_shifts(rows: list[dict[str, Any]], settings: ShiftJobSettings) -> None:
    """Print the shifts of segments between two nights: a table for each mean, whose total comes first in `rows`."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["metric"], row["k"], row["segment_by"]), []).append(row)
    for (run, metric, k, by), its in groups.items():
        title = f"{metric}@{_cutoff(k)} by {by}, {settings.before} to {settings.after}" + (
            f", run {run}" if run else ""
        )
        table = Table(title=cell(title))
        table.add_column(cell(by))
        for name in ("share before", "after", "mean before", "after", "mix", "within", "change"):
            table.add_column(name, justify="right")
        total = its[0]
        for row in [*its[1 : MOST_SEGMENTS + 1], total]:
            name = "all" if row["is_total"] else "null" if row["segment"] is None else row["segment"]
            shares = [f"{row[f'weight_{night}'] / total[f'weight_{night}']:.1%}" for night in ("before", "after")]
            means = [_number(row[f"value_{night}"]) for night in ("before", "after")]
            parts = [f"{row[part]:+.4f}" for part in ("mix", "within", "change")]
            table.add_row(cell(name), *shares, *means, *parts)
        _console().print(table)
        if len(its) > MOST_SEGMENTS + 1:
            print(f"... and {len(its) - MOST_SEGMENTS - 1} more segments; --json has all of them.")


def show_losses(rows: list[dict[str, Any]]) -> None:
    """Print what runs lose, from sorted rows of `summarize_losses`: means, and the gain of the first ranks."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["segment_by"], row["segment"], row["k"]), {})[row["metric"]] = row
    table = Table(title="what is lost: 1 = NDCG + not retrieved + ranked too low")
    for name in ("run", "segment", "k"):
        table.add_column(name)
    for name in ("queries", "NDCG", "not retrieved", "ranked too low", "best swap adds (DCG)"):
        table.add_column(name, justify="right")
    for (run, by, segment, k), its in list(groups.items())[:MOST_SEGMENTS]:
        name = "overall" if not by else f"{by} = {'null' if segment is None else segment}"
        shown = [its[metric]["value"] for metric in ("ndcg", "lost_not_retrieved", "lost_ranked_low", "swap_gain")]
        table.add_row(cell(run), cell(name), str(k), f"{its['ndcg']['n_queries']:,}", *map(_number, shown))
    _console().print(table)
    for (run, by, _, k), its in groups.items():
        ranks = [its[f"ndcg_rank_{rank}"]["value"] for rank in range(1, _PROFILE + 1) if f"ndcg_rank_{rank}" in its]
        if not by:
            named = f", run {printable(run)}" if run else ""
            print(f"NDCG@{k} by rank{named}: {'  '.join(map(_number, ranks))}")


def show_changes(queries: list[dict[str, Any]], keys: Sequence[str], chosen: ChangeJobSettings) -> None:
    """Print the queries that changed most, sorted rows of `changed_queries`, with both lists side by side."""
    for change in ("lost", "gained"):
        its = [row for row in queries if row["change"] == change]
        if not its:
            print(printable(f"No query {change} from {chosen.baseline} to {chosen.run}."))
            continue
        table = Table(title=cell(f"queries that {change} most from {chosen.baseline} to {chosen.run}"))
        for name in ("query", "change"):
            table.add_column(name)
        for run in (chosen.baseline, chosen.run):
            table.add_column(cell(f"{run}: item (relevance)"), overflow="fold")
        for row in its:
            query = ", ".join(str(row[name]) for name in keys)
            moved = f"{row['baseline_value']:.4f} -> {row['value']:.4f}"
            table.add_row(cell(query), moved, *(cell(_listed(row[name])) for name in ("baseline_list", "list")))
        _console().print(table)


def _listed(items: list[dict[str, Any]] | None) -> str:
    return "  ".join(_item(one) for one in items or [])


def _item(one: dict[str, Any]) -> str:
    relevance = "-" if one.get("relevance") is None else f"{one['relevance']:g}"
    return f"{one['item']} ({relevance})" if "item" in one else relevance


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _cutoff(k: int | None) -> str:
    return "all" if k is None else str(k)
