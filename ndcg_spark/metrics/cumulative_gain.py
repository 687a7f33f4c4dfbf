"""Cumulative gain: sums of relevances without discount."""

from __future__ import annotations

from dataclasses import dataclass

from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.lists import RelevanceLists


@dataclass(frozen=True)
class CumulativeGain(Metric):
    """Sum of the relevances of the first k items; an unjudged item adds 0."""

    name = "cg"
    larger_is_better = True
    within_1 = False
    about = "sum of the relevances of the first k items"
    source = "Jarvelin and Kekalainen, SIGIR 2000, doi:10.1145/345508.345545"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.sum_of_shares(lists.by_group(lists.gains), k)


@dataclass(frozen=True)
class AverageCumulativeGain(Metric):
    """Cumulative gain divided by k; by the length of the list where there is no cutoff."""

    name = "acg"
    larger_is_better = True
    within_1 = False
    about = "mean of the relevances of the first k items, those below 0 as 0, also where the list is shorter"
    source = "Zhao et al., CVPR 2015, arXiv:1501.06272"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.per_rank(lists.sum_of_shares(lists.by_group(lists.clipped), k), k)
