"""Small metric tables, and clicks of the same nights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

NDCG = [0.400, 0.402, 0.398, 0.401, 0.399, 0.400, 0.400, 0.410, 0.412, 0.409, 0.411, 0.413, 0.410, 0.412]
CLICKS = [500, 505, 498, 502, 497, 503, 495, 480, 478, 485, 481, 476, 479, 483]
"""Of 10,000 impressions a night."""
METRIC_COLUMNS = (
    "run_date date, run string, segment_by string, segment string, metric string, k int, value double, "
    "std_error double, config_hash string, dataset string"
)
CLICK_COLUMNS = (
    "run_date date, segment_by string, segment string, impressions bigint, clicks bigint, conversions bigint"
)
FIRST = date(2026, 1, 1)


def nth_night(at: int) -> date:
    """Return the night `at` days after the first."""
    return FIRST + timedelta(days=at)


def build_metric_rows(values: Iterable[float | None], **changed: Any) -> list[dict[str, Any]]:
    """Build one row per night."""
    row = {"run": "", "segment_by": "", "segment": "", "metric": "ndcg", "k": 10, "std_error": 0.0015}
    row |= {"config_hash": "c1", "dataset": "shop"}
    return [{"run_date": nth_night(at), **row, "value": value, **changed} for at, value in enumerate(values)]


def build_click_rows(
    clicks: Sequence[int], conversions: Sequence[int] | int = 10, impressions: int = 10_000, **changed: Any
) -> list[dict[str, Any]]:
    """Build one row per night."""
    bought = [conversions] * len(clicks) if isinstance(conversions, int) else conversions
    return [
        {
            **{"run_date": nth_night(at), "segment_by": "", "segment": "", "impressions": impressions, "clicks": n},
            **{"conversions": bought[at], **changed},
        }
        for at, n in enumerate(clicks)
    ]


def to_columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Transpose rows into columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}
