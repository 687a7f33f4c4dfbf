"""Series of nights to flags: each night against the nights before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.robust import deviation
from ndcg_spark.nightly_plans import EPOCH, FlagPlan
from ndcg_spark.worker.batches import BatchFunction, batch_function
from ndcg_spark.worker.history.nights import SERIES, SERIES_COLUMNS, arrow_schema, date_of, in_order, series_name

LOW, HIGH, USUAL, SHORT, NO_VALUE = "low", "high", "usual", "short_history", "no_value"
FLAG_COLUMNS = {
    "night": "date",
    **SERIES_COLUMNS,
    "config_hash": "string",
    "value": "double",
    "std_error": "double",
    "status": "string",
    "median": "double",
    "spread": "double",
    "z": "double",
    "n_nights": "bigint",
    "weekday": "string",
    "limit": "double",
    "rule": "string",
}
"""Columns of the result and their types, as Spark names them."""
_SCHEMA = arrow_schema(FLAG_COLUMNS)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ANY_DAY, BEFORE = "any", "before"
"""Histories that are not of one weekday: all nights; the night before alone."""
LEVEL = 0.001
"""Of the test against the night before. A night has many groups, and each is tested."""
_LIMIT = NormalDist().inv_cdf(1 - LEVEL / 2)


def make_flagger(plan: FlagPlan) -> BatchFunction:
    """Build the function from rows of `SERIES` and `nights` to `FLAG_COLUMNS`.

    `nights` is a list of struct<day, value, std_error, config_hash>, in any order; `day` counts from 1970.
    """
    return batch_function(lambda batches: (_flagged(batch, plan) for batch in batches))


def _flagged(batch: pa.RecordBatch, plan: FlagPlan) -> pa.RecordBatch:
    rows = [row for series in batch.to_pylist() for row in _series_rows(series, plan)]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _series_rows(series: dict[str, Any], plan: FlagPlan) -> Iterator[dict[str, Any]]:
    keys = {name: series[name] for name in SERIES}
    nights = in_order(keys, series["nights"])
    first, last = _day(plan.start), _day(plan.end)
    for at, one in enumerate(nights):
        day = one["day"]
        if (first is not None and day < first) or (last is not None and day > last):
            continue
        row = {"night": date_of(day), **keys, **{name: one[name] for name in ("config_hash", "value", "std_error")}}
        judged = _judged(one, nights[:at], plan)
        yield row | judged | {"rule": _rule({**row, **judged}, plan)}


def _day(night: date | None) -> int | None:
    return None if night is None else (night - EPOCH).days


def _judged(one: dict[str, Any], before: Sequence[dict[str, Any]], plan: FlagPlan) -> dict[str, Any]:
    if one["value"] is None:
        return {"status": NO_VALUE}
    earliest = -math.inf if plan.lookback is None else one["day"] - plan.lookback
    usable = [
        other
        for other in before
        if other["config_hash"] == one["config_hash"] and other["value"] is not None and other["day"] >= earliest
    ]
    alike = [other for other in usable if (one["day"] - other["day"]) % 7 == 0]
    weekday = _WEEKDAYS[date_of(one["day"]).weekday()]
    if len(alike) < plan.limits[0][0]:
        if len(usable) < plan.fewest_any_day:
            short = {"status": SHORT, "n_nights": len(usable), "weekday": _ANY_DAY}
            return short | (_against_before(one, usable[-1]) if usable else {})
        alike, weekday = usable, _ANY_DAY
    limit = [size for nights, size in plan.limits if nights <= len(alike)][-1:] or [plan.limits[0][1]]
    history = np.array([other["value"] for other in alike], dtype=np.float64)
    found = deviation(one["value"], history, one["std_error"] or 0.0)
    far = abs(found.z) > limit[0]
    return {
        "status": (LOW if found.z < 0 else HIGH) if far else USUAL,
        "median": found.median,
        "spread": found.spread,
        "z": found.z if math.isfinite(found.z) else None,
        "n_nights": len(alike),
        "weekday": weekday,
        "limit": limit[0],
    }


def _against_before(one: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Hold a night against the one before it by their errors; empty where these are not known."""
    error = math.hypot(one["std_error"] or 0.0, before["std_error"] or 0.0)
    if not error or one["std_error"] is None or before["std_error"] is None:
        return {}
    z = (one["value"] - before["value"]) / error
    found = {
        "before": date_of(before["day"]),
        "median": before["value"],
        "spread": error,
        "z": z,
        "limit": _LIMIT,
        "weekday": BEFORE,
    }
    return found | ({"status": LOW if z < 0 else HIGH} if abs(z) > _LIMIT else {})


def unit_of(row: Mapping[str, Any]) -> str:
    """Name what z counts: spreads of the history, or standard errors where these are larger."""
    if row.get("weekday") == BEFORE:
        return "standard errors"
    return "standard errors" if (row.get("std_error") or 0.0) > (row.get("spread") or 0.0) else "spreads"


def _rule(row: dict[str, Any], plan: FlagPlan) -> str:
    """Say in words what was compared with what."""
    name = series_name(row)
    if row["status"] == NO_VALUE:
        return f"{name} has no value on {row['night']}"
    short = f"{row.get('n_nights')} earlier nights are too few to judge {row['night']}"
    short += f" by history, {plan.fewest_any_day} are needed"
    if row.get("weekday") == BEFORE:
        return (
            f"{name} is {row['value']:.6f} on {row['night']} and was {row['median']:.6f} on the night before, "
            f"{row['before']} ({abs(row['z']):.2f} {unit_of(row)} of {row['spread']:.6f}; limit {row['limit']:.2f}, "
            f"level {LEVEL:g}); {short}"
        )
    if row["status"] == SHORT:
        return f"{name}: {short}"
    days = "nights" if row["weekday"] == _ANY_DAY else f"{row['weekday']}s"
    side = "below" if row["value"] < row["median"] else "above"
    scale = max(row["spread"], row["std_error"] or 0.0)
    distance = (
        "any change counts, as these are equal"
        if row["z"] is None
        else f"{abs(row['z']):.2f} {unit_of(row)} of {scale:.6f}"
    )
    return (
        f"{name} is {row['value']:.6f} on {row['night']}, {side} the median {row['median']:.6f} of {row['n_nights']} "
        f"earlier {days} ({distance}; limit {row['limit']:g})"
    )
