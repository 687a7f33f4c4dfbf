"""Read the items of rankings and their features for metrics of items."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import float_values, get_value, int_values, list_column, list_offsets, to_flags
from ndcg_spark.core.distances import Vectors, WordArray, make_vectors, scale_to_one
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
    """Read `items` of rankings and their features. `rank` is 0-based, one per item; `offsets` separate queries.

    Raises if an item is in the item table twice, or has a vector that is zero, not finite, or of another length.
    """
    items = batch.column("items").flatten()
    fields: dict[str, Any] = {}
    if "features" in batch.schema.names:
        features = _Features(batch, items, offsets, item_column)
        if VECTOR in needs:
            fields["vectors"], fields["has_vector"] = features.vectors()
        if CATEGORIES in needs:
            fields["categories"] = features.categories()
        if FIRST_SEEN in needs:
            fields["days"] = features.column("days").to_numpy(zero_copy_only=False)
        if POPULARITY in needs:
            for count in ("interactions", "users"):
                fields[count] = int_values(features.column(count))
                totals = int_values(batch.column(f"n_{count}"))
                fields[f"n_{count}"] = int(totals[0]) if len(totals) else 1
                if not fields[f"n_{count}"]:
                    raise InputRefusedError("the interactions table has no interactions.")
        if SEEN in needs:
            fields["seen"] = to_flags(features.column("seen"))
    if TOPICS in needs:
        fields["topics"] = _index_topics(batch, items, offsets)
    return ItemLists(rank, offsets, **fields)


def take_first_items(batch: pa.RecordBatch, rank: IntArray, k: int | None) -> pa.Array:
    """Return the `items` of rankings on the first k ranks; null for every query if k is 0."""
    column = batch.column("items")
    if k == 0:
        return pa.nulls(len(column), column.type)
    inside = np.flatnonzero(rank < k) if k is not None else np.arange(len(rank))
    offsets = ragged.offsets_after_filter(inside, list_offsets(column))
    return list_column(column.flatten().take(pa.array(inside)), offsets).cast(column.type)


class _Features:
    """Features of the items of a batch, one row per item."""

    def __init__(self, batch: pa.RecordBatch, items: pa.Array, offsets: IntArray, item_column: str) -> None:
        lists = batch.column("features")
        self._items, self._offsets, self._item_column = items, offsets, item_column
        self._rows, lengths = lists.flatten(), list_offsets(lists)
        if not np.array_equal(lengths, offsets):
            twice = ragged.equals_previous(int_values(self.column("place")), lengths)
            place = int(int_values(self.column("place"))[twice.argmax()])
            query = int(ragged.query_of_rows(lengths)[twice.argmax()])
            self._refuse(int(offsets[query]) + place, "appears twice in the item table; keep one row")

    def column(self, name: str) -> pa.Array:
        return pc.struct_field(self._rows, name)

    def vectors(self) -> tuple[Vectors, BoolArray]:
        """Return the vectors of all items, scaled by powers of two, and flags of the items that have one.

        Vectors are padded with zeros to a power of two, so that pairwise sums do not depend on the longest vector of
        the batch.
        """
        column = self.column(VECTOR.what)
        known, offsets = to_flags(column.is_valid()), list_offsets(column)
        lengths = ragged.to_lengths(offsets)
        self._refuse_lengths(lengths, known)
        values, has_value = float_values(column.flatten())
        owner = ragged.query_of_rows(offsets)
        self._refuse_first(
            owner[~has_value | ~np.isfinite(values)], "has a vector with an entry that is not a finite number"
        )
        width = 1 << int(max(1, lengths.max(initial=1)) - 1).bit_length()
        matrix = np.zeros((len(known), width))
        matrix[owner, np.arange(len(owner)) - offsets[:-1][owner]] = values
        self._refuse_first(np.flatnonzero(known & ~matrix.any(axis=1)), "has a vector of zeros, which has no cosine")
        vectors = make_vectors(scale_to_one(matrix))
        if vectors.norms is None:
            raise ValueError("vectors have norms")
        return Vectors(vectors.values, np.where(known, vectors.norms, 1.0)), known

    def categories(self) -> WordArray:
        """Return the categories of all items as bit sets."""
        column = self.column(CATEGORIES.what)
        rows, values = ragged.query_of_rows(list_offsets(column)), column.flatten()
        has_value = to_flags(values.is_valid())
        codes = int_values(values.filter(pa.array(has_value)).dictionary_encode().indices)
        return category_words(rows[has_value], codes, self._offsets)

    def _refuse_lengths(self, lengths: IntArray, known: BoolArray) -> None:
        rows = np.flatnonzero(known)
        offsets = ragged.offsets_after_filter(rows, self._offsets)
        query = ragged.query_of_rows(offsets)
        first = lengths[rows][offsets[:-1][query]] if len(rows) else lengths[rows]
        bad = np.flatnonzero(lengths[rows] != first)
        if len(bad):
            row = int(bad[0])
            low, high = sorted((int(first[row]), int(lengths[rows[row]])))
            self._refuse(int(rows[row]), f"is listed with items that have vectors of two lengths, {low} and {high}")

    def _refuse_first(self, rows: NDArray[Any], problem: str) -> None:
        if len(rows):
            self._refuse(int(rows[0]), problem)

    def _refuse(self, row: int, problem: str) -> None:
        raise InputRefusedError(f"item {self._item_column}={get_value(self._items, row)} {problem}.")


def _index_topics(
    batch: pa.RecordBatch, items: pa.Array, offsets: IntArray
) -> Callable[[float], tuple[TopicItems, IntArray]]:
    """Return a function of a level: the items of each query with at least that relevance, and their topics.

    Items are in falling order. The function also returns the index among them of each ranked item, or -1.
    """
    lists = batch.column("topics_of_items")
    judged, query = lists.flatten(), ragged.query_of_rows(list_offsets(lists))
    relevance = float_values(pc.struct_field(judged, "relevance"))[0]
    place = rank_values(pa.concat_arrays([items, pc.struct_field(judged, "item")]))
    span = int(place.max(initial=0)) + 1
    keys = np.concatenate([ragged.query_of_rows(offsets), query]) * span + (span - 1 - place)
    topics = pc.struct_field(judged, "topics")
    owner, values = ragged.query_of_rows(list_offsets(topics)), topics.flatten()
    has_value = to_flags(values.is_valid())
    owner, codes = owner[has_value], int_values(values.filter(pa.array(has_value)).dictionary_encode().indices)

    @cache
    def index_relevant_topics(level: float) -> tuple[TopicItems, IntArray]:
        inside = relevance[owner] >= level
        pair_item, pair_code = owner[inside], codes[inside]
        relevant, item = np.unique(keys[len(items) :][pair_item], return_inverse=True)
        _, topic = np.unique(query[pair_item] * (int(codes.max(initial=0)) + 1) + pair_code, return_inverse=True)
        n_topics = int(topic.max(initial=0)) + 1
        pairs = np.unique(item * n_topics + topic)
        counts = np.bincount(pairs // n_topics, minlength=len(relevant))
        per_query = np.bincount(relevant // span, minlength=batch.num_rows)
        index = np.minimum(np.searchsorted(relevant, keys[: len(items)]), max(len(relevant) - 1, 0))
        listed = (
            np.where(relevant[index] == keys[: len(items)], index, -1) if len(relevant) else np.full(len(items), -1)
        )
        return TopicItems(ragged.to_offsets(per_query), ragged.to_offsets(counts), pairs % n_topics), listed

    return index_relevant_topics
