"""Novelty: how rare the listed items are, and the rank of the first one that is new to a user."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, query_of_rows, segment_sum, to_lengths
from ndcg_spark.metrics.base import FIRST_SEEN, POPULARITY, SEEN, Metric, Need
from ndcg_spark.metrics.lists import RelevanceLists


def information(counts: IntArray, total: int) -> FloatArray:
    """Bits of information in meeting each item: -log2(count / total); an item never met counts as met once.

    With counts of interactions this is self-information; with counts of users, inverse user frequency.

    >>> information(np.array([4, 2, 0]), 8).tolist()
    [1.0, 2.0, 3.0]
    """
    levels, place = np.unique(np.maximum(counts, 1), return_inverse=True)
    # One logarithm, that of the C library: NumPy's differs between processors in the last bit.
    return np.asarray(np.array([-math.log2(level / total) for level in levels.tolist()], dtype=np.float64)[place])


def list_means(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Mean of the values of each query, added in rank order; NaN for a query without rows."""
    lengths = to_lengths(offsets)
    return np.where(lengths > 0, segment_sum(values, offsets) / np.maximum(lengths, 1), np.nan)


COUNTED = ("interactions", "users")


@dataclass(frozen=True)
class Novelty(Metric):
    """Mean information of the listed items; an item that nobody has met counts as met once."""

    by: str = "interactions"
    name = "novelty"
    larger_is_better = None
    within_1 = False
    about = "mean of -log2(interactions of the item / all), or with by=users of -log2(users of the item / all)"
    source = "Vargas and Castells, RecSys 2011, doi:10.1145/2043932.2043955"
    needs_order = undefined = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(self.by not in COUNTED, f"by must be one of {', '.join(COUNTED)}; got {self.by!r}")

    @property
    def needs(self) -> tuple[Need, ...]:
        return (POPULARITY,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        items = lists.known_items
        counts, total = (
            (items.users, items.n_users) if self.by == "users" else (items.interactions, items.n_interactions)
        )
        if counts is None:
            raise ValueError("the lists have no counts of interactions")
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
        return (FIRST_SEEN,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        items = lists.known_items
        if items.days is None:
            raise ValueError("the lists have no days")
        inside, offsets = items.first(k)
        return list_means(items.days[inside], offsets)


@dataclass(frozen=True)
class FirstNew(Metric):
    """Rank, from 1, of the first item that the user does not know; NaN without one."""

    name = "first_new"
    larger_is_better = False
    within_1 = False
    about = "rank of the first item that the user has not met before; no value if none is among the first k"
    source = "definition"
    needs_order = undefined = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (SEEN,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        items = lists.known_items
        if items.seen is None:
            raise ValueError("the lists have no interactions of users")
        rows = np.flatnonzero(items.inside(k) & ~items.seen)[::-1]  # the first is written last
        ranks = np.full(len(items.offsets) - 1, np.nan)
        ranks[query_of_rows(items.offsets)[rows]] = items.rank[rows] + 1.0
        return ranks
