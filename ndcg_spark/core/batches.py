"""Arrow columns to NumPy arrays and back, batches as bytes for a shuffle, and errors that survive the way home."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, offsets_of
from ndcg_spark.core.top_k import NumberArray
from ndcg_spark.errors import InputRefusedError, NdcgSparkError, is_marked, mark_refusal, option, text_of

# Bytes become 16 bits, which NumPy sorts faster.
EXCHANGE_SCHEMA = pa.schema([("partition_id", pa.int32()), ("kind", pa.int32()), ("payload", pa.binary())])
"""Rows of a shuffle that carry packed batches, Arrow as bytes; what the kinds are, each sender says.

Spark moves some thousand binary rows, never a row a query.
"""
_NARROW = {pa.int8(): np.int16, pa.int16(): np.int16, pa.int32(): np.int32}
_DAYS_OF_AN_ERA = 146_097
"""Of 400 years, after which the calendar repeats, with its days of the week and so the rules of time zones."""
_MICROS_OF_A_DAY = 86_400_000_000
BatchFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def list_offsets(column: pa.Array) -> IntArray:
    """Offsets of an Arrow list column, from 0 on; a null list is an empty one."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return offsets_of(lengths.to_numpy(zero_copy_only=False).astype(np.int64))


def float_values(values: pa.Array) -> tuple[FloatArray, BoolArray]:
    """Values of a column as doubles, 0.0 where it is null; and where it is not null."""
    if not values.null_count:
        return values.cast(pa.float64(), safe=False).to_numpy(), np.ones(len(values), dtype=np.bool_)
    known = flags_of(values.is_valid())
    filled = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0)
    return filled.to_numpy(zero_copy_only=False), known


def number_values(column: pa.Array) -> tuple[NumberArray, BoolArray | None]:
    """Like `float_values`, but short whole numbers stay short; None where nothing is null."""
    narrow = _NARROW.get(column.type)
    if column.null_count or narrow is None:
        values, known = float_values(column)
        return values, known if column.null_count else None
    return np.asarray(column.to_numpy(), dtype=narrow), None


def one_zero(column: pa.Array) -> pa.Array:
    """A column whose values are compared: of floats, -0.0 is 0.0, which Arrow tells apart."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)


def flags_of(column: pa.Array) -> BoolArray:
    """Values of a column of booleans; a null is False."""
    return np.array(pc.fill_null(column, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def int_values(column: pa.Array) -> IntArray:
    """Values of a column of whole numbers without nulls, as int64."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def float_column(values: FloatArray, known: BoolArray) -> pa.Array:
    """Arrow doubles that are null where `known` is False."""
    return pa.array(values, mask=~known)


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values; dates and times that Python has no value for as the text that Spark's cast gives them."""
    try:
        return list(column.to_pylist())
    except OverflowError:
        return [_plain_value(one) for one in column]


def value_at(column: pa.Array | pa.ChunkedArray, row: int) -> Any:
    """One of the values of `plain_values`."""
    return _plain_value(column[row])


def _plain_value(found: pa.Scalar) -> Any:
    try:
        return found.as_py()
    except OverflowError:
        return _far_text(found)


def _far_text(found: pa.Scalar) -> str:
    """Text of a date or time before the year 1 or after 9999, from that of a time some eras away."""
    if pa.types.is_date(found.type):
        of_day = found.cast(pa.date32())
        eras, days = divmod(of_day.value, _DAYS_OF_AN_ERA)
        near = pa.scalar(days, pa.date32()).as_py()
        return _with_year(near, eras)
    kind = pa.timestamp("us", found.type.tz)
    # Early years have the time of a place before there were zones, late years the rules that are in force for good.
    year = 9200 if found.cast(kind).value > 0 else 401
    start = (date(year, 1, 1) - date(1970, 1, 1)).days * _MICROS_OF_A_DAY
    eras, rest = divmod(found.cast(kind).value - start, _DAYS_OF_AN_ERA * _MICROS_OF_A_DAY)
    near = pa.scalar(start + rest, kind).as_py()
    fraction = f".{near.microsecond:06}".rstrip("0") if near.microsecond else ""
    return f"{_with_year(near, eras)} {near:%H:%M:%S}{fraction}"


def _with_year(near: date, eras: int) -> str:
    """An ISO date whose year may have a sign or more than four digits."""
    year = near.year + 400 * eras
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{near:%m-%d}"


@contextmanager
def refusals_marked() -> Iterator[None]:
    """Mark the text of our own errors, whose class is lost on the way to the driver."""
    try:
        yield
    except NdcgSparkError as error:
        if is_marked(text_of(error)):  # one function chained to another: marked already
            raise
        raise type(error)(mark_refusal(text_of(error))) from error


def batch_function(work: BatchFunction) -> BatchFunction:
    """Wrap what a worker does such that errors are marked, and with the annotations that Spark reads."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with refusals_marked():
            yield from work(batches)

    return run


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Put batches behind each other, at least one. Refuses a column with more than 2 GiB of text."""
    if len(batches) == 1:
        return batches[0]
    found = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(found) > 1:
        raise InputRefusedError(
            f"rows have more than 2 GiB of text at once; {option('strategy', 'window')} ranks in Spark."
        )
    return found[0]


def plain_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give texts and bytes 32-bit offsets, whatever types the session is set to send."""
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    if not any(kind in plain for kind in batch.schema.types):
        return batch
    columns = [column.cast(plain.get(column.type, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def taken(batch: pa.RecordBatch, rows: IntArray) -> pa.RecordBatch:
    """Take rows of a batch, in the order given."""
    places = pa.array(rows)
    columns = [
        pa.array(column.to_numpy()[rows]) if is_plain(column) else column.take(places) for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def is_plain(column: pa.Array) -> bool:
    """Whether NumPy has the values as they lie there; it takes them several times as fast."""
    return not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def message(ids: Iterable[int], kind: int, payloads: list[bytes]) -> pa.RecordBatch:
    """Build rows of the exchange."""
    columns = [pa.array(list(ids), pa.int32()), pa.repeat(pa.scalar(kind, pa.int32()), len(payloads))]
    return pa.RecordBatch.from_arrays([*columns, pa.array(payloads, pa.binary())], schema=EXCHANGE_SCHEMA)


def to_bytes(*batches: pa.RecordBatch) -> bytes:
    """Write batches of one schema as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types


def from_bytes(payload: pa.Buffer) -> list[pa.RecordBatch]:
    """Read what `to_bytes` wrote."""
    return list(pa.ipc.open_stream(payload))
