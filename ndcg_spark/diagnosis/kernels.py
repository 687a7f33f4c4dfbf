"""What a list loses against the ideal one, the swap that helps most, and a change of a mean as mix and within."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, query_of_rows, rank_of_rows, segment_sum, to_lengths
from ndcg_spark.metrics.kernels import TieGroups, extreme_weights


class Swap(NamedTuple):
    """The best swap of two items of each query: what it adds to DCG, and its entries, counted within the query.

    A query that no swap helps has the gain 0.0 and the entries -1.
    """

    gain: FloatArray
    first: IntArray
    second: IntArray


def retrieved_ideal(
    gains: FloatArray, counts: IntArray, offsets: IntArray, discount: FloatArray, *, k: int | None
) -> FloatArray:
    """DCG of the retrieved items, had they been ranked in the best order, shape (n_queries,).

    `gains` and `counts` are the gain of each item of an entry and its items, shape (n_entries,). IDCG less the result
    is lost by items not retrieved; the result less DCG, by items ranked too low.

    >>> discount = 1 / np.log2(np.arange(2, 8))
    >>> ones = np.ones(6, dtype=np.int64)
    >>> retrieved_ideal(np.array([3.0, 2, 3, 0, 1, 2]), ones, np.array([0, 6]), discount, k=6).round(6).tolist()
    [7.140995]
    """
    query = query_of_rows(offsets)
    totals = segment_sum(counts.astype(np.float64), offsets).astype(np.int64)
    one_group = TieGroups(np.zeros(len(gains), dtype=np.int64), totals[query], counts, query)
    weights = extreme_weights(one_group, gains, discount, k=k, best=True)
    return segment_sum(gains * weights, offsets)


def best_swap(gains: FloatArray, weights: FloatArray, offsets: IntArray) -> Swap:
    """Find the two items of each query whose exchange adds most to DCG; of equal swaps that of the first ranks.

    `gains` are best rank first; `weights` are the discount of each entry's rank, 0 beyond the cutoff. Takes K passes
    over arrays of n_queries * K for lists of K entries.

    >>> discount = 1 / np.log2(np.arange(2, 8))
    >>> found = best_swap(np.array([3.0, 2, 3, 0, 1, 2]), discount, np.array([0, 6]))
    >>> found.gain.round(12).tolist(), found.first.tolist(), found.second.tolist()
    ([0.148938741931], [3], [5])
    """
    n, longest = len(offsets) - 1, int(to_lengths(offsets).max(initial=0))
    at = (query_of_rows(offsets), rank_of_rows(offsets))
    gain, weight = np.full((n, longest), -np.inf), np.zeros((n, longest))
    gain[at], weight[at] = gains, weights
    best, first, second = np.zeros(n), np.full(n, -1), np.full(n, -1)
    for i in range(longest - 1):
        here = np.where(np.isinf(gain[:, i]), 0.0, gain[:, i])[:, None]
        added = np.where(np.isinf(gain[:, i + 1 :]), 0.0, gain[:, i + 1 :] - here)
        added = added * (weight[:, i, None] - weight[:, i + 1 :])
        j = added.argmax(axis=1)
        value = added[np.arange(n), j]
        better = value > best
        best[better], first[better], second[better] = value[better], i, j[better] + i + 1
    return Swap(best, first.astype(np.int64), second.astype(np.int64))


def gain_by_rank(
    gains: FloatArray, groups: TieGroups, offsets: IntArray, discount: FloatArray, *, k: int
) -> FloatArray:
    """Return what each rank adds to DCG, shape (n_queries, k); rows add up to DCG@k.

    Each item of a tie group has any rank of the group with the same probability; an item by itself is a group of one.
    """
    query = query_of_rows(offsets)
    found = np.zeros((len(offsets) - 1, k))
    share = gains * groups.count / np.maximum(groups.size, 1)
    longest = int(groups.size.max(initial=0))
    for step in range(min(longest, k)):
        rank = groups.start + step
        inside = (step < groups.size) & (rank < k)
        np.add.at(found, (query[inside], rank[inside]), share[inside] * discount[rank[inside]])
    return found


class SegmentSums(NamedTuple):
    """Sum of weights and of weighted values of a segment."""

    weight: Fraction
    total: Fraction


class Shift(NamedTuple):
    """Contribution of a segment to the change of the overall mean."""

    mix: Fraction
    within: Fraction


def mix_and_within(before: Sequence[SegmentSums | None], after: Sequence[SegmentSums | None]) -> list[Shift]:
    """Divide the change of an overall mean into mix and within, segment by segment, exactly.

    `before` and `after` are the same segments in the same order; None, or a weight of 0, where a night lacks one,
    which then has the mean of the other night. For shares p of the weight, means u and overall means U of nights a
    and b, mix = (p_b - p_a)((u_a + u_b)/2 - (U_a + U_b)/2) and within = (p_a + p_b)/2 (u_b - u_a). All add up to U_b
    - U_a. Kitagawa, Components of a difference between two rates, JASA 50(272), 1955.

    >>> one = [SegmentSums(Fraction(1), Fraction(1)), SegmentSums(Fraction(1), Fraction(0))]
    >>> other = [SegmentSums(Fraction(3), Fraction(3)), SegmentSums(Fraction(1), Fraction(0))]
    >>> [float(shift.mix) for shift in mix_and_within(one, other)]
    [0.09375, 0.15625]
    """
    (shares_a, means_a, all_a), (shares_b, means_b, all_b) = _parts(before), _parts(after)
    middle = (all_a + all_b) / 2
    shifts = []
    nothing = Fraction(0)
    for p_a, p_b, known_a, known_b in zip(shares_a, shares_b, means_a, means_b, strict=True):
        u_a = known_a if known_a is not None else known_b if known_b is not None else nothing
        u_b = known_b if known_b is not None else u_a
        shifts.append(Shift((p_b - p_a) * ((u_a + u_b) / 2 - middle), (p_a + p_b) / 2 * (u_b - u_a)))
    return shifts


def _parts(segments: Sequence[SegmentSums | None]) -> tuple[list[Fraction], list[Fraction | None], Fraction]:
    """Share and mean of each segment, and the overall mean."""
    nothing = SegmentSums(Fraction(0), Fraction(0))
    filled = [nothing if one is None else one for one in segments]
    weight = sum((one.weight for one in filled), Fraction(0))
    shares = [one.weight / weight for one in filled]
    means = [one.total / one.weight if one.weight else None for one in filled]
    return shares, means, sum((one.total for one in filled), Fraction(0)) / weight
