"""Add up pairs of queries to the exact sums of a group and its replicates, and pack sums to send to other workers.

A unit is what the bootstrap and the sign flips resample: a query, or all queries of a cluster. A partial row has the
keys of its group, a kind, the number of a block of replicates, and a payload of whole numbers as bytes. Rows of one
group, kind and block merge by adding. If a worker has few units of a group, it sends the units themselves, which is
smaller than sums of replicates. Those are computed at the end.
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
    QueryChunk,
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
_UNPAIRED = slice(COUNTS.index("n_only_run"), COUNTS.index("n_only_baseline") + 1)
GROUP_SUMS, DRAWS, FLIPS, UNITS, RULE_TEXTS = range(5)
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
    """Pair, segment, metric and cutoff of a group.

    `pair` and `metric` are indices into `settings.pairs` and `settings.compared`. `segment_set` is 0 for all queries,
    and i + 1 for `settings.segment_sets[i]`. `segment` is the text of its values.
    """

    pair: int
    segment_set: int
    segment: str | None
    metric: int
    k: int | None


@dataclass(slots=True)
class GroupSums:
    """Counts and sums of a group.

    `counts` are in the order of `COUNTS`; only clusters with a weight are counted. `squares` are sums over clusters,
    zeros without clusters. `low` and `high` are the smallest and the largest difference. `differences` are those of
    the units that differ; None if there are more than `MAX_EXACT_UNITS`. `n_both` counts the queries that both runs
    have, and `n_shared` those of them that neither run misses. `top_items` holds the number of items among the first
    k and how many are judged, for the baseline and then for the run; zeros in segments.
    """

    counts: IntArray = field(default_factory=lambda: np.zeros(len(COUNTS), dtype=np.int64))
    state: IntArray = field(default_factory=lambda: np.zeros(SUMS.size, dtype=np.int64))
    squares: IntArray = field(default_factory=lambda: np.zeros(SQUARES.size, dtype=np.int64))
    low: float = np.inf
    high: float = -np.inf
    differences: list[float] | None = field(default_factory=list)
    n_both: int = 0
    n_shared: int = 0
    top_items: IntArray = field(default_factory=lambda: np.zeros(4, dtype=np.int64))

    @property
    def n_unpaired(self) -> tuple[int, int]:
        """The queries that only the run has, and those that only the baseline has."""
        n_only_run, n_only_baseline = self.counts[_UNPAIRED].tolist()
        return n_only_run, n_only_baseline

    @property
    def one_side_empty(self) -> bool:
        return self.n_both == 0 and any(self.n_unpaired) and not all(self.n_unpaired)

    def add(self, other: GroupSums) -> None:
        self.counts += other.counts
        self.state += other.state
        self.squares += other.squares
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.n_both += other.n_both
        self.n_shared += other.n_shared
        self.top_items += other.top_items
        self.add_differences(other.differences)

    def add_differences(self, others: list[float] | None) -> None:
        """Append differences of units; drop all of them above `MAX_EXACT_UNITS`."""
        both = None if self.differences is None or others is None else [*self.differences, *others]
        self.differences = None if both is None or len(both) > MAX_EXACT_UNITS else both

    def to_bytes(self) -> bytes:
        differences = self.differences
        numbers = np.array([self.low, self.high, *(differences or [])], dtype=np.float64).view(np.int64)
        n_differences = -1 if differences is None else len(differences)
        sizes = np.array([self.n_both, self.n_shared, n_differences], dtype=np.int64)
        parts = [self.counts, self.state, self.squares, self.top_items, sizes, numbers]
        return np.concatenate(parts).astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, payload: bytes) -> GroupSums:
        words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
        ends = np.cumsum([len(COUNTS), SUMS.size, SQUARES.size, 4, 3])
        counts, state, squares, top_items, (n_both, n_shared, n_differences), numbers = np.split(words, ends)
        low, high, *differences = numbers.view(np.float64).tolist()
        known = None if n_differences < 0 else differences
        return cls(counts, state, squares, low, high, known, int(n_both), int(n_shared), top_items)


@dataclass(slots=True)
class Group:
    """Everything that a worker holds for a group: sums, sums of replicates, packed units, and rules."""

    sums: GroupSums = field(default_factory=GroupSums)
    drawn: Limbs = field(default_factory=dict)
    flipped: Limbs = field(default_factory=dict)
    units: list[bytes] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)

    def replicates(self, kind: int) -> Limbs:
        return self.drawn if kind == DRAWS else self.flipped

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield kind, block and payload of the group's partial rows."""
        yield GROUP_SUMS, 0, self.sums.to_bytes()
        for text in sorted(self.rules):
            yield RULE_TEXTS, 0, text.encode()
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


