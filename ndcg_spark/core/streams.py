"""Streams are refused where tables come in: a metric needs all rows of a query, and a stream has no last one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def refuses_streams(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Make a function raise `InputRefusedError` for a streaming DataFrame among its arguments. Runs no action.

    Arguments are looked at themselves, and the values of a mapping.
    """
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        for name, given in (*zip(names, args, strict=False), *kwargs.items()):
            for one in given.values() if isinstance(given, Mapping) else (given,):
                if _is_stream(one):
                    raise InputRefusedError(
                        f"{name} is a stream, and metrics need all rows of a query: call {function.__name__} in the "
                        "function that writeStream.foreachBatch takes, or read the table by spark.read."
                    )
        return function(*args, **kwargs)

    return checked


def _is_stream(given: object) -> bool:
    with suppress(*SPARK_ERRORS):  # of a table that Spark does not find, say: whoever reads it says so
        return getattr(given, "isStreaming", False) is True
    return False
