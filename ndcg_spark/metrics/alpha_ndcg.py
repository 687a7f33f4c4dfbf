"""Alpha-NDCG: gain for topics that items above have not covered yet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ndcg_spark.kernels.ragged import FloatArray, segment_sum
from ndcg_spark.kernels.subtopics import greedy_gains, repeated_gains
from ndcg_spark.metrics.base import TOPICS, Metric, Need
from ndcg_spark.metrics.lists import RelevanceLists, ratio


@dataclass(frozen=True)
class AlphaNdcg(Metric):
    """Discounted gain of new topics, over that of a greedy ideal list."""

    alpha: float = 0.5
    rel: float = 1.0
    name = "alpha_ndcg"
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
        items = lists.known_items
        if items.topics is None:
            raise ValueError("these lists come without topics")
        truth, listed = items.topics(self.rel)
        gains = lists.kept(
            ("topic gains", self.alpha, self.rel), lambda: repeated_gains(truth, listed, items.offsets, self.alpha)
        )
        ideal = lists.kept(
            ("greedy gains", self.alpha, self.rel), lambda: greedy_gains(truth, self.alpha, lists.max_k)
        )
        inside, offsets = items.first(k)
        found = segment_sum(gains[inside] * _discounts(items.rank[inside]), offsets)
        best = np.zeros(len(found))
        n_ranks = ideal.shape[1] if k is None else min(k, ideal.shape[1])
        for rank, weight in enumerate(_discounts(np.arange(n_ranks)).tolist()):  # added in rank order, too
            best += ideal[:, rank] * weight
        return ratio(found, best)


def _discounts(rank: np.ndarray) -> FloatArray:
    """1 / log2(rank + 1) of 0-based ranks, by the logarithm of the C library."""
    levels, place = np.unique(rank, return_inverse=True)
    return np.array([1.0 / math.log2(one + 2) for one in levels.tolist()], dtype=np.float64)[place]
