"""The index of nights: verdicts, means, and links to the pages that are there; one HTML file that loads nothing."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from markupsafe import Markup

from ndcg_spark._version import __version__
from ndcg_spark.reports import wording
from ndcg_spark.reports.contents import Night, run_name, split_at_gaps
from ndcg_spark.reports.page import styles, template
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import bad_news, flag_tone, headline

NO_RESULT = "no result"
_VERDICT = re.compile(r'<meta name="verdict" content="(good|bad): ([^"]*)">')
_MAX_HEAD = 4096
"""Characters of a page in which its verdict is."""
_WIDTH, _HEIGHT, _MARGIN = 320, 48, 4


@dataclass(frozen=True, slots=True)
class Row:
    """A night: what became of it, whether that is good, means by run, and the page, if there is one."""

    night: date
    verdict: str
    is_bad: bool | None
    """None: neither flags nor gates say."""
    means: tuple[str, ...] = ()
    page: str = ""


def index_of(contents: Contents, page: str) -> str:
    """Draw the index of nights up to that of a report, whose page is or will be at `page`."""
    return template("index.html.jinja").render(
        c=contents,
        css=Markup(styles()),  # ours
        rows=rows_of(contents, Path(page)),
        spark=_sparkline(contents.trend.nights.get(contents.runs[0], ())),
        run_name=run_name,
        version=__version__,
        w=wording,
    )


def rows_of(contents: Contents, page: Path) -> list[Row]:
    """Nights of the trend, and those that are missing between them, the newest first."""
    missing = set(contents.trend.missing)
    rows = []
    for night in sorted({*contents.trend.days, *missing}, reverse=True):
        if night in missing:
            rows.append(Row(night, NO_RESULT, is_bad=True))
            continue
        its = [_of_run(contents, run, night) for run in contents.runs]
        means = tuple(wording.number(None if one is None else one.mean.value, contents.decimals) for one in its)
        name = _page_of(contents, night, page)
        stated = _read_verdict(page.parent / name) if name else None
        if night == contents.run_date:
            stated = (headline(contents), bool(bad_news(contents)))
        verdict, is_bad = stated or _verdict(contents, [one for one in its if one is not None])
        rows.append(Row(night, verdict, is_bad, means, name))
    return rows


def add_night_without_result(index: str, night: date, reason: str) -> str:
    """Add a refused night to the text of an index, unless the index has that night or a later one.

    A report draws the index anew, but a night whose means were refused has no report.
    """
    nights = re.findall(r"<time>([-\d]+)</time>", index)
    if "<tbody>" not in index or (nights and nights[0] >= str(night)):
        return index
    means = f'<td class="n">{wording.NOTHING}</td>' * index.count('<th scope="col" class="n">')
    verdict = f'<span aria-hidden="true">✕</span> <bdi>{html.escape(reason)}</bdi>'
    row = f'<tr><th scope="row"><time>{night}</time></th>{means}<td class="worse">{verdict}</td></tr>'
    return index.replace("<tbody>", f"<tbody>\n{row}", 1)


def _read_verdict(page: Path) -> tuple[str, bool | None] | None:
    """Read the verdict of an earlier night from its page; None if it is not there yet, or was made without one."""
    if not page.exists():
        return None
    with page.open(encoding="utf-8", errors="replace") as file:
        match = _VERDICT.search(file.read(_MAX_HEAD))
    return None if match is None else (html.unescape(match.group(2)), match.group(1) == "bad")


def _of_run(contents: Contents, run: str, night: date) -> Night | None:
    return next((one for one in contents.trend.nights.get(run, ()) if one.run_date == night), None)


def _verdict(contents: Contents, nights: list[Night]) -> tuple[str, bool | None]:
    """Judge an earlier night by gates of the metric of the report, and by flags; None if there are neither."""
    reasons, is_bad, has_gate = [], False, False
    for one in nights:
        for gate in contents.gates:
            row = {"run": one.mean.run, "segment_by": "", "metric": contents.metric, "k": contents.k}
            is_about_it = (gate.run, gate.metric, gate.k) == (row["run"], row["metric"], row["k"])
            has_gate = has_gate or is_about_it
            if is_about_it and not gate.results([{**row, "value": one.mean.value}])[0]["met"]:
                reasons.append(f"gate {gate.text} is not met by {run_name(one.mean.run)}")
                is_bad = True
        if one.flag:
            reasons.append(f"{run_name(one.mean.run)} is flagged: {one.flag}")
            is_bad = is_bad or flag_tone(one.flag, contents) == "worse"
        segment, n = contents.flags.earlier_segments.get((one.run_date, one.mean.run), (None, 0))
        if segment is not None:
            others = f", and {wording.counted(n - 1, 'other segment', 'other segments')}" if n > 1 else ""
            reasons.append(f"{run_name(one.mean.run)} is flagged in {segment.name}: {segment.flag}{others}")
            is_bad = is_bad or flag_tone(segment.flag, contents) == "worse"
    if reasons:
        return "; ".join(reasons), is_bad
    facts = (["no flag"] if contents.flags.is_known else []) + (["gate met"] if has_gate else [])
    return ", ".join(facts), False if facts else None


def _page_of(contents: Contents, night: date, page: Path) -> str:
    """Name of the page of a night, if it lies beside that of the report: the same but for its date."""
    if night == contents.run_date:
        return page.name
    name = page.name.replace(str(contents.run_date), str(night))
    return name if name != page.name and (page.parent / name).exists() else ""


def _sparkline(nights: tuple[Night, ...]) -> Markup:
    """Draw the means of a run as a line that breaks as in `split_at_gaps`; empty for fewer than two nights.

    Flagged nights and nights without neighbours are points.
    """
    with_values = [night for night in nights if night.mean.value is not None]
    if len(with_values) < 2:
        return Markup("")
    values = [night.mean.value or 0.0 for night in with_values]
    low, high = min(values), max(values)
    first, days = with_values[0].run_date, max((with_values[-1].run_date - with_values[0].run_date).days, 1)

    def locate(night: Night) -> tuple[float, float]:
        part = ((night.mean.value or 0.0) - low) / (high - low) if high > low else 0.5
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * (night.run_date - first).days / days
        return round(x, 1), round(_HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * part, 1)

    parts = split_at_gaps(with_values)
    lines = [" ".join(f"{x},{y}" for x, y in map(locate, part)) for part in parts if len(part) > 1]
    alone = [part[0] for part in parts if len(part) == 1 and not part[0].flag]
    shapes = [f'<polyline points="{points}"/>' for points in lines]
    shapes += [f'<circle cx="{x}" cy="{y}" r="1.5" class="alone"/>' for x, y in map(locate, alone)]
    shapes += [
        f'<circle cx="{x}" cy="{y}" r="3"/>' for x, y in (locate(night) for night in with_values if night.flag)
    ]
    return Markup(
        f'<svg class="sparkline" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true">{"".join(shapes)}</svg>'
    )
