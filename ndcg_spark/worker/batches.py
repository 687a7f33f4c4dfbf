"""Arrow columns to NumPy arrays and back, and errors that survive the way home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.errors import InputRefusedError, NdcgSparkError, find_refusal, mark_refusal
from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray, offsets_of
from ndcg_spark.kernels.top_k import NumberArray

_NARROW = {pa.int8(): np.int16, pa.int16(): np.int16, pa.int32(): np.int32}
BatchFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def list_offsets(column: pa.Array) -> IntArray:
    """Offsets of an Arrow list column, from 0 on; a null list is an empty one.

    Parameters
    ----------
    column : pyarrow list array

    Returns
    -------
    int64, shape (n_rows + 1,)
    """
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return offsets_of(lengths.to_numpy(zero_copy_only=False).astype(np.int64))


def float_values(values: pa.Array) -> tuple[FloatArray, BoolArray]:
    """Values of an Arrow column and which of them are there.

    Parameters
    ----------
    values : pyarrow numeric array

    Returns
    -------
    tuple of float64 and bool arrays, shape (n,)
        Nulls are 0.0 and False.
    """
    if not values.null_count:
        return values.cast(pa.float64(), safe=False).to_numpy(), np.ones(len(values), dtype=np.bool_)
    known = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    filled = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0)
    return filled.to_numpy(zero_copy_only=False), known


def number_values(column: pa.Array) -> tuple[NumberArray, BoolArray | None]:
    """Values of an Arrow column as they lie there, and which of them are there.

    Parameters
    ----------
    column : pyarrow numeric or boolean array

    Returns
    -------
    tuple of array and bool array or None, shape (n,)
        Doubles, or whole numbers of 16 or 32 bits (of bytes, NumPy sorts these faster). Nulls are 0 and False; None
        where there are none.
    """
    narrow = _NARROW.get(column.type)
    if column.null_count or narrow is None:
        values, known = float_values(column)
        return values, known if column.null_count else None
    return np.asarray(column.to_numpy(), dtype=narrow), None


def int_values(column: pa.Array) -> IntArray:
    """Values of an Arrow column of whole numbers without nulls.

    Parameters
    ----------
    column : pyarrow integer array

    Returns
    -------
    int64, shape (n,)
    """
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def float_column(values: FloatArray, known: BoolArray) -> pa.Array:
    """Arrow doubles that are null where `known` is False.

    Parameters
    ----------
    values : float64, shape (n,)
    known : bool, shape (n,)

    Returns
    -------
    pyarrow double array
    """
    return pa.array(values, mask=~known)


def marked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on; mark the text of our own errors, whose class is lost on the way to the driver.

    Parameters
    ----------
    batches : iterator of pyarrow record batches

    Yields
    ------
    pyarrow record batch
    """
    try:
        yield from batches
    except NdcgSparkError as error:
        if find_refusal(str(error)):  # one function chained to another: marked already
            raise
        raise type(error)(mark_refusal(str(error))) from error


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Put batches behind each other.

    Parameters
    ----------
    batches : list of pyarrow record batch
        At least one.

    Returns
    -------
    pyarrow record batch

    Raises
    ------
    InputRefusedError
        When a column of text has more than 2 GiB.
    """
    found = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(found) > 1:
        raise InputRefusedError("rows have more than 2 GiB of text at once; strategy=window ranks in Spark.")
    return found[0]


def plain_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give texts and bytes 32-bit offsets, whatever types the session is set to send.

    Parameters
    ----------
    batch : pyarrow record batch

    Returns
    -------
    pyarrow record batch
        The batch itself where nothing is large.
    """
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    if not any(kind in plain for kind in batch.schema.types):
        return batch
    columns = [column.cast(plain.get(column.type, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def taken(batch: pa.RecordBatch, rows: IntArray) -> pa.RecordBatch:
    """Take rows of a batch.

    Parameters
    ----------
    batch : pyarrow record batch
    rows : int64, shape (n,)

    Returns
    -------
    pyarrow record batch
    """
    places = pa.array(rows)
    columns = [
        pa.array(column.to_numpy()[rows]) if _is_plain(column) else column.take(places) for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_plain(column: pa.Array) -> bool:
    """Whether NumPy has the values as they lie there; it takes them several times as fast."""
    return not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
