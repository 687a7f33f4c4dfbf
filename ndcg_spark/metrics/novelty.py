"""Novelty: how rare the listed items are, and the rank of the first one that is new to a user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, lengths_of, query_of_rows, segment_sum
from ndcg_spark.metrics.base import FIRST_SEEN, POPULARITY, SEEN, Metric, Need

if TYPE_CHECKING:
    from ndcg_spark.metrics.lists import RelevanceLists


def information(counts: IntArray, total: int) -> FloatArray:
    """Bits of information in meeting each item: -log2(count / total).

    With counts of interactions this is self-information; with counts of users, inverse user frequency.

    Parameters
    ----------
    counts : int64, shape (n_items,)
        An item that was never seen, 0, counts as seen once.
    total : int
        Of all items; at least 1.

    Returns
    -------
    float64, shape (n_items,)

    References
    ----------
    Vargas and Castells, RecSys 2011, doi:10.1145/2043932.2043955.

    Examples
    --------
    >>> information(np.array([4, 2, 0]), 8).tolist()
    [1.0, 2.0, 3.0]
    """
    levels, place = np.unique(np.maximum(counts, 1), return_inverse=True)
    # One logarithm, that of the C library: NumPy's differs between processors in the last bit.
    return np.asarray(np.array([-math.log2(one / total) for one in levels.tolist()], dtype=np.float64)[place])


def list_means(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Mean of the values of each query, added in rank order.

    Parameters
    ----------
    values : float64, shape (n_rows,)
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    float64, shape (n_queries,)
        NaN for a query without rows.
    """
    lengths = lengths_of(offsets)
    return np.where(lengths > 0, segment_sum(values, offsets) / np.maximum(lengths, 1), np.nan)


def first_rank(flags: BoolArray, rank: IntArray, offsets: IntArray) -> FloatArray:
    """1-based rank of the first flagged row of each query.

    Parameters
    ----------
    flags : bool, shape (n_rows,)
    rank : int64, shape (n_rows,)
        0-based.
    offsets : int64, shape (n_queries + 1,)

    Returns
    -------
    float64, shape (n_queries,)
        NaN where no row is flagged.

    Examples
    --------
    >>> first_rank(np.array([False, True, False]), np.arange(3), np.array([0, 2, 3])).tolist()
    [2.0, nan]
    """
    rows = np.flatnonzero(flags)[::-1]  # the first is written last
    found = np.full(len(offsets) - 1, np.nan)
    found[query_of_rows(offsets)[rows]] = rank[rows] + 1.0
    return found


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
        items = lists.known_items
        if items.seen is None:
            raise ValueError("these lists come without interactions of users")
        return first_rank(items.inside(k) & ~items.seen, items.rank, items.offsets)
