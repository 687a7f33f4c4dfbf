"""Sentences of a report, for pages and for terminals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from statistics import NormalDist

from ndcg_spark.comparison.settings import describe_unpaired
from ndcg_spark.core import labels
from ndcg_spark.core.student import t_quantile
from ndcg_spark.evaluation.settings import REJECT_WARNING_SHARE
from ndcg_spark.history.causes import is_side_effect
from ndcg_spark.history.settings import is_behind
from ndcg_spark.history.tasks.judging import LEVEL, has_few_queries
from ndcg_spark.metrics import judge_change
from ndcg_spark.reports import wording as w
from ndcg_spark.reports.contents import (
    UNCOUNTED,
    Change,
    ComparisonRow,
    Distribution,
    GateResult,
    ListedItem,
    Mean,
    MissingSeries,
    QueryRow,
    RunResult,
    SegmentFlag,
    SegmentRow,
    compare_nights,
    name_run,
)
from ndcg_spark.reports.sections import Accounting, Contents

MAX_LINES_PER_RUN = 5
"""Segments of a run to name: flagged ones, as many without queries, and as many that got worse."""
MIN_QUERIES = 5
"""Queries that a segment must have on both nights for its change to be news."""
_MAX_FOLLOWING = 4
"""Segments that follow from a flag to name."""
_USUAL_SHARE = 0.8
"""Part of the queries of earlier nights below which their number is news."""
MAX_AGE_DAYS = 14
"""Age up to which missing nights are named."""
_RUN_AGAIN = "Running the night again replaces its rows."
_SEE_ROWS = "See rows and queries below."
_SEE_SEGMENTS = "See segments and queries below."
_SEE_FLAGGED = "See segments below, and the page of the flagged night."
ARROWS = {"up": "▲", "down": "▼"}


def choose_tone(kind: str, contents: Contents) -> str:
    """Name the colour of a change `up` or `down`: `better`, `worse`, or `neutral` if neither direction is better."""
    word = judge_change(contents.metric, 1 if kind == "up" else -1) if kind in ARROWS else ""
    return word if word in ("better", "worse") else "neutral"


def describe_direction(contents: Contents) -> str:
    return {False: " Smaller is better.", None: " Neither direction is better."}.get(contents.larger_is_better, "")


def choose_flag_tone(flag: str, contents: Contents) -> str:
    """Name the colour of a flag by the status that it begins with; other flags, set by users, are `worse`."""
    kind = {"low": "down", "high": "up"}.get(flag.split(",")[0])
    return "worse" if kind is None else choose_tone(kind, contents)


def describe_change(change: Change, night: date | None, decimals: int) -> str:
    """Describe how a mean changed, with a direction only if the difference exceeds its error."""
    before = w.name_night(change.since, night)
    if change.kind == "first":
        return "no earlier night to compare with"
    if change.kind == "lost":
        return f"no value to compare with {before}"
    if change.kind == "incomparable":
        rules = f"by other rules ({change.rules})" if change.rules else "differently"
        return f"not compared with {before}, which was computed {rules}"
    if change.difference is None:
        return ""
    if change.kind == "unclear":
        error = "" if change.half is None else f" ± {w.format_number(change.half, decimals)}"
        return f"no clear change from {before} ({w.format_signed(change.difference, decimals)}{error})"
    half = change.half or 0.0
    bounds = w.format_interval(change.difference - half, change.difference + half, decimals)
    return f"{change.kind} {w.format_number(abs(change.difference), decimals)} from {before} {bounds}"


def write_headline(contents: Contents) -> str:
    """Write the worst news of the night; without bad news, a recovery, or the value of the best run.

    If no run has an earlier night, the first difference between rankers comes before that value.
    """
    bad_news, watched = find_bad_news(contents), _list_watched(contents)
    if bad_news:
        return bad_news
    overall = [row for row in contents.differences.rows if not row.by]
    if overall and all(result.change.kind == "first" for result in watched):
        return f"{describe_difference(overall[0], contents).rstrip('.')}; no earlier night to compare with"
    by_importance = [*watched, *(result for result in contents.results if result not in watched)]
    recovered = (_describe_recoveries(result.mean.run, contents) for result in by_importance)
    return next(filter(None, recovered), "") or _describe_value(watched[0], contents, with_run=True)


def find_bad_news(contents: Contents) -> str:
    """Find the worst news of the watched runs: first what is missing or of broken input, then bad values."""
    return _find_worst(contents)[0]


def suggest_next_step(contents: Contents) -> str:
    """Name where to look after the worst news; empty if there is none."""
    return _find_worst(contents)[1]


def _find_worst(contents: Contents) -> tuple[str, str]:
    """Find the worst news of the production run; without any, what makes the night bad because of another run."""
    others = replace(contents, production=None)
    ongoing = _choose_watched(_find_ongoing(others), others)
    news = [*_check_in_order(contents), (ongoing, _SEE_FLAGGED)]
    return next(((text, step) for text, step in news if text), ("", ""))


def _check_in_order(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield each kind of bad news (empty if there is none) and the next step, the worst first."""
    yield _find_late_table(contents), "Check in the run log or the scheduler whether the job of the next night ran."
    yield _find_missing_run(contents)
    yield _find_empty_run(contents), f"{_SEE_ROWS} {_RUN_AGAIN}"
    yield from _check_queries_gates_and_flags(contents)
    yield _find_worse_run(contents), _SEE_SEGMENTS
    others = replace(contents, production=None)  # what is new about them is told before what is old
    yield _find_missing_run(others, since=contents.night_before)
    yield from _check_queries_gates_and_flags(others)
    yield _choose_watched(_find_ongoing(contents), contents), _SEE_FLAGGED
    empty_segments = _choose_watched(_find_empty_segments(contents), contents)
    yield empty_segments, f"Check whether the input has its queries. {_RUN_AGAIN}"
    yield _find_worse_segment(contents), _SEE_SEGMENTS
    yield _find_missing_run(others)
    problem = next(iter(contents.problems), "").partition(". ")[0].rstrip(".")
    yield problem, "Correct the cause, then run the night again."
    yield _find_incomparable(contents), "To compare the nights, run the earlier ones again by the same rules."
    yield _find_flag(contents, worse=False), _SEE_SEGMENTS


