"""Parts of files that are in the order of queries: of these, queries are scored and added up where they are read.

What statistics of the files say lies in one part alone needs no other; what may reach into the next is handed on as
pieces. A part is in order if its queries rise row by row; one that turns out not to be is cut into pieces instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.ragged import first_where
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, marked
from ndcg_spark.worker.files import ROWS_AT_ONCE, read_part
from ndcg_spark.worker.lists import describe_key
from ndcg_spark.worker.pieces import CutTask, cut_rows
from ndcg_spark.worker.scoring import ScoringTask, make_scorer
from ndcg_spark.worker.summing import PARTIAL_SCHEMA, SummingTask, make_partial_summer

Bound: TypeAlias = int | str | None
MOST_HELD = 4 * ROWS_AT_ONCE
"""Rows of one query that are held for its end; a part that has a longer one is cut into pieces."""
SCORED_AT_ONCE = 8192
SUMS = "sums"
"""Column of sums of whole queries: partial summaries, as Arrow writes them; null beside a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTask:
    """What a worker must know to score whole queries where it reads them.

    Parameters
    ----------
    cut : CutTask
        Of one query column, without runs.
    score : ScoringTask
    add_up : SummingTask
    bounds : tuple of (low, high)
        For each part: queries above `low` and below `high` lie in it alone; None is no bound.
    """

    cut: CutTask
    score: ScoringTask
    add_up: SummingTask
    bounds: tuple[tuple[Bound, Bound], ...]


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


def make_rest_summer(task: WholeTask) -> BatchFunction:
    """Build the function that scores queries put together from pieces, and hands sums of the others on.

    Parameters
    ----------
    task : WholeTask

    Returns
    -------
    callable
        From rows of `pieces` (none, maybe) and lists of `sums` to partial summaries.
    """
    scorer, summer = make_scorer(task.score), make_partial_summer(task.add_up)

    def summarize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: list[pa.RecordBatch] = []
        yield from summer(scorer(_in_pieces(batches, sums)))
        yield from sums

    return summarize


