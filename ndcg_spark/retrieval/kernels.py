"""Select the K best scored pairs of each query, as items or as counts per score and relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.distances import HAS_BIT_COUNT, WORD, Vectors, WordArray, sum_squares, unpack_signs
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, rank_of_rows, to_offsets
from ndcg_spark.metrics.kernels import tie_groups


def select_best_items(query: IntArray, score: FloatArray, item: IntArray, k: int | None, n_queries: int) -> IntArray:
    """Sort pairs by query, score (highest first) and item, and keep the first k of each query; None keeps all.

    `item` holds numbers in the order of items. Return the indices of the selected pairs.

    >>> query, score, item = np.array([0, 0, 0]), np.array([1.0, 2.0, 1.0]), np.array([5, 7, 3])
    >>> select_best_items(query, score, item, 2, 1).tolist()
    [1, 2]
    """
    order = np.lexsort((item, -score, query))
    if k is None:
        return order
    return order[rank_of_rows(to_offsets(np.bincount(query, minlength=n_queries))) < k]


def count_ties(
    query: IntArray, score: FloatArray, relevance: FloatArray, count: IntArray, k: int | None, n_queries: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Add up counts of pairs with the same query, score and relevance, down to the tie group at rank k (None: all).

    The result is sorted by query, score (highest first) and relevance. A tie group with a rank up to k is kept whole.

    >>> ones = np.ones(4, dtype=np.int64)
    >>> score, relevance = np.array([-1.0, -1, 0, -2]), np.array([1.0, 1, 0, 2])
    >>> [part.tolist() for part in count_ties(0 * ones, score, relevance, ones, 2, 1)]
    [[0, 0], [0.0, -1.0], [0.0, 1.0], [1, 2]]
    """
    if not len(query):
        return query, score, relevance, count
    order = np.lexsort((relevance, -score, query))
    query, score, relevance, count = query[order], score[order], relevance[order], count[order]
    is_new = np.ones(len(query), dtype=np.bool_)
    is_new[1:] = (query[1:] != query[:-1]) | (score[1:] != score[:-1]) | (relevance[1:] != relevance[:-1])
    first = np.flatnonzero(is_new)
    query, score, relevance = query[first], score[first], relevance[first]
    count = np.add.reduceat(count, first)
    if k is None:
        return query, score, relevance, count
    is_in_top = tie_groups(score, count, to_offsets(np.bincount(query, minlength=n_queries))).start < k
    return query[is_in_top], score[is_in_top], relevance[is_in_top], count[is_in_top]


Tile = NDArray[Any]
PairFilter = Callable[[slice, slice], BoolArray]
"""Function from rows and columns of a tile to a mask of the pairs that a filter excludes."""
Pairs = tuple[IntArray, IntArray]
_HALF_ULP = 2.0**-24
_MAX_VALUE = 1e38
"""Larger than all values, which are small multiples of 1 or of the bits of a code, and within float32."""
VECTOR_TILE = (256, 4096)
CODE_TILE = (32, 8192)
"""Number of queries and items of a tile, so that it fits into the caches of a core."""


@dataclass(slots=True)
class VectorScreen:
    """Approximate scores: float32 matrix products of `left` (one row per query) and `right` (one row per item).

    The product approximates (score + shift) / scale, with an error of at most `margin`. These three have shape
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

    def compute_tile(self, rows: slice, columns: slice) -> Tile:
        return np.asarray(self.left[rows] @ self.right[columns].T)

    def convert_scores(self, scores: FloatArray) -> FloatArray:
        """Convert exact scores, one per query, to the scale of tiles."""
        return (scores + self.shift) / self.scale


@dataclass(slots=True)
class CodeScreen:
    """Exact number of equal bits of two codes, by exclusive or and bit count.

    `left`, shape (n_queries, n_words), has all bits flipped: its exclusive or with an item sets the bits in which the
    codes agree. `right` has shape (n_words, n_items).
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
        """Bits of a code, including the padding of its last word."""
        return WORD * int(self.left.shape[1])

    def compute_tile(self, rows: slice, columns: slice) -> Tile:
        """Count the equal bits of the pairs of a tile, in the smallest type that fits: 256 exceeds a byte."""
        left, right = self.left[rows], self.right[:, columns]
        dtype = np.uint8 if self.n_bits < 256 else np.uint16 if self.n_bits < 2**16 else np.uint32
        n_shared = np.zeros((len(left), right.shape[1]), dtype=dtype)
        buffer = self._buffer[: len(left), : right.shape[1]]
        for word in range(left.shape[1]):
            np.bitwise_xor(left[:, word, None], right[word], out=buffer)
            n_shared += np.bitwise_count(buffer)
        return n_shared

    def convert_scores(self, scores: FloatArray) -> FloatArray:
        """Convert exact scores (negated distances), one per query, to the scale of tiles."""
        return scores + self.n_bits