def build_partial_batches(groups: dict[GroupKey, Group]) -> Iterator[pa.RecordBatch]:
    """Build batches of `PARTIAL_SCHEMA` from the groups."""
    return build_batches((*key, *row) for key, group in groups.items() for row in group.rows())


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
    group_sums: dict[tuple[object, ...], GroupSums] = {}
    replicates: dict[tuple[object, ...], Limbs] = {}
    units: list[tuple[object, ...]] = []
    rules: dict[tuple[object, ...], None] = {}
    for key, kind, block, payload in iterate_partials(batches):
        row_key = (*key, kind, block)
        if kind == UNITS:
            units.append((*row_key, payload))
        elif kind == RULE_TEXTS:
            rules[(*row_key, payload)] = None
        elif kind == GROUP_SUMS:
            group_sums.setdefault(row_key, GroupSums()).add(GroupSums.from_bytes(payload))
        else:
            add_limbs(replicates.setdefault(row_key, {}), sums_from_bytes(payload))
    yield from build_batches(iter([*units, *rules]))
    yield from build_batches((*row_key, sums.to_bytes()) for row_key, sums in group_sums.items())
    yield from build_batches((*row_key, sums_to_bytes(limbs)) for row_key, limbs in replicates.items())


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


def add_unsummed_units(group: Group, settings: ComparisonSettings) -> None:
    """Add the replicates of the units that workers sent unsummed."""
    parts = [units_from_bytes(payload) for payload in group.units]
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
        add_limbs(group.replicates(kind), {place: added for (place, _), added in zip(columns, sums, strict=True)})


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
    """Add up the rows of a `QueriesPlan`, sorted by unit; yield batches of `PARTIAL_SCHEMA`."""
    groups: dict[GroupKey, Group] = {}
    for rows in group_whole_units(batches, UNIT, limits.chunk_rows):
        queries = read_queries(rows, settings)
        _add_chunk(groups, queries, settings, limits)
        for group in groups.values():  # the comparison has the rules of all its queries
            group.rules |= queries.rules
        if _count_bytes(groups, settings) > limits.max_held_bytes:
            yield from build_partial_batches(groups)
            groups = {}
    yield from build_partial_batches(groups)


def _count_bytes(groups: dict[GroupKey, Group], settings: ComparisonSettings) -> int:
    return sum(
        8 * (SUMS.size + settings.replicates * len(group.drawn) + settings.flips * len(group.flipped))
        + sum(map(len, group.units))
        for group in groups.values()
    )


class PairedValues(NamedTuple):
    """Values of a pair of runs for one metric and cutoff, in the order of the queries; 0 if a query is not used.

    `pair` and `metric` are indices as in `GroupKey`; `x` are the values of the baseline, `y` those of the run.
    """

    pair: int
    metric: int
    k: int | None
    used: BoolArray
    both: BoolArray
    shared: BoolArray
    only_run: BoolArray
    only_baseline: BoolArray
    skipped: BoolArray
    x: FloatArray
    y: FloatArray
    w: FloatArray | None
    delta: FloatArray
    top_items: IntArray  # sums as in `GroupSums`


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


