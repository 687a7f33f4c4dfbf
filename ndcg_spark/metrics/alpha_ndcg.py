"""Alpha-NDCG: a gain that falls with each repetition of a topic, against a greedy ideal list."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    query_of_rows,
    rows_of_queries,
    segment_sum,
    to_lengths,
)
from ndcg_spark.metrics.base import TOPICS, Metric, Need
from ndcg_spark.metrics.lists import RelevanceLists, ratio


@dataclass(frozen=True, slots=True)
class TopicItems:
    """Relevant judged items of a batch, and the topics of each.

    Query q owns items offsets[q]:offsets[q + 1], in the order in which the ideal list takes equal ones. Item i owns
    topics topic_offsets[i]:topic_offsets[i + 1], at least one and none twice; two queries share no topic.
    """

    offsets: IntArray
    topic_offsets: IntArray
    topics: IntArray

    @property
    def n_topics(self) -> int:
        return int(self.topics.max(initial=-1)) + 1


def repeated_gains(truth: TopicItems, items: IntArray, offsets: IntArray, alpha: float) -> FloatArray:
    """Gain of each listed item: sum over its topics of (1 - alpha) ^ (items above that have the topic).

    `items` are numbers of the listed items in `truth`, best rank first, -1 for one without topics.

    >>> truth = TopicItems(np.array([0, 2]), np.array([0, 2, 3]), np.array([0, 1, 1]))
    >>> repeated_gains(truth, np.array([1, -1, 0]), np.array([0, 3]), 0.5).tolist()
    [1.0, 0.0, 1.5]
    """
    gains, seen, lengths = np.zeros(len(items)), np.zeros(truth.n_topics, dtype=np.int64), to_lengths(offsets)
    for rank in range(int(lengths.max(initial=0))):
        rows = offsets[:-1][lengths > rank] + rank
        rows = rows[items[rows] >= 0]
        pairs = rows_of_queries(items[rows], truth.topic_offsets)
        owner = np.repeat(np.arange(len(rows)), to_lengths(truth.topic_offsets)[items[rows]])
        gains[rows] = _gains(seen[truth.topics[pairs]], owner, len(rows), alpha)
        seen[truth.topics[pairs]] += 1
    return gains


def greedy_gains(truth: TopicItems, alpha: float, k: int | None) -> FloatArray:
    """Gains of the ideal list that takes the item of the largest gain next, of equal ones the first.

    Shape (n_queries, n_ranks), 0 where a query has no item left. The best list is not always found this way, so
    alpha-NDCG can exceed 1; finding it is NP-hard.

    >>> truth = TopicItems(np.array([0, 2]), np.array([0, 1, 3]), np.array([0, 0, 1]))
    >>> greedy_gains(truth, 0.5, None).tolist()
    [[2.0, 0.5]]
    """
    lengths, query = to_lengths(truth.offsets), query_of_rows(truth.offsets)
    n_ranks = int(lengths.max(initial=0)) if k is None else min(k, int(lengths.max(initial=0)))
    owner, seen = query_of_rows(truth.topic_offsets), np.zeros(truth.n_topics, dtype=np.int64)
    available, ideal = np.ones(len(query), dtype=np.bool_), np.zeros((len(lengths), n_ranks))
    for rank in range(n_ranks):
        gains = np.where(available, _gains(seen[truth.topics], owner, len(query), alpha), -1.0)
        best_items = _first_best(gains, truth.offsets, lengths > rank)
        ideal[query[best_items], rank] = gains[best_items]
        available[best_items] = False
        seen[truth.topics[rows_of_queries(best_items, truth.topic_offsets)]] += 1
    return ideal


def _gains(seen: IntArray, owner: IntArray, n_items: int, alpha: float) -> FloatArray:
    """Gain of each item from how often each of its topics was seen.

    Topics seen equally often are counted and then added, fewest first: items of equal gain get equal bits.
    """
    gains = np.zeros(n_items)
    for times in np.unique(seen).tolist():
        gains += np.bincount(owner[seen == times], minlength=n_items) * (1.0 - alpha) ** times
    return gains


def _first_best(gains: FloatArray, offsets: IntArray, selected: BoolArray) -> IntArray:
    """Number of the first item of the largest gain of each selected query; these have items."""
    query = np.flatnonzero(selected)
    rows, starts = rows_of_queries(query, offsets), offsets[:-1][query]
    lengths = to_lengths(offsets)[query]
    local = np.cumsum(lengths) - lengths
    best = np.maximum.reduceat(gains[rows], local)
    is_best = gains[rows] == np.repeat(best, lengths)
    place = np.minimum.reduceat(np.where(is_best, np.arange(len(rows)), len(rows)), local)
    return np.asarray(starts + place - local)


def _discounts(rank: np.ndarray) -> FloatArray:
    """1 / log2(rank + 1) of 0-based ranks, by the logarithm of the C library."""
    levels, place = np.unique(rank, return_inverse=True)
    return np.array([1.0 / math.log2(level + 2) for level in levels.tolist()], dtype=np.float64)[place]


@dataclass(frozen=True)
class AlphaNdcg(Metric):
    """Discounted gain of new topics, over that of a greedy ideal list; 0 where no item has a topic."""

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
        super().__post_init__()
        self.refuse(not 0 <= self.alpha <= 1, f"alpha must be between 0 and 1; got {self.alpha:g}")

    @property
    def needs(self) -> tuple[Need, ...]:
        return (TOPICS,)

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        items, alpha, rel = lists.known_items, self.alpha, self.rel
        if items.topics is None:
            raise ValueError("the lists have no topics")
        truth, numbers = items.topics(rel)
        gains = lists.get_or_compute(
            ("topic gains", alpha, rel), lambda: repeated_gains(truth, numbers, items.offsets, alpha)
        )
        ideal = lists.get_or_compute(("greedy gains", alpha, rel), lambda: greedy_gains(truth, alpha, lists.max_k))
        inside, offsets = items.first(k)
        alpha_dcg = segment_sum(gains[inside] * _discounts(items.rank[inside]), offsets)
        best = np.zeros(len(alpha_dcg))
        n_ranks = ideal.shape[1] if k is None else min(k, ideal.shape[1])
        for rank, weight in enumerate(_discounts(np.arange(n_ranks)).tolist()):  # added in rank order, too
            best += ideal[:, rank] * weight
        return ratio(alpha_dcg, best)
