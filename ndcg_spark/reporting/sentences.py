"""Sentences of a report, for pages and for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta

from ndcg_spark.reporting.contents import (
    Accounting,
    Change,
    Comparison,
    Contents,
    Distribution,
    GateResult,
    ListedItem,
    Mean,
    Standing,
    run_name,
)
from ndcg_spark.reporting.wording import (
    count,
    counted,
    cutoff_name,
    day,
    interval,
    listed,
    number,
    share,
    shortened,
    signed,
)

MOST_CHARACTERS = 60
"""Of a name in the headline."""
MOST_FLAGS = 5
"""Segments of a run whose flags are sentences."""
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
    """Answer in a line: the worst news of the night; without any, the ranker with the highest value."""
    return bad_news(contents) or _standing_text(_watched(contents)[0], contents)


def bad_news(contents: Contents) -> str:
    """Tell the worst news: a gate that is not met, else a flag, else the largest drop that is beyond its error.

    Parameters
    ----------
    contents : Contents
        With `production`, news are those of that run.

    Returns
    -------
    str
        Empty if there is none.
    """
    watched = {one.mean.run: one for one in _watched(contents)}
    missed = [one for one in contents.gates if not one.met and one.run in watched]
    if missed:
        worst = max(missed, key=_miss)
        other = (worst.metric, worst.k) != (contents.metric, contents.k)
        value = f" ({number(worst.value, contents.decimals)})" if other else ""
        text = worst.text.removeprefix(f"{worst.run}:").strip() if len(contents.standings) > 1 else worst.text
        return _news(watched[worst.run], f"gate {text} is not met{value}", contents)
    flagged = [(one, f"flagged {one.flag}") for one in watched.values() if one.flag is not None]
    flagged += [
        (one, f"flagged in {_short(flag.name)}, {flag.flag}")
        for flag in contents.segment_flags
        for one in watched.values()
        if flag.run in ("", one.mean.run)
    ]
    if flagged:
        low = [one for one in flagged if "low" in one[1]]
        return _news(*(low or flagged)[0], contents)
    dropped = [one for one in watched.values() if one.change.kind == "down"]
    if dropped:
        return _standing_text(min(dropped, key=lambda one: one.change.difference or 0.0), contents)
    return ""


def _watched(contents: Contents) -> list[Standing]:
    """Rankers that the headline may be about."""
    its = [one for one in contents.standings if one.mean.run == contents.production]
    return its or list(contents.standings)


def _miss(gate: GateResult) -> float:
    """How far a gate is missed, as a part of its bound; without a value it is missed most."""
    if gate.value is None:
        return math.inf
    return abs(gate.value - gate.bound) / (abs(gate.bound) or 1.0)


def _news(standing: Standing, what: str, contents: Contents) -> str:
    who = f"{_short(run_name(standing.mean.run))}: " if len(contents.standings) > 1 else ""
    text = f"{what}; {_value_and_change(standing, contents)}"
    return f"{who}{text}" if who else text[:1].upper() + text[1:]


def _standing_text(standing: Standing, contents: Contents) -> str:
    who = f"{_short(run_name(standing.mean.run))}: " if len(contents.standings) > 1 else ""
    return who + _value_and_change(standing, contents)


def _value_and_change(standing: Standing, contents: Contents) -> str:
    """The metric, its interval, its change, and the segment in which most of a drop lies."""
    change = change_text(standing.change, contents.run_date, contents.decimals)
    text = f"{contents.label} {value_text(standing.mean, contents.decimals)}, {change}"
    its = [one for one in contents.segments if one.mean.run == standing.mean.run and (one.share or 0.0) > 0.5]
    if standing.change.kind != "down" or not its:
        return text
    most = max(its, key=lambda one: one.share or 0.0)
    where = f"{most.mean.by} = {_short(most.mean.name)}"
    return f"{text}, most of it in {where} ({signed(most.change.difference, contents.decimals)})"


def _short(name: str) -> str:
    return shortened(name, MOST_CHARACTERS)


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
            whose = f" for {_short(run_name(gate.run))}" if several else ""
            found.append(f"Gate {gate.text} is not met{whose}: {number(gate.value, decimals)}.")
    for one in contents.standings:
        name = _short(run_name(one.mean.run))
        if one.flag is not None:
            found.append(f"{_capital(name)} is flagged tonight: {one.flag}.")
        its = [flag for flag in contents.segment_flags if flag.run == one.mean.run]
        found += [
            f"{_capital(name)} is flagged tonight in {_short(flag.name)}: {flag.flag}." for flag in its[:MOST_FLAGS]
        ]
        if one.change.kind == "incomparable":
            found.append(f"{_capital(name)} was computed differently before: numbers cannot be compared.")
        if not one.mean.n_queries:
            found.append(f"{_capital(name)} has no query in the mean.")
        elif one.mean.is_small:
            n = counted(one.mean.n_queries, "query", "queries")
            found.append(f"{_capital(name)} has only {n}: the interval is a rough guide.")
    shown = sum(min(MOST_FLAGS, sum(flag.run == run for flag in contents.segment_flags)) for run in contents.runs)
    if contents.n_segment_flags > shown:
        more = count(contents.n_segment_flags - shown)
        found.append(f"Segments that are flagged tonight and not named here: {more}.")
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
            found.append((one.change.kind, f"{_short(run_name(one.mean.run))} is {change}."))
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
    return f"{_short(run_name(row.run))} is {verdict} {_short(run_name(row.baseline))}: {difference}{over}."


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
        f"half of {counted(one.n_queries, 'query', 'queries')} lie between {number(lower, 3)} and "
        f"{number(upper, 3)}, median {number(median, 3)}; {share(one.n_lowest, one.n_queries)} are at {one.low:.3g}, "
        f"{share(one.n_highest, one.n_queries)} at {one.high:.3g}"
    )
    outside = one.n_below + one.n_above
    text += f"; {count(outside)} lie outside." if outside else "."
    return f"{run_name(one.run)}: {text}" if several else text[:1].upper() + text[1:]


def quartiles_note(distributions: Sequence[Distribution]) -> str:
    """Say which quartiles are estimates, and how far off they may be; empty where all are exact."""
    estimated = [one for one in distributions if one.quartile_error]
    if not estimated:
        return ""
    whose = f" of {listed(run_name(one.run) for one in estimated)}" if len(distributions) > 1 else ""
    error = f"{100 * max(one.quartile_error for one in estimated):.4g}\u00a0%"
    return f" Quartiles{whose} are estimates: the share of queries below each is off by at most {error}."


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
