"""Intra-list similarity and diversity: how alike the items of a list are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.kernels.diversity import mean_cosine, mean_jaccard, share_of_pairs_left_out
from ndcg_spark.kernels.ragged import BoolArray, FloatArray, chosen_offsets
from ndcg_spark.metrics.base import CATEGORIES, VECTOR, Metric, NamedMetric, Need
from ndcg_spark.metrics.items import ItemLists
from ndcg_spark.metrics.lists import RelevanceLists

KINDS = {"vector": VECTOR, "categories": CATEGORIES}


@dataclass(frozen=True)
class _OfPairs(Metric):
    by: str = "vector"
    source = "Ziegler et al., WWW 2005, doi:10.1145/1060745.1060754"
    needs_order = undefined = True

    def __post_init__(self) -> None:
        """Check the kind of features."""
        super().__post_init__()
        self.refuse(self.by not in KINDS, f"by must be one of {', '.join(KINDS)}; got {self.by!r}")

    @property
    def needs(self) -> tuple[Need, ...]:
        """Vectors or categories of items."""
        return (KINDS[self.by],)

    def _with_features(self, items: ItemLists) -> BoolArray:
        if self.by == "categories" and items.categories is not None:
            return np.asarray(items.categories.any(axis=1))
        if self.by == "vector" and items.has_vector is not None:
            return items.has_vector
        raise ValueError(f"these lists come without {self.by}")


@dataclass(frozen=True)
class IntraListSimilarity(_OfPairs):
    """Mean similarity of the pairs of a list."""

    name = "ils"
    within_1 = False
    about = "mean similarity of the pairs of the first k items: cosine of vectors, or Jaccard of categories"

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        """How many pairs have no similarity."""
        return (PairsLeftOut(by=self.by),)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Mean over the pairs whose items both have features; NaN without such a pair."""
        return lists.kept(("ils", self.by, k), lambda: self._similarity(lists.known_items, k))

    def _similarity(self, items: ItemLists, k: int | None) -> FloatArray:
        chosen = (items.inside(k) & self._with_features(items)).nonzero()[0]
        offsets = chosen_offsets(chosen, items.offsets)
        if self.by == "vector" and items.vectors is not None:
            return mean_cosine(items.vectors, chosen, offsets)
        if items.categories is None:
            raise ValueError("these lists come without categories")
        return mean_jaccard(items.categories[chosen], offsets)


@dataclass(frozen=True)
class IntraListDiversity(IntraListSimilarity):
    """One minus the mean similarity."""

    name = "ild"
    about = "1 - ils: how different the first k items are"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """1 - ILS."""
        return 1.0 - super().values(lists, k)


@dataclass(frozen=True)
class PairsLeftOut(_OfPairs):
    """Pairs that have no similarity."""

    name = "pairs_left_out"
    about = "share of the pairs of the first k items that ils and ild leave out: an item has no vector or category"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Pairs with an item without features, over all pairs."""
        items = lists.known_items
        inside, offsets = items.first(k)
        return share_of_pairs_left_out(self._with_features(items)[inside], offsets)
