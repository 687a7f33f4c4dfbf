"""Sums of the nights of a period, in workers: means of metric tables, and differences of comparison tables."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from fractions import Fraction
from itertools import groupby, islice, pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.comparison import kernels
from ndcg_spark.comparison.kernels import (
    DRAWN,
    MAX_EXACT_UNITS,
    bootstrap_statistics,
    percentile_interval,
    random_flip_p,
)
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks import finishing, summing
from ndcg_spark.comparison.tasks.pairing import group_whole_units
from ndcg_spark.core import labels
from ndcg_spark.core.batches import concat_chunks, int_values, list_offsets
from ndcg_spark.core.exact import Limbs, add_limbs
from ndcg_spark.core.ragged import IntArray
from ndcg_spark.core.student import t_quantile
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.tasks.partial_sums import compute_means, merge_partials
from ndcg_spark.evaluation.tasks.stored import CONFIG_HASH, CONVENTION, SUMMARY_SCHEMA
from ndcg_spark.history.settings import EPOCH, MAX_PERIOD_DAYS, NIGHT, RollUpSettings
from ndcg_spark.history.tasks.judging import (
    SERIES,
    build_schema,
    combine_series_rules,
    find_common_value,
    format_series,
    sort_nights,
)
from ndcg_spark.metrics import EVERY, MetricAt
from ndcg_spark.metrics.normalized_gain import NDCG

SERIES_OF_PAIRS = ("baseline", *SERIES)
CHOICES = ("seed", "n_replicates", "cluster_by", "unpaired")
"""Columns that must be the same for all nights of a period."""
STORED = (*summing.COUNTS[:-1], *CHOICES, "note", "difference", "verdict", "state")
"""Columns of a comparison table that are added up, beside those of the series."""
FAMILY = "family"
"""Number or hash of period and baseline, by which rows are sorted for `decide_families`."""
PERIOD = ("period", "period_start", "period_end")
SERIES_KEY = "series"
"""Number or hash of a series, by which rows are sorted for `roll_up_means`."""
ROWS_PER_CHUNK = 5_000
"""Rows of nights that are added up at once; each is in up to nine periods."""
_FIRST = ("run", "baseline", *SERIES[1:])


def _build_period_schema(results: pa.Schema, keys: Sequence[str], left_out: str = "") -> pa.Schema:
    """Build the schema of periods: their keys, their days, what their nights share, and columns of `results`."""
    return pa.schema(
        [
            *build_schema({"period": "string", "period_start": "date", "period_end": "date"}),
            *(results.field(name) for name in keys),
            *build_schema({"n_days": "bigint", "missing_days": "array<date>"}),
            *build_schema(dict.fromkeys((CONVENTION, CONFIG_HASH, "independence"), "string")),
            *(field for field in results if field.name not in (*keys, left_out)),
        ]
    )


PAIRS_SCHEMA = _build_period_schema(finishing.RESULT_SCHEMA, _FIRST, "replicates")
"""Periods of a comparison table."""
MEANS_SCHEMA = _build_period_schema(SUMMARY_SCHEMA, SERIES)
"""Periods of a metric table."""


def list_periods(night: date, as_of: date, settings: RollUpSettings) -> list[tuple[str, date, date]]:
    """List the requested periods that a night is in: name, first and last day. Each has a day up to `as_of`.

    >>> list_periods(date(2026, 2, 3), date(2026, 2, 3), RollUpSettings(periods=("week", "rolling_7")))[0][1:]
    (datetime.date(2026, 2, 2), datetime.date(2026, 2, 8))
    """
    monday, first = night - timedelta(days=night.weekday()), night.replace(day=1)
    ends = [night + timedelta(days=ahead) for ahead in range(min(6, (as_of - night).days) + 1)]
    extents = {
        "week": [(monday, monday + timedelta(days=6))],
        "month": [(first, night.replace(day=monthrange(night.year, night.month)[1]))],
        "rolling_7": [(end - timedelta(days=6), end) for end in ends],
    }
    return [
        (name, start, end)
        for name in dict.fromkeys(settings.periods)
        for start, end in extents[name]
        if end >= (settings.start or end) and start <= (settings.end or start)
    ]


def roll_up_means(
    batches: Iterator[pa.RecordBatch], settings: RollUpSettings, day_quantiles: Sequence[float] | None
) -> Iterator[pa.RecordBatch]:
    """Add up nights of a metric table, sorted by `SERIES_KEY`, to `MEANS_SCHEMA`.

    `day_quantiles` are those of `find_day_quantiles`.
    """
    for rows in group_whole_units(batches, SERIES_KEY, ROWS_PER_CHUNK):
        as_of = rows.column("as_of")[0].as_py()
        nights = _repeat_by_period(pa.Table.from_batches([rows]), as_of, settings)
        if nights.num_rows:
            sums = merge_partials(nights, (*PERIOD, *SERIES))
            columns = dict(zip(sums.schema.names, sums.columns, strict=True)) | _describe_days(nights, as_of)
            columns["independence"] = pa.repeat("query_day" if day_quantiles is None else "day", sums.num_rows)
            merged = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            for means in compute_means(iter([merged]), settings.confidence, day_quantiles, settings.across_rules):
                yield means.select(MEANS_SCHEMA.names).cast(MEANS_SCHEMA)


def find_day_quantiles(settings: RollUpSettings) -> list[float] | None:
    """Return Student's t for 2 to `MAX_PERIOD_DAYS` days if these are independent; refuse `independence=query`."""
    if settings.independence == "query":
        raise InvalidParameterError(
            f"{option('independence', 'query')} needs replicates, which a metric table does not have; choose "
            "query_day or day."
        )
    if settings.independence != "day":
        return None
    return [t_quantile((1 + settings.confidence) / 2, days - 1) for days in range(2, MAX_PERIOD_DAYS + 1)]


