"""Rank-biased precision: what a user sees who goes on to the next item with a fixed chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists

SOURCE = "Moffat and Zobel, TOIS 27(1), 2008, doi:10.1145/1416950.1416952"


@dataclass(frozen=True)
class RankBiasedPrecision(Metric):
    """Sum of gains, each rank weighing p times the one before."""

    p: float = 0.8
    rel: float = 1.0
    max_grade: float = 0.0
    name = "rbp"
    larger_is_better = True
    about = (
        "(1-p) * sum of g * p^(rank-1); g is 1 for a relevant item, or its relevance / max_grade where that is given"
    )
    source = SOURCE

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        self.refuse(not 0 < self.p < 1, "p must lie between 0 and 1")
        self.refuse(not self.max_grade >= 0, "max_grade must be a relevance above 0")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Sum of weighted gains; an unjudged item gains 0."""
        from ndcg_spark.metrics.kernels.rank_biased_precision import rank_biased_precision

        return rank_biased_precision(lists, k, self.p, self.rel, self.max_grade)


@dataclass(frozen=True)
class RankBiasedPrecisionResidual(Metric):
    """What rank-biased precision could still gain from unjudged items and from ranks that are not seen."""

    p: float = 0.8
    name = "rbp_residual"
    larger_is_better = None
    needs_judgments = False  # without any, it is 1: 0 would say that nothing can be gained
    about = "1 - (1-p) * sum over judged items of p^(rank-1): what rbp could gain from ranks that are not judged"
    source = SOURCE

    def __post_init__(self) -> None:
        """Check the parameter."""
        super().__post_init__()
        self.refuse(not 0 < self.p < 1, "p must lie between 0 and 1")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """The part of the whole weight that is on no judged item."""
        from ndcg_spark.metrics.kernels.rank_biased_precision import residual

        return residual(lists, k, self.p)
