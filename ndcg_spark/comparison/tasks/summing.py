"""Add up pairs of queries to the exact sums of a group and its replicates, and pack sums to send to other workers.

A partial row has the keys of its group, a kind, the number of a block of replicates, and a payload of whole numbers
as bytes. Rows of one group, kind and block merge by adding. If a worker has few units of a group, it sends the units
themselves, which is smaller than sums of replicates. Those are computed at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ndcg_spark.comparison.kernels import (
    DRAWN,
    MAX_EXACT_UNITS,
    SQUARES,
    SUMS,
    WordArray,
    cluster_squares,
    compute_states,
    round_differences,
    sum_draws,
    sum_flips,
)
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.pairing import (
    CHUNK_ROWS,
    UNIT,
    Queries,
    format_query,
    group_whole_units,
    read_queries,
)
from ndcg_spark.core.batches import to_python_values
from ndcg_spark.core.exact import Limbs, add_limbs, round_sums, to_limbs, two_product
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.tasks.partial_sums import format_segments
from ndcg_spark.metrics import at_cutoff, has_value_when_missing

COUNTS = ("n_queries", "n_wins", "n_ties", "n_losses", "n_only_run", "n_only_baseline", "n_skipped", "n_clusters")
BASE, DRAWS, FLIPS, UNITS, TEXTS = range(5)
"""Kinds of rows: counts and sums of a group; blocks of bootstrap replicates; blocks of sign flips; units; rules."""
BLOCKS = {DRAWS: 64, FLIPS: 1024}
PARTIAL_SCHEMA = pa.schema(
    [
        ("pair", pa.int32()),
        ("segment_set", pa.int32()),
        ("segment", pa.string()),
        ("metric", pa.int32()),
        ("k", pa.int32()),
        ("kind", pa.int32()),
        ("block", pa.int32()),
        ("payload", pa.binary()),
    ]
)
GROUP_KEYS = ("pair", "segment_set", "segment", "metric", "k")
ROWS_PER_BATCH = 4096


class GroupKey(NamedTuple):
    """Indices of the pair, segment set and metric in the settings; the segment as text; k."""

    pair: int
    segment_set: int
    segment: str | None
    metric: int
    k: int | None


@dataclass(slots=True)
class Base:
    """Counts and sums of a group.

    `counts` are in the order of `COUNTS`; only clusters with a weight are counted. `squares` are sums over clusters,
    zeros without clusters. `low` and `high` are the smallest and the largest difference. `differences` are those of
    the units that differ; None if there are more than `MAX_EXACT_UNITS`. `n_both` counts the queries that both runs
    have. `top_items` holds the number of items among the first k and how many are judged, for the baseline and then
    for the run; zeros in segments.
    """

    counts: IntArray = field(default_factory=lambda: np.zeros(len(COUNTS), dtype=np.int64))
    state: IntArray = field(default_factory=lambda: np.zeros(SUMS.size, dtype=np.int64))
    squares: IntArray = field(default_factory=lambda: np.zeros(SQUARES.size, dtype=np.int64))
    low: float = np.inf
    high: float = -np.inf
    differences: list[float] | None = field(default_factory=list)
    n_both: int = 0
    top_items: IntArray = field(default_factory=lambda: np.zeros(4, dtype=np.int64))

    @property
    def one_side_empty(self) -> bool:
        only = self.counts[4:6]
        return self.n_both == 0 and bool(only.any()) and not only.all()

    def add(self, other: Base) -> None:
        self.counts += other.counts
        self.state += other.state
        self.squares += other.squares
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.n_both += other.n_both
        self.top_items += other.top_items
        self.add_differences(other.differences)

    def add_differences(self, others: list[float] | None) -> None:
        """Append differences of units; drop all of them above `MAX_EXACT_UNITS`."""
        both = None if self.differences is None or others is None else [*self.differences, *others]
        self.differences = None if both is None or len(both) > MAX_EXACT_UNITS else both

    def to_bytes(self) -> bytes:
        differences = self.differences
        numbers = np.array([self.low, self.high, *(differences or [])], dtype=np.float64).view(np.int64)
        n_differences = np.array([self.n_both, -1 if differences is None else len(differences)], dtype=np.int64)
        parts = [self.counts, self.state, self.squares, self.top_items, n_differences, numbers]
        return np.concatenate(parts).astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Base:
        words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
        ends = np.cumsum([len(COUNTS), SUMS.size, SQUARES.size, 4, 2])
        counts, state, squares, top_items, (n_both, n_differences), numbers = np.split(words, ends)
        low, high, *differences = numbers.view(np.float64).tolist()
        return cls(
            counts, state, squares, low, high, None if n_differences < 0 else differences, int(n_both), top_items
        )


@dataclass(slots=True)
class Totals:
    """Everything that a worker holds for a group."""

    base: Base = field(default_factory=Base)
    drawn: Limbs = field(default_factory=dict)
    flipped: Limbs = field(default_factory=dict)
    units: list[bytes] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)

    def replicates(self, kind: int) -> Limbs:
        return self.drawn if kind == DRAWS else self.flipped

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield kind, block and payload of the group's partial rows."""
        yield BASE, 0, self.base.to_bytes()
        for text in sorted(self.rules):
            yield TEXTS, 0, text.encode()
        for payload in self.units:
            yield UNITS, 0, payload
        for kind in (DRAWS, FLIPS):
            sums = self.replicates(kind)
            length = len(next(iter(sums.values()))) if sums else 0
            for block, start in enumerate(range(0, length, BLOCKS[kind])):
                yield (
                    kind,
                    block,
                    sums_to_bytes({place: numbers[start : start + BLOCKS[kind]] for place, numbers in sums.items()}),
                )


