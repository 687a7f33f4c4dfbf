"""Items of rankings, and what was joined to them, as metrics read it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import flags_of, float_values, int_values, list_column, list_offsets, value_at
from ndcg_spark.core.distances import Vectors, WordArray, scaled_to_one, vectors_of
from ndcg_spark.core.ragged import BoolArray, IntArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.tasks.partial_ranking import rank_values
from ndcg_spark.metrics import Need
from ndcg_spark.metrics.alpha_ndcg import TopicItems
from ndcg_spark.metrics.base import CATEGORIES, FIRST_SEEN, POPULARITY, SEEN, TOPICS, VECTOR
from ndcg_spark.metrics.intra_list_diversity import category_words
from ndcg_spark.metrics.lists import ItemLists


def read_items(
    batch: pa.RecordBatch, rank: IntArray, offsets: IntArray, needs: tuple[Need, ...], item_column: str
) -> ItemLists:
    """Read `items` of rankings and their features. `rank` is 0-based, by row; `offsets` are those of queries.

    Refuses an item that is in the item table twice, and a vector that is zero, not finite, or of another length.
    """
    items = batch.column("items").flatten()
    found: dict[str, Any] = {}
    if "features" in batch.schema.names:
        features = _Features(batch, items, offsets, item_column)
        if VECTOR in needs:
            found["vectors"], found["has_vector"] = features.vectors()
        if CATEGORIES in needs:
            found["categories"] = features.categories()
        if FIRST_SEEN in needs:
            found["days"] = features.column("days").to_numpy(zero_copy_only=False)
        if POPULARITY in needs:
            for name in ("interactions", "users"):
                found[name] = int_values(features.column(name))
                totals = int_values(batch.column(f"n_{name}"))
                found[f"n_{name}"] = int(totals[0]) if len(totals) else 1
                if not found[f"n_{name}"]:
                    raise InputRefusedError("the interactions table has no interactions.")
        if SEEN in needs:
            found["seen"] = flags_of(features.column("seen"))
    if TOPICS in needs:
        found["topics"] = _index_topics(batch, items, offsets)
    return ItemLists(rank, offsets, **found)


def take_first_items(batch: pa.RecordBatch, rank: IntArray, k: int | None) -> pa.Array:
    """Return the `items` of rankings that are on the first k ranks; nulls where k is 0."""
    column = batch.column("items")
    if k == 0:
        return pa.nulls(len(column), column.type)
    inside = np.flatnonzero(rank < k) if k is not None else np.arange(len(rank))
    offsets = ragged.chosen_offsets(inside, list_offsets(column))
    return list_column(column.flatten().take(pa.array(inside)), offsets).cast(column.type)


class _Features:
    """What was joined to the items of a batch, one row each."""

    def __init__(self, batch: pa.RecordBatch, items: pa.Array, offsets: IntArray, item_column: str) -> None:
        lists = batch.column("features")
        self._items, self._offsets, self._item_column = items, offsets, item_column
        self._rows, lengths = lists.flatten(), list_offsets(lists)
        if not np.array_equal(lengths, offsets):
            twice = ragged.equals_previous(int_values(self.column("place")), lengths)
            place = int(int_values(self.column("place"))[twice.argmax()])
            query = int(ragged.query_of_rows(lengths)[twice.argmax()])
            self._refuse(int(offsets[query]) + place, "comes twice in the item table; keep one row of it")

    def column(self, name: str) -> pa.Array:
        return pc.struct_field(self._rows, name)

    def vectors(self) -> tuple[Vectors, BoolArray]:
        """Read vectors of all items, and which items have one.

        Zeros pad vectors to a power of two: sums by halves then do not depend on longer vectors of the batch.
        """
        column = self.column(VECTOR.what)
        known, offsets = flags_of(column.is_valid()), list_offsets(column)
        lengths = ragged.lengths_of(offsets)
        self._refuse_lengths(lengths, known)
        values, there = float_values(column.flatten())
        owner = ragged.query_of_rows(offsets)
        self._refuse_first(
            owner[~there | ~np.isfinite(values)], "has a vector with an entry that is no finite number"
        )
        width = 1 << int(max(1, lengths.max(initial=1)) - 1).bit_length()
        matrix = np.zeros((len(known), width))
        matrix[owner, np.arange(len(owner)) - offsets[:-1][owner]] = values
        self._refuse_first(np.flatnonzero(known & ~matrix.any(axis=1)), "has a vector of zeros, which has no cosine")
        found = vectors_of(scaled_to_one(matrix))
        if found.norms is None:
            raise ValueError("vectors have norms")
        return Vectors(found.values, np.where(known, found.norms, 1.0)), known

    def categories(self) -> WordArray:
        """Categories of all items as bits."""
        column = self.column(CATEGORIES.what)
        rows, values = ragged.query_of_rows(list_offsets(column)), column.flatten()
        there = flags_of(values.is_valid())
        codes = int_values(values.filter(pa.array(there)).dictionary_encode().indices)
        return category_words(rows[there], codes, self._offsets)

    def _refuse_lengths(self, lengths: IntArray, known: BoolArray) -> None:
        rows = np.flatnonzero(known)
        of_query = ragged.chosen_offsets(rows, self._offsets)
        query = ragged.query_of_rows(of_query)
        first = lengths[rows][of_query[:-1][query]] if len(rows) else lengths[rows]
        bad = np.flatnonzero(lengths[rows] != first)
        if len(bad):
            at = int(bad[0])
            low, high = sorted((int(first[at]), int(lengths[rows[at]])))
            self._refuse(int(rows[at]), f"is listed with items that have vectors of two lengths, {low} and {high}")

    def _refuse_first(self, rows: NDArray[Any], what: str) -> None:
        if len(rows):
            self._refuse(int(rows[0]), what)

    def _refuse(self, row: int, what: str) -> None:
        raise InputRefusedError(f"item {self._item_column}={value_at(self._items, row)} {what}.")


def _index_topics(
    batch: pa.RecordBatch, items: pa.Array, offsets: IntArray
) -> Callable[[float], tuple[TopicItems, IntArray]]:
    """Give the relevant judged items of each query with their topics, the larger item first."""
    lists = batch.column("topics_of_items")
    judged, query = lists.flatten(), ragged.query_of_rows(list_offsets(lists))
    relevance = float_values(pc.struct_field(judged, "relevance"))[0]
    place = rank_values(pa.concat_arrays([items, pc.struct_field(judged, "item")]))
    span = int(place.max(initial=0)) + 1
    keys = np.concatenate([ragged.query_of_rows(offsets), query]) * span + (span - 1 - place)
    of_topics = pc.struct_field(judged, "topics")
    owner, values = ragged.query_of_rows(list_offsets(of_topics)), of_topics.flatten()
    there = flags_of(values.is_valid())
    owner, codes = owner[there], int_values(values.filter(pa.array(there)).dictionary_encode().indices)

    @cache
    def truth(level: float) -> tuple[TopicItems, IntArray]:
        inside = relevance[owner] >= level
        pair_item, pair_code = owner[inside], codes[inside]
        found, item = np.unique(keys[len(items) :][pair_item], return_inverse=True)
        _, topic = np.unique(query[pair_item] * (int(codes.max(initial=0)) + 1) + pair_code, return_inverse=True)
        n_topics = int(topic.max(initial=0)) + 1
        pairs = np.unique(item * n_topics + topic)
        counts = np.bincount(pairs // n_topics, minlength=len(found))
        per_query = np.bincount(found // span, minlength=batch.num_rows)
        at = np.minimum(np.searchsorted(found, keys[: len(items)]), max(len(found) - 1, 0))
        listed = np.where(found[at] == keys[: len(items)], at, -1) if len(found) else np.full(len(items), -1)
        return TopicItems(ragged.offsets_of(per_query), ragged.offsets_of(counts), pairs % n_topics), listed

    return truth
