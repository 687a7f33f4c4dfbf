"""Krippendorff's alpha for ordinal ratings, from whole numbers that add up over items, workers and nights."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, query_of_rows, rank_of_rows


class PairCounts(NamedTuple):
    """Ordered pairs of ratings of the same item, counted.

    Parameters
    ----------
    raters : int64, shape (n_rows,)
        Number of ratings of the items that the pairs are from, at least 2.
    first, second : float64, shape (n_rows,)
        The two ratings.
    n : int64, shape (n_rows,)
        How many ordered pairs of two different annotators.
    """

    raters: IntArray
    first: FloatArray
    second: FloatArray
    n: IntArray


class Agreement(NamedTuple):
    """How far annotators agree.

    Parameters
    ----------
    alpha : float or None
        1: complete agreement; 0: as by chance. None where `reason` says why.
    reason : str or None
        `no_pairs`: no item has two ratings; `single_grade`: all ratings that can be compared are the same.
    n_items : int
        Items with two ratings or more.
    n_ratings : int
        Their ratings.
    """

    alpha: float | None
    reason: str | None
    n_items: int
    n_ratings: int


def pair_counts(relevance: FloatArray, offsets: IntArray) -> PairCounts:
    """Count the ordered pairs of ratings within each item.

    Parameters
    ----------
    relevance : float64, shape (n_ratings,)
        Finite ratings, items end to end, in any order within an item.
    offsets : int64, shape (n_items + 1,)
        Item i owns ratings offsets[i]:offsets[i + 1].

    Returns
    -------
    PairCounts
        Sorted, each (raters, first, second) once. Items with fewer than two ratings add nothing.

    Examples
    --------
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
    """Krippendorff's alpha with the ordinal difference.

    Parameters
    ----------
    pairs : PairCounts
        Of any number of parts, end to end: a (raters, first, second) may come several times, in any order.

    Returns
    -------
    Agreement
        Computed with fractions and rounded once, so the order of the parts does not change a bit.

    References
    ----------
    Hayes and Krippendorff, Communication Methods and Measures 1(1), 2007, doi:10.1080/19312450709336664.

    Examples
    --------
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
