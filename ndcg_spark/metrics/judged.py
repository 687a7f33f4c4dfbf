"""How much of a list is judged: what other values of it can be trusted for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists


@dataclass(frozen=True)
class Judged(Metric):
    """Share of the first k items that are judged, relevant or not."""

    name = "judged"
    larger_is_better = None
    about = "judged items among the first k, over k or the length of a shorter list; an empty list has no value"
    source = "ir_measures Judged"
    undefined = True

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Judged items over those that are listed; NaN where nothing is."""
        from ndcg_spark.metrics.kernels.judged import share_of_judged

        return share_of_judged(lists, k)
