"""Arrow batches: to NumPy and back, as bytes for a shuffle, hashes, entries of lists, errors that survive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.core.ragged import (
    ODD_NUMBERS,
    BoolArray,
    FloatArray,
    IntArray,
    NumberArray,
    offsets_after_filter,
    rank_of_rows,
    rows_of_queries,
    to_lengths,
    to_offsets,
)
from ndcg_spark.errors import InputRefusedError, NdcgSparkError, get_message, mark_refusal, option

EXCHANGE_SCHEMA = pa.schema([("partition_id", pa.int32()), ("kind", pa.int32()), ("payload", pa.binary())])
"""Rows of a shuffle that carry packed Arrow batches: some thousand, not one per query. Senders define the kinds."""
# Bytes become 16 bits, which NumPy sorts faster.
_NARROW = {pa.int8(): np.int16, pa.int16(): np.int16, pa.int32(): np.int32}
_ERA_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats, with its days of the week and so the rules of time zones."""
_DAY_MICROS = 86_400_000_000
BatchFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
WorkerFunction: TypeAlias = Callable[..., Iterator[pa.RecordBatch]]
"""A function of (batches, *task), which `core.workers.in_workers` runs; the task is pickled."""


def list_offsets(column: pa.Array) -> IntArray:
    """Offsets of an Arrow list column, from 0 on; a null list is an empty one."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return to_offsets(lengths.to_numpy(zero_copy_only=False).astype(np.int64))


def float_values(values: pa.Array) -> tuple[FloatArray, BoolArray]:
    """Return the values of a column as doubles, 0.0 for null, and flags of those that are not null."""
    if not values.null_count:
        return values.cast(pa.float64(), safe=False).to_numpy(), np.ones(len(values), dtype=np.bool_)
    known = to_flags(values.is_valid())
    filled = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0)
    return filled.to_numpy(zero_copy_only=False), known


def number_values(column: pa.Array) -> tuple[NumberArray, BoolArray | None]:
    """Like `float_values`, but short whole numbers stay short; no flags if nothing is null."""
    narrow = _NARROW.get(column.type)
    if column.null_count or narrow is None:
        values, known = float_values(column)
        return values, known if column.null_count else None
    return np.asarray(column.to_numpy(), dtype=narrow), None


def normalize_zero(column: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0 in a column of floats: Arrow distinguishes the two."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)


def to_flags(column: pa.Array) -> BoolArray:
    """Values of a column of booleans; a null is False."""
    return np.array(pc.fill_null(column, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def int_values(column: pa.Array) -> IntArray:
    """Values of a column of whole numbers without nulls, as int64."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def float_column(values: FloatArray, known: BoolArray) -> pa.Array:
    """Arrow doubles that are null where `known` is False."""
    return pa.array(values, mask=~known)


def concat_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Concatenate the chunks of a column."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def to_python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python values; dates and times outside Python's range become the text of Spark's cast."""
    try:
        return list(column.to_pylist())
    except OverflowError:
        return [_to_python_value(value) for value in column]


def get_value(column: pa.Array | pa.ChunkedArray, row: int) -> Any:
    """Return one value as `to_python_values` does."""
    return _to_python_value(column[row])


def _to_python_value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except OverflowError:
        return _format_far_time(scalar)


def _format_far_time(scalar: pa.Scalar) -> str:
    """Text of a date or time before the year 1 or after 9999, from that of a time some eras away."""
    if pa.types.is_date(scalar.type):
        as_date = scalar.cast(pa.date32())
        eras, days = divmod(as_date.value, _ERA_DAYS)
        near = pa.scalar(days, pa.date32()).as_py()
        return _format_iso_date(near, eras)
    kind = pa.timestamp("us", scalar.type.tz)
    # Early years use local mean time, late years the current rules of the zone.
    year = 9200 if scalar.cast(kind).value > 0 else 401
    start = (date(year, 1, 1) - date(1970, 1, 1)).days * _DAY_MICROS
    eras, rest = divmod(scalar.cast(kind).value - start, _ERA_DAYS * _DAY_MICROS)
    near = pa.scalar(start + rest, kind).as_py()
    fraction = f".{near.microsecond:06}".rstrip("0") if near.microsecond else ""
    return f"{_format_iso_date(near, eras)} {near:%H:%M:%S}{fraction}"


