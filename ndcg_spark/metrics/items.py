"""What is known of the items of ranked lists, as metrics read it."""

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
    """Items of the ranked lists of a batch, best rank first, queries end to end. None: no metric asks for it.

    Parameters
    ----------
    rank : int64, shape (n_rows,)
        0-based.
    offsets : int64, shape (n_queries + 1,)
    vectors : Vectors or None
        One of each row; what a row without a vector has is not defined.
    has_vector : bool, shape (n_rows,), or None
    categories : uint64, shape (n_rows, n_words), or None
        As bits; see `category_words`. No bit: no categories.
    days : float64, shape (n_rows,), or None
        Days since the item was first seen.
    interactions, users : int64, shape (n_rows,), or None
        How often each item was met, and by how many users.
    n_interactions, n_users : int
        Of all items.
    seen : bool, shape (n_rows,), or None
        Whether the user of the query has met the item before.
    topics : callable or None
        From a relevance to the judged items that reach it (TopicItems), and the number of each row among them, -1 for
        a row that is not (int64, shape (n_rows,)).
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
