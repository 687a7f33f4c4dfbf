"""Arrays in, arrays out: DCG and its ideal, weights of tied items, and draws without replacement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    query_of_rows,
    rank_of_rows,
    segment_sum,
    to_lengths,
    to_offsets,
)

TIES = "ties: McSherry and Najork, ECIR 2008, doi:10.1007/978-3-540-78646-7_38"
"""Source of metrics that average over all orders of tied items."""
_CHUNK_NUMBERS = 2**20
_MAX_BITS_BY_VALUE = 6
"""Bits of the number of places up to which items are processed by value, which takes its third power."""


def rank_weights(rank: IntArray, discount: FloatArray, *, k: int | None) -> FloatArray:
    """Discount of each row by its 0-based rank, shape (n_rows,); 0 at and beyond the cutoff.

    >>> rank_weights(np.array([0, 5]), np.array([1.0, 0.6]), k=2).tolist()
    [1.0, 0.0]
    """
    if k is None or rank.max(initial=0) < k:
        return np.asarray(discount[rank])
    inside = rank < k
    return np.where(inside, discount[np.where(inside, rank, 0)], 0.0)


def dcg(ranked_gains: FloatArray, offsets: IntArray, discount: FloatArray, *, k: int | None = None) -> FloatArray:
    """DCG of every query, shape (n_queries,); 0 for a query without rows, and NaN gains propagate.

    Gains are ranked best first, queries end to end. Jarvelin and Kekalainen, TOIS 20(4), 2002,
    doi:10.1145/582415.582418.

    >>> from ndcg_spark.conventions.forms import discount_table
    >>> gains = np.array([3.0, 2.0, 3.0, 0.0, 1.0, 2.0])
    >>> dcg(gains, np.array([0, 6]), discount_table("log2", 6)).round(6).tolist()
    [6.861127]
    """
    return segment_sum(ranked_gains * rank_weights(rank_of_rows(offsets), discount, k=k), offsets)


def sort_within_queries(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Sort the values of each query, largest first.

    >>> sort_within_queries(np.array([1.0, 3.0, 0.0, 2.0]), np.array([0, 2, 4])).tolist()
    [3.0, 1.0, 2.0, 0.0]
    """
    falls = np.ones(len(values) + 1, dtype=np.bool_)
    falls[1:-1] = values[1:] <= values[:-1]
    falls[offsets] = True
    if falls.all():  # lists arrive ranked; only unusual gains are out of order
        return values
    return np.asarray(values[np.lexsort((-values, query_of_rows(offsets)))])


def padding(
    lengths: IntArray,
    gain: float,
    discount: FloatArray,
    *,
    k: int | None,
    rank: IntArray | None = None,
    offsets: IntArray | None = None,
) -> FloatArray:
    """DCG of the items that are missing from each list up to rank `k`, each worth `gain`; 0 where k is None.

    `lengths` are the ranks that each list fills, or the last rank where ranks are given. `rank` holds these, 0-based
    and rising within a query; None: the lists have no gaps. A list without gaps has the same bits either way.

    >>> padding(np.array([1, 3, 0]), -1.0, np.array([1.0, 0.5, 0.25]), k=2).tolist()
    [-0.5, 0.0, -1.5]
    >>> gap = {"rank": np.array([0, 2]), "offsets": np.array([0, 2])}
    >>> padding(np.array([3]), 1.0, np.array([1.0, 0.5, 0.25]), k=3, **gap).tolist()
    [0.5]
    """
    if k is None:
        return np.zeros(len(lengths))
    tail = np.zeros(k + 1)
    for index in range(k - 1, -1, -1):
        tail[index] = tail[index + 1] + discount[index]
    missing = tail[np.minimum(lengths, k)]
    if rank is not None and offsets is not None:
        follows = np.zeros(len(rank), dtype=np.int64)  # the rank after the previous item; 0 for the first of a query
        follows[1:] = rank[:-1] + 1
        follows[offsets[:-1][to_lengths(offsets) > 0]] = 0
        missing = segment_sum(tail[np.minimum(follows, k)] - tail[np.minimum(rank, k)], offsets) + missing
    return np.asarray(gain * missing + 0.0)  # no -0.0


def ndcg(dcg_values: FloatArray, idcg_values: FloatArray, *, no_relevant: float) -> FloatArray:
    """DCG over IDCG of each query, and `no_relevant` where IDCG is 0 or less (NaN: left out of the mean).

    >>> ndcg(np.array([1.0, 0.0]), np.array([2.0, 0.0]), no_relevant=1.0).tolist()
    [0.5, 1.0]
    """
    relevant: BoolArray = idcg_values > 0
    return np.where(relevant, dcg_values / np.where(relevant, idcg_values, 1.0), no_relevant)


