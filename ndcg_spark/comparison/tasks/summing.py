"""Pairs of queries to exact sums of a group, with the replicates of their units; how sums travel between workers.

A row that travels has the keys of its group, a kind, the number of a block of replicates, and a payload, which is
whole numbers as bytes. Rows of one group, kind and block merge by adding them. The units of a group that has few of
them on a worker travel as they are: that takes less room than sums of replicates, which are made of them at the end.
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
    MOST_EXACT,
    SQUARES,
    SUMS,
    WordArray,
    cluster_squares,
    deltas,
    drawn_sums,
    flipped_sums,
    pair_states,
)
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.pairing import CHUNK_ROWS, UNIT, Queries, query_text, read_queries, whole_units
from ndcg_spark.core.batches import to_python_values
from ndcg_spark.core.exact import Limbs, add_limbs, round_sums, to_limbs, two_product
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.tasks.partial_sums import format_segments
from ndcg_spark.metrics import at_cutoff, has_value_when_missing

COUNTS = ("n_queries", "n_wins", "n_ties", "n_losses", "n_only_run", "n_only_baseline", "n_skipped", "n_clusters")
BASE, DRAWS, FLIPS, UNITS, TEXTS = range(5)
"""Kinds of rows: counts and sums of a group; blocks of bootstrap replicates; of sign flips; units; rules, as text."""
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
HELD_ROWS = 4096


class GroupKey(NamedTuple):
    """Numbers of pair, segment set and metric in the settings; text of the segment; k."""

    pair: int
    segment_set: int
    segment: str | None
    metric: int
    k: int | None


@dataclass(slots=True)
class Base:
    """Counts and sums of a group.

    `counts` are in the order of `COUNTS`; of clusters, those with a weight. `squares` are of clusters, zeros without.
    `low` and `high` are the smallest and the largest difference. `differences` are those of the units that differ;
    None if they are more than `MOST_EXACT`. `n_both` counts the queries that both runs have. `top_items` are items
    among the first k, and those of them that are judged, of the baseline and then of the run; of all queries only.
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
        self.note_differences(other.differences)

    def note_differences(self, others: list[float] | None) -> None:
        """Keep differences of units as long as they are few."""
        both = None if self.differences is None or others is None else [*self.differences, *others]
        self.differences = None if both is None or len(both) > MOST_EXACT else both

    def to_bytes(self) -> bytes:
        few = self.differences
        numbers = np.array([self.low, self.high, *(few or [])], dtype=np.float64).view(np.int64)
        n_few = np.array([self.n_both, -1 if few is None else len(few)], dtype=np.int64)
        parts = [self.counts, self.state, self.squares, self.top_items, n_few, numbers]
        return np.concatenate(parts).astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Base:
        words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
        ends = np.cumsum([len(COUNTS), SUMS.size, SQUARES.size, 4, 2])
        counts, state, squares, top_items, (n_both, n_few), numbers = np.split(words, ends)
        low, high, *few = numbers.view(np.float64).tolist()
        return cls(counts, state, squares, low, high, None if n_few < 0 else few, int(n_both), top_items)


