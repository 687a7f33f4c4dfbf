"""One relevance from several weighted ratings, and the agreement of annotators."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    query_of_rows,
    rank_of_rows,
    to_lengths,
    to_offsets,
)

WholeArray: TypeAlias = NDArray[Any]
"""Python integers of any size."""


class Ratings(NamedTuple):
    """Ratings of a weight above 0, sorted by item and relevance; `offsets` has shape (n_items + 1,).

    `weight` holds whole numbers in units of 2^`unit`; `source` is the index of each rating before sorting.
    """

    relevance: FloatArray
    weight: WholeArray
    unit: int
    offsets: IntArray
    source: IntArray

    @property
    def item(self) -> IntArray:
        """Index of the item of each rating."""
        return query_of_rows(self.offsets)

    @property
    def rated(self) -> BoolArray:
        """True for each item with a rating, shape (n_items,)."""
        return np.asarray(to_lengths(self.offsets) > 0)


class Votes(NamedTuple):
    """Lowest and highest of the grades with the most weight, shape (n_items,); NaN for an item without ratings.

    `more_than_half` is True if one grade has more than half of the weight.
    """

    lower: FloatArray
    higher: FloatArray
    more_than_half: BoolArray


def sort_ratings(relevance: FloatArray, weight: FloatArray, offsets: IntArray) -> Ratings:
    """Sort ratings by item and relevance; drop ratings of weight 0.

    Relevances are finite, weights finite and not negative; item i owns ratings offsets[i]:offsets[i + 1].
    """
    item = query_of_rows(offsets)
    order = np.lexsort((relevance, item))
    order = order[weight[order] > 0]
    n_ratings = np.bincount(item[order], minlength=len(offsets) - 1).astype(np.int64)
    whole, unit = to_whole_numbers(weight[order])
    return Ratings(relevance[order] + 0.0, whole, unit, to_offsets(n_ratings), order)


def to_whole_numbers(values: FloatArray) -> tuple[WholeArray, int]:
    """Return `whole, unit` such that values = whole * 2^unit exactly; values are finite.

    >>> whole, unit = to_whole_numbers(np.array([0.5, 3.0]))
    >>> [int(number) * 2.0**unit for number in whole]
    [0.5, 3.0]
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    nonzero = whole != 0
    unit = int(exponent[nonzero].min()) if nonzero.any() else 0
    shift = np.where(nonzero, exponent - unit, 0)
    shifted = whole.astype(object) << shift.astype(object) if len(values) else whole.astype(object)
    return shifted, unit - 53


def sum_weights(ratings: Ratings) -> FloatArray:
    """Sum the weights of each item, shape (n_items,), rounded once."""
    return _divide(_sum_by_item(ratings.weight, ratings.offsets), np.array([1], dtype=object), ratings.unit)


def weighted_mean(ratings: Ratings) -> FloatArray:
    """Compute the weighted mean of each item exactly, rounded once; NaN without ratings. Shape (n_items,).

    >>> relevance, weight = np.array([3.0, 1.0, 2.0, -1.0]), np.array([1.0, 0.5, 1.0, 0.25])
    >>> weighted_mean(sort_ratings(relevance, weight, np.array([0, 4]))).round(12).tolist()
    [1.909090909091]
    """
    relevance, unit = to_whole_numbers(ratings.relevance)
    weighted = _sum_by_item(ratings.weight * relevance, ratings.offsets)
    total = _sum_by_item(ratings.weight, ratings.offsets)
    means = np.full(len(ratings.rated), np.nan)
    means[ratings.rated] = _divide(weighted[ratings.rated], total[ratings.rated], unit)
    return means


def weighted_median(ratings: Ratings) -> tuple[FloatArray, FloatArray]:
    """Compute the lower and upper weighted median of each item, shape (n_items,); NaN without ratings.

    These are the lowest relevances whose cumulative weight reaches half of the total, and exceeds it.

    >>> lower, upper = weighted_median(sort_ratings(np.array([1.0, 2.0]), np.ones(2), np.array([0, 2])))
    >>> lower.tolist(), upper.tolist()
    ([1.0], [2.0])
    """
    item = ratings.item
    total = _sum_by_item(ratings.weight, ratings.offsets)[item]
    running = _cumulate(ratings.weight)
    cumulative = running[1:] - running[ratings.offsets[item]]
    doubled = cumulative + cumulative
    return _take_first(ratings, doubled >= total), _take_first(ratings, doubled > total)


