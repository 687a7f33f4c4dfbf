"""Series of nights to flags: each night against the nights before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function
from ndcg_spark.core.student import t_quantile
from ndcg_spark.evaluation.rules import RULES, is_known, same_rules
from ndcg_spark.history.kernels.robust import chance_of_none, deviation
from ndcg_spark.history.settings import EPOCH, FlagSettings
from ndcg_spark.history.tasks.nights import SERIES, SERIES_COLUMNS, arrow_schema, date_of, in_order, series_name
from ndcg_spark.metrics import direction_of, judge_change

LOW, HIGH, USUAL, SHORT, NO_VALUE = "low", "high", "usual", "short_history", "no_value"
MISSING = "missing"
FLAGGED = (LOW, HIGH, MISSING)
"""Statuses of nights that are flagged."""
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
TO_PAIR_COLUMNS = {**FLAG_COLUMNS, RULES: "string", "before": "date", "before_value": "double"}
"""Those of nights that may yet be paired: with their rules, where these are known, and with the night before."""
MISSING_COLUMNS = {**FLAG_COLUMNS, "last_night": "date", "last_queries": "bigint"}
"""Those of series that are missing: with their last night and its queries; `median` is its value."""
PAIRED_COLUMNS = {
    **dict.fromkeys(("n_queries", "n_only_run", "n_only_baseline"), "bigint"),
    **dict.fromkeys(("difference", "std_error", "df"), "double"),
}
"""What `make_pairer` takes of a comparison of a night with the one before it."""
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ANY_DAY, BEFORE, BEFORE_PAIRED = "any", "before", "before_paired"
"""Histories that are not of one weekday: all nights; the night before alone, by its mean or query by query."""
_NO_SPREAD = {
    BEFORE: "any change counts, as no query differs on either night",
    BEFORE_PAIRED: "any change counts, as all of these changed alike",
}
LEVEL = 0.001
"""Of the test against the night before. A night has many groups, and each is tested."""
_NORMAL_LIMIT = NormalDist().inv_cdf(1 - LEVEL / 2)
LATEST_NIGHTS, LATEST_DAYS = 7, 31
"""A series can only be missing if one of so many latest nights had a value, none of them more days ago."""
MISSING_CHANCE = 0.01
"""A segment without queries is missing if this happens by chance on at most so many nights, as with other flags."""


def make_flagger(settings: FlagSettings, columns: Mapping[str, str] = FLAG_COLUMNS) -> BatchFunction:
    """Build the function from rows of `SERIES`, `nights`, `run_nights` and `table_nights` to `FLAG_COLUMNS` and more.

    `nights` is a list of struct<day, value, std_error, config_hash, rules, n_queries>, in any order; `day` counts
    from 1970.
    `run_nights` is a list of struct<day, config_hash>: nights of the same run, metric and k over all queries.
    `table_nights` is a list of days, or null for segments: a night without the run is told of all queries alone.
    """
    schema = arrow_schema(columns)

    def flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = [row for series in batch.to_pylist() for row in _series_rows(series, settings)]
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    return batch_function(lambda batches: map(flagged, batches))


def make_pairer(settings: FlagSettings) -> BatchFunction:
    """Build the function from `TO_PAIR_COLUMNS` and a struct `paired` of `PAIRED_COLUMNS` to `FLAG_COLUMNS`.

    `paired` is null where the nights could not be paired: the row stays as it is.
    """
    schema = arrow_schema(FLAG_COLUMNS)

    def pair(row: dict[str, Any]) -> dict[str, Any]:
        its = row["paired"]
        if its is None or its["std_error"] is None:
            return row
        judged = {
            "median": row["before_value"],
            **_held(its["difference"], its["std_error"], BEFORE_PAIRED, its["df"]),
        }
        return row | judged | {"rule": _rule({**row, **judged}, settings)}

    return batch_function(
        lambda batches: (pa.RecordBatch.from_pylist([*map(pair, one.to_pylist())], schema=schema) for one in batches)
    )


def _series_rows(series: dict[str, Any], settings: FlagSettings) -> Iterator[dict[str, Any]]:
    keys = {name: series[name] for name in SERIES}
    nights = in_order(keys, series["nights"])
    first, last = _day(settings.start), _day(settings.end)
    there = {one["day"]: one for one in nights}
    of_run = {one["day"]: one["config_hash"] for one in series["run_nights"] or ()}
    of_table = sorted(series["table_nights"] or of_run)
    for day in sorted({*there, *of_table}):
        if (first is not None and day < first) or (last is not None and day > last):
            continue
        one, before = there.get(day), [other for other in nights if other["day"] < day]
        judged = None
        if one is None or one["value"] is None:
            judged = _missing(day, before, of_run, of_table, in_segment=bool(keys["segment_by"]))
        if judged is None and one is None:
            continue
        known = one or dict.fromkeys(("config_hash", "value", "std_error"))
        row = {"night": date_of(day), **keys, **{name: known[name] for name in ("config_hash", "value", "std_error")}}
        row[RULES] = known.get(RULES) if is_known(known.get(RULES)) else None
        judged = judged or _judged(known, before, settings)
        yield row | judged | {"rule": _rule({**row, **judged}, settings)}


def _missing(
    day: int,
    before: Sequence[dict[str, Any]],
    of_run: Mapping[int, str | None],
    of_table: Sequence[int],
    *,
    in_segment: bool,
) -> dict[str, Any] | None:
    """Judge a night without a value: tell what the latest nights had, or None where that is nothing unusual."""
    nights: Sequence[int] = of_table
    if day in of_run:  # its config_hash says whether the same was asked for
        nights = sorted(other for other, config_hash in of_run.items() if config_hash == of_run[day])
    latest = [other for other in nights if day - LATEST_DAYS <= other < day][-LATEST_NIGHTS:]
    its = [one for one in before if one["day"] in latest and one["value"] is not None]
    if not its or (in_segment and day not in of_run):
        return None
    if in_segment and chance_of_none(sum(int(one["n_queries"] or 0) for one in its), len(latest)) > MISSING_CHANCE:
        return None
    last = its[-1]
    return {
        "status": MISSING,
        "median": last["value"],
        "n_nights": len(latest),
        "weekday": _ANY_DAY,
        "last_night": date_of(last["day"]),
        "last_queries": None if last["n_queries"] is None else int(last["n_queries"]),
    }


def _day(night: date | None) -> int | None:
    return None if night is None else (night - EPOCH).days


def _judged(one: dict[str, Any], before: Sequence[dict[str, Any]], settings: FlagSettings) -> dict[str, Any]:
    if one["value"] is None:
        return {"status": NO_VALUE}
    earliest = -math.inf if settings.lookback is None else one["day"] - settings.lookback
    usable = [
        other
        for other in before
        if _is_history(other, one) and other["value"] is not None and other["day"] >= earliest
    ]
    alike = [other for other in usable if (one["day"] - other["day"]) % 7 == 0]
    weekday = _WEEKDAYS[date_of(one["day"]).weekday()]
    if len(alike) < settings.limits[0][0]:
        if len(usable) < settings.fewest_any_day:
            short = {"status": SHORT, "n_nights": len(usable), "weekday": _ANY_DAY}
            return short | (_against_before(one, usable[-1]) if usable else {})
        alike, weekday = usable, _ANY_DAY
    limit = [size for nights, size in settings.limits if nights <= len(alike)][-1:] or [settings.limits[0][1]]
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


def _is_history(other: dict[str, Any], one: dict[str, Any]) -> bool:
    """Whether nights are of one series: computed by the same rules or, where these are not known, as configured."""
    same = same_rules(other[RULES], one[RULES])
    return bool(other["config_hash"] == one["config_hash"]) if same is None else same


def _against_before(one: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Name the night before, and hold a night against it by the errors of both where these are known."""
    named = {"before": date_of(before["day"]), "before_value": before["value"]}
    if one["std_error"] is None or before["std_error"] is None:
        return named
    error = math.hypot(one["std_error"], before["std_error"])
    return {**named, "median": before["value"], **_held(one["value"] - before["value"], error, BEFORE)}


