"""Lists of numbers packed into bytes: Spark hands bytes on as they are, and lists number by number.

Lists of one length make a group. A value holds the length of each group, then the lists one after another, all in
words of eight bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ndcg_spark.kernels.ragged import IntArray, offsets_of, rank_of_rows

Numbers = NDArray[Any]
_WORD = 8
GROUPS = "|"
"""Stands in the name of a packed column between the lists of one group and those of the next."""


def pack(groups: Sequence[tuple[IntArray, Sequence[Numbers]]]) -> pa.Array:
    """Pack ragged lists.

    Parameters
    ----------
    groups : sequence of (lengths, lists)
        `lengths` : int64, shape (n_values,), of each list of the group in each value. Lists are float64 or int64,
        those of all values end to end.

    Returns
    -------
    pyarrow binary array
        One value for each length.

    Examples
    --------
    >>> packed = pack([(np.array([2, 0]), [np.array([0.5, 1.5]), np.array([7, 8])])])
    >>> [[one.tolist() for one in lists] for _, lists in unpack(packed, [["f8", "i8"]])]
    [[[0.5, 1.5], [7, 8]]]
    """
    n_words = np.full(len(groups[0][0]), len(groups), dtype=np.int64)
    for lengths, lists in groups:
        n_words += len(lists) * lengths
    starts = offsets_of(n_words)
    words = np.empty(starts[-1], dtype=np.int64)
    at = starts[:-1].copy()
    for lengths, _ in groups:
        words[at] = lengths
        at += 1
    for lengths, lists in groups:
        within = _within(lengths)
        for one in lists:
            words[np.repeat(at, lengths) + within] = one.view(np.int64)
            at += lengths
    offsets = pa.array((starts * _WORD).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(at), [None, offsets.buffers()[1], pa.py_buffer(words)])


def unpack(packed: pa.Array, kinds: Sequence[Sequence[str]]) -> list[tuple[IntArray, list[Numbers]]]:
    """Give back what `pack` was given.

    Parameters
    ----------
    packed : pyarrow binary array
        Without nulls.
    kinds : sequence of sequence of str
        NumPy's types of the lists of each group: `f8` or `i8`.

    Returns
    -------
    list of (lengths, lists)
    """
    packed = packed.cast(pa.binary())  # Spark may be set to send 64-bit offsets
    _, offsets, data = packed.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)
    words = np.frombuffer(data or b"", dtype=np.int64)
    at = bounds[:-1] // _WORD
    lengths = [words[at + group] for group in range(len(kinds))]
    at = at + len(kinds)
    groups = []
    for n_words, of_group in zip(lengths, kinds, strict=True):
        lists, within = [], _within(n_words)
        for kind in of_group:
            lists.append(words[np.repeat(at, n_words) + within].view(kind))
            at = at + n_words
        groups.append((n_words, lists))
    return groups


def _within(lengths: IntArray) -> IntArray:
    return rank_of_rows(offsets_of(lengths))


def packed_name(*groups: Sequence[str]) -> str:
    """Name the column in which lists are packed.

    Parameters
    ----------
    *groups : sequence of str
        Names of the lists of one length.

    Returns
    -------
    str

    Examples
    --------
    >>> packed_name(["scores", "relevances"], ["best"]), lists_in("scores relevances|best")
    ('scores relevances|best', [['scores', 'relevances'], ['best']])
    """
    return GROUPS.join(" ".join(names) for names in groups) + GROUPS * (len(groups) == 1)


def lists_in(name: str) -> list[list[str]]:
    """Read what `packed_name` gave.

    Parameters
    ----------
    name : str

    Returns
    -------
    list of list of str
    """
    return [names.split() for names in name.split(GROUPS) if names]


def list_column(values: pa.Array, lengths: IntArray) -> pa.ListArray:
    """Arrow lists of successive values.

    Parameters
    ----------
    values : pyarrow array
    lengths : int64, shape (n_lists,)

    Returns
    -------
    pyarrow list array
    """
    return pa.ListArray.from_arrays(pa.array(offsets_of(lengths).astype(np.int32)), values)
