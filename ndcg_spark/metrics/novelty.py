"""Novelty: how rare the listed items are, and how new to the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import FIRST_SEEN, POPULARITY, SEEN, Metric, Need

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists

COUNTED = ("interactions", "users")


@dataclass(frozen=True)
class Novelty(Metric):
    """Mean information of the listed items."""

    by: str = "interactions"
    name = "novelty"
    larger_is_better = None
    within_1 = False
    about = "mean of -log2(interactions of the item / all), or with by=users of -log2(users of the item / all)"
    source = "Vargas and Castells, RecSys 2011, doi:10.1145/2043932.2043955"
    needs_order = undefined = True

    def __post_init__(self) -> None:
        """Check what is counted."""
        super().__post_init__()
        self.refuse(self.by not in COUNTED, f"by must be one of {', '.join(COUNTED)}; got {self.by!r}")

    @property
    def needs(self) -> tuple[Need, ...]:
        """How often each item was met."""
        return (POPULARITY,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Mean over the first k items; an item that nobody has met counts as met once."""
        from ndcg_spark.metrics.kernels.novelty import information, list_means

        items = lists.known_items
        counts, total = (
            (items.users, items.n_users) if self.by == "users" else (items.interactions, items.n_interactions)
        )
        if counts is None:
            raise ValueError("these lists come without counts of interactions")
        inside, offsets = items.first(k)
        return list_means(information(counts[inside], total), offsets)


@dataclass(frozen=True)
class FirstAppearance(Metric):
    """Age of the listed items."""

    name = "first_appearance"
    larger_is_better = False
    within_1 = False
    about = "mean days since the first k items were first seen; 0 for an item never seen"
    source = "definition"
    needs_order = undefined = True

    @property
    def needs(self) -> tuple[Need, ...]:
        """The day on which each item was first seen."""
        return (FIRST_SEEN,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Mean of days."""
        from ndcg_spark.metrics.kernels.novelty import list_means

        items = lists.known_items
        if items.days is None:
            raise ValueError("these lists come without days")
        inside, offsets = items.first(k)
        return list_means(items.days[inside], offsets)


@dataclass(frozen=True)
class FirstNew(Metric):
    """Where the first item stands that the user does not know."""

    name = "first_new"
    larger_is_better = False
    within_1 = False
    about = "rank of the first item that the user has not met before; no value if none is among the first k"
    source = "definition"
    needs_order = undefined = True

    @property
    def needs(self) -> tuple[Need, ...]:
        """Items that each user has met."""
        return (SEEN,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Rank, from 1."""
        from ndcg_spark.metrics.kernels.novelty import first_rank

        items = lists.known_items
        if items.seen is None:
            raise ValueError("these lists come without interactions of users")
        return first_rank(items.inside(k) & ~items.seen, items.rank, items.offsets)
