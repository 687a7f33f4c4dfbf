"""Intra-list similarity and diversity: how alike the pairs of items of a list are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.distances import WORD, Vectors, WordArray, count_bits, score_pairs
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, offsets_after_filter, query_of_rows, to_lengths
from ndcg_spark.metrics.base import CATEGORIES, VECTOR, Metric, NamedMetric, Need
from ndcg_spark.metrics.lists import ItemLists, RelevanceLists


def mean_cosine(vectors: Vectors, items: IntArray, offsets: IntArray) -> FloatArray:
    """Mean cosine similarity of the pairs of each query's items, between -1 and 1; NaN for fewer than two items.

    `items` holds the index of the vector of each item, best rank first; no vector is zero. Rank by rank, each item is
    multiplied by the sum of those above: as many steps as a list has items, not pairs. The bits of a query depend on
    its own items alone.

    >>> from ndcg_spark.core.distances import make_vectors
    >>> vectors = make_vectors(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]))
    >>> mean_cosine(vectors, np.arange(3), np.array([0, 3])).round(6).tolist()
    [0.466667]
    """
    lengths = to_lengths(offsets)
    if vectors.norms is None:
        raise ValueError("codes have no cosine similarity")
    units = vectors.values / vectors.norms[:, None]
    total, above = np.zeros(len(lengths)), np.zeros((len(lengths), units.shape[1]))
    for rank in range(int(lengths.max(initial=0))):
        query = np.flatnonzero(lengths > rank)
        current = units[items[offsets[:-1][query] + rank]]
        if rank:
            rows = np.arange(len(query))
            total[query] += score_pairs("inner", Vectors(current, None), Vectors(above[query], None), rows, rows)
        above[query] += current
    return np.clip(_pair_mean(total, lengths), -1.0, 1.0)


def mean_jaccard(words: WordArray, offsets: IntArray) -> FloatArray:
    """Mean Jaccard similarity of the pairs of each query's items, between 0 and 1; NaN for fewer than two items.

    `words` holds the categories of each item, at least one, as bits; see `category_words`.

    >>> words = category_words(np.array([0, 0, 1, 1, 2]), np.array([5, 6, 6, 7, 8]), np.array([0, 3]))
    >>> mean_jaccard(words, np.array([0, 3])).round(6).tolist()
    [0.111111]
    """
    lengths, query = to_lengths(offsets), query_of_rows(offsets)
    sizes = count_bits(words).sum(axis=1, dtype=np.int64)
    total = np.zeros(len(lengths))
    for distance in range(1, int(lengths.max(initial=0))):
        first = np.flatnonzero(query[distance:] == query[:-distance])
        shared = count_bits(words[first] & words[first + distance]).sum(axis=1, dtype=np.int64)
        similarity = shared / (sizes[first] + sizes[first + distance] - shared)
        total += np.bincount(query[first], weights=similarity, minlength=len(lengths))
    return _pair_mean(total, lengths)


def category_words(rows: IntArray, categories: IntArray, offsets: IntArray) -> WordArray:
    """Number the categories of each query from 0 on, and return those of each item as bits, shape (n_items, n_words).

    `rows` and `categories` are pairs of an item and a category; `offsets` are those of items.
    """
    query = query_of_rows(offsets)[rows]
    n_codes = int(categories.max(initial=0)) + 1
    distinct, place = np.unique(query * n_codes + categories, return_inverse=True)
    starts = np.searchsorted(distinct, np.arange(len(offsets) - 1) * n_codes)
    local = place - starts[query]
    words = np.zeros((int(offsets[-1]), int(local.max(initial=0)) // WORD + 1), dtype=np.uint64)
    np.bitwise_or.at(words, (rows, local // WORD), np.uint64(1) << (local % WORD).astype(np.uint64))
    return words


def excluded_pair_share(known: BoolArray, offsets: IntArray) -> FloatArray:
    """Share of the pairs of each query's items in which one has no features; NaN for fewer than two items.

    >>> excluded_pair_share(np.array([True, False, True]), np.array([0, 3])).round(6).tolist()
    [0.666667]
    """
    n_known, all_items = to_lengths(offsets_after_filter(known, offsets)), to_lengths(offsets)
    pairs = all_items * (all_items - 1) // 2
    n_excluded = pairs - n_known * (n_known - 1) // 2
    return np.where(pairs > 0, n_excluded / np.maximum(pairs, 1), np.nan)


def _pair_mean(total: FloatArray, lengths: IntArray) -> FloatArray:
    pairs = lengths * (lengths - 1) // 2
    return np.where(pairs > 0, total / np.maximum(pairs, 1), np.nan)


KINDS = {"vector": VECTOR, "categories": CATEGORIES}


@dataclass(frozen=True)
class _PairMetric(Metric):
    by: str = "vector"
    source = "Ziegler et al., WWW 2005, doi:10.1145/1060745.1060754"
    needs_order = undefined = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(self.by not in KINDS, f"by must be one of {', '.join(KINDS)}; got {self.by!r}")

    @property
    def needs(self) -> tuple[Need, ...]:
        return (KINDS[self.by],)

    def _with_features(self, items: ItemLists) -> BoolArray:
        """Rows of items that have the features of this metric."""
        if self.by == "categories" and items.categories is not None:
            return np.asarray(items.categories.any(axis=1))
        if self.by == "vector" and items.has_vector is not None:
            return items.has_vector
        raise ValueError(f"the lists have no {self.by}")


@dataclass(frozen=True)
class IntraListSimilarity(_PairMetric):
    """Mean similarity of the pairs of a list whose items both have features; NaN without such a pair."""

    name = "ils"
    larger_is_better = False
    within_1 = False
    about = "mean similarity of the pairs of the first k items: cosine of vectors, or Jaccard of categories"

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        return (PairsLeftOut(by=self.by),)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.get_or_compute(("ils", self.by, k), lambda: self._mean_similarity(lists.known_items, k))

    def _mean_similarity(self, items: ItemLists, k: int | None) -> FloatArray:
        rows = (items.inside(k) & self._with_features(items)).nonzero()[0]
        offsets = offsets_after_filter(rows, items.offsets)
        if self.by == "vector" and items.vectors is not None:
            return mean_cosine(items.vectors, rows, offsets)
        if items.categories is None:
            raise ValueError("the lists have no categories")
        return mean_jaccard(items.categories[rows], offsets)


@dataclass(frozen=True)
class IntraListDiversity(IntraListSimilarity):
    """One minus the mean similarity."""

    name = "ild"
    larger_is_better = True
    about = "1 - ils: how different the first k items are"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return 1.0 - super().values(lists, k)


@dataclass(frozen=True)
class PairsLeftOut(_PairMetric):
    """Share of the pairs of a list that have no similarity; NaN for fewer than two items."""

    name = "pairs_left_out"
    larger_is_better = None
    about = "share of the pairs of the first k items that ils and ild leave out: an item has no vector or category"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        items = lists.known_items
        inside, offsets = items.first(k)
        return excluded_pair_share(self._with_features(items)[inside], offsets)
