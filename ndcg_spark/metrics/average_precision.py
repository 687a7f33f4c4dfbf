"""Average precision: precision at each relevant item, by several denominators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists

DENOMINATORS = ("judged", "achievable", "k", "hits")
TIES = "ties: McSherry and Najork, ECIR 2008, doi:10.1007/978-3-540-78646-7_38"


@dataclass(frozen=True)
class AveragePrecision(Metric):
    """Sum of the precisions at the ranks of relevant items, over the number of relevant items."""

    rel: float = 1.0
    denominator: str = "judged"
    name = "ap"
    larger_is_better = True
    aliases = ("map", "map_cut", "average_precision")
    about = (
        "sum of the precisions at the ranks of relevant items, divided by: all relevant judged items (judged, as in "
        "trec_eval), min(k, R) (achievable, as in MLlib), k, or the relevant items found (hits)"
    )
    source = f"trec_eval map, map_cut; {TIES}"

    def __post_init__(self) -> None:
        """Check the denominator."""
        super().__post_init__()
        self.refuse(self.denominator not in DENOMINATORS, f"denominator must be one of {', '.join(DENOMINATORS)}")

    @property
    def levels(self) -> tuple[float, ...]:
        """Relevant items are counted where the denominator needs them."""
        return (self.rel,) if self.denominator in ("judged", "achievable") else ()

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Average precision; 0 where the denominator is 0."""
        from ndcg_spark.metrics.kernels.average_precision import average_precision

        return average_precision(lists, k, self.rel, self.denominator)


@dataclass(frozen=True)
class AveragePrecisionAtR(Metric):
    """Average precision of the first R ranks, where R is the number of relevant items."""

    rel: float = 1.0
    name = "ap_r"
    larger_is_better = True
    aliases = ("map_r",)
    about = "average precision at R, the number of relevant judged items"
    source = "Musgrave et al., ECCV 2020, arXiv:2003.08505"
    takes_cutoff = False

    @property
    def levels(self) -> tuple[float, ...]:
        """Relevant items are counted."""
        return (self.rel,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Sum of precisions on the first R ranks over R; 0 where R is 0."""
        from ndcg_spark.metrics.kernels.average_precision import average_precision_at_r

        return average_precision_at_r(lists, self.rel)


@dataclass(frozen=True)
class WeightedAveragePrecision(Metric):
    """Mean of the average cumulative gains at the ranks of relevant items."""

    name = "wap"
    larger_is_better = True
    within_1 = False
    about = "mean of acg at the ranks of the items among the first k whose relevance is above 0; 0 without any"
    source = "Zhao et al., CVPR 2015, arXiv:1501.06272"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Sum of average cumulative gains at relevant items, over their number."""
        from ndcg_spark.metrics.kernels.average_precision import weighted_average_precision

        return weighted_average_precision(lists, k)
