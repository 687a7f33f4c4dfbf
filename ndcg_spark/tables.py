"""Nightly tables: rows of a date, data set and run are replaced as a whole, and nothing else is touched.

Every table is partitioned by `run_date` and `slice`. A slice names one (data set, run), so it is the unit that
a re-run replaces, that two jobs can write at the same time, and that needs no reading of what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import PurePath

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import OutputRefusedError, find_refusal
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.failures import SPARK_ERRORS, first_line
from ndcg_spark.spark.formats import guess_format

PATH_FORMATS = ("parquet", "orc", "json")
TABLE_PROVIDERS = ("parquet", "orc", "hive")
PARTITIONS = ("run_date", "slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What a set of rows belongs to.

    Parameters
    ----------
    run_date : date
    dataset : str
    """

    run_date: date
    dataset: str


def slice_name(dataset: str, run: str) -> str:
    """Name the (data set, run) that rows belong to, as a partition value.

    Parameters
    ----------
    dataset, run : str

    Returns
    -------
    str
        Readable, safe in paths, never taken for a number or date, and different for different pairs.

    Examples
    --------
    >>> slice_name("digits", "bm25")
    'digits.bm25-c62165d1'
    """
    digest = hashlib.sha256(json.dumps([dataset, run]).encode()).hexdigest()[:8]
    readable = [re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:40] for part in (dataset, run) if part]
    return ".".join(readable or ["unnamed"]) + "-" + digest


def write_night(
    frame: DataFrame,
    reference: str,
    kind: str | None,
    night: Night,
    runs: Sequence[str],
    *,
    empty: Sequence[str] = (),
) -> None:
    """Run an action: write rows in place of those of the same date, data set and runs.

    Parameters
    ----------
    frame : DataFrame
        With a column `run` that has no other values than `runs`.
    reference : str
        Path of a folder, or name of a catalog table. Either is made when it is not there.
    kind : str or None
        `parquet`, `orc`, `json` for a folder; `table` for a catalog table (of parquet, orc or hive). None
        guesses: a reference with a slash is a folder of parquet.
    night : Night
    runs : sequence of str
        Runs to replace.
    empty : sequence of str
        Those of them that may have no rows: what a folder held of them is removed all the same.

    Raises
    ------
    OutputRefusedError
        When the table cannot be written in that form. Nothing has been written then.

    Notes
    -----
    Spark cost: one action for a folder, one a run for a catalog table.
    """
    kind = kind or guess_format(reference)
    slices = {run: slice_name(night.dataset, run) for run in runs}
    named = F.lit(None).cast("string")
    for run, name in slices.items():
        named = F.when(F.col("run") == run, F.lit(name)).otherwise(named)
    stamped = frame.withColumn("run_date", F.lit(night.run_date)).withColumn("dataset", F.lit(night.dataset))
    stamped = stamped.withColumn("slice", named)
    try:
        if kind == "table":
            _write_catalog(stamped, reference, night.run_date, list(slices.values()))
        else:
            _write_folder(stamped, reference, kind, night, [slices[run] for run in empty])
    except SPARK_ERRORS as error:
        if find_refusal(str(error)):
            raise  # a refusal from the rows, on its way
        raise OutputRefusedError(f"cannot write {reference!r}: {first_line(error)}") from error


def check_output(spark: SparkSession, reference: str, kind: str | None, columns: Sequence[str]) -> None:
    """Raise when an output could not be written, before anything is computed. Reads schemas, runs no action.

    Parameters
    ----------
    spark : SparkSession
    reference : str
    kind : str or None
    columns : sequence of str
        Of the rows that will be written.

    Raises
    ------
    OutputRefusedError
    """
    kind = kind or guess_format(reference)
    if kind == "table":
        _check_table(spark, reference, {*columns, "dataset"})
    elif kind not in PATH_FORMATS:
        raise OutputRefusedError(f"outputs are written as {', '.join(PATH_FORMATS)} or table, not {kind!r}.")
    elif any(os.path.isfile(place) for place in (reference, *map(str, PurePath(reference).parents))):
        raise OutputRefusedError(f"{reference!r} is, or lies below, a file; outputs are folders.")


def _write_folder(stamped: DataFrame, path: str, kind: str, night: Night, empty_slices: list[str]) -> None:
    """Files of all slices are moved into place together, when the last of them is written."""
    body = stamped.drop(*PARTITIONS)
    for name in empty_slices:
        place = f"{path}/run_date={night.run_date}/slice={name}"
        if _is_there(stamped.sparkSession, place, kind):
            body.limit(0).write.mode("overwrite").format(kind).save(place)
    writer = stamped.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(*PARTITIONS)
    writer.format(kind).save(path)


def _is_there(spark: SparkSession, path: str, kind: str) -> bool:
    try:
        return bool(spark.read.format(kind).load(path).columns)
    except AnalysisException:
        return False


def _write_catalog(stamped: DataFrame, table: str, run_date: date, slices: list[str]) -> None:
    """Name each partition: a dynamic overwrite of a table takes a session setting, or deletes other nights."""
    spark = stamped.sparkSession
    body = [field for field in stamped.schema.fields if field.name not in PARTITIONS]
    if not spark.catalog.tableExists(table):
        spark.sql(_table_ddl(table, body))
    _check_table(spark, table, {field.name for field in body})
    existing = [name for name in spark.table(table).columns if name not in PARTITIONS]
    for name in slices:
        part = stamped.where(F.col("slice") == name).select(*columns_of(existing))
        statement = f"INSERT OVERWRITE TABLE {table} PARTITION (run_date = DATE'{run_date}', slice = '{name}')"
        spark.sql(f"{statement} SELECT * FROM {{rows}}", rows=part)


def _table_ddl(table: str, body: list[T.StructField]) -> str:
    columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in body]
    return (
        f"CREATE TABLE {table} ({', '.join(columns)}, run_date DATE, slice STRING) "
        f"USING parquet PARTITIONED BY ({', '.join(PARTITIONS)})"
    )


def _check_table(spark: SparkSession, table: str, columns: set[str]) -> None:
    """Refuse a table that these rows cannot be written to: of another provider, partitioning or columns."""
    try:
        if not spark.catalog.tableExists(table):
            schema = table.rpartition(".")[0]
            if schema and not spark.catalog.databaseExists(schema):
                raise OutputRefusedError(f"there is no schema {schema!r} to make table {table!r} in.")
            return
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        listed = spark.catalog.listColumns(table)
    except SPARK_ERRORS as error:
        raise OutputRefusedError(f"cannot write to table {table!r}: {first_line(error)}") from error
    facts = {row["col_name"].strip().lower(): (row["data_type"] or "").strip().lower() for row in described}
    provider = facts.get("provider", "hive")
    if provider not in TABLE_PROVIDERS:
        raise OutputRefusedError(
            f"table {table!r} is of provider {provider!r}; this version writes {', '.join(TABLE_PROVIDERS)}."
        )
    if {column.name for column in listed if column.isPartition} != set(PARTITIONS):
        raise OutputRefusedError(f"table {table!r} must be partitioned by {' and '.join(PARTITIONS)}.")
    differing = sorted(columns ^ {column.name for column in listed if not column.isPartition})
    if differing:
        raise OutputRefusedError(f"table {table!r} has other columns than these results: {', '.join(differing)}.")
