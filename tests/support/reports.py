"""Tables of which reports are made, as literal rows; and the browser that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from ndcg_spark.evaluation.frames.summary import METRIC_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser
    from pyspark.sql import DataFrame, SparkSession

NIGHTS = (date(2026, 1, 28), date(2026, 1, 29), date(2026, 1, 31))  # the 30th is missing
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">"
CUTOFFS = (1, 5, 10)
VALUES = {
    # run and night: NDCG@10 and its standard error
    ("old", NIGHTS[0]): (0.4300, 0.002),
    ("old", NIGHTS[1]): (0.4312, 0.002),
    ("old", NIGHTS[2]): (0.4305, 0.002),
    ("new", NIGHTS[0]): (0.4400, 0.002),
    ("new", NIGHTS[1]): (0.4410, 0.002),
    ("new", NIGHTS[2]): (0.4210, 0.002),
}
SEGMENTS = {
    # column, segment: queries, and what is added to the mean of all
    ("country", "DE"): (700, 0.01),
    ("country", "US"): (250, -0.02),
    ("country", None): (50, 0.0),
    ("country+device", '["DE", "phone"]'): (400, 0.02),
    ("device", HOSTILE): (12, 0.1),
}
METRIC_COLUMNS = [*METRIC_SCHEMA.fieldNames(), "run_date", "dataset"]
METRICS_DDL = ", ".join(
    [*[f"{one.name} {one.dataType.simpleString()}" for one in METRIC_SCHEMA], "run_date date", "dataset string"]
)


def metric_row(
    run: str, night: date | None, value: float | None, error: float | None, **other: Any
) -> tuple[Any, ...]:
    """A row of the metric table."""
    half = None if error is None or value is None else 1.959963984540054 * error
    row: dict[str, Any] = {
        "run": run,
        "segment_by": "",
        "segment": "",
        "metric": "ndcg",
        "k": 10,
        "asked": None,
        "n_queries": 1000,
        "n_no_relevant": 7,
        "n_missing": 2,
        "n_unjudged": 1,
        "n_rows": 50_000,
        "n_left_out": 10,
        "n_rejected": 40,
        "n_lost_queries": 3,
        "n_unjudged_items": 1234,
        "n_top_items": 10_000,
        "value": value,
        "weight_sum": 1000.0,
        "std_error": error,
        "ci_low": None if half is None or value is None else value - half,
        "ci_high": None if half is None or value is None else value + half,
        "state": None,
        "convention": "default;gain=linear",
        "config_hash": "0123456789abcdef",
        "rules": None,
        "input": "parquet:rankings",
        "package_version": "0.1.0",
        "computed_at": datetime(2026, 2, 1, 3, 4, tzinfo=timezone.utc),
        "run_date": night,
        "dataset": "shop",
        **other,
    }
    return tuple(row[name] for name in METRIC_COLUMNS)


def metric_rows(nights: Sequence[date] = NIGHTS, runs: Sequence[str] = ("old", "new")) -> list[tuple[Any, ...]]:
    """Three nights of two runs at three cutoffs, with segments."""
    found = []
    for run in runs:
        for night in nights:
            value, error = VALUES.get((run, night), (0.4, 0.002))
            found += [metric_row(run, night, value - 0.01 * (10 - k), error, k=k) for k in CUTOFFS]
            found.append(metric_row(run, night, 12.5, 0.1, metric="dcg"))
            for (by, segment), (n, more) in SEGMENTS.items():
                found.append(
                    metric_row(run, night, value + more, 0.3 / n**0.5, segment_by=by, segment=segment, n_queries=n)
                )
    return found


def metrics_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]] | None = None) -> DataFrame:
    """The rows as a table; those above where none are given."""
    return spark.createDataFrame(metric_rows() if rows is None else rows, METRICS_DDL)


def query_table(spark: SparkSession, nights: Sequence[date] = NIGHTS[1:]) -> DataFrame:
    """Twenty queries of two runs on two nights; query 3 is hostile, and query 7 of `new` falls to 0 at the end."""
    rows = []
    for run in ("old", "new"):
        for night in nights:
            for number in range(20):
                value = number / 19
                if (run, night, number) == ("new", NIGHTS[-1], 7):
                    value = 0.0
                query = HOSTILE if number == 3 else f"query {number}"
                rows.append((run, query, "DE", 10, 1.0, 2.0, value, "evaluated", 100, 30, number, night, "shop"))
    return spark.createDataFrame(
        rows,
        "run string, query string, country string, k int, dcg double, idcg double, ndcg double, status string, "
        "n_items bigint, n_judged bigint, n_relevant bigint, run_date date, dataset string",
    )


COMPARED = [
    # run, segment_by, segment, difference, low, high, p_holm, verdict, n
    ("", "", -0.0095, -0.0120, -0.0070, 0.001, "worse", 1000),
    ("country", "DE", 0.0100, 0.0050, 0.0150, 0.010, "better", 700),
    ("country", "US", 0.0010, -0.0050, 0.0070, None, "unclear", 250),
    ("device", HOSTILE, 0.0200, None, None, None, None, 12),
]


def comparison_table(spark: SparkSession) -> DataFrame:
    """Rows of a comparison table, some with nulls; fewer columns than jobs write."""
    rows = [
        ("new", "old", by, segment, "ndcg", 10, n, 500, 100, 400, 0.421, 0.4305, difference, low, high, None, None,
         holm, verdict, NIGHTS[-1], "shop")
        for by, segment, difference, low, high, holm, verdict, n in COMPARED
    ]  # fmt: skip
    return spark.createDataFrame(
        rows,
        "run string, baseline string, segment_by string, segment string, metric string, k int, n_queries bigint, "
        "n_wins bigint, n_ties bigint, n_losses bigint, value double, baseline_value double, difference double, "
        "ci_low double, ci_high double, lift double, p_value double, p_holm double, verdict string, run_date date, "
        "dataset string",
    )


def _changed(
    change: str, place: int, query: str, before: float, value: float, lists: tuple[str, str]
) -> dict[str, Any]:
    graded = {"a": 3.0, "b": 1.0, "c": 0.0, "d": None, "e": 2.0}
    shown = [
        [{"item": HOSTILE if name == "e" else f"item {name}", "score": -at, "relevance": graded[name]}
         for at, name in enumerate(names)]
        for names in lists
    ]  # fmt: skip
    return {"change": change, "place": place, "run": "new", "baseline": "old", "metric": "ndcg", "query": query,
            "k": 10, "baseline_value": before, "value": value, "difference": value - before, "weight": 1.0,
            "baseline_list": shown[0] or None, "list": shown[1]}  # fmt: skip


CHANGED = [
    _changed("lost", 1, "query 7", 0.9, 0.4, ("abce", "cdab")),
    _changed("lost", 2, HOSTILE, 0.5, 0.25, ("aeb", "bae")),
    _changed("gained", 1, "query 2", 0.0, 1.0, ("", "aeb")),
]
"""Rows of `changed_queries`."""
SUMMARY = {
    "metrics": [],
    "rows": {
        "read": 100_120,
        "evaluated": 100_000,
        "rejected": 100,
        "left_out": 20,
        "rejected_by_reason": {"nan_score": 60, HOSTILE: 40},
    },
    "run_date": "2026-01-31",
    "dataset": "shop",
    "config_hash": "0123456789abcdef",
}


# --------------------------------------------------------------------------------------------------- browser


@contextmanager
def browser_or_skip() -> Iterator[Browser]:
    """Headless Chromium; the test is skipped where none is installed."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from scripts.checks import screenshots

    path = screenshots.find_browser()
    if path is None:
        pytest.skip(f"none of {', '.join(screenshots.BROWSERS)} is on PATH (Debian: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=screenshots.ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def address(page: Path) -> str:
    """Where the browser finds a file."""
    return page.resolve().as_uri()