def _held(difference: float, error: float, how: str, df: float | None = None) -> dict[str, Any]:
    """Judge a difference from the night before by its error; `df` are the degrees of freedom of an error of pairs.

    Without any error every change is far, as by history; z is null then.
    """
    limit = _NORMAL_LIMIT if df is None else t_quantile(1 - LEVEL / 2, df)
    z = difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
    status = SHORT if abs(z) <= limit else LOW if z < 0 else HIGH
    return {"status": status, "spread": error, "z": z if math.isfinite(z) else None, "limit": limit, "weekday": how}


def is_of_the_night_before(row: Mapping[str, Any]) -> bool:
    """Whether a night was held against the one before it, for want of history."""
    return row.get("weekday") in (BEFORE, BEFORE_PAIRED)


def unit_of(row: Mapping[str, Any]) -> str:
    """Name what z counts: spreads of the history, or standard errors where these are larger."""
    if is_of_the_night_before(row):
        return "standard errors"
    return "standard errors" if (row.get("std_error") or 0.0) > (row.get("spread") or 0.0) else "spreads"


def _rule(row: dict[str, Any], settings: FlagSettings) -> str:
    """Say in words what was compared with what."""
    name = series_name(row)
    if row["status"] == MISSING:
        n = row["last_queries"]
        over = "" if n is None else f" over {n:,} {'query' if n == 1 else 'queries'}"
        return f"{name} has no value on {row['night']}; its last was {row['median']:.6f}{over} on {row['last_night']}"
    if row["status"] == NO_VALUE:
        return f"{name} has no value on {row['night']}"
    short = f"{row.get('n_nights')} earlier nights are too few to judge {row['night']}"
    short += f" by history, {settings.fewest_any_day} are needed"
    if is_of_the_night_before(row):
        scale = f"{row['spread']:.6f}; limit {row['limit']:.2f}, level {LEVEL:g}"
        distance = (
            _NO_SPREAD[row["weekday"]] if row["z"] is None else f"{abs(row['z']):.2f} {unit_of(row)} of {scale}"
        )
        return (
            f"{name} is {row['value']:.6f} on {row['night']} and was {row['median']:.6f} on the night before, "
            f"{row['before']}{_pairs(row)} ({distance}){_judgment(row)}; {short}"
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
        f"earlier {days} ({distance}; limit {row['limit']:g}){_judgment(row)}"
    )


def _judgment(row: dict[str, Any]) -> str:
    """Say of a flagged night whether it is better or worse than usual; empty for other nights and metrics."""
    if row["status"] not in (LOW, HIGH) or direction_of(row["metric"]) is None:
        return ""
    is_high = row["status"] == HIGH
    return f"; {'higher' if is_high else 'lower'} is {judge_change(row['metric'], 1 if is_high else -1)}"


def _pairs(row: dict[str, Any]) -> str:
    """Say of paired nights how many queries both have, by how much these changed, and what was left out."""
    if row["weekday"] != BEFORE_PAIRED:
        return ""
    its = row["paired"]
    return (
        f"; the {its['n_queries']:,} queries of both nights changed by {its['difference']:+.6f}, without "
        f"{its['n_only_run']:,} that only {row['night']} has and {its['n_only_baseline']:,} that only "
        f"{row['before']} has"
    )
