"""Distances of vectors and of binary codes packed into words of 64 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.ragged import FloatArray, IntArray

WordArray = NDArray[np.uint64]
WORD = 64
HAS_BIT_COUNT = hasattr(np, "bitwise_count")
"""It came with NumPy 2.0."""
_BYTE_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def pack_bytes(raw: NDArray[np.uint8]) -> WordArray:
    """Pack the bytes of codes into words, shape (n, ceil(n_bytes / 8)); the last word is filled up with 0.

    >>> pack_bytes(np.array([[255, 1]], dtype=np.uint8)).shape
    (1, 1)
    """
    n, width = raw.shape
    padded = np.zeros((n, -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = raw
    return padded.view(np.uint64)


def pack_bits(bits: NDArray[Any]) -> WordArray:
    """Pack bits (bool or 0/1) into words, shape (n, ceil(n_bits / 64))."""
    return pack_bytes(np.packbits(np.asarray(bits, dtype=np.bool_), axis=1))


def count_bits(words: WordArray) -> NDArray[np.uint8]:
    """Count the bits that are set in each word.

    >>> count_bits(np.array([[7, 2**63]], dtype=np.uint64)).tolist()
    [[3, 1]]
    """
    if HAS_BIT_COUNT:
        return np.asarray(np.bitwise_count(words))
    in_bytes = _BYTE_BITS[np.ascontiguousarray(words).view(np.uint8)]
    return np.asarray(in_bytes.reshape(*words.shape, 8).sum(axis=-1, dtype=np.uint8))


def unpack_signs(words: WordArray) -> NDArray[np.float32]:
    """Unpack words to +1 for a bit that is set and -1 for one that is not, float32, shape (n, 64 n_words)."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1)
    return bits.astype(np.float32) * 2 - 1


_CHUNK_TERMS = 2**19
"""Terms of the pairs that are scored at once: 4 MB of doubles, which caches hold."""
MAX_SQUARE_SUM, MIN_SQUARE_SUM = 1e300, 1e-280
"""Range of the sum of squares of a vector in which scores neither overflow nor lose bits to underflow."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors (float) with their Euclidean norms, or codes packed into words (uint64), whose norms are None."""

    values: NDArray[Any]
    norms: FloatArray | None

    def __len__(self) -> int:
        return len(self.values)


def make_vectors(values: NDArray[Any]) -> Vectors:
    """Compute the norms that scores need."""
    return Vectors(values, None if values.dtype.kind == "u" else np.sqrt(sum_squares(values)))


def scale_to_one(values: FloatArray) -> FloatArray:
    """Divide each vector by a power of two, which changes no bit of a cosine and keeps squares in range.

    The largest entry of each vector is then between 0.5 and 1; zeros stay.
    """
    largest = np.abs(values).max(axis=1, initial=0.0)
    return np.asarray(np.ldexp(values, -np.frexp(largest)[1][:, None]))


def sum_squares(values: NDArray[Any]) -> FloatArray:
    """Sum of the squares of each vector, added by halves."""
    sums = np.empty(len(values))
    step = max(1, _CHUNK_TERMS // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        terms = values[start : start + step].astype(np.float64)
        np.multiply(terms, terms, out=terms)
        sums[start : start + step] = _sum_by_halves(terms)
    return sums


def score_pairs(metric: str, left: Vectors, right: Vectors, rows: IntArray, columns: IntArray) -> FloatArray:
    """Score pairs of vectors, left[rows[p]] with right[columns[p]]; higher is better.

    `metric` is `cosine` (0 with a vector of zeros), `inner`, `euclidean` (minus the sum of squared differences), or
    `hamming` (minus the number of bits that differ).

    >>> left, right = (make_vectors(np.array([values], dtype=float)) for values in ([1, 2, 2], [2, 1, 2]))
    >>> first = np.zeros(1, dtype=np.int64)
    >>> score_pairs("euclidean", left, right, first, first).tolist()
    [-2.0]
    """
    scores = np.empty(len(rows))
    step = max(1, _CHUNK_TERMS // max(1, left.values.shape[1]))
    for start in range(0, len(rows), step):
        row, column = rows[start : start + step], columns[start : start + step]
        scores[start : start + step] = _score_chunk(metric, left, right, row, column)
    return scores


def _score_chunk(metric: str, left: Vectors, right: Vectors, row: IntArray, column: IntArray) -> FloatArray:
    if metric == "hamming":
        differ = count_bits(left.values[row] ^ right.values[column])
        return np.asarray(-differ.sum(axis=1, dtype=np.int64).astype(np.float64) + 0.0)
    terms, others = left.values[row].astype(np.float64), right.values[column]
    if metric == "euclidean":
        np.subtract(terms, others, out=terms)
        np.multiply(terms, terms, out=terms)
        return -_sum_by_halves(terms) + 0.0
    np.multiply(terms, others, out=terms)
    products = _sum_by_halves(terms)
    if metric == "inner" or left.norms is None or right.norms is None:
        return products + 0.0
    norms = left.norms[row] * right.norms[column]
    return np.asarray(np.divide(products, norms, out=np.zeros(len(row)), where=norms > 0)) + 0.0


def _sum_by_halves(terms: FloatArray) -> FloatArray:
    """Sum each row by adding its second half to the first, again and again; overwrites its argument."""
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0].copy()
