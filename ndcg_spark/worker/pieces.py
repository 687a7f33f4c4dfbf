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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.kernels.cut import falling_order, kth_largest, largest
from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray, offsets_of, query_of_rows, rank_of_rows
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, float_values, int_values, marked
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


@dataclass(slots=True)
class _Rows:
    """Usable rows of a batch, and the pieces they make."""

    batch: pa.RecordBatch
    offsets: IntArray
    relevance: FloatArray
    judged: BoolArray
    value: FloatArray
    """By what rows rank, the largest first."""
    retrieved: BoolArray
    ranked: BoolArray


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
    plan, rows = task.plan, _rows(batch, task.plan)
    starts = pa.array(rows.offsets[:-1])
    found: dict[str, pa.Array] = {name: rows.batch.column(name).take(starts) for name in plan.columns.query}
    if plan.columns.run is not None:
        found["run"] = rows.batch.column(plan.columns.run).take(starts)
    found |= _counts(rows)
    for name, kind in ((one.name, one.type) for one in task.pieces if one.name.startswith("low:")):
        column = plan.columns.weight if name == "low:weight" else name.removeprefix("low:")
        found |= _range(rows.batch.column(column).cast(kind, safe=False), name.removeprefix("low:"), rows.offsets)
    packed = next(name for name in task.pieces.names if GROUPS in name)
    groups = []
    for names in lists_in(packed):
        lengths, lists = _ideal_list(rows, task) if "best" in names else _ranked_list(rows, task)
        groups.append((lengths, [lists.pop(name) for name in names]))
        found |= {name: list_column(texts, lengths) for name, texts in lists.items()}
    found[packed] = pack(groups)
    return pa.RecordBatch.from_arrays([found[name] for name in task.pieces.names], schema=task.pieces)


