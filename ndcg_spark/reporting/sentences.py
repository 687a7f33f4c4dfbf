"""Sentences of a report, for pages and for terminals."""

from __future__ import annotations

from datetime import date, timedelta

from ndcg_spark.reporting.contents import (
    Accounting,
    Change,
    Comparison,
    Contents,
    Distribution,
    ListedItem,
    Mean,
    run_name,
)
from ndcg_spark.reporting.wording import count, cutoff_name, day, interval, listed, number, share, signed

ARROWS = {"up": "▲", "down": "▼"}
REJECTED = "rejected as bad"
"""Part of the rows that were read; reasons stand below it."""


def value_text(mean: Mean, decimals: int) -> str:
    """Show a mean with its interval: `0.4312 [0.4280, 0.4344]`."""
    return f"{number(mean.value, decimals)} {interval(mean.low, mean.high, decimals)}".rstrip()


def when(since: date | None, night: date | None) -> str:
    """Name an earlier night as seen from a night."""
    if since is not None and night is not None and night - since == timedelta(days=1):
        return "the night before"
    return day(since)


def change_text(change: Change, night: date | None, decimals: int) -> str:
    """Say how a mean changed; a direction only where the difference is beyond its error.

    Parameters
    ----------
    change : Change
    night : date or None
        Of the report.
    decimals : int

    Returns
    -------
    str
    """
    before = when(change.since, night)
    if change.kind == "first":
        return "no earlier night to compare with"
    if change.kind == "incomparable":
        return f"not compared with {before}, which was computed differently"
    if change.difference is None:
        return ""
    if change.kind == "unclear":
        error = "" if change.half is None else f" ± {number(change.half, decimals)}"
        return f"no clear change from {before} ({signed(change.difference, decimals)}{error})"
    half = change.half or 0.0
    bounds = interval(change.difference - half, change.difference + half, decimals)
    return f"{change.kind} {number(abs(change.difference), decimals)} from {before} {bounds}"


def headline(contents: Contents) -> str:
    """Answer in a line: the metric, its interval and its change; of several runs the one with the highest value."""
    standing = contents.standings[0]
    decimals = contents.decimals
    who = f"{run_name(standing.mean.run)}: " if len(contents.standings) > 1 else ""
    change = change_text(standing.change, contents.run_date, decimals)
    return f"{who}{contents.label} {value_text(standing.mean, decimals)}, {change}"


def attention(contents: Contents) -> list[str]:
    """What a reader should know before anything else: gates that are not met, flags, other ways of computing.

    Parameters
    ----------
    contents : Contents

    Returns
    -------
    list of str
    """
    decimals = contents.decimals
    several = len(contents.runs) > 1
    found = []
    for gate in contents.gates:
        if not gate.met:
            whose = f" for {run_name(gate.run)}" if several else ""
            found.append(f"Gate {gate.text} is not met{whose}: {number(gate.value, decimals)}.")
    for one in contents.standings:
        name = run_name(one.mean.run)
        if one.flag is not None:
            found.append(f"{_capital(name)} is flagged tonight: {one.flag}.")
        if one.change.kind == "incomparable":
            found.append(f"{_capital(name)} was computed differently before: numbers cannot be compared.")
        if not one.mean.n_queries:
            found.append(f"{_capital(name)} has no query in the mean.")
        elif one.mean.is_small:
            n = count(one.mean.n_queries)
            found.append(f"{_capital(name)} has only {n} queries: the interval is a rough guide.")
    for row in contents.comparisons:
        if not row.by and row.verdict == "worse":
            found.append(f"{_capital(difference_text(row, contents))}")
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text


def changes(contents: Contents) -> list[tuple[str, str]]:
    """Sentences about runs that went up or down, where there are several: `up` or `down`, and the sentence."""
    if len(contents.standings) < 2:
        return []
    found = []
    for one in contents.standings:
        if one.change.kind in ARROWS:
            change = change_text(one.change, contents.run_date, contents.decimals)
            found.append((one.change.kind, f"{run_name(one.mean.run)} is {change}."))
    return found


def gates_met(contents: Contents) -> str:
    """Count the gates that are met; empty where there are none."""
    met, whole = sum(one.met for one in contents.gates), len(contents.gates)
    if met < whole:
        return f"{met} of {whole} gates met"
    return {0: "", 1: "The gate is met"}.get(whole, f"All {whole} gates are met")


