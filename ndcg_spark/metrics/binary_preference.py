"""Binary preference: relevant items against the judged nonrelevant ones above them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import FloatArray, segment_sum
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.lists import RelevanceLists, ratio


@dataclass(frozen=True)
class BinaryPreference(Metric):
    """Share of judged nonrelevant items that rank below relevant ones; unjudged items are ignored.

    A relevant item that was not retrieved adds 0, and a relevance below 0 is not a judgment.
    """

    rel: float = 1.0
    name = "bpref"
    larger_is_better = True
    about = "(1/R) * sum over relevant items of 1 - min(a,R) / min(N,R); a: judged nonrelevant items above, N: all"
    source = "Buckley and Voorhees, SIGIR 2004, doi:10.1145/1008992.1009000; trec_eval bpref"
    takes_cutoff = False
    needs_order = True

    @property
    def levels(self) -> tuple[float, ...]:
        return (self.rel, 0.0)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        n_relevant = lists.at_least[self.rel]
        bound = np.minimum(lists.at_least[0.0] - n_relevant, n_relevant)
        nonrelevant = lists.judged & (lists.relevance >= 0) & (lists.relevance < self.rel)
        above = lists.sum_before(lists.by_group(nonrelevant.astype(np.float64)))
        lengths = np.diff(lists.offsets)
        capped = np.minimum(above, np.repeat(n_relevant, lengths))
        worth = 1 - ratio(capped, np.repeat(bound, lengths))
        return ratio(segment_sum(np.where(lists.is_relevant(self.rel), worth, 0.0), lists.offsets), n_relevant)
