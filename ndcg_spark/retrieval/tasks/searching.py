"""Blocks of queries against blocks of the corpus: the best items so far, or counts per score and relevance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.core.batches import (
    Entries,
    Values,
    column_hashes,
    entry_columns,
    from_bytes,
    int_values,
    joined,
    list_column,
    message,
    partition_of,
    plain_texts,
    sorted_by_hash,
    take_values,
    taken,
    to_bytes,
    value_at,
)
from ndcg_spark.core.distances import Vectors, WordArray, bit_counts, pair_scores, vectors_of
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, offsets_of
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.retrieval.kernels import Pairs, best_items, near_pairs, screen_of, tied_counts
from ndcg_spark.retrieval.tasks import tables
from ndcg_spark.retrieval.tasks.tables import RetrievalTask

QUERY, SCORE, ITEM, RELEVANCE, COUNT = "query", "score", "item", "relevance", "n"


@dataclass(slots=True)
class Best:
    """The best of each query of a block.

    `kept` has, sorted, `query` (index in the block), `score`, `relevance`, and `item`, or `n` if tied items are
    grouped. `kth` is the score of the K-th best of each query so far; -inf if there are fewer.
    """

    task: RetrievalTask
    n_queries: int
    kept: dict[str, Values] = field(default_factory=dict)
    kth: FloatArray = field(default_factory=lambda: np.zeros(0))
    _arrived: list[dict[str, Values]] = field(default_factory=list)
    _n_arrived: int = 0

    def __post_init__(self) -> None:
        self.kth = np.full(self.n_queries, -np.inf)

    def add(self, query: IntArray, score: FloatArray, relevance: FloatArray, other: Values) -> None:
        """Take scored pairs; `other` holds their items, or how many each stands for."""
        name = COUNT if self.task.groups_ties else ITEM
        self._arrived.append({QUERY: query, SCORE: score, RELEVANCE: relevance, name: other})
        self._n_arrived += len(query)
        n_kept = len(self.kept[QUERY]) if self.kept else 0
        if self._n_arrived > max(self.task.settings.held_pairs // 8, n_kept // 2):
            self.merge()

    def merge(self) -> None:
        """Cut new and kept pairs to the best."""
        parts = [*([self.kept] if self.kept else []), *self._arrived]
        self._arrived, self._n_arrived = [], 0
        if not parts:
            return
        found = {name: _joined([part[name] for part in parts]) for name in parts[0]}
        query, score, relevance = (np.asarray(found[name]) for name in (QUERY, SCORE, RELEVANCE))
        k = self.task.k
        if self.task.groups_ties:
            counted = tied_counts(query, score, relevance, np.asarray(found[COUNT]), k, self.n_queries)
            self.kept = dict(zip((QUERY, SCORE, RELEVANCE, COUNT), counted, strict=True))
        else:
            items = item_order(found[ITEM])
            order = best_items(query, score, -items if self.task.items_fall else items, k, self.n_queries)
            self.kept = {name: take_values(values, order) for name, values in found.items()}
        self._find_kth()

    def _find_kth(self) -> None:
        """Read the score of the K-th best: the lowest that is kept, if K are."""
        if self.task.k is None:
            return
        query = np.asarray(self.kept[QUERY])
        many = np.asarray(self.kept[COUNT]) if self.task.groups_ties else np.ones(len(query), dtype=np.int64)
        totals = np.bincount(query, weights=many, minlength=self.n_queries)
        ends = np.cumsum(np.bincount(query, minlength=self.n_queries))
        full = totals >= self.task.k
        self.kth[full] = np.asarray(self.kept[SCORE])[ends[full] - 1]

    def entries(self) -> Entries:
        """Return the best of all queries, end to end: `score`, `relevance`, and `item` or `n`."""
        self.merge()
        if not self.kept:
            numbers, whole = np.zeros(0), np.zeros(0, dtype=np.int64)
            name = COUNT if self.task.groups_ties else ITEM
            empty: dict[str, Values] = {SCORE: numbers, RELEVANCE: numbers, name: whole}
            return Entries(empty, np.zeros(self.n_queries + 1, dtype=np.int64))
        lengths = np.bincount(np.asarray(self.kept[QUERY]), minlength=self.n_queries)
        columns = {name: values for name, values in self.kept.items() if name != QUERY}
        return Entries(columns, offsets_of(lengths))


def item_order(items: Values) -> IntArray:
    """Whole numbers in the order of items: numbers by value, texts by bytes."""
    if isinstance(items, np.ndarray):
        return items.astype(np.int64, copy=False)
    if pa.types.is_integer(items.type):
        return np.asarray(items.to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.asarray(pc.rank(items, sort_keys="ascending", tiebreaker="dense").to_numpy(), dtype=np.int64)


def _joined(parts: Sequence[Values]) -> Values:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    arrays = [pa.array(part) for part in parts]
    return pa.concat_arrays([one.cast(arrays[0].type) for one in arrays])


_AT_ONCE = 2**21
"""Pairs of label patterns that are compared at once."""


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Queries that are searched at once; relevances are from 0 to `n_levels` - 1."""

    rows: pa.RecordBatch
    vectors: Vectors
    n_levels: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def query_block(rows: pa.RecordBatch, task: RetrievalTask) -> QueryBlock:
    """Read a block of packed queries. Raise for a query that comes twice."""
    counted = pc.value_counts(rows.column(tables.ID))
    twice = np.flatnonzero(int_values(counted.field("counts")) > 1)
    if len(twice):
        found = value_at(counted.field("values"), int(twice[0]))
        raise InputRefusedError(f"a query comes twice: {task.settings.query}={found}. Each must have one row.")
    n_levels = tables.width_of(rows, tables.LABELS) + 1 if task.label_kind == "array" else 2
    return QueryBlock(rows, vectors_of(tables.matrix_in(rows, tables.VECTOR)), n_levels)


