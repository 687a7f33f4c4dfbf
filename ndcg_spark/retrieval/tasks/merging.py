"""Merge the best items of all cells into rows or rankings, and list the relevant items of each query."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import gain_function
from ndcg_spark.core.batches import (
    Entries,
    concat_batches,
    entries_from_columns,
    get_value,
    int_values,
    list_column,
    list_offsets,
    make_row_lists,
)
from ndcg_spark.core.ragged import (
    FloatArray,
    IntArray,
    flag_repeats,
    query_of_rows,
    rank_of_rows,
    to_lengths,
    to_offsets,
)
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.tasks.partial_ranking import rank_values
from ndcg_spark.retrieval.tasks import searching
from ndcg_spark.retrieval.tasks.searching import (
    QueryBlock,
    read_arrivals,
    read_item_block,
    read_query_block,
)
from ndcg_spark.retrieval.tasks.tables import ID, RetrievalTask

_MAX_BATCH_ENTRIES = 2**18
"""Limit of list entries in a batch of rankings."""


def merge_cells(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """Merge the partial results of each query, from batches of `EXCHANGE_SCHEMA`, sorted by partition id.

    The result has rows (query, item, score, rank, relevance) or, for an evaluation, rankings as
    `evaluation.tasks.scoring` reads them.
    """
    for payloads in read_arrivals(batches):
        yield from _merge_queries([rows for _, rows in payloads], task)


def _merge_queries(batches: list[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """Merge the partial results of the queries of one partition id."""
    ids = pa.concat_arrays([batch.column(ID) for batch in batches])
    encoded = ids.dictionary_encode()
    codes, n_queries = int_values(encoded.indices), len(encoded.dictionary)
    first = np.full(n_queries, len(codes), dtype=np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    carried = concat_batches([batch.select([ID, *task.carried]) for batch in batches]).take(pa.array(first))
    n_levels = max(int(to_lengths(list_offsets(batch.column(searching.LEVELS))).max(initial=0)) for batch in batches)
    levels, best, n_read = np.zeros((n_queries, n_levels), dtype=np.int64), searching.BestItems(task, n_queries), 0
    for batch in batches:
        batch_codes = codes[n_read : n_read + batch.num_rows]
        n_read += batch.num_rows
        counts = int_values(batch.column(searching.LEVELS).flatten()).reshape(batch.num_rows, n_levels)
        np.add.at(levels, batch_codes, counts)
        best_entries = entries_from_columns(batch, searching.BEST)
        if best_entries is not None and best_entries.offsets[-1]:
            query = batch_codes[query_of_rows(best_entries.offsets)]
            items_or_counts = best_entries.columns[searching.COUNT if task.groups_ties else searching.ITEM]
            best.add(
                query,
                best_entries.numbers(searching.SCORE),
                best_entries.numbers(searching.RELEVANCE),
                items_or_counts,
            )
    entries = best.list_entries()
    if not task.groups_ties:
        _refuse_repeated_items(carried.column(ID), entries, task)
    if task.evaluation is None:
        yield from _build_rows(carried, entries, task)
    else:
        yield from _build_rankings(carried, levels, entries, task, task.evaluation)


def _refuse_repeated_items(ids: pa.Array, entries: Entries, task: RetrievalTask) -> None:
    repeated = np.flatnonzero(flag_repeats(rank_values(entries.columns[searching.ITEM]), entries.offsets))
    if len(repeated):
        query = get_value(ids, int(repeated[0]))
        raise InputRefusedError(
            f"an item appears twice in the results of {task.settings.query}={query}: column {task.settings.item!r} "
            "of the corpus must identify items, with one row each."
        )


def _build_rows(carried: pa.RecordBatch, entries: Entries, task: RetrievalTask) -> Iterator[pa.RecordBatch]:
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
    for start in range(0, batch.num_rows, _MAX_BATCH_ENTRIES):
        yield batch.slice(start, _MAX_BATCH_ENTRIES)


def _build_rankings(
    carried: pa.RecordBatch, levels: IntArray, entries: Entries, task: RetrievalTask, convention: Convention
) -> Iterator[pa.RecordBatch]:
    """Build rankings, in batches of some hundred thousand entries."""
    ideal_lengths = levels.sum(axis=1) if task.k is None else np.minimum(levels.sum(axis=1), task.k)
    sizes = np.cumsum(to_lengths(entries.offsets) + ideal_lengths)
    start = 0
    while start < len(sizes):
        before = sizes[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(sizes, before + _MAX_BATCH_ENTRIES, side="right")))
        numbers = np.arange(start, stop)
        yield _build_ranking_batch(
            carried.slice(start, stop - start), levels[numbers], entries.select_queries(numbers), task, convention
        )
        start = stop


def _build_ranking_batch(
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
        counts = [levels[:, grades >= level].sum(axis=1) for level in task.levels]
        columns["n_at_least"] = make_row_lists(np.column_stack(counts))
    columns |= {column: carried.column(column) for column in task.carried}
    columns["ranked"] = list_column(pa.array(entries.numbers(searching.RELEVANCE)), entries.offsets)
    if task.groups_ties:
        columns["scores"] = list_column(pa.array(entries.numbers(searching.SCORE)), entries.offsets)
        columns["tied"] = list_column(pa.array(entries.numbers(searching.COUNT)), entries.offsets)
    relevances, offsets = build_ideal_lists(levels, task.k, convention)
    columns["ideal"] = list_column(pa.array(relevances), offsets)
    return pa.RecordBatch.from_pydict(columns)


def build_ideal_lists(levels: IntArray, k: int | None, convention: Convention) -> tuple[FloatArray, IntArray]:
    """Expand counts of the relevances 0, 1, 2, ... into ideal lists: the k best by gain, and their offsets.

    >>> relevances, offsets = build_ideal_lists(np.array([[5, 1, 1], [2, 0, 0]]), 3, Convention())
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
    return np.repeat(values, counts.reshape(-1)), to_offsets(counts.sum(axis=1))


_QUERIES, _ITEMS = 64, 2**14
"""Number of queries and items whose pairs are judged at once."""


def judge_pairs(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    """List relevant items, from batches of `EXCHANGE_SCHEMA`, sorted by cell and kind.

    Pairs that a filter excludes are ignored.
    """
    for payloads in read_arrivals(batches):
        query_batches, block = list[pa.RecordBatch](), None
        for kind, rows in payloads:
            if kind == searching.QUERIES:
                query_batches.append(rows)
            elif query_batches:
                block = read_query_block(concat_batches(query_batches), task) if block is None else block
                yield from _list_relevant(block, rows, task)


def _list_relevant(queries: QueryBlock, rows: pa.RecordBatch, task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    items = read_item_block(rows, queries, task)
    for row, column in product(range(0, len(queries), _QUERIES), range(0, rows.num_rows, _ITEMS)):
        query_slice = slice(row, min(row + _QUERIES, len(queries)))
        item_slice = slice(column, min(column + _ITEMS, rows.num_rows))
        pairs = np.indices((query_slice.stop - row, item_slice.stop - column)).reshape(2, -1)
        query, item = pairs[0] + row, pairs[1] + column
        relevance = np.where(
            items.find_blocked(query_slice, item_slice).reshape(-1), 0.0, items.compute_relevance(query, item)
        )
        indices = np.flatnonzero(relevance > 0)
        if len(indices):
            columns = {
                task.settings.query: queries.rows.column(ID).take(pa.array(query[indices])),
                task.settings.item: rows.column(ID).take(pa.array(item[indices])),
                "relevance": pa.array(relevance[indices]),
            }
            yield pa.RecordBatch.from_pydict(columns)
