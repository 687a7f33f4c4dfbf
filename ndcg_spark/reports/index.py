"""The index of nights: verdicts, means, and links to existing pages; one HTML file without external resources."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from markupsafe import Markup

from ndcg_spark._version import __version__
from ndcg_spark.reports import wording
from ndcg_spark.reports.contents import TrendPoint, name_run, split_at_gaps
from ndcg_spark.reports.page import build_styles, load_template
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import choose_flag_tone, find_bad_news, write_headline

NO_RESULT = "no result"
_VERDICT = re.compile(r'<meta name="verdict" content="(good|bad): ([^"]*)">')
_COLUMN = re.compile(r'<th scope="col" class="n"><bdi>(.*?)</bdi></th>')
_ROW = re.compile(
    r'<tr>(<th scope="row">(?:<a [^>]*>)?<time>([-\d]+)</time>(?:</a>)?</th>)'
    r'((?:<td class="n">.*?</td>)*)(<td .*?)</tr>'
)
_CELL = re.compile(r'<td class="n">(.*?)</td>')
_SPARKLINE = re.compile(r'<svg class="sparkline".*?</svg>')
_MAX_HEAD = 4096
"""Characters at the start of a page that contain its verdict."""
_WIDTH, _HEIGHT, _MARGIN = 320, 48, 4


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A night: its verdict, the means by column, and the name of its page, if there is one."""

    night: date
    verdict: str
    is_bad: bool | None
    """None: without flags and gates."""
    means: Mapping[str, str] = field(default_factory=dict)
    page: str = ""


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A night of an index that was drawn before: the HTML of its first and last cell, and the means by column."""

    head: Markup
    means: Mapping[str, str]
    verdict: Markup


def draw_index(contents: Contents, page: str, previous: str = "") -> str:
    """Draw the index of nights up to that of a report, whose page is written to `page`.

    Of the `previous` text of the index, later nights are kept, the means of runs that this night lacks, the order of
    columns, and reasons why nights have no result.
    """
    columns, drawn_rows = _read_rows(previous)
    runs, last = [*map(name_run, contents.trend_runs)], str(contents.run_date or "")
    rows: list[IndexRow | DrawnRow] = [row for night, row in drawn_rows.items() if last and night > last]
    has_later_rows = bool(rows)
    for row in list_nights(contents, Path(page)):
        before = drawn_rows.get(str(row.night))
        if before and not row.means and "<a " not in before.head:
            rows.append(before)  # why the night has no result
            continue
        of_others = {name: mean for name, mean in before.means.items() if name not in runs} if before else {}
        rows.append(replace(row, means={**of_others, **row.means}))
    columns += [name for name in runs if name not in columns]
    sparkline = _SPARKLINE.search(previous) if has_later_rows else None
    drawn = contents.production if contents.production in contents.runs else contents.runs[0]
    points = contents.trend.nights.get(drawn, ())
    return load_template("index.html.jinja").render(
        c=contents,
        css=Markup(build_styles()),  # ours
        columns=[name for name in columns if any(name in row.means for row in rows)],
        rows=rows,
        spark=_draw_sparkline(points) if sparkline is None else Markup(sparkline[0]),
        drawn=name_run(drawn),
        version=__version__,
        w=wording,
    )


def list_nights(contents: Contents, page: Path) -> list[IndexRow]:
    """List the nights of the trend and the missing nights between them, the newest first."""
    missing = set(contents.trend.missing)
    rows = []
    for night in sorted({*contents.trend.days, *missing}, reverse=True):
        if night in missing:
            rows.append(IndexRow(night, NO_RESULT, is_bad=True))
            continue
        points = [_find_point(contents, run, night) for run in contents.trend_runs]
        watched = [run for run in contents.runs if run == contents.production] or contents.runs
        lacking = [run for run in watched if night in contents.trend.find_gaps(run)]
        values = {name_run(point.mean.run): point.mean.value for point in points if point is not None}
        means = {name: wording.format_number(value, contents.decimals) for name, value in values.items()}
        name = _find_page(contents, night, page)
        verdict: tuple[str, bool | None] | None = read_verdict(page.parent / name) if name else None
        if night == contents.run_date:
            verdict = (write_headline(contents), bool(find_bad_news(contents)))
        text, is_bad = verdict or _judge_night(contents, [point for point in points if point is not None], lacking)
        rows.append(IndexRow(night, text, is_bad, means, name))
    return rows


def _read_rows(index: str) -> tuple[list[str], dict[str, DrawnRow]]:
    """Read the columns and the rows by night from the text of an index, which is ours."""
    columns = [html.unescape(name) for name in _COLUMN.findall(index)]
    rows = {}
    for head, night, cells, verdict in _ROW.findall(index):
        means = dict(zip(columns, map(Markup, _CELL.findall(cells)), strict=False))
        known = {name: mean for name, mean in means.items() if mean != wording.NOTHING}
        rows[night] = DrawnRow(Markup(head), known, Markup(verdict))
    return columns, rows


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


def read_verdict(page: Path) -> tuple[str, bool] | None:
    """Read the verdict of an earlier night from its page; None without a page, or if the page has no verdict."""
    if not page.exists():
        return None
    with page.open(encoding="utf-8", errors="replace") as file:
        match = _VERDICT.search(file.read(_MAX_HEAD))
    return None if match is None else (html.unescape(match.group(2)), match.group(1) == "bad")


def _find_point(contents: Contents, run: str, night: date) -> TrendPoint | None:
    return next((point for point in contents.trend.nights.get(run, ()) if point.run_date == night), None)


def _judge_night(contents: Contents, points: list[TrendPoint], lacking: list[str]) -> tuple[str, bool | None]:
    """Judge an earlier night by its runs, flags, and gates on the metric; None if there is nothing to judge."""
    reasons, has_gate = [f"{name_run(run)} has no result" for run in lacking], False
    is_bad = bool(reasons)
    for point in points:
        for gate in contents.gates:
            row = {"run": point.mean.run, "segment_by": "", "metric": contents.metric, "k": contents.k}
            is_of_point = (gate.run, gate.metric, gate.k) == (row["run"], row["metric"], row["k"])
            has_gate = has_gate or is_of_point
            if is_of_point and not gate.results([{**row, "value": point.mean.value}])[0]["met"]:
                reasons.append(f"gate {gate.text} is not met by {name_run(point.mean.run)}")
                is_bad = True
        if point.flag:
            reasons.append(f"{name_run(point.mean.run)} is flagged: {point.flag}")
            is_bad = is_bad or choose_flag_tone(point.flag, contents) == "worse"
        segment, n = contents.flags.earlier_segments.get((point.run_date, point.mean.run), (None, 0))
        if segment is not None:
            others = f", and {wording.pluralize(n - 1, 'other segment', 'other segments')}" if n > 1 else ""
            reasons.append(f"{name_run(point.mean.run)} is flagged in {segment.name}: {segment.flag}{others}")
            is_bad = is_bad or choose_flag_tone(segment.flag, contents) == "worse"
    if reasons:
        return "; ".join(reasons), is_bad
    facts = (["no flag"] if contents.flags.is_known else []) + (["gate met"] if has_gate else [])
    return ", ".join(facts), False if facts else None


def _find_page(contents: Contents, night: date, page: Path) -> str:
    """Find the page of a night beside that of the report, with another date in its name; empty if there is none."""
    if night == contents.run_date:
        return page.name
    name = page.name.replace(str(contents.run_date), str(night))
    return name if name != page.name and (page.parent / name).exists() else ""


def _draw_sparkline(nights: tuple[TrendPoint, ...]) -> Markup:
    """Draw the means of a run as a line that breaks as in `split_at_gaps`; empty for fewer than two nights.

    Flagged nights and nights without neighbours are points.
    """
    with_values = [night for night in nights if night.mean.value is not None]
    if len(with_values) < 2:
        return Markup("")
    values = [night.mean.value or 0.0 for night in with_values]
    low, high = min(values), max(values)
    first, days = with_values[0].run_date, max((with_values[-1].run_date - with_values[0].run_date).days, 1)

    def locate(night: TrendPoint) -> tuple[float, float]:
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
        f'<svg class="sparkline" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="xMinYMid" aria-hidden="true">'
        f"{''.join(shapes)}</svg>"
    )