def _repeat_by_period(rows: pa.Table, as_of: date, settings: RollUpSettings) -> pa.Table:
    """Return each row of a night once for each of its periods, with the columns `PERIOD`."""
    nights = concat_chunks(rows.column(NIGHT)).dictionary_encode()
    of_nights = [
        [dict(zip(PERIOD, period, strict=True)) for period in list_periods(night, as_of, settings)]
        for night in nights.dictionary.to_pylist()
    ]
    of_rows = pa.array(of_nights, pa.list_(pa.struct([MEANS_SCHEMA.field(name) for name in PERIOD]))).take(
        nights.indices
    )
    repeated = rows.take(pc.list_parent_indices(of_rows))
    for name, column in zip(PERIOD, of_rows.flatten().flatten(), strict=True):
        repeated = repeated.append_column(name, column)
    return repeated


def _describe_days(nights: pa.Table, as_of: date) -> dict[str, pa.Array]:
    """Return days and what the nights of each period share; refuse a night that a period has twice."""
    shared = [(name, function) for name in (CONVENTION, CONFIG_HASH) for function in ("min", "max")]
    groups = nights.group_by([*PERIOD, *SERIES], use_threads=False).aggregate([(NIGHT, "list"), *shared])
    missing_days = []
    for row in groups.select([*PERIOD, "metric", f"{NIGHT}_list"]).to_pylist():
        period, start, end, metric, days = row.values()
        if len(set(days)) < len(days):
            raise InputRefusedError(
                f"a night appears twice in the {period} from {start} to {end} of {metric}; keep the rows of one data "
                "set."
            )
        missing_days.append(_list_missing_days(start, min(end, as_of), days))
    columns = {
        "n_days": pc.list_value_length(groups.column(f"{NIGHT}_list")),
        "missing_days": pa.array(missing_days, MEANS_SCHEMA.field("missing_days").type),
    }
    for name in (CONVENTION, CONFIG_HASH):
        low, high = groups.column(f"{name}_min"), groups.column(f"{name}_max")
        columns[name] = pc.if_else(pc.equal(low, high), low, pa.scalar(None, pa.string()))
    return {name: concat_chunks(column) for name, column in columns.items()}


