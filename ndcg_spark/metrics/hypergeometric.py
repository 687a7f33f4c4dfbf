"""Draws without replacement: chances and expectations over all orders of a group of tied items."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, offsets_of

_NUMBERS_AT_ONCE = 2**20
_FEW = 6
"""Bits of the number of places up to which items are processed by value, which takes its third power."""


def draws_of_hits(n: IntArray, r: IntArray, m: IntArray) -> FloatArray:
    """Chances of h hits among m items drawn from n, of which r are hits, shape (n_groups, largest m + 1).

    Each draw adds sums of products of positive numbers, so nothing cancels.

    >>> draws_of_hits(np.array([4]), np.array([2]), np.array([2])).round(6).tolist()
    [[0.166667, 0.666667, 0.166667]]
    """
    most = int(m.max(initial=0))
    chances = np.zeros((len(n), most + 1))
    chances[:, 0] = 1.0
    h = np.arange(most + 1)
    for draw in range(most):
        left = np.maximum(n - draw, 1)[:, None]
        miss = np.maximum(n[:, None] - r[:, None] - (draw - h), 0) / left
        hit = np.maximum(r[:, None] - h, 0) / left
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
    begins = offsets_of(m + 1)
    found = np.zeros(begins[-1])
    sizes = np.frexp(m.astype(np.float64))[1]  # groups of about one m at once: all are as wide as the widest
    for size in np.unique(sizes):
        some = np.flatnonzero(sizes == size)
        width = int(m[some].max()) + 1
        by_value = size <= _FEW  # a group's own affair: others of the batch change no bit
        at_once = max(1, _NUMBERS_AT_ONCE // (width**2 if by_value else width))
        for start in range(0, len(some), at_once):
            part = some[start : start + at_once]
            work = _products_by_value if by_value else _products_by_item
            products = work(values, counts, offsets[part], offsets[part + 1], width)
            there = np.arange(width) <= m[part][:, None]
            found[(begins[part][:, None] + np.arange(width))[there]] = products[there]
    return found


def _products_by_value(
    values: FloatArray, counts: IntArray, first: IntArray, end: IntArray, width: int
) -> FloatArray:
    """Process all items of a value at once, however many they are."""
    products, n = np.zeros((len(first), width)), np.zeros(len(first), dtype=np.int64)
    products[:, 0] = 1.0
    places = np.arange(width)
    for step in range(int((end - first).max(initial=0))):
        some = np.flatnonzero(first + step < end)
        value, count = values[first[some] + step], counts[first[some] + step]
        n[some] += count
        # For every j: of j items drawn from those so far, how many are of this value.
        drawn = np.minimum(places, n[some][:, None])
        chances = draws_of_hits(np.repeat(n[some], width), np.repeat(count, width), drawn.reshape(-1))
        chances = chances.reshape(len(some), width, -1)
        mixed, power = np.zeros((len(some), width)), np.ones(len(some))
        for new in range(chances.shape[2]):
            mixed[:, new:] += chances[:, new:, new] * power[:, None] * products[some, : width - new]
            power *= value
        products[some] = mixed
    return products


def _products_by_item(values: FloatArray, counts: IntArray, first: IntArray, end: IntArray, width: int) -> FloatArray:
    """Process one item after the other: for many places, and hardly more items than these."""
    products = np.zeros((len(first), width))
    products[:, 0] = 1.0
    places = np.arange(width, dtype=np.float64)
    for row, (begin, stop) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
        its, n = products[row], 0
        for value, count in zip(values[begin:stop].tolist(), counts[begin:stop].tolist(), strict=True):
            for _ in range(count):
                n += 1
                last = min(n, width - 1)
                its[1 : last + 1] += (its[:last] * value - its[1 : last + 1]) * (places[1 : last + 1] / n)
    return products