def _find_missing_run(contents: Contents, since: date | None = None) -> tuple[str, str]:
    """Report a run without rows; with `since`, only one that had rows on that night."""
    lines = _describe_missing_runs(contents, since)
    return next(iter(lines), ""), f"Check whether the input has its rows. {_RUN_AGAIN}"


def _check_queries_gates_and_flags(contents: Contents) -> Iterator[tuple[str, str]]:
    yield _choose_watched(_find_thin_runs(contents), contents), f"{_SEE_ROWS} {_RUN_AGAIN}"
    yield _find_missed_gate(contents), _SEE_SEGMENTS
    yield _find_flag(contents, worse=True), _SEE_SEGMENTS


News = list[tuple[str, str]]
"""Pairs of a run and a text about it, the worst first."""


def _choose_watched(news: News, contents: Contents) -> str:
    """Choose the first text about a watched run."""
    watched = {result.mean.run for result in _list_watched(contents)}
    return next((_add_run(run, text, contents) for run, text in news if run in watched), "")


def _find_late_table(contents: Contents) -> str:
    """Report a table that should have a later night than that of the report."""
    last, today = contents.run_date, contents.today
    if last is None or today is None or not is_behind(last, today, apart=contents.trend.nights_apart):
        return ""
    n = w.pluralize((today - last).days, "night", "nights")
    return f"The last night in the table is {w.format_day(last)}, {n} before {w.format_day(today)}"


def _describe_missing_runs(contents: Contents, since: date | None = None) -> list[str]:
    """Describe runs without rows: the production run first, then those with the most queries."""
    missing = [series for series in contents.missing.runs if contents.production in (None, series.last.run)]
    missing = [series for series in missing if since in (None, series.night)]
    missing.sort(key=lambda series: (series.last.run != contents.production, -series.last.n_queries, series.last.run))
    night = w.format_day(contents.run_date)
    return [
        f"{_shorten(name_run(series.last.run))} has no rows on {night}; {_describe_last_value(series, contents)}"
        for series in missing
    ]


def _describe_last_value(series: MissingSeries, contents: Contents) -> str:
    since = w.name_night(series.night, contents.run_date)
    if series.last.value is None:
        return f"its last night in the table is {since}"
    n = _count_queries(series.last.n_queries)
    return f"{contents.label} was {_format_value(series.last.value, contents)} over {n} on {since}"


def _find_empty_run(contents: Contents) -> str:
    """Report a run without any query in its mean."""
    for result in _list_watched(contents):
        if result.mean.value is None:
            text = "no query counts in the mean"
            if result.before is not None:
                before = MissingSeries(last=result.before, night=result.change.since or date.min)
                text += f"; {_describe_last_value(before, contents)}"
            return _add_run(result.mean.run, text, contents)
    return ""


def _find_thin_runs(contents: Contents) -> News:
    """Report runs with many rejected rows, or with at most half of their queries."""
    losses = []
    for result in contents.results:
        mean = result.mean
        rejected, usual = mean.rejected_share or 0.0, result.usual_rejected_share
        if rejected >= REJECT_WARNING_SHARE and _has_rejected(result):
            usually = "" if usual is None else f", usually {_format_percent(usual)}"
            reason = f", most for {contents.accounting.rejected[0][0]}" if contents.accounting.rejected else ""
            rows = f"{w.format_count(mean.n_rejected)} of {w.format_count(mean.n_read)} rows"
            text = f"{rows} ({_format_percent(rejected)}{usually}) were rejected as bad{reason}"
            losses.append((rejected, mean.run, f"{text}; {_describe_queries(result, contents)}"))
        elif result.lost_from is not None:
            told = UNCOUNTED["n_missing"] if mean.n_with_list < mean.n_queries else ""
            reasons = [(reason, n) for reason, n in mean.uncounted if reason != told]
            reason, n = max(reasons, key=lambda pair: pair[1], default=("", 0))
            others = f"; {w.format_count(n)} {reason}" if n and 2 * n >= mean.n_with_list else ""
            text = f"only {_describe_queries(result, contents)}{others}"
            losses.append((1 - mean.n_with_list / result.lost_from.mean.n_with_list, mean.run, text))
    return [(run, text) for _, run, text in sorted(losses, key=lambda loss: (-loss[0], loss[1]))]


def _has_rejected(result: RunResult) -> bool:
    """Return whether a run has more rejected rows than usual."""
    return (result.mean.rejected_share or 0.0) > 2 * (result.usual_rejected_share or 0.0)


def _describe_few_queries(contents: Contents) -> list[str]:
    """Describe runs with fewer queries than on the earlier nights, unless that is bad news of `_find_thin_runs`."""
    thin = {run for run, _ in _find_thin_runs(contents)}
    lines = []
    for result in contents.results:
        before, n = result.before, result.mean.n_with_list
        nights = [earlier.n_with_list for earlier in (before, result.week_before) if earlier is not None]
        if before is not None and result.mean.run not in thin and n < _USUAL_SHARE * min(nights):
            lines.append(f"{_add_run(result.mean.run, _describe_queries(result, contents), contents)}.")
    return lines


def _describe_week(contents: Contents) -> Iterator[str]:
    """Name runs that got worse since a week before, if they are not told to be worse tonight or since a flag.

    The level is that of flags, with the errors of independent nights. Nights that lost queries are left out.
    """
    falls = []
    for result in contents.results:
        mean, week_before = result.mean, result.week_before
        is_told = _find_trouble(mean.run, contents) or result.change.kind != "unclear" or result.lost_from is not None
        if is_told or week_before is None or has_few_queries(week_before.n_with_list, mean.n_with_list):
            continue
        is_comparable = mean.rules is not None and mean.rules == week_before.rules
        change = compare_nights(mean, week_before, None, same=is_comparable, level=1 - LEVEL)
        if choose_tone(change.kind, contents) == "worse":
            name = f"{_shorten(name_run(mean.run))} " if len(contents.results) > 1 else ""
            before, value = (_format_value(night.value, contents) for night in (week_before, mean))
            falls.append(f"{name}from {before} to {value}")
    if falls:
        since = w.format_day((contents.run_date or date.max) - timedelta(days=7))
        yield f"{contents.label} {_choose_verb(contents)} within a week, since {since}: {', '.join(falls)}."


