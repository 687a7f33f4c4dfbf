"""Nights of comparisons in, weeks, months and rolling weeks out, from stored sums and replicates alone.

The nights of a series come sorted. Each is added to the periods that hold it, and a period is finished as soon as a
later night comes, so a worker holds few periods at a time. Three assumptions lead to three errors. `query_day`: added
states; every query of every night is independent. `query`: added replicates, in which a query is drawn equally often
on every night and keeps its sign. `day`: the nights are clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.comparison.kernels.paired import (
    DELTA_UNIT,
    FEW_QUERIES,
    PairedEstimate,
    Squares,
    cluster_squares,
    paired_estimate,
    sums_of,
)
from ndcg_spark.comparison.kernels.replicates import MOST_EXACT, hashed_flip_p, percentile_interval, replicate_values
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.finishing import (
    HELD_RESULTS,
    ONE_SIDE_EMPTY,
    RESULT_SCHEMA,
    decided,
    design_of,
    estimates_of,
    has_no_spread,
    notes_of,
    query_squares,
    settled,
)
from ndcg_spark.comparison.tasks.pairing import whole_units
from ndcg_spark.comparison.tasks.totals import (
    COUNTS,
    SQUARES_SIZE,
    Base,
    Sums,
    Totals,
    add_sums,
    from_stored_numbers,
    named_limbs,
)
from ndcg_spark.core.batches import BatchFunction, batch_function, int_values, list_offsets
from ndcg_spark.core.ragged import IntArray
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import ASKED, SummedMetric
from ndcg_spark.history.settings import EPOCH, RollUpSettings
from ndcg_spark.history.tasks.nights import SERIES, common_value, in_order, require_same, series_name, series_rules

SERIES_OF_PAIRS = ("baseline", *SERIES)
"""What a series is of: the keys of a comparison table within a night and data set."""
CHOICES = ("seed", "n_replicates", "cluster_by", "unpaired")
"""Columns that must be the same for all nights of a period."""
FAMILY = "family"
"""Hash of period and baseline, by which rows are sorted for `make_decider`."""
_PERIOD = ("period", "period_start", "period_end")
_FIRST = ("run", "baseline", "segment_by", "segment", "metric", "k")
PERIOD_SCHEMA = pa.schema(
    [
        ("period", pa.string()),
        ("period_start", pa.date32()),
        ("period_end", pa.date32()),
        *(RESULT_SCHEMA.field(name) for name in _FIRST),
        ("n_days", pa.int64()),
        ("missing_days", pa.list_(pa.date32())),
        ("convention", pa.string()),
        ("config_hash", pa.string()),
        ("independence", pa.string()),
        *(one for one in RESULT_SCHEMA if one.name not in (*_FIRST, "replicates")),
    ]
)
"""Columns of a comparison that was rolled up."""


@dataclass(slots=True)
class Night:
    """A stored row: its plain columns, and its sums.

    `replicates` are draws and flips, with how many there are of each; None if they were not stored.
    """

    row: dict[str, Any]
    state: IntArray
    replicates: list[tuple[int, Sums]] | None

    @property
    def counts(self) -> IntArray:
        """Counts in the order of `COUNTS`; clusters of different nights cannot be added."""
        return np.array([*(self.row[name] for name in COUNTS[:-1]), 0], dtype=np.int64)

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest difference, as far as it matters: whether all are the same."""
        if not self.row["n_queries"]:
            return np.inf, -np.inf
        if self.row["n_queries"] > 1 and "no_spread" not in (self.row["note"] or "").split(","):
            return -np.inf, np.inf
        same = float(np.rint(self.row["difference"] / DELTA_UNIT)) * DELTA_UNIT
        return same, same


