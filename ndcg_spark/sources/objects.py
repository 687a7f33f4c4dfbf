"""Parquet tables by their path: read by Spark or, at object stores that Spark does not reach, by workers."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.failures import SPARK_ERRORS, no_file_system
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources.folders import read_files
from ndcg_spark.sources.listing import column_of_folders, list_files
from ndcg_spark.sources.objects_task import make_object_reader, plain_schema
from ndcg_spark.sources.parquet import opened
from ndcg_spark.sources.stores import address_of, reason_of, refuse_secrets


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Read a table of Parquet files. Lazy.

    Spark cost: that of `read_files`. Where Spark has no file system for an object store, Arrow lists the objects and
    reads the footer of the first in this process, and workers read the rest when rows are asked for: all columns, one
    task an object. Read so, the table lacks columns that are in the names of folders, structs, maps, and timestamps
    without a time zone.

    Refused is a store that neither Spark nor Arrow reaches, and what `read_files` refuses. Other errors of Spark pass
    unchanged.
    """
    refuse_secrets(path)
    try:
        return read_files(spark, path, "parquet")
    except SPARK_ERRORS as error:
        lacks = no_file_system(error, path)
        if lacks is None or address_of(path) is None:
            raise
        return _read_by_workers(spark, path, lacks)


def _read_by_workers(spark: SparkSession, path: str, lacks: str) -> DataFrame:
    at = ""
    try:
        listed = list_files(path)
        if isinstance(listed, str):
            raise InputRefusedError(f"cannot read parquet {path!r}: {listed}; {lacks}.")
        at = listed[0]
        with opened(at) as first:
            schema = plain_schema(first.metadata.schema.to_arrow_schema())
    except FileNotFoundError as error:
        raise InputRefusedError(f"there is no path {(at or path)!r}.") from error
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(f"cannot read parquet {path!r}: {reason_of(error, at)}; {lacks}.") from error
    in_folders = column_of_folders(path, listed, schema.names)
    if in_folders is not None:
        raise InputRefusedError(f"column {in_folders!r} of {path!r} is in files and folder names; {lacks}.")
    numbers = spark.range(0, len(listed), 1, len(listed))
    return numbers.mapInArrow(as_shipped(make_object_reader(listed, schema)), schema=from_arrow_schema(schema))
