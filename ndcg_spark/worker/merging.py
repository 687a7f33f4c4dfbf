"""Pieces of a query, from as many files as have rows of it, to its two lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.cut import repeats
from ndcg_spark.kernels.ragged import (
    FloatArray,
    IntArray,
    first_where,
    lengths_of,
    offsets_of,
    query_of_rows,
    rank_of_rows,
)
from ndcg_spark.worker.batches import float_column, int_values, list_offsets
from ndcg_spark.worker.cutting import rank_order
from ndcg_spark.worker.entries import Entries, Values
from ndcg_spark.worker.lists import describe_key
from ndcg_spark.worker.packing import GROUPS, list_column, lists_in, unpack

_ADVICE = "Remove it, or say which counts (duplicates=best or first)."


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """What a worker must know to merge pieces.

    Parameters
    ----------
    k : int
        The largest cutoff.
    keys : tuple of str
        Columns that name a query.
    largest_first : bool
        Of what tells rows of equal score apart.
    looks : bool
        Whether duplicates are looked for, where lists have items.
    """

    k: int
    keys: tuple[str, ...]
    largest_first: bool
    looks: bool


def with_merged_lists(batch: pa.RecordBatch, task: MergeTask) -> pa.RecordBatch:
    """Replace `pieces` by `ranked`, `ideal`, and where ranks are given `ranks`.

    Parameters
    ----------
    batch : pyarrow record batch
        Rankings with `pieces`: a list for each query, of structs of what `worker.pieces` gives of its lists.
    task : MergeTask

    Returns
    -------
    pyarrow record batch

    Raises
    ------
    InputRefusedError
        When an item comes twice in a list, and duplicates are looked for.
    """
    offsets, flat = list_offsets(batch.column("pieces")), batch.column("pieces").flatten()
    ranked, *best = _lists({field.name: flat.field(at) for at, field in enumerate(flat.type)}, offsets)
    by = "ranks" if "ranks" in ranked.columns else "scores"
    ranked = _merged(ranked, offsets, task.k + int(by == "ranks"), by, task)  # one more: two items on one rank show
    n_best = task.k + int(task.looks and "items" in ranked.columns)
    ideal = _merged(best[0], offsets, n_best, "best", task) if best else None
    return with_entries(batch.select([name for name in batch.schema.names if name != "pieces"]), ranked, ideal, task)


def with_entries(batch: pa.RecordBatch, ranked: Entries, best: Entries | None, task: MergeTask) -> pa.RecordBatch:
    """Add the two lists of each query to what else is known of it.

    Parameters
    ----------
    batch : pyarrow record batch
        With the keys.
    ranked : Entries
    best : Entries or None
        None where the ideal list takes none.
    task : MergeTask

    Returns
    -------
    pyarrow record batch
        With `ranked`, `ideal`, and where ranks are given `ranks`.

    Raises
    ------
    InputRefusedError
        As `with_merged_lists`.
    """
    lists, lengths = ranked.columns, lengths_of(ranked.offsets)
    if task.looks and "items" in lists:
        _refuse_repeats(batch, task, lists["items"], ranked.offsets, "ranking")
    found = {"ranked": list_column(_relevance_column(lists["relevances"]), lengths)}
    if "ranks" in lists:
        found["ranks"] = list_column(pa.array(lists["ranks"]), lengths)
    nothing = Entries({"best": np.zeros(0)}, np.zeros(batch.num_rows + 1, dtype=np.int64))
    found["ideal"] = _ideal(batch, nothing if best is None else best, task)
    names = [*batch.schema.names, *found]
    return pa.RecordBatch.from_arrays([*batch.columns, *found.values()], names=names)


def _lists(fields: dict[str, pa.Array], pieces: IntArray) -> list[Entries]:
    """The ranked list of each query and, where there is one, the ideal list, all pieces of a query together."""
    packed = next(name for name in fields if GROUPS in name)
    groups = lists_in(packed)
    found = []
    unpacked = unpack(fields[packed], [_kinds(names) for names in groups])
    for names, (lengths, lists) in zip(groups, unpacked, strict=True):
        columns: dict[str, Values] = dict(zip(names, lists, strict=True))
        texts = ("best_items",) if "best" in names else ("items",)
        columns |= {name: fields[name].flatten() for name in texts if name in fields}
        found.append(Entries(columns, offsets_of(lengths)[pieces]))
    return found


def _kinds(names: list[str]) -> list[str]:
    return ["f8" if name in ("scores", "relevances", "best") else "i8" for name in names]


def _relevance_column(values: FloatArray) -> pa.Array:
    unjudged = np.isnan(values)
    return float_column(values, ~unjudged) if unjudged.any() else pa.array(values)


def _taken(values: Values, rows: IntArray) -> Values:
    return values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))


def _merged(entries: Entries, pieces: IntArray, n_kept: int, by: str, task: MergeTask) -> Entries:
    """Put the entries of queries of several pieces in order, and keep the first of each query."""
    in_parts = lengths_of(pieces) > 1
    if not in_parts.any():
        return entries
    query = query_of_rows(entries.offsets)
    apart = np.flatnonzero(in_parts[query])
    value = entries.columns[by][apart].astype(np.float64)
    ties = entries.columns.get("order", entries.columns.get("items")) if by == "scores" else None
    order = rank_order(
        query[apart],
        -value if by == "ranks" else value,
        None if ties is None else pa.array(_taken(ties, apart)),
        entries.columns.get("relevances", entries.columns[by])[apart],
        largest_first=task.largest_first,
    )
    rows = np.arange(len(query))
    rows[apart] = apart[order]
    rows = rows[rank_of_rows(entries.offsets) < n_kept]
    lengths = np.minimum(lengths_of(entries.offsets), n_kept)
    return Entries({name: _taken(values, rows) for name, values in entries.columns.items()}, offsets_of(lengths))


def _ideal(batch: pa.RecordBatch, best: Entries, task: MergeTask) -> pa.Array:
    """The first k of the best relevances, none of whose items is certainly there twice.

    Of items that tie across the end of the list, which are in it is chance, and they are not looked at.
    """
    relevance, lengths = best.columns["best"], lengths_of(best.offsets)
    if "best_items" in best.columns:
        beyond = np.full(len(lengths), -np.inf)
        beyond[lengths > task.k] = relevance[best.offsets[:-1][lengths > task.k] + task.k]
        query = query_of_rows(best.offsets)
        certain = relevance > beyond[query]
        n_certain = np.bincount(query[certain], minlength=len(lengths))
        items = _taken(best.columns["best_items"], np.flatnonzero(certain))
        _refuse_repeats(batch, task, items, offsets_of(n_certain), "judgments")
        relevance, lengths = relevance[rank_of_rows(best.offsets) < task.k], np.minimum(lengths, task.k)
    return list_column(pa.array(relevance), lengths)


def _refuse_repeats(batch: pa.RecordBatch, task: MergeTask, items: Values, offsets: IntArray, kind: str) -> None:
    codes = items if isinstance(items, np.ndarray) else int_values(items.dictionary_encode().indices)
    twice = repeats(codes, offsets)
    at = first_where(twice, np.arange(len(twice) + 1))
    if at is not None:
        query = describe_key(batch, task.keys, at)
        raise InputRefusedError(f"an item comes twice in the {kind} of query {query}. {_ADVICE}")
