"""Expected reciprocal rank: a user stops at an item with a chance that grows with its relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists


@dataclass(frozen=True)
class ExpectedReciprocalRank(Metric):
    """Expected 1 / rank at which a user stops."""

    max_grade: float = 4.0
    name = "err"
    larger_is_better = True
    about = "sum of s/rank * product of (1-s) of the items above; s = (2^rel - 1) / 2^max_grade"
    source = "Chapelle et al., CIKM 2009, doi:10.1145/1645953.1646033"

    def __post_init__(self) -> None:
        """Check the highest grade."""
        super().__post_init__()
        self.refuse(not 0 < self.max_grade <= 63, "max_grade must be a relevance above 0, and at most 63")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Expected over all orders of tied items."""
        from ndcg_spark.metrics.kernels.expected_reciprocal_rank import expected_reciprocal_rank

        return expected_reciprocal_rank(lists, k, self.max_grade)