def sums_to_bytes(sums: Limbs) -> bytes:
    """Pack sums: the number of places, the places, and the numbers of each place."""
    head = np.array([len(sums), *sums], dtype=np.int64)
    return np.concatenate([head, *sums.values()]).astype("<i8").tobytes()


def sums_from_bytes(payload: bytes) -> Limbs:
    words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
    n = int(words[0])
    numbers = words[1 + n :].reshape(n, -1)
    return {int(place): numbers[row] for row, place in enumerate(words[1 : 1 + n])}


def pack_replicates(parts: Sequence[tuple[int, Limbs]]) -> list[int]:
    """Pack (n_replicates, sums) for storage: n_replicates, the number of places, the places, and their numbers."""
    numbers: list[int] = []
    for length, sums in parts:
        numbers += [length, len(sums), *sorted(sums)]
        for place in sorted(sums):
            numbers += sums[place].tolist()
    return numbers


def unpack_replicates(numbers: IntArray) -> list[tuple[int, Limbs]]:
    parts: list[tuple[int, Limbs]] = []
    position = 0
    while position < len(numbers):
        length, n_places = numbers[position : position + 2].tolist()
        places = numbers[position + 2 : position + 2 + n_places].tolist()
        position += 2 + n_places
        sums = numbers[position : position + n_places * length].reshape(n_places, length)
        parts.append((length, dict(zip(places, sums, strict=True))))
        position += n_places * length
    return parts


def build_partial_batches(totals: dict[GroupKey, Totals]) -> Iterator[pa.RecordBatch]:
    """Build batches of `PARTIAL_SCHEMA` from the groups."""
    return build_batches((*key, *row) for key, group in totals.items() for row in group.rows())


def build_batches(rows: Iterator[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """Build batches from rows of `PARTIAL_SCHEMA`."""
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*chunk, strict=True), PARTIAL_SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=PARTIAL_SCHEMA)


