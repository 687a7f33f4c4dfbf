"""Tables of pandas, polars and Arrow in memory, as tables of Arrow in types that Spark has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.core.schemas import is_list
from ndcg_spark.errors import InvalidParameterError

SPARK_TYPES = {
    **{
        getattr(pa, f"{name}_view")(): getattr(pa, name)()
        for name in ("string", "binary")
        if hasattr(pa, f"{name}_view")
    },
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.float16(): pa.float32(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
    pa.null(): pa.float64(),
}
"""Types of Arrow that Spark does not take, and types that hold their values. A column of nulls may be numbers."""

_COUNTS = re.compile(r"k|n_[a-z_]+")
"""Columns of our tables with whole numbers, some of which may be missing."""


@runtime_checkable
class ArrowTable(Protocol):
    """A table with the PyCapsule interface of Arrow: pandas (2.2 and later), polars, PyArrow, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def _build_table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Build a table of rows, null where a row lacks a column."""
    columns, column = {}, ""
    try:
        for column in dict.fromkeys(name for row in rows for name in row):
            columns[column] = pa.array([row.get(column) for row in rows])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise conversion_error(name, column, error) from error
    return pa.table(columns)


def _is_pandas_frame(table: object) -> bool:
    return any(base.__module__.startswith("pandas.") and base.__name__ == "DataFrame" for base in type(table).__mro__)


def collect_table(name: str, table: Any) -> Any:
    """Convert lists of dicts and lazy tables of polars to tables; return anything else unchanged."""
    if isinstance(table, list) and table and all(isinstance(row, dict) for row in table):
        return _build_table(name, table)
    if callable(getattr(type(table), "collect", None)) and hasattr(type(table), "collect_schema"):
        return table.collect()  # a LazyFrame of polars
    return table


def is_table(table: object) -> bool:
    return _is_pandas_frame(table) or (isinstance(table, ArrowTable) and hasattr(table, "columns"))


def wrong_table_error(name: str, value: Any, kinds: Sequence[str]) -> InvalidParameterError:
    actual = "None" if value is None else f"of type {type(value).__name__}"
    path = ", a path" if "str" in kinds else ""
    return InvalidParameterError(
        f"{name} must be a table: a DataFrame of Spark, pandas or polars, a table of Arrow{path} or a list of dicts; "
        f"it is {actual}."
    )


def to_spark_types(label: str, source: Any) -> tuple[pa.Table, set[str]]:
    """Put a table into types that Spark has, with null for NaN; and name columns of which nanoseconds are cut off.

    Of pandas, a named index becomes a column, and columns `k` and `n_...`, floats if one is missing, whole numbers.
    """
    column = ""
    try:
        table = _to_arrow(source)
        columns, cut = {}, set()
        for number, column in enumerate(table.schema.names):
            counts = _COUNTS.fullmatch(column) if _is_pandas_frame(source) else None
            count_type = pa.int32() if column == "k" else pa.int64()
            columns[column] = _cast_column(table.column(number), whole=None if counts is None else count_type)
            if _has_nanoseconds(table.column(number)):
                cut.add(column)
        if len(columns) < table.num_columns:
            raise TypeError("column names are not unique")
        return pa.table(columns), cut
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise conversion_error(label, column, error) from error


def conversion_error(name: str, column: str, error: Exception) -> InvalidParameterError:
    where = f" (column {column!r})" if column else ""
    why = " ".join(str(error).split()).rstrip(".")
    return InvalidParameterError(f"{name} cannot be converted for Spark{where}: {why}.")


def _to_arrow(table: Any) -> pa.Table:
    if not _is_pandas_frame(table):
        return table if isinstance(table, pa.Table) else pa.table(table)
    if any(level is not None for level in table.index.names):  # as of a table that was grouped
        table = table.reset_index()
    return pa.Table.from_pandas(table, preserve_index=False)


def _cast_column(column: pa.ChunkedArray, *, whole: pa.DataType | None) -> pa.ChunkedArray:
    """Cast values to a type that Spark has, NaN to null, and floats that are whole numbers to `whole`, if given."""
    chunks = [_decode_categories(chunk) for chunk in column.chunks]
    column = pa.chunked_array(chunks, type=None if chunks else _find_spark_type(column.type))
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    column = column.cast(_find_spark_type(column.type))
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if whole is not None and pc.all(pc.equal(column, pc.floor(column)), min_count=0).as_py():
            column = column.cast(whole)
    return column


def _decode_categories(values: pa.Array) -> pa.Array:
    """Replace categories by their values, also in lists and structs."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        plain = values.dictionary.cast(_find_spark_type(kind.value_type))
        return pa.DictionaryArray.from_arrays(values.indices, plain).dictionary_decode()
    if not _has_categories(kind):
        return values
    if pa.types.is_struct(kind):
        fields = [_decode_categories(field) for field in values.flatten()]
        return pa.StructArray.from_arrays(fields, names=[field.name for field in kind], mask=values.is_null())
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.append(0, lengths.cumsum()), pa.int64())
    entries = _decode_categories(values.flatten())
    return pa.LargeListArray.from_arrays(offsets, entries, mask=values.is_null())


def _has_categories(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_categories(field.type) for field in kind)
    return bool(pa.types.is_dictionary(kind)) or (is_list(kind) and _has_categories(kind.value_type))


def _has_nanoseconds(column: pa.ChunkedArray) -> bool:
    """Check whether any timestamp is between two microseconds, the precision of Spark."""
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return False
    return bool(pc.any(pc.not_equal(pc.floor_temporal(column, unit="microsecond"), column)).as_py())


def _find_spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _find_spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if is_list(kind):  # empty lists do not show their element type
        return pa.list_(kind.value_type if pa.types.is_null(kind.value_type) else _find_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _find_spark_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_find_spark_type(kind.key_type), _find_spark_type(kind.item_type))
    return SPARK_TYPES.get(kind, kind)


def sort_rows(table: pa.Table, *first: str) -> pa.Table:
    """Sort results by some columns of text, then by run, segment, metric and cutoff."""
    rows = table.select([*first, "run", "segment_by", "segment", "metric", "k"]).to_pylist()
    order = [(*(row[name] for name in first), row["run"] is None, *labels.row_order({**row, "run": row["run"] or ""}))
             for row in rows]  # fmt: skip
    return table.take(pa.array(sorted(range(len(rows)), key=order.__getitem__), pa.int64()))
