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
    lengths_of,
    offsets_of,
    query_of_rows,
    rank_of_rows,
)

WholeArray: TypeAlias = NDArray[Any]
"""Python's whole numbers, of any size."""


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
        """Which items have a rating, shape (n_items,)."""
        return np.asarray(lengths_of(self.offsets) > 0)


class Votes(NamedTuple):
    """The lowest and highest of the grades with the most weight, shape (n_items,); NaN for an item without ratings.

    `more_than_half`: a grade has more than half of the weight.
    """

    lower: FloatArray
    higher: FloatArray
    more_than_half: BoolArray


def weighty_ratings(relevance: FloatArray, weight: FloatArray, offsets: IntArray) -> Ratings:
    """Sort ratings and drop those of weight 0, which decide nothing.

    Relevances are finite, weights finite and not negative; item i owns ratings offsets[i]:offsets[i + 1].
    """
    item = query_of_rows(offsets)
    order = np.lexsort((relevance, item))
    order = order[weight[order] > 0]
    counted = np.bincount(item[order], minlength=len(offsets) - 1).astype(np.int64)
    whole, unit = whole_numbers(weight[order])
    return Ratings(relevance[order] + 0.0, whole, unit, offsets_of(counted), order)


def whole_numbers(values: FloatArray) -> tuple[WholeArray, int]:
    """Write finite doubles as `whole, unit` with values = whole * 2^unit, exactly.

    >>> whole, unit = whole_numbers(np.array([0.5, 3.0]))
    >>> [int(one) * 2.0**unit for one in whole]
    [0.5, 3.0]
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    there = whole != 0
    unit = int(exponent[there].min()) if there.any() else 0
    shift = np.where(there, exponent - unit, 0)
    shifted = whole.astype(object) << shift.astype(object) if len(values) else whole.astype(object)
    return shifted, unit - 53


def weight_sums(ratings: Ratings) -> FloatArray:
    """Sum of the weights of each item, shape (n_items,), rounded once."""
    return _scaled(_sums(ratings.weight, ratings.offsets), np.array([1], dtype=object), ratings.unit)


def weighted_mean(ratings: Ratings) -> FloatArray:
    """Weighted mean of each item, shape (n_items,): an exact fraction, rounded once; NaN without ratings.

    >>> relevance, weight = np.array([3.0, 1.0, 2.0, -1.0]), np.array([1.0, 0.5, 1.0, 0.25])
    >>> weighted_mean(weighty_ratings(relevance, weight, np.array([0, 4]))).round(12).tolist()
    [1.909090909091]
    """
    relevance, unit = whole_numbers(ratings.relevance)
    weighted = _sums(ratings.weight * relevance, ratings.offsets)
    total = _sums(ratings.weight, ratings.offsets)
    found = np.full(len(ratings.rated), np.nan)
    found[ratings.rated] = _scaled(weighted[ratings.rated], total[ratings.rated], unit)
    return found


def weighted_median(ratings: Ratings) -> tuple[FloatArray, FloatArray]:
    """Lower and upper weighted median of each item, shape (n_items,); NaN without ratings.

    The lowest relevance up to which ratings have at least half of the weight, and up to which they have more than
    half.

    >>> lower, upper = weighted_median(weighty_ratings(np.array([1.0, 2.0]), np.ones(2), np.array([0, 2])))
    >>> lower.tolist(), upper.tolist()
    ([1.0], [2.0])
    """
    item = ratings.item
    total = _sums(ratings.weight, ratings.offsets)[item]
    running = _from_zero(ratings.weight)
    up_to_here = running[1:] - running[ratings.offsets[item]]
    doubled = up_to_here + up_to_here
    return _first(ratings, doubled >= total), _first(ratings, doubled > total)


def majority(ratings: Ratings) -> Votes:
    """Find the grades with the most weight.

    >>> votes = majority(weighty_ratings(np.array([2.0, 3.0, 2.0, 3.0]), np.ones(4), np.array([0, 1, 4])))
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
    of_grade = _sums(ratings.weight, np.r_[first, len(item)])
    grade, owner = relevance[first], item[first]
    starts = np.flatnonzero(np.r_[True, np.diff(owner) != 0])
    most = np.full(n_items, 0, dtype=object)
    most[rated] = np.maximum.reduceat(of_grade, starts)
    winning = np.asarray(of_grade == most[owner], dtype=np.bool_)
    higher[owner[winning]] = grade[winning]  # of several the last one stays: grades rise
    lower[owner[winning][::-1]] = grade[winning][::-1]
    more[:] = most + most > _sums(ratings.weight, ratings.offsets)
    return Votes(lower, higher, more)


