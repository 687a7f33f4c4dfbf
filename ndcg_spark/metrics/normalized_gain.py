"""Cumulative gain: sums of relevances without discount."""

from __future__ import annotations

from dataclasses import dataclass

from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.metrics.base import Metric, NamedMetric
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


SOURCE = "Jarvelin and Kekalainen, TOIS 20(4), 2002, doi:10.1145/582415.582418"
TIES_SOURCE = "McSherry and Najork, ECIR 2008, doi:10.1007/978-3-540-78646-7_38"


@dataclass(frozen=True)
class DiscountedGain(Metric):
    """Sum of discounted gains."""

    name = "dcg"
    larger_is_better = True
    within_1 = False
    about = "sum of gain * discount over the first k items"
    source = SOURCE

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.as_gains.dcg(k)


@dataclass(frozen=True)
class IdealDiscountedGain(Metric):
    """DCG of the ideal list."""

    name = "idcg"
    larger_is_better = None
    within_1 = False
    needs_list = False
    about = "dcg of the ideal list: the judged items, the best gain first"
    source = SOURCE

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.as_gains.idcg(k)


@dataclass(frozen=True)
class NormalizedDiscountedGain(Metric):
    """DCG over IDCG."""

    name = "ndcg"
    larger_is_better = True
    aliases = ("ndcg_cut",)
    about = "dcg / idcg; dcg and idcg are reported with it"
    source = SOURCE

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        return DiscountedGain(), IdealDiscountedGain()

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.as_gains.ndcg(k)


@dataclass(frozen=True)
class BestOrderGain(Metric):
    """NDCG of the best order of tied items."""

    name = "ndcg_best"
    larger_is_better = None
    needs_ties = True
    about = "ndcg with tied items in their best order"
    source = TIES_SOURCE

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.as_gains.ndcg(k, "best")


@dataclass(frozen=True)
class WorstOrderGain(Metric):
    """NDCG of the worst order of tied items."""

    name = "ndcg_worst"
    larger_is_better = True
    needs_ties = True
    about = "ndcg with tied items in their worst order"
    source = TIES_SOURCE

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.as_gains.ndcg(k, "worst")


@dataclass(frozen=True)
class TiedShare(Metric):
    """Share of the first k ranks that an order of tied items decides: 0 without a tie at the cutoff."""

    name = "tied_share"
    larger_is_better = None
    needs_ties = True
    needs_judgments = False
    about = "share of the first k ranks filled by the tied items that reach beyond them"
    source = TIES_SOURCE

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.as_gains.tied_share(k)


NDCG = NormalizedDiscountedGain()
GAINS: tuple[Metric, ...] = (DiscountedGain(), IdealDiscountedGain(), NDCG)
"""Columns of every per-query table, in their order there; all have values at a cutoff, or none."""
TIE_BOUNDS: tuple[Metric, ...] = (BestOrderGain(), WorstOrderGain(), TiedShare())
"""Metrics that `tie_bounds` adds to NDCG."""
