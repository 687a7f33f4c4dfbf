"""NDCG, DCG and IDCG, by the gains, discounts and rules of the convention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.kernels.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists

SOURCE = "Jarvelin and Kekalainen, TOIS 20(4), 2002, doi:10.1145/582415.582418"


@dataclass(frozen=True)
class DiscountedGain(Metric):
    """Sum of discounted gains."""

    name = "dcg"
    within_1 = False
    about = "sum of gain * discount over the first k items"
    source = SOURCE

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """As the convention scores it."""
        return lists.by_convention(k)[self.name]


@dataclass(frozen=True)
class IdealDiscountedGain(DiscountedGain):
    """DCG of the ideal list."""

    name = "idcg"
    about = "dcg of the ideal list: the judged items, the best gain first"


@dataclass(frozen=True)
class NormalizedDiscountedGain(DiscountedGain):
    """DCG over IDCG."""

    name = "ndcg"
    within_1 = True
    aliases = ("ndcg_cut",)
    about = "dcg / idcg; dcg and idcg come with it"