def _list_missing_days(start: date, last: date, days: Collection[date]) -> list[date]:
    all_days = (start + timedelta(days=ahead) for ahead in range((last - start).days + 1))
    return [day for day in all_days if day not in days]


@dataclass(slots=True)
class StoredNight:
    """A stored night: its plain columns, sums, and draws and flips, each with their number; None if not stored."""

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
        same = float(np.rint(self.row["difference"] / kernels.DELTA_STEP)) * kernels.DELTA_STEP
        return same, same


@dataclass(slots=True)
class PeriodSums:
    """The nights of a period that were read so far, and their sums as one group."""

    nights: list[dict[str, Any]] = field(default_factory=list)
    group: summing.Group = field(default_factory=summing.Group)
    lengths: list[tuple[int, ...] | None] = field(default_factory=list)
    days: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, night: StoredNight) -> None:
        self.nights.append(night.row)
        low, high = night.ends
        sums_of_night = summing.GroupSums(
            counts=night.counts, state=night.state, low=low, high=high, differences=None
        )
        self.group.sums.add(sums_of_night)
        if night.row["n_queries"]:
            sums = kernels.SUMS.fractions(night.state, "w", "wx", "wy", "delta")
            self.days.append(tuple(map(float, sums.values())))
        replicates = night.replicates
        self.lengths.append(None if replicates is None else tuple(length for length, _ in replicates))
        if replicates is not None and self.lengths[-1] == next(filter(None, self.lengths)):  # others cannot be added
            for total, (_, limbs) in zip((self.group.drawn, self.group.flipped), replicates, strict=True):
                add_limbs(total, limbs)


