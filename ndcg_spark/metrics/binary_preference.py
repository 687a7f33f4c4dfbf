"""Binary preference: relevant items against the judged nonrelevant ones above them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import Metric

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists


@dataclass(frozen=True)
class BinaryPreference(Metric):
    """How few judged nonrelevant items stand above relevant ones; unjudged items play no part."""

    rel: float = 1.0
    name = "bpref"
    larger_is_better = True
    about = "(1/R) * sum over relevant items of 1 - min(a,R) / min(N,R); a: judged nonrelevant items above, N: all"
    source = "Buckley and Voorhees, SIGIR 2004, doi:10.1145/1008992.1009000; trec_eval bpref"
    takes_cutoff = False
    needs_order = True

    @property
    def levels(self) -> tuple[float, ...]:
        """Relevant and nonrelevant judged items are counted."""
        return (self.rel, 0.0)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Mean over relevant judged items, those not retrieved as 0. A relevance below 0 is no judgment."""
        from ndcg_spark.metrics.kernels.binary_preference import binary_preference

        return binary_preference(lists, self.rel)