def _describe_rejected(contents: Contents) -> Iterator[str]:
    """Count the rejected rows of runs that have more than usual, unless they are bad news of `_find_thin_runs`."""
    thin = {run for run, _ in _find_thin_runs(contents)}
    means = [result.mean for result in contents.results if result.mean.run not in thin and _has_rejected(result)]
    n = sum(mean.n_rejected or 0 for mean in means)
    if n:
        rows = w.pluralize(sum(mean.n_read or 0 for mean in means), "row", "rows")
        runs = [_shorten(name_run(mean.run)) for mean in means]
        of_runs = f" of {w.join_names(runs)}" if len(contents.results) > 1 else ""
        yield f"{w.format_count(n)} of {rows}{of_runs} {'was' if n == 1 else 'were'} rejected as bad."


def _describe_repeat(contents: Contents) -> Iterator[str]:
    """Say that all means are exactly those of an earlier night, as they are if an input is used twice.

    Means of values that are 0 or 1 are often the same by chance.
    """
    nights = {result.change.since for result in contents.results}
    means = [(result.mean, result.before) for result in contents.results]
    is_same = all(
        before is not None
        and (mean.value, mean.std_error, mean.n_queries) == (before.value, before.std_error, before.n_queries)
        for mean, before in means
    )
    totals = [(mean.value or 0.0) * mean.n_queries for mean, _ in means]
    is_whole = all(math.isclose(total, round(total)) for total in totals)
    segments = [row.change.difference for row in contents.segments.rows if row.before is not None]
    if is_same and len(nights) == 1 and not is_whole and not any(segments):
        night = w.name_night(nights.pop(), contents.run_date)
        what = "The mean is exactly that" if len(means) == 1 else "All means are exactly those"
        yield f"{what} of {night}: the input may be the same."


def _describe_queries(result: RunResult, contents: Contents) -> str:
    mean, before, since = result.mean, result.before, result.change.since
    if result.lost_from is not None:
        before, since = result.lost_from.mean, result.lost_from.run_date
    has_missing = any(night is not None and night.n_with_list < night.n_queries for night in (mean, before))
    text = f"{_count_queries(mean.n_queries)} in the mean"
    if has_missing:
        text = f"{w.format_count(mean.n_with_list)} of {text} {'has' if mean.n_with_list == 1 else 'have'} a list"
    if before is None:
        return text
    night = w.name_night(since, contents.run_date)
    return f"{text}, {w.format_count(before.n_with_list)} on {night}"


def _count_queries(n: int) -> str:
    return w.pluralize(n, "query", "queries")


def _format_percent(part: float) -> str:
    return f"{100 * part:.1f}\u00a0%"


def _format_value(value: float | None, contents: Contents) -> str:
    return w.format_number(value, contents.decimals)


def _find_missed_gate(contents: Contents) -> str:
    """Report the gate missed by the largest part of its bound."""
    watched = {result.mean.run: result for result in _list_watched(contents)}
    missed = [gate for gate in contents.gates if not gate.met and gate.run in watched]
    if not missed:
        return ""
    worst = max(missed, key=_measure_miss)
    is_of_headline = (worst.metric, worst.k) == (contents.metric, contents.k)
    value = "" if is_of_headline else f" ({_format_value(worst.value, contents)})"
    return _add_value(watched[worst.run], f"gate {_strip_run(worst, contents)} is not met{value}", contents)


def _strip_run(gate: GateResult, contents: Contents) -> str:
    """Remove the run from the text of a gate if the sentence names it."""
    return gate.text.removeprefix(f"{gate.run}:").strip() if len(contents.results) > 1 else gate.text


def _measure_miss(gate: GateResult) -> float:
    return math.inf if gate.value is None else abs(gate.value - gate.bound) / (abs(gate.bound) or 1.0)


def _find_ongoing(contents: Contents) -> News:
    """Describe runs and segments that are still away from usual since an earlier flag."""
    news = []
    for flag in contents.flags.ongoing:
        where = f" in {_shorten(flag.name)}" if flag.by else ""
        day = "" if flag.change_night is None else f" {w.format_day(flag.change_night)}"
        # Neither direction may be better, and queries may have changed in the other direction than means.
        is_worse = _choose_recovery_tone(flag, contents) == "worse"
        state = f"has not recovered{day and f' since{day}'}" if is_worse else f"is not as before{day}"
        values = f"it is {_format_value(flag.value, contents)}, and was {_format_value(flag.before, contents)}"
        text = f"{contents.label}{where} {state}: {values}"
        overall = contents.flags.ongoing_runs.get(flag.run)
        if flag.by and overall is not None:
            value, value_before = (_format_value(number, contents) for number in (overall.value, overall.before))
            text += f"; {labels.OVERALL} {value}, {value_before} before"
        news.append((flag.run, text))
    return news


def _find_flag(contents: Contents, *, worse: bool) -> str:
    """Report the first flag of the night for a change to the worse, or for another change."""
    watched = {result.mean.run: result for result in _list_watched(contents)}
    flags = [
        (result, f"flagged {result.flag}; {_describe_value(result, contents)}", result.flag)
        for result in watched.values()
        if result.flag is not None
    ]
    for flag in contents.flags.segments:
        for result in watched.values():
            if flag.run in ("", result.mean.run):
                overall = f"{labels.OVERALL} {_describe_briefly(result, contents)}"
                flags.append((result, f"{_describe_segment_flag(flag, result, contents)}; {overall}", flag.flag))
    for result, text, flag_text in flags:
        if (choose_flag_tone(flag_text, contents) == "worse") is worse:
            if (
                worse and choose_tone(result.change.kind, contents) == "worse"
            ):  # then the value says more than the flag
                return _describe_loss(result, contents)
            return _add_run(result.mean.run, text, contents)
    return ""