def _in_pieces(batches: Iterator[pa.RecordBatch], sums: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column(SUMS).flatten():
            sums.extend(pa.ipc.open_stream(packed.as_buffer()))
        batch = batch.filter(pc.greater(pc.list_value_length(batch.column("pieces")), 0))
        columns = {name: batch.column(name) for name in batch.schema.names if name != SUMS}
        yield pa.RecordBatch.from_pydict(columns | {"run": pa.repeat(pa.scalar(""), batch.num_rows)})


def _part(number: int, task: WholeTask) -> Iterator[pa.RecordBatch]:
    try:
        yield from _in_order(number, task)  # nothing is handed on before its end
    except (_OutOfOrderError, InputRefusedError):  # what is refused may be a query of which the rest is yet to come
        for batch in read_part(task.cut.parts[number], task.cut.columns):
            yield _with_sums(cut_rows(usable_rows(batch, task.cut.plan), task.cut))


def _in_order(number: int, task: WholeTask) -> list[pa.RecordBatch]:
    query = task.cut.plan.columns.query[0]
    handed_on: list[pa.RecordBatch] = []
    whole = _together(_whole(number, task, handed_on))
    first: list[Any] = []

    def rankings() -> Iterator[pa.RecordBatch]:
        for pieces in whole:
            first.append(pieces.column(query)[0])
            yield _as_rankings(pieces, task)

    sums = list(make_partial_summer(task.add_up)(make_scorer(task.score)(rankings())))
    found = [_with_sums(pieces) for pieces in handed_on]
    return [*found, _sums_row(first[0], sums, task)] if first else found


def _whole(number: int, task: WholeTask, handed_on: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pieces that are whole queries; the others are handed on."""
    low, high = task.bounds[number]
    for rows in _by_query(number, task):
        pieces = cut_rows(rows, task.cut)
        names = pieces.column(task.cut.plan.columns.query[0])
        inside = pa.array(np.ones(pieces.num_rows, dtype=np.bool_))
        if low is not None:
            inside = pc.and_(inside, pc.greater(names, pa.scalar(low, names.type)))
        if high is not None:
            inside = pc.and_(inside, pc.less(names, pa.scalar(high, names.type)))
        if inside.true_count < len(inside):
            handed_on.append(pieces.filter(pc.invert(inside)))
            pieces = pieces.filter(inside)
        if pieces.num_rows:
            yield pieces


def _by_query(number: int, task: WholeTask) -> Iterator[pa.RecordBatch]:
    """Usable rows of a part, those of a query never apart."""
    held: pa.RecordBatch | None = None
    for read in read_part(task.cut.parts[number], task.cut.columns):
        rows = usable_rows(read, task.cut.plan)
        if not rows.num_rows:
            continue
        if held is not None:
            if held.num_rows > MOST_HELD:
                raise _OutOfOrderError
            rows = _joined([held, rows])
        names = rows.column(task.cut.plan.columns.query[0])
        if pc.any(pc.less(names.slice(1), names.slice(0, len(names) - 1))).as_py():
            raise _OutOfOrderError
        start = pc.index(names, names[-1]).as_py()
        if start:
            yield rows.slice(0, start)
        held = rows.slice(start)
    if held is not None:
        yield held


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fewer and larger batches: each costs the kernel as much as some hundred queries."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= SCORED_AT_ONCE:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _as_rankings(pieces: pa.RecordBatch, task: WholeTask) -> pa.RecordBatch:
    """Rankings of queries of one piece each, as Spark makes them of pieces."""
    columns = {"run": pa.repeat(pa.scalar(""), pieces.num_rows)}
    lists, low = {}, "low:"
    for name in pieces.schema.names:
        kind = pieces.schema.field(name).type
        if pa.types.is_list(kind) or pa.types.is_binary(kind):
            lists[name] = pieces.column(name)
        elif name.startswith(low):
            columns[name.removeprefix(low)] = _settled(pieces, name.removeprefix(low), task)
        elif not name.startswith("high:"):
            columns[name] = pieces.column(name)
    one_each = np.arange(pieces.num_rows + 1, dtype=np.int32)
    structs = pa.StructArray.from_arrays(list(lists.values()), names=list(lists))
    columns["pieces"] = pa.ListArray.from_arrays(pa.array(one_each), structs)
    return pa.RecordBatch.from_pydict(columns)


def _settled(pieces: pa.RecordBatch, name: str, task: WholeTask) -> pa.Array:
    low, high = pieces.column(f"low:{name}"), pieces.column(f"high:{name}")
    differs = pc.fill_null(pc.not_equal(low, high), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(low.type):  # to Spark, NaN is NaN
        differs &= ~pc.fill_null(pc.and_(pc.is_nan(low), pc.is_nan(high)), False).to_numpy(zero_copy_only=False)
    at = first_where(differs, np.arange(len(differs) + 1))
    if at is not None:
        plan = task.cut.plan
        query = describe_key(pieces, plan.columns.query, at)
        shown = plan.columns.weight if name == "weight" else name
        raise InputRefusedError(f"column {shown!r} has more than one value in query {query}.")
    return low


def _with_sums(pieces: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: pieces.column(name) for name in pieces.schema.names}
    return pa.RecordBatch.from_pydict(columns | {SUMS: pa.nulls(pieces.num_rows, pa.binary())})


def _sums_row(query: Any, sums: list[pa.RecordBatch], task: WholeTask) -> pa.RecordBatch:
    """A row of the sums of a part, which Spark moves as it moves a piece of one of its queries."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PARTIAL_SCHEMA) as stream:
        for batch in sums:
            stream.write_batch(batch)
    columns = {one.name: pa.nulls(1, one.type) for one in task.cut.pieces}
    columns[task.cut.plan.columns.query[0]] = pa.array([query.as_py()], query.type)
    columns[SUMS] = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    return pa.RecordBatch.from_pydict(columns)
