"""Alpha-NDCG: gain for topics that items above have not covered yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ndcg_spark.metrics.base import TOPICS, Metric, Need

if TYPE_CHECKING:
    from ndcg_spark.core.ragged import FloatArray
    from ndcg_spark.metrics.kernels.lists import RelevanceLists


@dataclass(frozen=True)
class AlphaNdcg(Metric):
    """Discounted gain of new topics, over that of a greedy ideal list."""

    alpha: float = 0.5
    rel: float = 1.0
    name = "alpha_ndcg"
    larger_is_better = True
    about = (
        "each topic of a relevant item gains (1 - alpha)^(items above with it) / log2(rank + 1); over a greedy ideal"
    )
    source = "Clarke et al., SIGIR 2008, doi:10.1145/1390334.1390446"
    needs_order = True

    def __post_init__(self) -> None:
        """Check alpha."""
        super().__post_init__()
        self.refuse(not 0 <= self.alpha <= 1, f"alpha must lie between 0 and 1; got {self.alpha:g}")

    @property
    def needs(self) -> tuple[Need, ...]:
        """Topics of judged items."""
        return (TOPICS,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Alpha-DCG over that of the greedy list; 0 where no item has a topic."""
        from ndcg_spark.metrics.kernels.alpha_ndcg import alpha_ndcg

        return alpha_ndcg(lists, k, self.alpha, self.rel)
