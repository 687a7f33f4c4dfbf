"""Nights of a metric and nights of clicks to correlations and alarms: one row in for a series, a row out per rate."""

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
from ndcg_spark.history import tasks as history
from ndcg_spark.metrics import direction_of

RATES = {"ctr": ("clicks", "impressions"), "cvr": ("conversions", "clicks")}
"""What each rate counts, and what that is divided by."""
UP_DOWN, DOWN_DOWN, FLAT_UP = "metric_up_ctr_down", "metric_down_ctr_down", "metric_flat_cvr_up"
"""Alarms. The first is of metrics of which larger is better, the second of those of which smaller is."""
NOT_ENOUGH, ZERO_MEAN, NO_DIRECTION = "not_enough_nights", "mean_of_zero", "no_direction"
"""Notes. The last one: neither direction of the metric is better, so that no change of it contradicts the rate."""
LEFT_OUT = ("n_no_clicks", "n_no_metric", "n_no_value", "n_few_impressions", "n_zero")
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
    **dict.fromkeys(LEFT_OUT, "bigint"),
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
_SCHEMA = history.arrow_schema(LINK_COLUMNS, {_LAGS: pa.list_(_LAG)})


def link_rates(batches: Iterator[pa.RecordBatch], settings: LinkSettings) -> Iterator[pa.RecordBatch]:
    """Link rows of `SERIES`, `nights` and `clicks`: `LINK_COLUMNS`.

    `nights` is a list of struct<day, value, config_hash, rules>, `clicks` of struct<day, impressions, clicks,
    conversions>, each in any order; `day` counts from 1970.
    """
    for batch in batches:
        rows = [row for series in batch.to_pylist() for row in _series_rows(series, settings)]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _series_rows(series: dict[str, Any], settings: LinkSettings) -> Iterator[dict[str, Any]]:
    keys = {name: series[name] for name in history.SERIES}
    nights = history.in_order(keys, series["nights"])
    about = {
        **keys,
        "config_hash": history.common_value(nights, "config_hash"),
        RULES: history.series_rules(keys, nights, across=settings.across_rules),
    }
    values = {one["day"]: one["value"] for one in nights}
    values = {day: value if value is not None and math.isfinite(value) else None for day, value in values.items()}
    clicks = {one["day"]: one for one in series["clicks"] or ()}
    for rate in RATES:
        yield {**about, "rate": rate, **_link(keys["metric"], values, clicks, rate, settings)}


def _link(
    name: str,
    values: dict[int, float | None],
    clicks: dict[int, dict[str, int]],
    rate: str,
    settings: LinkSettings,
) -> dict[str, Any]:
    counted, divided = RATES[rate]
    kept = {
        day: one for day, one in clicks.items() if one["impressions"] >= settings.min_impressions and one[divided]
    }
    metric = _Series({day: value for day, value in values.items() if value is not None})
    behind = _Series({day: one[counted] / one[divided] for day, one in kept.items()})
    places, others = kernels.paired_days(metric.days, behind.days, 0)
    days, x, y = metric.days[places], metric.values[places], behind.values[others]
    row: dict[str, Any] = {"n_nights": len(days), **_left_out(values, clicks, divided, settings)}
    if len(days):
        row |= {"first_night": history.date_of(days[0]), "last_night": history.date_of(days[-1])}
    row |= _named("pearson", kernels.pearson(x, y, confidence=settings.confidence))
    row |= _named("spearman", kernels.spearman(x, y, confidence=settings.confidence))
    nightly = np.diff(days) == 1
    dx, dy = kernels.decimal_changes(x)[nightly], kernels.decimal_changes(y)[nightly]
    row["n_changes"] = len(dx)
    row |= _named("change_pearson", kernels.pearson(dx, dy, confidence=settings.confidence))
    row |= _named("change_spearman", kernels.spearman(dx, dy, confidence=settings.confidence))
    row["lags"] = []
    for lag in range(-settings.max_lag, settings.max_lag + 1):
        places, others = kernels.paired_days(metric.days, behind.days, lag)
        n, r, low, high = kernels.pearson(
            metric.values[places], behind.values[others], confidence=settings.confidence
        )
        row["lags"].append({"lag": lag, "n": n, "pearson": r, "low": low, "high": high})
    last = max(values) if settings.as_of is None else (settings.as_of - history.date_of(0)).days
    row |= _windows(days, x, y, last, settings)
    return row if "note" in row else row | _alarm(name, row, rate, settings)


class _Series:
    """Days in order, and their values."""

    def __init__(self, values: dict[int, float]) -> None:
        self.days: IntArray = np.array(sorted(values), dtype=np.int64)
        self.values: FloatArray = np.array([values[day] for day in self.days.tolist()], dtype=np.float64)


def _left_out(
    values: dict[int, float | None], clicks: dict[int, dict[str, int]], divided: str, settings: LinkSettings
) -> dict[str, int]:
    """Count the nights of either table that are in no pair, each under its first reason."""
    counts = dict.fromkeys(LEFT_OUT, 0)
    counts["n_no_metric"] = len(clicks.keys() - values.keys())
    for day, value in values.items():
        found = clicks.get(day)
        if value is None:
            counts["n_no_value"] += 1
        elif found is None:
            counts["n_no_clicks"] += 1
        elif found["impressions"] < settings.min_impressions:
            counts["n_few_impressions"] += 1
        elif not found[divided]:
            counts["n_zero"] += 1
    return counts


def _named(name: str, found: kernels.Correlation) -> dict[str, float | None]:
    return {name: found.r, f"{name}_low": found.low, f"{name}_high": found.high}


def _windows(days: IntArray, x: FloatArray, y: FloatArray, last: int, settings: LinkSettings) -> dict[str, Any]:
    """Compare the last window of nights with the one before it, both of pairs."""
    size = settings.window
    recent = days > last - settings.window_days
    days, x, y = days[recent][-2 * size :], x[recent][-2 * size :], y[recent][-2 * size :]
    if len(days) < 2 * size:
        return {"note": NOT_ENOUGH}
    ends = dict(zip(_DATES[2:], (history.date_of(days[at]) for at in (0, size - 1, size, -1)), strict=True))
    metric, behind = kernels.window_change(x[:size], x[size:]), kernels.window_change(y[:size], y[size:])
    row: dict[str, Any] = dict(ends)
    for name, one in (("metric", metric), ("rate", behind)):
        if one is not None:
            row |= {f"{name}_change": one.change, f"{name}_change_error": one.error}
    return row | {"note": ZERO_MEAN} if metric is None or behind is None else row


def _alarm(name: str, row: dict[str, Any], rate: str, settings: LinkSettings) -> dict[str, Any]:
    """Hold the changes of a metric and a rate against each other: the alarm, or why there can be none."""
    metric, behind = (
        kernels.WindowChange(row[f"{one}_change"], row[f"{one}_change_error"]) for one in ("metric", "rate")
    )
    limits = settings.min_change, settings.noise_limit
    if rate == "cvr":
        raised = metric.is_flat(settings.max_flat, settings.noise_limit) and behind.is_up(*limits)
        return {"alarm": FLAT_UP if raised else None}
    larger_is_better = direction_of(name)
    if larger_is_better is None:
        return {"note": NO_DIRECTION}
    alarm, is_better = (UP_DOWN, metric.is_up) if larger_is_better else (DOWN_DOWN, metric.is_down)
    return {"alarm": alarm if is_better(*limits) and behind.is_down(*limits) else None}
