"""The K best of each query among scored pairs: as items, or as counts per score and relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.distances import HAS_BIT_COUNT, WORD, Vectors, WordArray, signs_of_words, square_sums
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, offsets_of, rank_of_rows
from ndcg_spark.metrics.kernels import tie_groups


def best_items(query: IntArray, score: FloatArray, item: IntArray, k: int | None, n_queries: int) -> IntArray:
    """Sort pairs by query, score (highest first) and item, and keep the first k of each query; None keeps all.

    `item` holds numbers in the order of items. Returns the indices of the pairs that are kept.

    >>> query, score, item = np.array([0, 0, 0]), np.array([1.0, 2.0, 1.0]), np.array([5, 7, 3])
    >>> best_items(query, score, item, 2, 1).tolist()
    [1, 2]
    """
    order = np.lexsort((item, -score, query))
    if k is None:
        return order
    return order[rank_of_rows(offsets_of(np.bincount(query, minlength=n_queries))) < k]


def tied_counts(
    query: IntArray, score: FloatArray, relevance: FloatArray, count: IntArray, k: int | None, n_queries: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Add up counts of pairs with the same query, score and relevance, down to the tie group at rank k (None: all).

    Sorted by query, score (highest first) and relevance. A tie group is kept whole if one of its ranks is at most k.

    >>> ones = np.ones(4, dtype=np.int64)
    >>> score, relevance = np.array([-1.0, -1, 0, -2]), np.array([1.0, 1, 0, 2])
    >>> [part.tolist() for part in tied_counts(0 * ones, score, relevance, ones, 2, 1)]
    [[0, 0], [0.0, -1.0], [0.0, 1.0], [1, 2]]
    """
    if not len(query):
        return query, score, relevance, count
    order = np.lexsort((relevance, -score, query))
    query, score, relevance, count = query[order], score[order], relevance[order], count[order]
    new = np.ones(len(query), dtype=np.bool_)
    new[1:] = (query[1:] != query[:-1]) | (score[1:] != score[:-1]) | (relevance[1:] != relevance[:-1])
    first = np.flatnonzero(new)
    query, score, relevance = query[first], score[first], relevance[first]
    count = np.add.reduceat(count, first)
    if k is None:
        return query, score, relevance, count
    kept = tie_groups(score, count, offsets_of(np.bincount(query, minlength=n_queries))).start < k
    return query[kept], score[kept], relevance[kept], count[kept]


Tile = NDArray[Any]
Blocked = Callable[[slice, slice], BoolArray]
"""From rows and columns of a tile to the pairs that a filter rules out."""
Pairs = tuple[IntArray, IntArray]
_HALF_ULP = 2.0**-24
_FAR = 1e38
"""Above all values, which are small multiples of 1 or of the bits of a code, and within float32."""
VECTOR_TILE = (256, 4096)
CODE_TILE = (32, 8192)
"""Queries and items of a tile, which fits into the caches of a core."""


