"""The share of judged items in ranked lists, and the number of unjudged ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, query_of_rows
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.kernels import TieGroups
from ndcg_spark.metrics.lists import RelevanceLists


class UnjudgedItems:
    """Counts of unjudged items on the first ranks of a batch of lists.

    For tied items, the count is the largest over all their orders. `rank` counts from 0;
    entries of one group are next to each other.
    """

    def __init__(self, judged: BoolArray, rank: IntArray, groups: TieGroups | None, offsets: IntArray) -> None:
        n, start = (~judged).astype(np.int64), rank
        if groups is not None:
            first = np.flatnonzero(np.diff(groups.group, prepend=-1))  # entry of each group
            n, start = n * groups.count, groups.start
            if len(first) < len(n):
                n, start, offsets = np.add.reduceat(n, first), start[first], np.searchsorted(first, offsets)
        self._offsets, self._n, self._start = offsets, n, start
        self._until = np.concatenate([[0], np.cumsum(n)])
        self._longest = int(start.max(initial=0)) + 1
        self._places = start + self._longest * query_of_rows(offsets)  # rising through all lists

    def among_first(self, k: int | None) -> IntArray:
        """Count them on the first k ranks of each list; None: in all of it."""
        begins, ends = self._offsets[:-1], self._offsets[1:]
        if k is not None:  # groups that begin before rank k, of which the last may reach beyond it
            queries = self._longest * np.arange(len(begins))
            ends = np.searchsorted(self._places, queries + min(k, self._longest))
        counts = self._until[ends] - self._until[begins]
        if k is None or not len(self._n):
            return np.asarray(counts)
        last = np.maximum(ends - 1, 0)
        fits = np.minimum(self._n[last], k - self._start[last])
        return np.asarray(counts - np.where(ends > begins, self._n[last] - fits, 0))


@dataclass(frozen=True)
class Judged(Metric):
    """Share of the first k items that are judged, relevant or not; tied items on average, NaN for an empty list."""

    name = "judged"
    larger_is_better = None
    about = "judged items among the first k, over k or the length of a shorter list; an empty list has no value"
    source = "ir_measures Judged"
    undefined = True

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        judged = lists.sum_of_shares(lists.by_group(lists.judged.astype(np.float64)), k)
        n_items = lists.lengths if k is None else np.minimum(lists.lengths, k)
        return np.where(n_items > 0, judged / np.maximum(n_items, 1), np.nan)