def merge_sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up the rows of each group, kind and block; all of these rows must be on one worker."""
    bases: dict[tuple[object, ...], Base] = {}
    sums: dict[tuple[object, ...], Limbs] = {}
    units: list[tuple[object, ...]] = []
    rules: dict[tuple[object, ...], None] = {}
    for key, kind, block, payload in iterate_partials(batches):
        place = (*key, kind, block)
        if kind == UNITS:
            units.append((*place, payload))
        elif kind == TEXTS:
            rules[(*place, payload)] = None
        elif kind == BASE:
            bases.setdefault(place, Base()).add(Base.from_bytes(payload))
        else:
            add_limbs(sums.setdefault(place, {}), sums_from_bytes(payload))
    yield from build_batches(iter([*units, *rules]))
    yield from build_batches((*place, base.to_bytes()) for place, base in bases.items())
    yield from build_batches((*place, sums_to_bytes(limbs)) for place, limbs in sums.items())


def iterate_partials(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[GroupKey, int, int, bytes]]:
    """Yield the key, kind, block and payload of rows of `PARTIAL_SCHEMA`."""
    for batch in batches:
        keys = [batch.column(column).to_pylist() for column in GROUP_KEYS]
        rest = [batch.column(column).to_pylist() for column in ("kind", "block", "payload")]
        for key, kind, block, payload in zip(zip(*keys, strict=True), *rest, strict=True):
            yield GroupKey(*key), kind, block, payload


Columns = list[tuple[int, FloatArray]]
"""Whole numbers below 2^32, one per unit, with their place in the sums."""


class Units(NamedTuple):
    """Weights A and differences D of units, 0 if a unit is not used; `a` is None if all weights are 1."""

    used: BoolArray
    a: FloatArray | None
    d: FloatArray


def split_draws(units: Units) -> Limbs:
    """Split the terms of `DRAWN` of each unit into limbs; without weights only m, d and dd."""
    d, m = units.d, units.used.astype(np.float64)
    weighted = {} if units.a is None else {"a": [units.a], "aa": [units.a * units.a], "ad": [units.a * d]}
    return DRAWN.limbs(m=[m], d=[d], dd=[d * d], **weighted)


def units_to_bytes(hashes: WordArray, units: Units) -> bytes:
    """Pack the used units: 1 if they have weights else 0, then hashes, differences and weights."""
    numbers = [units.d] if units.a is None else [units.d, units.a]
    words = [np.array([units.a is not None], dtype=np.int64), hashes[units.used].view(np.int64)]
    words += [number[units.used].view(np.int64) for number in numbers]
    return np.concatenate(words).astype("<i8").tobytes()


def units_from_bytes(payload: bytes) -> tuple[WordArray, Units]:
    words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
    hashes, d, *a = words[1:].reshape(3 if words[0] else 2, -1)
    weights = a[0].view(np.float64) if a else None
    return hashes.view(np.uint64), Units(np.ones(len(d), dtype=np.bool_), weights, d.view(np.float64))


def add_replicates(totals: Totals, settings: ComparisonSettings) -> None:
    """Add the replicates of the units that workers sent unsummed."""
    parts = [units_from_bytes(payload) for payload in totals.units]
    if not parts:
        return
    hashes = np.concatenate([unit_hashes for unit_hashes, _ in parts])
    weights = [units.a for _, units in parts if units.a is not None]
    d = np.concatenate([units.d for _, units in parts])
    units = Units(np.ones(len(d), dtype=np.bool_), np.concatenate(weights) if weights else None, d)
    for kind in (DRAWS, FLIPS):
        columns = select_replicate_columns(kind, units, settings)
        numbers = np.array([column for _, column in columns]).reshape(len(columns), len(d))
        sums = sum_replicates(kind, hashes, numbers, settings)
        add_limbs(totals.replicates(kind), {place: added for (place, _), added in zip(columns, sums, strict=True)})


def select_replicate_columns(kind: int, units: Units, settings: ComparisonSettings) -> Columns:
    """Return the columns that replicates of a kind add up; empty if the settings ask for no replicates."""
    if kind == DRAWS:
        limbs = split_draws(units) if settings.replicates else {}
    else:
        limbs = to_limbs(units.d) if settings.flips else {}
    return [(place, limb.astype(np.float64)) for place, limb in limbs.items() if limb.any()]


def sum_replicates(kind: int, hashes: WordArray, columns: FloatArray, settings: ComparisonSettings) -> IntArray:
    """Add up columns of units in each replicate of a kind; all columns share the random numbers of the units."""
    if kind == DRAWS:
        return sum_draws(hashes, columns, seed=settings.seed, n_replicates=settings.replicates)
    differ = columns.any(axis=0)
    return sum_flips(hashes[differ], columns[:, differ], seed=settings.seed, n_flips=settings.flips)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummingLimits:
    """Sizes that affect how a worker adds up, but no sum.

    A worker pairs `chunk_rows` rows at once. A segment with fewer than `min_summed_units` units in a chunk sends the
    units, 24 bytes each, instead of 208 kB of replicates. A worker sends its sums when they exceed `max_held_bytes`.
    """

    chunk_rows: int = CHUNK_ROWS
    min_summed_units: int = 512
    max_held_bytes: int = 2**28


_LIMITS = SummingLimits()


def add_up(
    batches: Iterator[pa.RecordBatch], settings: ComparisonSettings, limits: SummingLimits = _LIMITS
) -> Iterator[pa.RecordBatch]:
    """Add up canonical rows, sorted by unit; yield batches of `PARTIAL_SCHEMA`."""
    groups: dict[GroupKey, Totals] = {}
    for rows in group_whole_units(batches, UNIT, limits.chunk_rows):
        queries = read_queries(rows, settings)
        _add_chunk(groups, queries, settings, limits)
        for totals in groups.values():  # the comparison has the rules of all its queries
            totals.rules |= queries.rules
        if _count_bytes(groups, settings) > limits.max_held_bytes:
            yield from build_partial_batches(groups)
            groups = {}
    yield from build_partial_batches(groups)


def _count_bytes(groups: dict[GroupKey, Totals], settings: ComparisonSettings) -> int:
    return sum(
        8 * (SUMS.size + settings.replicates * len(totals.drawn) + settings.flips * len(totals.flipped))
        + sum(map(len, totals.units))
        for totals in groups.values()
    )


class PairedValues(NamedTuple):
    """Values of a pair of runs for one metric and cutoff, in the order of the queries; 0 if a query is not used."""

    pair: int
    metric: int
    k: int | None
    used: BoolArray
    both: BoolArray
    only_run: BoolArray
    only_baseline: BoolArray
    skipped: BoolArray
    x: FloatArray
    y: FloatArray
    w: FloatArray | None
    delta: FloatArray
    top_items: IntArray  # sums as in `Base`


@dataclass(frozen=True, slots=True)
class Grouping:
    """Queries of a chunk sorted by the groups of a segment set, and the units of each group.

    `number` is the index of the segment set, 0 for all queries; `texts` are the segments of the groups. `order` holds
    the indices of the queries, sorted by group and then by unit. Group g begins at starts[g] of it, and unit u owns
    unit_offsets[u]:unit_offsets[u + 1]; None if each query is a unit. `unit_starts` is the first unit of each group,
    and `hashes` has one hash per unit.
    """

    number: int
    texts: list[str | None]
    order: IntArray
    starts: IntArray
    unit_offsets: IntArray | None
    unit_starts: IntArray
    hashes: WordArray

    @property
    def min_units(self) -> int:
        return int(np.diff(np.append(self.unit_starts, len(self.hashes))).min())

    def group_sums(self, values: IntArray) -> IntArray:
        return np.asarray(np.add.reduceat(values[self.order], self.starts))

    def unit_sums(self, *parts: FloatArray) -> FloatArray:
        """Sum numbers of queries by unit; a number is the sum of its `parts`, and each unit's sum is rounded once."""
        ordered = [part[self.order] for part in parts]
        return ordered[0] if self.unit_offsets is None else round_sums(ordered, self.unit_offsets)


