"""One relevance from several weighted ratings of an item: mean, median, majority.

Weights are compared and added as whole numbers of any size, so neither the order of ratings nor their place in a
batch can change a bit, and a tie is a tie.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, lengths_of, offsets_of, query_of_rows

WholeArray: TypeAlias = NDArray[Any]
"""Python's whole numbers, of any size."""


class Ratings(NamedTuple):
    """Ratings of a weight above 0, sorted by item and relevance.

    Parameters
    ----------
    relevance : float64, shape (n_ratings,)
    weight : whole numbers, shape (n_ratings,)
        In units of 2^`unit`.
    unit : int
    offsets : int64, shape (n_items + 1,)
    source : int64, shape (n_ratings,)
        Where each rating was before.
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
    """The grades with the largest sum of weights.

    Parameters
    ----------
    lower, higher : float64, shape (n_items,)
        The lowest and the highest of them; NaN for an item without ratings.
    more_than_half : bool, shape (n_items,)
        Whether a grade has more than half of the weight.
    """

    lower: FloatArray
    higher: FloatArray
    more_than_half: BoolArray


def weighty_ratings(relevance: FloatArray, weight: FloatArray, offsets: IntArray) -> Ratings:
    """Sort ratings and drop those of weight 0, which decide nothing.

    Parameters
    ----------
    relevance : float64, shape (n_ratings,)
        Finite.
    weight : float64, shape (n_ratings,)
        Finite, not negative.
    offsets : int64, shape (n_items + 1,)
        Item i owns ratings offsets[i]:offsets[i + 1].

    Returns
    -------
    Ratings
    """
    item = query_of_rows(offsets)
    order = np.lexsort((relevance, item))
    order = order[weight[order] > 0]
    counted = np.bincount(item[order], minlength=len(offsets) - 1).astype(np.int64)
    whole, unit = whole_numbers(weight[order])
    return Ratings(relevance[order] + 0.0, whole, unit, offsets_of(counted), order)


def whole_numbers(values: FloatArray) -> tuple[WholeArray, int]:
    """Write doubles as whole numbers times one power of two, exactly.

    Parameters
    ----------
    values : float64, shape (n,)
        Finite.

    Returns
    -------
    tuple of whole numbers, shape (n,), and int
        `whole, unit` with values = whole * 2^unit.

    Examples
    --------
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
    """Sum of the weights of each item, rounded once.

    Parameters
    ----------
    ratings : Ratings

    Returns
    -------
    float64, shape (n_items,)
    """
    return _scaled(_sums(ratings.weight, ratings.offsets), np.array([1], dtype=object), ratings.unit)


def weighted_mean(ratings: Ratings) -> FloatArray:
    """Weighted mean of each item: an exact fraction, rounded once.

    Parameters
    ----------
    ratings : Ratings

    Returns
    -------
    float64, shape (n_items,)
        NaN for an item without ratings.

    Examples
    --------
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
    """Lower and upper weighted median of each item.

    Parameters
    ----------
    ratings : Ratings

    Returns
    -------
    tuple of float64 arrays, shape (n_items,)
        The lowest relevance up to which the ratings have at least half of the weight, and the lowest up to which
        they have more than half of it; NaN for an item without ratings.

    Examples
    --------
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
    """Grades with the largest sum of weights.

    Parameters
    ----------
    ratings : Ratings

    Returns
    -------
    Votes

    Examples
    --------
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
    """Lowest and highest rating of each item.

    Parameters
    ----------
    ratings : Ratings

    Returns
    -------
    tuple of float64 arrays, shape (n_items,)
        NaN for an item without ratings.
    """
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
    """Relevance of the first rating of each item that is flagged; the ratings behind it are, too."""
    flags = np.asarray(reached, dtype=np.bool_)
    before = np.bincount(ratings.item[~flags], minlength=len(ratings.offsets) - 1).astype(np.int64)
    found = np.full(len(ratings.rated), np.nan)
    found[ratings.rated] = ratings.relevance[(ratings.offsets[:-1] + before)[ratings.rated]]
    return found


def _scaled(over: WholeArray, under: WholeArray, unit: int) -> FloatArray:
    """Over / under * 2^unit, rounded once: Python divides whole numbers of any size so."""
    if not len(over):
        return np.zeros(0)
    scale = 1 << abs(unit)
    quotient = over / (under * scale) if unit < 0 else over * scale / under
    return np.asarray(quotient, dtype=np.float64)
