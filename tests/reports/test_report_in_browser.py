"""The page in a real Chromium, headless: it renders, sorts, filters, and runs nothing of the data.

Skipped where no Chromium is installed (Debian: apt-get install chromium).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from support.reports import (
    CHANGED,
    HOSTILE,
    NIGHTS,
    SEGMENTS,
    address,
    browser_or_skip,
    build_contents,
    build_full_contents,
    metric_row,
)

from ndcg_spark.reports.assembly import Report
from ndcg_spark.reports.queries import read_changed_queries
from ndcg_spark.reports.reading import Scope

pytestmark = pytest.mark.slow
SCREENS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}


@pytest.fixture(scope="module")
def browser():
    with browser_or_skip() as found:
        yield found


@pytest.fixture(scope="module")
def file(browser, tmp_path_factory):
    """The page of a report with everything in it."""
    del browser  # without one there is nothing to do
    changed = read_changed_queries(CHANGED, Scope("shop", NIGHTS[-1], ("old", "new"), "ndcg", 10))
    contents = build_full_contents(changed=changed, gates=["ndcg@10>=0.43"])
    found = Report(replace(contents, title=f"Quality {HOSTILE}"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(found.html, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file, request):
    """The page on a screen, what it said on the console, and what it asked for."""
    screen, scheme = getattr(request, "param", ("desktop", "light"))
    context = browser.new_context(color_scheme=scheme, **SCREENS[screen])
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda asked: page.asked.append(asked.url))
    page.goto(address(file))
    yield page
    context.close()


every_screen = pytest.mark.parametrize(
    "opened", [(screen, scheme) for screen in SCREENS for scheme in ("light", "dark")], indirect=True, ids="-".join
)


def column(page, at, table="segment-table"):
    """Texts of a column, of the rows that are shown."""
    return page.locator(f"#{table} tbody tr:visible").evaluate_all(
        "(rows, at) => rows.map((row) => row.cells[at].getAttribute('data-sort') ?? row.cells[at].innerText)", at
    )


@every_screen
def test_the_page_renders_without_a_word_on_the_console(opened):
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
    assert opened.locator("h1").inner_text() == f"Quality {HOSTILE}"
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")  # nothing sticks out
    shown = opened.locator("svg[role=img]:visible")
    assert shown.count() == 4
    for one in shown.all():
        box = one.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 100


@every_screen
def test_axe_finds_nothing_serious(opened):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.Axe().run(opened).response["violations"]
    assert [
        (one["id"], one["impact"], [node["html"][:120] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("moderate", "serious", "critical")
    ] == []


def test_hostile_texts_stay_texts(opened):
    assert opened.locator("img").count() == 0
    assert "owned" not in opened.title().replace(HOSTILE, "")
    assert opened.locator("#queries").get_by_text(HOSTILE).count() > 0


def test_a_head_sorts_its_column_and_says_so(opened):
    head = opened.locator("#segment-table thead th", has_text="NDCG@10")
    at = head.evaluate("(one) => one.cellIndex")
    head.get_by_role("button").click()
    values = [float(value) for value in column(opened, at)]
    assert values == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert [float(value) for value in column(opened, at)] == sorted(values)
    assert opened.locator("#segment-table th[aria-sort]").count() == 1


def test_what_has_no_number_stands_last_in_both_orders(opened):
    head = opened.locator("#comparison-table thead th", has_text="p (Holm)")
    at = head.evaluate("(one) => one.cellIndex")
    for _ in range(2):
        head.get_by_role("button").click()
        assert [value == "" for value in column(opened, at, "comparison-table")] == [False, False, True, True]


def test_a_table_is_sorted_by_keyboard(opened):
    button = opened.locator("#segment-table thead th", has_text="Segment").get_by_role("button")
    button.focus()
    opened.keyboard.press("Enter")
    names = column(opened, 0)
    assert names == sorted(names, key=str.lower)
    outline = button.evaluate("(one) => getComputedStyle(one).outlineStyle")
    assert outline != "none"


def test_segments_are_filtered(opened):
    form = opened.locator("form[data-table=segment-table]")
    counted = form.locator("output")
    whole = 2 * len(SEGMENTS)
    assert counted.inner_text() == f"{whole} segments"
    form.get_by_role("searchbox").fill("us")
    assert set(column(opened, 0)) == {"country = US"}
    assert counted.inner_text() == f"2 of {whole} segments"
    form.get_by_role("searchbox").fill("<img")
    assert len(column(opened, 0)) == 2
    form.get_by_role("searchbox").fill("")
    form.get_by_label("By").select_option("country")
    assert len(column(opened, 0)) == 6
    form.get_by_label("Ranker").select_option("new")
    assert len(column(opened, 0)) == 3
    form.get_by_label("By").select_option("")
    form.get_by_label("hide").check()
    assert f"device = {HOSTILE}" not in column(opened, 0)
    assert counted.inner_text() == f"{len(SEGMENTS) - 1} of {whole} segments"


def test_a_long_table_shows_its_first_rows(browser, tmp_path):
    rows = [metric_row("", NIGHTS[0], 0.5, 0.01)]
    rows += [
        metric_row("", NIGHTS[0], 0.5, 0.01, segment_by="city", segment=f"city {at:02}", n_queries=1000 - at)
        for at in range(40)
    ]
    path = tmp_path / "long.html"
    path.write_text(Report(build_contents(rows)).html, encoding="utf-8")
    page = browser.new_page()
    page.goto(address(path))
    assert len(column(page, 0)) == 25
    page.emulate_media(media="print")
    assert len(column(page, 0)) == 40
    page.emulate_media(media="screen")
    page.get_by_role("button", name="Show all 40 segments").click()
    assert len(column(page, 0)) == 40
    page.close()


def test_without_script_the_tables_are_whole(browser, file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address(file))
    assert page.locator("#segment-table tbody tr:visible").count() == 2 * len(SEGMENTS)
    assert not page.locator("form").first.is_visible()
    context.close()


def test_dark_and_light_differ_and_print_is_light(opened):
    def paper():
        return opened.evaluate("getComputedStyle(document.body).backgroundColor")

    assert paper() == "rgb(255, 255, 255)"
    opened.emulate_media(color_scheme="dark")
    assert paper() == "rgb(18, 22, 27)"
    opened.emulate_media(color_scheme="dark", media="print")
    assert paper() == "rgb(255, 255, 255)"
    assert not opened.locator("nav").is_visible()


@every_screen
def test_lists_stand_side_by_side_or_below_each_other(opened):
    pair = opened.locator("#queries details.pair").first
    first, second = (one.bounding_box() for one in pair.locator("ol").all())
    if opened.viewport_size["width"] > 1000:
        assert first["y"] == second["y"]
        assert first["x"] + first["width"] < second["x"]
    else:
        assert first["x"] == second["x"]
        assert first["y"] + first["height"] < second["y"]
    for row in pair.locator("li").all():  # no cell lies on another
        boxes = sorted((one.bounding_box() for one in row.locator("> span").all()), key=lambda box: box["x"])
        assert all(one["x"] + one["width"] <= other["x"] for one, other in pairwise(boxes))


def test_a_query_is_opened_by_keyboard(opened):
    pairs = opened.locator("#queries details.pair")
    assert [one.locator("ol").first.is_visible() for one in pairs.all()] == [True, False, True]
    pairs.nth(1).locator("summary").focus()
    opened.keyboard.press("Enter")
    assert pairs.nth(1).locator("ol").first.is_visible()
    assert pairs.nth(1).locator("li", has_text=HOSTILE).count() == 2


def test_open_lists_are_printed(opened):
    opened.emulate_media(media="print")
    assert [one.is_visible() for one in opened.locator("#queries details.pair").all()] == [True, False, True]