Screen: TypeAlias = VectorScreen | CodeScreen


def build_screen(metric: str, queries: Vectors, items: Vectors) -> Screen:
    """Build the screen of two blocks: approximate scores of all pairs, on its own scale, larger is better."""
    if metric == "hamming":
        return _build_code_screen(queries, items)
    return (
        _build_euclidean_screen(queries, items)
        if metric == "euclidean"
        else _build_product_screen(metric, queries, items)
    )


def _build_code_screen(queries: Vectors, items: Vectors) -> Screen:
    if HAS_BIT_COUNT:
        return CodeScreen(~queries.values, np.ascontiguousarray(items.values.T))
    n_bits, ones = WORD * queries.values.shape[1], np.ones(len(queries))
    left, right = unpack_signs(queries.values), unpack_signs(items.values)
    return VectorScreen(left, right, n_bits / 2 * ones, ones / 2, 0 * ones)  # exact: sums of +1 and -1


def _build_product_screen(metric: str, queries: Vectors, items: Vectors) -> Screen:
    query_norms, item_norms = _replace_zero_norms(queries.norms), _replace_zero_norms(items.norms)
    item_scale = item_norms if metric == "cosine" else np.full(len(item_norms), item_norms.max(initial=0.0) or 1.0)
    left = (queries.values / query_norms[:, None]).astype(np.float32)
    right = (items.values / item_scale[:, None]).astype(np.float32)
    scale = np.ones(len(query_norms)) if metric == "cosine" else query_norms * item_scale[:1].sum()
    # Products of vectors of length at most 1: each term has two rounding errors, and the sum one per term.
    margin = np.full(len(query_norms), 2 * (left.shape[1] + 4) * _HALF_ULP)
    return VectorScreen(left, right, np.zeros(len(query_norms)), scale, margin)


def _build_euclidean_screen(queries: Vectors, items: Vectors) -> Screen:
    """Screen -|x - y|^2 by 2xy - |y|^2, computed as one product with |y|^2 as an additional term.

    Vectors are centered on the mean of the items, to avoid cancellation for large vectors close to each other.
    """
    center = items.values.mean(axis=0, dtype=np.float64)
    centered_queries, centered_items = queries.values - center, items.values - center
    squares, item_squares = sum_squares(centered_queries), sum_squares(centered_items)
    radius = float(np.sqrt(item_squares.max(initial=0.0))) or 1.0
    distance = np.maximum(np.sqrt(squares) / radius, 1.0)
    left = np.column_stack([2 * centered_queries / (radius * distance)[:, None], 1 / distance]).astype(np.float32)
    right = np.column_stack([centered_items / radius, -item_squares / radius**2]).astype(np.float32)
    scale = radius**2 * distance
    product_error = 8 * (left.shape[1] + 4) * _HALF_ULP
    double_error = (left.shape[1] + 64) * 2.0**-53 * (np.sqrt(squares) + radius) ** 2 / scale
    return VectorScreen(left, right, squares, scale, product_error + double_error)


def _replace_zero_norms(norms: FloatArray | None) -> FloatArray:
    values = np.ones(0) if norms is None else norms
    return np.where(values > 0, values, 1.0)


def find_candidates(
    screen: Screen, k: int | None, floor: FloatArray, *, blocked: PairFilter | None = None, max_pairs: int = 2**21
) -> Iterator[Pairs]:
    """Yield queries and items of the pairs that may be among the K best of their query, including ties with the K-th.

    `floor`, shape (n_queries,), is the lowest value of a candidate, -inf if unknown. It is raised in place, here and
    by callers between two results. At most `max_pairs` pairs are held, in addition to one tile. Each pair is yielded
    once.
    """
    n_queries, n_items = screen.shape
    tile_rows, tile_columns = screen.tile_shape
    candidates = _Candidates(screen.margin, k, floor)
    for column in range(0, n_items, tile_columns):
        columns = slice(column, min(column + tile_columns, n_items))
        for row in range(0, n_queries, tile_rows):
            rows = slice(row, min(row + tile_rows, n_queries))
            tile = screen.compute_tile(rows, columns)
            if blocked is not None:
                tile = np.where(blocked(rows, columns), np.float32(-np.inf), tile.astype(np.float32, copy=False))
            candidates.add(tile, rows, columns)
            if candidates.n_pairs > max_pairs:
                candidates.prune()
                if candidates.n_pairs > max_pairs // 2:  # too many pairs tie, or are closer than the margin
                    yield candidates.take_all_pairs()
    candidates.prune()
    if candidates.n_pairs:
        yield candidates.take_all_pairs()