@dataclass(slots=True)
class Period:
    """The nights of a period that have come so far, and their sums."""

    nights: list[dict[str, Any]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    lengths: list[tuple[int, ...] | None] = field(default_factory=list)
    days: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, night: Night) -> None:
        """Add a night."""
        self.nights.append(night.row)
        low, high = night.ends
        base = Base(counts=night.counts, state=night.state, low=low, high=high, differences=None)
        self.totals.base.add(base)
        if night.row["n_queries"]:
            sums = sums_of(night.state)
            self.days.append(tuple(float(sums[name]) for name in ("w", "wx", "wy", "delta")))
        found = night.replicates
        self.lengths.append(None if found is None else tuple(length for length, _ in found))
        if found is not None and self.lengths[-1] == next(filter(None, self.lengths)):  # others cannot be added
            for held, (_, its) in zip((self.totals.drawn, self.totals.flipped), found, strict=True):
                add_sums(held, its)

    @property
    def can_draw(self) -> bool:
        """Whether every night has replicates."""
        return all(lengths is not None and lengths[0] > 0 for lengths in self.lengths)


def make_roller(settings: RollUpSettings) -> BatchFunction:
    """Build the function from nights, sorted by series and night, to `PERIOD_SCHEMA` without its families."""

    def roll(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        for row in _finished(_nights(batches), settings):
            rows.append(row)
            if len(rows) >= HELD_RESULTS:
                yield pa.RecordBatch.from_pylist(rows, schema=PERIOD_SCHEMA)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=PERIOD_SCHEMA)

    return batch_function(roll)


def _nights(batches: Iterator[pa.RecordBatch]) -> Iterator[Night]:
    for batch in batches:
        plain = [name for name in batch.schema.names if name not in ("state", "replicates")]
        states = int_values(batch.column("state").flatten()).reshape(batch.num_rows, -1)
        column = batch.column("replicates") if "replicates" in batch.schema.names else None
        stored = np.zeros(0, dtype=np.int64) if column is None else int_values(column.flatten())
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int64) if column is None else list_offsets(column)
        for at, row in enumerate(batch.select(plain).to_pylist()):
            numbers = stored[offsets[at] : offsets[at + 1]]
            yield Night(row, states[at], from_stored_numbers(numbers) if len(numbers) else None)


def _finished(nights: Iterator[Night], settings: RollUpSettings) -> Iterator[dict[str, Any]]:
    """Rows of periods, each as soon as its nights are over."""
    for _, its in groupby(nights, key=lambda night: tuple(night.row[name] for name in SERIES_OF_PAIRS)):
        held: dict[tuple[Any, ...], Period] = {}
        for night in its:
            over = [key for key in held if key[-1] < night.row["night"]]
            yield from (_row(key, held.pop(key), settings) for key in over)
            for one in night.row["held"]:
                held.setdefault(tuple(one[name] for name in _PERIOD), Period()).add(night)
        yield from (_row(key, one, settings) for key, one in held.items())


def _row(key: tuple[Any, ...], period: Period, settings: RollUpSettings) -> dict[str, Any]:
    """Compute a row of a period. The columns that need its family of tests are added later."""
    first = period.nights[0]
    series = {name: first[name] for name in SERIES_OF_PAIRS}
    _check(series, period.nights)
    independence = settings.independence or ("query" if period.can_draw else "query_day")
    if independence == "query":
        _require_replicates(series, period)
    _, start, end = key
    last = min(end, first["as_of"])
    known = {one["night"] for one in period.nights}
    days = [start + timedelta(days=ahead) for ahead in range((last - start).days + 1)]
    row = dict(zip(_PERIOD, key, strict=True)) | series
    row |= {name: first[name] for name in CHOICES}
    row |= {name: common_value(period.nights, name) for name in ("convention", "config_hash")}
    row[RULES] = series_rules(series, period.nights, across=settings.across_rules)
    row[ASKED] = min(filter(None, (one.get(ASKED) for one in period.nights)), default=None)
    row |= {"n_days": len(known), "missing_days": [day for day in days if day not in known]}
    row |= {"independence": independence, "state": period.totals.base.state.tolist(), "n_replicates": 0}
    row |= _ESTIMATES[independence](period, _as_comparison(settings))
    empty = all(ONE_SIDE_EMPTY in (one["note"] or "").split(",") for one in period.nights)
    return settled(row, is_companion=any(one["verdict"] is None for one in period.nights), one_side_empty=empty)


