"""Packed grades to lists: which grade stands on each rank, and how many items have each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray, first_where, offsets_of, query_of_rows
from ndcg_spark.worker.batches import float_column, float_values, int_values, list_offsets
from ndcg_spark.worker.lists import TWO_ON_ONE_RANK, refuse_query

HIGHEST = 10
"""Grades from 0 to this are packed; it is even, as counts are packed in pairs from 1 on."""
DIGIT_BITS = 4
RANKS_OF_A_WORD = 15
"""Digits that fit into a bigint with its sign left alone."""
LONGEST = 60
"""Ranks that four words hold; and bits of a bigint, for relevances that are no grades."""
COUNT_BITS = 31
"""Of a count, of which two share a number: a query with as many items as do not fit into one is refused."""
TOO_MANY = "has more judged items than ranks by grades can count (2^31); choose another way (way=top_k or way=window)"
UNJUDGED, OTHER = 1, 15
"""Digits of an unjudged item and of one whose relevance is no grade; 0 stands for a rank without item."""


def digit_of(grade: int) -> int:
    """Digit that stands for a grade.

    Parameters
    ----------
    grade : int

    Returns
    -------
    int
    """
    return grade + UNJUDGED + 1


_RELEVANCES: FloatArray = np.maximum(np.arange(2.0**DIGIT_BITS) - digit_of(0), 0.0)
"""Relevance by digit: what is unjudged counts 0 where a number is needed, what is no grade is filled in later."""


@dataclass(slots=True)
class Others:
    """Relevances that are no grades, one entry for each different one of a query.

    Parameters
    ----------
    query : int64, shape (n_others,)
        Index into the batch.
    relevance : float64
    n_ideal : int64
        How many items of the ideal list have it.
    ranks : int64
        Bit r - 1: an item of it is on rank r.
    """

    query: IntArray
    relevance: FloatArray
    n_ideal: IntArray
    ranks: IntArray


def with_lists(batch: pa.RecordBatch, k: int, keys: tuple[str, ...], *, any_order: bool = False) -> pa.RecordBatch:
    """Replace `grades` and `others` by `ranked`, `ranks` and `ideal`.

    Parameters
    ----------
    batch : pyarrow record batch
        Rankings with `grades`, structs of `words` (digits of the ranks, the first lowest, fifteen in each),
        `n_within` (items with a rank up to k), `counts` (of grades 1 to 10 in the ideal list, in pairs, the lower
        in the lower bits) and `n_ideal` (of all its items); and with `others`, lists of structs of `relevance`,
        `n_ideal` and `ranks`, as in `Others`, or null.
    k : int
        The largest cutoff, at most 60.
    keys : tuple of str
        Columns that name a query.
    any_order : bool
        Whether gains need not rise with relevance: the ideal list then holds up to k items of each.

    Returns
    -------
    pyarrow record batch

    Raises
    ------
    InputRefusedError
        When a query has two items on one rank, or too many to count.
    """
    packed = batch.column("grades")
    fields = {field.name: packed.field(at) for at, field in enumerate(packed.type)}
    others = _others(batch.column("others"))
    digits = _digits(_matrix(fields["words"], -(-k // RANKS_OF_A_WORD)), k)
    filled = digits > 0
    lengths = filled.sum(axis=1)
    refuse_query(batch, keys, _first(lengths != int_values(fields["n_within"])), TWO_ON_ONE_RANK)
    refuse_query(batch, keys, _first(int_values(fields["n_ideal"]) >> COUNT_BITS > 0), TOO_MANY)
    relevance, judged = _relevances(digits, filled, others)
    ranks = np.broadcast_to(np.arange(1, k + 1), digits.shape)[filled]
    best, n_best = _best_first(_grade_counts(fields, batch.num_rows, others), others, k, any_order=any_order)
    lists = {
        "ranked": _lists(float_column(relevance, judged), lengths),
        "ranks": _lists(pa.array(ranks), lengths),
        "ideal": _lists(pa.array(best), n_best),
    }
    kept = [name for name in batch.schema.names if name not in ("grades", "others")]
    columns = [*(batch.column(name) for name in kept), *lists.values()]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, *lists])


def _first(wrong: BoolArray) -> int | None:
    return first_where(wrong, np.arange(len(wrong) + 1))


def _others(column: pa.Array) -> Others:
    fields = column.flatten()
    relevance = float_values(fields.field("relevance"))[0]
    n_ideal, ranks = int_values(fields.field("n_ideal")), int_values(fields.field("ranks"))
    return Others(query_of_rows(list_offsets(column)), relevance, n_ideal, ranks)


def _matrix(column: pa.Array, width: int) -> IntArray:
    return int_values(column.flatten()).reshape(-1, width)


def _digits(words: IntArray, k: int) -> IntArray:
    """Digit of every rank, shape (n_queries, k)."""
    spread = words[:, :, None] >> (DIGIT_BITS * np.arange(RANKS_OF_A_WORD)) & 2**DIGIT_BITS - 1
    return np.asarray(spread.reshape(len(words), words.shape[1] * RANKS_OF_A_WORD)[:, :k])


def _relevances(digits: IntArray, filled: BoolArray, others: Others) -> tuple[FloatArray, BoolArray]:
    """Relevances of the ranks that are filled, and which of them are known."""
    digit = digits[filled]
    relevance = _RELEVANCES[digit]
    if len(others.query):
        one, rank = np.nonzero(others.ranks[:, None] >> np.arange(LONGEST) & 1)
        at = np.searchsorted(np.flatnonzero(filled), others.query[one] * filled.shape[1] + rank)
        relevance[at] = others.relevance[one]
    return relevance, digit != UNJUDGED


def _grade_counts(fields: dict[str, pa.Array], n_rows: int, others: Others) -> IntArray:
    """Items of the ideal list of every grade, the highest first, shape (n_queries, 11)."""
    pairs = _matrix(fields["counts"], HIGHEST // 2)
    counts = np.zeros((n_rows, HIGHEST + 1), dtype=np.int64)
    counts[:, -2::-2], counts[:, -3::-2] = pairs & 2**COUNT_BITS - 1, pairs >> COUNT_BITS
    n_other = np.bincount(others.query, weights=others.n_ideal, minlength=n_rows).astype(np.int64)
    counts[:, -1] = int_values(fields["n_ideal"]) - n_other - counts.sum(axis=1)
    return counts


def _best_first(counts: IntArray, others: Others, k: int, *, any_order: bool) -> tuple[FloatArray, IntArray]:
    """Relevances of the ideal lists, each with the best first, and their lengths."""
    n_queries, n_grades = counts.shape
    relevance, n_items = np.tile(np.arange(HIGHEST, -1.0, -1.0), n_queries), counts.reshape(-1)
    starts = np.arange(n_queries) * n_grades
    if len(others.query):
        query = np.append(np.repeat(np.arange(n_queries), n_grades), others.query)
        relevance = np.append(relevance, others.relevance)
        order = np.lexsort((-relevance, query))
        relevance, n_items = relevance[order], np.append(n_items, others.n_ideal)[order]
        starts = np.searchsorted(query[order], np.arange(n_queries))
    n_listed = np.minimum(n_items, k)
    if not any_order:
        before = np.cumsum(n_listed) - n_listed
        before -= np.repeat(before[starts], np.diff(starts, append=len(before)))
        n_listed = np.clip(k - before, 0, n_listed)
    lengths = np.add.reduceat(n_listed, starts) if n_queries else np.zeros(0, dtype=np.int64)
    return np.repeat(relevance, n_listed), lengths


def _lists(values: pa.Array, lengths: IntArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets_of(lengths).astype(np.int32)), values)
