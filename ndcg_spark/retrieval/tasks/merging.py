"""The best of all blocks of a query as rows or rankings, and the relevance of what was found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import gain_function
from ndcg_spark.core.batches import (
    Entries,
    entries_in,
    int_values,
    joined,
    list_column,
    list_offsets,
    lists_of_counts,
    value_at,
)
from ndcg_spark.core.ragged import FloatArray, IntArray, lengths_of, offsets_of, query_of_rows, rank_of_rows, repeats
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.retrieval.tasks import searching
from ndcg_spark.retrieval.tasks.searching import QueryBlock, arrivals, item_block, item_order, query_block
from ndcg_spark.retrieval.tasks.tables import ID, RetrievalTask

_ENTRIES = 2**18
"""Of the rankings in a batch."""


def merge_cells(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """Merge the partial results of each query, from batches of `EXCHANGE_SCHEMA`, sorted by partition id.

    The result has rows (query, item, score, rank, relevance) or, for an evaluation, rankings as
    `evaluation.tasks.scoring` reads them.
    """
    for arrived in arrivals(batches):
        yield from _answers([rows for _, rows in arrived], task)


def _answers(held: list[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """Merge the partial results of the queries of one partition id."""
    ids = pa.concat_arrays([batch.column(ID) for batch in held])
    coded = ids.dictionary_encode()
    codes, n = int_values(coded.indices), len(coded.dictionary)
    first = np.full(n, len(codes), dtype=np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    carried = joined([batch.select([ID, *task.carried]) for batch in held]).take(pa.array(first))
    n_levels = max(int(lengths_of(list_offsets(batch.column(searching.LEVELS))).max(initial=0)) for batch in held)
    levels, best, done = np.zeros((n, n_levels), dtype=np.int64), searching.Best(task, n), 0
    for batch in held:
        code = codes[done : done + batch.num_rows]
        done += batch.num_rows
        counts = int_values(batch.column(searching.LEVELS).flatten()).reshape(batch.num_rows, n_levels)
        np.add.at(levels, code, counts)
        found = entries_in(batch, searching.BEST)
        if found is not None and found.offsets[-1]:
            query = code[query_of_rows(found.offsets)]
            other = found.columns[searching.COUNT if task.groups_ties else searching.ITEM]
            best.add(query, found.numbers(searching.SCORE), found.numbers(searching.RELEVANCE), other)
    entries = best.entries()
    if not task.groups_ties:
        _refuse_twice(carried.column(ID), entries, task)
    if task.evaluation is None:
        yield from _rows(carried, entries, task)
    else:
        yield from _rankings(carried, levels, entries, task, task.evaluation)


def _refuse_twice(ids: pa.Array, entries: Entries, task: RetrievalTask) -> None:
    twice = np.flatnonzero(repeats(item_order(entries.columns[searching.ITEM]), entries.offsets))
    if len(twice):
        query = value_at(ids, int(twice[0]))
        raise InputRefusedError(
            f"an item comes twice among those found for {task.settings.query}={query}: column {task.settings.item!r} "
            "of the corpus must have one row an item."
        )


def _rows(carried: pa.RecordBatch, entries: Entries, task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    if not entries.offsets[-1]:
        return
    items = pa.array(entries.columns[searching.ITEM])
    columns = {
        task.settings.query: carried.column(ID).take(pa.array(query_of_rows(entries.offsets))),
        task.settings.item: items.cast(task.item_type or items.type),
        "score": pa.array(entries.numbers(searching.SCORE)),
        "rank": pa.array((rank_of_rows(entries.offsets) + 1).astype(np.int32)),
    }
    if task.label_kind is not None:
        columns["relevance"] = pa.array(entries.numbers(searching.RELEVANCE))
    batch = pa.RecordBatch.from_pydict(columns)
    for start in range(0, batch.num_rows, _ENTRIES):
        yield batch.slice(start, _ENTRIES)


def _rankings(
    carried: pa.RecordBatch, levels: IntArray, entries: Entries, task: RetrievalTask, convention: Convention
) -> Iterator[pa.RecordBatch]:
    """Write rankings, in batches of some hundred thousand entries."""
    ideal_lengths = levels.sum(axis=1) if task.k is None else np.minimum(levels.sum(axis=1), task.k)
    sizes = np.cumsum(lengths_of(entries.offsets) + ideal_lengths)
    start = 0
    while start < len(sizes):
        before = sizes[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(sizes, before + _ENTRIES, side="right")))
        some = np.arange(start, stop)
        yield _ranking_batch(
            carried.slice(start, stop - start), levels[some], entries.of_queries(some), task, convention
        )
        start = stop


def _ranking_batch(
    carried: pa.RecordBatch, levels: IntArray, entries: Entries, task: RetrievalTask, convention: Convention
) -> pa.RecordBatch:
    n_items = levels.sum(axis=1)
    columns: dict[str, pa.Array] = {"run": pa.repeat(pa.scalar(task.settings.run), len(n_items))}
    columns[task.settings.query] = carried.column(ID)
    columns |= {"n_rows": pa.array(n_items), "n_left_out": pa.array(np.zeros_like(n_items))}
    columns |= {"n_items": pa.array(n_items), "n_judged": pa.array(n_items)}
    columns["n_relevant"] = pa.array(levels[:, 1:].sum(axis=1))
    if task.levels:
        grades = np.arange(levels.shape[1])
        columns["n_at_least"] = lists_of_counts([levels[:, grades >= one].sum(axis=1) for one in task.levels])
    columns |= {name: carried.column(name) for name in task.carried}
    columns["ranked"] = list_column(pa.array(entries.numbers(searching.RELEVANCE)), entries.offsets)
    if task.groups_ties:
        columns["scores"] = list_column(pa.array(entries.numbers(searching.SCORE)), entries.offsets)
        columns["tied"] = list_column(pa.array(entries.numbers(searching.COUNT)), entries.offsets)
    relevances, offsets = ideal_lists(levels, task.k, convention)
    columns["ideal"] = list_column(pa.array(relevances), offsets)
    return pa.RecordBatch.from_pydict(columns)


def ideal_lists(levels: IntArray, k: int | None, convention: Convention) -> tuple[FloatArray, IntArray]:
    """Expand counts of the relevances 0, 1, 2, ... into ideal lists: the k best by gain, and their offsets.

    >>> relevances, offsets = ideal_lists(np.array([[5, 1, 1], [2, 0, 0]]), 3, Convention())
    >>> relevances.tolist(), offsets.tolist()
    ([2.0, 1.0, 0.0, 0.0, 0.0], [0, 3, 5])
    """
    relevance = np.arange(levels.shape[1], dtype=np.float64)
    gains = gain_function(convention.gain)(relevance.copy()) if convention.has_gain_table else relevance
    order = np.argsort(-np.asarray(gains, dtype=np.float64), kind="stable")
    counts = levels[:, order]
    if k is not None:
        before = np.cumsum(counts, axis=1) - counts
        counts = np.clip(k - before, 0, counts)
    values = np.tile(relevance[order], len(levels))
    return np.repeat(values, counts.reshape(-1)), offsets_of(counts.sum(axis=1))


_QUERIES, _ITEMS = 64, 2**14
"""Of the pairs that are judged at once."""


def judge_pairs(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """List relevant items, from batches of `EXCHANGE_SCHEMA`, sorted by cell and kind.

    Pairs that are not relevant, or that a filter rules out, are left out.
    """
    for arrived in arrivals(batches):
        sent, block = list[pa.RecordBatch](), None
        for kind, rows in arrived:
            if kind == searching.QUERIES:
                sent.append(rows)
            elif sent:
                block = query_block(joined(sent), task) if block is None else block
                yield from _relevant(block, rows, task)


def _relevant(queries: QueryBlock, rows: pa.RecordBatch, task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    items = item_block(rows, queries, task)
    for row, column in product(range(0, len(queries), _QUERIES), range(0, rows.num_rows, _ITEMS)):
        across = slice(row, min(row + _QUERIES, len(queries)))
        down = slice(column, min(column + _ITEMS, rows.num_rows))
        pairs = np.indices((across.stop - row, down.stop - column)).reshape(2, -1)
        query, item = pairs[0] + row, pairs[1] + column
        relevance = np.where(items.blocked(across, down).reshape(-1), 0.0, items.relevance(query, item))
        at = np.flatnonzero(relevance > 0)
        if len(at):
            columns = {
                task.settings.query: queries.rows.column(ID).take(pa.array(query[at])),
                task.settings.item: rows.column(ID).take(pa.array(item[at])),
                "relevance": pa.array(relevance[at]),
            }
            yield pa.RecordBatch.from_pydict(columns)
