"""Random numbers of resampling tests, which are hashes of a query: how often it is drawn, and which sign it gets.

The numbers of a query depend on its hash, on the seed and on the purpose alone. A query therefore gets the same ones
in every run, metric, segment and night, wherever its rows lie.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.ragged import IntArray

WordArray = NDArray[np.uint64]
ByteArray = NDArray[np.uint8]

BOOTSTRAP, SIGNS = 1, 2
"""Purposes: streams of words that have nothing to do with each other."""
POISSON_COUNTS = (24109, 24110, 12055, 4017, 1005, 201, 34, 4, 1)
"""Of the 2^16 values of 16 bits, how many stand for 0, 1, ..., 8: Poisson(1), with mean and variance exactly 1."""
_CUTS = np.cumsum(POISSON_COUNTS[:-1]).astype(np.uint16)
_TABLE = np.repeat(np.arange(len(POISSON_COUNTS), dtype=np.uint8), POISSON_COUNTS)
_FREQUENT = 4
_GOLDEN = 0x9E3779B97F4A7C15
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)


def hash_words(hashes: WordArray, seed: int, purpose: int, n_words: int) -> WordArray:
    """Words of 64 random bits for each hash, shape (n_keys, n_words).

    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014, doi:10.1145/2660193.2660195.
    """
    salt = _mixed(np.array([(seed + purpose * _GOLDEN) % 2**64], dtype=np.uint64))
    steps = np.arange(1, n_words + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return _mixed(_mixed(hashes ^ salt)[:, None] + steps)


def _mixed(words: WordArray) -> WordArray:
    """Mix the bits of words, in place."""
    shifted = np.empty_like(words)
    for bits, factor in _STEPS:
        np.right_shift(words, bits, out=shifted)
        np.bitwise_xor(words, shifted, out=words)
        np.multiply(words, factor, out=words)
    np.right_shift(words, _LAST, out=shifted)
    return np.bitwise_xor(words, shifted, out=words)


def poisson_weights(hashes: WordArray, seed: int, n_replicates: int) -> ByteArray:
    """How often each query is drawn in each replicate: 0 to 8, shape (n_keys, n_replicates).

    Over all words it is Poisson(1), with mean and variance exactly 1. Chamandy, Muralidharan, Najmi and Naidu,
    Estimating uncertainty for massive data streams, Google, 2012.

    >>> poisson_weights(np.array([0x9F1351CFBEA4F3F7], dtype=np.uint64), 42, 12).tolist()
    [[2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 0, 1]]
    """
    words = hash_words(hashes, seed, BOOTSTRAP, -(-n_replicates // 4))
    halves = words.astype("<u8", copy=False).view("<u2")
    # Comparing with the cuts takes half the time of a lookup. Above the fourth lies one number in 273.
    weights = (halves >= _CUTS[0]).view(np.uint8)
    for cut in _CUTS[1:_FREQUENT]:
        np.add(weights, (halves >= cut).view(np.uint8), out=weights)
    rare = np.flatnonzero(halves >= _CUTS[_FREQUENT])
    weights.reshape(-1)[rare] = _TABLE[halves.reshape(-1)[rare]]
    return np.asarray(weights[:, :n_replicates])


def sign_bits(hashes: WordArray, seed: int, n_flips: int) -> ByteArray:
    """Signs of each query in each random flip, 1 for a minus and 0 for a plus; shape (n_keys, n_flips).

    >>> sign_bits(np.array([0x9F1351CFBEA4F3F7], dtype=np.uint64), 42, 12).tolist()
    [[1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1]]
    """
    words = hash_words(hashes, seed, SIGNS, -(-n_flips // 64))
    return np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), axis=1, bitorder="little")[:, :n_flips]


def drawn_sums(hashes: WordArray, columns: NDArray[np.float64], *, seed: int, n_replicates: int) -> IntArray:
    """Exact sums of bootstrap replicates, shape (n_columns, n_replicates): numbers times how often they are drawn.

    `columns` of shape (n_columns, n_keys) hold whole numbers below 2^32 in size, such as limbs.
    """
    return _products(hashes, columns, n_replicates, lambda block: poisson_weights(block, seed, n_replicates))


def flipped_sums(hashes: WordArray, columns: NDArray[np.float64], *, seed: int, n_flips: int) -> IntArray:
    """Exact sums over random sign flips: numbers of queries, as for `drawn_sums`, times their signs."""
    minus = _products(hashes, columns, n_flips, lambda block: sign_bits(block, seed, n_flips))
    total = columns.sum(axis=1).astype(np.int64)  # exact for up to 2^21 queries
    return np.asarray(total[:, None] - 2 * minus)


_EXACT_ROWS = 2**18
"""Of numbers below 2^32, each taken up to 8 times, so many add to at most 2^53: doubles hold all sums exactly."""
_BLOCK_NUMBERS = 2**17
"""Doubles of a block, 1 MiB, which stay in the cache. With twice as many, BLAS starts threads, and where all cores
are busy a product then takes six times as long."""


def _products(
    hashes: WordArray,
    columns: NDArray[np.float64],
    width: int,
    numbers: Callable[[WordArray], ByteArray],
) -> IntArray:
    """Multiply columns with small whole numbers that hashes give, in blocks of queries."""
    total = np.zeros((len(columns), width), dtype=np.int64)
    if not len(columns) or not width:
        return total
    rows = min(max(_BLOCK_NUMBERS // width, 8), 1024)
    for first in range(0, len(hashes), _EXACT_ROWS):
        last = min(first + _EXACT_ROWS, len(hashes))
        exact = np.zeros((len(columns), width))
        for start in range(first, last, rows):
            block = slice(start, min(start + rows, last))
            exact += columns[:, block] @ numbers(hashes[block]).astype(np.float64)
        total += exact.astype(np.int64)
    return total
