"""Parts of files that are in the order of queries: of these, queries are scored and added up where they are read.

What statistics of the files say lies in one part alone needs no other; what may reach into the next is handed on as
pieces. A part is in order if its queries rise row by row; one that turns out not to be is cut into pieces instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.ragged import IntArray
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, joined, marked
from ndcg_spark.worker.files import ROWS_AT_ONCE, read_part
from ndcg_spark.worker.pieces import cut_rows, piece_offsets
from ndcg_spark.worker.whole import Bound, WholeQueries, WholeTask, sum_queries, whole_queries, with_sums

MOST_HELD = 4 * ROWS_AT_ONCE
"""Rows of one query that are held for its end; a part that has a longer one is cut into pieces."""


class _OutOfOrderError(Exception):
    """A part whose queries do not rise, or one of which is too long to be held."""


def make_whole_summer(task: WholeTask) -> BatchFunction:
    """Build the function that reads parts of files, and adds up the metrics of their whole queries.

    Parameters
    ----------
    task : WholeTask

    Returns
    -------
    callable
        From batches of numbers of parts to pieces of queries that may not be whole, with a column `sums`; and for
        each part a row that has nothing but `sums` and the query it began with.
    """

    def summarize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return marked(batch for number in numbers for batch in _part(number, task))

    return summarize


def _part(number: int, task: WholeTask) -> Iterator[pa.RecordBatch]:
    try:
        yield from _in_order(number, task)  # nothing is handed on before its end
    except (_OutOfOrderError, InputRefusedError):  # what is refused may be a query of which the rest is yet to come
        for batch in read_part(task.cut.parts[number], task.cut.columns):
            yield with_sums(cut_rows(usable_rows(batch, task.cut.plan), task.cut))


def _in_order(number: int, task: WholeTask) -> list[pa.RecordBatch]:
    handed_on: list[pa.RecordBatch] = []
    sums = sum_queries(_whole(number, task, handed_on), task)
    return [*map(with_sums, handed_on), *sums]


def _whole(number: int, task: WholeTask, handed_on: list[pa.RecordBatch]) -> Iterator[WholeQueries]:
    """Queries that are whole; pieces of the others are handed on."""
    for rows, offsets in _by_query(number, task):
        names = rows.column(task.cut.plan.columns.query[0]).take(pa.array(offsets[:-1]))
        first, end = _inside(names, task.bounds[number])
        for start, stop in ((0, first), (end, len(names))):
            if start < stop:
                handed_on.append(cut_rows(_sliced(rows, offsets, start, stop), task.cut))
        if first < end:
            yield whole_queries(_sliced(rows, offsets, first, end), offsets[first : end + 1] - offsets[first], task)


def _inside(names: pa.Array, bounds: tuple[Bound, Bound]) -> tuple[int, int]:
    """Which queries, of some in rising order, lie between two: the first, and the first after."""
    low, high = bounds
    first, end = 0, len(names)
    if low is not None and names[0].as_py() <= low:
        first = pc.less_equal(names, pa.scalar(low, names.type)).true_count
    if high is not None and names[-1].as_py() >= high:
        end = pc.less(names, pa.scalar(high, names.type)).true_count
    return first, max(first, end)


def _falls(names: pa.Array) -> bool:
    if pa.types.is_integer(names.type):
        values = names.to_numpy()
        return bool((values[1:] < values[:-1]).any())
    return bool(pc.any(pc.less(names.slice(1), names.slice(0, len(names) - 1))).as_py())


def _sliced(rows: pa.RecordBatch, offsets: IntArray, start: int, stop: int) -> pa.RecordBatch:
    return rows.slice(offsets[start], offsets[stop] - offsets[start])


def _by_query(number: int, task: WholeTask) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
    """Usable rows of a part, those of a query never apart, and the offsets between queries."""
    query = task.cut.plan.columns.query
    held: pa.RecordBatch | None = None
    for read in read_part(task.cut.parts[number], task.cut.columns):
        rows = usable_rows(read, task.cut.plan)
        if not rows.num_rows:
            continue
        if held is not None:
            if held.num_rows > MOST_HELD:
                raise _OutOfOrderError
            rows = joined([held, rows])
        offsets = piece_offsets(rows, query)
        if _falls(rows.column(query[0]).take(pa.array(offsets[:-1]))):
            raise _OutOfOrderError
        if len(offsets) > 2:
            yield rows.slice(0, offsets[-2]), offsets[:-1]
        held = rows.slice(offsets[-2])
    if held is not None:
        yield held, np.array([0, held.num_rows])
