"""Binary codes: bits packed into words of 64, and how many of them are set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WordArray = NDArray[np.uint64]
WORD = 64
HAS_BIT_COUNT = hasattr(np, "bitwise_count")
"""It came with NumPy 2.0."""
_BITS_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def words_of_bytes(raw: NDArray[np.uint8]) -> WordArray:
    """Put the bytes of codes into words; what is missing to a whole word is 0.

    Parameters
    ----------
    raw : uint8, shape (n, n_bytes)

    Returns
    -------
    uint64, shape (n, ceil(n_bytes / 8))

    Examples
    --------
    >>> words_of_bytes(np.array([[255, 1]], dtype=np.uint8)).shape
    (1, 1)
    """
    n, width = raw.shape
    padded = np.zeros((n, -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = raw
    return padded.view(np.uint64)


def words_of_bits(bits: NDArray[Any]) -> WordArray:
    """Pack bits into words.

    Parameters
    ----------
    bits : bool or 0/1, shape (n, n_bits)

    Returns
    -------
    uint64, shape (n, ceil(n_bits / 64))
    """
    return words_of_bytes(np.packbits(np.asarray(bits, dtype=np.bool_), axis=1))


def bit_counts(words: WordArray) -> NDArray[np.uint8]:
    """Count the bits that are set in each word.

    Parameters
    ----------
    words : uint64, shape (n, n_words)

    Returns
    -------
    uint8, shape (n, n_words)

    Examples
    --------
    >>> bit_counts(np.array([[7, 2**63]], dtype=np.uint64)).tolist()
    [[3, 1]]
    """
    if HAS_BIT_COUNT:
        return np.asarray(np.bitwise_count(words))
    in_bytes = _BITS_OF_BYTE[np.ascontiguousarray(words).view(np.uint8)]
    return np.asarray(in_bytes.reshape(*words.shape, 8).sum(axis=-1, dtype=np.uint8))


def signs_of_words(words: WordArray) -> NDArray[np.float32]:
    """Unpack words to +1 for a bit that is set and -1 for one that is not.

    Parameters
    ----------
    words : uint64, shape (n, n_words)

    Returns
    -------
    float32, shape (n, 64 n_words)
    """
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1)
    return bits.astype(np.float32) * 2 - 1