@dataclass(slots=True)
class Totals:
    """Everything that is held of a group."""

    base: Base = field(default_factory=Base)
    drawn: Limbs = field(default_factory=dict)
    flipped: Limbs = field(default_factory=dict)
    units: list[bytes] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)

    def replicates(self, kind: int) -> Limbs:
        return self.drawn if kind == DRAWS else self.flipped

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, block and payload of the rows that the group travels in."""
        yield BASE, 0, self.base.to_bytes()
        for text in sorted(self.rules):
            yield TEXTS, 0, text.encode()
        for payload in self.units:
            yield UNITS, 0, payload
        for kind in (DRAWS, FLIPS):
            sums = self.replicates(kind)
            length = len(next(iter(sums.values()))) if sums else 0
            for block, start in enumerate(range(0, length, BLOCKS[kind])):
                yield kind, block, sums_to_bytes({at: its[start : start + BLOCKS[kind]] for at, its in sums.items()})


def sums_to_bytes(sums: Limbs) -> bytes:
    """How many places there are, which, and the numbers of each."""
    head = np.array([len(sums), *sums], dtype=np.int64)
    return np.concatenate([head, *sums.values()]).astype("<i8").tobytes()


def sums_from_bytes(payload: bytes) -> Limbs:
    words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
    n = int(words[0])
    numbers = words[1 + n :].reshape(n, -1)
    return {int(place): numbers[at] for at, place in enumerate(words[1 : 1 + n])}


def stored_numbers(parts: Sequence[tuple[int, Limbs]]) -> list[int]:
    """Sums of replicates as they are stored, for draws and for flips: replicates, places, which, their numbers."""
    numbers: list[int] = []
    for length, sums in parts:
        numbers += [length, len(sums), *sorted(sums)]
        for place in sorted(sums):
            numbers += sums[place].tolist()
    return numbers


def from_stored_numbers(numbers: IntArray) -> list[tuple[int, Limbs]]:
    parts: list[tuple[int, Limbs]] = []
    at = 0
    while at < len(numbers):
        length, n_places = numbers[at : at + 2].tolist()
        places = numbers[at + 2 : at + 2 + n_places].tolist()
        at += 2 + n_places
        its = numbers[at : at + n_places * length].reshape(n_places, length)
        parts.append((length, dict(zip(places, its, strict=True))))
        at += n_places * length
    return parts


def partial_batches(totals: dict[GroupKey, Totals]) -> Iterator[pa.RecordBatch]:
    """Rows of `PARTIAL_SCHEMA` of the groups held."""
    return row_batches((*key, *row) for key, its in totals.items() for row in its.rows())


def row_batches(rows: Iterator[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """Put rows of `PARTIAL_SCHEMA` into batches."""
    while held := list(islice(rows, HELD_ROWS)):
        columns = [pa.array(its, one.type) for its, one in zip(zip(*held, strict=True), PARTIAL_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=PARTIAL_SCHEMA)


def merge_sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up rows of one group, kind and block, which must all reach one worker."""
    bases: dict[tuple[object, ...], Base] = {}
    sums: dict[tuple[object, ...], Limbs] = {}
    units: list[tuple[object, ...]] = []
    rules: dict[tuple[object, ...], None] = {}
    for key, kind, block, payload in travelling(batches):
        place = (*key, kind, block)
        if kind == UNITS:
            units.append((*place, payload))
        elif kind == TEXTS:
            rules[(*place, payload)] = None
        elif kind == BASE:
            bases.setdefault(place, Base()).add(Base.from_bytes(payload))
        else:
            add_limbs(sums.setdefault(place, {}), sums_from_bytes(payload))
    yield from row_batches(iter([*units, *rules]))
    yield from row_batches((*place, base.to_bytes()) for place, base in bases.items())
    yield from row_batches((*place, sums_to_bytes(its)) for place, its in sums.items())


def travelling(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[GroupKey, int, int, bytes]]:
    """Rows of `PARTIAL_SCHEMA` as Python values."""
    for batch in batches:
        keys = [batch.column(name).to_pylist() for name in GROUP_KEYS]
        rest = [batch.column(name).to_pylist() for name in ("kind", "block", "payload")]
        for key, kind, block, payload in zip(zip(*keys, strict=True), *rest, strict=True):
            yield GroupKey(*key), kind, block, payload


Columns = list[tuple[int, FloatArray]]
"""Whole numbers below 2^32 of every unit, by their place in the sums."""


class Units(NamedTuple):
    """Weights A and differences D of units, 0 where a unit is not used; without weights A is 1."""

    used: BoolArray
    a: FloatArray | None
    d: FloatArray


def drawn_limbs(units: Units) -> Limbs:
    """Limbs of the sums of a bootstrap, `DRAWN`; without weights three of them say all."""
    d, m = units.d, units.used.astype(np.float64)
    weighted = {} if units.a is None else {"a": [units.a], "aa": [units.a * units.a], "ad": [units.a * d]}
    return DRAWN.limbs(m=[m], d=[d], dd=[d * d], **weighted)


def units_to_bytes(hashes: WordArray, units: Units) -> bytes:
    """Pack the units that are used: whether they have weights, then hashes, differences and weights."""
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
    """Add the replicates of units that travelled as they are."""
    found = [units_from_bytes(payload) for payload in totals.units]
    if not found:
        return
    hashes = np.concatenate([its for its, _ in found])
    weights = [units.a for _, units in found if units.a is not None]
    d = np.concatenate([units.d for _, units in found])
    units = Units(np.ones(len(d), dtype=np.bool_), np.concatenate(weights) if weights else None, d)
    for kind in (DRAWS, FLIPS):
        columns = replicate_columns(kind, units, settings)
        numbers = np.array([column for _, column in columns]).reshape(len(columns), len(d))
        sums = replicate_sums(kind, hashes, numbers, settings)
        add_limbs(totals.replicates(kind), {place: its for (place, _), its in zip(columns, sums, strict=True)})