def _describe_segment_flag(flag: SegmentFlag, result: RunResult, contents: Contents) -> str:
    """Describe a flag: `NDCG@10 in country=FR fell from 0.824 to 0.031`, or `is 0.031, usually 0.824`."""
    name = f"{contents.label} in {_shorten(flag.name)}"
    # The queries that both nights share may have changed in the other direction than the means.
    if flag.value is None or flag.before is None or (flag.value > flag.before) == flag.flag.startswith("low"):
        return f"{name} is flagged ({flag.flag})"
    value, before = (_format_value(number, contents) for number in (flag.value, flag.before))
    if (flag.run, flag.by, flag.segment) not in contents.flags.changes:
        return f"{name} is {value}, usually {before}"
    verb, since = "rose" if flag.value > flag.before else "fell", flag.reference_night or result.change.since
    return f"{name} {verb} from {before} to {value}{_describe_since(since, contents)}"


def _describe_since(since: date | None, contents: Contents) -> str:
    """Name the earlier night of a change if it is not the night before."""
    night = w.name_night(since, contents.run_date)
    return "" if since is None or night == "the night before" else f" since {night}"


def _is_told(flag: SegmentFlag, contents: Contents, headline: str) -> bool:
    """Return whether a headline has the segment of a flag and its value."""
    value, is_of_run = _format_value(flag.value, contents), len(contents.results) == 1
    return (
        (is_of_run or _names_run(headline, flag.run)) and f"{_shorten(flag.name)} " in headline and value in headline
    )


def _format_flag_values(flag: SegmentFlag, contents: Contents) -> str:
    """Format the value of a flag and the usual one; empty if either is unknown."""
    if flag.value is None or flag.before is None:
        return ""
    return f"{_format_value(flag.value, contents)} instead of {_format_value(flag.before, contents)}"


def _find_worse_run(contents: Contents) -> str:
    """Report the largest change to the worse over all queries that exceeds its error."""
    worse = [result for result in _list_watched(contents) if choose_tone(result.change.kind, contents) == "worse"]
    if not worse:
        return ""
    return _describe_loss(max(worse, key=lambda result: abs(result.change.difference or 0.0)), contents)


def _find_incomparable(contents: Contents) -> str:
    """Report a run that cannot be compared with its earlier night: what became worse is then unknown."""
    incomparable = [result for result in _list_watched(contents) if result.change.kind == "incomparable"]
    return _describe_value(incomparable[0], contents, with_run=True) if incomparable else ""


def _describe_loss(result: RunResult, contents: Contents) -> str:
    """Describe the loss of a run; if all runs got worse, and no segment is why, that of all."""
    results, nights = contents.results, {each.change.since for each in contents.results}
    is_shared = all(choose_tone(each.change.kind, contents) == "worse" for each in results)
    if len(results) < 2 or not is_shared or _find_main_segment(result, contents):
        return _describe_value(result, contents, with_run=True)
    who = _count_rankers(len(results))
    by_importance = [result, *(each for each in results if each is not result)]
    if len(nights) > 1:
        moves = [
            f"{_describe_distance(each, contents)} since {w.name_night(each.change.since, contents.run_date)}"
            for each in by_importance
        ]
        return f"{contents.label} of {who} {_choose_verb(contents)}: {w.join_names(moves, 2)}"
    moves = [_describe_distance(each, contents) for each in by_importance]
    night = w.name_night(result.change.since, contents.run_date)
    return f"{contents.label} of {who} {_choose_verb(contents)} since {night}: {w.join_names(moves, 3)}"


def _describe_distance(result: RunResult, contents: Contents) -> str:
    """Describe by how much the mean of a run changed: `bm25 by 0.065 to 0.596`."""
    distance = _format_value(abs(result.change.difference or 0.0), contents)
    return f"{_shorten(name_run(result.mean.run))} by {distance} to {_format_value(result.mean.value, contents)}"


def _find_empty_segments(contents: Contents) -> News:
    """Report segments without queries, of runs with rows."""
    return [
        (series.last.run, f"no queries in {_name_segment(series.last)}; {_describe_last_value(series, contents)}")
        for series in contents.missing.segments
    ]


def _name_segment(mean: Mean) -> str:
    return labels.segment_at(mean.by, _shorten(mean.name))


def _find_worse_segment(contents: Contents) -> str:
    """Report the segment that got worse the most, although all queries together did not."""
    watched = {result.mean.run: result for result in _list_watched(contents)}
    for run, text in _describe_worse_segments(contents):
        if run in watched:
            return f"{_add_run(run, text, contents)}; {labels.OVERALL} {_describe_briefly(watched[run], contents)}"
    return ""


def _describe_worse_segments(contents: Contents, lead: str = "") -> News:
    """Describe segments that got worse, without those of other columns that share the queries of the worst one.

    As in `group_by_cause`, these are changes that `is_side_effect` takes for the same cause. What `lead` or a flag of
    tonight says is left out.
    """
    news, worst = [], dict[str, SegmentRow]()
    flags = (*contents.flags.segments, *contents.flags.following)
    flagged = {(flag.run, flag.by, flag.segment) for flag in flags}
    for row in find_worse_segments(contents):
        first = worst.setdefault(row.mean.run, row)
        changes = abs(row.change.difference or 0.0), abs(first.change.difference or 0.0)
        is_told = (row.mean.run, row.mean.by, row.mean.segment) in flagged or _describe_move(row, contents) in lead
        if not is_told and (row.mean.by == first.mean.by or not is_side_effect(*changes)):
            n = _count_queries(row.mean.n_queries)
            since = _describe_since(row.change.since, contents)
            news.append((row.mean.run, f"{contents.label} in {_describe_move(row, contents)}{since} ({n})"))
    return news


def _describe_move(row: SegmentRow, contents: Contents) -> str:
    """Describe how a segment got worse: `country=US fell from 0.80 to 0.40`."""
    before = None if row.before is None else row.before.value
    values = f"from {_format_value(before, contents)} to {_format_value(row.mean.value, contents)}"
    return f"{_name_segment(row.mean)} {_choose_verb(contents)} {values}"


def _choose_verb(contents: Contents) -> str:
    return "rose" if contents.larger_is_better is False else "fell"