def find_majority(ratings: Ratings) -> Votes:
    """Find the grades with the most weight.

    >>> votes = find_majority(sort_ratings(np.array([2.0, 3.0, 2.0, 3.0]), np.ones(4), np.array([0, 1, 4])))
    >>> votes.lower.tolist(), votes.higher.tolist(), votes.more_than_half.tolist()
    ([2.0, 3.0], [2.0, 3.0], [True, True])
    """
    n_items, rated = len(ratings.offsets) - 1, ratings.rated
    lower, higher = np.full(n_items, np.nan), np.full(n_items, np.nan)
    more = np.zeros(n_items, dtype=np.bool_)
    if not rated.any():
        return Votes(lower, higher, more)
    item, relevance = ratings.item, ratings.relevance
    first = np.flatnonzero(np.r_[True, (np.diff(item) != 0) | (np.diff(relevance) != 0)])
    grade_weight = _sum_by_item(ratings.weight, np.r_[first, len(item)])
    grade, owner = relevance[first], item[first]
    starts = np.flatnonzero(np.r_[True, np.diff(owner) != 0])
    max_weight = np.full(n_items, 0, dtype=object)
    max_weight[rated] = np.maximum.reduceat(grade_weight, starts)
    winning = np.asarray(grade_weight == max_weight[owner], dtype=np.bool_)
    higher[owner[winning]] = grade[winning]  # on ties the last assignment wins, the highest grade
    lower[owner[winning][::-1]] = grade[winning][::-1]
    more[:] = max_weight + max_weight > _sum_by_item(ratings.weight, ratings.offsets)
    return Votes(lower, higher, more)


def rating_range(ratings: Ratings) -> tuple[FloatArray, FloatArray]:
    """Return the lowest and highest rating of each item, shape (n_items,); NaN without ratings."""
    low, high = np.full(len(ratings.rated), np.nan), np.full(len(ratings.rated), np.nan)
    low[ratings.rated] = ratings.relevance[ratings.offsets[:-1][ratings.rated]]
    high[ratings.rated] = ratings.relevance[ratings.offsets[1:][ratings.rated] - 1]
    return low, high


def _cumulate(values: WholeArray) -> WholeArray:
    running = np.zeros(len(values) + 1, dtype=object)
    running[1:] = np.add.accumulate(values) if len(values) else values
    return running


def _sum_by_item(values: WholeArray, offsets: IntArray) -> WholeArray:
    running = _cumulate(values)
    return np.asarray(running[offsets[1:]] - running[offsets[:-1]])


def _take_first(ratings: Ratings, reached: WholeArray) -> FloatArray:
    """Return the relevance of the first flagged rating of each item; all later ratings must be flagged, too."""
    flags = np.asarray(reached, dtype=np.bool_)
    before = np.bincount(ratings.item[~flags], minlength=len(ratings.offsets) - 1).astype(np.int64)
    first = np.full(len(ratings.rated), np.nan)
    first[ratings.rated] = ratings.relevance[(ratings.offsets[:-1] + before)[ratings.rated]]
    return first


def _divide(dividend: WholeArray, divisor: WholeArray, unit: int) -> FloatArray:
    """Return dividend / divisor * 2^unit, rounded once: Python divides integers of any size correctly."""
    if not len(dividend):
        return np.zeros(0)
    scale = 1 << abs(unit)
    quotient = dividend / (divisor * scale) if unit < 0 else dividend * scale / divisor
    return np.asarray(quotient, dtype=np.float64)


class PairCounts(NamedTuple):
    """Counts of ordered pairs of ratings of an item by two annotators: `n` pairs (first, second), shape (n_rows,).

    `raters` is the number of ratings of the items that the pairs come from, at least 2.
    """

    raters: IntArray
    first: FloatArray
    second: FloatArray
    n: IntArray