def replicate_columns(kind: int, units: Units, settings: ComparisonSettings) -> Columns:
    """Choose the columns that replicates of a kind add up; none where there are no replicates."""
    if kind == DRAWS:
        limbs = drawn_limbs(units) if settings.replicates else {}
    else:
        limbs = to_limbs(units.d) if settings.flips else {}
    return [(place, limb.astype(np.float64)) for place, limb in limbs.items() if limb.any()]


def replicate_sums(kind: int, hashes: WordArray, columns: FloatArray, settings: ComparisonSettings) -> IntArray:
    """Add up columns of units in each replicate of a kind; all columns share the random numbers of the units."""
    if kind == DRAWS:
        return drawn_sums(hashes, columns, seed=settings.seed, n_replicates=settings.replicates)
    differ = columns.any(axis=0)
    return flipped_sums(hashes[differ], columns[:, differ], seed=settings.seed, n_flips=settings.flips)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummingLimits:
    """Sizes that decide how a worker adds up, and change no sum.

    `chunk_rows` are put side by side at once. A segment with fewer units than `few_units` in a chunk sends them as
    they are, in 24 bytes each, and not 208 kB of replicates. `held_bytes` of sums of replicates are held by a worker
    before it sends all of them on.
    """

    chunk_rows: int = CHUNK_ROWS
    few_units: int = 512
    held_bytes: int = 2**28


_LIMITS = SummingLimits()


def add_up(
    batches: Iterator[pa.RecordBatch], settings: ComparisonSettings, limits: SummingLimits = _LIMITS
) -> Iterator[pa.RecordBatch]:
    """Add up canonical rows, sorted by unit, to `PARTIAL_SCHEMA`."""
    held: dict[GroupKey, Totals] = {}
    for rows in whole_units(batches, UNIT, limits.chunk_rows):
        queries = read_queries(rows, settings)
        _add_chunk(held, queries, settings, limits)
        for totals in held.values():  # those of any query are those of the comparison
            totals.rules |= queries.rules
        if _size(held, settings) > limits.held_bytes:
            yield from partial_batches(held)
            held = {}
    yield from partial_batches(held)


def _size(held: dict[GroupKey, Totals], settings: ComparisonSettings) -> int:
    return sum(
        8 * (SUMS.size + settings.replicates * len(one.drawn) + settings.flips * len(one.flipped))
        + sum(map(len, one.units))
        for one in held.values()
    )


class Pairs(NamedTuple):
    """Values of a pair of runs for one metric and cutoff, in the order of the queries; 0 where they are not used."""

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
    """Queries of a chunk in the order of the groups of a segment set, and the units of each group.

    `number` is that of the segment set, where 0 is all queries, and `texts` are the segments of the groups. `order`
    lists queries, those of a group together, and in it those of a unit. Groups begin in it at `starts`; units begin
    and end in it at `unit_offsets`, None if each query is one. `unit_starts` has the number of the first unit of each
    group, and `hashes` one of each unit.
    """

    number: int
    texts: list[str | None]
    order: IntArray
    starts: IntArray
    unit_offsets: IntArray | None
    unit_starts: IntArray
    hashes: WordArray

    @property
    def least_units(self) -> int:
        return int(np.diff(np.append(self.unit_starts, len(self.hashes))).min())

    def group_sums(self, values: IntArray) -> IntArray:
        return np.asarray(np.add.reduceat(values[self.order], self.starts))

    def unit_sums(self, *parts: FloatArray) -> FloatArray:
        """Sum numbers of queries, given in parts, by unit; each sum is rounded once."""
        ordered = [part[self.order] for part in parts]
        return ordered[0] if self.unit_offsets is None else round_sums(ordered, self.unit_offsets)


def _grouping(queries: Queries, number: int, names: tuple[str, ...]) -> Grouping:
    n = len(queries.units)
    codes = np.zeros(n, dtype=np.int64)
    for name in names:
        encoded = queries.segments[name].dictionary_encode()
        its = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + its, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    first = pa.array(order[starts])
    texts = format_segments(
        [to_python_values(pa.chunked_array([queries.segments[name].take(first)])) for name in names], len(starts)
    )
    units = queries.units[order]
    if queries.solo is None:
        return Grouping(number, texts, order, starts, None, starts, units)
    solo = queries.solo[order]
    begins = np.concatenate([[True], (units[1:] != units[:-1]) | (solo[1:] != solo[:-1]) | solo[1:]])
    begins[starts] = True
    at = np.flatnonzero(begins)
    return Grouping(number, texts, order, starts, np.append(at, n), np.searchsorted(at, starts), units[at])


