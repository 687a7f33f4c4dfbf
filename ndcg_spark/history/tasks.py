"""Series of nights in workers: medians and spreads, flags, and sums of periods."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from fractions import Fraction
from functools import partial
from itertools import groupby, islice, pairwise, product
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ndcg_spark.comparison import kernels
from ndcg_spark.comparison.kernels import DRAWN, MAX_EXACT_UNITS, hashed_flip_p, percentile_interval, replicate_values
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks import finishing, summing
from ndcg_spark.comparison.tasks.pairing import group_whole_units
from ndcg_spark.core import labels
from ndcg_spark.core.batches import int_values, list_offsets
from ndcg_spark.core.exact import Limbs, add_limbs
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.core.student import t_quantile
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.rules import RULES, combine_rules, have_same_rules
from ndcg_spark.history.settings import EPOCH, FlagSettings, RollUpSettings, asks_for
from ndcg_spark.metrics import EVERY, MetricAt, direction_of, judge_change
from ndcg_spark.metrics.normalized_gain import NDCG

MAD_TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviation of normal values over their median absolute deviation: 1.482602218505602."""


class Deviation(NamedTuple):
    """Place of a value among others; z, in spreads, is infinite where the spread is 0 and the value differs."""

    median: float
    spread: float
    z: float


def deviation(value: float, others: FloatArray, floor: float) -> Deviation:
    """Place a value among others, shape (n,), n >= 1; the spread is scaled to that of normal values.

    `floor` is the least spread to divide by, such as the standard error of the value.

    >>> deviation(6.0, np.array([1.0, 2.0, 3.0]), 2.0)
    Deviation(median=2.0, spread=1.482602218505602, z=2.0)
    """
    median = float(np.median(others))
    spread = MAD_TO_DEVIATION * float(np.median(np.abs(others - median)))
    scale, distance = max(spread, floor), value - median
    if scale == 0:
        return Deviation(median, spread, math.copysign(math.inf, distance) if distance else 0.0)
    return Deviation(median, spread, distance / scale)


