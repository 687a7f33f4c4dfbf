"""The page: valid HTML in one small file, with the numbers of the tables and escaped texts."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import fields, is_dataclass, replace
from datetime import date, timedelta

import pytest
from support.reports import (
    CHANGED,
    COMPARED,
    HOSTILE,
    NIGHTS,
    SEGMENTS,
    VALUES,
    build_contents,
    build_full_contents,
    build_metric_row,
    build_metric_rows,
)
from tinyhtml5.parser import HTMLParser

from ndcg_spark.reports.assembly import Report
from ndcg_spark.reports.contents import Change, SegmentFlag
from ndcg_spark.reports.index import add_night_without_result, draw_index, list_nights
from ndcg_spark.reports.queries import read_changed_queries
from ndcg_spark.reports.reading import Scope
from ndcg_spark.reports.sections import Contents, Flags
from ndcg_spark.reports.sentences import write_headline

XHTML = "{http://www.w3.org/1999/xhtml}"


def rename_runs(section, names):
    """Copy contents with other names of runs."""
    if is_dataclass(section):
        known = {field.name: getattr(section, field.name) for field in fields(section)}
        runs = {name: names.get(known[name], known[name]) for name in ("run", "baseline") if name in known}
        return replace(section, **{name: rename_runs(value, names) for name, value in known.items()} | runs)
    if isinstance(section, tuple):
        return tuple(rename_runs(value, names) for value in section)
    if isinstance(section, dict):
        return {names.get(key, key): rename_runs(value, names) for key, value in section.items()}
    return section


@pytest.fixture(scope="module")
def whole():
    """A report with everything in it; both runs have hostile names."""
    names = {"old": f"old {HOSTILE}", "new": "new $x$ ]]>"}
    changed = read_changed_queries(CHANGED, Scope("shop", NIGHTS[-1], ("old", "new"), "ndcg", 10))
    contents = build_full_contents(changed=changed, gates=["ndcg@10>=0.43"])
    return Report(replace(rename_runs(contents, names), title=f"Quality {HOSTILE}"))


@pytest.fixture(scope="module")
def tree(whole):
    return HTMLParser().parse(whole.html)


def find_elements(tree, name):
    return [
        element for element in tree.iter() if isinstance(element.tag, str) and element.tag.rpartition("}")[2] == name
    ]


def read_text(element):
    return " ".join("".join(element.itertext()).split())


def test_page_is_valid_html(whole):
    parser = HTMLParser()
    parser.parse(whole.html)
    assert [(code, where) for where, code, _ in parser.errors] == []


def test_page_ids_are_unique_and_references_exist(tree):
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    wanted = {
        target.lstrip("#")
        for element in tree.iter()
        for name in ("href", "aria-labelledby", "clip-path")
        for target in re.findall(r"#?[\w-]+(?=\)|$)", element.get(name, "").removeprefix("url("))
        if name == "aria-labelledby" or "#" in element.get(name, "")
    }
    assert wanted <= set(ids)


def test_page_has_no_external_resources(whole, tree):
    for element in tree.iter():
        for name in ("src", "href", "srcset", "data", "action", "poster", "{http://www.w3.org/1999/xlink}href"):
            value = element.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (element.tag, value)
    styles = [read_text(element) for element in find_elements(tree, "style")] + [
        element.get("style", "") for element in tree.iter()
    ]
    assert not any(re.search(r"@import|url\((?!#)", style) for style in styles)
    assert len(whole.html.encode()) < 500_000


def test_largest_page_is_below_5_mb():
    rows = []
    for run in range(8):
        for back in range(400):
            night = NIGHTS[-1] - timedelta(days=back)
            rows.append(build_metric_row(f"ranker {run}", night, 0.4 + run / 100, 0.002))
        rows += [
            build_metric_row(f"ranker {run}", NIGHTS[-1], 0.4, 0.01, segment_by="city", segment=f"city {at}")
            for at in range(70)
        ]
    largest = Report(build_contents(rows))
    assert len(largest.contents.segments.rows) == 560  # the default limit is 500
    assert len(largest.html.encode()) < 5_000_000


def test_page_policy_allows_only_its_script(tree):
    (script,) = find_elements(tree, "script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = [element.get("content") for element in find_elements(tree, "meta") if element.get("http-equiv")]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]


def test_page_escapes_hostile_texts(whole, tree):
    assert find_elements(tree, "img") == []
    assert "<img" not in whole.html
    text = read_text(tree)
    for where in ("Quality ", "old ", "rejected"):
        assert where in text
    assert text.count(HOSTILE) > 5
    assert any(HOSTILE[:12] in read_text(svg) for svg in find_elements(tree, "svg"))  # cut, in the forest plot
    assert any("$x$ ]]>" in read_text(svg) for svg in find_elements(tree, "svg"))  # dollar signs are not a formula


def test_page_has_the_numbers_of_the_tables(tree):
    values = [float(element.get("data-value")) for element in tree.iter() if element.get("data-value")]
    assert sorted(values) == sorted(VALUES[run, NIGHTS[2]][0] for run in ("old", "new"))
    (table,) = [element for element in find_elements(tree, "table") if element.get("id") == "segment-table"]
    cells = [float(cell.get("data-sort")) for cell in find_elements(table, "td") if cell.get("data-sort")]
    for run in ("old", "new"):
        for n, more in SEGMENTS.values():
            assert VALUES[run, NIGHTS[2]][0] + more in cells
            assert n in cells
    (table,) = [element for element in find_elements(tree, "table") if element.get("id") == "comparison-table"]
    cells = [cell.get("data-sort") for cell in find_elements(table, "td") if cell.get("data-sort")]
    assert {str(row[2]) for row in COMPARED} <= set(cells)


def test_page_shows_rounded_numbers(tree):
    for cell in find_elements(tree, "td"):
        shown, stored = read_text(cell).replace("\u2212", "-").replace(",", ""), cell.get("data-sort")
        if stored and re.fullmatch(r"[-+]?\d+\.\d+", shown):
            assert float(shown) == pytest.approx(float(stored), abs=0.5 * 10 ** -len(shown.partition(".")[2]) + 1e-12)


def test_figures_have_texts_and_two_widths(tree):
    drawn = [svg for svg in find_elements(tree, "svg") if svg.get("role") == "img"]
    assert len(drawn) == 8
    assert all(len(svg.get("aria-label")) > 40 for svg in drawn)
    assert [svg.get("class") for svg in drawn].count("narrow") == 4
    assert [
        svg for svg in find_elements(tree, "svg") if svg.get("role") != "img" and svg.get("aria-hidden") != "true"
    ] == []


def test_figures_use_colours_of_the_style_sheet(tree):
    for svg in find_elements(tree, "svg"):
        for part in svg.iter():
            assert "#" not in part.get("style", ""), part.get("style")


def test_segments_with_few_queries_are_marked(tree):
    (table,) = [element for element in find_elements(tree, "table") if element.get("id") == "segment-table"]
    few = [row for row in find_elements(table, "tr") if row.get("data-small") is not None]
    assert len(few) == 2
    assert all("few" in read_text(row) for row in few)


def test_page_shows_a_single_run_as_one_number():
    page = Report(build_contents(build_metric_rows(runs=["old"]))).html
    assert re.search(r'<p class="value" data-value="0.4305">0.4305<span class="interval">\[0.4266, 0.4344\]', page)
    assert "no clear change from 29 January 2026" in page


def test_page_of_a_night_without_queries():
    rows = [build_metric_row("", NIGHTS[0], None, None, n_queries=0)]
    report = Report(build_contents(rows, gates=["ndcg@10>=0.1"]))
    assert "has no query in the mean" in report.html
    assert "Gate ndcg@10&gt;=0.1 is not met" in report.html


def test_repr_html_shows_the_page_in_a_frame(whole):
    frame = whole._repr_html_()
    (iframe,) = find_elements(HTMLParser().parse(frame), "iframe")
    assert iframe.get("srcdoc") == whole.html
    assert iframe.get("sandbox") == "allow-scripts"


def test_page_shows_both_lists_of_changed_queries(tree):
    (section,) = [element for element in find_elements(tree, "section") if element.get("id") == "queries"]
    pairs = [element for element in find_elements(section, "details") if element.get("class") == "pair"]
    assert [pair.get("open") is not None for pair in pairs] == [True, False, True]  # the first of each kind
    first, second = find_elements(pairs[0], "ol")
    shown = [
        [" ".join(read_text(row).split()) for row in find_elements(ranking, "li")] for ranking in (first, second)
    ]
    assert shown[0] == [
        "1 item a relevance 3",
        "2 item b relevance 1",
        "3 item c relevance 0",
        f"4 {HOSTILE} relevance 2",
    ]
    assert shown[1] == [
        "1 item c was 3 relevance 0",
        "2 item d new not judged",
        "3 item a was 1 relevance 3",
        "4 item b was 2 relevance 1",
    ]
    for ranking in (first, second):
        (title,) = [part for part in tree.iter() if part.get("id") == ranking.get("aria-labelledby")]
        assert read_text(title).strip()
    assert "No list for this query." in read_text(pairs[2])


def test_page_does_not_call_a_segment_without_values_new():
    contents = build_full_contents()
    row, *rows = contents.segments.rows
    empty = replace(row, mean=replace(row.mean, value=None), change=Change(kind="first"), before=None)
    page = Report(replace(contents, segments=replace(contents.segments, rows=(empty, *rows)))).html
    table = page.split('id="segment-table"')[1].split("</table>")[0]
    assert '<span class="muted">new</span>' not in table


def test_index_lists_nights_with_verdicts_and_existing_pages(tmp_path):
    """The 30th is missing, the 28th has a page; on the 31st `new` is flagged, on the 29th a segment of it."""
    flags = Flags(nights={(NIGHTS[-1], "new"): "low, far"}, is_known=True)
    contents = build_full_contents(flags=flags, gates=["new: ndcg@10>=0.4405"])
    unjudged = list_nights(build_full_contents(flags=Flags()), tmp_path / "night-2026-01-31.html")
    assert [(row.verdict, row.is_bad) for row in unjudged[2:]] == [("", None), ("", None)]
    good = list_nights(contents, tmp_path / "night-2026-01-31.html")[2]
    assert (good.verdict, good.is_bad) == ("no flag, gate met", False)
    segment = SegmentFlag(run="new", by="country", segment="DE", flag="low, far")
    flags = replace(flags, earlier_segments={(NIGHTS[1], "new"): (segment, 3)})
    contents = replace(contents, flags=flags)
    (tmp_path / "night-2026-01-28.html").write_text("", encoding="utf-8")
    rows = list_nights(contents, tmp_path / "night-2026-01-31.html")
    assert [(row.night.day, row.is_bad, row.page) for row in rows] == [
        (31, True, "night-2026-01-31.html"),
        (30, True, ""),
        (29, True, ""),
        (28, True, "night-2026-01-28.html"),
    ]
    assert [row.verdict for row in rows[1:]] == [
        "no result",
        "new is flagged in country=DE: low, far, and 2 other segments",
        "gate new: ndcg@10>=0.4405 is not met by new",
    ]
    assert rows[0].verdict == write_headline(contents)
    earlier = build_full_contents(flags=Flags(), gates=["new: ndcg@10>=0.9"])
    (tmp_path / "night-2026-01-28.html").write_text(Report(earlier).html, encoding="utf-8")
    row = list_nights(contents, tmp_path / "night-2026-01-31.html")[3]
    assert (row.verdict, row.is_bad) == (write_headline(earlier), True)
    page = draw_index(contents, str(tmp_path / "night-2026-01-31.html"))
    assert '<a href="night-2026-01-28.html"><time>2026-01-28</time></a>' in page
    assert "<script" not in page
    assert page.count("<polyline") == 1


def _read_index(text: str) -> dict[str, dict[str, str]]:
    """Return the means of the nights of an index, by night and column."""
    names = re.findall(r'<th scope="col" class="n"><bdi>(.*?)</bdi></th>', text)
    rows = re.findall(r"<time>([-\d]+)</time>(.*?)</tr>", text)
    return {night: dict(zip(names, re.findall(r'<td class="n">(.*?)</td>', row), strict=True)) for night, row in rows}


def _build_night(until: date, values: dict[str, dict[int, float]]) -> Contents:
    """Build the contents of a night of January 2026 from means by run and day."""
    return build_contents(
        [
            build_metric_row(run, date(2026, 1, day), value, 0.002)
            for run, days in values.items()
            for day, value in days.items()
            if day <= until.day
        ]
    )


@pytest.mark.parametrize("in_trend", [True, False])
def test_means_of_the_index_stay_in_the_columns_of_their_runs(tmp_path, in_trend):
    """The best run changes, `b` lacks the 30th, `c` is new on the 31st; nights are drawn again in another order."""
    values = {"a": {28: 0.5, 29: 0.2, 30: 0.5, 31: 0.5}, "b": {28: 0.4, 29: 0.4, 31: 0.6}, "c": {31: 0.3}}
    index = ""
    for day in (28, 29, 30, 31, 29, 30, 28):
        known = {run: days for run, days in values.items() if in_trend or day in days}
        contents = _build_night(date(2026, 1, day), known)
        index = draw_index(contents, str(tmp_path / f"night-2026-01-{day}.html"), index)
        shown = {int(night[-2:]): means for night, means in _read_index(index).items()}
        for night, means in shown.items():
            expected = {run: f"{days[night]:.4f}" for run, days in values.items() if night in days}
            assert {run: mean for run, mean in means.items() if mean != "\u2014"} == expected, (day, night)
    assert list(_read_index(index)["2026-01-31"]) == ["a", "b", "c"]


def test_a_ranker_has_the_same_colour_each_night():
    """Whichever is best, and if the other one is missing."""
    usual = _build_night(date(2026, 1, 28), {"a": {28: 0.5}, "b": {28: 0.4}})
    swapped = _build_night(date(2026, 1, 28), {"a": {28: 0.4}, "b": {28: 0.5}})
    alone = _build_night(date(2026, 1, 28), {"a": {27: 0.4}, "b": {28: 0.5}})
    assert alone.runs == ("b",)
    assert usual.styles == swapped.styles == alone.styles == {"a": 0, "b": 1}
    colours = [re.findall(r'class="marker run-(\d)"', Report(contents).html)[0] for contents in (usual, swapped)]
    assert colours == ["0", "1"]


def test_draw_index_keeps_later_nights_and_reasons_of_the_previous_one(tmp_path):
    """The 30th has no result; it was refused, and the index says why, also after the 29th is repeated."""
    contents, page = build_full_contents(flags=Flags()), str(tmp_path / "night-2026-01-31.html")
    until_29 = replace(
        contents,
        run_date=NIGHTS[1],
        trend=replace(contents.trend, nights={run: points[:2] for run, points in contents.trend.nights.items()}),
    )
    first = draw_index(until_29, str(tmp_path / "night-2026-01-29.html"))
    refused = add_night_without_result(first, date(2026, 1, 30), "mean-ndcg refused: a & b")
    whole = draw_index(contents, page, refused)
    again = draw_index(until_29, str(tmp_path / "night-2026-01-29.html"), whole)
    for text in (whole, again):
        assert re.findall(r"<time>([-\d]+)</time>", text) == ["2026-01-31", "2026-01-30", "2026-01-29", "2026-01-28"]
        assert text.count("mean-ndcg refused: a &amp; b") == 1
        assert text.count('class="sparkline"') == 1
    assert again.count("<polyline") == whole.count("<polyline")
    assert '<a href="night-2026-01-31.html">' in again
