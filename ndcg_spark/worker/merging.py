"""Pieces of a query, from as many files as have rows of it, to its two lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.cut import repeats
from ndcg_spark.kernels.ragged import IntArray, first_where, offsets_of, query_of_rows, rank_of_rows
from ndcg_spark.worker.batches import float_column, float_values, list_offsets
from ndcg_spark.worker.lists import describe_key
from ndcg_spark.worker.packing import GROUPS, Numbers, list_column, lists_in, unpack
from ndcg_spark.worker.pieces import rank_order

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


@dataclass(slots=True)
class _Entries:
    """Entries of one of the two lists, those of a query end to end."""

    columns: dict[str, pa.Array]
    offsets: IntArray


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
    looks = task.looks and "items" in ranked.columns
    by = "ranks" if "ranks" in ranked.columns else "scores"
    ranked = _merged(ranked, offsets, task.k + int(by == "ranks"), by, task)  # one more: two items on one rank show
    if looks:
        _refuse_repeats(batch, task, ranked.columns["items"], ranked.offsets, "ranking")
    found = {"ranked": list_column(ranked.columns["relevances"], np.diff(ranked.offsets))}
    if by == "ranks":
        found["ranks"] = list_column(ranked.columns["ranks"], np.diff(ranked.offsets))
    found["ideal"] = list_column(pa.array([], pa.float64()), np.zeros(batch.num_rows, dtype=np.int64))
    if best:
        found["ideal"] = _ideal(batch, _merged(best[0], offsets, task.k + int(looks), "best", task), task)
    kept = [name for name in batch.schema.names if name != "pieces"]
    columns = [*(batch.column(name) for name in kept), *found.values()]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, *found])


def _lists(fields: dict[str, pa.Array], pieces: IntArray) -> list[_Entries]:
    """The ranked list of each query and, where there is one, the ideal list, all pieces of a query together."""
    packed = next(name for name in fields if GROUPS in name)
    groups = lists_in(packed)
    found = []
    unpacked = unpack(fields[packed], [_kinds(names) for names in groups])
    for names, (lengths, lists) in zip(groups, unpacked, strict=True):
        columns = {name: _column(name, values) for name, values in zip(names, lists, strict=True)}
        texts = ("best_items",) if "best" in names else ("items",)
        columns |= {name: fields[name].flatten() for name in texts if name in fields}
        found.append(_Entries(columns, offsets_of(lengths)[pieces]))
    return found


def _kinds(names: list[str]) -> list[str]:
    return ["f8" if name in ("scores", "relevances", "best") else "i8" for name in names]


def _column(name: str, values: Numbers) -> pa.Array:
    return float_column(values, ~np.isnan(values)) if name == "relevances" else pa.array(values)


def _merged(entries: _Entries, pieces: IntArray, n_kept: int, by: str, task: MergeTask) -> _Entries:
    """Put the entries of queries of several pieces in order, and keep the first of each query."""
    in_parts = np.diff(pieces) > 1
    if not in_parts.any():
        return entries
    query = query_of_rows(entries.offsets)
    apart = np.flatnonzero(in_parts[query])
    value = float_values(entries.columns[by])[0][apart]
    ties = entries.columns.get("order", entries.columns.get("items")) if by == "scores" else None
    order = rank_order(
        query[apart],
        -value if by == "ranks" else value,
        None if ties is None else ties.take(pa.array(apart)),
        largest_first=task.largest_first,
    )
    rows = np.arange(len(query))
    rows[apart] = apart[order]
    rows = rows[rank_of_rows(entries.offsets) < n_kept]
    taken = pa.array(rows)
    lengths = np.minimum(np.diff(entries.offsets), n_kept)
    return _Entries({name: column.take(taken) for name, column in entries.columns.items()}, offsets_of(lengths))


def _ideal(batch: pa.RecordBatch, best: _Entries, task: MergeTask) -> pa.Array:
    """The first k of the best relevances, none of whose items is certainly there twice.

    Of items that tie across the end of the list, which are in it is chance, and they are not looked at.
    """
    relevance, lengths = best.columns["best"], np.diff(best.offsets)
    if "best_items" in best.columns:
        value = float_values(relevance)[0]
        query, place = query_of_rows(best.offsets), rank_of_rows(best.offsets)
        beyond = np.full(len(lengths), -np.inf)
        beyond[lengths > task.k] = value[best.offsets[:-1][lengths > task.k] + task.k]
        certain = value > beyond[query]
        n_certain = np.bincount(query[certain], minlength=len(lengths))
        items = best.columns["best_items"].take(pa.array(np.flatnonzero(certain)))
        _refuse_repeats(batch, task, items, offsets_of(n_certain), "judgments")
        relevance = relevance.take(pa.array(np.flatnonzero(place < task.k)))
        lengths = np.minimum(lengths, task.k)
    return list_column(relevance, lengths)


def _refuse_repeats(batch: pa.RecordBatch, task: MergeTask, items: pa.Array, offsets: IntArray, kind: str) -> None:
    codes = items if pa.types.is_integer(items.type) else items.dictionary_encode().indices
    twice = repeats(codes.to_numpy(zero_copy_only=False).astype(np.int64), offsets)
    at = first_where(twice, np.arange(len(twice) + 1))
    if at is not None:
        query = describe_key(batch, task.keys, at)
        raise InputRefusedError(f"an item comes twice in the {kind} of query {query}. {_ADVICE}")
