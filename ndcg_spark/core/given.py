"""Tables of pandas, polars and Arrow as arguments of functions: they become DataFrames of Spark; streams are refused.

A metric needs all rows of a query, and a stream has no last one.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from ndcg_spark.core.arrow_tables import is_table, not_a_table, not_handed_over, opened_table, plain_table
from ndcg_spark.core.schemas import BELOW_MICROSECONDS
from ndcg_spark.errors import InputRefusedError, InvalidParameterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_log = logging.getLogger("ndcg_spark")


def takes_tables(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Accept tables of pandas, polars and Arrow as DataFrames, and refuse streams. Runs no action."""
    return _taking(function, streams=False)


def takes_rows(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Like `takes_tables`, for a function of single rows, which takes streams, too."""
    return _taking(function, streams=True)


def refuses_streams(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Refuse streams, and leave other tables as they are."""
    return _taking(function, streams=False, converts=False)


def is_of_spark(table: object) -> bool:
    """Check for a DataFrame of Spark, also of pandas on Spark."""
    return hasattr(table, "sparkSession") or type(table).__module__.startswith("pyspark.pandas")


def on_spark(tables: Mapping[str, Any], spark: SparkSession | None = None) -> dict[str, Any]:
    """Convert tables by their names to DataFrames of one session; paths stay paths."""
    session = spark or _session_of(tables.values())
    return {name: _taken(name, table, None, session) for name, table in tables.items()}


def _taking(
    function: Callable[_Given, _Result], *, streams: bool, converts: bool = True
) -> Callable[_Given, _Result]:
    """Convert tables among the arguments, and in mappings among them, before a function is called.

    A table goes to the session of a DataFrame beside it, else to the active one; if there is none, one is started and
    logged. Values are those of `plain_table`. So does an evaluation of this machine.
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
        if converts:
            positional: Any = [_taken(name, one, refuses, spark) for name, one in zip(names, args, strict=False)]
            named: Any = {name: _taken(name, one, refuses, spark) for name, one in kwargs.items()}
        else:
            positional, named = args, kwargs
            for name, one in (*zip(names, args, strict=False), *kwargs.items()):
                _refuse_stream(name, one, refuses)
        try:
            return function(*positional, **named)
        except AttributeError:  # maybe of a value that is not a DataFrame; other arguments were checked before
            for name, value in (*zip(names, positional, strict=False), *named.items()):
                kinds = str(parameters[name].annotation).split(" | ") if name in parameters else ()
                if "DataFrame" in kinds and not _is_taken(value, kinds):
                    raise not_a_table(name, value, kinds) from None
            raise

    return taken


def _is_taken(value: Any, kinds: Sequence[str]) -> bool:
    """Check whether a value is a DataFrame, or of the other kinds in the annotation of a parameter."""
    others = {"None": value is None, "str": isinstance(value, str | os.PathLike), "Evaluation": value is not None}
    return hasattr(value, "sparkSession") or any(others.get(kind, False) for kind in kinds)


def _no_option(function: Callable[..., Any], name: str, given: Mapping[str, Any]) -> InvalidParameterError:
    """Advise on an option that a function does not have: it may be a rule of the convention."""
    hints = str(function.__annotations__.get("convention", "")).split(" | ")
    conventions = [function.__globals__[hint] for hint in hints if hint == "Convention"]
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
    given = opened_table(name, given)
    if isinstance(given, Mapping):
        return {key: _taken(f"{name}[{key!r}]", one, refuses, spark) for key, one in given.items()}
    _refuse_stream(name, given, refuses)
    if hasattr(given, "sparkSession"):
        return given
    if type(given).__module__.startswith("pyspark.pandas") and hasattr(given, "to_spark"):
        return given.to_spark()
    if getattr(given, "engine", None) == "local":
        return given.to_spark(spark)
    return _to_spark(name, given, spark) if is_table(given) else given


def _refuse_stream(name: str, given: Any, refuses: str | None) -> None:
    if isinstance(given, Mapping):
        for key, one in given.items():
            _refuse_stream(f"{name}[{key!r}]", one, refuses)
    elif refuses is not None and _is_stream(given):
        raise InputRefusedError(
            f"{name} is a stream, and metrics need all rows of a query: call {refuses} in the function "
            "that writeStream.foreachBatch takes, or read the table by spark.read."
        )


def _is_stream(given: object) -> bool:
    if sys.modules.get("pyspark") is None:
        return False
    from ndcg_spark.core.failures import SPARK_ERRORS

    with suppress(*SPARK_ERRORS):  # such as a table that Spark does not find, which is reported where it is read
        return getattr(given, "isStreaming", False) is True
    return False


def _to_spark(name: str, given: Any, spark: SparkSession | None) -> DataFrame:
    """Create a DataFrame, in types that Spark has, and with null for NaN."""
    import pyspark
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    rows, cut = plain_table(name, given)
    try:
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    except (PySparkException, TypeError, ValueError) as error:
        raise not_handed_over(name, "", error) from error
    for field in schema:
        field.metadata = {BELOW_MICROSECONDS: True} if field.name in cut else {}
    spark = spark or session_or_started()
    if int(pyspark.__version__.partition(".")[0]) >= 4:
        return spark.createDataFrame(rows, schema=schema)
    return spark.createDataFrame(list(zip(*map(_python_values, rows.columns), strict=True)), schema=schema)


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """Values of a column for Spark 3.5, in which maps are dicts."""
    values = column.to_pylist()
    return [None if one is None else dict(one) for one in values] if pa.types.is_map(column.type) else values


def session_or_started() -> SparkSession:
    """Return the active session; if there is none, start one and log it."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = SparkSession.builder.getOrCreate()
        _log.warning("no Spark session is active: one was started, Spark %s", spark.version)
    return spark