def find_worse_segments(contents: Contents) -> list[SegmentRow]:
    """Find segments that got worse since the night before, the worst first; none if neither direction is better.

    The change of a single segment is clear if its interval excludes 0. With many segments some do so by chance: here
    the level is divided by their number (Bonferroni), and few queries need a larger difference (Student's t).
    """
    compared = [row for row in contents.segments.rows if row.change.half is not None and row.before is not None]
    if not compared or contents.larger_is_better is None:
        return []
    normal = NormalDist().inv_cdf((1 + contents.level) / 2)
    tail = (1 - contents.level) / (2 * len(compared))
    worse = []
    for row in compared:
        n = min(row.mean.n_queries, row.before.n_queries if row.before else 0)
        difference, half = row.change.difference or 0.0, row.change.half or 0.0
        loss = -difference if contents.larger_is_better else difference
        if n >= MIN_QUERIES and loss > half / normal * t_quantile(1 - tail, n - 1):
            worse.append(row)
    return sorted(worse, key=lambda row: -abs(row.change.difference or 0.0))


def _list_watched(contents: Contents) -> list[RunResult]:
    """List the runs that the headline may be about."""
    production = [result for result in contents.results if result.mean.run == contents.production]
    return production or list(contents.results)


def _add_run(run: str, text: str, contents: Contents) -> str:
    """Put the name of the run before a text, if the report has several."""
    is_one_of_several = len(contents.results) > 1 or contents.missing.runs
    return f"{_shorten(name_run(run))}: {text}" if is_one_of_several else text[:1].upper() + text[1:]


def _add_value(result: RunResult, text: str, contents: Contents) -> str:
    return f"{_add_run(result.mean.run, text, contents)}; {_describe_value(result, contents)}"


def _describe_value(
    result: RunResult, contents: Contents, *, with_run: bool = False, with_segment: bool = True
) -> str:
    """Describe the mean of a run and its change, and the segment that explains a loss, or that got worse the most."""
    change, mean, decimals = result.change, result.mean, contents.decimals
    name = f" of {_shorten(name_run(mean.run))}" if with_run and len(contents.results) > 1 else ""
    value = w.format_number(mean.value, decimals)
    if change.kind in ARROWS:
        verb, since = "rose" if change.kind == "up" else "fell", w.name_night(change.since, contents.run_date)
        distance = w.format_number(abs(change.difference or 0.0), decimals)
        text = f"{contents.label}{name} {verb} by {distance} to {value} since {since}"
    elif with_run:
        bounds = w.format_interval(mean.low, mean.high, decimals)
        description = describe_change(replace(change, half=None), contents.run_date, decimals)
        text = f"{contents.label}{name} {f'{value} {bounds}'.rstrip()}, {description}"
    else:
        text = f"{contents.label} {_describe_briefly(result, contents)}"
    segment = _find_main_segment(result, contents) if with_segment else None
    if segment is None:
        return text
    separator = ": " if choose_tone(change.kind, contents) == "worse" else "; "
    return f"{text}{separator}{_describe_move(segment, contents)}{_explain_segment(segment)}"


def _describe_briefly(result: RunResult, contents: Contents) -> str:
    """Describe a mean and its change in a few words, beside other news."""
    change, value = result.change, _format_value(result.mean.value, contents)
    if change.kind in ARROWS:
        return f"{value}, {change.kind} {_format_value(abs(change.difference or 0.0), contents)}"
    if change.kind == "unclear":
        return f"{value}, no clear change"
    return f"{value}, {describe_change(change, contents.run_date, contents.decimals)}"


def find_named_segment(contents: Contents) -> SegmentRow | None:
    """Find the segment that the headline names as the cause; None if it names none."""
    headline = write_headline(contents)
    named = [result for result in contents.results if _names_run(headline, result.mean.run)]
    segments = [_find_main_segment(result, contents) for result in named or contents.results]
    ongoing = {(flag.run, flag.by, flag.segment) for flag in contents.flags.ongoing}
    runs = [result.mean.run for result in named or contents.results]
    rows = [row for row in contents.segments.rows if row.mean.run in runs]
    segments += [row for row in rows if (row.mean.run, row.mean.by, row.mean.segment) in ongoing]
    return next((row for row in segments if row is not None and f"{_name_segment(row.mean)} " in headline), None)


def _names_run(headline: str, run: str) -> bool:
    """Return whether a headline is about a run, by the two ways of naming one."""
    name = _shorten(name_run(run))
    return headline.startswith(f"{name}: ") or f" of {name} " in headline


def _find_main_segment(result: RunResult, contents: Contents) -> SegmentRow | None:
    """Find the segment with the largest change among those with over half of a loss; else the one that fell most.

    If all queries fell alike, no segment explains that. A change that is clear by the error of its flag, such as that
    of pairs of queries, may be small: only a segment whose own change is clear explains it.
    """
    run = result.mean.run
    worse = [row for row in find_worse_segments(contents) if row.mean.run == run]
    if choose_tone(result.change.kind, contents) == "worse":
        rows = [row for row in contents.segments.rows if row.mean.run == run and (row.share or 0.0) > 0.5]
        if contents.flags.find_error(result.mean, result.before) is not None:
            rows = [row for row in rows if row.change.kind != "unclear"]
        main = [row for row in rows if _is_cause(row, result)]
        if main:
            return max(main, key=lambda row: abs(row.change.difference or 0.0))
        worse = [row for row in worse if _is_cause(row, result)]
    return next(iter(worse), None)


def _is_cause(row: SegmentRow, result: RunResult) -> bool:
    """Return whether the other queries of a run changed less than half as much as a segment."""
    change, weight = row.change.difference or 0.0, row.mean.weight
    others = result.mean.weight - weight
    if others <= 0 or not change:
        return True
    change_of_others = (result.mean.weight * (result.change.difference or 0.0) - weight * change) / others
    return is_side_effect(change_of_others / change, 1.0)


def _explain_segment(row: SegmentRow) -> str:
    """Explain the loss of a segment if its counts do: by missing lists, or by items without judgments."""
    now, before = row.mean, row.before
    n_missing_before = (before and before.n_missing) or 0
    if now.n_missing and 2 * now.n_missing > now.n_queries and 2 * n_missing_before < now.n_missing:
        return f"; {w.format_count(now.n_missing)} of its {_count_queries(now.n_queries)} have no list"
    share, share_before = now.unjudged_share, None if before is None else before.unjudged_share
    if share is not None and share_before is not None and share > 0.1 and share > 2 * share_before:
        items = f"{_format_percent(share)} of its first items"
        return f"; {items} have no judgment, {_format_percent(share_before)} before"
    return ""