def _add_chunk(
    held: dict[GroupKey, Totals], queries: Queries, settings: ComparisonSettings, limits: SummingLimits
) -> None:
    sets = ((), *settings.segment_sets)
    groupings = [_grouping(queries, number, names) for number, names in enumerate(sets)]
    compared = list(_pairs(queries, settings))
    for one in compared:
        limbs = pair_states(one.x, one.y, one.w, one.delta)
        for grouping in groupings:
            _add_sums(held, one, limbs, grouping)
    # Without clusters the replicates of all queries are the sums of those of a segment set with large segments.
    adds_up = queries.solo is None and len(groupings) > 1 and groupings[1].least_units >= limits.few_units
    for grouping in groupings[1:] if adds_up else groupings:
        to_all = adds_up and grouping.number == 1
        _add_units(held, compared, grouping, settings, limits, clustered=queries.solo is not None, to_all=to_all)


def _pairs(queries: Queries, settings: ComparisonSettings) -> Iterator[Pairs]:
    weighted = np.ones(len(queries.units), dtype=np.bool_) if queries.weights is None else queries.weights > 0
    for number, (baseline, run) in enumerate(settings.pairs):
        for at, k in enumerate(queries.cutoffs):
            has_x, has_y = queries.present[:, at, baseline], queries.present[:, at, run]
            answers_x, answers_y = (
                ~queries.missed[:, at, one] & queries.present[:, at, one] for one in (baseline, run)
            )
            only_run, only_baseline = answers_y & ~answers_x, answers_x & ~answers_y
            if settings.unpaired == "error" and (only_run | only_baseline).any():
                _refuse_unpaired(queries, only_run, only_baseline, settings, (baseline, run))
            there = answers_x & answers_y if settings.unpaired == "drop" else has_x | has_y
            if not (has_x | has_y).any():
                continue
            at_k, items = at_cutoff(settings.metrics, k), np.zeros(4, dtype=np.int64)
            if queries.top_items is not None:
                items = queries.top_items[:, :, at, [baseline, run]].sum(axis=1).T.reshape(-1)
            for metric, its in enumerate(settings.compared):
                if its not in at_k:
                    continue
                lacking = 0.0 if has_value_when_missing(str(its)) else np.nan
                x = np.where(has_x, queries.values[metric][:, at, baseline], lacking)
                y = np.where(has_y, queries.values[metric][:, at, run], lacking)
                is_x, is_y = ~np.isnan(x), ~np.isnan(y)
                unknown = ~is_x | ~is_y
                used = there & ~unknown & weighted
                x, y = np.where(used, x, 0.0), np.where(used, y, 0.0)
                w = None if queries.weights is None else np.where(used, queries.weights, 0.0)
                skipped = there & unknown
                both = has_x & has_y & (used | skipped)  # as for other counts, without those of weight 0
                only = only_run & is_y, only_baseline & is_x  # of queries without a value nothing is lacking
                yield Pairs(number, metric, k, used, both, *only, skipped, x, y, w, deltas(x, y), items)


def _refuse_unpaired(
    queries: Queries,
    only_run: BoolArray,
    only_baseline: BoolArray,
    settings: ComparisonSettings,
    pair: tuple[int, int],
) -> None:
    at = int(np.flatnonzero(only_run | only_baseline)[0])
    there, lacking = settings.runs[pair[int(only_run[at])]], settings.runs[pair[int(only_baseline[at])]]
    name = query_text(queries.rows, at, settings.query)
    raise InputRefusedError(
        f"query {name} is in run {there!r} and not in {lacking!r}; choose {option('unpaired', 'zero')} or drop."
    )


def _add_sums(held: dict[GroupKey, Totals], one: Pairs, limbs: Limbs, grouping: Grouping) -> None:
    """Add counts and sums of queries, by group."""
    n_groups = len(grouping.starts)
    outcomes = (one.used, one.delta > 0, one.used & (one.delta == 0), one.delta < 0)
    flags = (*outcomes, one.only_run, one.only_baseline, one.skipped)
    counts = np.zeros((n_groups, len(flags) + 1), dtype=np.int64)
    for at, flag in enumerate(flags):
        counts[:, at] = grouping.group_sums(flag.astype(np.int64))
    n_both = grouping.group_sums(one.both.astype(np.int64))
    states = SUMS.states(limbs, n_groups, grouping.group_sums)
    if one.w is None:
        SUMS.fill_unweighted(states, counts[:, 0])
    low = np.minimum.reduceat(np.where(one.used, one.delta, np.inf)[grouping.order], grouping.starts)
    high = np.maximum.reduceat(np.where(one.used, one.delta, -np.inf)[grouping.order], grouping.starts)
    for group, text in enumerate(grouping.texts):
        if not counts[group].any():
            continue
        base = held.setdefault(GroupKey(one.pair, grouping.number, text, one.metric, one.k), Totals()).base
        base.counts += counts[group]
        base.n_both += int(n_both[group])
        base.state += states[group]
        base.top_items += 0 if grouping.number else one.top_items
        base.low, base.high = min(base.low, float(low[group])), max(base.high, float(high[group]))


