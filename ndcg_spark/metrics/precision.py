"""Precision, recall and R-precision: shares of relevant items."""

from __future__ import annotations

from dataclasses import dataclass

from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.lists import RelevanceLists


@dataclass(frozen=True)
class Precision(Metric):
    """Share of the first k ranks with a relevant item; of the whole list where there is no cutoff."""

    rel: float = 1.0
    name = "p"
    larger_is_better = True
    aliases = ("precision",)
    about = "relevant items among the first k, divided by k, also where the list is shorter"
    source = "trec_eval P"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.per_rank(lists.n_hits(self.rel, k), k)


@dataclass(frozen=True)
class Recall(Metric):
    """Share of all relevant items that are among the first k; 0 where there is none."""

    rel: float = 1.0
    name = "r"
    larger_is_better = True
    aliases = ("recall",)
    about = "relevant items among the first k, divided by all relevant judged items"
    source = "trec_eval recall"

    @property
    def levels(self) -> tuple[float, ...]:
        return (self.rel,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        return lists.per_relevant(lists.n_hits(self.rel, k), self.rel)


@dataclass(frozen=True)
class RPrecision(Metric):
    """Precision at the number of relevant items; 0 where there is none."""

    rel: float = 1.0
    name = "rprec"
    larger_is_better = True
    aliases = ("r_precision",)
    about = "precision at R, the number of relevant judged items"
    source = "trec_eval Rprec"
    takes_cutoff = False
    needs_order = True

    @property
    def levels(self) -> tuple[float, ...]:
        return (self.rel,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        first_r = lists.sum_of_first(lists.hits(self.rel), lists.at_least[self.rel])
        return lists.per_relevant(first_r, self.rel)