def _rows(batch: pa.RecordBatch, plan: EvaluationPlan) -> _Rows:
    offsets = piece_offsets(batch, plan.columns.keys)
    relevance, judged = float_values(batch.column(plan.columns.relevance))
    value, retrieved = _ranked_by(batch, plan)
    ranked = retrieved & judged if plan.convention.unjudged == "condensed" else retrieved
    return _Rows(batch, offsets, relevance, judged, value, retrieved, ranked)


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
        changes = pc.fill_null(pc.not_equal(column.slice(1), column.slice(0, max(0, n_rows - 1))), False)
        begins[1:n_rows] |= np.asarray(changes.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return np.flatnonzero(begins) if n_rows else np.zeros(1, dtype=np.int64)


def _ranked_by(batch: pa.RecordBatch, plan: EvaluationPlan) -> tuple[FloatArray, BoolArray]:
    """By what rows rank, the largest first, and which of them are retrieved."""
    columns = plan.columns
    if columns.rank is not None:
        rank, known = float_values(batch.column(columns.rank))
        return -rank, known
    score, known = float_values(batch.column(columns.score[0]))
    if plan.convention.score_precision == "float32":
        with np.errstate(over="ignore"):  # what is too large is infinite, as in Spark
            score = score.astype(np.float32).astype(np.float64)
    return score, known


def _counts(rows: _Rows) -> dict[str, pa.Array]:
    flags = {
        "n_left_out": rows.retrieved & ~rows.ranked,
        "n_items": rows.retrieved,
        "n_judged": rows.judged,
        "n_relevant": rows.judged & (rows.relevance > 0),
    }
    n_rows = np.diff(rows.offsets)
    return {"n_rows": pa.array(n_rows), **{name: pa.array(_sums(at, rows.offsets)) for name, at in flags.items()}}


def _sums(flags: BoolArray, offsets: IntArray) -> IntArray:
    if flags.all():
        return np.diff(offsets)
    before = np.zeros(len(flags) + 1, dtype=np.int64)
    np.cumsum(flags, out=before[1:])
    return np.diff(before[offsets])


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


def _ranked_list(found: _Rows, task: CutTask) -> tuple[IntArray, dict[str, Any]]:
    """The first rows of each piece in rank order: how many, and what lists hold of them."""
    columns, k, value = task.plan.columns, task.plan.longest or 0, found.value
    given = columns.rank is not None
    if given:
        rows = np.flatnonzero(found.ranked & (value >= -k))
    else:
        value = value if found.ranked.all() else np.where(found.ranked, value, -np.inf)
        lowest = np.repeat(kth_largest(value, found.offsets, k), np.diff(found.offsets))
        rows = np.flatnonzero(found.ranked & (value >= lowest))
    query = query_of_rows(found.offsets)[rows]
    in_order = task.plan.convention.ties == "input_order"
    tie = None if given else columns.order if in_order else columns.item
    ties = None if tie is None else found.batch.column(tie).take(pa.array(rows))
    order = rank_order(query, value[rows], ties, largest_first=task.plan.convention.ties == "item_desc")
    rows, lengths = _first(rows[order], query, found.offsets, k + int(given))  # one more: two items on one rank show
    lists: dict[str, Any] = {"ranks": -value[rows].astype(np.int64)} if given else {"scores": value[rows]}
    lists["relevances"] = np.where(found.judged[rows], found.relevance[rows], np.nan)
    if task.looks or (tie is not None and tie == columns.item):
        lists["items"] = _taken(found.batch.column(columns.item), rows)
    if tie is not None and in_order:
        lists["order"] = _taken(found.batch.column(columns.order), rows)
    return lengths, lists


def _first(rows: IntArray, query: IntArray, offsets: IntArray, n_kept: int) -> tuple[IntArray, IntArray]:
    """The first rows of each piece, and how many it has of them."""
    lengths = np.bincount(query, minlength=len(offsets) - 1)
    return rows[rank_of_rows(offsets_of(lengths)) < n_kept], np.minimum(lengths, n_kept)


def _taken(column: pa.Array, rows: IntArray) -> IntArray | pa.Array:
    """Values of some rows: numbers to be packed, or texts."""
    return int_values(column)[rows] if pa.types.is_integer(column.type) else column.take(pa.array(rows))


def rank_order(query: IntArray, value: FloatArray, ties: pa.Array | None, *, largest_first: bool) -> IntArray:
    """Order rows by query and rank.

    Parameters
    ----------
    query : int64, shape (n_rows,)
    value : float64, shape (n_rows,)
        The largest ranks first.
    ties : pyarrow array or None
        What tells rows of equal value apart; nothing does where it is None.
    largest_first : bool
        Of those.

    Returns
    -------
    int64, shape (n_rows,)
    """
    begins = np.ones(len(query) + 1, dtype=np.bool_)
    begins[1:-1] = query[1:] != query[:-1]
    order = falling_order(value, np.flatnonzero(begins))
    tied = (query[order][1:] == query[order][:-1]) & (value[order][1:] == value[order][:-1])
    if ties is None or not tied.any():
        return order
    place = pc.rank(ties, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    return np.lexsort((-place if largest_first else place, -value, query))


def _ideal_list(found: _Rows, task: CutTask) -> tuple[IntArray, dict[str, Any]]:
    """The best relevances of each piece, the best first: how many, and what lists hold of them."""
    k, offsets = task.plan.longest or 0, found.offsets
    listed = found.judged & found.ranked if task.plan.convention.ideal == "retrieved" else found.judged
    value = found.relevance if listed.all() else np.where(listed, found.relevance, -np.inf)
    if not task.looks:
        best, lengths = largest(value, offsets, _sums(listed, offsets), k)
        return lengths, {"best": best}
    lowest = np.repeat(kth_largest(value, offsets, k + 1), np.diff(offsets))
    rows = np.flatnonzero(listed & (value >= lowest))
    query = query_of_rows(offsets)[rows]
    rows, lengths = _first(rows[rank_order(query, value[rows], None, largest_first=True)], query, offsets, k + 1)
    return lengths, {"best": value[rows], "best_items": _taken(found.batch.column(task.plan.columns.item), rows)}
