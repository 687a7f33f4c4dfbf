"""Packed rows on their way to cells: each block of queries meets each stripe of the corpus in one cell.

A stripe is sent once for each block of queries, and queries once for each stripe. A hash of its identifier says where
a row goes, so cells do not depend on how a table is partitioned.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function, joined, message, plain_texts, to_bytes
from ndcg_spark.core.hashing import column_hashes, partition_of, sorted_by_hash
from ndcg_spark.retrieval.tasks.tables import packed_rows, refuse_widths, width_of
from ndcg_spark.retrieval.tasks.task import ID, N_ITEMS, N_QUERIES, VECTOR, RetrievalTask

QUERIES, ITEMS = range(2)
N_BLOCKS = b"n_blocks"
"""Metadata of a payload: number of blocks of queries."""


def make_sender(task: RetrievalTask, *, of_corpus: bool) -> BatchFunction:
    """Build the function that sends the rows of a table to the cells.

    From canonical rows to batches of `EXCHANGE_SCHEMA`; the partition id is the cell.
    """
    return batch_function(lambda batches: _send(batches, task, of_corpus=of_corpus))


def _send(batches: Iterator[pa.RecordBatch], task: RetrievalTask, *, of_corpus: bool) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    n_blocks = 1
    for batch in batches:
        if not batch.num_rows:
            continue
        counts = [batch.column(name)[0].as_py() for name in (N_QUERIES, N_ITEMS)]
        n_blocks = task.n_blocks(*counts)
        rows = plain_texts(batch.select([name for name in batch.schema.names if name not in (N_QUERIES, N_ITEMS)]))
        held.append(packed_rows(rows, task, of_corpus=of_corpus))
        refuse_widths(VECTOR, width_of(held[0], VECTOR), width_of(held[-1], VECTOR))
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
    hashes, order = sorted_by_hash(column_hashes(rows.column(ID)))
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
