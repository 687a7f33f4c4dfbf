"""Packed grades to lists: how many items have each grade, and which grade stands on each rank."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray, first_where, offsets_of, query_of_rows
from ndcg_spark.worker.batches import float_column, float_values, int_values, list_offsets
from ndcg_spark.worker.lists import TWO_ON_ONE_RANK, refuse_query

HIGHEST = 9
"""Grades from 0 to this are packed; it is odd, as counts are packed in pairs from 0 on."""
DIGIT_BITS = 4
RANKS_OF_A_WORD = 16
"""Digits of a bigint; rank r has digit r % 16 of word r // 16, so that rank and shift need no arithmetic."""
LONGEST = 63
"""Ranks that four words hold: the lowest digit of the first is that of no rank."""
COUNT_BITS = 31
"""Of a count, of which two share a number: a query with as many items as do not fit into one is refused."""
TOO_MANY = "has more judged items than can be counted by grade (2^31); choose way=top_k, or look for duplicates"
UNJUDGED, OTHER = 1, 2
"""Digits of an unjudged item and of one whose relevance is no grade; 0 stands for a rank without item."""
FLIPPED = 0b1111
"""What a grade is flipped by (xor) to be its digit: Spark looks for overflow at every addition, not here."""


def digit_of(grade: int) -> int:
    """Digit that stands for a grade.

    Parameters
    ----------
    grade : int

    Returns
    -------
    int
    """
    return grade ^ FLIPPED


_RELEVANCES: FloatArray = np.zeros(2**DIGIT_BITS)
"""Relevance by digit: what is unjudged counts 0 where a number is needed, what is no grade is filled in later."""
_RELEVANCES[digit_of(HIGHEST) :] = np.arange(HIGHEST, -1.0, -1.0)


def with_lists(batch: pa.RecordBatch, k: int, keys: tuple[str, ...], *, any_order: bool = False) -> pa.RecordBatch:
    """Replace `grades` and `others` by `ideal`, and where ranks are packed by `ranked` and `ranks`.

    Parameters
    ----------
    batch : pyarrow record batch
        Rankings with `n_judged`; with `grades`, structs of `counts` (of grades 0 to 9 in the ideal list, in pairs,
        the lower in the lower bits), and maybe `words` (digits of the ranks from 0 on, the first lowest, sixteen in
        each) and `n_within` (items with a rank up to k); and with `others`, structs of lists of the relevances that
        are no grades: `ranked` (on the ranks up to k, in rank order) and `ideal` (the k best), or null.
    k : int
        The largest cutoff; at most 63 where ranks are packed.
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
    others = dict(zip(("ranked", "ideal"), batch.column("others").flatten(), strict=True))
    refuse_query(batch, keys, _first(int_values(batch.column("n_judged")) >> COUNT_BITS > 0), TOO_MANY)
    lists = _ranked_lists(batch, fields, others["ranked"], k, keys) if "words" in fields else {}
    best, n_best = _best_first(_grade_counts(fields["counts"]), others["ideal"], k, any_order=any_order)
    lists["ideal"] = _lists(pa.array(best), n_best)
    kept = [name for name in batch.schema.names if name not in ("grades", "others")]
    columns = [*(batch.column(name) for name in kept), *lists.values()]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, *lists])


def _ranked_lists(
    batch: pa.RecordBatch, fields: dict[str, pa.Array], others: pa.Array, k: int, keys: tuple[str, ...]
) -> dict[str, pa.Array]:
    digits = _digits(_matrix(fields["words"], 1 + k // RANKS_OF_A_WORD), k)
    filled = digits > 0
    lengths = filled.sum(axis=1)
    refuse_query(batch, keys, _first(lengths != int_values(fields["n_within"])), TWO_ON_ONE_RANK)
    digit = digits[filled]
    relevance = _RELEVANCES[digit]
    relevance[digit == OTHER] = float_values(others.flatten())[0]  # both in the order of queries and ranks
    ranks = np.broadcast_to(np.arange(1, k + 1), digits.shape)[filled]
    return {
        "ranked": _lists(float_column(relevance, digit != UNJUDGED), lengths),
        "ranks": _lists(pa.array(ranks), lengths),
    }


def _first(wrong: BoolArray) -> int | None:
    return first_where(wrong, np.arange(len(wrong) + 1))


def _matrix(column: pa.Array, width: int) -> IntArray:
    return int_values(column.flatten()).reshape(-1, width)


def _digits(words: IntArray, k: int) -> IntArray:
    """Digit of every rank, shape (n_queries, k)."""
    spread = words[:, :, None] >> (DIGIT_BITS * np.arange(RANKS_OF_A_WORD)) & 2**DIGIT_BITS - 1
    return np.asarray(spread.reshape(len(words), words.shape[1] * RANKS_OF_A_WORD)[:, 1 : k + 1])


def _grade_counts(column: pa.Array) -> IntArray:
    """Items of the ideal list of every grade, the highest first, shape (n_queries, 10)."""
    pairs = _matrix(column, (HIGHEST + 1) // 2)
    counts = np.empty((len(pairs), HIGHEST + 1), dtype=np.int64)
    counts[:, ::-2], counts[:, -2::-2] = pairs & 2**COUNT_BITS - 1, pairs >> COUNT_BITS
    return counts


def _best_first(counts: IntArray, others: pa.Array, k: int, *, any_order: bool) -> tuple[FloatArray, IntArray]:
    """Relevances of the ideal lists, each with the best first, and their lengths."""
    n_queries, n_grades = counts.shape
    relevance, n_items = np.tile(np.arange(HIGHEST, -1.0, -1.0), n_queries), counts.reshape(-1)
    starts = np.arange(n_queries) * n_grades
    other = float_values(others.flatten())[0]
    if len(other):
        query = np.append(np.repeat(np.arange(n_queries), n_grades), query_of_rows(list_offsets(others)))
        relevance = np.append(relevance, other)
        order = np.lexsort((-relevance, query))
        relevance, n_items = relevance[order], np.append(n_items, np.ones_like(other, dtype=np.int64))[order]
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
