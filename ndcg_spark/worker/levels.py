"""Levels of relevance to lists: what each level says of its ranks and its number of items, as a list by rank."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    first_where,
    offsets_of,
    query_of_rows,
    segment_sum,
)
from ndcg_spark.worker.batches import float_column, float_values, int_values, list_offsets

LONGEST = 62
"""Ranks that fit into the bits of a bigint with its sign left alone."""


def repeated_rank(batch: pa.RecordBatch) -> int | None:
    """Index of the first query in which one level has two items on one rank, or None.

    Parameters
    ----------
    batch : pyarrow record batch
        With `levels`.

    Returns
    -------
    int or None
        Two levels on one rank show in the lists.
    """
    levels = batch.column("levels")
    fields = levels.flatten()
    ranks, within = int_values(fields.field("ranks")), int_values(fields.field("n_within"))
    return first_where(_bits(ranks).sum(axis=1) != within, list_offsets(levels))


def with_lists(batch: pa.RecordBatch, k: int) -> pa.RecordBatch:
    """Replace `levels` by `ranked`, `ranks` and `ideal`.

    Parameters
    ----------
    batch : pyarrow record batch
        Rankings with `levels`: lists of structs of `relevance` (null: unjudged), `n_ideal` (how many items of the
        ideal list are of this relevance), `n_within` (how many have a rank up to k) and `ranks` (bit r - 1: one is
        on rank r).
    k : int
        The largest cutoff, at most 62.

    Returns
    -------
    pyarrow record batch
        `ideal` holds up to k items of each level, the highest first.
    """
    levels = batch.column("levels")
    offsets, fields = list_offsets(levels), levels.flatten()
    relevance, judged = float_values(fields.field("relevance"))
    ranked, ranks, lengths = _by_rank(int_values(fields.field("ranks")), query_of_rows(offsets), batch.num_rows)
    best, n_best = _best_first(relevance, judged, int_values(fields.field("n_ideal")), offsets, k)
    lists = {
        "ranked": _lists(float_column(relevance[ranked], judged[ranked]), lengths),
        "ranks": _lists(pa.array(ranks + 1), lengths),
        "ideal": _lists(pa.array(best), n_best),
    }
    kept = [name for name in batch.schema.names if name != "levels"]
    columns = [*(batch.column(name) for name in kept), *lists.values()]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, *lists])


def _bits(ranks: IntArray) -> BoolArray:
    return np.asarray(ranks[:, None] >> np.arange(LONGEST) & 1, dtype=np.bool_)


def _by_rank(ranks: IntArray, query: IntArray, n_queries: int) -> tuple[IntArray, IntArray, IntArray]:
    """Level and 0-based rank of every item that has one, in rank order, and the number of them in each query."""
    level, rank = np.nonzero(_bits(ranks))
    order = np.argsort(query[level] * LONGEST + rank, kind="stable")
    lengths = np.bincount(query[level], minlength=n_queries).astype(np.int64)
    return level[order], rank[order], lengths


def _best_first(
    relevance: FloatArray, judged: BoolArray, n_ideal: IntArray, offsets: IntArray, k: int
) -> tuple[FloatArray, IntArray]:
    query = query_of_rows(offsets)
    n_listed = np.where(judged, np.minimum(n_ideal, k), 0)
    order = np.lexsort((-relevance, query))  # within queries only, so that offsets stay as they are
    lengths = segment_sum(n_listed.astype(np.float64), offsets).astype(np.int64)
    return np.repeat(relevance[order], n_listed[order]), lengths


def _lists(values: pa.Array, lengths: IntArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets_of(lengths).astype(np.int32)), values)
