"""Weights of tied items: averaged over all orders, or by the best or the worst of them.

An entry of a ranked list stands for some items of one query with one score and one relevance. Entries with equal
scores are a tie group, which fills consecutive ranks, one an item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, query_of_rows
from ndcg_spark.metrics.dcg import rank_weights


@dataclass(frozen=True, slots=True)
class TieGroups:
    """The tie group of each entry: first rank (from 0), items, items of the entry, and number (rising)."""

    start: IntArray
    size: IntArray
    count: IntArray
    group: IntArray


def tie_groups(scores: FloatArray, counts: IntArray, offsets: IntArray) -> TieGroups:
    """Find the tie groups of a ragged batch.

    `scores` fall within each query; `counts` are the items of each entry, at least 1.

    >>> found = tie_groups(np.array([3.0, 1.0, 1.0]), np.array([1, 2, 1]), np.array([0, 3]))
    >>> found.start.tolist(), found.size.tolist()
    ([0, 1, 1], [1, 3, 3])
    """
    n = len(scores)
    if n == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return TieGroups(nothing, nothing, nothing, nothing)
    query = query_of_rows(offsets)
    new = np.ones(n, dtype=np.bool_)
    new[1:] = (scores[1:] != scores[:-1]) | (query[1:] != query[:-1])
    group = np.cumsum(new) - 1
    before = np.cumsum(counts) - counts
    before_query = before[np.minimum(offsets[:-1], n - 1)][query]
    first = np.flatnonzero(new)
    start = (before - before_query)[first][group]
    size = np.add.reduceat(counts, first)[group]
    return TieGroups(start, size, counts, group)


def expected_weights(groups: TieGroups, discount: FloatArray, *, k: int | None) -> FloatArray:
    """Weight of each entry, averaged over all orders of the tied items. McSherry and Najork, ECIR 2008.

    count / size * sum of the discounts of the group's ranks before k. An item that ties with no other has exactly the
    discount of its rank.

    >>> groups = tie_groups(np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2]))
    >>> expected_weights(groups, np.array([1.0, 0.5]), k=None).tolist()
    [0.75, 0.75]
    """
    share = _span(groups.start, groups.start + groups.size, discount, k)
    tied = groups.count / np.maximum(groups.size, 1) * share
    return np.where(groups.size == 1, rank_weights(groups.start, discount, k=k), tied)


def extreme_weights(
    groups: TieGroups, gains: FloatArray, discount: FloatArray, *, k: int | None, best: bool
) -> FloatArray:
    """Weight of each entry when tied items are in the best order, or in the worst.

    Discounts must fall: the best order is then that of the gains.

    >>> groups = tie_groups(np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2]))
    >>> extreme_weights(groups, np.array([0.0, 3.0]), np.array([1.0, 0.5]), k=1, best=True).tolist()
    [0.0, 1.0]
    """
    return expected_weights(extreme_groups(groups, gains, best=best), discount, k=k)


def extreme_groups(groups: TieGroups, gains: FloatArray, *, best: bool) -> TieGroups:
    """Put tied items in the best order (largest gains first) or the worst: each entry is then a group by itself.

    >>> groups = tie_groups(np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2]))
    >>> extreme_groups(groups, np.array([0.0, 3.0]), best=True).start.tolist()
    [1, 0]
    """
    order = np.lexsort((-gains if best else gains, groups.group))
    count = groups.count[order]
    before = np.cumsum(count) - count
    first = np.searchsorted(groups.group[order], groups.group[order], side="left")
    start = np.zeros(len(gains), dtype=np.int64)
    start[order] = groups.start[order] + before - (before[first] if len(first) else before)
    return TieGroups(start, groups.count, groups.count, np.arange(len(gains)))


def straddling_share(groups: TieGroups, offsets: IntArray, *, k: int) -> FloatArray:
    """Share of the first k ranks that is filled by the tie group which reaches beyond rank k.

    0 if the cutoff falls between groups, 1 if the first k are all one group with later items: so a constant scorer
    shows as 1.

    >>> groups = tie_groups(np.array([3.0, 1.0, 1.0]), np.array([1, 1, 1]), np.array([0, 3]))
    >>> straddling_share(groups, np.array([0, 3]), k=2).tolist()
    [0.5]
    """
    straddles: BoolArray = (groups.start < k) & (groups.start + groups.size > k)
    shares = np.zeros(len(offsets) - 1)
    shares[query_of_rows(offsets)[straddles]] = (k - groups.start[straddles]) / k
    return shares


def canonical_order(groups: TieGroups, gains: FloatArray) -> IntArray | None:
    """Order entries by group, largest gain first, so that the order of the rows does not matter; None if they are."""
    in_order = (np.diff(groups.group) > 0) | (np.diff(gains) <= 0)
    return None if in_order.all() else np.lexsort((-gains, groups.group))


def _span(start: IntArray, stop: IntArray, discount: FloatArray, k: int | None) -> FloatArray:
    """Sum of the discounts of ranks start..stop-1 that are before k."""
    total = np.concatenate([[0.0], np.cumsum(discount)])
    limit = len(discount) if k is None else min(k, len(discount))
    return np.asarray(total[np.minimum(stop, limit)] - total[np.minimum(start, limit)])