def difference_text(row: Comparison, contents: Contents) -> str:
    """Say how a run compares with its baseline."""
    decimals = difference_decimals(contents)
    verdicts = {
        "better": "better than",
        "worse": "worse than",
        "not_worse": "not worse than",
        "unclear": "not clearly different from",
    }
    verdict = verdicts.get(row.verdict, "compared with")
    bounds = interval(row.low, row.high, decimals)
    difference = f"{signed(row.difference, decimals)} {bounds}".rstrip()
    over = f", over {contents.compared_period}" if contents.compared_period else ""
    return f"{run_name(row.run)} is {verdict} {run_name(row.baseline)}: {difference}{over}."


def difference_decimals(contents: Contents) -> int:
    """Decimals of differences: as those of the metric, or more where their intervals are narrower."""
    from ndcg_spark.reporting.wording import decimals_for

    overall = [one for one in contents.comparisons if not one.by] or list(contents.comparisons)
    halves = [(one.high - one.low) / 2 for one in overall if one.low is not None and one.high is not None]
    return max(contents.decimals, decimals_for(halves)) if halves else contents.decimals


# -------------------------------------------------------------------------------------- texts of figures


def curve_text(contents: Contents) -> str:
    """Describe the curve for those who do not see it."""
    parts = []
    for run in contents.runs:
        its = [one for one in contents.curve if one.run == run and one.value is not None]
        if its:
            first, last = its[0], its[-1]
            parts.append(
                f"{run_name(run)} goes from {number(first.value, contents.decimals)} at {cutoff_name(first.k)} to "
                f"{number(last.value, contents.decimals)} at {cutoff_name(last.k)}"
            )
    return f"{contents.metric.upper()} at each cutoff: {listed(parts, 8)}."


def trend_text(contents: Contents) -> str:
    """Describe the trend."""
    parts = []
    for run, nights in contents.trend.items():
        values = [one.mean.value for one in nights if one.mean.value is not None]
        if values:
            parts.append(
                f"{run_name(run)} between {number(min(values), contents.decimals)} and "
                f"{number(max(values), contents.decimals)}, last {number(values[-1], contents.decimals)}"
            )
    nights_in_all = {one.run_date for nights in contents.trend.values() for one in nights}
    span = f"{len(nights_in_all):,} nights from {day(min(nights_in_all))} to {day(max(nights_in_all))}"
    return f"{contents.label} over {span}: {listed(parts, 8)}."


def differences_text(contents: Contents) -> str:
    """Describe the forest plot."""
    verdicts: dict[str, int] = {}
    for row in contents.comparisons:
        verdicts[row.verdict or "without a verdict"] = verdicts.get(row.verdict or "without a verdict", 0) + 1
    counted = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(verdicts.items()))
    return f"Differences in {contents.label} with their intervals, a row a segment: {counted}."


def distribution_text(one: Distribution, *, several: bool) -> str:
    """Describe how the queries of a run are distributed; `several` says whether the run has to be named."""
    lower, median, upper = one.quartiles
    text = (
        f"half of {count(one.n_queries)} queries lie between {number(lower, 3)} and {number(upper, 3)}, median "
        f"{number(median, 3)}; {share(one.n_lowest, one.n_queries)} are at {one.low:.3g}, "
        f"{share(one.n_highest, one.n_queries)} at {one.high:.3g}"
    )
    outside = one.n_below + one.n_above
    text += f"; {count(outside)} lie outside." if outside else "."
    return f"{run_name(one.run)}: {text}" if several else text[:1].upper() + text[1:]


def accounting_text(accounting: Accounting) -> str:
    """Say whether the rows add up."""
    if accounting.n_read is None:
        return "The metric table counts the rows of each ranker. The JSON of the job adds why rows were rejected."
    total = sum(n for _, n in accounting.rows)
    parts = " + ".join(f"{count(n)} {name}" for name, n in accounting.rows)
    adds_up = "=" if total == accounting.n_read else "\u2260"
    return f"{count(accounting.n_read)} rows read {adds_up} {parts}."


def change_note(contents: Contents) -> str:
    """State the rule by which a change is called one."""
    level = f"{100 * contents.level:.4g} %"
    return (
        f"A night is called up or down only where the difference exceeds its {level} interval, nights taken as "
        "independent; where nights share queries, this is cautious."
    )


def move_text(item: ListedItem) -> str:
    """Say where the other list has an item; empty where it has the same rank."""
    if item.other is None:
        return "new"
    return f"was {item.other}" if item.rise else ""