def _group_queries(queries: Queries, number: int, columns: tuple[str, ...]) -> Grouping:
    n = len(queries.units)
    codes = np.zeros(n, dtype=np.int64)
    for column in columns:
        encoded = queries.segments[column].dictionary_encode()
        segment_codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + segment_codes, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    first = pa.array(order[starts])
    texts = format_segments(
        [to_python_values(pa.chunked_array([queries.segments[column].take(first)])) for column in columns],
        len(starts),
    )
    units = queries.units[order]
    if queries.unclustered is None:
        return Grouping(number, texts, order, starts, None, starts, units)
    unclustered = queries.unclustered[order]
    begins = np.concatenate(
        [[True], (units[1:] != units[:-1]) | (unclustered[1:] != unclustered[:-1]) | unclustered[1:]]
    )
    begins[starts] = True
    unit_starts = np.flatnonzero(begins)
    return Grouping(
        number,
        texts,
        order,
        starts,
        np.append(unit_starts, n),
        np.searchsorted(unit_starts, starts),
        units[unit_starts],
    )


def _add_chunk(
    groups: dict[GroupKey, Totals], queries: Queries, settings: ComparisonSettings, limits: SummingLimits
) -> None:
    sets = ((), *settings.segment_sets)
    groupings = [_group_queries(queries, number, names) for number, names in enumerate(sets)]
    compared = list(_pair_runs(queries, settings))
    for pair in compared:
        limbs = compute_states(pair.x, pair.y, pair.w, pair.delta)
        for grouping in groupings:
            _add_sums(groups, pair, limbs, grouping)
    # Without clusters, replicates of all queries are the sums of the replicates of the segments in a set. Adding
    # these is cheaper than drawing again if no segment is so small that it sends units.
    adds_up = queries.unclustered is None and len(groupings) > 1 and groupings[1].min_units >= limits.min_summed_units
    for grouping in groupings[1:] if adds_up else groupings:
        to_all = adds_up and grouping.number == 1
        _add_units(
            groups, compared, grouping, settings, limits, clustered=queries.unclustered is not None, to_all=to_all
        )