def _check(series: dict[str, Any], nights: list[dict[str, Any]]) -> None:
    dated = [{**one, "day": (one["night"] - EPOCH).days} for one in nights]
    in_order(series, dated, keep="one data set and slice")
    for column in CHOICES:
        require_same(series, dated, column)


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
        metrics=(SummedMetric("metric", "metric"),),
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
    return estimates_of(period.totals, settings)


def _by_day(period: Period, settings: ComparisonSettings) -> dict[str, Any]:
    """Nights are the clusters."""
    base = period.totals.base
    a, x, y, d = np.array(period.days, dtype=np.float64).reshape(-1, 4).T
    squares = np.zeros(SQUARES_SIZE, dtype=np.int64)
    for place, limb in cluster_squares(a, x, y).items():
        squares[place] = limb.sum()
    counts = base.counts.copy()
    counts[-1] = len(a)
    few = d[d != 0].tolist()
    clustered = Base(counts, base.state, squares, base.low, base.high, few if len(few) <= MOST_EXACT else None)
    return estimates_of(Totals(clustered), replace(settings, cluster="night"))


def _by_query(period: Period, settings: ComparisonSettings) -> dict[str, Any]:
    """Queries are independent of each other, whatever they do from night to night."""
    row, sums = _means(period, settings)
    assert period.lengths[0] is not None
    n_replicates, n_flips = period.lengths[0]
    n, base, difference = row["n_queries"], period.totals.base, row["difference"]
    if n < 2 or difference is None:
        return row
    row["n_replicates"] = n_replicates
    if n_flips:
        slack = sums["n_differ"] * Fraction(DELTA_UNIT)
        row["p_sign_flip"] = hashed_flip_p(period.totals.flipped, sums["delta"], slack, n_flips)
        row["n_flips"] = n_flips
    if has_no_spread(base):
        return row | {"std_error": 0.0, "ci_low": difference, "ci_high": difference}
    means, _ = replicate_values(named_limbs(period.totals.drawn), difference, n_replicates)
    std_error = float(np.std(means, ddof=1)) if len(means) > 1 else 0.0
    if not std_error:  # one query, on several nights: nothing is known of others
        return row
    row |= {"std_error": std_error, **design_of(std_error, sums, query_squares(base))}
    if n >= FEW_QUERIES:
        low, high = percentile_interval(means, alpha=settings.alpha)
        row |= {"boot_low": low, "boot_high": high, "ci_low": low, "ci_high": high}
    return row


def _means(period: Period, settings: ComparisonSettings) -> tuple[dict[str, Any], dict[str, Fraction]]:
    """Counts and means without errors, and the sums that they are from."""
    base = period.totals.base
    sums, nothing = sums_of(base.state), Fraction(0)
    found = paired_estimate(sums, Squares(1, *[nothing] * 6), alpha=settings.alpha)
    row = dict(zip(COUNTS, base.counts.tolist(), strict=True)) | {"n_clusters": None}
    row |= {name: getattr(found, name) for name in PairedEstimate.__dataclass_fields__}
    row["note"] = ",".join(notes_of(row, no_spread=has_no_spread(base)))
    return row, sums


_ESTIMATES = {"query_day": _by_query_day, "query": _by_query, "day": _by_day}


def make_decider(settings: RollUpSettings) -> BatchFunction:
    """Build the function that adjusts p-values and decides, for every period and baseline by itself.

    Rows must come sorted by `FAMILY`, all of a family in one worker. Where queries are independent, and there is no
    `p_value`, the p-values are those of the sign flips.
    """

    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_units(batches, FAMILY):
            families = int_values(rows.column(FAMILY))
            starts = [0, *(np.flatnonzero(families[1:] != families[:-1]) + 1).tolist(), rows.num_rows]
            for start, end in pairwise(starts):
                its = rows.slice(start, end - start)
                columns = [its.column(name).to_pylist() for name in ("independence", "p_sign_flip", "p_value")]
                p_values = [flips if by == "query" else p for by, flips, p in zip(*columns, strict=True)]
                for batch in decided([its], p_values, alpha=settings.alpha, margin=settings.margin):
                    yield batch.select(PERIOD_SCHEMA.names).cast(PERIOD_SCHEMA)

    return batch_function(decide)
