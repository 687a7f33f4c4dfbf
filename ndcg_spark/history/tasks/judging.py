"""Series of nights in workers: medians and spreads, and flags."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ndcg_spark.core import labels
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.core.student import t_quantile
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import RULES, combine_rules, count_with_list, have_same_rules
from ndcg_spark.history.settings import EPOCH, FlagSettings, is_flagged_side
from ndcg_spark.metrics import direction_of, judge_change

T = TypeVar("T")
Judge = Callable[[dict[str, Any], dict[str, Any]], "dict[str, Any] | None"]
"""Compares a night with an earlier one; None if that cannot be known."""
MAD_TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviation of normal values over their median absolute deviation: 1.482602218505602."""


class Deviation(NamedTuple):
    """Distance of a value from the median of others; z, in spreads, is infinite if only the spread is 0."""

    median: float
    spread: float
    z: float


def measure_deviation(value: float, others: FloatArray, floor: float) -> Deviation:
    """Measure how far a value is from others, shape (n,), n >= 1; the spread is scaled to that of normal values.

    `floor` is the smallest spread to divide by, such as the standard error of the value.

    >>> measure_deviation(6.0, np.array([1.0, 2.0, 3.0]), 2.0)
    Deviation(median=2.0, spread=1.482602218505602, z=2.0)
    """
    median = float(np.median(others))
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(others - median)))
    scale, distance = max(spread, floor), value - median
    if scale == 0:
        return Deviation(median, spread, math.copysign(math.inf, distance) if distance else 0.0)
    return Deviation(median, spread, distance / scale)


def probability_of_none(n_before: int, n_nights: int) -> float:
    """Probability that a night has no query at all, given `n_before` queries in `n_nights` earlier ones.

    If all nights are alike, a query is as likely to be of one of them as of any other: (n_nights / (n_nights + 1)) **
    n_before. This is the conditional test of two Poisson counts, Przyborowski and Wilenski, Biometrika 31(3/4), 1940.

    >>> round(probability_of_none(35, 7), 4), probability_of_none(3, 1)
    (0.0093, 0.125)
    """
    return (n_nights / (n_nights + 1)) ** n_before


SERIES = ("run", "segment_by", "segment", "metric", "k")
"""Keys of a metric table within a night and data set."""
_KINDS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "array<date>": pa.list_(pa.date32()),
    "array<int>": pa.list_(pa.int32()),
    "array<double>": pa.list_(pa.float64()),
}
SERIES_COLUMNS = {name: "int" if name == "k" else "string" for name in SERIES}


def build_schema(columns: Mapping[str, str], more: Mapping[str, pa.DataType] = {}) -> pa.Schema:
    """Build a schema from names of Spark types; `more` adds types to `_KINDS`."""
    return pa.schema([(name, more.get(kind) or _KINDS[kind]) for name, kind in columns.items()])


def day_to_date(day: int) -> date:
    """Convert days since 1970 to a date."""
    return EPOCH + timedelta(days=int(day))


def format_series(series: dict[str, Any]) -> str:
    """Format a series for a person: `ndcg@10 of run 'bm25', country=DE`, and the baseline if there is one."""
    against = f" against {series['baseline']!r}" if "baseline" in series else ""
    run = f"run {series['run']!r}{against}, " if series["run"] or against else ""
    return f"{labels.metric(series)} of {run}{labels.segment(series)}"


def sort_nights(
    series: dict[str, Any], nights: Sequence[dict[str, Any]], *, keep: str = "one data set"
) -> list[dict[str, Any]]:
    """Sort the nights of a series by `day`; refuse duplicates, and ask to keep the rows of `keep`."""
    ordered = sorted(nights, key=lambda night: int(night["day"]))
    for night, following in pairwise(ordered):
        if night["day"] == following["day"]:
            raise InputRefusedError(
                f"{format_series(series)} has two rows for the night {day_to_date(night['day'])}; keep the rows of "
                f"{keep}."
            )
    return ordered


