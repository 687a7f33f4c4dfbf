"""Judgments over the whole corpus: the pairs of a cell that labels make relevant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function, joined
from ndcg_spark.retrieval.tasks.blocks import QueryBlock, item_block, query_block
from ndcg_spark.retrieval.tasks.searching import arrivals
from ndcg_spark.retrieval.tasks.sending import QUERIES
from ndcg_spark.retrieval.tasks.task import ID, RetrievalTask

_QUERIES, _ITEMS = 64, 2**14
"""Of the pairs that are judged at once."""


def make_judge(task: RetrievalTask) -> BatchFunction:
    """Build the function that lists the relevant items of each query in a stripe.

    From batches of `EXCHANGE_SCHEMA`, sorted by cell and kind, to rows (query, item, relevance). Pairs that are not
    relevant, or that a filter rules out, are left out.
    """
    return batch_function(lambda batches: _judge(batches, task))


def _judge(batches: Iterator[pa.RecordBatch], task: RetrievalTask) -> Iterator[pa.RecordBatch]:
    cell, sent, block = None, list[pa.RecordBatch](), None
    for number, kind, rows in arrivals(batches):
        if number != cell:
            cell, sent, block = number, [], None
        if kind == QUERIES:
            sent.append(rows)
        elif sent:
            if block is None:
                block = query_block(joined(sent), task)
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
