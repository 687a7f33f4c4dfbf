"""Alpha-NDCG: gain for topics that items above have not covered yet."""

from __future__ import annotations

import math

import numpy as np

from ndcg_spark.core.ragged import FloatArray, segment_sum
from ndcg_spark.metrics.kernels.lists import RelevanceLists, ratio
from ndcg_spark.metrics.kernels.subtopics import greedy_gains, repeated_gains


def alpha_ndcg(lists: RelevanceLists, k: int | None, alpha: float, rel: float) -> FloatArray:
    """Alpha-DCG over that of a greedy ideal list; 0 where no item has a topic.

    Parameters
    ----------
    lists : RelevanceLists
        With topics of their items.
    k : int or None
    alpha : float
        What an item with a topic takes from the next one with it, between 0 and 1.
    rel : float
        Relevance from which on an item has a topic.

    Returns
    -------
    float64, shape (n_queries,)

    References
    ----------
    Clarke et al., SIGIR 2008, doi:10.1145/1390334.1390446.
    """
    items = lists.known_items
    if items.topics is None:
        raise ValueError("these lists come without topics")
    truth, listed = items.topics(rel)
    gains = lists.kept(("topic gains", alpha, rel), lambda: repeated_gains(truth, listed, items.offsets, alpha))
    ideal = lists.kept(("greedy gains", alpha, rel), lambda: greedy_gains(truth, alpha, lists.max_k))
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
