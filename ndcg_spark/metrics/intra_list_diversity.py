"""Intra-list similarity and diversity: how alike the items of a list are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import CATEGORIES, VECTOR, Metric, NamedMetric, Need

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists

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


@dataclass(frozen=True)
class IntraListSimilarity(_OfPairs):
    """Mean similarity of the pairs of a list."""

    name = "ils"
    larger_is_better = False
    within_1 = False
    about = "mean similarity of the pairs of the first k items: cosine of vectors, or Jaccard of categories"

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        """How many pairs have no similarity."""
        return (PairsLeftOut(by=self.by),)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Mean over the pairs whose items both have features; NaN without such a pair."""
        from ndcg_spark.metrics.kernels.item_pairs import mean_similarity

        return lists.kept(("ils", self.by, k), lambda: mean_similarity(lists.known_items, k, self.by))


@dataclass(frozen=True)
class IntraListDiversity(IntraListSimilarity):
    """One minus the mean similarity."""

    name = "ild"
    larger_is_better = True
    about = "1 - ils: how different the first k items are"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """1 - ILS."""
        return 1.0 - super().values(lists, k)


@dataclass(frozen=True)
class PairsLeftOut(_OfPairs):
    """Pairs that have no similarity."""

    name = "pairs_left_out"
    larger_is_better = None
    about = "share of the pairs of the first k items that ils and ild leave out: an item has no vector or category"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Pairs with an item without features, over all pairs."""
        from ndcg_spark.metrics.kernels.item_pairs import share_left_out

        return share_left_out(lists.known_items, k, self.by)