@dataclass(frozen=True, slots=True)
class TieGroups:
    """The tie group of each entry: first rank (from 0), items, items of the entry, and number (rising)."""

    start: IntArray
    size: IntArray
    count: IntArray
    group: IntArray


def tie_groups(scores: FloatArray, counts: IntArray, offsets: IntArray) -> TieGroups:
    """Find the tie groups of a ragged batch.

    `scores` fall within each query; `counts` are the items of each entry, at least 1.

    >>> groups = tie_groups(np.array([3.0, 1.0, 1.0]), np.array([1, 2, 1]), np.array([0, 3]))
    >>> groups.start.tolist(), groups.size.tolist()
    ([0, 1, 1], [1, 3, 3])
    """
    n = len(scores)
    if n == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return TieGroups(nothing, nothing, nothing, nothing)
    query = query_of_rows(offsets)
    new = np.ones(n, dtype=np.bool_)
    new[1:] = (scores[1:] != scores[:-1]) | (query[1:] != query[:-1])
    group = np.cumsum(new) - 1
    before = np.cumsum(counts) - counts
    before_query = before[np.minimum(offsets[:-1], n - 1)][query]
    first = np.flatnonzero(new)
    start = (before - before_query)[first][group]
    size = np.add.reduceat(counts, first)[group]
    return TieGroups(start, size, counts, group)


def expected_weights(groups: TieGroups, discount: FloatArray, *, k: int | None) -> FloatArray:
    """Weight of each entry, averaged over all orders of the tied items. McSherry and Najork, ECIR 2008.

    count / size * sum of the discounts of the group's ranks before k. An item that ties with no other has exactly the
    discount of its rank.

    >>> groups = tie_groups(np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2]))
    >>> expected_weights(groups, np.array([1.0, 0.5]), k=None).tolist()
    [0.75, 0.75]
    """
    share = _span(groups.start, groups.start + groups.size, discount, k)
    tied = groups.count / np.maximum(groups.size, 1) * share
    return np.where(groups.size == 1, rank_weights(groups.start, discount, k=k), tied)


def extreme_weights(
    groups: TieGroups, gains: FloatArray, discount: FloatArray, *, k: int | None, best: bool
) -> FloatArray:
    """Weight of each entry when tied items are in the best order, or in the worst.

    Discounts must fall: the best order is then that of the gains.

    >>> groups = tie_groups(np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2]))
    >>> extreme_weights(groups, np.array([0.0, 3.0]), np.array([1.0, 0.5]), k=1, best=True).tolist()
    [0.0, 1.0]
    """
    return expected_weights(extreme_groups(groups, gains, best=best), discount, k=k)


def extreme_groups(groups: TieGroups, gains: FloatArray, *, best: bool) -> TieGroups:
    """Put tied items in the best order (largest gains first) or the worst: each entry is then a group by itself.

    >>> groups = tie_groups(np.array([1.0, 1.0]), np.array([1, 1]), np.array([0, 2]))
    >>> extreme_groups(groups, np.array([0.0, 3.0]), best=True).start.tolist()
    [1, 0]
    """
    order = np.lexsort((-gains if best else gains, groups.group))
    count = groups.count[order]
    before = np.cumsum(count) - count
    first = np.searchsorted(groups.group[order], groups.group[order], side="left")
    start = np.zeros(len(gains), dtype=np.int64)
    start[order] = groups.start[order] + before - (before[first] if len(first) else before)
    return TieGroups(start, groups.count, groups.count, np.arange(len(gains)))


def straddling_share(groups: TieGroups, offsets: IntArray, *, k: int) -> FloatArray:
    """Share of the first k ranks that is filled by the tie group which reaches beyond rank k.

    0 if the cutoff falls between groups, 1 if the first k are all one group with later items: so a constant scorer
    shows as 1.

    >>> groups = tie_groups(np.array([3.0, 1.0, 1.0]), np.array([1, 1, 1]), np.array([0, 3]))
    >>> straddling_share(groups, np.array([0, 3]), k=2).tolist()
    [0.5]
    """
    straddles: BoolArray = (groups.start < k) & (groups.start + groups.size > k)
    shares = np.zeros(len(offsets) - 1)
    shares[query_of_rows(offsets)[straddles]] = (k - groups.start[straddles]) / k
    return shares


def canonical_order(groups: TieGroups, gains: FloatArray) -> IntArray | None:
    """Order entries by group, largest gain first, so that row order does not matter; None if they are sorted."""
    in_order = (np.diff(groups.group) > 0) | (np.diff(gains) <= 0)
    return None if in_order.all() else np.lexsort((-gains, groups.group))