@dataclass(frozen=True, slots=True)
class ItemBlock:
    """Items next to a block of queries.

    `own_query` is the query that an item must not be found for, -1: none; it is None if no item is left out. `same`
    are codes, of queries and of items, that must agree. `labels`, of queries and of items, are bits in words, or
    codes of a value; None without relevance.
    """

    rows: pa.RecordBatch
    vectors: Vectors
    own_query: IntArray | None
    same: tuple[IntArray, IntArray] | None
    labels: tuple[NDArray[Any], NDArray[Any]] | None

    def blocked(self, rows: slice, columns: slice) -> BoolArray:
        """Pairs of a tile that a filter rules out."""
        found = np.zeros((rows.stop - rows.start, columns.stop - columns.start), dtype=np.bool_)
        if self.same is not None:
            found |= self.same[0][rows, None] != self.same[1][None, columns]
        if self.own_query is not None:
            own = self.own_query[columns]
            at = np.flatnonzero((own >= rows.start) & (own < rows.stop))
            found[own[at] - rows.start, at] = True
        return found

    @property
    def has_filters(self) -> bool:
        return self.same is not None or (self.own_query is not None and bool((self.own_query >= 0).any()))

    def relevance(self, queries: IntArray, items: IntArray) -> FloatArray:
        if self.labels is None:
            return np.zeros(len(queries))
        return _shared(self.labels[0][queries], self.labels[1][items]).astype(np.float64)

    def level_counts(self, n_queries: int, n_levels: int) -> IntArray:
        """Count the items of each relevance that a query may find, by pattern of labels instead of by item."""
        counts = np.zeros((n_queries, n_levels), dtype=np.int64)
        if self.labels is None:
            return counts
        nothing = tuple(np.zeros(len(one), dtype=np.int64) for one in self.labels)
        same = self.same or (nothing[0], nothing[1])
        (of_query, place, _), (of_item, _, many) = (
            _patterns(labels, codes) for labels, codes in zip(self.labels, same, strict=True)
        )
        by_pattern = np.zeros((len(of_query), n_levels), dtype=np.int64)
        step = max(1, _AT_ONCE // max(1, len(of_query) * of_query.shape[1]))
        for start in range(0, len(of_item), step):
            part, weight = of_item[start : start + step], many[start : start + step]
            level = _shared(of_query[:, None, 1:], part[None, :, 1:], values=self.labels[0].ndim == 1)
            level = np.where(of_query[:, None, 0] == part[None, :, 0], level, -1)
            for one in range(int(level.max(initial=-1)) + 1):
                by_pattern[:, one] += (level == one) @ weight
        counts += by_pattern[place]
        if self.own_query is not None:
            self._take_own(counts, self.own_query, same)
        return counts

    def _take_own(self, counts: IntArray, own_query: IntArray, same: tuple[IntArray, IntArray]) -> None:
        item = np.flatnonzero(own_query >= 0)
        query = own_query[item]
        counted = same[0][query] == same[1][item]
        item, query = item[counted], query[counted]
        np.subtract.at(counts, (query, self.relevance(query, item).astype(np.int64)), 1)


def item_block(rows: pa.RecordBatch, queries: QueryBlock, task: RetrievalTask) -> ItemBlock:
    """Read a block of packed items. Raise if vectors or labels differ in length from those of the queries."""
    tables.require_one_width(tables.VECTOR, queries.rows, rows)
    own_query = same = labels = None
    if task.settings.exclude_self:
        own_query = _places(rows.column(tables.ID), queries.rows.column(tables.ID))
    if task.settings.same is not None:
        same = _codes(queries.rows.column(tables.SAME), rows.column(tables.SAME))
    if task.label_kind == "array":
        tables.require_one_width(tables.LABELS, queries.rows, rows)
        labels = tables.matrix_in(queries.rows, tables.LABELS), tables.matrix_in(rows, tables.LABELS)
    elif task.label_kind == "value":
        labels = _codes(queries.rows.column(tables.LABELS), rows.column(tables.LABELS))
    return ItemBlock(rows, vectors_of(tables.matrix_in(rows, tables.VECTOR)), own_query, same, labels)


def _places(values: pa.Array, among: pa.Array) -> IntArray:
    """Index of each value in an array without repeats; -1 if it is absent."""
    if values.type != among.type:  # whole numbers of two sizes
        values, among = values.cast(pa.int64()), among.cast(pa.int64())
    return int_values(pc.fill_null(pc.index_in(values, value_set=among), -1))


def _codes(queries: pa.Array, items: pa.Array) -> tuple[IntArray, IntArray]:
    """Small whole numbers for values, equal for equal values; -1 for an item whose value no query has."""
    known = queries.unique()
    return _places(queries, known), _places(items, known)


def _shared(left: NDArray[Any], right: NDArray[Any], *, values: bool | None = None) -> NDArray[Any]:
    """Relevance: labels in common, or 1 for the same value."""
    if left.ndim == 1:
        return np.asarray(left == right)
    if values:
        return np.asarray((left == right)[..., 0]).astype(np.int64)
    both: WordArray = np.bitwise_and(left.view(np.uint64), right.view(np.uint64))
    return np.asarray(bit_counts(both).sum(axis=-1, dtype=np.int64))


def _patterns(labels: NDArray[Any], same: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct rows of (code, labels), the index of each row among them, and the count of each."""
    columns = [same, labels] if labels.ndim == 1 else [same, *labels.view(np.int64).T]
    matrix = np.column_stack(columns).astype(np.int64)
    found, place, many = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    return found, place.reshape(-1), many


QUERIES, ITEMS = range(2)
N_BLOCKS = b"n_blocks"
"""Metadata of a payload: number of blocks of queries."""


def send_rows(batches: Iterator[pa.RecordBatch], task: RetrievalTask, of_corpus: bool) -> Iterator[pa.RecordBatch]:
    """Pack canonical rows into batches of `EXCHANGE_SCHEMA`; the partition id is the cell."""
    held, n_blocks, sizes = list[pa.RecordBatch](), 1, (tables.N_QUERIES, tables.N_ITEMS)
    for batch in batches:
        if not batch.num_rows:
            continue
        n_blocks = task.n_blocks(*[batch.column(name)[0].as_py() for name in sizes])
        rows = plain_texts(batch.select([name for name in batch.schema.names if name not in sizes]))
        held.append(tables.packed_rows(rows, task, of_corpus=of_corpus))
        tables.require_one_width(tables.VECTOR, held[0], held[-1])
        n_rows, n_bytes = sum(one.num_rows for one in held), sum(one.nbytes for one in held)
        if n_rows >= task.sent_rows or n_bytes >= task.sent_bytes:
            yield from _messages(joined(held), n_blocks, task, of_corpus=of_corpus)
            held = []
    if held:
        yield from _messages(joined(held), n_blocks, task, of_corpus=of_corpus)


def _messages(
    rows: pa.RecordBatch, n_blocks: int, task: RetrievalTask, *, of_corpus: bool
) -> Iterator[pa.RecordBatch]:
    rows = rows.replace_schema_metadata({N_BLOCKS: str(n_blocks)})
    hashes, order = sorted_by_hash(column_hashes(rows.column(tables.ID)))
    rows = rows.take(pa.array(order))
    groups, first = np.unique(partition_of(hashes, task.settings.parts if of_corpus else n_blocks), return_index=True)
    bounds = [*first.tolist(), rows.num_rows]
    payloads = [to_bytes(rows.slice(start, stop - start)) for start, stop in pairwise(bounds)]
    if of_corpus:
        for block in range(n_blocks):
            yield message(block * task.settings.parts + groups, ITEMS, payloads)
    else:
        for stripe in range(task.settings.parts):
            yield message(groups * task.settings.parts + stripe, QUERIES, payloads)


LEVELS, BEST = "levels", "best"


def search_cells(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """Search cells, from and to batches of `EXCHANGE_SCHEMA`, sorted by cell and kind.

    Sent are the best of each query in this stripe, and how many of its items have each relevance. The partition id is
    a part of the block.
    """
    for arrived in arrivals(batches):
        sent, cell = list[pa.RecordBatch](), None
        for kind, rows in arrived:
            if kind == QUERIES:
                sent.append(rows)
            elif sent:  # else the stripe of a block that no query is in
                cell = cell or _Cell(sent, task)
                cell.add_items(rows)
        if sent:
            cell = cell or _Cell(sent, task)
            yield from cell.partials()


def arrivals(batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[tuple[int, pa.RecordBatch]]]:
    """Read an exchange: for each partition id, the kinds and batches that were sent."""

    def payloads() -> Iterator[tuple[int, int, pa.RecordBatch]]:
        for batch in batches:
            ids, kinds = batch.column("partition_id").to_pylist(), batch.column("kind").to_pylist()
            for number, kind, payload in zip(ids, kinds, batch.column("payload"), strict=True):
                for rows in from_bytes(payload.as_buffer()):
                    yield number, kind, rows

    for _, group in groupby(payloads(), key=itemgetter(0)):
        yield ((kind, rows) for _, kind, rows in group)


class _Cell:
    """A block of queries, the best of each so far, and the part of a stripe that has not been searched yet."""

    def __init__(self, queries: list[pa.RecordBatch], task: RetrievalTask) -> None:
        self.task, self.items = task, list[pa.RecordBatch]()
        self._refuse_widths(queries)
        self.block = query_block(joined(queries), task)
        self.best = Best(task, len(self.block))
        self.levels = np.zeros((len(self.block), self.block.n_levels), dtype=np.int64)

    def add_items(self, rows: pa.RecordBatch) -> None:
        """Hold items until they are a block, then search it."""
        self.items.append(rows)
        if sum(one.nbytes for one in self.items) >= self.task.settings.block_bytes:
            self._search_block()

    def partials(self) -> Iterator[pa.RecordBatch]:
        """Search the last items, and pack the best of each query."""
        if self.items:
            self._search_block()
        yield from partial_messages(self.block.rows, self.levels, self.best, self.task)

    def _refuse_widths(self, batches: list[pa.RecordBatch]) -> None:
        """Raise if batches of one table differ in the length of vectors or labels."""
        for name in (tables.VECTOR, tables.LABELS) if self.task.label_kind == "array" else (tables.VECTOR,):
            tables.require_one_width(name, *batches)

    def _search_block(self) -> None:
        self._refuse_widths(self.items)
        items = item_block(joined(self.items), self.block, self.task)
        self.items = []
        if self.task.evaluation is not None:
            self.levels += items.level_counts(len(self.block), self.block.n_levels)
        search_block(self.block, items, self.best, self.task)


def search_block(queries: QueryBlock, items: ItemBlock, best: Best, task: RetrievalTask) -> None:
    """Add to `best` the items of a block that may be among the best of their queries."""
    screen = screen_of(task.settings.metric, queries.vectors, items.vectors)
    floor = np.full(len(queries), -np.inf)

    def raise_floor() -> None:
        known = np.isfinite(best.kth)
        values = screen.of_scores(np.where(known, best.kth, 0.0)) - 2 * screen.margin
        np.maximum(floor, np.where(known, values, -np.inf), out=floor)

    raise_floor()
    blocked = items.blocked if items.has_filters else None
    most = max(task.settings.held_pairs, 3 * len(queries) * (task.k or 0)) if task.k else task.settings.held_pairs
    for pairs in near_pairs(screen, task.k, floor, blocked=blocked, most_pairs=most):
        _add_pairs(pairs, queries, items, best, task)
        raise_floor()


def _add_pairs(pairs: Pairs, queries: QueryBlock, items: ItemBlock, best: Best, task: RetrievalTask) -> None:
    """Score pairs exactly and add them, in parts of `held_pairs`."""
    for start in range(0, len(pairs[0]), task.settings.held_pairs):
        query, item = (one[start : start + task.settings.held_pairs] for one in pairs)
        score = pair_scores(task.settings.metric, queries.vectors, items.vectors, query, item)
        if task.evaluation is not None and task.evaluation.score_precision == "float32":
            score = score.astype(np.float32).astype(np.float64)
        possible = score >= best.kth[query]
        query, item, score = query[possible], item[possible], score[possible]
        relevance = items.relevance(query, item)
        if not task.groups_ties:
            best.add(query, score, relevance, items.rows.column(tables.ID).take(pa.array(item)))
        elif task.settings.metric == "hamming":
            best.add(*_counted(query, score, relevance, queries.n_levels))
        else:
            best.add(query, score, relevance, np.ones(len(query), dtype=np.int64))


def _counted(
    query: IntArray, score: FloatArray, relevance: FloatArray, n_levels: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Count pairs with one query, distance and relevance, by one sort of whole numbers."""
    n_distances = int(-score.min(initial=0.0)) + 1
    keys = (query * n_distances - score.astype(np.int64)) * n_levels + relevance.astype(np.int64)
    keys, counts = np.unique(keys, return_counts=True)
    rest, level = np.divmod(keys, n_levels)
    found, distance = np.divmod(rest, n_distances)
    return found, -distance.astype(np.float64) + 0.0, level.astype(np.float64), counts.astype(np.int64)


def partial_messages(
    rows: pa.RecordBatch, levels: IntArray, best: Best, task: RetrievalTask
) -> Iterator[pa.RecordBatch]:
    """Pack the best of a block, by the part of the block that its queries are in."""
    n_ids = int(rows.schema.metadata[N_BLOCKS]) * tables.SUB_BLOCKS
    hashes, order = sorted_by_hash(column_hashes(rows.column(tables.ID)))
    ids, first = np.unique(partition_of(hashes, n_ids), return_index=True)
    bounds = [*first.tolist(), len(order)]
    entries = best.entries()
    heads = rows.select([tables.ID, *(name for name in rows.schema.names if name in task.carried)])
    for at, number in enumerate(ids.tolist()):
        queries = order[bounds[at] : bounds[at + 1]]
        head = taken(heads, queries)
        columns = {name: head.column(name) for name in head.schema.names}
        of_level = levels[queries]
        ends = np.arange(len(queries) + 1, dtype=np.int64) * of_level.shape[1]
        columns[LEVELS] = list_column(pa.array(of_level.reshape(-1)), ends)
        columns |= entry_columns(entries.of_queries(queries), BEST)
        yield message([number], QUERIES, [to_bytes(pa.RecordBatch.from_pydict(columns))])
