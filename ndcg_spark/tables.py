"""Nightly tables: rows of a date, data set and run are replaced as a whole, and nothing else is touched.

Every table is partitioned by `run_date` and `slice`. A slice names one (data set, run), so it is the unit that
a re-run replaces, that two jobs can write at the same time, and that needs no reading of what is there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.formats import guess_format

PATH_FORMATS = ("parquet", "orc", "json", "csv")
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


def write_night(frame: DataFrame, reference: str, kind: str | None, night: Night, runs: Sequence[str]) -> None:
    """Run an action: write rows in place of those of the same date, data set and runs.

    Parameters
    ----------
    frame : DataFrame
        With a column `run` that has no other values than `runs`.
    reference : str
        Path of a folder, or name of a catalog table. Either is made when it is not there.
    kind : str or None
        `parquet`, `orc`, `json`, `csv` for a folder; `table` for a catalog table (of parquet, orc or hive). None
        guesses: a reference with a slash is a folder of parquet.
    night : Night
    runs : sequence of str
        Runs to replace, even where the frame has no rows of them.

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
    if kind == "table":
        _write_catalog(stamped, reference, night.run_date, list(slices.values()))
    else:
        _write_folder(stamped, reference, kind)


def check_output(spark: SparkSession, reference: str, kind: str | None) -> None:
    """Raise when an output could not be written, before anything is computed. Reads schemas, runs no action.

    Parameters
    ----------
    spark : SparkSession
    reference : str
    kind : str or None

    Raises
    ------
    OutputRefusedError
    """
    kind = kind or guess_format(reference)
    if kind == "table":
        if spark.catalog.tableExists(reference):
            _check_provider(spark, reference)
    elif kind not in PATH_FORMATS:
        raise OutputRefusedError(f"outputs are written as {', '.join(PATH_FORMATS)} or table, not {kind!r}.")


def _write_folder(stamped: DataFrame, path: str, kind: str) -> None:
    if kind == "csv" and "state" in stamped.columns:
        stamped = stamped.withColumn("state", F.to_json("state"))  # csv has no lists
    writer = stamped.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(*PARTITIONS)
    if kind == "csv":
        writer = writer.option("header", "true")
    writer.format(kind).save(path)


def _write_catalog(stamped: DataFrame, table: str, run_date: date, slices: list[str]) -> None:
    """Dynamic overwrite of a table takes a session setting, or deletes the other nights: name each partition."""
    spark = stamped.sparkSession
    body = [field for field in stamped.schema.fields if field.name not in PARTITIONS]
    if not spark.catalog.tableExists(table):
        spark.sql(_table_ddl(table, body))
    _check_provider(spark, table)
    existing = [name for name in spark.table(table).columns if name not in PARTITIONS]
    if set(existing) != {field.name for field in body}:
        missing = sorted({field.name for field in body} ^ set(existing))
        raise OutputRefusedError(f"table {table!r} has other columns than these results: {', '.join(missing)}.")
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


def _check_provider(spark: SparkSession, table: str) -> None:
    try:
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except AnalysisException as error:
        raise OutputRefusedError(f"cannot describe table {table!r}.") from error
    facts = {row["col_name"].strip().lower(): (row["data_type"] or "").strip().lower() for row in described}
    provider = facts.get("provider", "hive")
    if provider not in TABLE_PROVIDERS:
        raise OutputRefusedError(
            f"table {table!r} is of provider {provider!r}; this version writes {', '.join(TABLE_PROVIDERS)}."
        )
    if not all(name in facts for name in PARTITIONS):
        raise OutputRefusedError(f"table {table!r} must be partitioned by {' and '.join(PARTITIONS)}.")
