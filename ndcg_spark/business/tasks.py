"""Correlate nights of a metric with nights of clicks and raise alarms: a row per series in, a row per rate out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.business import kernels
from ndcg_spark.business.settings import LinkSettings
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.tasks import judging as history
from ndcg_spark.metrics import direction_of

RATES = {"ctr": ("clicks", "impressions"), "cvr": ("conversions", "clicks")}
"""Numerator and denominator of each rate."""
UP_DOWN, DOWN_DOWN, FLAT_UP = "metric_up_ctr_down", "metric_down_ctr_down", "metric_flat_cvr_up"
"""Alarms. The first is for metrics where larger is better, the second for metrics where smaller is better."""
NOT_ENOUGH, ZERO_MEAN, NO_DIRECTION = "not_enough_nights", "mean_of_zero", "no_direction"
"""Notes. The last one: neither direction of the metric is better, so no change of it contradicts the rate."""
EXCLUDED_COUNTS = ("n_no_clicks", "n_no_metric", "n_no_value", "n_few_impressions", "n_zero")
_CORRELATIONS = ("pearson", "spearman", "change_pearson", "change_spearman")
_DATES = ("first_night", "last_night", "before_from", "before_to", "window_from", "window_to")
_CHANGES = ("metric_change", "metric_change_error", "rate_change", "rate_change_error")
_LAGS = "array<struct<lag:int,n:bigint,pearson:double,low:double,high:double>>"
_LAG = pa.struct(
    [("lag", pa.int32()), ("n", pa.int64()), ("pearson", pa.float64()), ("low", pa.float64()), ("high", pa.float64())]
)
LINK_COLUMNS = {
    **history.SERIES_COLUMNS,
    "rate": "string",
    "config_hash": "string",
    RULES: "string",
    "n_nights": "bigint",
    **dict.fromkeys(EXCLUDED_COUNTS, "bigint"),
    **dict.fromkeys(_DATES[:2], "date"),
    **{f"{name}{end}": "double" for name in _CORRELATIONS[:2] for end in ("", "_low", "_high")},
    "n_changes": "bigint",
    **{f"{name}{end}": "double" for name in _CORRELATIONS[2:] for end in ("", "_low", "_high")},
    "lags": _LAGS,
    **dict.fromkeys(_DATES[2:], "date"),
    **dict.fromkeys(_CHANGES, "double"),
    "alarm": "string",
    "note": "string",
}
LINK_SCHEMA = history.build_schema(LINK_COLUMNS, {_LAGS: pa.list_(_LAG)})


def link_rates(batches: Iterator[pa.RecordBatch], settings: LinkSettings) -> Iterator[pa.RecordBatch]:
    """Link the nights and clicks of each series; yield `LINK_COLUMNS`.

    Rows have `SERIES`, `nights` (a list of struct<day, value, config_hash, rules>) and `clicks` (a list of
    struct<day, impressions, clicks, conversions>), each list in any order; `day` counts from 1970.
    """
    for batch in batches:
        rows = [row for series in batch.to_pylist() for row in _build_rows(series, settings)]
        yield pa.RecordBatch.from_pylist(rows, schema=LINK_SCHEMA)


def _build_rows(series: dict[str, Any], settings: LinkSettings) -> Iterator[dict[str, Any]]:
    keys = {column: series[column] for column in history.SERIES}
    nights = history.sort_nights(keys, series["nights"])
    fields = {
        **keys,
        "config_hash": history.find_common_value(nights, "config_hash"),
        RULES: history.combine_series_rules(keys, nights, across=settings.across_rules),
    }
    values = {night["day"]: night["value"] for night in nights}
    values = {day: value if value is not None and math.isfinite(value) else None for day, value in values.items()}
    clicks = {night["day"]: night for night in series["clicks"] or ()}
    for rate in RATES:
        yield {**fields, "rate": rate, **_link_rate(keys["metric"], values, clicks, rate, settings)}


def _link_rate(
    metric_name: str,
    values: dict[int, float | None],
    clicks: dict[int, dict[str, int]],
    rate: str,
    settings: LinkSettings,
) -> dict[str, Any]:
    counted, divided = RATES[rate]
    counted_nights = {
        day: counts
        for day, counts in clicks.items()
        if counts["impressions"] >= settings.min_impressions and counts[divided]
    }
    metric = _Series({day: value for day, value in values.items() if value is not None})
    rates = _Series({day: counts[counted] / counts[divided] for day, counts in counted_nights.items()})
    places, others = kernels.match_days(metric.days, rates.days, 0)
    days, x, y = metric.days[places], metric.values[places], rates.values[others]
    row: dict[str, Any] = {"n_nights": len(days), **_count_excluded(values, clicks, divided, settings)}
    if len(days):
        row |= {"first_night": history.day_to_date(days[0]), "last_night": history.day_to_date(days[-1])}
    row |= _name_correlation("pearson", kernels.pearson(x, y, confidence=settings.confidence))
    row |= _name_correlation("spearman", kernels.spearman(x, y, confidence=settings.confidence))
    nightly = np.diff(days) == 1
    dx, dy = kernels.compute_decimal_changes(x)[nightly], kernels.compute_decimal_changes(y)[nightly]
    row["n_changes"] = len(dx)
    row |= _name_correlation("change_pearson", kernels.pearson(dx, dy, confidence=settings.confidence))
    row |= _name_correlation("change_spearman", kernels.spearman(dx, dy, confidence=settings.confidence))
    row["lags"] = []
    for lag in range(-settings.max_lag, settings.max_lag + 1):
        places, others = kernels.match_days(metric.days, rates.days, lag)
        n, r, low, high = kernels.pearson(metric.values[places], rates.values[others], confidence=settings.confidence)
        row["lags"].append({"lag": lag, "n": n, "pearson": r, "low": low, "high": high})
    last = max(values) if settings.as_of is None else (settings.as_of - history.day_to_date(0)).days
    row |= _compare_windows(days, x, y, last, settings)
    return row if "note" in row else row | _raise_alarm(metric_name, row, rate, settings)


class _Series:
    """Sorted days and their values."""

    def __init__(self, values: dict[int, float]) -> None:
        self.days: IntArray = np.array(sorted(values), dtype=np.int64)
        self.values: FloatArray = np.array([values[day] for day in self.days.tolist()], dtype=np.float64)


def _count_excluded(
    values: dict[int, float | None], clicks: dict[int, dict[str, int]], divided: str, settings: LinkSettings
) -> dict[str, int]:
    """Count the nights of either table that have no pair, each under its first reason."""
    counts = dict.fromkeys(EXCLUDED_COUNTS, 0)
    counts["n_no_metric"] = len(clicks.keys() - values.keys())
    for day, value in values.items():
        counts_of_day = clicks.get(day)
        if value is None:
            counts["n_no_value"] += 1
        elif counts_of_day is None:
            counts["n_no_clicks"] += 1
        elif counts_of_day["impressions"] < settings.min_impressions:
            counts["n_few_impressions"] += 1
        elif not counts_of_day[divided]:
            counts["n_zero"] += 1
    return counts


def _name_correlation(column: str, correlation: kernels.Correlation) -> dict[str, float | None]:
    return {column: correlation.r, f"{column}_low": correlation.low, f"{column}_high": correlation.high}


def _compare_windows(
    days: IntArray, x: FloatArray, y: FloatArray, last: int, settings: LinkSettings
) -> dict[str, Any]:
    """Compare the last window of paired nights with the window before it."""
    size = settings.window
    recent = days > last - settings.window_days
    days, x, y = days[recent][-2 * size :], x[recent][-2 * size :], y[recent][-2 * size :]
    if len(days) < 2 * size:
        return {"note": NOT_ENOUGH}
    ends = dict(
        zip(_DATES[2:], (history.day_to_date(days[position]) for position in (0, size - 1, size, -1)), strict=True)
    )
    metric, rate = kernels.compare_windows(x[:size], x[size:]), kernels.compare_windows(y[:size], y[size:])
    row: dict[str, Any] = dict(ends)
    for series, change in (("metric", metric), ("rate", rate)):
        if change is not None:
            row |= {f"{series}_change": change.change, f"{series}_change_error": change.error}
    return row | {"note": ZERO_MEAN} if metric is None or rate is None else row


def _raise_alarm(name: str, row: dict[str, Any], rate: str, settings: LinkSettings) -> dict[str, Any]:
    """Compare the changes of a metric and a rate: return the alarm, or a note why no alarm is possible."""
    metric, rate_change = (
        kernels.WindowChange(row[f"{series}_change"], row[f"{series}_change_error"]) for series in ("metric", "rate")
    )
    limits = settings.min_change, settings.noise_limit
    if rate == "cvr":
        raised = metric.is_flat(settings.max_flat, settings.noise_limit) and rate_change.is_up(*limits)
        return {"alarm": FLAT_UP if raised else None}
    larger_is_better = direction_of(name)
    if larger_is_better is None:
        return {"note": NO_DIRECTION}
    alarm, is_better = (UP_DOWN, metric.is_up) if larger_is_better else (DOWN_DOWN, metric.is_down)
    return {"alarm": alarm if is_better(*limits) and rate_change.is_down(*limits) else None}
