"""Queries of which a worker has all rows: scored and added up where they are, so that only sums are handed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.ragged import IntArray, first_where
from ndcg_spark.worker.batches import BatchFunction
from ndcg_spark.worker.cutting import count_rows, ideal_list, query_rows, ranked_list
from ndcg_spark.worker.entries import Entries, joined_entries
from ndcg_spark.worker.lists import describe_key
from ndcg_spark.worker.merging import with_entries
from ndcg_spark.worker.pieces import CutTask, describe_pieces
from ndcg_spark.worker.scoring import ScoringTask, make_scorer, merge_task
from ndcg_spark.worker.summing import PARTIAL_SCHEMA, SummingTask, make_partial_summer

Bound: TypeAlias = int | str | None
SCORED_AT_ONCE = 8192
SUMS = "sums"
"""Column of sums of whole queries: partial summaries, as Arrow writes them; null beside a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTask:
    """What a worker must know to score whole queries where it reads them.

    Parameters
    ----------
    cut : CutTask
    score : ScoringTask
    add_up : SummingTask
    bounds : tuple of (low, high)
        Where parts are read in the order of their only query column, for each of these: queries above `low` and below
        `high` lie in it alone; None is no bound.
    """

    cut: CutTask
    score: ScoringTask
    add_up: SummingTask
    bounds: tuple[tuple[Bound, Bound], ...]


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
        yield pa.RecordBatch.from_pydict({"run": pa.repeat(pa.scalar(""), batch.num_rows)} | columns)


def sum_queries(found: Iterator[WholeQueries], task: WholeTask) -> list[pa.RecordBatch]:
    """Score whole queries, and add up their metrics.

    Parameters
    ----------
    found : iterator of WholeQueries
    task : WholeTask

    Returns
    -------
    list of pyarrow record batch
        One with a row of `sums`; none where there are no queries.
    """
    query = task.cut.plan.columns.query[0]
    first: list[Any] = []

    def rankings() -> Iterator[pa.RecordBatch]:
        for queries in _together(found):
            first.append(queries.columns[query][0])
            batch = pa.RecordBatch.from_pydict(queries.columns)
            yield with_entries(batch, queries.ranked, queries.best, merge_task(task.score))

    sums = list(make_partial_summer(task.add_up)(make_scorer(task.score)(rankings())))
    return [_sums_row(first[0], sums, task)] if first else []


@dataclass(slots=True)
class WholeQueries:
    """What rankings of whole queries have beside their lists, a row each, and the lists.

    Parameters
    ----------
    columns : dict from name to pyarrow array, shape (n_queries,)
    ranked : Entries
    best : Entries or None
    """

    columns: dict[str, pa.Array]
    ranked: Entries
    best: Entries | None


def _together(found: Iterator[WholeQueries]) -> Iterator[WholeQueries]:
    """Fewer and larger batches: each costs the kernel as much as some hundred queries."""
    waiting: list[WholeQueries] = []
    n_waiting = 0
    for queries in found:
        waiting.append(queries)
        n_waiting += len(queries.ranked.offsets) - 1
        if n_waiting >= SCORED_AT_ONCE:
            yield _put_together(waiting)
            waiting, n_waiting = [], 0
    if waiting:
        yield _put_together(waiting)


def _put_together(found: list[WholeQueries]) -> WholeQueries:
    columns = {name: pa.concat_arrays([one.columns[name] for one in found]) for name in found[0].columns}
    best = [one.best for one in found if one.best is not None]
    return WholeQueries(
        columns, joined_entries([one.ranked for one in found]), joined_entries(best) if best else None
    )


def whole_queries(batch: pa.RecordBatch, offsets: IntArray, task: WholeTask) -> WholeQueries:
    """Cut the rows of whole queries.

    Parameters
    ----------
    batch : pyarrow record batch
        Usable rows, those of a query next to each other.
    offsets : int64, shape (n_queries + 1,)
    task : WholeTask

    Returns
    -------
    WholeQueries
    """
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
    return WholeQueries(columns, ranked_list(rows, plan, looks=looks), best)


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


def with_sums(pieces: pa.RecordBatch) -> pa.RecordBatch:
    """Give pieces the column of sums, which has none beside them.

    Parameters
    ----------
    pieces : pyarrow record batch

    Returns
    -------
    pyarrow record batch
    """
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
