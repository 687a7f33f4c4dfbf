"""Hashes of the columns that name a query, the same for a query wherever it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ndcg_spark.core.ragged import IntArray
from ndcg_spark.core.top_k import ODD_NUMBERS

HashArray = NDArray[np.uint64]
_BASE, _MIX = ODD_NUMBERS
TEXTS_AT_ONCE = 2**14
"""Texts that are hashed at once, each byte as a word of 64 bits."""

QUERY_BITS = 24
"""High bits of a hash that the query alone decides: all runs and judgments of a query share a partition."""


def key_hashes(batch: pa.RecordBatch, query: Sequence[str], run: str | None = None) -> HashArray:
    """Hash the query of each row; the run, where there is one, decides only the low bits.

    Two values of a single column of whole numbers never share a hash; others hardly ever do.
    """
    hashes: HashArray = np.zeros(batch.num_rows, dtype=np.uint64)
    for at, name in enumerate(query):
        found = column_hashes(batch.column(name))
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _MIX + found if at else found
    if run is None:
        return hashes
    low = np.uint64(2 ** (64 - QUERY_BITS) - 1)
    mixed = (hashes ^ (hashes >> np.uint64(29))) * _MIX + column_hashes(batch.column(run))
    return np.asarray((hashes & ~low) | ((mixed ^ (mixed >> np.uint64(31))) & low))


def column_hashes(column: pa.Array) -> HashArray:
    """Hash each value of a column without nulls, of any type that keys can have."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(_text_hashes(column) * _BASE)
    if pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_floating(kind):
        doubles = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        return np.asarray(doubles.view(np.uint64) * _BASE)
    elif not pa.types.is_integer(kind):
        return np.asarray(_text_hashes(column.cast(pa.string())) * _BASE)
    whole = np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
    return np.asarray(whole.view(np.uint64) * _BASE)


def partition_of(hashes: HashArray, n_partitions: int) -> IntArray:
    """Assign hashes to at most 2^24 partitions, in the order of the hashes."""
    high = (hashes >> np.uint64(64 - QUERY_BITS)).astype(np.int64)
    return np.asarray((high * n_partitions) >> QUERY_BITS)


def sorted_by_hash(hashes: HashArray) -> tuple[HashArray, IntArray]:
    """Sort by hash: hashes in rising order, without their low bits, and the row of each.

    The low bits of each hash hold its row number, so one sort of words yields both.
    """
    low = np.uint64(2 ** max(1, len(hashes).bit_length()) - 1)
    both = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    both.sort()  # several times as fast as an argsort
    return both & ~low, (both & low).astype(np.int64)


def _text_hashes(column: pa.Array) -> HashArray:
    found = [_polynomials(column.slice(at, TEXTS_AT_ONCE)) for at in range(0, len(column), TEXTS_AT_ONCE)]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.uint64)


def _polynomials(column: pa.Array) -> HashArray:
    """Of each text the polynomial whose coefficients are its bytes, from sums over all texts end to end.

    sum(byte[i] B^i) from start to end is B^start times the polynomial, and B, being odd, can be divided by.
    """
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    text = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    sums = np.zeros(len(text) + 1, dtype=np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * _powers(_BASE, len(text)), out=sums[1:])
    inverse = _powers(np.uint64(pow(int(_BASE), -1, 2**64)), len(text) + 1)
    hashes: Any = (sums[ends[1:]] - sums[ends[:-1]]) * inverse[ends[:-1]]
    return np.asarray(hashes ^ (hashes >> np.uint64(32)), dtype=np.uint64)


def _powers(base: np.uint64, n: int) -> HashArray:
    factors = np.full(n, base, dtype=np.uint64)
    if n:
        factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
