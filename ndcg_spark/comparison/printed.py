"""Print a comparison: a table on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ndcg_spark.comparison.settings import ComparisonSettings, describe_unpaired
from ndcg_spark.core import labels
from ndcg_spark.core.student import POWER, upper_p
from ndcg_spark.errors import escape_unprintable
from ndcg_spark.jobs.printing import MAX_SEGMENTS, make_cell
from ndcg_spark.metrics import direction_of

_COLOURS = {"better": "green", "worse": "red"}
_CLEAR = (*_COLOURS, "higher", "lower")
"""Verdicts on clear differences; the last two are for metrics without a better direction."""


def show_comparison(rows: list[dict[str, Any]], settings: ComparisonSettings, *, verbose: bool) -> None:
    """Print the sorted rows of a comparison: up to three lines for each pair or, if `verbose`, all groups."""
    tested = [row for row in rows if row["verdict"] is not None]  # companions have no verdict
    if verbose:
        _print_rows(tested, settings)
        return
    for pair in dict.fromkeys((row["run"], row["baseline"]) for row in tested):
        for line in format_pair([row for row in tested if (row["run"], row["baseline"]) == pair], settings):
            print(escape_unprintable(line))


def _print_rows(tested: list[dict[str, Any]], settings: ComparisonSettings) -> None:
    for row in tested:
        if not row["segment_by"]:
            for line in format_sentences(row, settings):
                print(escape_unprintable(line))
    printed = sorted(tested, key=sort_key)[:MAX_SEGMENTS]
    if sys.stdout.isatty():
        _print_table(printed, settings)
    else:
        for row in printed:
            baseline, run, difference, lift, _ = _format_numbers(row)
            p = format_adjusted_p(row) if row["p_holm"] is not None else "no test"
            about = f"run={row['run']} baseline={row['baseline']} {labels.segment(row)} queries={row['n_queries']}"
            values = f"{labels.metric(row)} {baseline} -> {run}  {difference}  lift {lift}  {p}"
            print(escape_unprintable(f"{about}  {values}  {format_verdict(row)}"))
    if len(tested) > len(printed):
        more = len(tested) - len(printed)
        print(f"... and {more:,} more row{'s' if more > 1 else ''}; --output and --json have all of them.")


def sort_key(row: dict[str, Any]) -> tuple[bool, bool, float]:
    """Sort all queries first, then segments with a clear difference, largest first, then other segments."""
    of_segment = bool(row["segment_by"])
    return of_segment, of_segment and row["verdict"] == "unclear", -abs(row["difference"] or 0.0) * of_segment


def format_pair(rows: list[dict[str, Any]], settings: ComparisonSettings) -> list[str]:
    """Format missing queries, the result of the first metric at its largest cutoff, and a summary of the others."""
    first = str(settings.metrics[0].metric)
    overall = [row for row in rows if not row["segment_by"]]
    main = max(overall, key=lambda row: (row["metric"] == first, labels.cutoff_order(row["k"])))
    finding = format_sentence(main, settings)
    needed = _format_needed(main, settings).removeprefix(f"{labels.metric(main)}: ")
    if needed:
        finding += f" {needed[0].upper()}{needed[1:]}"
    return [
        line
        for line in (
            _format_missing(main),
            finding,
            _summarize_others([row for row in rows if row is not main], main, settings.margin),
        )
        if line
    ]


def _summarize_others(rows: list[dict[str, Any]], main: dict[str, Any], margin: float) -> str:
    """Count the verdicts on other metrics, cutoffs and segments, each with its largest clear difference."""
    if not rows:
        return ""
    fields = {"metrics": "metric", "cutoffs": "k", "segments": "segment_by"}
    varying = [label for label, field in fields.items() if len({row[field] for row in [*rows, main]}) > 1]
    counts = []
    for verdict in dict.fromkeys([*_CLEAR, *sorted({row["verdict"] for row in rows})]):
        with_verdict = [row for row in rows if row["verdict"] == verdict]
        if with_verdict:
            about = f", {_format_largest(with_verdict, varying)}" if verdict in _CLEAR else ""
            if verdict == "not_worse":
                about = f" (interval excludes a loss{f' of {margin:g} or more' if margin else ''})"
            counts.append(f"{len(with_verdict):,} {format_verdict({**with_verdict[0], 'note': ''})}{about}")
    others = " and ".join(filter(None, (", ".join(varying[:-1]), varying[-1])))
    by = "By segment" if varying == ["segments"] else f"Other {others}"
    whole = f"--verbose (in a file: verbose = true) prints {'them' if len(rows) > 1 else 'it'}."
    return f"{by}: {'; '.join(counts)}; {whole}"


def _format_largest(rows: list[dict[str, Any]], varying: list[str]) -> str:
    row = max(rows, key=lambda other: abs(other["difference"]))
    parts = [labels.segment(row)] * ("segments" in varying) + [labels.metric(row)] * (varying != ["segments"])
    return f"{'most ' if len(rows) > 1 else ''}{row['difference']:+.4f} ({', '.join(parts)})"


def format_sentences(row: dict[str, Any], settings: ComparisonSettings) -> list[str]:
    """Format a row over all queries in up to three lines: missing queries, the result, and the power."""
    return [
        line for line in (_format_missing(row), format_sentence(row, settings), _format_needed(row, settings)) if line
    ]


def _format_missing(row: dict[str, Any]) -> str:
    """Format how many queries of the other run each run lacks, and how they count."""
    run, baseline = _format_run(row), _format_baseline(row)
    lacks = ((run, row["n_only_baseline"], baseline), (baseline, row["n_only_run"], run))
    clauses = [f"{one} lacks {n:,} quer{'y' if n == 1 else 'ies'} of {other}" for one, n, other in lacks if n]
    treatment = describe_unpaired(row["unpaired"], row["metric"])
    return f"{labels.metric(row)}: {' and '.join(clauses)}, {treatment}." if clauses else ""


def _format_needed(row: dict[str, Any], settings: ComparisonSettings) -> str:
    """Format the queries that `effect` needs or, if the verdict is unclear, the difference that is detectable."""
    metric, power = labels.metric(row), f"(one test, power {POWER:.0%})"
    if row["n_required"] is not None:
        return f"{metric}: to detect {settings.effect:+g} you would need {row['n_required']:,} queries {power}."
    if row["verdict"] != "unclear" or row["mde"] is None:
        return ""
    return f"{metric}: {row['n_queries']:,} queries detect a difference of {row['mde']:.4f} or more {power}."


def format_sentence(row: dict[str, Any], settings: ComparisonSettings) -> str:
    if row["difference"] is None:
        return f"{labels.metric(row)}: no query of {_format_run(row)} can be compared with {_format_baseline(row)}."
    if row["n_queries"] and not row["n_wins"] and not row["n_losses"]:
        each = f"each of {row['n_queries']:,} queries" if row["n_queries"] > 1 else "the query"
        return f"{labels.metric(row)}: {_format_run(row)} and {_format_baseline(row)} have the same value for {each}."
    details = f"{row['difference']:+.4f}"
    if row["ci_low"] is not None:
        details += f", {1 - settings.alpha:.0%} interval {labels.interval(row['ci_low'], row['ci_high'], '+.4f')}"
    if row["verdict"] == "not_worse" and settings.margin and row["std_error"]:
        gained = row["difference"] if direction_of(row["metric"]) else -row["difference"]
        p = upper_p((gained + settings.margin) / row["std_error"], row["df"])
        details += f", one-sided p {_format_p(p)}, not adjusted"
    elif row["p_holm"] is not None:
        details += f", {format_adjusted_p(row)}"
    verb = {
        "better": "is better than",
        "worse": "is worse than",
        "higher": "is higher than",
        "lower": "is lower than",
        "not_worse": f"is at most {settings.margin:g} worse than" if settings.margin else "is not worse than",
        "unclear": "may or may not differ from",
    }[row["verdict"]]
    queries = f"{row['n_queries']:,} queries"
    return f"{labels.metric(row)}: {_format_run(row)} {verb} {_format_baseline(row)} ({details}; {queries})."


def _format_run(row: dict[str, Any]) -> str:
    """Format the name of a run; a run without a name is "the run"."""
    return str(row["run"]) or "the run"


def _format_baseline(row: dict[str, Any]) -> str:
    return str(row["baseline"]) or "the baseline"


def _print_table(rows: list[dict[str, Any]], settings: ComparisonSettings) -> None:
    table = Table(title="comparison of runs over the same queries")
    pairs = {(row["run"], row["baseline"]) for row in rows}
    if len(pairs) > 1:
        table.add_column("runs")
    table.add_column("segment")
    table.add_column("metric")
    for column in (
        "queries",
        "baseline",
        "run",
        f"difference ({1 - settings.alpha:.0%} interval)",
        "lift",
        "p (Holm)",
    ):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for row in rows:
        verdict = format_verdict(row)
        colour = _COLOURS.get(row["verdict"], "default")
        cells: list[str | Text] = [
            make_cell(labels.segment(row)),
            labels.metric(row),
            f"{row['n_queries']:,}",
            *_format_numbers(row),
            make_cell(verdict, colour),
        ]
        table.add_row(*([make_cell(f"{row['run']} - {row['baseline']}")] if len(pairs) > 1 else []), *cells)
    Console().print(table)


def _format_numbers(row: dict[str, Any]) -> list[str]:
    p = "-" if row["p_holm"] is None else _format_p(row["p_holm"])
    means = [labels.number(row[column]) for column in ("baseline_value", "value")]
    return [*means, labels.estimate(row, "difference", form="+.4f"), labels.number(row["lift"], "+.1%"), p]


def format_verdict(row: dict[str, Any]) -> str:
    words = {"not_worse": "not worse", None: "not tested"}.get(row["verdict"], row["verdict"])
    notes = {
        "one_side_empty": "one run has no query here",
        "few_queries": "few queries",
        "few_clusters": "few clusters",
        "no_spread": "no spread",
        "clusters_not_added": "no interval: clusters recur on several nights",
    }
    texts = [notes[note] for note in row["note"].split(",") if note in notes]
    return f"{words} ({', '.join(texts)})" if texts else str(words)


def _format_p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def format_adjusted_p(row: dict[str, Any]) -> str:
    """Format a p-value, with the number of tests if Holm adjusted it: `p 0.55 after Holm, 4 tests`."""
    p = f"p {_format_p(row['p_holm']).removesuffix('00')}"
    return f"{p} after Holm, {row['family_size']:,} tests" if row["family_size"] > 1 else p
