"""Expected reciprocal rank: a user stops at an item with a chance that grows with its relevance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.conventions.forms import exponential
from ndcg_spark.core.ragged import FloatArray, IntArray, to_offsets
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.kernels import expected_products
from ndcg_spark.metrics.lists import RelevanceLists


def _terms(lists: RelevanceLists, max_grade: float) -> FloatArray:
    """Chance to stop at each rank, over the rank."""
    stop = exponential(lists.clipped) / 2.0**max_grade
    ranks, spans = lists.ranks, lists.spans
    if not lists.has_ties:
        return np.asarray(stop * _running_product(1 - stop, spans.offsets) / (ranks.rank + 1))
    whole = np.ones(len(spans.start))  # chance to go on after all of a group
    single = spans.size == 1
    whole[single] = 1 - stop[lists.first[single]]
    tied = np.flatnonzero(~single)
    inside = lists.inside(lists.max_k)[tied]
    products = _products(lists, stop, tied, inside)
    begins = to_offsets(inside + 1)[:-1]
    whole[tied] = products[begins + inside]  # a group that is cut has none after it
    stops = stop[lists.first[ranks.group]]
    number = np.zeros(len(spans.start), dtype=np.int64)
    number[tied] = np.arange(len(tied))
    shared = np.flatnonzero(~single[ranks.group])
    indices = begins[number[ranks.group[shared]]] + ranks.place[shared]
    stops[shared] = products[indices - 1] - products[indices]
    return np.asarray(stops * _running_product(whole, spans.offsets)[ranks.group] / (ranks.rank + 1))


def _products(lists: RelevanceLists, stop: FloatArray, tied: IntArray, inside: IntArray) -> FloatArray:
    """Chances to go on after 0, 1, ... items of each group of tied items, groups end to end."""
    ends = np.append(lists.first, len(stop))
    lengths = ends[tied + 1] - ends[tied]
    offsets = to_offsets(lengths)
    rows = np.repeat(ends[tied] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return expected_products(1 - stop[rows], lists.groups.count[rows], offsets, inside)


def _running_product(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Product of the earlier values of the same query, multiplied in their order."""
    product, lengths = np.ones(len(values)), np.diff(offsets)
    for rank in range(1, int(lengths.max(initial=0))):
        rows = offsets[:-1][lengths > rank] + rank
        product[rows] = product[rows - 1] * values[rows - 1]
    return product


@dataclass(frozen=True)
class ExpectedReciprocalRank(Metric):
    """Expected 1 / rank at which a user stops, over all orders of tied items."""

    max_grade: float = 4.0
    name = "err"
    larger_is_better = True
    about = "sum of s/rank * product of (1-s) of the items above; s = (2^rel - 1) / 2^max_grade"
    source = "Chapelle et al., CIKM 2009, doi:10.1145/1645953.1646033"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(not 0 < self.max_grade <= 63, "max_grade must be a relevance above 0, and at most 63")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        lists.refuse_above(self.max_grade, k)
        terms = lists.get_or_compute(("err", self.max_grade), lambda: _terms(lists, self.max_grade))
        return lists.sum_of_ranks(terms, k)