@dataclass(slots=True)
class VectorScreen:
    """Approximate scores by matrix products in float32 of `left`, a row a query, and `right`, a row an item.

    A score has the value (score + shift) / scale, which is off by at most `margin`; all three have shape
    (n_queries,).
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32]
    shift: FloatArray
    scale: FloatArray
    margin: FloatArray
    tile_shape: tuple[int, int] = VECTOR_TILE

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), len(self.right)

    def tile(self, rows: slice, columns: slice) -> Tile:
        return np.asarray(self.left[rows] @ self.right[columns].T)

    def of_scores(self, scores: FloatArray) -> FloatArray:
        """Values of exact scores, one of each query."""
        return (scores + self.shift) / self.scale


@dataclass(slots=True)
class CodeScreen:
    """Number of bits that two codes share, by exclusive or and bit count; exact.

    `left`, shape (n_queries, n_words), has all bits flipped: its exclusive or with an item has a bit where codes
    agree. `right` has shape (n_words, n_items).
    """

    left: WordArray
    right: WordArray
    tile_shape: tuple[int, int] = CODE_TILE
    _buffer: WordArray = field(default_factory=lambda: np.empty(CODE_TILE, dtype=np.uint64))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.left), self.right.shape[1]

    @property
    def margin(self) -> FloatArray:
        return np.zeros(len(self.left))

    @property
    def n_bits(self) -> int:
        """Bits of a code, with those that fill its last word."""
        return WORD * int(self.left.shape[1])

    def tile(self, rows: slice, columns: slice) -> Tile:
        """Shared bits of the pairs of a tile; 256 equal bits do not fit into a byte."""
        left, right = self.left[rows], self.right[:, columns]
        kind = np.uint8 if self.n_bits < 256 else np.uint16 if self.n_bits < 2**16 else np.uint32
        found = np.zeros((len(left), right.shape[1]), dtype=kind)
        buffer = self._buffer[: len(left), : right.shape[1]]
        for word in range(left.shape[1]):
            np.bitwise_xor(left[:, word, None], right[word], out=buffer)
            found += np.bitwise_count(buffer)
        return found

    def of_scores(self, scores: FloatArray) -> FloatArray:
        """Values of exact scores, which are negated distances; one of each query."""
        return scores + self.n_bits


Screen: TypeAlias = VectorScreen | CodeScreen


def screen_of(metric: str, queries: Vectors, items: Vectors) -> Screen:
    """Build the screen of the pairs of two blocks: approximate scores on a scale of its own, larger is better."""
    if metric == "hamming":
        return _code_screen(queries, items)
    return _euclidean_screen(queries, items) if metric == "euclidean" else _product_screen(metric, queries, items)


def _code_screen(queries: Vectors, items: Vectors) -> Screen:
    if HAS_BIT_COUNT:
        return CodeScreen(~queries.values, np.ascontiguousarray(items.values.T))
    n_bits, ones = WORD * queries.values.shape[1], np.ones(len(queries))
    left, right = signs_of_words(queries.values), signs_of_words(items.values)
    return VectorScreen(left, right, n_bits / 2 * ones, ones / 2, 0 * ones)  # +1 agree, -1 differ: all whole numbers


def _product_screen(metric: str, queries: Vectors, items: Vectors) -> Screen:
    norms, others = _or_one(queries.norms), _or_one(items.norms)
    largest = others if metric == "cosine" else np.full(len(others), others.max(initial=0.0) or 1.0)
    left = (queries.values / norms[:, None]).astype(np.float32)
    right = (items.values / largest[:, None]).astype(np.float32)
    scale = np.ones(len(norms)) if metric == "cosine" else norms * largest[:1].sum()
    # Products of vectors of length at most 1: each of the terms is off by two roundings, and each sum by one a term.
    margin = np.full(len(norms), 2 * (left.shape[1] + 4) * _HALF_ULP)
    return VectorScreen(left, right, np.zeros(len(norms)), scale, margin)


def _euclidean_screen(queries: Vectors, items: Vectors) -> Screen:
    """Screen -|x - y|^2 by 2xy - |y|^2, which is one product, with |y|^2 as one more term.

    Vectors are centered on the mean of the items, so that large vectors near each other do not cancel.
    """
    center = items.values.mean(axis=0, dtype=np.float64)
    near, others = queries.values - center, items.values - center
    squares, other_squares = square_sums(near), square_sums(others)
    radius = float(np.sqrt(other_squares.max(initial=0.0))) or 1.0
    distant = np.maximum(np.sqrt(squares) / radius, 1.0)
    left = np.column_stack([2 * near / (radius * distant)[:, None], 1 / distant]).astype(np.float32)
    right = np.column_stack([others / radius, -other_squares / radius**2]).astype(np.float32)
    scale = radius**2 * distant
    of_products = 8 * (left.shape[1] + 4) * _HALF_ULP
    of_doubles = (left.shape[1] + 64) * 2.0**-53 * (np.sqrt(squares) + radius) ** 2 / scale
    return VectorScreen(left, right, squares, scale, of_products + of_doubles)


def _or_one(norms: FloatArray | None) -> FloatArray:
    found = np.ones(0) if norms is None else norms
    return np.where(found > 0, found, 1.0)


def near_pairs(
    screen: Screen, k: int | None, floor: FloatArray, *, blocked: Blocked | None = None, most_pairs: int = 2**21
) -> Iterator[Pairs]:
    """Yield queries and items of the pairs that may be among the K best of their query, ties with the K-th included.

    `floor`, shape (n_queries,), is the lowest value of a candidate, -inf if unknown. It is raised in place, here and
    by callers between two results. At most `most_pairs` are held, besides those of one tile. Each pair comes once.
    """
    n_queries, n_items = screen.shape
    rows_at_once, columns_at_once = screen.tile_shape
    held = _Held(screen.margin, k, floor)
    for column in range(0, n_items, columns_at_once):
        columns = slice(column, min(column + columns_at_once, n_items))
        for row in range(0, n_queries, rows_at_once):
            rows = slice(row, min(row + rows_at_once, n_queries))
            tile = screen.tile(rows, columns)
            if blocked is not None:
                tile = np.where(blocked(rows, columns), np.float32(-np.inf), tile.astype(np.float32, copy=False))
            held.add(tile, rows, columns)
            if held.n_pairs > most_pairs:
                held.prune()
                if held.n_pairs > most_pairs // 2:  # too many that tie, or are too near to tell
                    yield held.emptied()
    held.prune()
    if held.n_pairs:
        yield held.emptied()


@dataclass(slots=True)
class _Held:
    """Candidates found so far, by query, item and approximate value."""

    margin: FloatArray
    k: int | None
    floor: FloatArray
    queries: list[NDArray[np.int32]] = field(default_factory=list)
    items: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[NDArray[np.float32]] = field(default_factory=list)
    n_pairs: int = 0

    def add(self, tile: Tile, rows: slice, columns: slice) -> None:
        """Take the candidates of a tile."""
        width = tile.shape[1]
        at = _at_least(tile, self.floor[rows])
        if self.k is not None and self.k < width and len(at) > 4 * self.k * len(tile):
            kth = np.partition(tile, width - self.k, axis=1)[:, width - self.k].astype(np.float64)
            self.floor[rows] = np.maximum(self.floor[rows], kth - 2 * self.margin[rows])
            at = _at_least(tile, self.floor[rows])
        if len(at):
            self.queries.append((at // width + rows.start).astype(np.int32))
            self.items.append((at % width + columns.start).astype(np.int32))
            self.values.append(tile.reshape(-1)[at].astype(np.float32))
            self.n_pairs += len(at)

    def prune(self) -> None:
        """Raise the floor to the K-th best of each query, and drop what is below."""
        if self.k is None or not self.n_pairs:
            return
        query, item, value = (np.concatenate(parts) for parts in (self.queries, self.items, self.values))
        above = value >= self.floor[query]
        query, item, value = query[above], item[above], value[above]
        kth = kth_values(query, value, len(self.floor), self.k)
        np.maximum(self.floor, kth - 2 * self.margin, out=self.floor)
        kept = value >= self.floor[query]
        self.queries, self.items, self.values = [query[kept]], [item[kept]], [value[kept]]
        self.n_pairs = int(kept.sum())

    def emptied(self) -> Pairs:
        pairs = np.concatenate(self.queries).astype(np.int64), np.concatenate(self.items).astype(np.int64)
        self.queries, self.items, self.values, self.n_pairs = [], [], [], 0
        return pairs


def kth_values(query: NDArray[np.int32], value: NDArray[np.float32], n_queries: int, k: int) -> FloatArray:
    """Return the k-th largest value of each query, shape (n_queries,); -inf for a query with fewer pairs.

    Pairs come in any order; values are without NaN.

    >>> pairs = np.array([1, 0, 1], dtype=np.int32), np.array([-2.0, 1.0, 3.0], dtype=np.float32)
    >>> kth_values(*pairs, 2, 2).tolist()
    [-inf, -2.0]
    """
    bits = (value + np.float32(0)).view(np.int32)
    rising = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits).astype(np.int64)  # whole numbers in float order
    keys = (query.astype(np.int64) << 32) + (2**31 - 1 - rising)
    keys.sort()  # one sort of words, the largest value of a query first
    ends = np.cumsum(np.bincount(query, minlength=n_queries))
    at = ends - np.bincount(query, minlength=n_queries) + k - 1
    found = np.full(n_queries, -np.inf)
    there = at < ends
    back = (2**31 - 1 - (keys[at[there]] & 0xFFFFFFFF)).astype(np.int32)
    found[there] = np.where(back < 0, back ^ np.int32(0x7FFFFFFF), back).astype(np.int32).view(np.float32)
    return found


def _at_least(tile: Tile, floor: FloatArray) -> IntArray:
    """Indices in a tile, row by row, of the values that reach the floor of their row."""
    if tile.dtype.kind == "u":
        lowest = np.ceil(np.clip(floor, 0, np.iinfo(tile.dtype).max)).astype(tile.dtype)
    else:
        rounded = np.clip(floor, -_FAR, _FAR).astype(np.float32)
        lowest = np.nextafter(rounded, np.float32(-np.inf))
    return np.flatnonzero(tile >= lowest[:, None])
