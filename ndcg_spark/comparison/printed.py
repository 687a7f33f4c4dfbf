"""What a person reads of a comparison: a table at a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.core import labels
from ndcg_spark.core.student import POWER, upper_p
from ndcg_spark.errors import escape_unprintable
from ndcg_spark.jobs.printing import MAX_SEGMENTS, make_cell
from ndcg_spark.metrics import direction_of, has_value_when_missing

_COLOURS = {"better": "green", "worse": "red"}
_CLEAR = (*_COLOURS, "higher", "lower")
"""Verdicts on differences that are clear; the last two are of metrics of which neither direction is better."""


def show_comparison(rows: list[dict[str, Any]], settings: ComparisonSettings, *, verbose: bool) -> None:
    """Print sorted rows of a comparison: up to three lines a pair or, if `verbose`, a row for each group, too."""
    listed = [row for row in rows if row["verdict"] is not None]  # not those that stand beside others
    if verbose:
        _show_all(listed, settings)
        return
    for pair in dict.fromkeys((row["run"], row["baseline"]) for row in listed):
        for one in lines_of_pair([row for row in listed if (row["run"], row["baseline"]) == pair], settings):
            print(escape_unprintable(one))


def _show_all(listed: list[dict[str, Any]], settings: ComparisonSettings) -> None:
    for row in listed:
        if not row["segment_by"]:
            for one in sentences(row, settings):
                print(escape_unprintable(one))
    shown = sorted(listed, key=largest_first)[:MAX_SEGMENTS]
    if sys.stdout.isatty():
        _show_table(shown, settings)
    else:
        for row in shown:
            baseline, run, difference, lift, _ = _numbers(row)
            p = adjusted_p(row) if row["p_holm"] is not None else "no test"
            about = f"run={row['run']} baseline={row['baseline']} {labels.segment(row)} queries={row['n_queries']}"
            values = f"{labels.metric(row)} {baseline} -> {run}  {difference}  lift {lift}  {p}"
            print(escape_unprintable(f"{about}  {values}  {verdict_text(row)}"))
    if len(listed) > len(shown):
        more = len(listed) - len(shown)
        print(f"... and {more:,} more row{'s' if more > 1 else ''}; --output and --json have all of them.")


def largest_first(row: dict[str, Any]) -> tuple[bool, bool, float]:
    """Sort all queries first; then the segments with a clear difference, the largest first; then the others."""
    of_segment = bool(row["segment_by"])
    return of_segment, of_segment and row["verdict"] == "unclear", -abs(row["difference"] or 0.0) * of_segment


def lines_of_pair(rows: list[dict[str, Any]], settings: ComparisonSettings) -> list[str]:
    """Say which queries a run lacks, what the first metric shows at its largest cutoff, and what the others do."""
    first = str(settings.metrics[0].metric)
    overall = [row for row in rows if not row["segment_by"]]
    main = max(overall, key=lambda row: (row["metric"] == first, labels.cutoff_order(row["k"])))
    found = sentence(main, settings)
    needed = _needed(main, settings).removeprefix(f"{labels.metric(main)}: ")
    if needed:
        found += f" {needed[0].upper()}{needed[1:]}"
    return [one for one in (_missing(main), found, _others([row for row in rows if row is not main], main)) if one]


def _others(rows: list[dict[str, Any]], main: dict[str, Any]) -> str:
    """Count the verdicts on other metrics, cutoffs and segments, and name the largest clear difference each way."""
    if not rows:
        return ""
    fields = {"metrics": "metric", "cutoffs": "k", "segments": "segment_by"}
    what = [name for name, field in fields.items() if len({row[field] for row in [*rows, main]}) > 1]
    said = []
    for verdict in dict.fromkeys([*_CLEAR, *sorted({row["verdict"] for row in rows})]):
        its = [row for row in rows if row["verdict"] == verdict]
        if its:
            largest = f", {_largest(its, what)}" if verdict in _CLEAR else ""
            said.append(f"{len(its):,} {verdict_text({**its[0], 'note': ''})}{largest}")
    others = " and ".join(filter(None, (", ".join(what[:-1]), what[-1])))
    by = "By segment" if what == ["segments"] else f"Other {others}"
    return f"{by}: {'; '.join(said)}; --verbose prints {'them' if len(rows) > 1 else 'it'}."


def _largest(rows: list[dict[str, Any]], what: list[str]) -> str:
    row = max(rows, key=lambda one: abs(one["difference"]))
    where = [labels.segment(row)] * ("segments" in what) + [labels.metric(row)] * (what != ["segments"])
    return f"{'most ' if len(rows) > 1 else ''}{row['difference']:+.4f} ({', '.join(where)})"


def sentences(row: dict[str, Any], settings: ComparisonSettings) -> list[str]:
    """Say what a row over all queries shows, in up to three lines: what is missing, what was found, what it takes."""
    return [one for one in (_missing(row), sentence(row, settings), _needed(row, settings)) if one]


def _missing(row: dict[str, Any]) -> str:
    """How many queries one of the runs lacks, and what becomes of them."""
    lacks = {row["run"]: row["n_only_baseline"], row["baseline"]: row["n_only_run"]}
    told = [f"{run} lacks {n:,} quer{'y' if n == 1 else 'ies'}" for run, n in lacks.items() if n]
    counts = row["unpaired"] == "zero" and has_value_when_missing(row["metric"])
    how = "counted as 0" if counts else "left out"
    return f"{labels.metric(row)}: {' and '.join(told)}, {how}." if told else ""


def _needed(row: dict[str, Any], settings: ComparisonSettings) -> str:
    """How many queries a difference takes or, where nothing is clear, which difference would have been found."""
    what, power = labels.metric(row), f"(one test, power {POWER:.0%})"
    if row["n_required"] is not None:
        return f"{what}: to detect {settings.effect:+g} you would need {row['n_required']:,} queries {power}."
    if row["verdict"] != "unclear" or row["mde"] is None:
        return ""
    return f"{what}: {row['n_queries']:,} queries detect a difference of {row['mde']:.4f} or more {power}."


def sentence(row: dict[str, Any], settings: ComparisonSettings) -> str:
    if row["difference"] is None:
        return f"{labels.metric(row)}: no query of {_run(row)} can be compared with {row['baseline']}."
    if row["n_queries"] and not row["n_wins"] and not row["n_losses"]:
        each = f"each of {row['n_queries']:,} queries" if row["n_queries"] > 1 else "the query"
        return f"{labels.metric(row)}: {_run(row)} and {row['baseline']} have the same value for {each}."
    about = f"{row['difference']:+.4f}"
    if row["ci_low"] is not None:
        about += f", {1 - settings.alpha:.0%} interval {labels.interval(row['ci_low'], row['ci_high'], '+.4f')}"
    if row["verdict"] == "not_worse" and settings.margin and row["std_error"]:
        gained = row["difference"] if direction_of(row["metric"]) else -row["difference"]
        p = upper_p((gained + settings.margin) / row["std_error"], row["df"])
        about += f", one-sided p {_p(p)}, not adjusted"
    elif row["p_holm"] is not None:
        about += f", {adjusted_p(row)}"
    its = {
        "better": "is better than",
        "worse": "is worse than",
        "higher": "is higher than",
        "lower": "is lower than",
        "not_worse": f"is at most {settings.margin:g} worse than" if settings.margin else "is not worse than",
        "unclear": "may or may not differ from",
    }[row["verdict"]]
    return f"{labels.metric(row)}: {_run(row)} {its} {row['baseline']} ({about}; {row['n_queries']:,} queries)."


def _run(row: dict[str, Any]) -> str:
    """A ranker without a name is the run."""
    return str(row["run"]) or "the run"


def _show_table(rows: list[dict[str, Any]], settings: ComparisonSettings) -> None:
    table = Table(title="comparison of runs over the same queries")
    pairs = {(row["run"], row["baseline"]) for row in rows}
    if len(pairs) > 1:
        table.add_column("runs")
    table.add_column("segment")
    table.add_column("metric")
    for name in ("queries", "baseline", "run", f"difference ({1 - settings.alpha:.0%} interval)", "lift", "p (Holm)"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for row in rows:
        verdict = verdict_text(row)
        colour = _COLOURS.get(row["verdict"], "default")
        cells: list[str | Text] = [
            make_cell(labels.segment(row)),
            labels.metric(row),
            f"{row['n_queries']:,}",
            *_numbers(row),
            make_cell(verdict, colour),
        ]
        table.add_row(*([make_cell(f"{row['run']} - {row['baseline']}")] if len(pairs) > 1 else []), *cells)
    Console().print(table)


def _numbers(row: dict[str, Any]) -> list[str]:
    p = "-" if row["p_holm"] is None else _p(row["p_holm"])
    means = [labels.number(row[name]) for name in ("baseline_value", "value")]
    return [*means, labels.estimate(row, "difference", form="+.4f"), labels.number(row["lift"], "+.1%"), p]


def verdict_text(row: dict[str, Any]) -> str:
    words = {"not_worse": "not worse", None: "not tested"}.get(row["verdict"], row["verdict"])
    notes = {
        "one_side_empty": "one run has no query here",
        "few_queries": "few queries",
        "few_clusters": "few clusters",
        "no_spread": "no spread",
        "clusters_not_added": "no interval: clusters come back",
    }
    said = [notes[note] for note in row["note"].split(",") if note in notes]
    return f"{words} ({', '.join(said)})" if said else str(words)


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def adjusted_p(row: dict[str, Any]) -> str:
    """A p-value, and of how many tests if Holm adjusted it: `p 0.55 after Holm, 4 tests`."""
    p = f"p {_p(row['p_holm']).removesuffix('00')}"
    return f"{p} after Holm, {row['family_size']:,} tests" if row["family_size"] > 1 else p
