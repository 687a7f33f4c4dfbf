"""Sentences of a report, for pages and for terminals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from statistics import NormalDist

from ndcg_spark.core import labels
from ndcg_spark.evaluation.settings import REJECT_WARNING_SHARE
from ndcg_spark.history.settings import is_behind
from ndcg_spark.metrics import has_value_when_missing, judge_change
from ndcg_spark.reports import wording as w
from ndcg_spark.reports.contents import (
    Absent,
    Change,
    Comparison,
    Distribution,
    GateResult,
    ListedItem,
    Mean,
    QueryRow,
    SegmentRow,
    Standing,
    run_name,
)
from ndcg_spark.reports.sections import Accounting, Contents

MOST_FLAGS = 5
"""Segments of a run named for their flags; as many without queries, and as many that got worse."""
FEWEST_QUERIES = 5
"""A change of a segment is news if both nights have so many queries."""
DAYS_OF_NEWS = 14
"""Missing nights are told for so many days."""
_AGAIN = "A night that is run again replaces its rows."
_REFUSE = "mean-ndcg can refuse nights with many bad rows."
_LOOK = "See segments and queries below; diagnose runs shows the lists of queries that lost the most."
ARROWS = {"up": "▲", "down": "▼"}


def tone(kind: str, contents: Contents) -> str:
    """Name the colour of what went `up` or `down`: `better`, `worse`, or `neutral` where neither is better."""
    word = judge_change(contents.metric, 1 if kind == "up" else -1) if kind in ARROWS else ""
    return word if word in ("better", "worse") else "neutral"


def direction_note(contents: Contents) -> str:
    return {False: " Smaller is better.", None: " Neither more nor less is better."}.get(
        contents.larger_is_better, ""
    )


def flag_tone(flag: str, contents: Contents) -> str:
    """Name the colour of a flag by the status that it begins with; what a user flagged is `worse`."""
    kind = {"low": "down", "high": "up"}.get(flag.split(",")[0])
    return "worse" if kind is None else tone(kind, contents)


def when(since: date | None, night: date | None) -> str:
    if since is not None and night is not None and night - since == timedelta(days=1):
        return "the night before"
    return w.day(since)


def change_text(change: Change, night: date | None, decimals: int) -> str:
    """Describe how a mean changed; with a direction only where the difference is beyond its error."""
    before = when(change.since, night)
    if change.kind == "first":
        return "no earlier night to compare with"
    if change.kind == "lost":
        return f"no value to compare with {before}"
    if change.kind == "incomparable":
        return f"not compared with {before}, which was computed differently"
    if change.difference is None:
        return ""
    if change.kind == "unclear":
        error = "" if change.half is None else f" ± {w.number(change.half, decimals)}"
        return f"no clear change from {before} ({w.signed(change.difference, decimals)}{error})"
    half = change.half or 0.0
    bounds = w.interval(change.difference - half, change.difference + half, decimals)
    return f"{change.kind} {w.number(abs(change.difference), decimals)} from {before} {bounds}"


def headline(contents: Contents) -> str:
    """Answer in a line: the worst news of the night; without any, the first ranker, which has the best value.

    Where there is no earlier night, the first difference between rankers is the news.
    """
    first = _watched(contents)[0]
    overall = [row for row in contents.differences.rows if not row.by]
    if not bad_news(contents) and overall and all(one.change.kind == "first" for one in _watched(contents)):
        return difference_text(overall[0], contents).rstrip(".")
    return bad_news(contents) or _value_and_change(first, contents, of_run=True)


def bad_news(contents: Contents) -> str:
    """The worst news of the runs in question: first what was not measured, or from broken input, then bad values."""
    return _first_news(contents)[0]


def way_on(contents: Contents) -> str:
    """Where to look after the worst news; empty if there is none."""
    return _first_news(contents)[1]


def _first_news(contents: Contents) -> tuple[str, str]:
    tellers: tuple[tuple[Callable[[Contents], str], str], ...] = (
        (_behind, "See in the run log or the scheduler whether the job of the next night ran."),
        (lambda its: next(iter(_absent_runs(its)), ""), f"See whether its rows are in the input. {_AGAIN}"),
        (_without_value, f"See what became of its queries, below. {_AGAIN}"),
        (lambda its: _worst(_thin(its), its), f"See what became of rows and queries, below. {_AGAIN} {_REFUSE}"),
        (_missed_gate, _LOOK),
        (lambda its: _flag(its, worse=True), _LOOK),
        (_drop, _LOOK),
        (lambda its: _worst(_empty_segments(its), its), f"See whether its queries are in the input. {_AGAIN}"),
        (_fall, _LOOK),
        (lambda its: _flag(its, worse=False), _LOOK),
    )
    return next(((text, way) for tell, way in tellers if (text := tell(contents))), ("", ""))


Told = list[tuple[str, str]]
"""News, the worst first: the run, and the text."""


def _worst(news: Told, contents: Contents) -> str:
    """The first news of a watched run."""
    watched = {one.mean.run for one in _watched(contents)}
    return next((_told(run, what, contents) for run, what in news if run in watched), "")


def _behind(contents: Contents) -> str:
    """A later night than that of the report should be in the table."""
    last, today = contents.run_date, contents.today
    if last is None or today is None or not is_behind(last, today, apart=contents.trend.nights_apart):
        return ""
    n = w.counted((today - last).days, "night", "nights")
    return f"The last night in the table is {w.day(last)}, {n} before {w.day(today)}"


def _absent_runs(contents: Contents) -> list[str]:
    """Runs without rows: the one in production first, then those with the most queries."""
    its = [one for one in contents.missing.runs if contents.production in (None, one.last.run)]
    ordered = sorted(its, key=lambda one: (one.last.run != contents.production, -one.last.n_queries, one.last.run))
    return [
        f"{_short(run_name(one.last.run))} has no rows on {w.day(contents.run_date)}; {_last_value(one, contents)}"
        for one in ordered
    ]


def _last_value(one: Absent, contents: Contents) -> str:
    since = when(one.night, contents.run_date)
    if one.last.value is None:
        return f"its last night in the table is {since}"
    n = w.counted(one.last.n_queries, "query", "queries")
    return f"{contents.label} was {w.number(one.last.value, contents.decimals)} over {n} on {since}"


def _without_value(contents: Contents) -> str:
    """No query of a run counts."""
    for one in _watched(contents):
        if one.mean.value is None:
            what = "no query counts in the mean"
            if one.before is not None:
                before = Absent(last=one.before, night=one.change.since or date.min)
                what += f"; {_last_value(before, contents)}"
            return _told(one.mean.run, what, contents)
    return ""


def _thin(contents: Contents) -> Told:
    """Many rows of a run were rejected, or half of its queries are gone."""
    found = []
    for one in contents.standings:
        mean, before = one.mean, one.before
        rejected, usual = mean.rejected or 0.0, one.usually_rejected
        if rejected >= REJECT_WARNING_SHARE and rejected > 2 * (usual or 0.0):
            usually = "" if usual is None else f", usually {_percent(usual)}"
            most = f", most for {contents.accounting.rejected[0][0]}" if contents.accounting.rejected else ""
            rows = f"{w.count(mean.n_rejected)} of {w.count(mean.n_read)} rows ({_percent(rejected)}{usually})"
            found.append((rejected, mean.run, f"{rows} were rejected as bad{most}; {_left(one, contents)}"))
        elif before is not None and 2 * mean.n_queries <= min(
            other.n_queries for other in (before, one.week_before) if other is not None
        ):
            why, n = max(mean.outside, key=lambda one: one[1], default=("", 0))
            others = f"; {w.count(n)} {why}" if 2 * n >= mean.n_queries else ""
            found.append((1 - mean.n_queries / before.n_queries, mean.run, f"only {_left(one, contents)}{others}"))
    return [(run, what) for _, run, what in sorted(found, key=lambda one: (-one[0], one[1]))]


def _left(standing: Standing, contents: Contents) -> str:
    text = f"{w.counted(standing.mean.n_queries, 'query', 'queries')} in the mean"
    if standing.before is None:
        return text
    return f"{text}, {w.count(standing.before.n_queries)} on {when(standing.change.since, contents.run_date)}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f}\u00a0%"


def _missed_gate(contents: Contents) -> str:
    """The gate that was missed by the largest part of its bound."""
    watched = {one.mean.run: one for one in _watched(contents)}
    missed = [one for one in contents.gates if not one.met and one.run in watched]
    if not missed:
        return ""
    worst = max(missed, key=_miss)
    other = (worst.metric, worst.k) != (contents.metric, contents.k)
    value = f" ({w.number(worst.value, contents.decimals)})" if other else ""
    return _news(watched[worst.run], f"gate {_bare(worst, contents)} is not met{value}", contents)


def _bare(gate: GateResult, contents: Contents) -> str:
    """The text of a gate without its run, where that is told beside it."""
    return gate.text.removeprefix(f"{gate.run}:").strip() if len(contents.standings) > 1 else gate.text


def _miss(gate: GateResult) -> float:
    return math.inf if gate.value is None else abs(gate.value - gate.bound) / (abs(gate.bound) or 1.0)


def _flag(contents: Contents, *, worse: bool) -> str:
    """The first flag of a night that is worse than usual, or of one that is not."""
    watched = {one.mean.run: one for one in _watched(contents)}
    flagged = [(one, f"flagged {one.flag}", one.flag) for one in watched.values() if one.flag is not None]
    flagged += [
        (one, f"flagged in {_short(flag.name)}, {flag.flag}", flag.flag)
        for flag in contents.flags.segments
        for one in watched.values()
        if flag.run in ("", one.mean.run)
    ]
    its = [(one, what) for one, what, flag in flagged if (flag_tone(flag, contents) == "worse") is worse]
    if not its:
        return ""
    first = its[0][0]
    fell = worse and tone(first.change.kind, contents) == "worse"  # then the value says more than the flag
    return _value_and_change(first, contents, of_run=True) if fell else _news(*its[0], contents)


def _drop(contents: Contents) -> str:
    """The largest change for the worse over all queries that is beyond its error."""
    dropped = [one for one in _watched(contents) if tone(one.change.kind, contents) == "worse"]
    if not dropped:
        return ""
    worst = max(dropped, key=lambda one: abs(one.change.difference or 0.0))
    return _value_and_change(worst, contents, of_run=True)


def _empty_segments(contents: Contents) -> Told:
    """Segments without queries, of runs with rows."""
    return [
        (one.last.run, f"no queries in {_segment(one.last)}; {_last_value(one, contents)}")
        for one in contents.missing.segments
    ]


def _segment(mean: Mean) -> str:
    return labels.segment_at(mean.by, _short(mean.name))


def _fall(contents: Contents) -> str:
    """The segment that got worse the most, although all queries together did not."""
    watched = {one.mean.run: one for one in _watched(contents)}
    for run, what in _fallen_segments(contents):
        if run in watched:
            value = _value_and_change(watched[run], contents, where=False)
            return f"{_told(run, what, contents)}; {labels.OVERALL}: {value}"
    return ""


def _fallen_segments(contents: Contents) -> Told:
    found = []
    for row in fallen(contents):
        n = w.counted(row.mean.n_queries, "query", "queries")
        where = f"{contents.label} in {_segment(row.mean)}"
        found.append((row.mean.run, f"{where} {_fell(contents)} {_from_to(row, contents)} ({n})"))
    return found


def _fell(contents: Contents) -> str:
    return "rose" if contents.larger_is_better is False else "fell"


def _from_to(row: SegmentRow, contents: Contents) -> str:
    before = None if row.before is None else row.before.value
    return f"from {w.number(before, contents.decimals)} to {w.number(row.mean.value, contents.decimals)}"


def fallen(contents: Contents) -> list[SegmentRow]:
    """Find segments that got worse since the night before, the worst first; none where neither direction is better.

    A change of one segment is called one beyond its interval. Among many segments some are beyond it by chance, so
    here the level is divided by their number (Bonferroni), and few queries need a larger distance (Student's t).
    """
    compared = [row for row in contents.segments.rows if row.change.half is not None and row.before is not None]
    if not compared or contents.larger_is_better is None:
        return []
    normal = NormalDist().inv_cdf((1 + contents.level) / 2)
    tail = (1 - contents.level) / (2 * len(compared))
    found = []
    for row in compared:
        n = min(row.mean.n_queries, row.before.n_queries if row.before else 0)
        difference, half = row.change.difference or 0.0, row.change.half or 0.0
        loss = -difference if contents.larger_is_better else difference
        if n >= FEWEST_QUERIES and loss > half / normal * t_limit(tail, n - 1):
            found.append(row)
    return sorted(found, key=lambda row: -abs(row.change.difference or 0.0))


def t_limit(tail: float, df: int) -> float:
    """Quantile of Student's t, `df` >= 4. Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5."""
    z = NormalDist().inv_cdf(1 - tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(df) ** power for power, term in enumerate(terms, start=1))


def _watched(contents: Contents) -> list[Standing]:
    """Rankers that the headline may be about."""
    its = [one for one in contents.standings if one.mean.run == contents.production]
    return its or list(contents.standings)


def _told(run: str, what: str, contents: Contents) -> str:
    """Name the run where there are several, and add what is new."""
    return f"{_short(run_name(run))}: {what}" if len(contents.standings) > 1 else what[:1].upper() + what[1:]


def _news(standing: Standing, what: str, contents: Contents) -> str:
    return f"{_told(standing.mean.run, what, contents)}; {_value_and_change(standing, contents)}"


def _value_and_change(standing: Standing, contents: Contents, *, of_run: bool = False, where: bool = True) -> str:
    """The metric and its change, and the segment in which most of a loss lies, or that lost the most, with why."""
    change, mean, decimals = standing.change, standing.mean, contents.decimals
    name = f" of {_short(run_name(mean.run))}" if of_run and len(contents.standings) > 1 else ""
    value = w.number(mean.value, decimals)
    if change.kind in ARROWS:
        verb = "rose" if change.kind == "up" else "fell"
        by, since = w.number(abs(change.difference or 0.0), decimals), when(change.since, contents.run_date)
        text = f"{contents.label}{name} {verb} by {by} to {value} since {since}"
    else:
        bounds = w.interval(mean.low, mean.high, decimals)
        said = change_text(change, contents.run_date, decimals)
        text = f"{contents.label}{name} {f'{value} {bounds}'.rstrip()}, {said}"
    if not where:
        return text
    segment = _worst_segment(standing, contents)
    if segment is None:
        return text
    apart = ": " if tone(change.kind, contents) == "worse" else "; "
    return f"{text}{apart}{_segment(segment.mean)} {_fell(contents)} {_from_to(segment, contents)}{_why(segment)}"


def worst_segment(contents: Contents) -> SegmentRow | None:
    """The segment that the headline names as the cause; None if there is none."""
    lead = headline(contents)
    found = (_worst_segment(one, contents) for one in _watched(contents))
    return next((one for one in found if one is not None and _segment(one.mean) in lead), None)


def _worst_segment(standing: Standing, contents: Contents) -> SegmentRow | None:
    """The segment that changed most, of those in which most of a loss of a run lies; else the one that fell most."""
    run = standing.mean.run
    its = [one for one in contents.segments.rows if one.mean.run == run and (one.share or 0.0) > 0.5]
    if tone(standing.change.kind, contents) == "worse" and its:
        return max(its, key=lambda one: abs(one.change.difference or 0.0))
    return next((one for one in fallen(contents) if one.mean.run == run), None)


def _why(row: SegmentRow) -> str:
    """What happened to a segment, as far as its counts tell: lists that are missing, or items without judgments."""
    now, before = row.mean, row.before
    if (
        now.n_missing
        and 2 * now.n_missing > now.n_queries
        and 2 * ((before and before.n_missing) or 0) < now.n_missing
    ):
        return f"; {w.count(now.n_missing)} of its {w.counted(now.n_queries, 'query', 'queries')} have no list"
    share, was = now.unjudged, None if before is None else before.unjudged
    if share is not None and was is not None and share > 0.1 and share > 2 * was:
        return f"; {_percent(share)} of its first items have no judgment, {_percent(was)} before"
    return ""


def _short(name: str) -> str:
    return w.shortened(name, w.MOST_CHARACTERS)


def attention(contents: Contents) -> list[str]:
    """What a reader should know first, in the order of `bad_news`, without what the headline contains."""
    several = len(contents.runs) > 1
    lead = bad_news(contents)
    found = [f"{text}." for text in _absent_runs(replace(contents, production=None)) if text != lead]
    found += _lines(_thin(contents), contents, lead)
    for gate in contents.gates:
        if not gate.met and f"ate {_bare(gate, contents)} is not met" not in lead:
            whose = f" for {_short(run_name(gate.run))}" if several else ""
            value = "there is no value" if gate.value is None else w.number(gate.value, contents.decimals)
            found.append(f"Gate {gate.text} is not met{whose}: {value}.")
    found += [line for of_flag, line, flag in _flag_lines(contents) if of_flag == "worse" and flag not in lead]
    found += _lines(
        _empty_segments(contents), contents, lead, "Segments without queries", contents.missing.n_segments
    )
    found += _lines(_fallen_segments(contents), contents, lead, f"Segments that {_fell(contents)}")
    found += contents.not_covered
    found += contrary_gates(contents)
    if contents.rules_differ:
        what = f"different rules ({contents.rules_differ})"
        found.append(f"The rankers were evaluated by {what}: values in different tables cannot be compared.")
    for one in contents.standings:
        name = _short(run_name(one.mean.run))
        if one.change.kind == "incomparable":
            found.append(f"{_capital(name)} was computed differently before: numbers cannot be compared.")
        if not one.mean.n_queries:
            found.append(f"{_capital(name)} has no query in the mean.")
        elif one.mean.is_small:
            n = w.counted(one.mean.n_queries, "query", "queries")
            found.append(f"{_capital(name)} has only {n}: the interval is a rough guide.")
    for row in contents.differences.rows:
        if not row.by and row.verdict == "worse":
            found.append(f"{_capital(difference_text(row, contents))}")
    return found + _worse_segments(contents)


def _worse_segments(contents: Contents) -> list[str]:
    """The segment that lost most, of each pair that is not worse over all queries, and a count of the others."""
    overall = {(row.run, row.baseline) for row in contents.differences.rows if not row.by and row.verdict == "worse"}
    found = []
    for pair in dict.fromkeys((row.run, row.baseline) for row in contents.differences.rows):
        worse = [
            one for one in contents.differences.rows if (one.run, one.baseline) == pair and one.verdict == "worse"
        ]
        if worse and pair not in overall:
            most = max(worse, key=lambda one: abs(one.difference or 0.0))
            others = f" Other segments that are worse: {w.count(len(worse) - 1)}." if len(worse) > 1 else ""
            found.append(f"{_capital(difference_text(most, contents))}{others}")
    return found


def _lines(news: Told, contents: Contents, lead: str, what: str = "", n_all: int = 0) -> list[str]:
    """News as lines, some of each run, without what the headline contains; the others are counted."""
    shown: dict[str, int] = {}
    found = []
    for run, text in news:
        shown[run] = shown.get(run, 0) + 1
        line = _told(run, text, contents)
        if shown[run] <= MOST_FLAGS and not lead.startswith(line):
            found.append(f"{line}.")
    rest = max(len(news), n_all) - sum(min(n, MOST_FLAGS) for n in shown.values())
    return [*found, f"{what} that are not named here: {w.count(rest)}."] if rest else found


def notices(contents: Contents) -> list[tuple[str, str]]:
    """Sentences about flags of what is not worse than usual, each with its colour, and about missing nights."""
    lead = bad_news(contents)
    lines = [(tone, line) for tone, line, flag in _flag_lines(contents) if tone != "worse" and flag not in lead]
    for run in dict.fromkeys(one.run for one in contents.flags.recovered):
        names = [_short(one.name) for one in contents.flags.recovered if one.run == run]
        lines.append(("better", f"{_capital(_short(run_name(run)))} has recovered: {w.join_names(names)}."))
    last = contents.run_date or date.min
    missing = [w.day(night) for night in contents.trend.missing[::-1] if (last - night).days <= DAYS_OF_NEWS]
    if missing:
        lines.append(("neutral", f"Nights without a result: {w.join_names(missing, 5)}."))
    return lines


def contrary_gates(contents: Contents) -> list[str]:
    """Sentences about gates that ask for what is worse."""
    return list(dict.fromkeys(gate.contrary for gate in contents.gates if gate.contrary))


def _flag_lines(contents: Contents) -> list[tuple[str, str, str]]:
    """Flags of the night: colour, line and text; of the segments of a run a few, and the others counted."""
    found = []
    for one in contents.standings:
        name = _capital(_short(run_name(one.mean.run)))
        if one.flag is not None:
            found.append((flag_tone(one.flag, contents), f"{name} is flagged tonight: {one.flag}.", one.flag))
        its = [flag for flag in contents.flags.segments if flag.run == one.mean.run]
        found += [
            (
                flag_tone(flag.flag, contents),
                f"{name} is flagged tonight in {_short(flag.name)}: {flag.flag}.",
                f"{_short(flag.name)}, {flag.flag}",
            )
            for flag in its[:MOST_FLAGS]
        ]
    shown = sum(min(MOST_FLAGS, sum(flag.run == run for flag in contents.flags.segments)) for run in contents.runs)
    if contents.flags.n_segments > shown:
        more = w.count(contents.flags.n_segments - shown)
        found.append(("worse", f"Segments that are flagged tonight and not named here: {more}.", more))
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith("the ") else text


def loss_text(row: QueryRow, contents: Contents) -> str:
    """Show how much a query lost; the difference of its values where neither direction is better."""
    if row.loss is None or contents.larger_is_better is None:
        return w.signed(None if row.loss is None else -row.loss, 4)
    return w.number(row.loss if contents.larger_is_better else -row.loss, 4)


def changes(contents: Contents) -> list[tuple[str, str]]:
    """`up` or `down`, and a sentence, of each run that changed, where there are several."""
    if len(contents.standings) < 2:
        return []
    found, lead = [], headline(contents)
    for one in contents.standings:
        if one.change.kind in ARROWS and _value_and_change(one, contents, where=False) not in lead:
            change = change_text(one.change, contents.run_date, contents.decimals)
            found.append((one.change.kind, f"{_short(run_name(one.mean.run))} is {change}."))
    return found


def gates_met(contents: Contents) -> str:
    met, whole = sum(one.met for one in contents.gates), len(contents.gates)
    if met < whole:
        return f"{met} of {whole} gates met"
    return {0: "", 1: "The gate is met"}.get(whole, f"All {whole} gates are met")


def difference_text(row: Comparison, contents: Contents) -> str:
    decimals = difference_decimals(contents)
    verdicts = {
        "better": "better than",
        "worse": "worse than",
        "higher": "higher than",
        "lower": "lower than",
        "not_worse": "not worse than",
        "unclear": "not clearly different from",
    }
    verdict = verdicts.get(row.verdict, "compared with")
    bounds = w.interval(row.low, row.high, decimals)
    difference = f"{w.signed(row.difference, decimals)} {bounds}".rstrip()
    over = f", over {contents.differences.period}" if contents.differences.period else ""
    where = f" where {row.by} is {_short(row.name)}" if row.by else ""
    text = f"{_short(run_name(row.run))} is {verdict} {_short(run_name(row.baseline))}{where}: {difference}{over}"
    return f"{text}{_format_missing(row, contents)}."


def _format_missing(row: Comparison, contents: Contents) -> str:
    """Format how many queries one of two runs lacks and how they count, which can be all of a difference."""
    counts_as_0 = row.unpaired == "zero" and has_value_when_missing(row.metric)
    n_rejected = {standing.mean.run: standing.mean.n_lost_queries or 0 for standing in contents.standings}
    clauses = []
    for run, n in ((row.run, row.n_only_baseline), (row.baseline, row.n_only_run)):
        if n:
            lost = 0 if contents.differences.period or row.by else n_rejected.get(run, 0)
            only = f" (its mean leaves out {w.count(lost)} with rejected rows only)" if lost else ""
            clauses.append(f"{_short(run_name(run))} lacks {w.counted(n, 'query', 'queries')}{only}")
    return f"; {' and '.join(clauses)}, {'counted as 0' if counts_as_0 else 'left out'}" if clauses else ""


def difference_decimals(contents: Contents) -> int:
    """Decimals of differences: those of the metric, or more where their intervals are narrower."""
    overall = [one for one in contents.differences.rows if not one.by] or list(contents.differences.rows)
    halves = [(one.high - one.low) / 2 for one in overall if one.low is not None and one.high is not None]
    return max(contents.decimals, w.decimals_for(halves)) if halves else contents.decimals


def curve_text(contents: Contents) -> str:
    parts = []
    for run in contents.runs:
        its = [one for one in contents.curve if one.run == run and one.value is not None]
        if its:
            first, last = its[0], its[-1]
            parts.append(
                f"{run_name(run)} goes from {w.number(first.value, contents.decimals)} at {labels.cutoff(first.k)} "
                f"to {w.number(last.value, contents.decimals)} at {labels.cutoff(last.k)}"
            )
    return f"{contents.metric.upper()} at each cutoff: {w.join_names(parts, 8)}."


def trend_text(contents: Contents) -> str:
    parts = []
    for run, nights in contents.trend.nights.items():
        values = [one.mean.value for one in nights if one.mean.value is not None]
        if values:
            parts.append(
                f"{run_name(run)} between {w.number(min(values), contents.decimals)} and "
                f"{w.number(max(values), contents.decimals)}, last {w.number(values[-1], contents.decimals)}"
            )
    nights_in_all = {one.run_date for nights in contents.trend.nights.values() for one in nights}
    span = f"{len(nights_in_all):,} nights from {w.day(min(nights_in_all))} to {w.day(max(nights_in_all))}"
    return f"{contents.label} over {span}: {w.join_names(parts, 8)}."


def differences_text(contents: Contents) -> str:
    verdicts = Counter(row.verdict or "without a verdict" for row in contents.differences.rows)
    counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in sorted(verdicts.items()))
    return f"Differences in {contents.label} with their intervals, a row a segment: {counts}."