def _span(start: IntArray, stop: IntArray, discount: FloatArray, k: int | None) -> FloatArray:
    """Sum of the discounts of ranks start..stop-1 that are before k."""
    total = np.concatenate([[0.0], np.cumsum(discount)])
    limit = len(discount) if k is None else min(k, len(discount))
    return np.asarray(total[np.minimum(stop, limit)] - total[np.minimum(start, limit)])


def hit_probabilities(n: IntArray, r: IntArray, m: IntArray) -> FloatArray:
    """Probabilities of h hits among m items drawn from n, of which r are hits, shape (n_groups, largest m + 1).

    Each draw adds sums of products of positive numbers, so nothing cancels.

    >>> hit_probabilities(np.array([4]), np.array([2]), np.array([2])).round(6).tolist()
    [[0.166667, 0.666667, 0.166667]]
    """
    max_draws = int(m.max(initial=0))
    chances = np.zeros((len(n), max_draws + 1))
    chances[:, 0] = 1.0
    h = np.arange(max_draws + 1)
    for draw in range(max_draws):
        remaining = np.maximum(n - draw, 1)[:, None]
        miss = np.maximum(n[:, None] - r[:, None] - (draw - h), 0) / remaining
        hit = np.maximum(r[:, None] - h, 0) / remaining
        drawn = chances * miss
        drawn[:, 1:] += (chances * hit)[:, :-1]
        chances = np.where((draw < m)[:, None], drawn, chances)
    return chances


def expected_products(values: FloatArray, counts: IntArray, offsets: IntArray, m: IntArray) -> FloatArray:
    """Expected product of the first 0, 1, ..., m values of each group in random order, groups end to end.

    `counts` are the items of each value. The results are elementary symmetric functions of the values of all items,
    over the number of choices.

    >>> one_group = np.array([0, 2])
    >>> expected_products(np.array([0.5, 1.0]), np.array([1, 1]), one_group, np.array([2])).tolist()
    [1.0, 0.75, 0.5]
    """
    begins = to_offsets(m + 1)
    products = np.zeros(begins[-1])
    sizes = np.frexp(m.astype(np.float64))[1]  # groups of about one m at once: all are as wide as the widest
    for size in np.unique(sizes):
        groups = np.flatnonzero(sizes == size)
        width = int(m[groups].max()) + 1
        by_value = size <= _MAX_BITS_BY_VALUE  # by the group alone, so that others cannot change a bit
        groups_per_chunk = max(1, _CHUNK_NUMBERS // (width**2 if by_value else width))
        for start in range(0, len(groups), groups_per_chunk):
            chunk = groups[start : start + groups_per_chunk]
            work = _products_by_value if by_value else _products_by_item
            chunk_products = work(values, counts, offsets[chunk], offsets[chunk + 1], width)
            in_range = np.arange(width) <= m[chunk][:, None]
            products[(begins[chunk][:, None] + np.arange(width))[in_range]] = chunk_products[in_range]
    return products


def _products_by_value(
    values: FloatArray, counts: IntArray, first: IntArray, end: IntArray, width: int
) -> FloatArray:
    """Process all items of a value at once, however many they are."""
    products, n = np.zeros((len(first), width)), np.zeros(len(first), dtype=np.int64)
    products[:, 0] = 1.0
    places = np.arange(width)
    for step in range(int((end - first).max(initial=0))):
        active = np.flatnonzero(first + step < end)
        value, count = values[first[active] + step], counts[first[active] + step]
        n[active] += count
        # For every j: of j items drawn from those so far, how many are of this value.
        drawn = np.minimum(places, n[active][:, None])
        chances = hit_probabilities(np.repeat(n[active], width), np.repeat(count, width), drawn.reshape(-1))
        chances = chances.reshape(len(active), width, -1)
        mixed, power = np.zeros((len(active), width)), np.ones(len(active))
        for new in range(chances.shape[2]):
            mixed[:, new:] += chances[:, new:, new] * power[:, None] * products[active, : width - new]
            power *= value
        products[active] = mixed
    return products


def _products_by_item(values: FloatArray, counts: IntArray, first: IntArray, end: IntArray, width: int) -> FloatArray:
    """Process item by item: for many places and few more items."""
    products = np.zeros((len(first), width))
    products[:, 0] = 1.0
    places = np.arange(width, dtype=np.float64)
    for row, (begin, stop) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
        product, n = products[row], 0
        for value, count in zip(values[begin:stop].tolist(), counts[begin:stop].tolist(), strict=True):
            for _ in range(count):
                n += 1
                last = min(n, width - 1)
                product[1 : last + 1] += (product[:last] * value - product[1 : last + 1]) * (places[1 : last + 1] / n)
    return products
