"""Properties of the items of ranked lists, as metrics read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ndcg_spark.core.distances import Vectors, WordArray
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, chosen_offsets

if TYPE_CHECKING:
    from ndcg_spark.metrics.alpha_ndcg import TopicItems


@dataclass(frozen=True)
class ItemLists:
    """Properties of the items of ranked lists, best rank first, queries end to end; None if no metric asks for one.

    Ranks count from 0. A row without a vector has an arbitrary one; `categories` are bits (see `category_words`),
    none set if an item has no categories. `days` count since the item was first seen; `interactions` and `users` say
    how often each item was met, and by how many users, beside the totals `n_interactions` and `n_users`. `seen`: the
    user of the query has met the item before. `topics` maps a relevance to the judged items that reach it, and the
    number of each row among these, -1 for a row that is not.
    """

    rank: IntArray
    offsets: IntArray
    vectors: Vectors | None = None
    has_vector: BoolArray | None = None
    categories: WordArray | None = None
    days: FloatArray | None = None
    interactions: IntArray | None = None
    users: IntArray | None = None
    n_interactions: int = 0
    n_users: int = 0
    seen: BoolArray | None = None
    topics: Callable[[float], tuple[TopicItems, IntArray]] | None = field(default=None, repr=False)

    def inside(self, k: int | None) -> BoolArray:
        """Rows on the first k ranks."""
        return self.rank >= 0 if k is None else self.rank < k

    def first(self, k: int | None) -> tuple[BoolArray, IntArray]:
        """Rows on the first k ranks, and the offsets between their queries."""
        inside = self.inside(k)
        return inside, chosen_offsets(inside, self.offsets)
