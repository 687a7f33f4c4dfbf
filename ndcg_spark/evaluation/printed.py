"""Printed results of an evaluation: a short table on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ndcg_spark.core import labels
from ndcg_spark.errors import escape_unprintable, option
from ndcg_spark.evaluation.settings import REJECT_WARNING_SHARE, EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS, N_LOST
from ndcg_spark.evaluation.tasks.scoring import list_uncounted_statuses
from ndcg_spark.jobs.printing import MAX_SEGMENTS, make_cell
from ndcg_spark.metrics.judged import Judged
from ndcg_spark.metrics.normalized_gain import NDCG, TIE_BOUNDS

NEARLY_CONSTANT = 0.5


def show_summary(summary: list[dict[str, Any]]) -> None:
    """Print means per run and segment from sorted rows: a table on a terminal, else one line per group."""
    bounds = {metric.name for metric in TIE_BOUNDS}
    companions = {metric.name for metric in NDCG.comes_with} | bounds
    rows = [row for row in summary if row["metric"] not in companions]
    rows = rows or [row for row in summary if row["metric"] not in bounds] or summary
    groups: dict[tuple[str, str, str | None], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["segment_by"], row["segment"]), []).append(row)
    shown = list(groups)[:MAX_SEGMENTS]
    if sys.stdout.isatty():
        _show_table({key: groups[key] for key in shown})
    else:
        for key in shown:
            print(_format_line(groups[key]))
    if len(groups) > len(shown):
        print(f"... and {len(groups) - len(shown)} more groups; --output and --json have all of them.")


def _show_table(groups: dict[tuple[str, str, str | None], list[dict[str, Any]]]) -> None:
    first = next(iter(groups.values()), [])
    with_runs = any(run for run, _, _ in groups)
    table = Table(title="means (± half of the interval)")
    if with_runs:
        table.add_column("run")
    table.add_column("segment")
    table.add_column("queries", justify="right")
    for row in first:
        table.add_column(labels.metric(row), justify="right")
    for (run, by, segment), rows in groups.items():
        label = make_cell(labels.segment_at(by, segment))
        cells = map(labels.mean, rows)
        table.add_row(*([make_cell(run)] if with_runs else []), label, f"{rows[0]['n_queries']:,}", *cells)
    Console().print(table)


def _format_line(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    run = f"run={first['run']} " if first["run"] else ""
    values = "  ".join(f"{labels.metric(row)} {labels.mean(row)}" for row in rows)
    return f"{escape_unprintable(run + labels.segment(first))} queries={first['n_queries']}  {values}"


def select_overall_rows(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Select one overall row per run at the largest cutoff, of the metric with the most queries."""
    last_rows = {(row["run"], row["metric"]): row for row in summary if not row["segment_by"]}
    by_run: dict[str, dict[str, Any]] = {}
    for (run, _), row in last_rows.items():
        if run not in by_run or row["n_queries"] > by_run[run]["n_queries"]:
            by_run[run] = row
    return list(by_run.values())


def format_counts(rows: Mapping[str, Any], queries: str) -> str:
    """Format the counts of rows and, from `format_query_counts`, of queries in a line."""
    parts = [f"rows: {rows['read']:,} read = {rows['evaluated']:,} evaluated"]
    parts.append(f"{rows['rejected']:,} rejected + {rows['left_out']:,} left out by rule")
    return f"{' + '.join(parts)}; {queries}"


def format_query_counts(
    queries: Mapping[str, int], settings: EvaluationSettings, outside: Collection[str], *, n_runs: int = 1
) -> str:
    """Format the number of queries in the mean, and by status. Queries with a status in `outside` are in no mean."""
    subject = "queries" if n_runs == 1 else f"queries, those of {n_runs} runs added up"
    text = f"{subject}: {queries['in_mean']:,} in the mean"
    # Metrics without a value for an empty list leave out queries of any status, and means those of weight 0.
    if settings.columns.weight is not None or all(
        metric_at.metric.undefined for metric_at in settings.computed if metric_at.shown
    ):
        return f"{text}; of all {', '.join(f'{queries[status]:,} {words}' for status, words in _STATUSES.items())}"
    included = [f"{queries[status]:,} {words}" for status, words in _STATUSES.items() if status not in outside]
    excluded = [f"{queries[status]:,} {words}" for status, words in _STATUSES.items() if status in outside]
    text += f", among them {', '.join(included)}" if included else ""
    return text + (f"; left out: {', '.join(excluded)}" if excluded else "")


_STATUSES = {"no_relevant": "with nothing relevant", "missing": "missing", "unjudged": "unjudged"}


def format_notes(
    summary: list[dict[str, Any]], settings: EvaluationSettings, *, has_judgments_table: bool
) -> list[str]:
    """Format lines below means on missing and left out queries, and on runs with different queries."""
    overall = select_overall_rows(summary)
    totals = {column: sum(int(row[column] or 0) for row in overall) for column in GROUP_COUNTS}
    lines = []
    if totals["n_missing"] or totals["n_unjudged"] or totals["n_no_relevant"]:
        queries = {"in_mean": totals["n_queries"], **{column: totals[f"n_{column}"] for column in _STATUSES}}
        lines.append(
            format_query_counts(
                queries,
                settings,
                list_uncounted_statuses(settings.convention),
                n_runs=sum(row["run"] is not None for row in overall),
            )
        )
    if totals[N_REJECTED]:
        lines.append(f"rows: {totals[N_REJECTED]:,} rejected; queries that lost all of theirs: {totals[N_LOST]:,}")
    return lines + compare_query_counts(overall, settings, has_judgments_table=has_judgments_table)