def chance_of_none(n_before: int, n_nights: int) -> float:
    """Probability that a night has no query at all, given `n_before` queries in `n_nights` earlier ones.

    If all nights are alike, a query is as likely to be of one of them as of any other: (n_nights / (n_nights + 1)) **
    n_before. This is the conditional test of two Poisson counts, Przyborowski and Wilenski, Biometrika 31(3/4), 1940.

    >>> round(chance_of_none(35, 7), 4), chance_of_none(3, 1)
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


def arrow_schema(columns: Mapping[str, str], more: Mapping[str, pa.DataType] = {}) -> pa.Schema:
    """Schema of columns whose types are named as Spark names them; `more` adds types to `_KINDS`."""
    return pa.schema([(name, more.get(kind) or _KINDS[kind]) for name, kind in columns.items()])


def date_of(day: int) -> date:
    """Date of a day that is counted from 1970."""
    return EPOCH + timedelta(days=int(day))


def series_name(series: dict[str, Any]) -> str:
    """Name a series for a person: `ndcg@10 of run 'bm25', country=DE`; with the baseline if there is one."""
    against = f" against {series['baseline']!r}" if "baseline" in series else ""
    run = f"run {series['run']!r}{against}, " if series["run"] or against else ""
    return f"{labels.metric(series)} of {run}{labels.segment(series)}"


def in_order(
    series: dict[str, Any], nights: Sequence[dict[str, Any]], *, keep: str = "one data set"
) -> list[dict[str, Any]]:
    """Sort the nights of a series by `day`; refuse a night that appears twice: the rows of `keep` should be kept."""
    ordered = sorted(nights, key=lambda one: int(one["day"]))
    for one, following in pairwise(ordered):
        if one["day"] == following["day"]:
            raise InputRefusedError(
                f"{series_name(series)} has two rows for the night {date_of(one['day'])}; keep the rows of {keep}."
            )
    return ordered


def series_rules(series: dict[str, Any], nights: Sequence[dict[str, Any]], *, across: bool) -> str | None:
    """Combine the rules of the nights of a series, which must be the same unless `across`."""
    return combine_rules((night[RULES] for night in nights), series_name(series), across=across)


def common_value(nights: Sequence[dict[str, Any]], column: str) -> Any:
    """Value of a column that all nights have; None where they differ."""
    first = nights[0][column]
    return first if all(night[column] == first for night in nights) else None


LOW, HIGH, USUAL, SHORT, NO_VALUE = "low", "high", "usual", "short_history", "no_value"
MISSING, RECOVERED, OTHER_DIRECTION = "missing", "recovered", "other_direction"
FLAGGED = (LOW, HIGH, MISSING)
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
TO_PAIR_COLUMNS = {
    **FLAG_COLUMNS,
    RULES: "string",
    **{"before": "date", "before_value": "double"},
    **{"history_days": "array<int>", "history_values": "array<double>"},
}
"""Nights that may yet be paired, with their rules, where these are known, and with the nights before, in order."""
MISSING_COLUMNS = {**FLAG_COLUMNS, "last_night": "date", "last_queries": "bigint"}
"""Missing series, with their last night and its queries; `median` is the value of that night."""
PAIRED_COLUMNS = {
    **dict.fromkeys(("n_queries", "n_only_run", "n_only_baseline"), "bigint"),
    **dict.fromkeys(("difference", "std_error", "df"), "double"),
}
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


def flag_nights(
    batches: Iterator[pa.RecordBatch], settings: FlagSettings, columns: Mapping[str, str] = FLAG_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Judge rows of `SERIES`, `nights`, `run_nights` and `table_nights`: `FLAG_COLUMNS` and more.

    `nights` is a list of struct<day, value, std_error, config_hash, rules, n_queries>, in any order; `day` counts
    from 1970. `run_nights` is a list of struct<day, config_hash, rules, segment_by>: nights of the same run, metric
    and k, one row per segment set, `""` for all queries. `table_nights` is a list of days, null for segments: a night
    that lacks the run is reported for all queries alone.
    """
    schema = arrow_schema(columns)
    for batch in batches:
        rows = [row for series in batch.to_pylist() for row in _series_rows(series, settings)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def flag_pairs(batches: Iterator[pa.RecordBatch], settings: FlagSettings) -> Iterator[pa.RecordBatch]:
    """Judge rows of `TO_PAIR_COLUMNS` by their struct `paired`, null without pairs: `FLAG_COLUMNS`."""
    schema = arrow_schema(FLAG_COLUMNS)
    for batch in batches:
        rows = [_judge_by_pairs(row, settings) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _judge_by_pairs(row: dict[str, Any], settings: FlagSettings) -> dict[str, Any]:
    its = row["paired"]
    if its is None or its["std_error"] is None or not (its["std_error"] or its["difference"]):
        return row  # queries that did not change say nothing of those that came and went
    days, values = row["history_days"], row["history_values"]
    nights = [{"day": day, "value": value} for day, value in zip(days, values, strict=True)]

    def held(one: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        return _held(one["value"] - before["value"], its["std_error"], BEFORE_PAIRED, its["df"])

    judged = {"median": row["before_value"], **_held(its["difference"], its["std_error"], BEFORE_PAIRED, its["df"])}
    nights.append({"day": _day(row["night"]), "value": nights[-1]["value"] + its["difference"]})
    judged |= _since_a_flag(nights, held, partial(asks_for, settings.direction, row["metric"]))
    return _explained(row, judged, settings)


def _series_rows(series: dict[str, Any], settings: FlagSettings) -> Iterator[dict[str, Any]]:
    keys = {name: series[name] for name in SERIES}
    nights = in_order(keys, series["nights"])
    first, last = _day(settings.start), _day(settings.end)
    there = {one["day"]: one for one in nights}
    run_nights = {row["day"]: row for row in series["run_nights"] or () if not row["segment_by"]}
    with_segments = {row["day"] for row in series["run_nights"] or () if row["segment_by"] == keys["segment_by"]}
    table_nights = sorted(series["table_nights"] or run_nights)
    for day in sorted({*there, *table_nights}):
        if (first is not None and day < first) or (last is not None and day > last):
            continue
        one, before = there.get(day), [other for other in nights if other["day"] < day]
        judged = None
        if one is None or one["value"] is None:
            nights_asked = table_nights
            if keys["segment_by"]:
                nights_asked = _nights_with_segments(day, run_nights, with_segments)
            judged = _missing(day, before, nights_asked, in_segment=bool(keys["segment_by"]))
        if judged is None and one is None:
            continue
        known = one or dict.fromkeys(("config_hash", "value", "std_error"))
        row = {"night": date_of(day), **keys, **{name: known[name] for name in ("config_hash", "value", "std_error")}}
        row[RULES] = known.get(RULES) or None
        is_flagged = partial(asks_for, settings.direction, keys["metric"])
        yield _explained(row, judged or _judged(known, before, settings, is_flagged), settings)


def _explained(row: dict[str, Any], judged: dict[str, Any], settings: FlagSettings) -> dict[str, Any]:
    """A judged night and its rule in words; a value on a side that is not asked for is no flag."""
    row = row | judged
    row["side"] = row["status"]
    if row["status"] in (LOW, HIGH) and not asks_for(settings.direction, row["metric"], row["status"]):
        row["status"] = OTHER_DIRECTION
    return row | {"rule": _rule(row, settings)}


def _nights_with_segments(
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


def _missing(
    day: int, before: Sequence[dict[str, Any]], nights: Sequence[int], *, in_segment: bool
) -> dict[str, Any] | None:
    """Judge a night without a value by what the latest nights had; None where a missing value is nothing unusual."""
    latest = [night for night in nights if day - LATEST_DAYS <= night < day][-LATEST_NIGHTS:]
    its = [one for one in before if one["day"] in latest and one["value"] is not None]
    if not its:
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


def _judged(
    one: dict[str, Any],
    before: Sequence[dict[str, Any]],
    settings: FlagSettings,
    is_flagged: Callable[[str], bool],
) -> dict[str, Any]:
    if one["value"] is None:
        return {"status": NO_VALUE}
    earliest = -math.inf if settings.lookback is None else one["day"] - settings.lookback
    recent = [other for other in before if other["value"] is not None and other["day"] >= earliest]
    usable = [other for other in recent if _is_history(other, one)]
    alike = [other for other in usable if (one["day"] - other["day"]) % 7 == 0]
    weekday = _WEEKDAYS[date_of(one["day"]).weekday()]
    if len(alike) < settings.limits[0][0]:
        if len(usable) < settings.fewest_any_day:
            short = {"status": SHORT, "n_nights": len(usable), "weekday": _ANY_DAY}
            return short | (_against_before(one, usable, is_flagged) if usable else {})
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
    same = have_same_rules(other[RULES], one[RULES])
    return bool(other["config_hash"] == one["config_hash"]) if same is None else same


def _against_before(
    one: dict[str, Any], nights: Sequence[dict[str, Any]], is_flagged: Callable[[str], bool]
) -> dict[str, Any]:
    """Name the night before, and hold a night against it by the errors of both where these are known."""
    before = nights[-1]
    named = {"before": date_of(before["day"]), "before_value": before["value"]}
    named |= {"history_days": [night["day"] for night in nights]}
    named |= {"history_values": [night["value"] for night in nights]}
    judged = _by_errors(one, before)
    if judged is None:
        return named
    since = _since_a_flag([*nights, one], _by_errors, is_flagged)
    return {**named, "median": before["value"], **judged, **since}


def _by_errors(one: dict[str, Any], before: dict[str, Any]) -> dict[str, Any] | None:
    """Hold a night against an earlier one by the errors of both; None where one is not known."""
    if one["std_error"] is None or before["std_error"] is None:
        return None
    return _held(one["value"] - before["value"], math.hypot(one["std_error"], before["std_error"]), BEFORE)


def _since_a_flag(
    nights: Sequence[dict[str, Any]],
    held: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None],
    is_flagged: Callable[[str], bool],
) -> dict[str, Any]:
    """Find out whether the last of nights is again what it was before one that was flagged; empty if it is not.

    `nights` are in their order; `held` compares two of them.
    """
    flagged: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    found: dict[str, Any] = {}
    for before, one in pairwise(nights):
        found = {}
        status = _status_of(held(one, before))
        opposite = {LOW: HIGH, HIGH: LOW}.get(status)
        at = next((at for at in reversed(range(len(flagged))) if flagged[at][0] == opposite), None)
        if at is not None and _status_of(held(one, flagged[at][1])) == SHORT:
            found = {"status": RECOVERED, "flag": flagged[at][1:]}
            del flagged[at:]
        elif opposite is not None and is_flagged(status):
            flagged.append((status, before, one))
    return found


def _status_of(judged: dict[str, Any] | None) -> str:
    return SHORT if judged is None else str(judged["status"])


def _held(difference: float, error: float, how: str, df: float | None = None) -> dict[str, Any]:
    """Judge a difference from the night before by its error; `df` are the degrees of freedom of an error of pairs."""
    limit = _NORMAL_LIMIT if df is None else t_quantile(1 - LEVEL / 2, df)
    z = difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
    status = SHORT if abs(z) <= limit else LOW if z < 0 else HIGH
    return {"status": status, "spread": error, "z": z if math.isfinite(z) else None, "limit": limit, "weekday": how}


def is_of_the_night_before(row: Mapping[str, Any]) -> bool:
    return row.get("weekday") in (BEFORE, BEFORE_PAIRED)


def unit_of(row: Mapping[str, Any]) -> str:
    """Name the unit of z: spreads of the history, or standard errors where these are larger."""
    by_error = is_of_the_night_before(row) or (row.get("std_error") or 0.0) > (row.get("spread") or 0.0)
    return "standard errors" if by_error else "spreads"


def _rule(row: dict[str, Any], settings: FlagSettings) -> str:
    """Explain in words what was compared with what."""
    name = series_name(row)
    if row["status"] == MISSING:
        n = row["last_queries"]
        over = "" if n is None else f" over {n:,} {'query' if n == 1 else 'queries'}"
        return f"{name} has no value on {row['night']}; its last was {row['median']:.6f}{over} on {row['last_night']}"
    if row["status"] == NO_VALUE:
        return f"{name} has no value on {row['night']}"
    short = f"{row.get('n_nights')} earlier nights are too few to judge {row['night']}"
    short += f" by history, {settings.fewest_any_day} are needed"
    if "flag" in row:
        left, since = row["flag"]
        return (
            f"{name} is {row['value']:.6f} on {row['night']}, again as on {date_of(left['day'])} "
            f"({left['value']:.6f}), before it was flagged on {date_of(since['day'])}; {short}"
        )
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
    """Add to a flag whether it is better or worse than usual, where either is, and why it is none."""
    if row["side"] not in (LOW, HIGH):
        return ""
    is_high = row["side"] == HIGH
    text = f"; {'higher' if is_high else 'lower'} is {judge_change(row['metric'], 1 if is_high else -1)}"
    known = direction_of(row["metric"]) is not None
    reason = "; the direction does not ask for it" if row["status"] == OTHER_DIRECTION else ""
    return (text if known else "") + reason


def _pairs(row: dict[str, Any]) -> str:
    """Count the queries of paired nights, their change, and the queries that were left out."""
    if row["weekday"] != BEFORE_PAIRED:
        return ""
    its = row["paired"]
    return (
        f"; the {its['n_queries']:,} queries of both nights changed by {its['difference']:+.6f}, without "
        f"{its['n_only_run']:,} that only {row['night']} has and {its['n_only_baseline']:,} that only "
        f"{row['before']} has"
    )


SERIES_OF_PAIRS = ("baseline", *SERIES)
CHOICES = ("seed", "n_replicates", "cluster_by", "unpaired")
"""Columns that must be the same for all nights of a period."""
FAMILY = "family"
"""Hash of period and baseline, by which rows are sorted for `decide_families`."""
PERIOD = ("period", "period_start", "period_end")
_FIRST = ("run", "baseline", *SERIES[1:])
PERIOD_SCHEMA = pa.schema(
    [
        *arrow_schema({"period": "string", "period_start": "date", "period_end": "date"}),
        *(finishing.RESULT_SCHEMA.field(name) for name in _FIRST),
        *arrow_schema({"n_days": "bigint", "missing_days": "array<date>"}),
        *arrow_schema(dict.fromkeys(("convention", "config_hash", "independence"), "string")),
        *(one for one in finishing.RESULT_SCHEMA if one.name not in (*_FIRST, "replicates")),
    ]
)


@dataclass(slots=True)
class Night:
    """A stored row: plain columns, sums, and draws and flips with how many there are of each; None if not stored."""

    row: dict[str, Any]
    state: IntArray
    replicates: list[tuple[int, Limbs]] | None

    @property
    def counts(self) -> IntArray:
        """Counts in the order of `COUNTS`; clusters of different nights cannot be added."""
        return np.array([*(self.row[name] for name in summing.COUNTS[:-1]), 0], dtype=np.int64)

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest difference; infinite unless all are the same."""
        if not self.row["n_queries"]:
            return np.inf, -np.inf
        if self.row["n_queries"] > 1 and "no_spread" not in (self.row["note"] or "").split(","):
            return -np.inf, np.inf
        same = float(np.rint(self.row["difference"] / kernels.DELTA_UNIT)) * kernels.DELTA_UNIT
        return same, same


@dataclass(slots=True)
class Period:
    """The nights of a period that have come so far, and their sums."""

    nights: list[dict[str, Any]] = field(default_factory=list)
    sums: summing.Totals = field(default_factory=summing.Totals)
    lengths: list[tuple[int, ...] | None] = field(default_factory=list)
    days: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, night: Night) -> None:
        self.nights.append(night.row)
        low, high = night.ends
        base = summing.Base(counts=night.counts, state=night.state, low=low, high=high, differences=None)
        self.sums.base.add(base)
        if night.row["n_queries"]:
            sums = kernels.SUMS.fractions(night.state, "w", "wx", "wy", "delta")
            self.days.append(tuple(map(float, sums.values())))
        found = night.replicates
        self.lengths.append(None if found is None else tuple(length for length, _ in found))
        if found is not None and self.lengths[-1] == next(filter(None, self.lengths)):  # others cannot be added
            for held, (_, its) in zip((self.sums.drawn, self.sums.flipped), found, strict=True):
                add_limbs(held, its)


def roll_up_nights(batches: Iterator[pa.RecordBatch], settings: RollUpSettings) -> Iterator[pa.RecordBatch]:
    """Add up nights, sorted by series and night, to `PERIOD_SCHEMA`; the columns of families are filled in later."""
    periods = _finished(_nights(batches), settings)
    while rows := list(islice(periods, finishing.RESULTS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(rows, schema=PERIOD_SCHEMA)


def _nights(batches: Iterator[pa.RecordBatch]) -> Iterator[Night]:
    for batch in batches:
        plain = [name for name in batch.schema.names if name not in ("state", "replicates")]
        states = int_values(batch.column("state").flatten()).reshape(batch.num_rows, -1)
        column = batch.column("replicates") if "replicates" in batch.schema.names else None
        stored = np.zeros(0, dtype=np.int64) if column is None else int_values(column.flatten())
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int64) if column is None else list_offsets(column)
        for at, row in enumerate(batch.select(plain).to_pylist()):
            numbers = stored[offsets[at] : offsets[at + 1]]
            yield Night(row, states[at], summing.unpack_replicates(numbers) if len(numbers) else None)


def _finished(nights: Iterator[Night], settings: RollUpSettings) -> Iterator[dict[str, Any]]:
    """Rows of periods, each as soon as its nights are over."""
    for _, its in groupby(nights, key=lambda night: tuple(night.row[name] for name in SERIES_OF_PAIRS)):
        held: dict[tuple[Any, ...], Period] = {}
        for night in its:
            over = [key for key in held if key[-1] < night.row["night"]]
            yield from (_row(key, held.pop(key), settings) for key in over)
            for one in night.row["held"]:
                held.setdefault(tuple(one[name] for name in PERIOD), Period()).add(night)
        yield from (_row(key, one, settings) for key, one in held.items())


def _row(key: tuple[Any, ...], period: Period, settings: RollUpSettings) -> dict[str, Any]:
    """Compute a row of a period. The columns that need its family of tests are added later."""
    first = period.nights[0]
    series = {name: first[name] for name in SERIES_OF_PAIRS}
    _check(series, period.nights)
    can_draw = all(lengths is not None and lengths[0] > 0 for lengths in period.lengths)
    independence = settings.independence or ("query" if can_draw else "query_day")
    if independence == "query":
        _require_replicates(series, period)
    _, start, end = key
    last = min(end, first["as_of"])
    known = {one["night"] for one in period.nights}
    days = [start + timedelta(days=ahead) for ahead in range((last - start).days + 1)]
    row = dict(zip(PERIOD, key, strict=True)) | series
    row |= {name: first[name] for name in CHOICES}
    row |= {name: common_value(period.nights, name) for name in ("convention", "config_hash")}
    row[RULES] = series_rules(series, period.nights, across=settings.across_rules)
    row[labels.ASKED] = min(filter(None, (one.get(labels.ASKED) for one in period.nights)), default=None)
    row |= {"n_days": len(known), "missing_days": [day for day in days if day not in known]}
    row |= {"independence": independence, "state": period.sums.base.state.tolist(), "n_replicates": 0}
    row |= _ESTIMATES[independence](period, _as_comparison(settings))
    empty = all(finishing.ONE_SIDE_EMPTY in (one["note"] or "").split(",") for one in period.nights)
    return finishing.settle_untested(
        row, is_companion=any(one["verdict"] is None for one in period.nights), one_side_empty=empty
    )


def _check(series: dict[str, Any], nights: list[dict[str, Any]]) -> None:
    """Refuse a night that appears twice, and nights that were not all compared in the same way."""
    dated = [{**one, "day": (one["night"] - EPOCH).days} for one in nights]
    in_order(series, dated, keep="one data set and slice")
    for column, (one, following) in product(CHOICES, pairwise(nights)):
        if one[column] != following[column]:
            raise InputRefusedError(
                f"{series_name(series)} was computed in two ways: {column} {one[column]} on {one['night']}, "
                f"{following[column]} on {following['night']}; keep the rows of one {column}."
            )


def _require_replicates(series: dict[str, Any], period: Period) -> None:
    first: tuple[int, ...] = ()
    for night, lengths in zip(period.nights, period.lengths, strict=True):
        if lengths is None or not lengths[0]:
            raise InputRefusedError(
                f"{series_name(series)} has no replicates for the night {night['night']}, which "
                f"{option('independence', 'query')} needs; comparisons with {option('keep_replicates', 'True')} "
                "have them, query_day and day do without."
            )
        first = first or lengths
        if lengths != first:
            draws, flips = first
            raise InputRefusedError(
                f"{series_name(series)} has replicates of different number: {draws} draws and {flips} flips on "
                f"{period.nights[0]['night']}, {lengths[0]} and {lengths[1]} on {night['night']}; compare these "
                f"nights again with the same numbers, or choose {option('independence', 'query_day')} or day."
            )


def _as_comparison(settings: RollUpSettings) -> ComparisonSettings:
    """Choices by which one period is estimated; the names in it stand for any."""
    return ComparisonSettings(
        runs=("baseline", "run"),
        baseline="baseline",
        metrics=(MetricAt(NDCG, EVERY),),
        replicates=0,
        flips=0,
        alpha=settings.alpha,
        margin=settings.margin,
    )


def _by_query_day(period: Period, settings: ComparisonSettings) -> dict[str, Any]:
    """Every query of every night is independent; nothing is known of clusters that come back."""
    if period.nights[0]["cluster_by"]:
        row, _ = _means(period, settings)
        row["note"] = ",".join([*filter(None, [row["note"]]), "clusters_not_added"])
        return row
    return finishing.compute_estimates(period.sums, settings)


def _by_day(period: Period, settings: ComparisonSettings) -> dict[str, Any]:
    """Nights are the clusters."""
    base = period.sums.base
    a, x, y, d = np.array(period.days, dtype=np.float64).reshape(-1, 4).T
    squares = kernels.SQUARES.states(kernels.cluster_squares(a, x, y), 1, np.sum)[0]
    counts = base.counts.copy()
    counts[-1] = len(a)
    few = d[d != 0].tolist()
    clustered = summing.Base(
        counts, base.state, squares, base.low, base.high, few if len(few) <= MAX_EXACT_UNITS else None
    )
    return finishing.compute_estimates(summing.Totals(clustered), replace(settings, cluster="night"))


def _by_query(period: Period, settings: ComparisonSettings) -> dict[str, Any]:
    """Queries are independent of each other, whatever they do from night to night."""
    row, sums = _means(period, settings)
    assert period.lengths[0] is not None
    n_replicates, n_flips = period.lengths[0]
    n, base, difference = row["n_queries"], period.sums.base, row["difference"]
    if n < 2 or difference is None:
        return row
    row["n_replicates"] = n_replicates
    if n_flips:
        slack = sums["n_differ"] * Fraction(kernels.DELTA_UNIT)
        row["p_sign_flip"] = hashed_flip_p(period.sums.flipped, sums["delta"], slack, n_flips)
        row["n_flips"] = n_flips
    if finishing.has_no_spread(base):
        return row | {"std_error": 0.0, "ci_low": difference, "ci_high": difference}
    means, _ = replicate_values(DRAWN.named(period.sums.drawn), difference, n_replicates)
    std_error = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    if not std_error:  # one query, on several nights: nothing is known of others
        return row
    row |= {
        "std_error": std_error,
        **finishing.compute_design_effect(std_error, sums, kernels.select_squares(sums, n)),
    }
    if n >= kernels.MIN_QUERIES:
        low, high = percentile_interval(means, alpha=settings.alpha)
        row |= {"boot_low": low, "boot_high": high, "ci_low": low, "ci_high": high}
    return row


def _means(period: Period, settings: ComparisonSettings) -> tuple[dict[str, Any], dict[str, Fraction]]:
    """Counts and means without errors, and the sums that they are from."""
    base = period.sums.base
    sums, nothing = kernels.SUMS.fractions(base.state), Fraction(0)
    found = kernels.estimate_difference(sums, kernels.Squares(1, *[nothing] * 6), alpha=settings.alpha)
    row = dict(zip(summing.COUNTS, base.counts.tolist(), strict=True)) | {"n_clusters": None}
    row |= {name: getattr(found, name) for name in kernels.PairedEstimate.__dataclass_fields__}
    row["note"] = ",".join(finishing.list_notes(row, no_spread=finishing.has_no_spread(base)))
    return row, sums


_ESTIMATES = {"query_day": _by_query_day, "query": _by_query, "day": _by_day}


def decide_families(batches: Iterator[pa.RecordBatch], settings: RollUpSettings) -> Iterator[pa.RecordBatch]:
    """Adjust p-values and decide, for every period and baseline by itself.

    Rows must come sorted by `FAMILY`, all of a family in one worker. Where queries are independent, the p-values are
    those of the sign flips.
    """
    for rows in group_whole_units(batches, FAMILY):
        families = int_values(rows.column(FAMILY))
        starts = [0, *(np.flatnonzero(families[1:] != families[:-1]) + 1).tolist(), rows.num_rows]
        for start, end in pairwise(starts):
            its = rows.slice(start, end - start)
            columns = [its.column(name).to_pylist() for name in ("independence", "p_sign_flip", "p_value")]
            p_values = [flips if by == "query" else p for by, flips, p in zip(*columns, strict=True)]
            for batch in finishing.apply_holm([its], p_values, alpha=settings.alpha, margin=settings.margin):
                yield batch.select(PERIOD_SCHEMA.names).cast(PERIOD_SCHEMA)