def _shorten(name: str) -> str:
    return w.shorten(name, w.MAX_NAME)


def list_warnings(contents: Contents) -> list[str]:
    """List bad news in the order of `_check_in_order`, except what the headline says."""
    several = len(contents.runs) > 1
    lead = find_bad_news(contents)
    warnings = [f"{text}." for text in _describe_missing_runs(replace(contents, production=None)) if text != lead]
    problems = [problem.rstrip(".") for problem in contents.problems]
    warnings += [f"{problem}." for problem in problems if problem != lead]
    warnings += _format_lines(_find_thin_runs(contents), contents, lead)
    for gate in contents.gates:
        is_told = f"ate {_strip_run(gate, contents)} is not met" in lead
        if not gate.met and not (is_told and (not several or _names_run(lead, gate.run))):
            run = f" for {_shorten(name_run(gate.run))}" if several else ""
            value = "there is no value" if gate.value is None else _format_value(gate.value, contents)
            warnings.append(f"Gate {gate.text} is not met{run}: {value}.")
    warnings += [line for tone, line in _format_flags(contents) if tone == "worse"]
    warnings += _format_lines(_find_ongoing(contents), contents, lead, "segments that have not recovered")
    empty_segments, n_empty = _find_empty_segments(contents), contents.missing.n_segments
    warnings += _format_lines(empty_segments, contents, lead, "segments without queries", n_empty)
    worse_segments = _describe_worse_segments(contents, lead)
    warnings += _format_lines(worse_segments, contents, lead, f"segments that {_choose_verb(contents)}")
    warnings += [text for text in contents.not_covered if text not in _list_lacks(contents)]
    warnings += list_contrary_gates(contents)
    if contents.rules_differ:
        rules = f"different rules ({contents.rules_differ})"
        warnings.append(f"The rankers were evaluated by {rules}: values in different tables cannot be compared.")
    for result in contents.results:
        name = _capitalize(_shorten(name_run(result.mean.run)))
        if result.change.kind == "incomparable":
            rules = f"by other rules ({result.change.rules})" if result.change.rules else "differently"
            warnings.append(f"{name} was computed {rules} before: to compare the nights, run the earlier ones again.")
        if not result.mean.n_queries:
            warnings.append(f"{name} has no query in the mean.")
        elif result.mean.is_small:
            warnings.append(
                f"{name} has only {_count_queries(result.mean.n_queries)}: the interval is a rough guide."
            )
    for row in contents.differences.rows:
        if not row.by and row.verdict == "worse" and row.run == contents.production:
            warnings.append(_capitalize(describe_difference(row, contents)))
    return warnings + _describe_worse_comparisons(contents)


def _list_lacks(contents: Contents) -> tuple[str, ...]:
    """List why the night has no comparison. That is not bad news: it may wait for a flag, or for a second ranker."""
    return () if contents.differences.rows else contents.differences.not_covered


def _describe_worse_comparisons(contents: Contents) -> list[str]:
    """Describe the segment with the largest loss of each pair that is not worse overall, and count the others."""
    worse_rows = [row for row in contents.differences.rows if row.verdict == "worse"]
    overall = {(row.run, row.baseline) for row in worse_rows if not row.by}
    warnings = []
    for pair in dict.fromkeys((row.run, row.baseline) for row in contents.differences.rows):
        rows = [row for row in worse_rows if (row.run, row.baseline) == pair]
        if rows and pair not in overall:
            largest = max(rows, key=lambda row: abs(row.difference or 0.0))
            others = f" Other segments that are worse: {w.format_count(len(rows) - 1)}." if len(rows) > 1 else ""
            warnings.append(f"{_capitalize(describe_difference(largest, contents))}{others}")
    return warnings


def _format_lines(news: News, contents: Contents, lead: str, subject: str = "", n_all: int = 0) -> list[str]:
    """Format news as lines, a few of each run, except what the headline says; count the others."""
    n_shown: dict[str, int] = {}
    lines = []
    for run, text in news:
        n_shown[run] = n_shown.get(run, 0) + 1
        line = _add_run(run, text, contents)
        if n_shown[run] <= MAX_LINES_PER_RUN and not lead.startswith(line):
            lines.append(f"{line}.")
    n_others = max(len(news), n_all) - sum(min(n, MAX_LINES_PER_RUN) for n in n_shown.values())
    return [*lines, f"Other {subject}: {w.format_count(n_others)}."] if n_others else lines


def list_notices(contents: Contents) -> list[tuple[str, str]]:
    """List news that is not bad, each with its colour: few queries, other flags, recoveries, and missing nights."""
    facts = [*_describe_few_queries(contents), *_describe_rejected(contents), *_describe_repeat(contents)]
    facts += _describe_week(contents)
    lines = [("neutral", line) for line in facts]
    lines += [(tone, line) for tone, line in _format_flags(contents) if tone != "worse"]
    headline = write_headline(contents) if len(contents.results) > 1 else ""  # else the page has none
    tone = "neutral" if contents.larger_is_better is None else "better"
    for run in dict.fromkeys(flag.run for flag in contents.flags.recovered):
        text = _describe_recoveries(run, contents)
        if text not in ("", headline):
            lines.append((tone, f"{text}."))
    last = contents.run_date or date.min
    gaps = [(f" of {_shorten(name_run(run))}", contents.trend.find_gaps(run)) for run in contents.runs]
    for of_run, all_nights in [("", contents.trend.missing), *gaps]:
        nights = [w.format_day(night) for night in all_nights[::-1] if (last - night).days <= MAX_AGE_DAYS]
        if nights:
            text = f"Nights without a result{of_run} in the last {MAX_AGE_DAYS} days: {w.join_names(nights, 5)}."
            lines.append(("neutral", text))
    return [*lines, *(("neutral", text) for text in _list_lacks(contents))]


def _describe_recoveries(run: str, contents: Contents) -> str:
    """Name the series of a run that are back to usual; empty without any."""
    names = [
        _describe_recovery(flag, contents)
        for flag in contents.flags.recovered
        if flag.run == run and _choose_recovery_tone(flag, contents) != "worse"
    ]
    return f"{_capitalize(_shorten(name_run(run)))} has recovered: {w.join_names(names)}" if names else ""


