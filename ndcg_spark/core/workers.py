"""What Python workers are given: functions, whose packages they may not have, and schemas of Arrow batches."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ndcg_spark.core.batches import EXCHANGE_SCHEMA, BatchFunction
from ndcg_spark.core.failures import HOW_TO_INSTALL, HOW_TO_SHIP, WORKERS_RUN
from ndcg_spark.core.session_settings import session_time_zone


def as_shipped(function: BatchFunction) -> BatchFunction:
    """Pack a function for Python workers such that those that lack this package say which Python they run.

    Otherwise they fail before they have read anything of it, with no word of ours. What is packed has the annotations
    that Spark reads, and uses nothing of this package, so that any worker can load it.
    """
    content, here, host = _pickled(function), sys.executable, socket.gethostname()
    on_connect = "SPARK_CONNECT_MODE_ENABLED" in os.environ or "SPARK_REMOTE" in os.environ
    workers_run, ship, install = WORKERS_RUN, HOW_TO_SHIP, HOW_TO_INSTALL

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import socket
        import sys

        try:
            work: BatchFunction = pickle.loads(content)
        except ModuleNotFoundError as error:
            lacks = str(error.name).partition(".")[0]
            if on_connect or socket.gethostname() != host:
                cure = ship if lacks == "ndcg_spark" else install
            elif sys.executable == here:
                cure = "install it there, or set PYTHONPATH, before the session is made."
            else:
                cure = f"export PYSPARK_PYTHON={here} before the session is made."
            line = f"{workers_run} {sys.executable}, which has no {lacks}, and this program runs {here}: {cure}"
            # The text of a cause comes first, here without a stack; Spark would set it to None before it prints.
            cause = ModuleNotFoundError(line)
            kept = property(lambda _: cause, lambda _, new: None)
            kind = type("ModuleNotFoundError", (ModuleNotFoundError,), {"__cause__": kept, "__module__": "builtins"})
            raise kind(line) from None
        return work(batches)

    return run


def _pickled(function: BatchFunction) -> bytes:
    content: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]  # it has no types
    return content


EXCHANGE = from_arrow_schema(EXCHANGE_SCHEMA)
_TAKES_ZONE = "timezone" in signature(to_arrow_schema).parameters


def arrow_schema(schema: T.StructType, spark: SparkSession) -> pa.Schema:
    """Translate a schema as Spark does for its workers: timestamps are in the time zone of the session."""
    zone = session_time_zone(spark)
    options: dict[str, Any] = {"timezone": zone} if _TAKES_ZONE else {}
    found = to_arrow_schema(schema, **options)
    return pa.schema([field.with_type(_in_zone(field.type, zone)) for field in found])


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Put timestamps in a zone; before Spark took one, it named UTC for all of them."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz=zone)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_zone(kind.value_type, zone)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in kind])
    return kind
