"""Tables of pandas, polars and Arrow as arguments of functions: they become DataFrames of Spark; streams are refused.

A metric needs all rows of a query, and a stream never ends.
"""

from __future__ import annotations

import difflib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from ndcg_spark.core.arrow_tables import collect_table, conversion_error, is_table, to_spark_types, wrong_table_error
from ndcg_spark.core.schemas import BELOW_MICROSECONDS
from ndcg_spark.errors import InputRefusedError, InvalidParameterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def accepts_tables(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Accept tables of pandas, polars and Arrow as DataFrames, and refuse streams. Runs no action."""
    return _wrap(function, streams=False)


def accepts_rows(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Like `accepts_tables`, for a function of single rows, which takes streams, too."""
    return _wrap(function, streams=True)


def refuses_streams(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Refuse streams, and leave other tables as they are."""
    return _wrap(function, streams=False, converts=False)


def is_spark_table(table: object) -> bool:
    """Check for a DataFrame of Spark, also of pandas on Spark."""
    return hasattr(table, "sparkSession") or type(table).__module__.startswith("pyspark.pandas")


def convert_tables(tables: Mapping[str, Any], spark: SparkSession | None = None) -> dict[str, Any]:
    """Convert tables by their names to DataFrames of one session; paths stay paths."""
    session = spark or _find_session(tables.values())
    return {name: _convert_argument(name, table, None, session) for name, table in tables.items()}


def _wrap(
    function: Callable[_Parameters, _Result], *, streams: bool, converts: bool = True
) -> Callable[_Parameters, _Result]:
    """Convert tables among the arguments, and in mappings among them, before a function is called.

    Tables get the session of the first DataFrame among the arguments, else the active one, else a new one, which is
    logged. Values are those of `to_spark_types`. Evaluations of the local engine are converted, too.
    """
    parameters, refuses = inspect.signature(function).parameters, None if streams else function.__name__
    names = [name for name, parameter in parameters.items() if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(function)
    def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if len(args) > len(names):
            return function(*args, **kwargs)  # raises TypeError
        unknown = [] if takes_any else [name for name in kwargs if name not in parameters]
        if unknown:
            raise _explain_unknown_option(function, unknown[0], kwargs)
        spark = _find_session((*args, *kwargs.values()))
        if converts:
            positional: Any = [
                _convert_argument(name, argument, refuses, spark) for name, argument in zip(names, args, strict=False)
            ]
            named: Any = {
                name: _convert_argument(name, argument, refuses, spark) for name, argument in kwargs.items()
            }
        else:
            positional, named = args, kwargs
            for name, argument in (*zip(names, args, strict=False), *kwargs.items()):
                _refuse_stream(name, argument, refuses)
        try:
            return function(*positional, **named)
        except AttributeError:  # perhaps of a value that is not a DataFrame; other arguments were checked before
            for name, value in (*zip(names, positional, strict=False), *named.items()):
                kinds = str(parameters[name].annotation).split(" | ") if name in parameters else ()
                if "DataFrame" in kinds and not _is_accepted(value, kinds):
                    raise wrong_table_error(name, value, kinds) from None
            raise

    return wrapper


def _is_accepted(value: Any, kinds: Sequence[str]) -> bool:
    """Check whether a value is a DataFrame, or of the other kinds in the annotation of a parameter."""
    others = {"None": value is None, "str": isinstance(value, str | os.PathLike), "Evaluation": value is not None}
    return hasattr(value, "sparkSession") or any(others.get(kind, False) for kind in kinds)


def _explain_unknown_option(
    function: Callable[..., Any], name: str, arguments: Mapping[str, Any]
) -> InvalidParameterError:
    """Explain an unknown option: it may be a rule of the convention."""
    hints = str(function.__annotations__.get("convention", "")).split(" | ")
    conventions = [function.__globals__[hint] for hint in hints if hint == "Convention"]
    rules = {rule.name: kind.parse for kind in conventions for rule in fields(kind) if rule.name != "name"}
    problem = f"{function.__name__} has no option {name!r}"
    if name not in rules:
        near = difflib.get_close_matches(name, [*inspect.signature(function).parameters, *rules], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return InvalidParameterError(f"{problem}.{hint}")
    if callable(arguments[name]):
        return InvalidParameterError(
            f"{problem}; it is part of the convention: write convention=Convention({name}=...)."
        )
    text = f"{arguments.get('convention') or 'default'};{name}={arguments[name]}"
    rules[name](text)  # refuses a wrong value
    return InvalidParameterError(f"{problem}; it is part of the convention: write convention={text!r}.")


def _find_session(arguments: Iterable[Any]) -> SparkSession | None:
    """Return the session of the first DataFrame among arguments, if any."""
    inner = (table for value in arguments for table in (value.values() if isinstance(value, Mapping) else (value,)))
    return next((table.sparkSession for table in inner if hasattr(table, "sparkSession")), None)


def _convert_argument(name: str, argument: Any, refuses: str | None, spark: SparkSession | None) -> Any:
    """Convert a table of another library; `refuses` is the name of a function that does not take streams, or None."""
    argument = collect_table(name, argument)
    if isinstance(argument, Mapping):
        return {key: _convert_argument(f"{name}[{key!r}]", inner, refuses, spark) for key, inner in argument.items()}
    _refuse_stream(name, argument, refuses)
    if hasattr(argument, "sparkSession"):
        return argument
    if type(argument).__module__.startswith("pyspark.pandas") and hasattr(argument, "to_spark"):
        return argument.to_spark()
    if getattr(argument, "engine", None) == "local":
        return argument.to_spark(spark)
    return _to_spark(name, argument, spark) if is_table(argument) else argument


def _refuse_stream(name: str, argument: Any, refuses: str | None) -> None:
    if isinstance(argument, Mapping):
        for key, inner in argument.items():
            _refuse_stream(f"{name}[{key!r}]", inner, refuses)
    elif refuses is not None and _is_stream(argument):
        raise InputRefusedError(
            f"{name} is a stream, and metrics need all rows of a query: call {refuses} in a function "
            "for writeStream.foreachBatch, or read the table with spark.read."
        )


def _is_stream(table: object) -> bool:
    if sys.modules.get("pyspark") is None:
        return False
    from ndcg_spark.core.failures import SPARK_ERRORS

    with suppress(*SPARK_ERRORS):  # such as a table that Spark does not find, which is reported where it is read
        return getattr(table, "isStreaming", False) is True
    return False


def _to_spark(name: str, table: Any, spark: SparkSession | None) -> DataFrame:
    """Create a DataFrame, in types that Spark has, and with null for NaN."""
    import pyspark
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    from ndcg_spark.core.session import get_session

    rows, cut = to_spark_types(name, table)
    try:
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    except (PySparkException, TypeError, ValueError) as error:
        raise conversion_error(name, "", error) from error
    for field in schema:
        field.metadata = {BELOW_MICROSECONDS: True} if field.name in cut else {}
    spark = spark or get_session()
    if int(pyspark.__version__.partition(".")[0]) >= 4:
        return spark.createDataFrame(rows, schema=schema)
    return spark.createDataFrame(list(zip(*map(_python_values, rows.columns), strict=True)), schema=schema)


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column for Spark 3.5, in which maps are dicts."""
    values = column.to_pylist()
    return [None if pairs is None else dict(pairs) for pairs in values] if pa.types.is_map(column.type) else values
