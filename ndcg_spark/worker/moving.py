"""Rows of files in which those of a query are scattered: moved to each other as packed batches, and cut there.

A row that moves by itself costs Spark some microseconds; a batch of ten thousand, as Arrow writes it, hardly more.
Which partition rows go to is decided by a hash of their query, so that a partition has all rows of a query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.ragged import IntArray, offsets_of
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, joined, marked, taken
from ndcg_spark.worker.files import ROWS_AT_ONCE, read_part
from ndcg_spark.worker.hashing import HashArray, key_hashes
from ndcg_spark.worker.pieces import CutTask, cut_rows, piece_offsets
from ndcg_spark.worker.whole import WholeQueries, WholeTask, sum_queries, whole_queries, with_sums

MOVED_AT_ONCE = 2**18
"""Rows that a reader holds before it hands them on."""
MOST_HELD = 2**23
"""Rows of a partition that are put together; of one with more, queries are handed on in pieces."""
MOST_BYTES_HELD = 2**28
MOVED_SCHEMA = pa.schema([("label", pa.int32()), ("rows", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """What a worker must know to send rows to their query.

    Parameters
    ----------
    cut : CutTask
    labels : tuple of int
        Of the partitions.
    """

    cut: CutTask
    labels: tuple[int, ...]


def make_mover(task: MoveTask) -> BatchFunction:
    """Build the function that reads parts of files, and packs their rows by where they go.

    Parameters
    ----------
    task : MoveTask

    Returns
    -------
    callable
        From batches of numbers of parts to batches of `MOVED_SCHEMA`.
    """

    def move(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        read = (batch for number in numbers for batch in read_part(task.cut.parts[number], task.cut.columns))
        usable = (usable_rows(batch, task.cut.plan) for batch in read)
        return marked(_packed(joined(rows), task) for rows in _held(usable, MOVED_AT_ONCE))

    return move


def _held(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Successive batches of about so many rows in all, or fewer where these are wide."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= n_rows or size >= MOST_BYTES_HELD:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def _packed(rows: pa.RecordBatch, task: MoveTask) -> pa.RecordBatch:
    n_labels = len(task.labels)
    place = ((key_hashes(rows, task.cut.plan.columns.keys) >> 32) * np.uint64(n_labels)) >> 32
    place = place.astype(np.uint16 if n_labels <= 2**16 else np.int64)  # of 16 bits, NumPy sorts by counting
    rows = taken(rows, np.argsort(place, kind="stable"))
    starts = offsets_of(np.bincount(place, minlength=n_labels))
    filled = np.flatnonzero(np.diff(starts))
    packed = [rows.slice(starts[at], starts[at + 1] - starts[at]).serialize() for at in filled]
    ends = pa.array(offsets_of(np.array([one.size for one in packed], dtype=np.int64)).astype(np.int32))
    column = pa.Array.from_buffers(
        pa.binary(), len(packed), [None, ends.buffers()[1], pa.py_buffer(b"".join(packed))]
    )
    labels = pa.array(np.array(task.labels, dtype=np.int32)[filled])
    return pa.RecordBatch.from_arrays([labels, column], schema=MOVED_SCHEMA)


def make_moved_cutter(task: CutTask) -> BatchFunction:
    """Build the function that cuts rows that were moved.

    Parameters
    ----------
    task : CutTask

    Returns
    -------
    callable
        From batches with `rows` of `MOVED_SCHEMA` to pieces, of which a query rarely has more than one.
    """

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return marked(_pieces(_held(_unpacked(batches, task), MOST_HELD), task))

    return cut


def make_moved_summer(task: WholeTask) -> BatchFunction:
    """Build the function that adds up the metrics of queries whose rows were moved.

    Parameters
    ----------
    task : WholeTask

    Returns
    -------
    callable
        From batches with `rows` of `MOVED_SCHEMA` to what `worker.whole.make_whole_summer` gives.
    """

    def summarize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return marked(_summed(_held(_unpacked(batches, task.cut), MOST_HELD), task))

    return summarize


def _unpacked(batches: Iterator[pa.RecordBatch], task: CutTask) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column("rows"):
            yield pa.ipc.read_record_batch(packed.as_buffer(), task.columns)


def _pieces(held: Iterator[list[pa.RecordBatch]], task: CutTask) -> Iterator[pa.RecordBatch]:
    return (cut_rows(chunk.rows, task) for batches in held for chunk in _by_query(joined(batches), task))


def _summed(held: Iterator[list[pa.RecordBatch]], task: WholeTask) -> Iterator[pa.RecordBatch]:
    """Sums of a partition; pieces of one with more rows than are held, as any query may go on in what is to come."""
    first, more = next(held, None), next(held, None)
    if more is not None and first is not None:
        yield from map(with_sums, _pieces(chain(iter([first, more]), held), task.cut))
    elif first is not None:
        handed_on: list[pa.RecordBatch] = []
        yield from sum_queries(_whole(joined(first), task, handed_on), task)
        yield from handed_on


def _whole(rows: pa.RecordBatch, task: WholeTask, handed_on: list[pa.RecordBatch]) -> Iterator[WholeQueries]:
    for chunk in _by_query(rows, task.cut):
        if chunk.offsets is None:
            handed_on.append(with_sums(cut_rows(chunk.rows, task.cut)))
        else:
            yield whole_queries(chunk.rows, chunk.offsets, task)


@dataclass(slots=True)
class _Chunk:
    """Rows of some queries, and the offsets between these; None where rows of two queries of one hash mix."""

    rows: pa.RecordBatch
    offsets: IntArray | None


def _by_query(rows: pa.RecordBatch, task: CutTask) -> Iterator[_Chunk]:
    """All rows of a batch, those of a query next to each other, in chunks."""
    keys = task.plan.columns.keys
    hashes, order = _in_order_of(key_hashes(rows, keys))
    starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]]))
    wanted = np.arange(ROWS_AT_ONCE, len(order) + ROWS_AT_ONCE, ROWS_AT_ONCE)
    ends = starts[np.searchsorted(starts, wanted, "right") - 1]
    at = 0
    for end in np.unique(np.append(ends[ends > 0], len(order))).tolist():
        chunk = taken(rows, order[at:end])
        n_queries = np.searchsorted(starts, end) - np.searchsorted(starts, at)
        offsets = piece_offsets(chunk, keys)
        if len(offsets) - 1 > n_queries:  # queries share bits of their hashes
            chunk = taken(chunk, np.argsort(key_hashes(chunk, keys), kind="stable"))
            offsets = piece_offsets(chunk, keys)
        repeated = len(np.unique(key_hashes(chunk.take(pa.array(offsets[:-1])), keys))) < len(offsets) - 1
        yield _Chunk(chunk, None if repeated else offsets)
        at = end


def _in_order_of(hashes: HashArray) -> tuple[HashArray, IntArray]:
    """Hashes but for their last bits, in rising order, and their rows: the row is put in the place of these bits."""
    low = np.uint64(2 ** max(1, len(hashes).bit_length()) - 1)
    both = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    both.sort()  # as words are sorted several times as fast as by their places
    return both & ~low, (both & low).astype(np.int64)