def combine_series_rules(series: dict[str, Any], nights: Sequence[dict[str, Any]], *, across: bool) -> str | None:
    """Combine the rules of the nights of a series, which must be the same unless `across`."""
    return combine_rules((night[RULES] for night in nights), format_series(series), across=across)


def find_common_value(nights: Sequence[dict[str, Any]], column: str) -> Any:
    """Return the value of a column if it is the same on all nights, else None."""
    first = nights[0][column]
    return first if all(night[column] == first for night in nights) else None


LOW, HIGH, USUAL, SHORT, NO_VALUE = "low", "high", "usual", "short_history", "no_value"
MISSING, RECOVERED, ONGOING, OTHER_DIRECTION = "missing", "recovered", "ongoing", "other_direction"
FEW_QUERIES = "few_queries"
FLAGGED = (FEW_QUERIES, LOW, HIGH, MISSING)
PRINTED = {FEW_QUERIES: 0, **dict.fromkeys((LOW, HIGH, MISSING), 1), ONGOING: 2, RECOVERED: 3}
"""Statuses that are printed, in this order; within it by distance, which says nothing of few queries."""
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
    "reference_night": "date",
    "change_night": "date",
    "rule": "string",
}
TO_PAIR_COLUMNS = {
    **FLAG_COLUMNS,
    RULES: "string",
    "before": "date",
    **{"history_days": "array<int>", "history_values": "array<double>", "history_errors": "array<double>"},
    **{"n_queries": "bigint", "queries_before": "bigint"},
}
"""Nights to compare query by query, with rules if known, the nights before, and what `_find_few_queries` returns."""
PAIR_OF_FLAG = {"later": "date", "earlier": "date"}
"""Nights to compare because of an earlier flag."""
MISSING_COLUMNS = {**FLAG_COLUMNS, "last_queries": "bigint"}
"""Missing series, with the queries of their last night."""
PAIRED_COLUMNS = {
    **dict.fromkeys(("n_queries", "n_only_run", "n_only_baseline"), "bigint"),
    **dict.fromkeys(("difference", "std_error", "df"), "double"),
}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ANY_DAY, BEFORE, BEFORE_PAIRED, BEFORE_FLAG = "any", "before", "before_paired", "before_flag"
"""Histories of several weekdays: all nights; the night before, by its mean or by queries; the night before a flag."""
_NO_SPREAD = {
    BEFORE: "any change counts, as no query differs on either night",
    BEFORE_PAIRED: "any change counts, as all of these changed alike",
}
Count = tuple[int, "float | None"]
"""The day of a night, and its number of queries, or a share of queries, if it is known."""
N_WITH_LIST, N_OF_RUN, SHARE_OF_RUN = "n_with_list", "n_of_run", "share_of_run"
"""Numbers of queries with a list on a night, of the series and of its run, and the share of a segment in its run."""
LEVEL = 0.001
"""Level of the test against the night before: low, because a night has many groups and each is tested."""
_NORMAL_LIMIT = NormalDist().inv_cdf(1 - LEVEL / 2)
_OPPOSITE = {LOW: HIGH, HIGH: LOW}
MOST_CHANGES, FEW_CHANGES, LARGE_CHANGE = 6, 3, 4.5
"""At most 6 changes of a history are looked at: all of 3, of more those that are 4.5 times the median change.

If errors are alike, a clear change is 3.29 / 0.6745 = 4.9 times the median of changes by chance.
"""
FEWEST_PAIRED = 0.5
"""Smallest share of the queries of a night that its pairs must be; fewer do not stand for the night."""
LATEST_NIGHTS, LATEST_DAYS = 7, 31
"""A series is missing only if it had a value on one of the latest 7 nights, within 31 days."""
MISSING_CHANCE = 0.01
"""A segment without queries is missing if at most this share of nights have none by chance."""


def find_first_nights(settings: FlagSettings) -> tuple[date | None, date | None]:
    """Return the first nights that are needed, of series and of their runs; None: all are."""
    if settings.start is None:
        return None, None
    latest = settings.start - timedelta(days=LATEST_DAYS)
    if settings.lookback is None:
        return None, latest
    return min(latest, settings.start - timedelta(days=settings.lookback)), latest