def rating_range(ratings: Ratings) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest rating of each item, shape (n_items,); NaN without ratings."""
    low, high = np.full(len(ratings.rated), np.nan), np.full(len(ratings.rated), np.nan)
    low[ratings.rated] = ratings.relevance[ratings.offsets[:-1][ratings.rated]]
    high[ratings.rated] = ratings.relevance[ratings.offsets[1:][ratings.rated] - 1]
    return low, high


def _from_zero(values: WholeArray) -> WholeArray:
    running = np.zeros(len(values) + 1, dtype=object)
    running[1:] = np.add.accumulate(values) if len(values) else values
    return running


def _sums(values: WholeArray, offsets: IntArray) -> WholeArray:
    running = _from_zero(values)
    return np.asarray(running[offsets[1:]] - running[offsets[:-1]])


def _first(ratings: Ratings, reached: WholeArray) -> FloatArray:
    """Relevance of the first flagged rating of each item; all ratings behind it are flagged, too."""
    flags = np.asarray(reached, dtype=np.bool_)
    before = np.bincount(ratings.item[~flags], minlength=len(ratings.offsets) - 1).astype(np.int64)
    found = np.full(len(ratings.rated), np.nan)
    found[ratings.rated] = ratings.relevance[(ratings.offsets[:-1] + before)[ratings.rated]]
    return found


def _scaled(over: WholeArray, under: WholeArray, unit: int) -> FloatArray:
    """Over / under * 2^unit, rounded once, as Python divides whole numbers of any size."""
    if not len(over):
        return np.zeros(0)
    scale = 1 << abs(unit)
    quotient = over / (under * scale) if unit < 0 else over * scale / under
    return np.asarray(quotient, dtype=np.float64)


class PairCounts(NamedTuple):
    """Ordered pairs of ratings of one item by two annotators: `n` pairs with these two ratings, shape (n_rows,).

    `raters` is the number of ratings of the items that the pairs are from, at least 2.
    """

    raters: IntArray
    first: FloatArray
    second: FloatArray
    n: IntArray


class Agreement(NamedTuple):
    """Agreement of annotators: an `alpha` of 1 is complete, 0 is that of chance.

    Without alpha, `reason` is `no_pairs` (no item has two ratings) or `single_grade` (all comparable ratings are
    equal). `n_items` have two ratings or more, `n_ratings` are theirs.
    """

    alpha: float | None
    reason: str | None
    n_items: int
    n_ratings: int


def pair_counts(relevance: FloatArray, offsets: IntArray) -> PairCounts:
    """Count the ordered pairs of ratings within each item: sorted, each (raters, first, second) once.

    >>> found = pair_counts(np.array([3.0, 3.0, 2.0]), np.array([0, 3]))
    >>> [list(map(float, row)) for row in zip(*found)]
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
    """Krippendorff's alpha with the ordinal difference, from fractions that are rounded once.

    A (raters, first, second) may come several times, in any order. Hayes and Krippendorff, Communication Methods and
    Measures 1(1), 2007, doi:10.1080/19312450709336664.

    >>> ratings, offsets = np.array([1.0, 1.0, 2.0, 2.0, 1.0, 2.0]), np.array([0, 2, 4, 6])
    >>> ordinal_alpha(pair_counts(ratings, offsets)).alpha
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
        times[low] * times[high] * difference(low, high) for at, low in enumerate(grades) for high in grades[at + 1 :]
    )
    alpha = float(1 - (n_ratings - 1) * observed / expected)
    return Agreement(alpha, None, int(n_items), int(n_ratings))