def _pair_runs(queries: Queries, settings: ComparisonSettings) -> Iterator[PairedValues]:
    weighted = np.ones(len(queries.units), dtype=np.bool_) if queries.weights is None else queries.weights > 0
    for pair, (baseline, run) in enumerate(settings.pairs):
        for cutoff, k in enumerate(queries.cutoffs):
            has_x, has_y = queries.has_row[:, cutoff, baseline], queries.has_row[:, cutoff, run]
            answers_x, answers_y = (
                ~queries.is_missing[:, cutoff, side] & queries.has_row[:, cutoff, side] for side in (baseline, run)
            )
            only_run, only_baseline = answers_y & ~answers_x, answers_x & ~answers_y
            if settings.unpaired == "error" and (only_run | only_baseline).any():
                _refuse_unpaired(queries, only_run, only_baseline, settings, (baseline, run))
            counted = answers_x & answers_y if settings.unpaired == "drop" else has_x | has_y
            if not (has_x | has_y).any():
                continue
            at_k, items = at_cutoff(settings.metrics, k), np.zeros(4, dtype=np.int64)
            if queries.top_items is not None:
                items = queries.top_items[:, :, cutoff, [baseline, run]].sum(axis=1).T.reshape(-1)
            for metric, compared in enumerate(settings.compared):
                if compared not in at_k:
                    continue
                default = 0.0 if has_value_when_missing(str(compared)) else np.nan
                x = np.where(has_x, queries.values[metric][:, cutoff, baseline], default)
                y = np.where(has_y, queries.values[metric][:, cutoff, run], default)
                is_x, is_y = ~np.isnan(x), ~np.isnan(y)
                unknown = ~is_x | ~is_y
                used = counted & ~unknown & weighted
                x, y = np.where(used, x, 0.0), np.where(used, y, 0.0)
                w = None if queries.weights is None else np.where(used, queries.weights, 0.0)
                skipped = counted & unknown
                both = has_x & has_y & counted  # of any weight: a run whose common queries weigh nothing has rows
                only = (
                    only_run & is_y,
                    only_baseline & is_x,
                )  # a query without a value is not missing in the other run
                yield PairedValues(
                    pair, metric, k, used, both, *only, skipped, x, y, w, round_differences(x, y), items
                )


def _refuse_unpaired(
    queries: Queries,
    only_run: BoolArray,
    only_baseline: BoolArray,
    settings: ComparisonSettings,
    pair: tuple[int, int],
) -> None:
    query = int(np.flatnonzero(only_run | only_baseline)[0])
    run, other = settings.runs[pair[int(only_run[query])]], settings.runs[pair[int(only_baseline[query])]]
    name = format_query(queries.rows, query, settings.query)
    raise InputRefusedError(
        f"query {name} is in run {run!r} and not in {other!r}; choose {option('unpaired', 'zero')} or drop."
    )


def _add_sums(groups: dict[GroupKey, Totals], pair: PairedValues, limbs: Limbs, grouping: Grouping) -> None:
    """Add counts and sums of queries to their groups."""
    n_groups = len(grouping.starts)
    outcomes = (pair.used, pair.delta > 0, pair.used & (pair.delta == 0), pair.delta < 0)
    flags = (*outcomes, pair.only_run, pair.only_baseline, pair.skipped)
    counts = np.zeros((n_groups, len(flags) + 1), dtype=np.int64)
    for column, flag in enumerate(flags):
        counts[:, column] = grouping.group_sums(flag.astype(np.int64))
    n_both = grouping.group_sums(pair.both.astype(np.int64))
    states = SUMS.states(limbs, n_groups, grouping.group_sums)
    if pair.w is None:
        SUMS.fill_unweighted(states, counts[:, 0])
    low = np.minimum.reduceat(np.where(pair.used, pair.delta, np.inf)[grouping.order], grouping.starts)
    high = np.maximum.reduceat(np.where(pair.used, pair.delta, -np.inf)[grouping.order], grouping.starts)
    for group, text in enumerate(grouping.texts):
        if not (counts[group].any() or n_both[group]):
            continue
        base = groups.setdefault(GroupKey(pair.pair, grouping.number, text, pair.metric, pair.k), Totals()).base
        base.counts += counts[group]
        base.n_both += int(n_both[group])
        base.state += states[group]
        base.top_items += 0 if grouping.number else pair.top_items
        base.low, base.high = min(base.low, float(low[group])), max(base.high, float(high[group]))


