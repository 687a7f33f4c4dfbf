"""Hashes of the columns that name a query, the same for a query wherever it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ndcg_spark.kernels.cut import ODD_NUMBERS

HashArray = NDArray[np.uint64]
_BASE, _MIX = ODD_NUMBERS
_AT_ONCE = 2**14
"""Texts, whose bytes take a word each."""


def key_hashes(batch: pa.RecordBatch, keys: tuple[str, ...]) -> HashArray:
    """Hash what names the query of each row.

    Parameters
    ----------
    batch : pyarrow record batch
    keys : tuple of str
        Columns of whole numbers, dates or strings, without nulls.

    Returns
    -------
    uint64, shape (n_rows,)
        Two values of a single column of numbers never have one hash; of others, hardly ever.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"q": ["a", "bc", "a"]})
    >>> hashes = key_hashes(batch, ("q",))
    >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
    (True, False)
    """
    hashes: HashArray | None = None
    for name in keys:
        column = batch.column(name)
        found = (_text_hashes(column) if pa.types.is_string(column.type) else _numbers(column)) * _BASE
        hashes = found if hashes is None else (hashes ^ (hashes >> np.uint64(29))) * _MIX + found
    return np.zeros(batch.num_rows, dtype=np.uint64) if hashes is None else hashes


def _numbers(column: pa.Array) -> HashArray:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if not pa.types.is_integer(column.type):
        raise TypeError(f"no hash of {column.type}")
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64).view(np.uint64)


def _text_hashes(column: pa.Array) -> HashArray:
    found = [_polynomials(column.slice(at, _AT_ONCE)) for at in range(0, len(column), _AT_ONCE)]
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