def _choose_recovery_tone(flag: SegmentFlag, contents: Contents) -> str:
    """Name the colour of a recovery; it is `worse` if the value was flagged for being better."""
    if flag.value is None or flag.before is None:
        return "better"
    return choose_tone("up" if flag.value > flag.before else "down", contents)


def _describe_recovery(flag: SegmentFlag, contents: Contents) -> str:
    """Describe a value that is back to usual: `country=FR (0.824 after 0.031)`."""
    known = flag.value is not None and flag.before is not None
    values = f" ({_format_value(flag.value, contents)} after {_format_value(flag.before, contents)})"
    return f"{_shorten(flag.name)}{values if known else ''}"


def list_contrary_gates(contents: Contents) -> list[str]:
    """List warnings about gates that demand worse values."""
    return list(dict.fromkeys(gate.contrary for gate in contents.gates if gate.contrary))


def _format_flags(contents: Contents) -> list[tuple[str, str]]:
    """Format flags of the night, except what the headline says, as colour and line.

    Flags of runs and of some segments are lines, which name segments that follow from them; the others are counted.
    """
    lines, n_shown = list[tuple[str, str]](), 0
    lead, headline = find_bad_news(contents), write_headline(contents)
    for result in contents.results:
        name, run = _capitalize(_shorten(name_run(result.mean.run))), result.mean.run
        following: dict[str, list[str]] = {}
        for flag in contents.flags.following:
            if flag.run == run:
                following.setdefault(choose_flag_tone(flag.flag, contents), []).append(_shorten(flag.name))
        segments = [flag for flag in contents.flags.segments if flag.run == run][:MAX_LINES_PER_RUN]
        n_shown += len(segments) + sum(map(len, following.values()))
        flags = []
        if result.flag is not None:
            of_run = contents.flags.changes.get((run, "", ""))
            values = "" if of_run is None or _names_run(headline, run) else _format_flag_values(of_run, contents)
            text = f"{values} ({result.flag})" if values else result.flag
            flags.append((result.flag, f"{name} is flagged tonight: {text}", result.flag))
        for flag in segments:
            values = "" if _is_told(flag, contents, headline) else _format_flag_values(flag, contents)
            text = f"{_shorten(flag.name)}: {f'{values} ({flag.flag})' if values else flag.flag}"
            flags.append((flag.flag, f"{name} is flagged tonight in {text}", f"is flagged ({flag.flag})"))
        for flag_text, line, in_lead in flags:
            tone = choose_flag_tone(flag_text, contents)
            if in_lead not in lead:
                names = following.pop(tone, [])
                more = f"; also in {w.join_names(names, _MAX_FOLLOWING)}" if names else ""
                lines.append((tone, f"{line}{more}."))
        for tone, names in following.items():
            lines.append((tone, f"{name} is also flagged in {w.join_names(names, _MAX_FOLLOWING)}."))
    if contents.flags.n_segments > n_shown:
        n_others = w.format_count(contents.flags.n_segments - n_shown)
        lines.append(("worse", f"Other segments flagged tonight: {n_others}."))
    return lines


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text


def format_loss(row: QueryRow, contents: Contents) -> str:
    """Format how much a query lost; if neither direction is better, the signed difference of its values."""
    if row.loss is None or contents.larger_is_better is None:
        return w.format_signed(None if row.loss is None else -row.loss, 4)
    return w.format_number(row.loss if contents.larger_is_better else -row.loss, 4)


def list_changes(contents: Contents) -> list[tuple[str, str]]:
    """List `up` or `down` and a sentence for each run that changed, if the report has several runs."""
    if len(contents.results) < 2:
        return []
    lines, headline = [], write_headline(contents)
    for result in contents.results:
        is_told = (
            any(
                _describe_value(result, contents, with_run=with_run, with_segment=False) in headline
                for with_run in (False, True)
            )
            or _describe_distance(result, contents) in headline
        )
        if result.change.kind in ARROWS and not is_told:
            change = describe_change(result.change, contents.run_date, contents.decimals)
            lines.append((result.change.kind, f"{_shorten(name_run(result.mean.run))} is {change}."))
    return lines


def summarize_gates(contents: Contents) -> str:
    n_met, n_gates = sum(gate.met for gate in contents.gates), len(contents.gates)
    if n_met < n_gates:
        return f"{n_met} of {n_gates} gates met"
    if n_gates > 1 and len({gate.text for gate in contents.gates}) == 1:
        return f"The gate is met by {_count_rankers(n_gates)}"
    return {0: "", 1: "The gate is met"}.get(n_gates, f"All {n_gates} gates are met")


def _count_rankers(n: int) -> str:
    return "both rankers" if n == 2 else f"all {n} rankers"


def describe_difference(row: ComparisonRow, contents: Contents) -> str:
    decimals = choose_difference_decimals(contents)
    verdicts = {
        "better": "better than",
        "worse": "worse than",
        "higher": "higher than",
        "lower": "lower than",
        "not_worse": "not worse than",
        "unclear": "not clearly different from",
    }
    verdict = verdicts.get(row.verdict, "compared with")
    bounds = w.format_interval(row.low, row.high, decimals)
    difference = f"{w.format_signed(row.difference, decimals)} {bounds}".rstrip()
    over = f", over {contents.differences.period}" if contents.differences.period else ""
    where = f" where {row.by} is {_shorten(row.name)}" if row.by else ""
    excludes_0 = row.low is not None and row.high is not None and not row.low <= 0 <= row.high
    # Verdicts are corrected for the number of tests, and intervals are not.
    if row.verdict in ("unclear", "not_worse") and excludes_0 and row.p_holm is not None:
        where += f" (p {w.format_p_value(row.p_holm)} after Holm)"
    text = f"{_shorten(name_run(row.run))} is {verdict} {_shorten(name_run(row.baseline))}{where}: {difference}{over}"
    return f"{text}{_format_missing(row, contents)}{describe_trouble(row, contents)}."


