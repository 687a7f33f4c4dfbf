"""Rows of files to pieces: what a stretch of rows of one query adds to its counts and to its two lists.

A piece has the counts of its rows, the lowest and highest value of each carried column (which differ where it is
not constant), the first K rows by score (`scores`, or by given rank: `ranks`) with their `relevances`, and the best
K relevances (`best`). What pieces are put together by comes with them: `items` where duplicates are looked for
(`best_items` beside the best relevances, which then are one more than K) and where they break ties, else `order`.
Lists of numbers are packed (see `worker.packing`) into one column, which is named after what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.kernels.ragged import IntArray, lengths_of
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, marked
from ndcg_spark.worker.cutting import QueryRows, count_relevant, count_rows, ideal_list, query_rows, ranked_list
from ndcg_spark.worker.files import FilePart, read_part
from ndcg_spark.worker.packing import GROUPS, list_column, lists_in, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTask:
    """What a worker must know to cut files.

    Parameters
    ----------
    plan : EvaluationPlan
        With a largest cutoff.
    parts : tuple of FilePart
        What is read, by number.
    columns : pyarrow schema
        Columns that are read.
    pieces : pyarrow schema
        Columns that come out, in their order.
    looks : bool
        Whether lists carry items so that duplicates among them are found.
    """

    plan: EvaluationPlan
    parts: tuple[FilePart, ...]
    columns: pa.Schema
    pieces: pa.Schema
    looks: bool


def make_cutter(task: CutTask) -> BatchFunction:
    """Build the function that reads parts of files, and cuts them.

    Parameters
    ----------
    task : CutTask

    Returns
    -------
    callable
        From batches of numbers of parts to batches of pieces.
    """

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        rows = (batch for number in numbers for batch in read_part(task.parts[number], task.columns))
        return marked(cut_rows(usable_rows(batch, task.plan), task) for batch in rows)

    return cut


def cut_rows(batch: pa.RecordBatch, task: CutTask) -> pa.RecordBatch:
    """Cut a batch of rows.

    Parameters
    ----------
    batch : pyarrow record batch
        Usable rows, under the column names of the input.
    task : CutTask

    Returns
    -------
    pyarrow record batch
        Pieces, in the order of rows.
    """
    plan = task.plan
    rows = query_rows(batch, piece_offsets(batch, plan.columns.keys), plan)
    counts = {**count_rows(rows), "n_relevant": count_relevant(rows)}
    found = {**describe_pieces(rows, task), **{name: pa.array(count) for name, count in counts.items()}}
    packed = next(name for name in task.pieces.names if GROUPS in name)
    groups = []
    for names in lists_in(packed):
        cut = ideal_list if "best" in names else ranked_list
        entries = cut(rows, plan, looks=task.looks)
        lengths, lists = lengths_of(entries.offsets), entries.columns
        groups.append((lengths, [lists.pop(name) for name in names]))
        found |= {name: list_column(texts, lengths) for name, texts in lists.items()}
    found[packed] = pack(groups)
    return pa.RecordBatch.from_arrays([found[name] for name in task.pieces.names], schema=task.pieces)


def describe_pieces(rows: QueryRows, task: CutTask) -> dict[str, pa.Array]:
    """Say of which query pieces are, and between which values their carried columns lie.

    Parameters
    ----------
    rows : QueryRows
    task : CutTask

    Returns
    -------
    dict from name to pyarrow array, shape (n_pieces,)
        The query columns, `run` where there is one, and `low:` and `high:` of each carried column.
    """
    columns, starts = task.plan.columns, pa.array(rows.offsets[:-1])
    found: dict[str, pa.Array] = {name: rows.batch.column(name).take(starts) for name in columns.query}
    if columns.run is not None:
        found["run"] = rows.batch.column(columns.run).take(starts)
    for name, kind in ((one.name, one.type) for one in task.pieces if one.name.startswith("low:")):
        column = columns.weight if name == "low:weight" else name.removeprefix("low:")
        found |= _range(rows.batch.column(column).cast(kind, safe=False), name.removeprefix("low:"), rows.offsets)
    return found


def piece_offsets(batch: pa.RecordBatch, keys: tuple[str, ...]) -> IntArray:
    """Say where pieces begin: at every row whose query is not that of the row before.

    Parameters
    ----------
    batch : pyarrow record batch
    keys : tuple of str
        Columns that name a query; a null in them begins no piece.

    Returns
    -------
    int64, shape (n_pieces + 1,)
    """
    n_rows = batch.num_rows
    begins = np.zeros(n_rows + 1, dtype=np.bool_)
    begins[0] = begins[n_rows] = True
    for name in keys:
        column = batch.column(name)
        if pa.types.is_integer(column.type) and not column.null_count:
            values = column.to_numpy()
            begins[1:n_rows] |= values[1:] != values[:-1]
            continue
        changes = pc.fill_null(pc.not_equal(column.slice(1), column.slice(0, max(0, n_rows - 1))), False)
        begins[1:n_rows] |= np.asarray(changes.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return np.flatnonzero(begins) if n_rows else np.zeros(1, dtype=np.int64)


def _range(column: pa.Array, name: str, offsets: IntArray) -> dict[str, pa.Array]:
    """The lowest and highest value of a column in each piece; nulls do not count."""
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    in_order = pc.array_sort_indices(values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values)
    place = np.empty(len(values) + 1, dtype=np.int64)
    place[in_order.to_numpy()] = np.arange(len(values))
    place[-1] = -1  # of null
    places = place[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    highest = np.maximum.reduceat(places, offsets[:-1])
    lowest = np.minimum.reduceat(np.where(places < 0, len(values), places), offsets[:-1])
    values = values.take(in_order)
    return {
        f"{end}:{name}": values.take(pa.array(at, mask=highest < 0))
        for end, at in (("low", lowest), ("high", highest))
    }