def _add_units(
    groups: dict[GroupKey, Totals],
    compared: list[PairedValues],
    grouping: Grouping,
    settings: ComparisonSettings,
    limits: SummingLimits,
    *,
    clustered: bool,
    to_all: bool,
) -> None:
    """Add the sums over units: squares of clusters, differing units, replicates."""
    ends = np.append(grouping.unit_starts[1:], len(grouping.hashes))
    columns: dict[int, list[tuple[PairedValues, int, FloatArray]]] = {DRAWS: [], FLIPS: []}
    shared: list[tuple[PairedValues, Units]] = []
    for pair in compared:
        d = pair.delta if pair.w is None else pair.w * pair.delta
        if clustered:
            is_used = pair.used.astype(np.float64)
            a = grouping.unit_sums(is_used if pair.w is None else pair.w)
            units = Units(a > 0, a, grouping.unit_sums(d))
            _add_squares(groups, pair, units, grouping)
        else:
            units = Units(
                pair.used[grouping.order], None if pair.w is None else pair.w[grouping.order], d[grouping.order]
            )
        shared.append((pair, units))
        _add_differences(groups, pair, units.d, grouping, ends, to_all=to_all)
        for kind, kind_columns in columns.items():
            kind_columns += [(pair, place, limb) for place, limb in select_replicate_columns(kind, units, settings)]
    for group, (start, end) in enumerate(zip(grouping.unit_starts.tolist(), ends.tolist(), strict=True)):
        inside = slice(start, end)
        if grouping.number and end - start < limits.min_summed_units:
            for pair, units in shared:
                few = Units(units.used[inside], None if units.a is None else units.a[inside], units.d[inside])
                if few.used.any():
                    (key,) = _list_keys(pair, grouping, group, to_all=False)
                    groups[key].units.append(units_to_bytes(grouping.hashes[inside], few))
            continue
        for kind, kind_columns in columns.items():
            if kind_columns:
                _add_replicates(groups, kind, kind_columns, grouping, group, inside, settings, to_all=to_all)


def _list_keys(pair: PairedValues, grouping: Grouping, group: int, *, to_all: bool) -> list[GroupKey]:
    keys = [GroupKey(pair.pair, grouping.number, grouping.texts[group], pair.metric, pair.k)]
    return [*keys, GroupKey(pair.pair, 0, "", pair.metric, pair.k)] if to_all else keys


def _add_squares(groups: dict[GroupKey, Totals], pair: PairedValues, units: Units, grouping: Grouping) -> None:
    def sums(values: FloatArray) -> FloatArray:
        return grouping.unit_sums(*([values] if pair.w is None else two_product(pair.w, values)))

    assert units.a is not None
    limbs = cluster_squares(units.a, sums(pair.x), sums(pair.y))
    squares = SQUARES.states(limbs, len(grouping.starts), lambda limb: np.add.reduceat(limb, grouping.unit_starts))
    n_units = np.add.reduceat(units.used.astype(np.int64), grouping.unit_starts)
    for group in np.flatnonzero(n_units).tolist():
        base = groups[_list_keys(pair, grouping, group, to_all=False)[0]].base
        base.squares += squares[group]
        base.counts[-1] += n_units[group]


def _add_differences(
    groups: dict[GroupKey, Totals],
    pair: PairedValues,
    d: FloatArray,
    grouping: Grouping,
    ends: IntArray,
    *,
    to_all: bool,
) -> None:
    """Add the differences of units to groups in which few units differ."""
    n_differ = np.add.reduceat((d != 0).astype(np.int64), grouping.unit_starts)
    for group in np.flatnonzero(n_differ).tolist():
        differences: list[float] | None = None
        if n_differ[group] <= MAX_EXACT_UNITS:
            inside = d[grouping.unit_starts[group] : ends[group]]
            differences = inside[inside != 0].tolist()
        for key in _list_keys(pair, grouping, group, to_all=to_all):
            groups[key].base.add_differences(differences)


def _add_replicates(
    groups: dict[GroupKey, Totals],
    kind: int,
    columns: list[tuple[PairedValues, int, FloatArray]],
    grouping: Grouping,
    group: int,
    inside: slice,
    settings: ComparisonSettings,
    *,
    to_all: bool,
) -> None:
    """Add the replicates of one group's units."""
    numbers = np.array([column[inside] for _, _, column in columns])
    sums = sum_replicates(kind, grouping.hashes[inside], numbers, settings)
    for (pair, place, _), totals in zip(columns, sums, strict=True):
        for key in _list_keys(pair, grouping, group, to_all=to_all):
            if key in groups:
                add_limbs(groups[key].replicates(kind), {place: totals})
