"""Tables of reports as literal rows, contents of reports without Spark, and a browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from ndcg_spark.core.labels import metric_order
from ndcg_spark.evaluation.frames.summary import METRIC_SCHEMA
from ndcg_spark.reports.contents import (
    ComparisonRow,
    Distribution,
    Mean,
    QueryRow,
    RunResult,
    SegmentRow,
    compare_nights,
    infer_level,
    read,
)
from ndcg_spark.reports.queries import Queries
from ndcg_spark.reports.reading import SEGMENT_COLUMNS
from ndcg_spark.reports.sections import (
    Accounting,
    Contents,
    Differences,
    Flags,
    Segments,
    Trend,
    check_gates,
    list_provenance,
)

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
    # column, segment: queries, and offset from the overall mean
    ("country", "DE"): (700, 0.01),
    ("country", "US"): (250, -0.02),
    ("country", None): (50, 0.0),
    ("country+device", '["DE", "phone"]'): (400, 0.02),
    ("device", HOSTILE): (12, 0.1),
}
METRIC_COLUMNS = [*METRIC_SCHEMA.fieldNames(), "run_date", "dataset"]
METRICS_DDL = ", ".join(
    [
        *[f"{column.name} {column.dataType.simpleString()}" for column in METRIC_SCHEMA],
        "run_date date",
        "dataset string",
    ]
)


def build_metric_row(
    run: str, night: date | None, value: float | None, error: float | None, **columns: Any
) -> tuple[Any, ...]:
    """Build a row of the metric table."""
    half = None if error is None or value is None else 1.959963984540054 * error
    ends = (None, None) if half is None else (value - half, value + half)
    row: dict[str, Any] = dict.fromkeys(METRIC_COLUMNS) | {
        "run": run, "segment_by": "", "segment": "", "metric": "ndcg", "k": 10,
        "n_queries": 1000, "n_no_relevant": 7, "n_missing": 2, "n_unjudged": 1,
        "n_rows": 50_000, "n_left_out": 10, "n_rejected": 40, "n_lost_queries": 3,
        "n_unjudged_items": 1234, "n_top_items": 10_000,
        "value": value, "weight_sum": 1000.0, "std_error": error, "ci_low": ends[0], "ci_high": ends[1],
        "convention": "default;gain=linear", "config_hash": "0123456789abcdef", "input": "parquet:rankings",
        "package_version": "0.1.0", "computed_at": datetime(2026, 2, 1, 3, 4, tzinfo=timezone.utc),
        "run_date": night, "dataset": "shop", **columns,
    }  # fmt: skip
    return tuple(row[name] for name in METRIC_COLUMNS)


def build_metric_rows(nights: Sequence[date] = NIGHTS, runs: Sequence[str] = ("old", "new")) -> list[tuple[Any, ...]]:
    """Build three nights of two runs at three cutoffs, with segments."""
    rows = []
    for run in runs:
        for night in nights:
            value, error = VALUES.get((run, night), (0.4, 0.002))
            rows += [build_metric_row(run, night, value - 0.01 * (10 - k), error, k=k) for k in CUTOFFS]
            rows.append(build_metric_row(run, night, 12.5, 0.1, metric="dcg"))
            for (by, segment), (n, offset) in SEGMENTS.items():
                rows.append(
                    build_metric_row(
                        run, night, value + offset, 0.3 / n**0.5, segment_by=by, segment=segment, n_queries=n
                    )
                )
    return rows


def create_metrics_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]] | None = None) -> DataFrame:
    """Create a metric table from rows; by default those of `build_metric_rows`."""
    return spark.createDataFrame(build_metric_rows() if rows is None else rows, METRICS_DDL)


QUERIES_DDL = (
    "run string, query string, country string, k int, dcg double, idcg double, ndcg double, status string, "
    "n_items bigint, n_judged bigint, n_relevant bigint, run_date date, dataset string"
)


def build_query_rows() -> list[tuple[Any, ...]]:
    """Build twenty queries of two runs on two nights; query 3 is hostile, query 7 of `new` falls to 0 at the end."""
    return [
        (run, HOSTILE if at == 3 else f"query {at}", "DE", 10, 1.0, 2.0,
         0.0 if (run, night, at) == ("new", NIGHTS[-1], 7) else at / 19, "evaluated", 100, 30, at, night, "shop")
        for run in ("old", "new") for night in NIGHTS[1:] for at in range(20)
    ]  # fmt: skip


def create_query_table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(build_query_rows(), QUERIES_DDL)


COMPARED = [
    # run, segment_by, segment, difference, low, high, p_holm, verdict, n
    ("", "", -0.0095, -0.0120, -0.0070, 0.001, "worse", 1000),
    ("country", "DE", 0.0100, 0.0050, 0.0150, 0.010, "better", 700),
    ("country", "US", 0.0010, -0.0050, 0.0070, None, "unclear", 250),
    ("device", HOSTILE, 0.0200, None, None, None, None, 12),
]


COMPARISON_DDL = (
    "run string, baseline string, segment_by string, segment string, metric string, k int, n_queries bigint, "
    "n_wins bigint, n_ties bigint, n_losses bigint, value double, baseline_value double, difference double, "
    "ci_low double, ci_high double, lift double, p_value double, p_holm double, verdict string, run_date date, "
    "dataset string"
)
COMPARISON_ROWS = [
    ("new", "old", by, segment, "ndcg", 10, n, 500, 100, 400, 0.421, 0.4305, difference, low, high, None, None,
     holm, verdict, NIGHTS[-1], "shop")
    for by, segment, difference, low, high, holm, verdict, n in COMPARED
]  # fmt: skip
"""Rows with nulls, and with fewer columns than jobs write."""


def create_comparison_table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(COMPARISON_ROWS, COMPARISON_DDL)


def _build_changed_row(
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
    _build_changed_row("lost", 1, "query 7", 0.9, 0.4, ("abce", "cdab")),
    _build_changed_row("lost", 2, HOSTILE, 0.5, 0.25, ("aeb", "bae")),
    _build_changed_row("gained", 1, "query 2", 0.0, 1.0, ("", "aeb")),
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


# ------------------------------------------------------------------------------------------ contents without Spark


def build_contents(
    rows: Sequence[tuple[Any, ...]] | None = None, chosen: tuple[str, int | None] = ("ndcg", 10), **sections: Any
) -> Contents:
    """Build contents from rows of the metric table by loops; `gates` and `summary` are as in `report`."""
    known = {"flagged": None, "note": None, "computed_at": "2026-02-01 03:04 UTC"}
    table = [
        dict(zip(METRIC_COLUMNS, row, strict=True)) | known for row in (build_metric_rows() if rows is None else rows)
    ]
    night = max(row["run_date"] for row in table)
    overall = [row for row in table if not row["segment_by"]]
    tonight = [row for row in overall if row["run_date"] == night]
    headline = [row for row in tonight if (row["metric"], row["k"]) == chosen]
    headline.sort(key=lambda row: (row["value"] is None, -(row["value"] or 0), row["run"]))
    runs = [row["run"] for row in headline]
    means = [read(Mean, row) for row in headline]
    level = infer_level(means)
    of_metric = [row for row in table if (row["metric"], row["k"]) == chosen]
    flags = sections.pop("flags", Flags())
    trend = Trend.from_rows([row for row in of_metric if not row["segment_by"]], flags)
    results = tuple(trend.compare_run(mean, level, flags) for mean in means)
    computed = sorted({(row["metric"], row["k"]) for row in tonight}, key=lambda pair: metric_order(*pair))
    tonight.sort(key=lambda row: (runs.index(row["run"]), computed.index((row["metric"], row["k"]))))
    return Contents(
        title=f"Ranking quality of {runs[0]}, shop" if runs[0] and not runs[1:] else "Ranking quality, shop",
        dataset="shop",
        run_date=night,
        metric=chosen[0],
        k=chosen[1],
        level=level,
        results=results,
        means=tuple(read(Mean, row) for row in tonight),
        flags=flags,
        trend=trend,
        segments=_build_segments(of_metric, night, trend.find_night_before(night), results),
        gates=check_gates(sections.pop("gates", ()), computed, tonight),
        accounting=Accounting.read(means, sections.pop("summary", None)),
        provenance=list_provenance(headline),
        **sections,
    )


def _build_segments(
    rows: list[dict[str, Any]], night: date, before: date | None, results: Sequence[RunResult]
) -> Segments:
    names = ("run", "segment_by", "segment", "metric", "k")
    columns = (*names, *SEGMENT_COLUMNS)
    by_key = {(row["run_date"], *(row[name] for name in names)): row for row in rows}
    segment_rows = []
    for result in results:
        overall, level = result.mean, infer_level([result.mean for result in results])
        for row in (
            row for row in rows if row["segment_by"] and (row["run"], row["run_date"]) == (overall.run, night)
        ):
            earlier = by_key.get((before, *(row[name] for name in names)))
            mean, before_mean = (
                None if values is None else read(Mean, {name: values[name] for name in columns})
                for values in (row, earlier)
            )
            change, share = compare_nights(mean, before_mean, before, same=True, level=level), None
            if change.difference is not None and result.change.difference:
                share = change.difference * mean.weight_sum / (overall.weight_sum * result.change.difference)
            segment_rows.append(SegmentRow(mean=mean, change=change, share=share, before=before_mean))
    key = lambda row: (-row.mean.n_queries, row.mean.run, row.mean.by, row.mean.segment or "")  # noqa: E731
    return Segments(rows=tuple(sorted(segment_rows, key=key)))


def build_differences() -> Differences:
    """Build the differences of `COMPARISON_ROWS`."""
    names = [column.split()[0] for column in COMPARISON_DDL.split(", ")]
    rows = [dict(zip(names, row, strict=True)) for row in COMPARISON_ROWS]
    return Differences(rows=tuple(read(ComparisonRow, row) for row in rows))


def build_queries(runs: Sequence[str] = ("old", "new")) -> Queries:
    """Build the queries of `build_query_rows`."""
    distributions: list[Distribution] = []
    lowest: list[QueryRow] = []
    for run in runs:
        rows = [row for row in build_query_rows() if row[0] == run and row[11] == NIGHTS[-1]]
        values = sorted(row[6] for row in rows)
        places = [divmod(quarter * (len(values) - 1), 4) for quarter in (1, 2, 3)]
        counts = [sum(int(value * 20) == at or (value == 1 and at == 19) for value in values) for at in range(20)]
        distributions.append(
            Distribution(
                run=run, low=0.0, high=1.0, counts=tuple(counts), n_below=0, n_above=0, n_undefined=0,
                n_lowest=values.count(0.0), n_highest=values.count(1.0), quartile_error=0.0,
                quartiles=tuple(values[at] + (values[at + 1] - values[at]) * rest / 4 for at, rest in places),
            )
        )  # fmt: skip
        worst = sorted((row for row in rows if row[10]), key=lambda row: (row[6], -row[10]))[:10]
        lowest += [
            QueryRow(run=run, query=f"{row[1]} · DE", value=row[6], n_items=row[8], n_relevant=row[10])
            for row in worst
        ]
    lost = QueryRow(run="new", query="query 7 · DE", value=0.0, before=7 / 19, n_items=100, n_relevant=7)
    return Queries(
        distributions=tuple(distributions), lowest=tuple(lowest), losses=(lost,), losses_against="29 January 2026"
    )


def build_full_contents(**sections: Any) -> Contents:
    """Build a night with queries and a comparison; equals what `report` reads from the tables above."""
    return build_contents(queries=build_queries(), differences=build_differences(), summary=SUMMARY, **sections)


# --------------------------------------------------------------------------------------------------- browser


@contextmanager
def open_browser_or_skip() -> Iterator[Browser]:
    """Start headless Chromium; skip the test if it is not installed."""
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


def get_url(page: Path) -> str:
    """Return the URL of a file."""
    return page.resolve().as_uri()
