"""Rows of files to pieces: what a stretch of rows of one query adds to its counts and to its two lists.

A piece has the counts of its rows, the lowest and highest value of each carried column (which differ where it is
not constant), the first K rows by score (`scores`, or by given rank: `ranks`) with their `relevances`, and the best
K relevances (`best`). What pieces are put together by comes with them: `items` where duplicates are looked for
(`best_items` beside the best relevances, which then are one more than K) and where they break ties, else `order`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.kernels.cut import falling_order, kth_largest, largest
from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray, offsets_of, query_of_rows, rank_of_rows
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.batches import BatchFunction, float_values, marked
from ndcg_spark.worker.files import FilePart, read_part


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
        return marked(cut_rows(batch, task) for batch in rows)

    return cut


def cut_rows(batch: pa.RecordBatch, task: CutTask) -> pa.RecordBatch:
    """Cut a batch of rows.

    Parameters
    ----------
    batch : pyarrow record batch
        Rows as they come from a file.
    task : CutTask

    Returns
    -------
    pyarrow record batch
        Pieces, in the order of rows.

    Raises
    ------
    InputRefusedError
        For a bad row, where these stop the evaluation.
    """
    plan, batch = task.plan, usable_rows(batch, task.plan)
    offsets = _offsets(batch, [*([plan.columns.run] if plan.columns.run else []), *plan.columns.query])
    relevance, judged = float_values(batch.column(plan.columns.relevance))
    value, retrieved = _ranked_by(batch, plan)
    condensed = plan.convention.unjudged == "condensed"
    ranked = retrieved & judged if condensed else retrieved
    starts = pa.array(offsets[:-1])
    found: dict[str, pa.Array] = {name: batch.column(name).take(starts) for name in plan.columns.query}
    if plan.columns.run is not None:
        found["run"] = batch.column(plan.columns.run).take(starts)
    found |= {
        "n_rows": pa.array(np.diff(offsets)),
        "n_left_out": _counts(retrieved & ~judged if condensed else np.zeros_like(judged), offsets),
        "n_items": _counts(retrieved, offsets),
        "n_judged": _counts(judged, offsets),
        "n_relevant": _counts(judged & (relevance > 0), offsets),
    }
    for name, kind in ((one.name, one.type) for one in task.pieces if one.name.startswith("low:")):
        column = plan.columns.weight if name == "low:weight" else name.removeprefix("low:")
        found |= _range(batch.column(column).cast(kind), name.removeprefix("low:"), offsets)
    found |= _ranked_list(batch, task, value, ranked, offsets)
    if plan.convention.ideal != "k_ones":
        listed = judged & ranked if plan.convention.ideal == "retrieved" else judged
        found |= _ideal_list(batch, task, relevance, listed, offsets)
    return pa.RecordBatch.from_arrays([found[name] for name in task.pieces.names], schema=task.pieces)


def _offsets(batch: pa.RecordBatch, keys: list[str]) -> IntArray:
    """Where pieces begin: at every row whose query is not that of the row before."""
    n_rows = batch.num_rows
    begins = np.zeros(n_rows + 1, dtype=np.bool_)
    begins[0] = begins[n_rows] = True
    for name in keys:
        column = batch.column(name)
        changes = pc.not_equal(column.slice(1), column.slice(0, max(0, n_rows - 1)))
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


def _counts(flags: BoolArray, offsets: IntArray) -> pa.Array:
    if flags.all():
        return pa.array(np.diff(offsets))
    before = np.zeros(len(flags) + 1, dtype=np.int64)
    np.cumsum(flags, out=before[1:])
    return pa.array(np.diff(before[offsets]))


def _range(column: pa.Array, name: str, offsets: IntArray) -> dict[str, pa.Array]:
    """Two values of a column in each piece, which are equal where it is constant; nulls do not count."""
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    highest = np.maximum.reduceat(codes, offsets[:-1])
    lowest = np.minimum.reduceat(np.where(codes < 0, np.iinfo(codes.dtype).max, codes), offsets[:-1])
    return {
        f"{end}:{name}": encoded.dictionary.take(pa.array(at, mask=highest < 0))
        for end, at in (("low", lowest), ("high", highest))
    }


def _ranked_list(
    batch: pa.RecordBatch, task: CutTask, value: FloatArray, ranked: BoolArray, offsets: IntArray
) -> dict[str, pa.Array]:
    plan, k = task.plan, task.plan.longest or 0
    columns = plan.columns
    given = columns.rank is not None
    if given:
        rows = np.flatnonzero(ranked & (value >= -k))
    else:
        value = value if ranked.all() else np.where(ranked, value, -np.inf)
        lowest = np.repeat(kth_largest(value, offsets, k), np.diff(offsets))
        rows = np.flatnonzero(ranked & (value >= lowest))
    query = query_of_rows(offsets)[rows]
    tie = None if given else columns.order if plan.convention.ties == "input_order" else columns.item
    ties = None if tie is None else batch.column(tie).take(pa.array(rows))
    order = rank_order(query, value[rows], ties, largest_first=plan.convention.ties == "item_desc")
    rows = rows[order]  # the order of queries is left as it is
    lengths = np.bincount(query, minlength=len(offsets) - 1)
    first = rank_of_rows(offsets_of(lengths)) < k + int(given)  # one more shows two items on one rank
    rows, lengths = rows[first], np.minimum(lengths, k + int(given))
    taken = pa.array(rows)
    found = {"ranks" if given else "scores": pa.array(-value[rows].astype(np.int32) if given else value[rows])}
    found["relevances"] = batch.column(columns.relevance).take(taken).cast(pa.float64())
    if "items" in task.pieces.names:
        found["items"] = batch.column(columns.item).take(taken)
    if "order" in task.pieces.names:
        found["order"] = batch.column(columns.order).take(taken)
    return {name: list_column(column, lengths) for name, column in found.items()}


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


def _ideal_list(
    batch: pa.RecordBatch, task: CutTask, relevance: FloatArray, listed: BoolArray, offsets: IntArray
) -> dict[str, pa.Array]:
    """The best relevances of each piece, the best first."""
    k = task.plan.longest or 0
    value = relevance if listed.all() else np.where(listed, relevance, -np.inf)
    n_listed = np.diff(np.concatenate([[0], np.cumsum(listed)])[offsets])
    if not task.looks:
        best, lengths = largest(value, offsets, n_listed, k)
        return {"best": list_column(pa.array(best), lengths)}
    lowest = np.repeat(kth_largest(value, offsets, k + 1), np.diff(offsets))
    at_least = np.flatnonzero(listed & (value >= lowest))
    query = query_of_rows(offsets)[at_least]
    rows = at_least[np.lexsort((-value[at_least], query))]
    lengths = np.bincount(query, minlength=len(offsets) - 1)
    rows = rows[rank_of_rows(offsets_of(lengths)) <= k]
    lengths = np.minimum(lengths, k + 1)
    items = batch.column(task.plan.columns.item).take(pa.array(rows))
    return {"best": list_column(pa.array(value[rows]), lengths), "best_items": list_column(items, lengths)}


def list_column(values: pa.Array, lengths: IntArray) -> pa.ListArray:
    """Arrow lists of successive values.

    Parameters
    ----------
    values : pyarrow array
    lengths : int64, shape (n_lists,)

    Returns
    -------
    pyarrow list array
    """
    return pa.ListArray.from_arrays(pa.array(offsets_of(lengths).astype(np.int32)), values)
