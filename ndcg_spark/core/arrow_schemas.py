"""Schemas of the Arrow batches that workers are given."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ndcg_spark.core.session_settings import session_time_zone

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
