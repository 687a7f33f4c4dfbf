"""The page in headless Chromium: it renders, sorts and filters, and does not run scripts of the data.

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
    build_contents,
    build_full_contents,
    build_metric_row,
    get_url,
    open_browser_or_skip,
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
    with open_browser_or_skip() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def file(browser, tmp_path_factory):
    """The page of a report with everything in it."""
    del browser  # skips without a browser
    changed = read_changed_queries(CHANGED, Scope("shop", NIGHTS[-1], ("old", "new"), "ndcg", 10))
    contents = build_full_contents(changed=changed, gates=["ndcg@10>=0.43"])
    report = Report(replace(contents, title=f"Quality {HOSTILE}"))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.html, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, file, request):
    """The page on a screen, with its console messages (`messages`) and requested URLs (`urls`)."""
    screen, scheme = getattr(request, "param", ("desktop", "light"))
    context = browser.new_context(color_scheme=scheme, **SCREENS[screen])
    page = context.new_page()
    page.messages, page.urls = [], []
    page.on("console", lambda message: page.messages.append(message.text))
    page.on("pageerror", lambda error: page.messages.append(str(error)))
    page.on("request", lambda request: page.urls.append(request.url))
    page.goto(get_url(file))
    yield page
    context.close()


every_screen = pytest.mark.parametrize(
    "opened", [(screen, scheme) for screen in SCREENS for scheme in ("light", "dark")], indirect=True, ids="-".join
)


def column(page, at, table="segment-table"):
    """Texts of a column in the visible rows."""
    return page.locator(f"#{table} tbody tr:visible").evaluate_all(
        "(rows, at) => rows.map((row) => row.cells[at].getAttribute('data-sort') ?? row.cells[at].innerText)", at
    )


@every_screen
def test_page_renders_without_console_messages(opened):
    assert opened.messages == []
    assert [url for url in opened.urls if not url.startswith(("file:", "data:"))] == []
    assert opened.locator("h1").inner_text() == f"Quality {HOSTILE}"
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")  # no horizontal scrolling
    shown = opened.locator("svg[role=img]:visible")
    assert shown.count() == 4
    for figure in shown.all():
        box = figure.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 100


@every_screen
def test_axe_finds_nothing_serious(opened):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    violations = axe.Axe().run(opened).response["violations"]
    assert [
        (violation["id"], violation["impact"], [node["html"][:120] for node in violation["nodes"][:3]])
        for violation in violations
        if violation["impact"] in ("moderate", "serious", "critical")
    ] == []


def test_page_escapes_hostile_texts(opened):
    assert opened.locator("img").count() == 0
    assert "owned" not in opened.title().replace(HOSTILE, "")
    assert opened.locator("#queries").get_by_text(HOSTILE).count() > 0


def test_column_heads_sort_and_set_aria_sort(opened):
    head = opened.locator("#segment-table thead th", has_text="NDCG@10")
    at = head.evaluate("(one) => one.cellIndex")
    head.get_by_role("button").click()
    values = [float(value) for value in column(opened, at)]
    assert values == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert [float(value) for value in column(opened, at)] == sorted(values)
    assert opened.locator("#segment-table th[aria-sort]").count() == 1


def test_empty_cells_are_sorted_last_in_both_orders(opened):
    head = opened.locator("#comparison-table thead th", has_text="p (Holm)")
    at = head.evaluate("(one) => one.cellIndex")
    for _ in range(2):
        head.get_by_role("button").click()
        assert [value == "" for value in column(opened, at, "comparison-table")] == [False, False, True, True]


def test_tables_are_sorted_by_keyboard(opened):
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


def test_long_tables_show_their_first_rows(browser, tmp_path):
    rows = [build_metric_row("", NIGHTS[0], 0.5, 0.01)]
    rows += [
        build_metric_row("", NIGHTS[0], 0.5, 0.01, segment_by="city", segment=f"city {at:02}", n_queries=1000 - at)
        for at in range(40)
    ]
    path = tmp_path / "long.html"
    path.write_text(Report(build_contents(rows)).html, encoding="utf-8")
    page = browser.new_page()
    page.goto(get_url(path))
    assert len(column(page, 0)) == 25
    page.emulate_media(media="print")
    assert len(column(page, 0)) == 40
    page.emulate_media(media="screen")
    page.get_by_role("button", name="Show all 40 segments").click()
    assert len(column(page, 0)) == 40
    page.close()


def test_tables_are_complete_without_script(browser, file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(get_url(file))
    assert page.locator("#segment-table tbody tr:visible").count() == 2 * len(SEGMENTS)
    assert not page.locator("form").first.is_visible()
    context.close()


def test_themes_differ_and_print_is_light(opened):
    def paper():
        return opened.evaluate("getComputedStyle(document.body).backgroundColor")

    assert paper() == "rgb(255, 255, 255)"
    opened.emulate_media(color_scheme="dark")
    assert paper() == "rgb(18, 22, 27)"
    opened.emulate_media(color_scheme="dark", media="print")
    assert paper() == "rgb(255, 255, 255)"
    assert not opened.locator("nav").is_visible()


@every_screen
def test_lists_are_beside_or_below_each_other(opened):
    pair = opened.locator("#queries details.pair").first
    first, second = (ranking.bounding_box() for ranking in pair.locator("ol").all())
    if opened.viewport_size["width"] > 1000:
        assert first["y"] == second["y"]
        assert first["x"] + first["width"] < second["x"]
    else:
        assert first["x"] == second["x"]
        assert first["y"] + first["height"] < second["y"]
    for row in pair.locator("li").all():  # cells do not overlap
        boxes = sorted((cell.bounding_box() for cell in row.locator("> span").all()), key=lambda box: box["x"])
        assert all(left["x"] + left["width"] <= other["x"] for left, other in pairwise(boxes))


def test_queries_are_opened_by_keyboard(opened):
    pairs = opened.locator("#queries details.pair")
    assert [pair.locator("ol").first.is_visible() for pair in pairs.all()] == [True, False, True]
    pairs.nth(1).locator("summary").focus()
    opened.keyboard.press("Enter")
    assert pairs.nth(1).locator("ol").first.is_visible()
    assert pairs.nth(1).locator("li", has_text=HOSTILE).count() == 2


def test_open_lists_are_printed(opened):
    opened.emulate_media(media="print")
    assert [pair.is_visible() for pair in opened.locator("#queries details.pair").all()] == [True, False, True]
