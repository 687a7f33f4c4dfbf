"""Success and reciprocal rank: where the first relevant item stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists

TIES = "ties: McSherry and Najork, ECIR 2008, doi:10.1007/978-3-540-78646-7_38"


@dataclass(frozen=True)
class Success(Metric):
    """Whether a relevant item is among the first k."""

    rel: float = 1.0
    name = "success"
    larger_is_better = True
    aliases = ("hit_rate", "hr", "hit")
    about = "1 if a relevant item is among the first k, else 0"
    source = f"trec_eval success; {TIES}"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Expected over all orders of tied items."""
        from ndcg_spark.metrics.kernels.first_hit import success

        return success(lists, k, self.rel)


@dataclass(frozen=True)
class ReciprocalRank(Metric):
    """One over the rank of the first relevant item."""

    rel: float = 1.0
    name = "rr"
    larger_is_better = True
    aliases = ("mrr", "recip_rank")
    about = "1 / rank of the first relevant item; 0 if it is not among the first k"
    source = f"trec_eval recip_rank; {TIES}"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Expected over all orders of tied items."""
        from ndcg_spark.metrics.kernels.first_hit import reciprocal_rank

        return reciprocal_rank(lists, k, self.rel)