def _add_units(
    held: dict[GroupKey, Totals],
    compared: list[Pairs],
    grouping: Grouping,
    settings: ComparisonSettings,
    limits: SummingLimits,
    *,
    clustered: bool,
    to_all: bool,
) -> None:
    """Add what is summed over units: squares of clusters, differing units, replicates."""
    ends = np.append(grouping.unit_starts[1:], len(grouping.hashes))
    columns: dict[int, list[tuple[Pairs, int, FloatArray]]] = {DRAWS: [], FLIPS: []}
    shared: list[tuple[Pairs, Units]] = []
    for one in compared:
        d = one.delta if one.w is None else one.w * one.delta
        if clustered:
            ones = one.used.astype(np.float64)
            a = grouping.unit_sums(ones if one.w is None else one.w)
            units = Units(a > 0, a, grouping.unit_sums(d))
            _add_squares(held, one, units, grouping)
        else:
            units = Units(
                one.used[grouping.order], None if one.w is None else one.w[grouping.order], d[grouping.order]
            )
        shared.append((one, units))
        _note_differences(held, one, units.d, grouping, ends, to_all=to_all)
        for kind, its in columns.items():
            its += [(one, place, limb) for place, limb in replicate_columns(kind, units, settings)]
    for group, (start, end) in enumerate(zip(grouping.unit_starts.tolist(), ends.tolist(), strict=True)):
        inside = slice(start, end)
        if grouping.number and end - start < limits.few_units:
            for one, units in shared:
                few = Units(units.used[inside], None if units.a is None else units.a[inside], units.d[inside])
                if few.used.any():
                    (key,) = _keys(one, grouping, group, to_all=False)
                    held[key].units.append(units_to_bytes(grouping.hashes[inside], few))
            continue
        for kind, its in columns.items():
            if its:
                _add_replicates(held, kind, its, grouping, group, inside, settings, to_all=to_all)


def _keys(one: Pairs, grouping: Grouping, group: int, *, to_all: bool) -> list[GroupKey]:
    keys = [GroupKey(one.pair, grouping.number, grouping.texts[group], one.metric, one.k)]
    return [*keys, GroupKey(one.pair, 0, "", one.metric, one.k)] if to_all else keys


def _add_squares(held: dict[GroupKey, Totals], one: Pairs, units: Units, grouping: Grouping) -> None:
    def sums(values: FloatArray) -> FloatArray:
        return grouping.unit_sums(*([values] if one.w is None else two_product(one.w, values)))

    assert units.a is not None
    limbs = cluster_squares(units.a, sums(one.x), sums(one.y))
    squares = SQUARES.states(limbs, len(grouping.starts), lambda limb: np.add.reduceat(limb, grouping.unit_starts))
    n_units = np.add.reduceat(units.used.astype(np.int64), grouping.unit_starts)
    for group in np.flatnonzero(n_units).tolist():
        base = held[_keys(one, grouping, group, to_all=False)[0]].base
        base.squares += squares[group]
        base.counts[-1] += n_units[group]


def _note_differences(
    held: dict[GroupKey, Totals], one: Pairs, d: FloatArray, grouping: Grouping, ends: IntArray, *, to_all: bool
) -> None:
    """Keep the differences of groups in which few units differ."""
    n_differ = np.add.reduceat((d != 0).astype(np.int64), grouping.unit_starts)
    for group in np.flatnonzero(n_differ).tolist():
        few: list[float] | None = None
        if n_differ[group] <= MOST_EXACT:
            inside = d[grouping.unit_starts[group] : ends[group]]
            few = inside[inside != 0].tolist()
        for key in _keys(one, grouping, group, to_all=to_all):
            held[key].base.note_differences(few)


def _add_replicates(
    held: dict[GroupKey, Totals],
    kind: int,
    columns: list[tuple[Pairs, int, FloatArray]],
    grouping: Grouping,
    group: int,
    inside: slice,
    settings: ComparisonSettings,
    *,
    to_all: bool,
) -> None:
    """Add the replicates of one group."""
    numbers = np.array([column[inside] for _, _, column in columns])
    sums = replicate_sums(kind, grouping.hashes[inside], numbers, settings)
    for (one, place, _), its in zip(columns, sums, strict=True):
        for key in _keys(one, grouping, group, to_all=to_all):
            if key in held:
                add_limbs(held[key].replicates(kind), {place: its})
