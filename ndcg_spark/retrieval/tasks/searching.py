"""What arrives in a cell: a block of queries, then a stripe of the corpus. Out go the best of the stripe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function, from_bytes, joined, message, taken, to_bytes
from ndcg_spark.core.distances import pair_scores
from ndcg_spark.core.entries import entry_columns, list_column
from ndcg_spark.core.hashing import column_hashes, partition_of, sorted_by_hash
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.retrieval.kernels.screening import Pairs, near_pairs, screen_of
from ndcg_spark.retrieval.tasks.best import Best
from ndcg_spark.retrieval.tasks.blocks import ItemBlock, QueryBlock, item_block, query_block
from ndcg_spark.retrieval.tasks.sending import N_BLOCKS, QUERIES
from ndcg_spark.retrieval.tasks.tables import refuse_widths, width_of
from ndcg_spark.retrieval.tasks.task import ID, LABELS, SUB_BLOCKS, VECTOR, RetrievalTask

LEVELS, BEST = "levels", "best"


def make_searcher(task: RetrievalTask) -> BatchFunction:
    """Build the function that searches cells.

    From batches of `EXCHANGE_SCHEMA`, sorted by cell and kind, to batches of the same schema: the best of each query
    in this stripe, and how many of its items have each relevance. The partition id is a part of the block.
    """
    return batch_function(lambda batches: _search(batches, task))


def arrivals(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Read the payloads of an exchange one by one: partition id, kind, and the batch that was sent."""
    for batch in batches:
        ids, kinds = batch.column("partition_id").to_pylist(), batch.column("kind").to_pylist()
        for number, kind, payload in zip(ids, kinds, batch.column("payload"), strict=True):
            for found in from_bytes(payload.as_buffer()):
                yield number, kind, found


def _search(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    cell, current = None, _Cell(task)
    for number, kind, rows in arrivals(batches):
        if number != cell:
            yield from current.partials()
            cell, current = number, _Cell(task)
        if kind == QUERIES:
            current.queries.append(rows)
        else:
            current.add_items(rows)
    yield from current.partials()


@dataclass(slots=True)
class _Cell:
    """A block of queries, and the part of a stripe that has not been searched yet."""

    task: RetrievalTask
    queries: list[pa.RecordBatch] = field(default_factory=list)
    items: list[pa.RecordBatch] = field(default_factory=list)
    block: QueryBlock | None = None
    best: Best | None = None
    levels: IntArray | None = None

    def add_items(self, rows: pa.RecordBatch) -> None:
        """Hold items until they are a block, then search it."""
        if not self.queries:
            return  # the stripe of a block that no query is in
        self.items.append(rows)
        if sum(one.nbytes for one in self.items) >= self.task.settings.block_bytes:
            self._search_block()

    def partials(self) -> Iterator[pa.RecordBatch]:
        """Search what is left, and give the best of each query."""
        if not self.queries:
            return
        self._search_block()
        if self.block is None or self.best is None or self.levels is None:
            raise ValueError("a cell without queries was searched")
        yield from partial_messages(self.block.rows, self.levels, self.best, self.task)

    def _refuse_widths(self, batches: list[pa.RecordBatch]) -> None:
        """Raise where batches of one table differ in the length of vectors or labels."""
        for name in (VECTOR, LABELS) if self.task.label_kind == "array" else (VECTOR,):
            widths = [width_of(one, name) for one in batches]
            refuse_widths(name, min(widths), max(widths))

    def _search_block(self) -> None:
        if self.block is None:
            self._refuse_widths(self.queries)
            self.block = query_block(joined(self.queries), self.task)
            self.best = Best(self.task, len(self.block))
            self.levels = np.zeros((len(self.block), self.block.n_levels), dtype=np.int64)
        if not self.items or self.best is None or self.levels is None:
            return
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
    """Score pairs exactly and add them, some at a time."""
    for start in range(0, len(pairs[0]), task.settings.held_pairs):
        query, item = (one[start : start + task.settings.held_pairs] for one in pairs)
        score = pair_scores(task.settings.metric, queries.vectors, items.vectors, query, item)
        if task.evaluation is not None and task.evaluation.score_precision == "float32":
            score = score.astype(np.float32).astype(np.float64)
        possible = score >= best.kth[query]
        query, item, score = query[possible], item[possible], score[possible]
        relevance = items.relevance(query, item)
        if not task.groups_ties:
            best.add(query, score, relevance, items.rows.column(ID).take(pa.array(item)))
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
    n_ids = int(rows.schema.metadata[N_BLOCKS]) * SUB_BLOCKS
    hashes, order = sorted_by_hash(column_hashes(rows.column(ID)))
    ids, first = np.unique(partition_of(hashes, n_ids), return_index=True)
    bounds = [*first.tolist(), len(order)]
    entries = best.entries()
    heads = rows.select([ID, *(name for name in rows.schema.names if name in task.carried)])
    for at, number in enumerate(ids.tolist()):
        queries = order[bounds[at] : bounds[at + 1]]
        head = taken(heads, queries)
        columns = {name: head.column(name) for name in head.schema.names}
        of_level = levels[queries]
        ends = np.arange(len(queries) + 1, dtype=np.int64) * of_level.shape[1]
        columns[LEVELS] = list_column(pa.array(of_level.reshape(-1)), ends)
        columns |= entry_columns(entries.of_queries(queries), BEST)
        yield message([number], QUERIES, [to_bytes(pa.RecordBatch.from_pydict(columns))])