def flag_nights(
    batches: Iterator[pa.RecordBatch], settings: FlagSettings, columns: Mapping[str, str] = FLAG_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Judge rows of `SERIES`, `nights`, `run_nights`, `run_counts` and `table_nights`: `FLAG_COLUMNS` and more.

    `nights` is a list of struct<day, value, std_error, config_hash, rules, n_queries, n_missing>, in any order; `day`
    counts from 1970. `run_nights` is a list of struct<day, config_hash, rules, segment_by>: the latest nights of
    the same run, metric and k, one row per segment set, `""` for all queries. `run_counts` is a list of struct<day,
    n_queries, n_missing, rules>: all nights of that run over all queries. `table_nights` is a list of days, null for
    segments: a night that lacks the run is reported for all queries alone.
    """
    schema = build_schema(columns)
    for batch in batches:
        rows = [row for series in batch.to_pylist() for row in _judge_series(series, settings)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def request_pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add rows for the pairs of nights that show whether earlier flags last, to `TO_PAIR_COLUMNS` with `paired`.

    Such a row has the keys and rules of its night, and `PAIR_OF_FLAG`; these are null in the rows that were there.
    """
    for batch in batches:
        schema = pa.schema([*batch.schema, *build_schema(PAIR_OF_FLAG)])
        rows = [row for night in batch.to_pylist() for row in (night, *_request_pairs(night))]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _request_pairs(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each pair that `_find_flags` and `_relate_to_flags` may have to judge.

    Queries may have changed in another direction than the mean, so the direction of changes does not matter.
    """
    keys = {name: row[name] for name in ("night", *SERIES, "config_hash", RULES)}
    changes = _find_large_changes(row)
    nights = [*(day for _, day in changes), (row["night"] - EPOCH).days]
    for later, earlier in sorted({(night, before) for before, day in changes for night in nights if night >= day}):
        yield keys | {"later": day_to_date(later), "earlier": day_to_date(earlier)}


def flag_pairs(batches: Iterator[pa.RecordBatch], settings: FlagSettings) -> Iterator[pa.RecordBatch]:
    """Judge rows by the pairs of their queries: `FLAG_COLUMNS`; see `judge_by_pairs`."""
    schema = build_schema(FLAG_COLUMNS)
    for batch in batches:
        rows = [judge_by_pairs(row, settings) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def judge_by_pairs(row: dict[str, Any], settings: FlagSettings) -> dict[str, Any]:
    """Judge a night by the queries that it shares with earlier ones, if these are most of both nights.

    `row` has `TO_PAIR_COLUMNS`, the struct `paired` of the night and the one before it, null without pairs, and
    `of_flags`, a list of `PAIR_OF_FLAG` and `paired`: what `request_pairs` asked for.
    """
    if _compute_share(row["paired"]) is None:
        return row
    *nights, tonight = _list_nights(row)
    paired = {tuple(map(_to_day, (pair["later"], pair["earlier"]))): pair["paired"] for pair in row["of_flags"]}
    paired[tonight["day"], nights[-1]["day"]] = row["paired"]

    def judge(night: dict[str, Any], before: dict[str, Any]) -> dict[str, Any] | None:
        pair = night["day"], before["day"]
        return (_judge_pairs(paired[pair]) or _judge_by_errors(night, before)) if pair in paired else None

    judgment = judge(tonight, nights[-1])
    if judgment is None:
        return row
    flags = _find_flags(nights, judge, partial(is_flagged_side, settings.direction, row["metric"]))
    related = _relate_to_flags(tonight, judgment["status"], flags, judge)
    return _add_rule(row, {**_refer_to(nights[-1]), "change_night": None, **judgment, **related}, settings)


def _list_nights(row: dict[str, Any]) -> list[dict[str, Any]]:
    """List the earlier nights of a row, and its own."""
    days, values, errors = (row[name] for name in ("history_days", "history_values", "history_errors"))
    nights = zip([*days, _to_day(row["night"])], [*values, row["value"]], [*errors, row["std_error"]], strict=True)
    return [dict(zip(("day", "value", "std_error"), night, strict=True)) for night in nights]


def _compute_share(pairs: dict[str, Any] | None) -> float | None:
    """Compute the share of queries that two nights share; None if it is too small, or they do not have two."""
    if pairs is None or pairs["std_error"] is None:
        return None
    share = pairs["n_queries"] / (pairs["n_queries"] + max(pairs["n_only_run"], pairs["n_only_baseline"]))
    return share if share >= FEWEST_PAIRED else None


def _judge_pairs(pairs: dict[str, Any] | None) -> dict[str, Any] | None:
    """Judge a night by pairs of queries; None if they do not stand for both nights."""
    if pairs is None or _compute_share(pairs) is None:
        return None
    is_equal = not (pairs["std_error"] or pairs["difference"])
    if is_equal and (pairs["n_only_run"] or pairs["n_only_baseline"]):
        return None  # they say nothing about the other queries
    return _judge_difference(pairs["difference"], pairs["std_error"], BEFORE_PAIRED, pairs["df"])


def _find_large_changes(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Find the largest changes of means between earlier nights, as days; only these may be flags that last.

    They are far beyond the usual change, or clear by the error of the pairs of this night.
    """
    pairs, share = row["paired"], _compute_share(row["paired"])
    if pairs is None or share is None:
        return []
    nights = _list_nights(row)
    sizes = [abs(night["value"] - before["value"]) for before, night in pairwise(nights)]
    clear = t_quantile(1 - LEVEL / 2, pairs["df"]) * share * pairs["std_error"]
    limit = min(clear, LARGE_CHANGE * float(np.median(sizes)) if len(sizes) > FEW_CHANGES else 0.0)
    days = [(int(before["day"]), int(night["day"])) for before, night in pairwise(nights[:-1])]
    large = sorted((change for change in zip(sizes, days, strict=False) if change[0] > limit), reverse=True)
    return [change for _, change in large[:MOST_CHANGES]]


def _judge_series(series: dict[str, Any], settings: FlagSettings) -> Iterator[dict[str, Any]]:
    keys = {name: series[name] for name in SERIES}
    run_nights = {row["day"]: row for row in series["run_nights"] or () if not row["segment_by"]}
    run_counts = {row["day"]: row for row in series["run_counts"] or ()}
    nights = [
        night | _count_queries(night, run_counts.get(night["day"], {}), keys)
        for night in sort_nights(keys, series["nights"])
    ]
    first, last = _to_day(settings.start), _to_day(settings.end)
    by_day = {night["day"]: night for night in nights}
    with_segments = {row["day"] for row in series["run_nights"] or () if row["segment_by"] == keys["segment_by"]}
    table_nights = sorted(series["table_nights"] or run_nights)
    for day in sorted({*by_day, *table_nights}):
        if (first is not None and day < first) or (last is not None and day > last):
            continue
        night, before = by_day.get(day), [other for other in nights if other["day"] < day]
        judgment = None
        if night is None or night["value"] is None:
            comparable = table_nights
            if keys["segment_by"]:
                comparable = _find_comparable_nights(day, run_nights, with_segments)
            judgment = _judge_missing(day, before, comparable, in_segment=bool(keys["segment_by"]))
        if judgment is None and night is None:
            continue
        columns = ("config_hash", "value", "std_error")
        known = night or dict.fromkeys(columns)
        row = {"night": day_to_date(day), **keys, **{column: known[column] for column in columns}}
        row[RULES] = known.get(RULES) or None
        is_flagged = partial(is_flagged_side, settings.direction, keys["metric"])
        yield _add_rule(row, judgment or _judge_night(known, before, settings, is_flagged), settings)


def _add_rule(row: dict[str, Any], judgment: dict[str, Any], settings: FlagSettings) -> dict[str, Any]:
    """Return a judged night with its rule in words. A value on a side that is not requested is not flagged."""
    row = row | judgment
    row["side"] = row["status"]
    if row["status"] in (LOW, HIGH) and not is_flagged_side(settings.direction, row["metric"], row["status"]):
        row["status"] = OTHER_DIRECTION
    if row["status"] not in FLAGGED and not row["segment_by"] and row.get("queries_before") is not None:
        row |= {"status": FEW_QUERIES, "change_night": None}
    return row | {"rule": _format_rule(row, settings)}


def _count_queries(
    night: Mapping[str, Any], run_night: Mapping[str, Any], series: Mapping[str, Any]
) -> dict[str, float | None]:
    """Count the queries by which a night, or the same night of all queries of its run, may have lost some."""
    n, n_of_run = night["n_queries"], run_night.get("n_queries")
    share = n / n_of_run if series["segment_by"] and n is not None and n_of_run else None
    return {
        N_WITH_LIST: _count_with_list(night, series["metric"]),
        N_OF_RUN: _count_with_list(run_night, series["metric"]),
        SHARE_OF_RUN: share,
    }


def _count_with_list(night: Mapping[str, Any], metric: str) -> int | None:
    if night.get("n_queries") is None:
        return None
    return count_with_list(metric, int(night["n_queries"]), int(night["n_missing"] or 0), night[RULES])


def _find_comparable_nights(
    day: int, run_nights: Mapping[int, Mapping[str, Any]], with_segments: Collection[int]
) -> list[int]:
    """Return the nights of a run that were evaluated like `day`, for a segment set that both were asked for.

    The same `config_hash` has the same segment sets. Of others only `rules` are compared, which do not name them, so
    a row of the set must exist on both nights.
    """
    if day not in run_nights:
        return []
    settings = run_nights[day]
    return sorted(
        night
        for night, row in run_nights.items()
        if row["config_hash"] == settings["config_hash"]
        or (have_same_rules(row[RULES], settings[RULES]) and day in with_segments and night in with_segments)
    )


def _judge_missing(
    day: int, before: Sequence[dict[str, Any]], nights: Sequence[int], *, in_segment: bool
) -> dict[str, Any] | None:
    """Judge a night without a value by what the latest nights had; None where a missing value is nothing unusual."""
    latest = [night for night in nights if day - LATEST_DAYS <= night < day][-LATEST_NIGHTS:]
    with_values = [night for night in before if night["day"] in latest and night["value"] is not None]
    if not with_values:
        return None
    n_queries = sum(night[N_WITH_LIST] or 0 for night in with_values)  # those without a list may be of no segment
    if in_segment and probability_of_none(n_queries, len(latest)) > MISSING_CHANCE:
        return None
    last = with_values[-1]
    return {
        "status": MISSING,
        **_refer_to(last),
        "n_nights": len(latest),
        "weekday": _ANY_DAY,
        "last_queries": None if last["n_queries"] is None else int(last["n_queries"]),
    }


def _refer_to(night: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that say with which night a value is compared."""
    return {"median": night["value"], "reference_night": day_to_date(night["day"])}


def _to_day(night: date | None) -> int | None:
    return None if night is None else (night - EPOCH).days


def _judge_night(
    night: dict[str, Any],
    before: Sequence[dict[str, Any]],
    settings: FlagSettings,
    is_flagged: Callable[[str], bool],
) -> dict[str, Any]:
    """Judge a night by its weekday, by all earlier nights, or by the night before, whichever has enough nights."""
    if night["value"] is None:
        return {"status": NO_VALUE}
    earliest = -math.inf if settings.lookback is None else night["day"] - settings.lookback
    comparable = [other for other in before if other["value"] is not None and _is_history(other, night)]
    few = _find_few_queries(night, comparable)
    comparable = [other for other in comparable if other["day"] >= earliest]
    history = [other for other in comparable if (night["day"] - other["day"]) % 7 == 0]
    weekday = _WEEKDAYS[day_to_date(night["day"]).weekday()]
    if len(history) < settings.limits[0][0]:
        if len(comparable) < settings.fewest_any_day:
            short = few | {"status": SHORT, "n_nights": len(comparable), "weekday": _ANY_DAY}
            return short | (_judge_by_night_before(night, comparable, is_flagged) if comparable else {})
        history, weekday = comparable, _ANY_DAY
    limits = [limit for n_nights, limit in settings.limits if n_nights <= len(history)]
    limit = limits[-1] if limits else settings.limits[0][1]
    values = np.array([other["value"] for other in history], dtype=np.float64)
    deviation = measure_deviation(night["value"], values, night["std_error"] or 0.0)
    return few | {
        "status": USUAL if abs(deviation.z) <= limit else LOW if deviation.z < 0 else HIGH,
        "median": deviation.median,
        "spread": deviation.spread,
        "z": deviation.z if math.isfinite(deviation.z) else None,
        "n_nights": len(history),
        "weekday": weekday,
        "limit": limit,
    }


def _is_history(other: dict[str, Any], night: dict[str, Any]) -> bool:
    same = have_same_rules(other[RULES], night[RULES])
    return bool(other["config_hash"] == night["config_hash"]) if same is None else same


def _judge_by_night_before(
    night: dict[str, Any], earlier: Sequence[dict[str, Any]], is_flagged: Callable[[str], bool]
) -> dict[str, Any]:
    """Name the night before, and compare a night with it if the errors of both are known."""
    earlier = _select_full_nights(night, earlier)
    before = earlier[-1]
    history: dict[str, Any] = {"before": day_to_date(before["day"])}
    for name, column in (("history_days", "day"), ("history_values", "value"), ("history_errors", "std_error")):
        history[name] = [other[column] for other in earlier]
    judgment = _judge_by_errors(night, before)
    if judgment is None:
        return history
    flags = _find_flags(earlier, _judge_by_errors, is_flagged)
    related = _relate_to_flags(night, judgment["status"], flags, _judge_by_errors)
    return {**history, **_refer_to(before), **judgment, **related}


def _select_full_nights(night: dict[str, Any], earlier: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Select the nights on which neither the run lost queries, nor a segment most of its share of them."""
    by_run, by_share = (
        find_full_nights(_list_counts(earlier, column), night[column]) for column in (N_OF_RUN, SHARE_OF_RUN)
    )
    return [earlier[at] for at in sorted({*by_run} & {*by_share}) or by_run]


def _list_counts(nights: Sequence[dict[str, Any]], column: str) -> list[Count]:
    return [(night["day"], night[column]) for night in nights]


def _find_few_queries(night: dict[str, Any], before: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the queries of a night that lost some, and of the night before; else nothing."""
    counts = _list_counts(before, N_OF_RUN)
    full = find_night_before_loss(counts, night["day"], night[N_OF_RUN])
    return {} if full is None else {"n_queries": night[N_OF_RUN], "queries_before": counts[full][1]}


def has_few_queries(n_queries: float | None, usual: float | None) -> bool:
    """Return whether a night has at most half of the queries of another; False if these are unknown or none."""
    return n_queries is not None and usual is not None and 2 * n_queries <= usual and usual > 0


def find_night_before_loss(counts: Sequence[Count], day: int, n_queries: float | None) -> int | None:
    """Find the position of the night beside which a night has few queries; None if they are usual.

    It has few beside the night before and that of a week before, or beside the latter alone if the night before had
    as many as a week before it: Monday beside Monday, after a usual Sunday. Nights that have few beside this one are
    passed over: a night after a broken delivery may have lost some, too.
    """
    full = len(counts) - 1
    while full >= 0 and (counts[full][1] is None or has_few_queries(counts[full][1], n_queries)):
        full -= 1
    if full < 0:
        return None
    before, n_before = counts[full]
    week_before = _find_day(counts, day - 7)
    if week_before is None or not counts[week_before][1]:
        return full if has_few_queries(n_queries, n_before) else None
    if not has_few_queries(n_queries, counts[week_before][1]):
        return None
    if has_few_queries(n_queries, n_before):
        return full
    usual = _find_day(counts, before - 7)
    return None if usual is None or has_few_queries(n_before, counts[usual][1]) else week_before


def _find_day(counts: Sequence[Count], day: int) -> int | None:
    at = bisect_left(counts, day, key=lambda night: night[0])
    return at if at < len(counts) and counts[at][0] == day else None


def find_full_nights(counts: Sequence[Count], n_queries: float | None) -> list[int]:
    """Find the positions of the nights with which a night can be compared; of all, if there are none.

    Nights that lost queries, as by a broken delivery, are left out: those that have few beside this night, or beside
    the night before them, unless this night has as few.
    """
    most, full = 0.0, list[int]()
    for at, (day, n) in enumerate(counts):
        before = find_night_before_loss(counts[:at], day, n) if has_few_queries(n, most) else None
        most = max(most, n or 0)
        is_lost = before is not None and not has_few_queries(n_queries, counts[before][1])
        if not is_lost and not has_few_queries(n, n_queries):
            full.append(at)
    return full or list(range(len(counts)))


def _judge_by_errors(night: dict[str, Any], before: dict[str, Any]) -> dict[str, Any] | None:
    """Compare a night with an earlier one by the errors of both; None if one is unknown."""
    if night["std_error"] is None or before["std_error"] is None:
        return None
    error = math.hypot(night["std_error"], before["std_error"])
    return _judge_difference(night["value"] - before["value"], error, BEFORE)


class Flag(NamedTuple):
    """A flagged night, and the night before it."""

    status: str
    before: dict[str, Any]
    night: dict[str, Any]


def _find_flags(nights: Sequence[dict[str, Any]], judge: Judge, is_flagged: Callable[[str], bool]) -> list[Flag]:
    """Find the flags from which no later night recovered. `nights` are sorted; `judge` compares two of them."""
    flags: list[Flag] = []
    for before, night in pairwise(nights):
        status = _get_status(judge(night, before))
        position = _find_recovered(flags, night, status, judge)
        if position is not None:
            del flags[position:]
        elif status in _OPPOSITE and is_flagged(status):
            flags.append(Flag(status, before, night))
    return flags


def _find_recovered(flags: list[Flag], night: dict[str, Any], status: str, judge: Judge) -> int | None:
    """Find the latest flag of the other side, if a night is again as before it."""
    opposite = [position for position, flag in enumerate(flags) if flag.status == _OPPOSITE.get(status)]
    judgment = judge(night, flags[opposite[-1]].before) if opposite else None
    return opposite[-1] if judgment is not None and judgment["status"] == SHORT else None


def _relate_to_flags(night: dict[str, Any], status: str, flags: list[Flag], judge: Judge) -> dict[str, Any]:
    """Return a judgment of a night by earlier flags; empty if none concerns it.

    It is `recovered` if it is as before a flagged night, and `ongoing` if it is like the night before it and still as
    far from the night before a flag.
    """
    position = _find_recovered(flags, night, status, judge)
    if position is None and status != SHORT:
        return {}
    for flag in flags[:position]:
        judgment = judge(night, flag.before)
        if judgment is not None and judgment["status"] == flag.status:
            changed = {"status": ONGOING, "weekday": BEFORE_FLAG, **_refer_to(flag.before)}
            return {**judgment, **changed, **_name_flag(flag)}
    return {} if position is None else {"status": RECOVERED, **_name_flag(flags[position])}


def _name_flag(flag: Flag) -> dict[str, Any]:
    return {"flag": flag, "change_night": day_to_date(flag.night["day"])}


def _get_status(judgment: dict[str, Any] | None) -> str:
    return SHORT if judgment is None else str(judgment["status"])


def _judge_difference(difference: float, error: float, history: str, df: float | None = None) -> dict[str, Any]:
    """Judge a difference from the night before by its error; `df`: degrees of freedom if the queries are paired."""
    limit = _NORMAL_LIMIT if df is None else t_quantile(1 - LEVEL / 2, df)
    z = difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
    status = SHORT if abs(z) <= limit else LOW if z < 0 else HIGH
    z_or_none = z if math.isfinite(z) else None
    return {"status": status, "spread": error, "z": z_or_none, "limit": limit, "weekday": history}


def is_against_night_before(row: Mapping[str, Any]) -> bool:
    return row.get("weekday") in (BEFORE, BEFORE_PAIRED)


def name_unit(row: Mapping[str, Any]) -> str:
    """Name the unit of z: spreads of the history, or standard errors where these are larger."""
    by_error = row.get("weekday") in (BEFORE, BEFORE_PAIRED, BEFORE_FLAG) or (row.get("std_error") or 0.0) > (
        row.get("spread") or 0.0
    )
    return "standard errors" if by_error else "spreads"


def _format_rule(row: dict[str, Any], settings: FlagSettings) -> str:
    """Format what was compared with what."""
    name = format_series(row)
    if row["status"] == MISSING:
        n = row["last_queries"]
        over = "" if n is None else f" over {n:,} {'query' if n == 1 else 'queries'}"
        last = f"its last was {row['median']:.6f}{over} on {row['reference_night']}"
        return f"{name} has no value on {row['night']}; {last}"
    if row["status"] == NO_VALUE:
        return f"{name} has no value on {row['night']}"
    if row["status"] == FEW_QUERIES:
        n = row["n_queries"]
        has = f"has {n:,} {'query' if n == 1 else 'queries'} with a list in its mean"
        return f"{name} {has} on {row['night']}, {row['queries_before']:,} before"
    short = f"{row.get('n_nights')} earlier nights are too few to judge {row['night']}"
    short += f" by history, {settings.fewest_any_day} are needed"
    if "flag" in row:
        before, change_night = row["flag"].before, row["change_night"]
        if row["status"] == ONGOING:
            return (
                f"{name} is {row['value']:.6f} on {row['night']}, still different from {before['value']:.6f} on "
                f"{day_to_date(before['day'])}, before it changed on {change_night}; {short}"
            )
        return (
            f"{name} is {row['value']:.6f} on {row['night']}, again as on {day_to_date(before['day'])} "
            f"({before['value']:.6f}), before it changed on {change_night}; {short}"
        )
    if is_against_night_before(row):
        scale = f"{row['spread']:.6f}; limit {row['limit']:.2f}, level {LEVEL:g}"
        distance = (
            _NO_SPREAD[row["weekday"]] if row["z"] is None else f"{abs(row['z']):.2f} {name_unit(row)} of {scale}"
        )
        return (
            f"{name} is {row['value']:.6f} on {row['night']} and was {row['median']:.6f} on {row['before']}"
            f"{_format_pairs(row)} ({distance}){_format_judgment(row)}; {short}"
        )
    if row["status"] == SHORT:
        return f"{name}: {short}"
    days = "nights" if row["weekday"] == _ANY_DAY else f"{row['weekday']}s"
    side = "below" if row["value"] < row["median"] else "above"
    scale = max(row["spread"], row["std_error"] or 0.0)
    distance = (
        "any change counts, as these are equal"
        if row["z"] is None
        else f"{abs(row['z']):.2f} {name_unit(row)} of {scale:.6f}"
    )
    return (
        f"{name} is {row['value']:.6f} on {row['night']}, {side} the median {row['median']:.6f} of {row['n_nights']} "
        f"earlier {days} ({distance}; limit {row['limit']:g}){_format_judgment(row)}"
    )


def _format_judgment(row: dict[str, Any]) -> str:
    """Format whether a value beyond the limit is better or worse than usual, and why it is not flagged."""
    if row["side"] not in (LOW, HIGH):
        return ""
    is_high = row["side"] == HIGH
    text = f"; {'higher' if is_high else 'lower'} is {judge_change(row['metric'], 1 if is_high else -1)}"
    known = direction_of(row["metric"]) is not None
    reason = "; not flagged, because of the direction" if row["status"] == OTHER_DIRECTION else ""
    return (text if known else "") + reason


def _format_pairs(row: dict[str, Any]) -> str:
    """Format how many queries both nights have, their change, and how many were left out."""
    if row["weekday"] != BEFORE_PAIRED:
        return ""
    pairs = row["paired"]
    counts = {row["night"]: pairs["n_only_run"], row["before"]: pairs["n_only_baseline"]}
    only = " and ".join(f"{n:,} that only {night} has" for night, n in counts.items() if n)
    without = f", without {only}" if only else ""
    return f"; the {pairs['n_queries']:,} queries of both nights changed by {pairs['difference']:+.6f}{without}"