def describe_trouble(row: ComparisonRow, contents: Contents) -> str:
    """Say which run of a comparison over all queries lost queries, or why a better run may be no better."""
    if row.by or contents.differences.period:
        return ""
    lost = [result.mean.run for result in contents.results if result.lost_from is not None]
    thin = [_shorten(name_run(run)) for run in (row.run, row.baseline) if run in lost]
    if thin:
        return f", while {' and '.join(thin)} lost queries"
    if row.verdict != "better":
        return ""
    trouble = "" if _find_trouble(row.run, contents) else _find_trouble(row.baseline, contents)
    return f", while {_shorten(name_run(row.baseline))} {trouble}" if trouble else ""


def _find_trouble(run: str, contents: Contents) -> str:
    """Say whether a run or one of its segments is flagged as worse, or is still away from usual; else empty."""
    flags = [result.flag for result in contents.results if result.mean.run == run and result.flag]
    flags += [flag.flag for flag in contents.flags.segments if flag.run == run]
    if any(choose_flag_tone(flag, contents) == "worse" for flag in flags):
        return "is flagged"
    return "has not recovered" if any(flag.run == run for flag in contents.flags.ongoing) else ""


def _format_missing(row: ComparisonRow, contents: Contents) -> str:
    """Format how many queries of the other each run lacks and how they count, which can be all of a difference."""
    n_rejected = {result.mean.run: result.mean.n_lost_queries or 0 for result in contents.results}
    clauses = []
    lacks = ((row.run, row.n_only_baseline, row.baseline), (row.baseline, row.n_only_run, row.run))
    for run, n, other in lacks:
        if n:
            lost = 0 if contents.differences.period or row.by else n_rejected.get(run, 0)
            only = f" (its mean leaves out {w.format_count(lost)} with rejected rows only)" if lost else ""
            names = [_shorten(name_run(name)) for name in (run, other)]
            clauses.append(f"{names[0]} lacks {_count_queries(n)} of {names[1]}{only}")
    return f"; {' and '.join(clauses)}, {describe_unpaired(row.unpaired, row.metric)}" if clauses else ""


def choose_difference_decimals(contents: Contents) -> int:
    """Choose the decimals of differences: those of the metric, or more if their intervals are narrower."""
    overall = [row for row in contents.differences.rows if not row.by] or list(contents.differences.rows)
    half_widths = [(row.high - row.low) / 2 for row in overall if row.low is not None and row.high is not None]
    return max(contents.decimals, w.choose_decimals(half_widths)) if half_widths else contents.decimals


def describe_curve(contents: Contents) -> str:
    parts = []
    for run in contents.runs:
        means = [mean for mean in contents.curve if mean.run == run and mean.value is not None]
        if means:
            first, last = (
                f"{_format_value(mean.value, contents)} at {labels.cutoff(mean.k)}" for mean in (means[0], means[-1])
            )
            parts.append(f"{name_run(run)} goes from {first} to {last}")
    return f"{contents.metric.upper()} at each cutoff: {w.join_names(parts, 8)}."


def describe_trend(contents: Contents) -> str:
    parts = []
    for run, points in contents.trend.nights.items():
        values = [point.mean.value for point in points if point.mean.value is not None]
        if values:
            low, high, last = (_format_value(value, contents) for value in (min(values), max(values), values[-1]))
            parts.append(f"{name_run(run)} between {low} and {high}, last {last}")
    days = contents.trend.days
    span = f"{len(days):,} nights from {w.format_day(days[0])} to {w.format_day(days[-1])}"
    return f"{contents.label} over {span}: {w.join_names(parts, 8)}."


def describe_differences(contents: Contents) -> str:
    verdicts = Counter(row.verdict or "without a verdict" for row in contents.differences.rows)
    counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(verdicts.items()))
    return f"Differences in {contents.label} with their intervals, one row per segment: {counts}."


def describe_distribution(distribution: Distribution, *, several: bool) -> str:
    n, n_outside = distribution.n_queries, distribution.n_below + distribution.n_above
    lower, median, upper = (w.format_number(quartile, 3) for quartile in distribution.quartiles)
    text = (
        f"half of {_count_queries(n)} are between {lower} and {upper}, median {median}; "
        f"{w.format_share(distribution.n_lowest, n)} are at {distribution.low:.3g}, "
        f"{w.format_share(distribution.n_highest, n)} at {distribution.high:.3g}"
    )
    text += f"; {w.format_count(n_outside)} are outside." if n_outside else "."
    return f"{name_run(distribution.run)}: {text}" if several else text[:1].upper() + text[1:]


def describe_quartiles(distributions: Sequence[Distribution]) -> str:
    """Name the quartiles that are estimates, and their error; empty if all are exact."""
    errors = {name_run(each.run): each.quartile_error for each in distributions if each.quartile_error}
    if not errors:
        return ""
    runs = f" of {w.join_names(errors)}" if len(distributions) > 1 else ""
    error = f"{100 * max(errors.values()):.4g}\u00a0%"
    return f" Quartiles{runs} are estimates: the share of queries below each is off by at most {error}."


def describe_unjudged(accounting: Accounting) -> str:
    """Count the first items without a judgment; empty if there are none, or if they were not counted."""
    n = accounting.n_unjudged_items
    if not n:
        return ""
    where = "in the lists" if accounting.k is None else f"among the first {accounting.k}"
    return f"{w.pluralize(n, 'item', 'items')} {where} {'has' if n == 1 else 'have'} no judgment."


def describe_rows(accounting: Accounting) -> str:
    if accounting.n_read is None:
        return "The run log tells why rows were rejected, and so does the JSON of mean-ndcg, which this page lacks."
    total = sum(n for _, n in accounting.rows)
    parts = " + ".join(f"{w.format_count(n)} {name}" for name, n in accounting.rows)
    sign = "=" if total == accounting.n_read else "\u2260"
    return f"{w.format_count(accounting.n_read)} rows read {sign} {parts}."


def explain_changes(contents: Contents) -> str:
    level = f"{100 * contents.level:.4g} %"
    return (
        f"A change is called up or down only if its {level} interval excludes 0. The interval takes the nights as "
        "independent; if they share queries, smaller changes can be real. A flagged change has the error of its flag."
    )


def describe_rank(item: ListedItem) -> str:
    """Describe the rank of an item in the other list; empty if it is the same."""
    if item.other_rank is None:
        return "new"
    return f"was {item.other_rank}" if item.rise else ""