class Agreement(NamedTuple):
    """Agreement of annotators: an `alpha` of 1 is perfect agreement, 0 is agreement by chance.

    Without alpha, `reason` is `no_pairs` (no item has two ratings) or `single_grade` (all comparable ratings are
    equal). `n_items` counts items with two or more ratings, `n_ratings` their ratings.
    """

    alpha: float | None
    reason: str | None
    n_items: int
    n_ratings: int


def count_rating_pairs(relevance: FloatArray, offsets: IntArray) -> PairCounts:
    """Count the ordered pairs of ratings within items, sorted by (raters, first, second).

    >>> counts = count_rating_pairs(np.array([3.0, 3.0, 2.0]), np.array([0, 3]))
    >>> [list(map(float, row)) for row in zip(*counts)]
    [[3.0, 2.0, 3.0, 2.0], [3.0, 3.0, 2.0, 2.0], [3.0, 3.0, 3.0, 2.0]]
    """
    item, relevance = query_of_rows(offsets), relevance + 0.0  # -0.0 is 0.0
    order = np.lexsort((relevance, item))
    item, relevance = item[order], relevance[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(item) != 0) | (np.diff(relevance) != 0)][: len(item)])
    times = np.diff(np.r_[starts, len(item)])  # how often each item has each grade
    grade, item = relevance[starts], item[starts]
    grades_of_item = np.bincount(item, minlength=len(offsets) - 1)
    ends = np.cumsum(grades_of_item)
    partners = grades_of_item[item]
    left = np.repeat(np.arange(len(starts)), partners)
    right = (ends - grades_of_item)[item[left]] + rank_of_rows(np.r_[0, np.cumsum(partners)])
    count = times[left] * (times[right] - (left == right))
    keys = np.stack([np.diff(offsets)[item[left]].astype(np.float64), grade[left], grade[right]], axis=1)[count > 0]
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, place.reshape(-1), count[count > 0])
    return PairCounts(distinct[:, 0].astype(np.int64), distinct[:, 1], distinct[:, 2], total)


def ordinal_alpha(pairs: PairCounts) -> Agreement:
    """Compute Krippendorff's alpha with the ordinal difference, from fractions, rounded once.

    A (raters, first, second) may occur several times, in any order. Hayes and Krippendorff, Communication Methods and
    Measures 1(1), 2007, doi:10.1080/19312450709336664.

    >>> ratings, offsets = np.array([1.0, 1.0, 2.0, 2.0, 1.0, 2.0]), np.array([0, 2, 4, 6])
    >>> ordinal_alpha(count_rating_pairs(ratings, offsets)).alpha
    0.4444444444444444
    """
    whole: defaultdict[tuple[int, float, float], int] = defaultdict(int)
    columns = (column.tolist() for column in pairs)
    for raters, first, second, count in zip(*columns, strict=True):
        whole[raters, first, second] += count
    together: defaultdict[tuple[float, float], Fraction] = defaultdict(Fraction)
    n_items = Fraction(0)
    for (raters, first, second), count in whole.items():
        together[first, second] += Fraction(count, raters - 1)
        n_items += Fraction(count, raters * (raters - 1))
    times: defaultdict[float, Fraction] = defaultdict(Fraction)
    for (first, _), share in together.items():
        times[first] += share
    n_ratings = sum(times.values(), Fraction(0))
    if len(times) < 2:
        return Agreement(None, "single_grade" if times else "no_pairs", int(n_items), int(n_ratings))
    grades = sorted(times)
    below = dict(zip(grades, accumulate([times[grade] for grade in grades]), strict=True))

    def difference(low: float, high: float) -> Fraction:
        between = below[high] - below[low] + times[low]  # ratings from low to high, both included
        return (between - (times[low] + times[high]) / 2) ** 2

    observed = sum(share * difference(low, high) for (low, high), share in together.items() if low < high)
    expected = sum(
        times[low] * times[high] * difference(low, high) for n, low in enumerate(grades, 1) for high in grades[n:]
    )
    alpha = float(1 - (n_ratings - 1) * observed / expected)
    return Agreement(alpha, None, int(n_items), int(n_ratings))