@dataclass(slots=True)
class _Candidates:
    """Candidates found so far: query, item and approximate value."""

    margin: FloatArray
    k: int | None
    floor: FloatArray
    queries: list[NDArray[np.int32]] = field(default_factory=list)
    items: list[NDArray[np.int32]] = field(default_factory=list)
    values: list[NDArray[np.float32]] = field(default_factory=list)
    n_pairs: int = 0

    def add(self, tile: Tile, rows: slice, columns: slice) -> None:
        """Add the candidates of a tile."""
        width = tile.shape[1]
        indices = _find_at_least(tile, self.floor[rows])
        if self.k is not None and self.k < width and len(indices) > 4 * self.k * len(tile):
            kth = np.partition(tile, width - self.k, axis=1)[:, width - self.k].astype(np.float64)
            self.floor[rows] = np.maximum(self.floor[rows], kth - 2 * self.margin[rows])
            indices = _find_at_least(tile, self.floor[rows])
        if len(indices):
            self.queries.append((indices // width + rows.start).astype(np.int32))
            self.items.append((indices % width + columns.start).astype(np.int32))
            self.values.append(tile.reshape(-1)[indices].astype(np.float32))
            self.n_pairs += len(indices)

    def prune(self) -> None:
        """Raise the floor to the K-th best of each query, and drop the pairs below it."""
        if self.k is None or not self.n_pairs:
            return
        query, item, value = (np.concatenate(parts) for parts in (self.queries, self.items, self.values))
        above = value >= self.floor[query]
        query, item, value = query[above], item[above], value[above]
        kth = find_kth_values(query, value, len(self.floor), self.k)
        np.maximum(self.floor, kth - 2 * self.margin, out=self.floor)
        is_kept = value >= self.floor[query]
        self.queries, self.items, self.values = [query[is_kept]], [item[is_kept]], [value[is_kept]]
        self.n_pairs = int(is_kept.sum())

    def take_all_pairs(self) -> Pairs:
        """Return the candidates and clear them."""
        pairs = np.concatenate(self.queries).astype(np.int64), np.concatenate(self.items).astype(np.int64)
        self.queries, self.items, self.values, self.n_pairs = [], [], [], 0
        return pairs


def find_kth_values(query: NDArray[np.int32], value: NDArray[np.float32], n_queries: int, k: int) -> FloatArray:
    """Return the k-th largest value of each query, shape (n_queries,); -inf for a query with fewer pairs.

    Pairs are in any order; values must not be NaN.

    >>> pairs = np.array([1, 0, 1], dtype=np.int32), np.array([-2.0, 1.0, 3.0], dtype=np.float32)
    >>> find_kth_values(*pairs, 2, 2).tolist()
    [-inf, -2.0]
    """
    bits = (value + np.float32(0)).view(np.int32)
    rising = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits).astype(np.int64)  # whole numbers in float order
    keys = (query.astype(np.int64) << 32) + (2**31 - 1 - rising)
    keys.sort()  # one sort of words, the largest value of a query first
    ends = np.cumsum(np.bincount(query, minlength=n_queries))
    places = ends - np.bincount(query, minlength=n_queries) + k - 1
    kth = np.full(n_queries, -np.inf)
    has_kth = places < ends
    kth_bits = (2**31 - 1 - (keys[places[has_kth]] & 0xFFFFFFFF)).astype(np.int32)
    kth[has_kth] = np.where(kth_bits < 0, kth_bits ^ np.int32(0x7FFFFFFF), kth_bits).astype(np.int32).view(np.float32)
    return kth


def _find_at_least(tile: Tile, floor: FloatArray) -> IntArray:
    """Return the flat indices in a tile of the values that reach the floor of their row."""
    if tile.dtype.kind == "u":
        bound = np.ceil(np.clip(floor, 0, np.iinfo(tile.dtype).max)).astype(tile.dtype)
    else:
        rounded = np.clip(floor, -_MAX_VALUE, _MAX_VALUE).astype(np.float32)
        bound = np.nextafter(rounded, np.float32(-np.inf))
    return np.flatnonzero(tile >= bound[:, None])
