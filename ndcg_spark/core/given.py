"""Tables as functions are given them: of pandas, polars or Arrow they become those of Spark; streams are refused.

A metric needs all rows of a query, and a stream has no last one.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError, InvalidParameterError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_log = logging.getLogger("ndcg_spark")
_PLAIN = {
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
"""Types of Arrow that Spark does not take, and those that hold their values. A column of nulls may be numbers."""


@runtime_checkable
class ArrowTable(Protocol):
    """A table that can be handed over as Arrow: of pandas (2.2 and later), polars, PyArrow, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows over; see the PyCapsule interface of Arrow."""


def takes_tables(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function take tables of pandas, polars and Arrow for DataFrames, and refuse streams. Runs no action.

    Arguments are looked at themselves, and the values of a mapping. A table goes to Spark through the active session;
    where there is none, one is started, and a line of the log says so. NaN in a column of numbers is null there.
    """
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def taken(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        if len(args) > len(names):
            return function(*args, **kwargs)  # says so
        positional: Any = [_taken(name, one, function) for name, one in zip(names, args, strict=False)]
        named: Any = {name: _taken(name, one, function) for name, one in kwargs.items()}
        return function(*positional, **named)

    return taken


def _taken(name: str, given: Any, function: Callable[..., Any]) -> Any:
    if isinstance(given, Mapping):
        return {key: _taken(name, one, function) for key, one in given.items()}
    if _is_stream(given):
        raise InputRefusedError(
            f"{name} is a stream, and metrics need all rows of a query: call {function.__name__} in the function "
            "that writeStream.foreachBatch takes, or read the table by spark.read."
        )
    if hasattr(given, "sparkSession") or not (_is_of_pandas(given) or isinstance(given, ArrowTable)):
        return given
    return _to_spark(name, given)


def _is_stream(given: object) -> bool:
    with suppress(*SPARK_ERRORS):  # of a table that Spark does not find, say: whoever reads it says so
        return getattr(given, "isStreaming", False) is True
    return False


def _is_of_pandas(given: object) -> bool:
    return type(given).__module__.partition(".")[0] == "pandas" and type(given).__name__ == "DataFrame"


def _to_spark(name: str, given: Any) -> DataFrame:
    """Hand a table over to Spark, in types that it has, and with null for NaN."""
    try:
        if _is_of_pandas(given):
            table = pa.Table.from_pandas(given, preserve_index=False)
        else:
            table = given if isinstance(given, pa.Table) else pa.table(given)
        rows = pa.table([_plain(column) for column in table.columns], names=table.schema.names)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidParameterError(f"{name} cannot be handed over to Spark: {error}.") from error
    spark = SparkSession.getActiveSession() or _started()
    schema = from_arrow_schema(rows.schema)
    if int(pyspark.__version__.partition(".")[0]) >= 4:
        return spark.createDataFrame(rows, schema=schema)
    return spark.createDataFrame(list(zip(*(one.to_pylist() for one in rows.columns), strict=True)), schema=schema)


def _started() -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    _log.warning("no Spark session is active: one was started, Spark %s", spark.version)
    return spark


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values in a type that Spark has; NaN is null."""
    column = column.cast(_plain_type(column.type))
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _plain_type(one.type)) for one in kind])
    return _PLAIN.get(kind, kind)