def _format_iso_date(near: date, eras: int) -> str:
    """An ISO date whose year may have a sign or more than four digits."""
    year = near.year + 400 * eras
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{near:%m-%d}"


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A function with its task, as workers get it. A refusal ends it.

    With an `output` schema a refusal is one more row, with its text in the column `REFUSAL`; a function that gets
    such a row refuses the same. Without it the error is raised with a marked text, because the JVM drops its class.
    """

    function: WorkerFunction
    task: tuple[Any, ...]
    output: pa.Schema | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self.function(map(_raise_kept_refusal, batches), *self.task):
                yield batch if self.output is None else _add_refusal_column(batch, None)
        except NdcgSparkError as error:
            if self.output is None:
                raise type(error)(mark_refusal(get_message(error))) from error
            # Spark rejects nulls in columns that are not nullable.
            row = [pa.array([None if field.nullable else _ZEROS[field.type]], field.type) for field in self.output]
            yield _add_refusal_column(pa.RecordBatch.from_arrays(row, schema=self.output), get_message(error))


REFUSAL = "__refusal"
"""Column of kept refusals, null in all other rows."""
_ZEROS = {pa.int32(): 0, pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False, pa.string(): "", pa.binary(): b""}


def _raise_kept_refusal(batch: pa.RecordBatch) -> pa.RecordBatch:
    if REFUSAL not in batch.schema.names:
        return batch
    refused = pc.min(batch.column(REFUSAL)).as_py()
    if refused is not None:
        raise InputRefusedError(refused)
    return batch.select([name for name in batch.schema.names if name != REFUSAL])


def _add_refusal_column(batch: pa.RecordBatch, text: str | None) -> pa.RecordBatch:
    column = pa.nulls(batch.num_rows, pa.string()) if text is None else pa.array([text])
    return pa.RecordBatch.from_arrays([*batch.columns, column], names=[*batch.schema.names, REFUSAL])


def concat_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate at least one batch. Refuses a column with more than 2 GiB of text."""
    if len(batches) == 1:
        return batches[0]
    chunks = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(chunks) > 1:
        raise InputRefusedError(
            f"a batch has more than 2 GiB of text; use {option('strategy', 'window')}, which ranks in Spark."
        )
    return chunks[0]


def cast_large_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cast texts and bytes to 32-bit offsets, whatever types the session is set to send."""
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    if not any(kind in plain for kind in batch.schema.types):
        return batch
    columns = [column.cast(plain.get(column.type, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def take_rows(batch: pa.RecordBatch, rows: IntArray) -> pa.RecordBatch:
    places = pa.array(rows)
    columns = [
        pa.array(column.to_numpy()[rows]) if is_plain(column) else column.take(places) for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def is_plain(column: pa.Array) -> bool:
    """Check whether NumPy can read the values in place; it takes them several times as fast."""
    return not column.null_count and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def make_message(ids: Iterable[int], kind: int, payloads: list[bytes]) -> pa.RecordBatch:
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


Values: TypeAlias = NumberArray | pa.Array
"""NumPy arrays of numbers; Arrow arrays of texts and of values that may be null."""


@dataclass(slots=True)
class Entries:
    """Entries of one list of each query, end to end.

    Columns are `rank` or `score`, `relevance` (NaN: unjudged), `item`, `order`, `n`, as far as rules need them.
    """

    columns: dict[str, Values]
    offsets: IntArray

    def numbers(self, name: str) -> NumberArray:
        values = self.columns[name]
        return values if isinstance(values, np.ndarray) else values.to_numpy(zero_copy_only=False)

    def take(self, rows: IntArray) -> Entries:
        """Take entries; offsets stay as they are."""
        return Entries({name: take_values(values, rows) for name, values in self.columns.items()}, self.offsets)

    def select_queries(self, queries: IntArray) -> Entries:
        """Take the lists of some queries, in the order given."""
        entries = self.take(rows_of_queries(queries, self.offsets))
        return Entries(entries.columns, to_offsets(to_lengths(self.offsets)[queries]))

    def where(self, flags: BoolArray) -> Entries:
        if flags.all():
            return self
        return Entries(self.take(np.flatnonzero(flags)).columns, offsets_after_filter(flags, self.offsets))

    def first(self, k: int | None, same: BoolArray | None = None) -> Entries:
        """Keep the first k entries of each query, and those that are the `same` as the one before."""
        if k is None or to_lengths(self.offsets).max(initial=0) <= k:
            return self
        rank = rank_of_rows(self.offsets)
        if same is not None:
            rank = rank[np.maximum.accumulate(np.where(same, -1, np.arange(len(rank))))]
        return self.where(rank < k)

    def select_columns(self, *names: str) -> Entries:
        """Keep those of these columns that exist."""
        return Entries({name: values for name, values in self.columns.items() if name in names}, self.offsets)


def take_values(values: Values, rows: IntArray) -> Values:
    """Take values by index; whole numbers become a NumPy array."""
    if isinstance(values, pa.Array) and pa.types.is_integer(values.type) and not values.null_count:
        values = int_values(values)
    return values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))


def concat_entries(batches: Sequence[Entries]) -> Entries:
    """Concatenate the lists of at least one batch of queries; all have the same columns."""
    if len(batches) == 1:
        return batches[0]
    columns: dict[str, Values] = {}
    for name in batches[0].columns:
        arrays = [entries.columns[name] for entries in batches]
        if all(isinstance(array, np.ndarray) for array in arrays):
            columns[name] = np.concatenate(arrays)
        else:
            columns[name] = pa.concat_arrays([pa.array(array) for array in arrays])
    return Entries(columns, to_offsets(np.concatenate([to_lengths(entries.offsets) for entries in batches])))


def list_column(values: pa.Array, offsets: IntArray) -> pa.ListArray:
    """Arrow lists of successive values."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def make_row_lists(rows: IntArray) -> pa.ListArray:
    """A list of the numbers of each row, shape (n_rows, size)."""
    return list_column(pa.array(rows.reshape(-1)), np.arange(0, rows.size + 1, rows.shape[1]))