def _group_queries(queries: QueryChunk, number: int, columns: tuple[str, ...]) -> Grouping:
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
    groups: dict[GroupKey, Group], queries: QueryChunk, settings: ComparisonSettings, limits: SummingLimits
) -> None:
    sets = ((), *settings.segment_sets)
    groupings = [_group_queries(queries, number, names) for number, names in enumerate(sets)]
    all_paired = list(_pair_runs(queries, settings))
    for paired in all_paired:
        limbs = compute_states(paired.x, paired.y, paired.w, paired.delta)
        for grouping in groupings:
            _add_sums(groups, paired, limbs, grouping)
    # Without clusters, replicates of all queries are the sums of the replicates of the segments in a set. Adding
    # these is cheaper than drawing again if no segment is so small that it sends units.
    adds_up = queries.unclustered is None and len(groupings) > 1 and groupings[1].min_units >= limits.min_summed_units
    for grouping in groupings[1:] if adds_up else groupings:
        to_all = adds_up and grouping.number == 1
        _add_units(
            groups, all_paired, grouping, settings, limits, clustered=queries.unclustered is not None, to_all=to_all
        )


def _pair_runs(queries: QueryChunk, settings: ComparisonSettings) -> Iterator[PairedValues]:
    weighted = np.ones(len(queries.units), dtype=np.bool_) if queries.weights is None else queries.weights > 0
    for pair_number, (baseline, run) in enumerate(settings.pairs):
        for cutoff, k in enumerate(queries.cutoffs):
            has_row_x, has_row_y = queries.has_row[:, cutoff, baseline], queries.has_row[:, cutoff, run]
            is_present_x, is_present_y = (
                ~queries.is_missing[:, cutoff, side] & queries.has_row[:, cutoff, side] for side in (baseline, run)
            )
            only_run, only_baseline = is_present_y & ~is_present_x, is_present_x & ~is_present_y
            if settings.unpaired == "error" and (only_run | only_baseline).any():
                _refuse_unpaired(queries, only_run, only_baseline, settings, (baseline, run))
            counted = is_present_x & is_present_y if settings.unpaired == "drop" else has_row_x | has_row_y
            if not (has_row_x | has_row_y).any():
                continue
            at_k, items = at_cutoff(settings.metrics, k), np.zeros(4, dtype=np.int64)
            if queries.top_items is not None:
                items = queries.top_items[:, :, cutoff, [baseline, run]].sum(axis=1).T.reshape(-1)
            for metric_number, metric in enumerate(settings.compared):
                if metric not in at_k:
                    continue
                default = 0.0 if has_value_when_missing(str(metric)) else np.nan
                x = np.where(has_row_x, queries.values[metric_number][:, cutoff, baseline], default)
                y = np.where(has_row_y, queries.values[metric_number][:, cutoff, run], default)
                has_value_x, has_value_y = ~np.isnan(x), ~np.isnan(y)
                unknown = ~has_value_x | ~has_value_y
                used = counted & ~unknown & weighted
                x, y = np.where(used, x, 0.0), np.where(used, y, 0.0)
                w = None if queries.weights is None else np.where(used, queries.weights, 0.0)
                skipped = counted & unknown
                both = (
                    has_row_x & has_row_y & counted
                )  # of any weight: runs whose common queries have weight 0 have rows
                # A query without a value is not missing in the other run.
                only = (only_run & has_value_y, only_baseline & has_value_x)
                delta = round_differences(x, y)
                shared = is_present_x & is_present_y
                yield PairedValues(
                    pair_number, metric_number, k, used, both, shared, *only, skipped, x, y, w, delta, items
                )


