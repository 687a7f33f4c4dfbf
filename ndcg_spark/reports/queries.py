"""Queries of a report: their distribution, the lowest, those that lost the most, and those that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.rules import format_difference
from ndcg_spark.reports.contents import (
    ChangedQuery,
    Distribution,
    ListedItem,
    QueryRow,
    Row,
    RunResult,
    Section,
    name_run,
    read,
)
from ndcg_spark.reports.reading import BEFORE, SEPARATOR, VALUE, QueryTable, Rows, Scope, TextTable, require_rules
from ndcg_spark.reports.wording import clean_text, format_day, join_names

T = TypeVar("T", QueryRow, ChangedQuery)
CHANGE_COLUMNS = ("change", "place", "run", "baseline", "metric", "k", "baseline_value", "value", "difference",
                  "weight", "baseline_list", "list")  # fmt: skip
"""Columns of `changed_queries` except those that name a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries(Section):
    """Distribution of queries, the lowest, and those that lost the most against an earlier night or a run."""

    distributions: tuple[Distribution, ...] = ()
    lowest: tuple[QueryRow, ...] = ()
    losses: tuple[QueryRow, ...] = ()
    losses_against: str = ""

    @classmethod
    def read(cls, table: QueryTable | None, results: Sequence[RunResult], texts: TextTable | None = None) -> Queries:
        """Read the queries of a night, and their texts."""
        if table is None:
            return cls()
        queries = cls._read(table, results)
        if texts is None:
            return queries
        rows = add_texts((*queries.lowest, *queries.losses), table.keys, texts)
        n_lowest = len(queries.lowest)
        return replace(queries, lowest=rows[:n_lowest], losses=rows[n_lowest:])

    @classmethod
    def _read(cls, table: QueryTable, results: Sequence[RunResult]) -> Queries:
        scope, baseline = table.scope, table.scope.baseline
        rules = table.list_rules(scope.run_date)
        for run, texts in rules.items():
            require_rules(results, run, texts, "per-query table")
        distributions = table.count_distributions()
        if not distributions:
            raise InputRefusedError(f"the per-query table has no rows of {scope}.")
        queries = cls(distributions=distributions, lowest=name_queries(table.find_lowest(), table.keys))
        changed = any(result.change.kind == "incomparable" for result in results)
        before = scope.before if baseline is None and table.has_nights and not changed else None
        if baseline is None and before is None:
            return queries
        against = format_day(before) if baseline is None else clean_text(baseline)
        rules_before = {} if before is None else table.list_rules(before)
        differences = [format_difference([*texts, *rules.get(run, ())]) for run, texts in rules_before.items()]
        if any(differences) or (baseline is not None and format_difference(result.mean.rules for result in results)):
            not_covered = f"Losses against {against} are not shown: its values were computed by other rules."
            return replace(queries, not_covered=(not_covered,))
        losses = _put_losers_first(name_queries(table.find_losses(before=before, baseline=baseline), table.keys))
        others = [clean_text(run) for run, night in scope.earlier.items() if before is not None and night != before]
        names = join_names(map(name_run, others))
        lack = f"Queries that lost the most: not of {names}, without a result on {against}."
        return replace(queries, losses=losses, losses_against=against, left_out=(lack,) if others else ())


def _put_losers_first(rows: Sequence[QueryRow]) -> tuple[QueryRow, ...]:
    """Sort runs by their largest loss of a query; the order within a run stays."""
    largest = {row.run: 0.0 for row in rows}
    for row in rows:
        largest[row.run] = max(largest[row.run], abs(row.loss or 0.0))
    return tuple(sorted(rows, key=lambda row: -largest[row.run]))


def name_queries(rows: Rows, keys: Sequence[str]) -> tuple[QueryRow, ...]:
    """Build values from rows of a `QueryTable`; `keys` are the columns that name a query."""
    return tuple(
        read(QueryRow, row, query=_join_keys(row[key] for key in keys), value=row[VALUE], before=row.get(BEFORE))
        for row in rows
    )


def add_texts(rows: Sequence[T], keys: Sequence[str], texts: TextTable) -> tuple[T, ...]:
    """Add the text of each query; empty if it has none. `keys` are the columns that name a query."""
    text_by_query = texts.find_texts(keys, [row.query for row in rows])
    return tuple(replace(row, text=clean_text(text_by_query.get(row.query) or "")) for row in rows)


def read_changed_queries(
    changed: Iterable[Mapping[str, Any]], scope: Scope, texts: TextTable | None = None
) -> tuple[ChangedQuery, ...]:
    """Read rows of `changed_queries`; other columns are keys."""
    queries: list[ChangedQuery] = []
    keys: list[str] = []
    for row in _select_changes(changed, scope.limits.queries):
        first, second = ((row[name] or [])[: scope.limits.items] for name in ("baseline_list", "list"))
        keys = [name for name in row if name not in CHANGE_COLUMNS]
        query = _join_keys(row[name] for name in keys)
        lists = {"baseline_list": _pair_items(first, second), "run_list": _pair_items(second, first)}
        queries.append(read(ChangedQuery, row, query=query, **lists))
    return tuple(queries) if texts is None else add_texts(queries, keys, texts)


def _join_keys(keys: Iterable[Any]) -> str:
    """Name a query by its key columns."""
    return SEPARATOR.join(map(clean_text, keys))


def _pair_items(items: Sequence[Row], others: Sequence[Row]) -> tuple[ListedItem, ...]:
    """Give each item of a list its rank in the other list; None if lists have no names of items."""
    names, other_names = (
        [clean_text(item["item"]) if "item" in item else "" for item in ranking] for ranking in (items, others)
    )
    ranks = {name: rank for rank, name in enumerate(other_names, start=1) if name}
    return tuple(
        ListedItem(rank=rank, name=name, relevance=item.get("relevance"), other_rank=ranks.get(name))
        for rank, (name, item) in enumerate(zip(names, items, strict=True), start=1)
    )


def _select_changes(changed: Iterable[Mapping[str, Any]], limit: int) -> Rows:
    """Select up to `limit` rows of each kind of change, the largest first."""
    rows = [dict(row) for row in changed]
    missing = sorted({name for row in rows for name in CHANGE_COLUMNS if name not in row})
    if missing:
        raise InvalidParameterError(
            f"the changed queries are not rows of changed_queries: they lack {', '.join(missing)}."
        )
    largest = []
    for change in ("lost", "gained", "lower", "higher"):
        largest += sorted((row for row in rows if row["change"] == change), key=lambda row: int(row["place"]))[:limit]
    return largest