def compare_query_counts(
    overall: list[dict[str, Any]], settings: EvaluationSettings, *, has_judgments_table: bool
) -> list[str]:
    """Report runs of a table with different numbers of queries: a run is not penalized for missing queries."""
    if has_judgments_table or settings.columns.run is None:
        return []
    outside = [
        f"n_{column}" for column in list_uncounted_statuses(settings.convention) if f"n_{column}" in GROUP_COUNTS
    ]
    n_queries = {row["run"]: row["n_queries"] + sum(row[column] for column in outside) for row in overall}
    n_queries.pop(None, None)  # rejected rows without a run
    if len(n_queries) < 2:
        return []
    smallest, largest = (
        min(n_queries, key=lambda run: (n_queries[run], run)),
        max(n_queries, key=lambda run: (n_queries[run], run)),
    )
    if n_queries[smallest] == n_queries[largest]:
        return []
    numbers = f"{smallest!r} has {n_queries[smallest]:,}, {largest!r} {n_queries[largest]:,}"
    return [
        f"runs have different numbers of queries: {numbers}. Means count missing queries as 0 only if relevances are "
        f"in a separate table ({option('judgments')})."
    ]


def format_rejects(
    rows: Mapping[str, Any], queries: Mapping[str, int], judgment_rows: Mapping[str, Any] | None = None
) -> list[str]:
    """Format rejected rows of each table by reason, queries that lost all rows, and a warning if they are many."""
    lost = queries["lost"]
    lost_text = f"; {lost:,} {'query lost all its' if lost == 1 else 'queries lost all their'} rows" if lost else ""
    tables = [("", rows["rejected_by_reason"], lost_text)]
    tables.append(("judgments: ", (judgment_rows or {}).get("rejected", {}), ""))
    lines = [f"{table}{format_reasons(reasons)}{rest}" for table, reasons, rest in tables if reasons]
    n_rejected, read = sum(rows["rejected_by_reason"].values()), rows.get("read", 0)
    if read and (share := n_rejected / read) >= REJECT_WARNING_SHARE:
        lines.append(f"{share:.1%} of the rows were rejected; --max-reject-fraction refuses such a night")
    return lines


def format_reasons(reasons: dict[str, int]) -> str:
    parts = ", ".join(f"{reason} {n:,}" for reason, n in reasons.items())
    return f"{sum(reasons.values()):,} rejected: {parts}"


def format_unjudged(summary: list[dict[str, Any]]) -> list[str]:
    """Format the number of unjudged items among the first k at the largest cutoff; empty if there are none."""
    overall = [row for row in summary if not row["segment_by"]]
    k = max((row["k"] for row in overall), key=labels.cutoff_order, default=None)
    by_run = {row["run"]: row["n_unjudged_items"] or 0 for row in overall if row["k"] == k}
    n = sum(by_run.values())
    if not n:
        return []
    subject = "items" if len(by_run) == 1 else f"items, those of {len(by_run)} runs added up"
    metric = labels.metric_at(Judged.name, k)
    share = "" if any(row["metric"] == Judged.name for row in summary) else f"; see the metric {metric}"
    where = "in the lists" if k is None else f"among the first {k}"
    return [f"{subject}: {n:,} {where} {'is' if n == 1 else 'are'} unjudged{share}"]


def warn_ties(summary: list[dict[str, Any]]) -> list[str]:
    """Warn about scorers whose first k ranks are mostly tied with later ranks. Needs tie bounds."""
    shares = [row for row in summary if row["metric"] == "tied_share" and not row["segment_by"]]
    return [
        f"warning: run {row['run']!r} is nearly constant: on average {row['value']:.0%} of the first {row['k']} "
        "ranks tie with items beyond them"
        for row in shares
        if row["value"] is not None and row["value"] > NEARLY_CONSTANT
    ]


def show_difference(steps: list[dict[str, Any]], queries: list[dict[str, Any]]) -> None:
    """Print the steps of the gap between two conventions, by run, and the queries with the largest contributions."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for run, rows in groupby(steps, key=lambda row: row["run"]):
        run_steps = list(rows)
        table = Table(title=make_cell(f"run {run}") if run else None, box=box.SIMPLE)
        for name in ("part", "from", "to"):
            table.add_column(name)
        for name in ("mean NDCG", "contribution", "queries"):
            table.add_column(name, justify="right")
        for row in run_steps:
            cells = [make_cell(text) for text in (row["part"] or "(start)", row["before"], row["after"])]
            numbers = [labels.number(row[name], ".6f") for name in ("value", "contribution")]
            table.add_row(*cells, *numbers, str(row["n_queries"]))
        console.print(table)
        if run_steps[0]["value"] is not None and run_steps[-1]["value"] is not None:
            print(f"gap {run_steps[-1]['value'] - run_steps[0]['value']:+.6f}")
    print("queries with the largest contributions:")
    for query in queries:
        name = labels.key({name: value for name, value in query.items() if name not in _QUERY_VALUES and value != ""})
        values = " -> ".join(labels.number(query[side], ".6f") for side in ("value_a", "value_b"))
        print(escape_unprintable(f"  {name}: {values}, {query['contribution']:+.6f} of the gap"))


_QUERY_VALUES = ("value_a", "value_b", "contribution")