def _refuse_unpaired(
    queries: QueryChunk,
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


def _add_sums(groups: dict[GroupKey, Group], paired: PairedValues, limbs: Limbs, grouping: Grouping) -> None:
    """Add counts and sums of queries to their groups."""
    n_groups = len(grouping.starts)
    outcomes = (paired.used, paired.delta > 0, paired.used & (paired.delta == 0), paired.delta < 0)
    flags = (*outcomes, paired.only_run, paired.only_baseline, paired.skipped)
    counts = np.zeros((n_groups, len(flags) + 1), dtype=np.int64)
    for column, flag in enumerate(flags):
        counts[:, column] = grouping.group_sums(flag.astype(np.int64))
    n_both, n_shared = (grouping.group_sums(flag.astype(np.int64)) for flag in (paired.both, paired.shared))
    states = SUMS.states(limbs, n_groups, grouping.group_sums)
    if paired.w is None:
        SUMS.fill_unweighted(states, counts[:, 0])
    low = np.minimum.reduceat(np.where(paired.used, paired.delta, np.inf)[grouping.order], grouping.starts)
    high = np.maximum.reduceat(np.where(paired.used, paired.delta, -np.inf)[grouping.order], grouping.starts)
    for group, text in enumerate(grouping.texts):
        if not (counts[group].any() or n_both[group]):
            continue
        sums = groups.setdefault(GroupKey(paired.pair, grouping.number, text, paired.metric, paired.k), Group()).sums
        sums.counts += counts[group]
        sums.n_both += int(n_both[group])
        sums.n_shared += int(n_shared[group])
        sums.state += states[group]
        sums.top_items += 0 if grouping.number else paired.top_items
        sums.low, sums.high = min(sums.low, float(low[group])), max(sums.high, float(high[group]))


def _add_units(
    groups: dict[GroupKey, Group],
    all_paired: list[PairedValues],
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
    for paired in all_paired:
        d = paired.delta if paired.w is None else paired.w * paired.delta
        if clustered:
            is_used = paired.used.astype(np.float64)
            a = grouping.unit_sums(is_used if paired.w is None else paired.w)
            units = Units(a > 0, a, grouping.unit_sums(d))
            _add_squares(groups, paired, units, grouping)
        else:
            units = Units(
                paired.used[grouping.order], None if paired.w is None else paired.w[grouping.order], d[grouping.order]
            )
        shared.append((paired, units))
        _add_differences(groups, paired, units.d, grouping, ends, to_all=to_all)
        for kind, kind_columns in columns.items():
            kind_columns += [(paired, place, limb) for place, limb in select_replicate_columns(kind, units, settings)]
    for group, (start, end) in enumerate(zip(grouping.unit_starts.tolist(), ends.tolist(), strict=True)):
        inside = slice(start, end)
        if grouping.number and end - start < limits.min_summed_units:
            for paired, units in shared:
                few = Units(units.used[inside], None if units.a is None else units.a[inside], units.d[inside])
                if few.used.any():
                    (key,) = _list_keys(paired, grouping, group, to_all=False)
                    groups[key].units.append(units_to_bytes(grouping.hashes[inside], few))
            continue
        for kind, kind_columns in columns.items():
            if kind_columns:
                _add_replicates(groups, kind, kind_columns, grouping, group, inside, settings, to_all=to_all)


def _list_keys(paired: PairedValues, grouping: Grouping, group: int, *, to_all: bool) -> list[GroupKey]:
    keys = [GroupKey(paired.pair, grouping.number, grouping.texts[group], paired.metric, paired.k)]
    return [*keys, GroupKey(paired.pair, 0, "", paired.metric, paired.k)] if to_all else keys


def _add_squares(groups: dict[GroupKey, Group], paired: PairedValues, units: Units, grouping: Grouping) -> None:
    def sum_units(values: FloatArray) -> FloatArray:
        return grouping.unit_sums(*([values] if paired.w is None else two_product(paired.w, values)))

    assert units.a is not None
    limbs = cluster_squares(units.a, sum_units(paired.x), sum_units(paired.y))
    squares = SQUARES.states(limbs, len(grouping.starts), lambda limb: np.add.reduceat(limb, grouping.unit_starts))
    n_units = np.add.reduceat(units.used.astype(np.int64), grouping.unit_starts)
    for group in np.flatnonzero(n_units).tolist():
        sums = groups[_list_keys(paired, grouping, group, to_all=False)[0]].sums
        sums.squares += squares[group]
        sums.counts[-1] += n_units[group]


def _add_differences(
    groups: dict[GroupKey, Group],
    paired: PairedValues,
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
        for key in _list_keys(paired, grouping, group, to_all=to_all):
            groups[key].sums.add_differences(differences)


def _add_replicates(
    groups: dict[GroupKey, Group],
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
    for (paired, place, _), column_sums in zip(columns, sums, strict=True):
        for key in _list_keys(paired, grouping, group, to_all=to_all):
            if key in groups:
                add_limbs(groups[key].replicates(kind), {place: column_sums})
