"""What is held of a group while its queries are added up, and how it travels between workers.

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

from ndcg_spark.comparison.kernels import MOST_EXACT, SQUARES, SUMS
from ndcg_spark.core.exact import Limbs, add_limbs
from ndcg_spark.core.ragged import IntArray

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
