"""Search blocks of the corpus for blocks of queries; keep the best items, or counts per score and relevance."""

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
    assign_partitions,
    cast_large_types,
    concat_batches,
    entries_to_columns,
    from_bytes,
    get_value,
    hash_column,
    int_values,
    list_column,
    make_message,
    sort_by_hash,
    take_rows,
    take_values,
    to_bytes,
)
from ndcg_spark.core.distances import Vectors, WordArray, count_bits, make_vectors, score_pairs
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, to_offsets
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.tasks.partial_ranking import rank_values
from ndcg_spark.retrieval.kernels import Pairs, build_screen, count_ties, find_candidates, select_best_items
from ndcg_spark.retrieval.tasks import tables
from ndcg_spark.retrieval.tasks.tables import RetrievalTask

QUERY, SCORE, ITEM, RELEVANCE, COUNT = "query", "score", "item", "relevance", "n"


@dataclass(slots=True)
class BestItems:
    """The best items of each query of a block.

    `columns` are sorted: `query` (index in the block), `score`, `relevance`, and `item`, or `n` if tied items are
    grouped. `kth` is the score of the K-th best item of each query so far; -inf if there are fewer.
    """

    task: RetrievalTask
    n_queries: int
    columns: dict[str, Values] = field(default_factory=dict)
    kth: FloatArray = field(default_factory=lambda: np.zeros(0))
    _pending: list[dict[str, Values]] = field(default_factory=list)
    _n_pending: int = 0

    def __post_init__(self) -> None:
        self.kth = np.full(self.n_queries, -np.inf)

    def add(self, query: IntArray, score: FloatArray, relevance: FloatArray, items_or_counts: Values) -> None:
        """Add scored pairs. `items_or_counts` holds their items, or the number of items of each pair."""
        name = COUNT if self.task.groups_ties else ITEM
        self._pending.append({QUERY: query, SCORE: score, RELEVANCE: relevance, name: items_or_counts})
        self._n_pending += len(query)
        n_kept = len(self.columns[QUERY]) if self.columns else 0
        if self._n_pending > max(self.task.settings.held_pairs // 8, n_kept // 2):
            self.merge()

    def merge(self) -> None:
        """Reduce new and kept pairs to the best."""
        pair_sets = [*([self.columns] if self.columns else []), *self._pending]
        self._pending, self._n_pending = [], 0
        if not pair_sets:
            return
        merged = {column: _concat([pairs[column] for pairs in pair_sets]) for column in pair_sets[0]}
        query, score, relevance = (np.asarray(merged[column]) for column in (QUERY, SCORE, RELEVANCE))
        k = self.task.k
        if self.task.groups_ties:
            tied = count_ties(query, score, relevance, np.asarray(merged[COUNT]), k, self.n_queries)
            self.columns = dict(zip((QUERY, SCORE, RELEVANCE, COUNT), tied, strict=True))
        else:
            items = rank_values(merged[ITEM])
            order = select_best_items(query, score, -items if self.task.items_fall else items, k, self.n_queries)
            self.columns = {column: take_values(values, order) for column, values in merged.items()}
        self._find_kth()

    def _find_kth(self) -> None:
        """Set `kth` to the lowest score that is kept, for queries with at least K items."""
        if self.task.k is None:
            return
        query = np.asarray(self.columns[QUERY])
        counts = np.asarray(self.columns[COUNT]) if self.task.groups_ties else np.ones(len(query), dtype=np.int64)
        totals = np.bincount(query, weights=counts, minlength=self.n_queries)
        ends = np.cumsum(np.bincount(query, minlength=self.n_queries))
        has_k = totals >= self.task.k
        self.kth[has_k] = np.asarray(self.columns[SCORE])[ends[has_k] - 1]

    def list_entries(self) -> Entries:
        """Return the best items of all queries, end to end: `score`, `relevance`, and `item` or `n`."""
        self.merge()
        if not self.columns:
            numbers, integers = np.zeros(0), np.zeros(0, dtype=np.int64)
            column = COUNT if self.task.groups_ties else ITEM
            empty: dict[str, Values] = {SCORE: numbers, RELEVANCE: numbers, column: integers}
            return Entries(empty, np.zeros(self.n_queries + 1, dtype=np.int64))
        lengths = np.bincount(np.asarray(self.columns[QUERY]), minlength=self.n_queries)
        columns = {column: values for column, values in self.columns.items() if column != QUERY}
        return Entries(columns, to_offsets(lengths))


def _concat(chunks: Sequence[Values]) -> Values:
    if all(isinstance(chunk, np.ndarray) for chunk in chunks):
        return np.concatenate(chunks)
    arrays = [pa.array(chunk) for chunk in chunks]
    return pa.concat_arrays([array.cast(arrays[0].type) for array in arrays])


_MAX_PATTERN_PAIRS = 2**21
"""Pairs of label patterns that are compared at once."""


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Queries that are searched together. Relevances are from 0 to `n_levels` - 1."""

    rows: pa.RecordBatch
    vectors: Vectors
    n_levels: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def read_query_block(rows: pa.RecordBatch, task: RetrievalTask) -> QueryBlock:
    """Read a block of packed queries. Raise for a repeated query."""
    counted = pc.value_counts(rows.column(tables.ID))
    repeated = np.flatnonzero(int_values(counted.field("counts")) > 1)
    if len(repeated):
        query = get_value(counted.field("values"), int(repeated[0]))
        raise InputRefusedError(f"a query appears twice: {task.settings.query}={query}. Each must have one row.")
    n_levels = tables.read_width(rows, tables.LABELS) + 1 if task.label_kind == "array" else 2
    return QueryBlock(rows, make_vectors(tables.read_matrix(rows, tables.VECTOR)), n_levels)


@dataclass(frozen=True, slots=True)
class ItemBlock:
    """Items that are searched for a block of queries.

    `own_query` is the query for which an item is excluded (-1: none); None without `exclude_self`. `same` are codes
    of queries and of items that must agree. `labels`, of queries and of items, are bits in words, or codes of a
    value; None without relevance.
    """

    rows: pa.RecordBatch
    vectors: Vectors
    own_query: IntArray | None
    same: tuple[IntArray, IntArray] | None
    labels: tuple[NDArray[Any], NDArray[Any]] | None

    def find_blocked(self, rows: slice, columns: slice) -> BoolArray:
        """Return the mask of the pairs of a tile that a filter excludes."""
        is_blocked = np.zeros((rows.stop - rows.start, columns.stop - columns.start), dtype=np.bool_)
        if self.same is not None:
            is_blocked |= self.same[0][rows, None] != self.same[1][None, columns]
        if self.own_query is not None:
            own_query = self.own_query[columns]
            indices = np.flatnonzero((own_query >= rows.start) & (own_query < rows.stop))
            is_blocked[own_query[indices] - rows.start, indices] = True
        return is_blocked

    @property
    def has_filters(self) -> bool:
        return self.same is not None or (self.own_query is not None and bool((self.own_query >= 0).any()))

    def compute_relevance(self, queries: IntArray, items: IntArray) -> FloatArray:
        if self.labels is None:
            return np.zeros(len(queries))
        return _count_shared(self.labels[0][queries], self.labels[1][items]).astype(np.float64)

    def count_levels(self, n_queries: int, n_levels: int) -> IntArray:
        """Count the allowed items of each relevance for each query, by pattern of labels instead of by item."""
        counts = np.zeros((n_queries, n_levels), dtype=np.int64)
        if self.labels is None:
            return counts
        no_codes = tuple(np.zeros(len(labels), dtype=np.int64) for labels in self.labels)
        same = self.same or (no_codes[0], no_codes[1])
        (query_patterns, pattern_of_query, _), (item_patterns, _, n_items) = (
            _count_patterns(labels, codes) for labels, codes in zip(self.labels, same, strict=True)
        )
        by_pattern = np.zeros((len(query_patterns), n_levels), dtype=np.int64)
        step = max(1, _MAX_PATTERN_PAIRS // max(1, len(query_patterns) * query_patterns.shape[1]))
        for start in range(0, len(item_patterns), step):
            some_patterns, weight = item_patterns[start : start + step], n_items[start : start + step]
            level = _count_shared(
                query_patterns[:, None, 1:], some_patterns[None, :, 1:], values=self.labels[0].ndim == 1
            )
            level = np.where(query_patterns[:, None, 0] == some_patterns[None, :, 0], level, -1)
            for number in range(int(level.max(initial=-1)) + 1):
                by_pattern[:, number] += (level == number) @ weight
        counts += by_pattern[pattern_of_query]
        if self.own_query is not None:
            self._subtract_own(counts, self.own_query, same)
        return counts

    def _subtract_own(self, counts: IntArray, own_query: IntArray, same: tuple[IntArray, IntArray]) -> None:
        item = np.flatnonzero(own_query >= 0)
        query = own_query[item]
        agrees = same[0][query] == same[1][item]
        item, query = item[agrees], query[agrees]
        np.subtract.at(counts, (query, self.compute_relevance(query, item).astype(np.int64)), 1)


def read_item_block(rows: pa.RecordBatch, queries: QueryBlock, task: RetrievalTask) -> ItemBlock:
    """Read a block of packed items. Raise if vectors or labels differ in length from those of the queries."""
    tables.require_one_width(tables.VECTOR, queries.rows, rows)
    own_query = same = labels = None
    if task.settings.exclude_self:
        own_query = _find_places(rows.column(tables.ID), queries.rows.column(tables.ID))
    if task.settings.same is not None:
        same = _encode_values(queries.rows.column(tables.SAME), rows.column(tables.SAME))
    if task.label_kind == "array":
        tables.require_one_width(tables.LABELS, queries.rows, rows)
        labels = tables.read_matrix(queries.rows, tables.LABELS), tables.read_matrix(rows, tables.LABELS)
    elif task.label_kind == "value":
        labels = _encode_values(queries.rows.column(tables.LABELS), rows.column(tables.LABELS))
    return ItemBlock(rows, make_vectors(tables.read_matrix(rows, tables.VECTOR)), own_query, same, labels)


def _find_places(values: pa.Array, distinct: pa.Array) -> IntArray:
    """Return the index of each value in an array of distinct values; -1 if it is absent."""
    if values.type != distinct.type:  # whole numbers of two sizes
        values, distinct = values.cast(pa.int64()), distinct.cast(pa.int64())
    return int_values(pc.fill_null(pc.index_in(values, value_set=distinct), -1))


def _encode_values(queries: pa.Array, items: pa.Array) -> tuple[IntArray, IntArray]:
    """Encode values as small whole numbers, equal for equal values; -1 for an item whose value no query has."""
    distinct = queries.unique()
    return _find_places(queries, distinct), _find_places(items, distinct)


def _count_shared(left: NDArray[Any], right: NDArray[Any], *, values: bool | None = None) -> NDArray[Any]:
    """Return the relevance: the number of labels in common, or 1 for the same value."""
    if left.ndim == 1:
        return np.asarray(left == right)
    if values:
        return np.asarray((left == right)[..., 0]).astype(np.int64)
    common: WordArray = np.bitwise_and(left.view(np.uint64), right.view(np.uint64))
    return np.asarray(count_bits(common).sum(axis=-1, dtype=np.int64))


def _count_patterns(labels: NDArray[Any], same: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the distinct rows of (code, labels), the index of each row among them, and the count of each."""
    columns = [same, labels] if labels.ndim == 1 else [same, *labels.view(np.int64).T]
    matrix = np.column_stack(columns).astype(np.int64)
    patterns, pattern_of_row, counts = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    return patterns, pattern_of_row.reshape(-1), counts


QUERIES, ITEMS = range(2)
N_BLOCKS = b"n_blocks"
"""Key in the metadata of a payload: the number of blocks of queries."""


def send_rows(batches: Iterator[pa.RecordBatch], task: RetrievalTask, of_corpus: bool) -> Iterator[pa.RecordBatch]:
    """Pack canonical rows into batches of `EXCHANGE_SCHEMA`; the partition id is the cell."""
    pending, n_blocks, sizes = list[pa.RecordBatch](), 1, (tables.N_QUERIES, tables.N_ITEMS)
    for batch in batches:
        if not batch.num_rows:
            continue
        n_blocks = task.n_blocks(*[batch.column(column)[0].as_py() for column in sizes])
        rows = cast_large_types(batch.select([column for column in batch.schema.names if column not in sizes]))
        pending.append(tables.pack_rows(rows, task, of_corpus=of_corpus))
        tables.require_one_width(tables.VECTOR, pending[0], pending[-1])
        n_rows, n_bytes = sum(packed.num_rows for packed in pending), sum(packed.nbytes for packed in pending)
        if n_rows >= task.sent_rows or n_bytes >= task.sent_bytes:
            yield from _build_messages(concat_batches(pending), n_blocks, task, of_corpus=of_corpus)
            pending = []
    if pending:
        yield from _build_messages(concat_batches(pending), n_blocks, task, of_corpus=of_corpus)


def _build_messages(
    rows: pa.RecordBatch, n_blocks: int, task: RetrievalTask, *, of_corpus: bool
) -> Iterator[pa.RecordBatch]:
    rows = rows.replace_schema_metadata({N_BLOCKS: str(n_blocks)})
    hashes, order = sort_by_hash(hash_column(rows.column(tables.ID)))
    rows = rows.take(pa.array(order))
    groups, first = np.unique(
        assign_partitions(hashes, task.settings.parts if of_corpus else n_blocks), return_index=True
    )
    bounds = [*first.tolist(), rows.num_rows]
    payloads = [to_bytes(rows.slice(start, stop - start)) for start, stop in pairwise(bounds)]
    if of_corpus:
        for block in range(n_blocks):
            yield make_message(block * task.settings.parts + groups, ITEMS, payloads)
    else:
        for stripe in range(task.settings.parts):
            yield make_message(groups * task.settings.parts + stripe, QUERIES, payloads)


LEVELS, BEST = "levels", "best"


def search_cells(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """Search cells, from and to batches of `EXCHANGE_SCHEMA`, sorted by cell and kind.

    Send the best items of each query in this stripe, and the number of its items with each relevance. The partition
    id is a part of the block.
    """
    for payloads in read_arrivals(batches):
        query_batches, cell = list[pa.RecordBatch](), None
        for kind, rows in payloads:
            if kind == QUERIES:
                query_batches.append(rows)
            elif query_batches:  # a block without queries needs no search
                cell = cell or _Cell(query_batches, task)
                cell.add_items(rows)
        if query_batches:
            cell = cell or _Cell(query_batches, task)
            yield from cell.pack_partials()


def read_arrivals(batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[tuple[int, pa.RecordBatch]]]:
    """Read an exchange: yield for each partition id the kinds and batches that were sent."""

    def payloads() -> Iterator[tuple[int, int, pa.RecordBatch]]:
        for batch in batches:
            ids, kinds = batch.column("partition_id").to_pylist(), batch.column("kind").to_pylist()
            for number, kind, payload in zip(ids, kinds, batch.column("payload"), strict=True):
                for rows in from_bytes(payload.as_buffer()):
                    yield number, kind, rows

    for _, group in groupby(payloads(), key=itemgetter(0)):
        yield ((kind, rows) for _, kind, rows in group)


class _Cell:
    """A block of queries, their best items so far, and the items of a stripe that have not been searched yet."""

    def __init__(self, queries: list[pa.RecordBatch], task: RetrievalTask) -> None:
        self.task, self.items = task, list[pa.RecordBatch]()
        self._refuse_widths(queries)
        self.block = read_query_block(concat_batches(queries), task)
        self.best = BestItems(task, len(self.block))
        self.levels = np.zeros((len(self.block), self.block.n_levels), dtype=np.int64)

    def add_items(self, rows: pa.RecordBatch) -> None:
        """Collect items, and search them once they fill a block."""
        self.items.append(rows)
        if sum(batch.nbytes for batch in self.items) >= self.task.settings.block_bytes:
            self._search_block()

    def pack_partials(self) -> Iterator[pa.RecordBatch]:
        """Search the remaining items, and pack the best of each query."""
        if self.items:
            self._search_block()
        yield from pack_best(self.block.rows, self.levels, self.best, self.task)

    def _refuse_widths(self, batches: list[pa.RecordBatch]) -> None:
        """Raise if batches of one table differ in the length of vectors or labels."""
        for column in (tables.VECTOR, tables.LABELS) if self.task.label_kind == "array" else (tables.VECTOR,):
            tables.require_one_width(column, *batches)

    def _search_block(self) -> None:
        self._refuse_widths(self.items)
        items = read_item_block(concat_batches(self.items), self.block, self.task)
        self.items = []
        if self.task.evaluation is not None:
            self.levels += items.count_levels(len(self.block), self.block.n_levels)
        search_block(self.block, items, self.best, self.task)


def search_block(queries: QueryBlock, items: ItemBlock, best: BestItems, task: RetrievalTask) -> None:
    """Add to `best` the items of a block that may be among the best of their queries."""
    screen = build_screen(task.settings.metric, queries.vectors, items.vectors)
    floor = np.full(len(queries), -np.inf)

    def raise_floor() -> None:
        is_known = np.isfinite(best.kth)
        values = screen.convert_scores(np.where(is_known, best.kth, 0.0)) - 2 * screen.margin
        np.maximum(floor, np.where(is_known, values, -np.inf), out=floor)

    raise_floor()
    blocked = items.find_blocked if items.has_filters else None
    max_pairs = (
        max(task.settings.held_pairs, 3 * len(queries) * (task.k or 0)) if task.k else task.settings.held_pairs
    )
    for pairs in find_candidates(screen, task.k, floor, blocked=blocked, max_pairs=max_pairs):
        _add_pairs(pairs, queries, items, best, task)
        raise_floor()


def _add_pairs(pairs: Pairs, queries: QueryBlock, items: ItemBlock, best: BestItems, task: RetrievalTask) -> None:
    """Score pairs exactly and add them, in chunks of `held_pairs`."""
    for start in range(0, len(pairs[0]), task.settings.held_pairs):
        query, item = (numbers[start : start + task.settings.held_pairs] for numbers in pairs)
        score = score_pairs(task.settings.metric, queries.vectors, items.vectors, query, item)
        if task.evaluation is not None and task.evaluation.score_precision == "float32":
            score = score.astype(np.float32).astype(np.float64)
        possible = score >= best.kth[query]
        query, item, score = query[possible], item[possible], score[possible]
        relevance = items.compute_relevance(query, item)
        if not task.groups_ties:
            best.add(query, score, relevance, take_values(items.rows.column(tables.ID), item))
        elif task.settings.metric == "hamming":
            best.add(*_count_pairs(query, score, relevance, queries.n_levels))
        else:
            best.add(query, score, relevance, np.ones(len(query), dtype=np.int64))


def _count_pairs(
    query: IntArray, score: FloatArray, relevance: FloatArray, n_levels: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Count pairs with the same query, distance and relevance, with one sort of whole numbers."""
    n_distances = int(-score.min(initial=0.0)) + 1
    keys = (query * n_distances - score.astype(np.int64)) * n_levels + relevance.astype(np.int64)
    keys, counts = np.unique(keys, return_counts=True)
    rest, level = np.divmod(keys, n_levels)
    queries, distance = np.divmod(rest, n_distances)
    return queries, -distance.astype(np.float64) + 0.0, level.astype(np.float64), counts.astype(np.int64)


def pack_best(
    rows: pa.RecordBatch, levels: IntArray, best: BestItems, task: RetrievalTask
) -> Iterator[pa.RecordBatch]:
    """Pack the best items of a block, one message for each part of the block."""
    n_ids = int(rows.schema.metadata[N_BLOCKS]) * tables.SUB_BLOCKS
    hashes, order = sort_by_hash(hash_column(rows.column(tables.ID)))
    ids, first = np.unique(assign_partitions(hashes, n_ids), return_index=True)
    bounds = [*first.tolist(), len(order)]
    entries = best.list_entries()
    query_rows = rows.select([tables.ID, *(name for name in rows.schema.names if name in task.carried)])
    for place, number in enumerate(ids.tolist()):
        queries = order[bounds[place] : bounds[place + 1]]
        selected = take_rows(query_rows, queries)
        columns = {name: selected.column(name) for name in selected.schema.names}
        level_counts = levels[queries]
        ends = np.arange(len(queries) + 1, dtype=np.int64) * level_counts.shape[1]
        columns[LEVELS] = list_column(pa.array(level_counts.reshape(-1)), ends)
        columns |= entries_to_columns(entries.select_queries(queries), BEST)
        yield make_message([number], QUERIES, [to_bytes(pa.RecordBatch.from_pydict(columns))])
