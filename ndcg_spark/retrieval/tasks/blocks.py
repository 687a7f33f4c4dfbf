"""A block of queries and a block of items: filters, and relevance from labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.core.batches import int_values, value_at
from ndcg_spark.core.bits import WordArray, bit_counts
from ndcg_spark.core.distances import Vectors, vectors_of
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.retrieval.tasks.tables import matrix_in, refuse_widths, width_of
from ndcg_spark.retrieval.tasks.task import ID, LABELS, SAME, VECTOR, RetrievalTask

_AT_ONCE = 2**21
"""Pairs of label patterns that are compared at once."""


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Queries that are searched for at once; relevances are from 0 to `n_levels` - 1."""

    rows: pa.RecordBatch
    vectors: Vectors
    n_levels: int

    def __len__(self) -> int:
        """Count the queries."""
        return int(self.rows.num_rows)


def query_block(rows: pa.RecordBatch, task: RetrievalTask) -> QueryBlock:
    """Read a block of packed queries; refuse a query that comes twice."""
    counted = pc.value_counts(rows.column(ID))
    twice = np.flatnonzero(int_values(counted.field("counts")) > 1)
    if len(twice):
        found = value_at(counted.field("values"), int(twice[0]))
        raise InputRefusedError(f"a query comes twice: {task.settings.query}={found}. Each must have one row.")
    n_levels = width_of(rows, LABELS) + 1 if task.label_kind == "array" else 2
    return QueryBlock(rows, vectors_of(matrix_in(rows, VECTOR)), n_levels)


@dataclass(frozen=True, slots=True)
class ItemBlock:
    """Items beside a block of queries.

    `own_query` is the query that an item must not be found for, -1: none; it is None where no item is left out.
    `same` are codes, of queries and of items, that must agree. `labels`, of queries and of items, are bits in words,
    or codes of a value; None where relevance is not wanted.
    """

    rows: pa.RecordBatch
    vectors: Vectors
    own_query: IntArray | None
    same: tuple[IntArray, IntArray] | None
    labels: tuple[NDArray[Any], NDArray[Any]] | None

    def blocked(self, rows: slice, columns: slice) -> BoolArray:
        """Pairs of a tile that a filter rules out."""
        found = np.zeros((rows.stop - rows.start, columns.stop - columns.start), dtype=np.bool_)
        if self.same is not None:
            found |= self.same[0][rows, None] != self.same[1][None, columns]
        if self.own_query is not None:
            own = self.own_query[columns]
            at = np.flatnonzero((own >= rows.start) & (own < rows.stop))
            found[own[at] - rows.start, at] = True
        return found

    @property
    def has_filters(self) -> bool:
        """Whether a filter may rule pairs out."""
        return self.same is not None or (self.own_query is not None and bool((self.own_query >= 0).any()))

    def relevance(self, queries: IntArray, items: IntArray) -> FloatArray:
        """Relevance of pairs."""
        if self.labels is None:
            return np.zeros(len(queries))
        return _shared(self.labels[0][queries], self.labels[1][items]).astype(np.float64)

    def level_counts(self, n_queries: int, n_levels: int) -> IntArray:
        """Count the items of each relevance that a query may find, by pattern of labels instead of by item."""
        counts = np.zeros((n_queries, n_levels), dtype=np.int64)
        if self.labels is None:
            return counts
        nothing = tuple(np.zeros(len(one), dtype=np.int64) for one in self.labels)
        same = self.same or (nothing[0], nothing[1])
        (of_query, place, _), (of_item, _, many) = (
            _patterns(labels, codes) for labels, codes in zip(self.labels, same, strict=True)
        )
        by_pattern = np.zeros((len(of_query), n_levels), dtype=np.int64)
        step = max(1, _AT_ONCE // max(1, len(of_query) * of_query.shape[1]))
        for start in range(0, len(of_item), step):
            part, weight = of_item[start : start + step], many[start : start + step]
            level = _shared(of_query[:, None, 1:], part[None, :, 1:], values=self.labels[0].ndim == 1)
            level = np.where(of_query[:, None, 0] == part[None, :, 0], level, -1)
            for one in range(int(level.max(initial=-1)) + 1):
                by_pattern[:, one] += (level == one) @ weight
        counts += by_pattern[place]
        if self.own_query is not None:
            self._take_own(counts, self.own_query, same)
        return counts

    def _take_own(self, counts: IntArray, own_query: IntArray, same: tuple[IntArray, IntArray]) -> None:
        item = np.flatnonzero(own_query >= 0)
        query = own_query[item]
        counted = same[0][query] == same[1][item]
        item, query = item[counted], query[counted]
        np.subtract.at(counts, (query, self.relevance(query, item).astype(np.int64)), 1)


def item_block(rows: pa.RecordBatch, queries: QueryBlock, task: RetrievalTask) -> ItemBlock:
    """Read a block of packed items; refuse vectors or labels that differ in length from those of the queries."""
    refuse_widths(VECTOR, width_of(queries.rows, VECTOR), width_of(rows, VECTOR))
    own_query = same = labels = None
    if task.settings.exclude_self:
        own_query = _places(rows.column(ID), queries.rows.column(ID))
    if task.settings.same is not None:
        same = _codes(queries.rows.column(SAME), rows.column(SAME))
    if task.label_kind == "array":
        refuse_widths(LABELS, width_of(queries.rows, LABELS), width_of(rows, LABELS))
        labels = matrix_in(queries.rows, LABELS), matrix_in(rows, LABELS)
    elif task.label_kind == "value":
        labels = _codes(queries.rows.column(LABELS), rows.column(LABELS))
    return ItemBlock(rows, vectors_of(matrix_in(rows, VECTOR)), own_query, same, labels)


def _places(values: pa.Array, among: pa.Array) -> IntArray:
    """Place of each value in an array without repeats; -1 where it is not there."""
    if values.type != among.type:  # whole numbers of two sizes
        values, among = values.cast(pa.int64()), among.cast(pa.int64())
    return int_values(pc.fill_null(pc.index_in(values, value_set=among), -1))


def _codes(queries: pa.Array, items: pa.Array) -> tuple[IntArray, IntArray]:
    """Small whole numbers for values, the same for the same value; -1 for an item whose value no query has."""
    known = queries.unique()
    return _places(queries, known), _places(items, known)


def _shared(left: NDArray[Any], right: NDArray[Any], *, values: bool | None = None) -> NDArray[Any]:
    """Relevance: labels in common, or 1 for the same value."""
    if left.ndim == 1:
        return np.asarray(left == right)
    if values:
        return np.asarray((left == right)[..., 0]).astype(np.int64)
    both: WordArray = np.bitwise_and(left.view(np.uint64), right.view(np.uint64))
    return np.asarray(bit_counts(both).sum(axis=-1, dtype=np.int64))


def _patterns(labels: NDArray[Any], same: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Different rows of (code, labels), the place of each row among them, and how many rows there are of each."""
    columns = [same, labels] if labels.ndim == 1 else [same, *labels.view(np.int64).T]
    matrix = np.column_stack(columns).astype(np.int64)
    found, place, many = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    return found, place.reshape(-1), many
