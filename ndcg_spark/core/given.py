"""Tables of pandas, polars and Arrow as arguments of functions: they become DataFrames of Spark; streams are refused.

A metric needs all rows of a query, and a stream has no last one.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, get_args, get_type_hints, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.columns import BELOW_MICROSECONDS
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError, InvalidParameterError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_log = logging.getLogger("ndcg_spark")
_PLAIN = {
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


def takes_tables(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Accept tables of pandas, polars and Arrow as DataFrames, and refuse streams. Runs no action."""
    return _taking(function, streams=False)


def takes_rows(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Like `takes_tables`, for a function of single rows, which takes streams, too."""
    return _taking(function, streams=True)


def _taking(function: Callable[_Given, _Result], *, streams: bool) -> Callable[_Given, _Result]:
    """Convert tables among the arguments, and in mappings among them, before a function is called.

    A table goes to the session of a DataFrame beside it, else to the active one; if there is none, one is started and
    logged. NaN in a column of numbers becomes null. Of pandas, a named index becomes a column, and columns `k` and
    `n_...` become whole numbers, which are floats there if one is missing.
    """
    parameters, refuses = inspect.signature(function).parameters, None if streams else function.__name__
    names = [name for name, one in parameters.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    @wraps(function)
    def taken(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        if len(args) > len(names):
            return function(*args, **kwargs)  # says so
        unknown = [] if takes_any else [name for name in kwargs if name not in parameters]
        if unknown:
            raise _no_option(function, unknown[0], kwargs)
        spark = _session_of((*args, *kwargs.values()))
        positional: Any = [_taken(name, one, refuses, spark) for name, one in zip(names, args, strict=False)]
        named: Any = {name: _taken(name, one, refuses, spark) for name, one in kwargs.items()}
        try:
            return function(*positional, **named)
        except AttributeError:  # maybe of a value that is not a DataFrame; other arguments were checked before
            for name, value in (*zip(names, positional, strict=False), *named.items()):
                kinds = str(parameters[name].annotation).split(" | ") if name in parameters else ()
                if "DataFrame" in kinds and not _is_taken(value, kinds):
                    raise _not_a_table(name, value, kinds) from None
            raise

    return taken


def _is_taken(value: Any, kinds: Sequence[str]) -> bool:
    """Check whether a value is a DataFrame, or of the other kinds in the annotation of a parameter."""
    others = {"None": value is None, "str": isinstance(value, str | os.PathLike), "Evaluation": value is not None}
    return hasattr(value, "sparkSession") or any(others.get(kind, False) for kind in kinds)


def _not_a_table(name: str, value: Any, kinds: Sequence[str]) -> InvalidParameterError:
    what = "None" if value is None else f"of type {type(value).__name__}"
    path = ", a path" if "str" in kinds else ""
    return InvalidParameterError(
        f"{name} must be a table: a DataFrame of Spark, pandas or polars, a table of Arrow{path} or a list of dicts; "
        f"it is {what}."
    )


def _no_option(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> InvalidParameterError:
    """Advise on an option that a function does not have: it may be a rule of the convention."""
    conventions = [kind for kind in get_args(get_type_hints(function).get("convention")) if hasattr(kind, "parse")]
    rules = {one.name: kind.parse for kind in conventions for one in fields(kind) if one.name != "name"}
    told = f"{function.__name__} has no option {name!r}"
    if name not in rules:
        near = difflib.get_close_matches(name, [*inspect.signature(function).parameters, *rules], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return InvalidParameterError(f"{told}.{hint}")
    if callable(given[name]):
        return InvalidParameterError(f"{told}, a rule of the convention: write convention=Convention({name}=...).")
    text = f"{given.get('convention') or 'default'};{name}={given[name]}"
    rules[name](text)  # refuses a wrong value
    return InvalidParameterError(f"{told}, a rule of the convention: write convention={text!r}.")


def _session_of(given: Iterable[Any]) -> SparkSession | None:
    """Return the session of the first DataFrame among arguments, if any."""
    inner = (one for value in given for one in (value.values() if isinstance(value, Mapping) else (value,)))
    return next((one.sparkSession for one in inner if hasattr(one, "sparkSession")), None)


def _taken(name: str, given: Any, refuses: str | None, spark: SparkSession | None) -> Any:
    """Convert a table of another library; `refuses` is the name of a function that does not take streams, or None."""
    if isinstance(given, list) and given and all(isinstance(row, dict) for row in given):
        given = _table_of_dicts(name, given)
    if callable(getattr(type(given), "collect", None)) and hasattr(type(given), "collect_schema"):
        given = given.collect()  # a LazyFrame of polars
    if isinstance(given, Mapping):
        return {key: _taken(f"{name}[{key!r}]", one, refuses, spark) for key, one in given.items()}
    if refuses is not None and _is_stream(given):
        raise InputRefusedError(
            f"{name} is a stream, and metrics need all rows of a query: call {refuses} in the function "
            "that writeStream.foreachBatch takes, or read the table by spark.read."
        )
    if hasattr(given, "sparkSession"):
        return given
    if type(given).__module__.startswith("pyspark.pandas") and hasattr(given, "to_spark"):
        return given.to_spark()
    if _is_of_pandas(given) or (isinstance(given, ArrowTable) and hasattr(given, "columns")):
        return _to_spark(name, given, spark)
    return given


def _is_stream(given: object) -> bool:
    with suppress(*SPARK_ERRORS):  # such as a table that Spark does not find, which is reported where it is read
        return getattr(given, "isStreaming", False) is True
    return False


def _table_of_dicts(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Build a table of rows, null where a row lacks a column."""
    columns, column = {}, ""
    try:
        for column in dict.fromkeys(name for row in rows for name in row):
            columns[column] = pa.array([row.get(column) for row in rows])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _not_handed_over(name, column, error) from error
    return pa.table(columns)


def _is_of_pandas(given: object) -> bool:
    return any(one.__module__.startswith("pandas.") and one.__name__ == "DataFrame" for one in type(given).__mro__)


def _to_spark(name: str, given: Any, spark: SparkSession | None) -> DataFrame:
    """Create a DataFrame, in types that Spark has, and with null for NaN."""
    at = ""
    try:
        table = _as_arrow(given)
        columns, cut = {}, set()
        for number, at in enumerate(table.schema.names):
            counts = _COUNTS.fullmatch(at) if _is_of_pandas(given) else None
            count_type = pa.int32() if at == "k" else pa.int64()
            columns[at] = _plain(table.column(number), whole=None if counts is None else count_type)
            if _has_nanoseconds(table.column(number)):
                cut.add(at)
        if len(columns) < table.num_columns:
            raise TypeError("two columns have one name")
        rows, at = pa.table(columns), ""
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        for field in schema:
            field.metadata = {BELOW_MICROSECONDS: True} if field.name in cut else {}
    except (pa.ArrowException, PySparkException, ArithmeticError, TypeError, ValueError) as error:
        raise _not_handed_over(name, at, error) from error
    spark = spark or session_or_started()
    if int(pyspark.__version__.partition(".")[0]) >= 4:
        return spark.createDataFrame(rows, schema=schema)
    return spark.createDataFrame(list(zip(*map(_python_values, rows.columns), strict=True)), schema=schema)


def _not_handed_over(name: str, column: str, error: Exception) -> InvalidParameterError:
    where = f" (column {column!r})" if column else ""
    why = " ".join(str(error).split()).rstrip(".")
    return InvalidParameterError(f"{name} cannot be handed over to Spark{where}: {why}.")


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column for Spark 3.5, in which maps are dicts."""
    values = column.to_pylist()
    return [None if one is None else dict(one) for one in values] if pa.types.is_map(column.type) else values


def _as_arrow(given: Any) -> pa.Table:
    if not _is_of_pandas(given):
        return given if isinstance(given, pa.Table) else pa.table(given)
    if any(one is not None for one in given.index.names):  # as of a table that was grouped
        given = given.reset_index()
    return pa.Table.from_pandas(given, preserve_index=False)


def session_or_started() -> SparkSession:
    """Return the active session; if there is none, start one and log it."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = SparkSession.builder.getOrCreate()
        _log.warning("no Spark session is active: one was started, Spark %s", spark.version)
    return spark


def _plain(column: pa.ChunkedArray, *, whole: pa.DataType | None) -> pa.ChunkedArray:
    """Cast values to a type that Spark has, NaN to null, and floats that are whole numbers to `whole`, if given."""
    chunks = [_without_categories(chunk) for chunk in column.chunks]
    column = pa.chunked_array(chunks, type=None if chunks else _plain_type(column.type))
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    column = column.cast(_plain_type(column.type))
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if whole is not None and pc.all(pc.equal(column, pc.floor(column)), min_count=0).as_py():
            column = column.cast(whole)
    return column


def _without_categories(values: pa.Array) -> pa.Array:
    """Replace categories by their values, also in lists and structs."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        plain = values.dictionary.cast(_plain_type(kind.value_type))
        return pa.DictionaryArray.from_arrays(values.indices, plain).dictionary_decode()
    if not _has_categories(kind):
        return values
    if pa.types.is_struct(kind):
        fields = [_without_categories(field) for field in values.flatten()]
        return pa.StructArray.from_arrays(fields, names=[field.name for field in kind], mask=values.is_null())
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.append(0, lengths.cumsum()), pa.int64())
    entries = _without_categories(values.flatten())
    return pa.LargeListArray.from_arrays(offsets, entries, mask=values.is_null())


def _has_categories(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_categories(field.type) for field in kind)
    return bool(pa.types.is_dictionary(kind)) or (_is_list(kind) and _has_categories(kind.value_type))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _has_nanoseconds(column: pa.ChunkedArray) -> bool:
    """Check whether any timestamp is between two microseconds, the precision of Spark."""
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return False
    return bool(pc.any(pc.not_equal(pc.floor_temporal(column, unit="microsecond"), column)).as_py())


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if _is_list(kind):  # empty lists alone say nothing of what they are to hold
        return pa.list_(kind.value_type if pa.types.is_null(kind.value_type) else _plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _plain_type(one.type)) for one in kind])
    return _PLAIN.get(kind, kind)