def roll_up_nights(batches: Iterator[pa.RecordBatch], settings: RollUpSettings) -> Iterator[pa.RecordBatch]:
    """Add up nights, sorted by series and night, to `PAIRS_SCHEMA`; the columns of families are filled in later."""
    periods = _sum_periods(_read_nights(batches), settings)
    while rows := list(islice(periods, finishing.RESULTS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(rows, schema=PAIRS_SCHEMA)


def _read_nights(batches: Iterator[pa.RecordBatch]) -> Iterator[StoredNight]:
    for batch in batches:
        plain = [name for name in batch.schema.names if name not in ("state", "replicates")]
        states = int_values(batch.column("state").flatten()).reshape(batch.num_rows, -1)
        column = batch.column("replicates") if "replicates" in batch.schema.names else None
        stored = np.zeros(0, dtype=np.int64) if column is None else int_values(column.flatten())
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int64) if column is None else list_offsets(column)
        for i, row in enumerate(batch.select(plain).to_pylist()):
            numbers = stored[offsets[i] : offsets[i + 1]]
            yield StoredNight(row, states[i], summing.unpack_replicates(numbers) if len(numbers) else None)


def _sum_periods(nights: Iterator[StoredNight], settings: RollUpSettings) -> Iterator[dict[str, Any]]:
    """Yield the rows of periods, each as soon as its last night was read."""
    for _, series in groupby(nights, key=lambda night: tuple(night.row[name] for name in SERIES_OF_PAIRS)):
        open_periods: dict[tuple[Any, ...], PeriodSums] = {}
        for night in series:
            complete = [key for key in open_periods if key[-1] < night.row["night"]]
            yield from (_build_period_row(key, open_periods.pop(key), settings) for key in complete)
            for period in list_periods(night.row[NIGHT], night.row["as_of"], settings):
                open_periods.setdefault(period, PeriodSums()).add(night)
        yield from (_build_period_row(key, sums, settings) for key, sums in open_periods.items())


def _build_period_row(key: tuple[Any, ...], period: PeriodSums, settings: RollUpSettings) -> dict[str, Any]:
    """Compute a row of a period. The columns that need its family of tests are added later."""
    first = period.nights[0]
    series = {name: first[name] for name in SERIES_OF_PAIRS}
    _check_nights(series, period.nights)
    can_draw = all(lengths is not None and lengths[0] > 0 for lengths in period.lengths)
    independence = settings.independence or ("query" if can_draw else "query_day")
    if independence == "query":
        _require_replicates(series, period)
    _, start, end = key
    nights = {night["night"] for night in period.nights}
    row = dict(zip(PERIOD, key, strict=True)) | series
    row |= {name: first[name] for name in CHOICES}
    row |= {name: find_common_value(period.nights, name) for name in (CONVENTION, CONFIG_HASH)}
    row[RULES] = combine_series_rules(series, period.nights, across=settings.across_rules)
    row[labels.ASKED] = min(filter(None, (night.get(labels.ASKED) for night in period.nights)), default=None)
    row |= {"n_days": len(nights), "missing_days": _list_missing_days(start, min(end, first["as_of"]), nights)}
    row |= {"independence": independence, "state": period.group.sums.state.tolist(), "n_replicates": 0}
    row |= _ESTIMATES[independence](period, _create_comparison_settings(settings))
    is_empty = all(finishing.ONE_SIDE_EMPTY in (night["note"] or "").split(",") for night in period.nights)
    is_companion = any(night["verdict"] is None for night in period.nights)
    return finishing.mark_if_untested(row, is_companion=is_companion, one_side_empty=is_empty)


def _check_nights(series: dict[str, Any], nights: list[dict[str, Any]]) -> None:
    """Refuse duplicate nights, and nights that were not all compared in the same way."""
    with_days = [{**night, "day": (night["night"] - EPOCH).days} for night in nights]
    sort_nights(series, with_days, keep="one data set and slice")
    for column, (night, following) in product(CHOICES, pairwise(nights)):
        if night[column] != following[column]:
            raise InputRefusedError(
                f"{format_series(series)} was computed in two ways: {column} {night[column]} on {night['night']}, "
                f"{following[column]} on {following['night']}; keep the rows of one {column}."
            )


def _require_replicates(series: dict[str, Any], period: PeriodSums) -> None:
    first: tuple[int, ...] = ()
    for night, lengths in zip(period.nights, period.lengths, strict=True):
        if lengths is None or not lengths[0]:
            raise InputRefusedError(
                f"{format_series(series)} has no replicates for the night {night['night']}, which "
                f"{option('independence', 'query')} needs; comparisons with {option('keep_replicates', 'True')} "
                "have them, query_day and day do without."
            )
        first = first or lengths
        if lengths != first:
            draws, flips = first
            raise InputRefusedError(
                f"{format_series(series)} has replicates of different number: {draws} draws and {flips} flips on "
                f"{period.nights[0]['night']}, {lengths[0]} and {lengths[1]} on {night['night']}; compare these "
                f"nights again with the same numbers, or choose {option('independence', 'query_day')} or day."
            )


def _create_comparison_settings(settings: RollUpSettings) -> ComparisonSettings:
    """Create the settings by which a period is estimated; the names of runs in them have no meaning."""
    return ComparisonSettings(
        runs=("baseline", "run"),
        baseline="baseline",
        metrics=(MetricAt(NDCG, EVERY),),
        replicates=0,
        flips=0,
        alpha=settings.alpha,
        margin=settings.margin,
    )


def _estimate_by_query_day(period: PeriodSums, settings: ComparisonSettings) -> dict[str, Any]:
    """Estimate with every query of every night independent. Clusters of different nights cannot be matched."""
    if period.nights[0]["cluster_by"]:
        row, _ = _compute_means(period, settings)
        row["note"] = ",".join([*filter(None, [row["note"]]), "clusters_not_added"])
        return row
    return finishing.compute_estimates(period.group, settings)


def _estimate_by_day(period: PeriodSums, settings: ComparisonSettings) -> dict[str, Any]:
    """Estimate with nights as the clusters."""
    group_sums = period.group.sums
    weights, x, y, differences = np.array(period.days, dtype=np.float64).reshape(-1, 4).T
    squares = kernels.SQUARES.states(kernels.cluster_squares(weights, x, y), 1, np.sum)[0]
    counts = group_sums.counts.copy()
    counts[-1] = len(weights)
    nonzero = differences[differences != 0].tolist()
    clustered = summing.GroupSums(
        counts,
        group_sums.state,
        squares,
        group_sums.low,
        group_sums.high,
        nonzero if len(nonzero) <= MAX_EXACT_UNITS else None,
    )
    return finishing.compute_estimates(summing.Group(clustered), replace(settings, cluster="night"))


def _estimate_by_query(period: PeriodSums, settings: ComparisonSettings) -> dict[str, Any]:
    """Estimate with independent queries, however each varies from night to night."""
    row, sums = _compute_means(period, settings)
    assert period.lengths[0] is not None
    n_replicates, n_flips = period.lengths[0]
    n, group_sums, difference = row["n_queries"], period.group.sums, row["difference"]
    if n < 2 or difference is None:
        return row
    row["n_replicates"] = n_replicates
    if n_flips:
        slack = sums["w_differ"] * Fraction(kernels.DELTA_STEP)
        row["p_sign_flip"] = random_flip_p(period.group.flipped, sums["delta"], slack, n_flips)
        row["n_flips"] = n_flips
    if finishing.has_no_spread(group_sums):
        return row | {"std_error": 0.0, "ci_low": difference, "ci_high": difference}
    means, _ = bootstrap_statistics(DRAWN.named(period.group.drawn), difference, n_replicates)
    std_error = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    if not std_error:  # one query on several nights says nothing about others
        return row
    row |= {
        "std_error": std_error,
        **finishing.compute_design_effect(std_error, sums, kernels.select_squares(sums, n)),
    }
    if n >= kernels.MIN_QUERIES:
        low, high = percentile_interval(means, alpha=settings.alpha)
        row |= {"boot_low": low, "boot_high": high, "ci_low": low, "ci_high": high}
    return row


def _compute_means(period: PeriodSums, settings: ComparisonSettings) -> tuple[dict[str, Any], dict[str, Fraction]]:
    """Compute counts and means without errors, and return them with their sums."""
    group_sums = period.group.sums
    sums, zero = kernels.SUMS.fractions(group_sums.state), Fraction(0)
    estimate = kernels.estimate_difference(sums, kernels.Squares(1, *[zero] * 6), alpha=settings.alpha)
    row = dict(zip(summing.COUNTS, group_sums.counts.tolist(), strict=True)) | {"n_clusters": None}
    row |= {name: getattr(estimate, name) for name in kernels.PairedEstimate.__dataclass_fields__}
    row["note"] = ",".join(finishing.list_notes(row, no_spread=finishing.has_no_spread(group_sums)))
    return row, sums


_ESTIMATES = {"query_day": _estimate_by_query_day, "query": _estimate_by_query, "day": _estimate_by_day}


def decide_families(batches: Iterator[pa.RecordBatch], settings: RollUpSettings) -> Iterator[pa.RecordBatch]:
    """Adjust p-values and decide, for every period and baseline by itself.

    Rows must come sorted by `FAMILY`, all of a family in one worker. Where queries are independent, the p-values are
    those of the sign flips.
    """
    for rows in group_whole_units(batches, FAMILY):
        families = int_values(rows.column(FAMILY))
        starts = [0, *(np.flatnonzero(families[1:] != families[:-1]) + 1).tolist(), rows.num_rows]
        for start, end in pairwise(starts):
            family = rows.slice(start, end - start)
            columns = [family.column(name).to_pylist() for name in ("independence", "p_sign_flip", "p_value")]
            p_values = [flips if by == "query" else p for by, flips, p in zip(*columns, strict=True)]
            for batch in finishing.fill_family_columns(
                [family], p_values, alpha=settings.alpha, margin=settings.margin
            ):
                yield batch.select(PAIRS_SCHEMA.names).cast(PAIRS_SCHEMA)
