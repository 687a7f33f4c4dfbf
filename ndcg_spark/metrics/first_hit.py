"""Reciprocal rank and success: the rank of the first relevant item, expected over all orders of tied items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.kernels import TIES
from ndcg_spark.metrics.lists import RelevanceLists


@dataclass(frozen=True)
class Success(Metric):
    """Chance of a relevant item among the first k, over all orders of tied items.

    1 - C(n-r, m) / C(n, m) for the first group with a hit, of which m of n items are inside.
    """

    rel: float = 1.0
    name = "success"
    larger_is_better = True
    aliases = ("hit_rate", "hr", "hit")
    about = "1 if a relevant item is among the first k, else 0"
    source = f"trec_eval success; {TIES}"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        query, group = lists.first_hit(self.rel)
        n, r, m = lists.spans.size[group], lists.hits(self.rel)[group], lists.inside(k)[group]
        missed = np.ones(len(query))
        for place in range(int(m[r + m <= n].max(initial=0))):
            missed *= np.where(place < m, (n - r - place) / np.maximum(n - place, 1), 1.0)
        chances = np.zeros(lists.n_queries)
        chances[query] = np.where(m == 0, 0.0, np.where(r + m > n, 1.0, 1.0 - missed))
        return chances


@dataclass(frozen=True)
class ReciprocalRank(Metric):
    """One over the rank of the first relevant item, expected over all orders of tied items.

    Sum over the places of the first group with a hit: chance that it is there, over the rank.
    """

    rel: float = 1.0
    name = "rr"
    larger_is_better = True
    aliases = ("mrr", "recip_rank")
    about = "1 / rank of the first relevant item; 0 if it is not among the first k"
    source = f"trec_eval recip_rank; {TIES}"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        query, group = lists.first_hit(self.rel)
        n, r, m = lists.spans.size[group], lists.hits(self.rel)[group], lists.inside(k)[group]
        start, total = lists.spans.start[group], np.zeros(len(query))
        chance = r / n
        for place in range(1, int(m.max(initial=0)) + 1):
            if not chance.any():
                break
            total += np.where(place <= m, chance / (start + place), 0.0)
            chance = chance * np.maximum(n - r - place + 1, 0) / np.maximum(n - place, 1)
        means = np.zeros(lists.n_queries)
        means[query] = total
        return means