def entries_to_columns(entries: Entries, prefix: str) -> dict[str, pa.Array]:
    """Arrow list columns of entries, named after the list they belong to."""
    return {
        f"{prefix}.{name}": list_column(pa.array(values), entries.offsets) for name, values in entries.columns.items()
    }


def entries_from_columns(batch: pa.RecordBatch, prefix: str) -> Entries | None:
    """Read what `entries_to_columns` wrote; None if the batch has no such list."""
    names = [name for name in batch.schema.names if name.startswith(f"{prefix}.")]
    if not names:
        return None
    columns: dict[str, Values] = {}
    for name in names:
        values = batch.column(name).flatten()
        columns[name.removeprefix(f"{prefix}.")] = values.to_numpy() if is_plain(values) else values
    return Entries(columns, list_offsets(batch.column(names[0])))


HashArray = NDArray[np.uint64]
_BASE, _MIX = ODD_NUMBERS
_CHUNK_TEXTS = 2**14
"""Texts that are hashed at once: each byte becomes a word of 64 bits."""

QUERY_BITS = 24
"""High bits of a hash that the query alone decides: all runs and judgments of a query share a partition."""


def hash_keys(batch: pa.RecordBatch, query: Sequence[str], run: str | None = None) -> HashArray:
    """Hash the query of each row; a run changes only the low bits.

    Two values of a single column of whole numbers never share a hash; others hardly ever do.
    """
    hashes: HashArray = np.zeros(batch.num_rows, dtype=np.uint64)
    for index, name in enumerate(query):
        column_hash = hash_column(batch.column(name))
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _MIX + column_hash if index else column_hash
    if run is None:
        return hashes
    low = np.uint64(2 ** (64 - QUERY_BITS) - 1)
    mixed = (hashes ^ (hashes >> np.uint64(29))) * _MIX + hash_column(batch.column(run))
    return np.asarray((hashes & ~low) | ((mixed ^ (mixed >> np.uint64(31))) & low))


def hash_column(column: pa.Array) -> HashArray:
    """Hash each value of a column without nulls, of any type that keys can have."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(_hash_texts(column) * _BASE)
    if pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_floating(kind):
        doubles = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        return np.asarray(doubles.view(np.uint64) * _BASE)
    elif not pa.types.is_integer(kind):
        return np.asarray(_hash_texts(column.cast(pa.string())) * _BASE)
    whole = np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)
    return np.asarray(whole.view(np.uint64) * _BASE)


def assign_partitions(hashes: HashArray, n_partitions: int) -> IntArray:
    """Assign hashes to at most 2^24 partitions, in the order of the hashes."""
    high = (hashes >> np.uint64(64 - QUERY_BITS)).astype(np.int64)
    return np.asarray((high * n_partitions) >> QUERY_BITS)


def sort_by_hash(hashes: HashArray) -> tuple[HashArray, IntArray]:
    """Sort by hash: hashes in rising order, without their low bits, and the row of each.

    The low bits of each hash hold its row number, so one sort of words yields both.
    """
    low = np.uint64(2 ** max(1, len(hashes).bit_length()) - 1)
    both = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    both.sort()  # several times as fast as an argsort
    return both & ~low, (both & low).astype(np.int64)


def _hash_texts(column: pa.Array) -> HashArray:
    hashes = [_hash_polynomials(column.slice(start, _CHUNK_TEXTS)) for start in range(0, len(column), _CHUNK_TEXTS)]
    return np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)


def _hash_polynomials(column: pa.Array) -> HashArray:
    """Polynomial hash of each string, from one cumulative sum over the concatenated bytes.

    sum(byte[i] B^i) from start to end is B^start times the polynomial; B is odd, so B^start has an inverse.
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
