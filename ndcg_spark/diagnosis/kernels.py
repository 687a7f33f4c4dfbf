"""Losses of a list against the ideal list, the best swap, and the split of a change of a mean into mix and within."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, query_of_rows, rank_of_rows, segment_sum, to_lengths
from ndcg_spark.metrics.kernels import TieGroups, extreme_weights


class Swap(NamedTuple):
    """The best swap of two items of each query: the DCG it adds, and the indices of both entries within the query.

    A query that no swap improves has the gain 0.0 and the indices -1.
    """

    gain: FloatArray
    first: IntArray
    second: IntArray


def compute_retrieved_ideal(
    gains: FloatArray, counts: IntArray, offsets: IntArray, discount: FloatArray, *, k: int | None
) -> FloatArray:
    """Return the DCG of the retrieved items in the best order, shape (n_queries,).

    `gains` and `counts` are the gain per item of each entry and its number of items, shape (n_entries,). IDCG minus
    the result is lost by items that were not retrieved; the result minus DCG, by items ranked too low.

    >>> discount = 1 / np.log2(np.arange(2, 8))
    >>> ones = np.ones(6, dtype=np.int64)
    >>> gains = np.array([3.0, 2, 3, 0, 1, 2])
    >>> compute_retrieved_ideal(gains, ones, np.array([0, 6]), discount, k=6).round(6).tolist()
    [7.140995]
    """
    query = query_of_rows(offsets)
    totals = segment_sum(counts.astype(np.float64), offsets).astype(np.int64)
    one_group = TieGroups(np.zeros(len(gains), dtype=np.int64), totals[query], counts, query)
    weights = extreme_weights(one_group, gains, discount, k=k, best=True)
    return segment_sum(gains * weights, offsets)


def find_best_swap(gains: FloatArray, weights: FloatArray, offsets: IntArray) -> Swap:
    """Find the two items of each query whose swap adds most to DCG; the first ranks win among equal swaps.

    `gains` are best rank first; `weights` are the discount of each entry's rank, 0 beyond the cutoff. Makes K passes
    over arrays of n_queries * K numbers for lists of K entries.

    >>> discount = 1 / np.log2(np.arange(2, 8))
    >>> swap = find_best_swap(np.array([3.0, 2, 3, 0, 1, 2]), discount, np.array([0, 6]))
    >>> swap.gain.round(12).tolist(), swap.first.tolist(), swap.second.tolist()
    ([0.148938741931], [3], [5])
    """
    n, longest = len(offsets) - 1, int(to_lengths(offsets).max(initial=0))
    position = (query_of_rows(offsets), rank_of_rows(offsets))
    gain, weight = np.full((n, longest), -np.inf), np.zeros((n, longest))
    gain[position], weight[position] = gains, weights
    best, first, second = np.zeros(n), np.full(n, -1), np.full(n, -1)
    for i in range(longest - 1):
        row_gain = np.where(np.isinf(gain[:, i]), 0.0, gain[:, i])[:, None]
        added = np.where(np.isinf(gain[:, i + 1 :]), 0.0, gain[:, i + 1 :] - row_gain)
        added = added * (weight[:, i, None] - weight[:, i + 1 :])
        j = added.argmax(axis=1)
        value = added[np.arange(n), j]
        better = value > best
        best[better], first[better], second[better] = value[better], i, j[better] + i + 1
    return Swap(best, first.astype(np.int64), second.astype(np.int64))


def compute_gain_by_rank(
    gains: FloatArray, groups: TieGroups, offsets: IntArray, discount: FloatArray, *, k: int
) -> FloatArray:
    """Return the contribution of each rank to DCG, shape (n_queries, k); rows add up to DCG@k.

    An item of a tie group has each rank of the group with the same probability; an untied item is a group of one.
    """
    query = query_of_rows(offsets)
    rank_gains = np.zeros((len(offsets) - 1, k))
    share = gains * groups.count / np.maximum(groups.size, 1)
    longest = int(groups.size.max(initial=0))
    for offset in range(min(longest, k)):
        rank = groups.start + offset
        inside = (offset < groups.size) & (rank < k)
        np.add.at(rank_gains, (query[inside], rank[inside]), share[inside] * discount[rank[inside]])
    return rank_gains


class SegmentSums(NamedTuple):
    """Sum of weights and of weighted values of a segment."""

    weight: Fraction
    total: Fraction


class Shift(NamedTuple):
    """Contribution of a segment to the change of the overall mean."""

    mix: Fraction
    within: Fraction


def split_shifts(before: Sequence[SegmentSums | None], after: Sequence[SegmentSums | None]) -> list[Shift]:
    """Split the change of an overall mean into mix and within, segment by segment, exactly.

    `before` and `after` are the same segments in the same order. A segment that a night lacks is None or has weight
    0; it then has the mean of the other night. For shares p of the weight, means u and overall means U of nights a
    and b, mix = (p_b - p_a)((u_a + u_b)/2 - (U_a + U_b)/2) and within = (p_a + p_b)/2 (u_b - u_a). All add up to U_b
    - U_a. Kitagawa, Components of a difference between two rates, JASA 50(272), 1955.

    >>> before = [SegmentSums(Fraction(1), Fraction(1)), SegmentSums(Fraction(1), Fraction(0))]
    >>> after = [SegmentSums(Fraction(3), Fraction(3)), SegmentSums(Fraction(1), Fraction(0))]
    >>> [float(shift.mix) for shift in split_shifts(before, after)]
    [0.09375, 0.15625]
    """
    (shares_a, means_a, all_a), (shares_b, means_b, all_b) = _compute_shares(before), _compute_shares(after)
    middle = (all_a + all_b) / 2
    shifts = []
    nothing = Fraction(0)
    for p_a, p_b, known_a, known_b in zip(shares_a, shares_b, means_a, means_b, strict=True):
        u_a = known_a if known_a is not None else known_b if known_b is not None else nothing
        u_b = known_b if known_b is not None else u_a
        shifts.append(Shift((p_b - p_a) * ((u_a + u_b) / 2 - middle), (p_a + p_b) / 2 * (u_b - u_a)))
    return shifts


def _compute_shares(segments: Sequence[SegmentSums | None]) -> tuple[list[Fraction], list[Fraction | None], Fraction]:
    """Compute the share and mean of each segment, and the overall mean."""
    empty = SegmentSums(Fraction(0), Fraction(0))
    filled = [empty if segment is None else segment for segment in segments]
    weight = sum((segment.weight for segment in filled), Fraction(0))
    shares = [segment.weight / weight for segment in filled]
    means = [segment.total / segment.weight if segment.weight else None for segment in filled]
    return shares, means, sum((segment.total for segment in filled), Fraction(0)) / weight
