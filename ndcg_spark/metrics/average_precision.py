"""Average precision: precision at each relevant item, expected over all orders of tied items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, query_of_rows, segment_sum
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.kernels import TIES, hit_probabilities
from ndcg_spark.metrics.lists import RelevanceLists, ratio


def precisions(lists: RelevanceLists, hits: FloatArray, gains: FloatArray) -> FloatArray:
    """Term of each rank in average precision, shape (n_ranks,), expected over all orders of tied items.

    `hits` are the relevant items of each group, `gains` the sum of their gains (for precision, their number).
    """
    ranks, before = lists.ranks, lists.sum_before(gains)
    if not lists.has_ties:
        return np.asarray(hits * (before + gains) / (ranks.rank + 1))
    group = ranks.group
    return _expected(hits[group], gains[group], before[group], lists.spans.size[group], ranks.place) / (
        ranks.rank + 1
    )


def _expected(r: FloatArray, s: FloatArray, before: FloatArray, n: IntArray, place: IntArray | int) -> FloatArray:
    """Chance of a hit at a place of a group times the gains up to it; r of n items are relevant, and gain s."""
    own = np.divide(s, r, out=np.zeros_like(s), where=r > 0)
    others = (place - 1) * s * (r - 1) / np.maximum(n * (n - 1), 1)
    return np.asarray(r / np.maximum(n, 1) * (before + own) + np.where(r > 1, others, 0.0))


def mean_over_hits(lists: RelevanceLists, hits: FloatArray, gains: FloatArray, k: int | None) -> FloatArray:
    """Sum of precisions over the number of hits on the first k ranks, expected over all orders of tied items.

    The number of hits inside of the group at the cutoff is hypergeometric: the ratio is averaged over it.
    """
    terms = precisions(lists, hits, gains)
    spans, inside = lists.spans, lists.inside(k)
    cut = (inside > 0) & (inside < spans.size)
    whole = np.where(inside == spans.size, hits, 0.0)
    n_whole = segment_sum(whole, spans.offsets)
    if not cut.any():
        return ratio(lists.sum_of_ranks(terms, k), n_whole)
    ranks = lists.ranks
    total = lists.sum_of_ranks(np.where(cut[ranks.group], 0.0, terms), k)
    means = ratio(total, n_whole)
    groups = np.flatnonzero(cut)
    query = query_of_rows(spans.offsets)[groups]
    total, n_whole = total[query], n_whole[query]
    n, r, m = spans.size[groups], hits[groups], inside[groups]
    before, start = lists.sum_before(gains)[groups], spans.start[groups]
    chances = hit_probabilities(n, r.astype(np.int64), m)
    mean = np.zeros(len(groups))
    for h in range(chances.shape[1]):
        inner = np.zeros(len(groups))
        drawn = np.full(len(groups), float(h))
        drawn_gains = np.divide(gains[groups] * h, r, out=np.zeros(len(groups)), where=r > 0)
        for place in range(1, int(m.max()) + 1):
            term = _expected(drawn, drawn_gains, before, m, place) / (start + place)
            inner += np.where(place <= m, term, 0.0)
        mean += chances[:, h] * ratio(total + inner, n_whole + h)
    means[query] = mean
    return means


DENOMINATORS = ("judged", "achievable", "k", "hits")


@dataclass(frozen=True)
class AveragePrecision(Metric):
    """Sum of the precisions at the ranks of relevant items, over a denominator; 0 where that is 0."""

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
        super().__post_init__()
        self.refuse(self.denominator not in DENOMINATORS, f"denominator must be one of {', '.join(DENOMINATORS)}")

    @property
    def levels(self) -> tuple[float, ...]:
        return (self.rel,) if self.denominator in ("judged", "achievable") else ()

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        hits = lists.hits(self.rel)
        if self.denominator == "hits":
            return mean_over_hits(lists, hits, hits, k)
        total = lists.sum_of_ranks(precisions(lists, hits, hits), k)
        if self.denominator == "k":
            return lists.per_rank(total, k)
        n_relevant = lists.at_least[self.rel]
        return ratio(total, n_relevant if k is None or self.denominator == "judged" else np.minimum(n_relevant, k))


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
        return (self.rel,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        hits = lists.hits(self.rel)
        total = lists.sum_of_first(precisions(lists, hits, hits), lists.at_least[self.rel])
        return lists.per_relevant(total, self.rel)


@dataclass(frozen=True)
class WeightedAveragePrecision(Metric):
    """Mean of the average cumulative gains at the ranks of relevant items."""

    name = "wap"
    larger_is_better = True
    within_1 = False
    about = "mean of acg at the ranks of the items among the first k whose relevance is above 0; 0 without any"
    source = "Zhao et al., CVPR 2015, arXiv:1501.06272"

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        gains = lists.clipped
        return mean_over_hits(lists, lists.by_group((gains > 0).astype(np.float64)), lists.by_group(gains), k)
