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
from ndcg_spark.kernels.ragged import IntArray, first_where
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, marked
from ndcg_spark.worker.cutting import Entries, count_rows, ideal_list, joined_entries, query_rows, ranked_list
from ndcg_spark.worker.files import ROWS_AT_ONCE, read_part
from ndcg_spark.worker.lists import describe_key
from ndcg_spark.worker.merging import with_entries
from ndcg_spark.worker.pieces import CutTask, cut_rows, describe_pieces, piece_offsets
from ndcg_spark.worker.scoring import ScoringTask, make_scorer, merge_task
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
    first: list[Any] = []

    def rankings() -> Iterator[pa.RecordBatch]:
        for found in _together(_whole(number, task, handed_on)):
            first.append(found.columns[query][0])
            batch = pa.RecordBatch.from_pydict(found.columns)
            yield with_entries(batch, found.ranked, found.best, merge_task(task.score))

    sums = list(make_partial_summer(task.add_up)(make_scorer(task.score)(rankings())))
    found = [_with_sums(pieces) for pieces in handed_on]
    return [*found, _sums_row(first[0], sums, task)] if first else found


@dataclass(slots=True)
class _Queries:
    """Whole queries: what rankings have beside their lists, a row each, and the lists."""

    columns: dict[str, pa.Array]
    ranked: Entries
    best: Entries | None


def _whole(number: int, task: WholeTask, handed_on: list[pa.RecordBatch]) -> Iterator[_Queries]:
    """Queries that are whole; pieces of the others are handed on."""
    for rows, offsets in _by_query(number, task):
        names = rows.column(task.cut.plan.columns.query[0]).take(pa.array(offsets[:-1]))
        first, end = _inside(names, task.bounds[number])
        for start, stop in ((0, first), (end, len(names))):
            if start < stop:
                handed_on.append(cut_rows(_sliced(rows, offsets, start, stop), task.cut))
        if first < end:
            yield _queries(_sliced(rows, offsets, first, end), offsets[first : end + 1] - offsets[first], task)


def _inside(names: pa.Array, bounds: tuple[Bound, Bound]) -> tuple[int, int]:
    """Which queries, of some in rising order, lie between two: the first, and the first after."""
    low, high = (None if bound is None else pa.scalar(bound, names.type) for bound in bounds)
    first = 0 if low is None else pc.less_equal(names, low).true_count
    end = len(names) if high is None else pc.less(names, high).true_count
    return first, max(first, end)


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
            rows = _joined([held, rows])
        offsets = piece_offsets(rows, query)
        names = rows.column(query[0]).take(pa.array(offsets[:-1]))
        if pc.any(pc.less(names.slice(1), names.slice(0, len(names) - 1))).as_py():
            raise _OutOfOrderError
        if len(names) > 1:
            yield rows.slice(0, offsets[-2]), offsets[:-1]
        held = rows.slice(offsets[-2])
    if held is not None:
        yield held, np.array([0, held.num_rows])


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _together(found: Iterator[_Queries]) -> Iterator[_Queries]:
    """Fewer and larger batches: each costs the kernel as much as some hundred queries."""
    waiting: list[_Queries] = []
    for queries in found:
        waiting.append(queries)
        if sum(len(one.ranked.offsets) - 1 for one in waiting) >= SCORED_AT_ONCE:
            yield _put_together(waiting)
            waiting = []
    if waiting:
        yield _put_together(waiting)


def _put_together(found: list[_Queries]) -> _Queries:
    columns = {name: pa.concat_arrays([one.columns[name] for one in found]) for name in found[0].columns}
    best = [one.best for one in found if one.best is not None]
    return _Queries(columns, joined_entries([one.ranked for one in found]), joined_entries(best) if best else None)


def _queries(batch: pa.RecordBatch, offsets: IntArray, task: WholeTask) -> _Queries:
    plan, looks = task.cut.plan, task.cut.looks
    rows = query_rows(batch, offsets, plan)
    columns = {"run": pa.repeat(pa.scalar(""), len(offsets) - 1)}
    described = describe_pieces(rows, task.cut)
    for name, values in described.items():
        if name.startswith("low:"):
            carried = name.removeprefix("low:")
            columns[carried] = _settled(described, carried, task)
        elif not name.startswith("high:"):
            columns[name] = values
    columns |= {name: pa.array(count) for name, count in count_rows(rows).items()}
    best = None if plan.convention.ideal == "k_ones" else ideal_list(rows, plan, looks=looks)
    return _Queries(columns, ranked_list(rows, plan, looks=looks), best)


def _settled(pieces: dict[str, pa.Array], name: str, task: WholeTask) -> pa.Array:
    low, high = pieces[f"low:{name}"], pieces[f"high:{name}"]
    differs = pc.fill_null(pc.not_equal(low, high), False).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(low.type):  # to Spark, NaN is NaN
        differs &= ~pc.fill_null(pc.and_(pc.is_nan(low), pc.is_nan(high)), False).to_numpy(zero_copy_only=False)
    at = first_where(differs, np.arange(len(differs) + 1))
    if at is not None:
        plan = task.cut.plan
        query = describe_key(pa.RecordBatch.from_pydict(pieces), plan.columns.query, at)
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