def distribution_text(one: Distribution, *, several: bool) -> str:
    lower, median, upper = one.quartiles
    text = (
        f"half of {w.counted(one.n_queries, 'query', 'queries')} lie between {w.number(lower, 3)} and "
        f"{w.number(upper, 3)}, median {w.number(median, 3)}; {w.share(one.n_lowest, one.n_queries)} are at "
        f"{one.low:.3g}, {w.share(one.n_highest, one.n_queries)} at {one.high:.3g}"
    )
    outside = one.n_below + one.n_above
    text += f"; {w.count(outside)} lie outside." if outside else "."
    return f"{run_name(one.run)}: {text}" if several else text[:1].upper() + text[1:]


def quartiles_note(distributions: Sequence[Distribution]) -> str:
    """Name the quartiles that are estimates, and their error; empty where all are exact."""
    estimated = [one for one in distributions if one.quartile_error]
    if not estimated:
        return ""
    whose = f" of {w.join_names(run_name(one.run) for one in estimated)}" if len(distributions) > 1 else ""
    error = f"{100 * max(one.quartile_error for one in estimated):.4g}\u00a0%"
    return f" Quartiles{whose} are estimates: the share of queries below each is off by at most {error}."


def unjudged_text(accounting: Accounting) -> str:
    """Count the first items without a judgment; empty where all have one, and where they were not counted."""
    n = accounting.n_unjudged_items
    if not n:
        return ""
    where = "in the lists" if accounting.k is None else f"among the first {accounting.k}"
    return f"{w.counted(n, 'item', 'items')} {where} {'has' if n == 1 else 'have'} no judgment."


def accounting_text(accounting: Accounting) -> str:
    if accounting.n_read is None:
        return "The metric table counts the rows of each ranker. The JSON of the job adds why rows were rejected."
    total = sum(n for _, n in accounting.rows)
    parts = " + ".join(f"{w.count(n)} {name}" for name, n in accounting.rows)
    adds_up = "=" if total == accounting.n_read else "\u2260"
    return f"{w.count(accounting.n_read)} rows read {adds_up} {parts}."


def change_note(contents: Contents) -> str:
    level = f"{100 * contents.level:.4g} %"
    return (
        f"A night is called up or down only where the difference exceeds its {level} interval, nights taken as "
        "independent; where nights share queries, this is cautious."
    )


def move_text(item: ListedItem) -> str:
    """Rank of an item in the other list; empty where it is the same."""
    if item.other is None:
        return "new"
    return f"was {item.other}" if item.rise else ""
