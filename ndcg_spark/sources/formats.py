"""References to tables, of any format, to DataFrames."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.core.failures import (
    SPARK_ERRORS,
    condition_of,
    first_line,
    no_file_system,
    parameter_of,
    unreadable_file,
)
from ndcg_spark.core.redaction import redacted
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.core.session import IN_MEMORY, has_own_catalog
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.sources.folders import DATA_FORMATS, read_files, read_parquet, table_folder_of
from ndcg_spark.sources.references import guess_format
from ndcg_spark.sources.stores import escaped, refuse_secrets

_IN_A_DATABASE = re.compile(r"\w+\.\w+")
_RUN_FIELDS = ("query_id", "iteration", "item_id", "rank", "score", "tag")
_QRELS_FIELDS = ("query_id", "iteration", "item_id", "relevance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, its format and reference without credentials, and its path if Parquet."""

    frame: DataFrame
    name: str
    path: str | None


def open_table(
    spark: SparkSession, reference: str, kind: str | None = None, options: dict[str, str] | None = None
) -> Table:
    """Read a table of any format Spark knows by name, or of the two TREC text formats. Reads schemas.

    `kind` is the format; None guesses with `guess_format`. For json Spark scans the files to infer a schema. csv and
    tsv have a header and stay text, so that ids such as 007 keep their zeros; numbers are parsed later, and other
    text in their columns is a bad row. A path to the files of a Delta, Iceberg or Hudi table is refused, as they hold
    deleted rows, too; the folder of such a table is read as the table.
    """
    refuse_secrets(reference)
    kind = _kind_of_table(spark, reference, kind)
    options = options or {}
    try:
        frame = _open(spark, reference, kind, options)
        frame.schema  # noqa: B018  # analysis is lazy on Connect: find a missing table here, not later
    except AnalysisException as error:
        raise InputRefusedError(_unreadable(spark, reference, kind, error)) from error
    except SPARK_ERRORS as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise InvalidParameterError(f"Spark has no reader for the format {kind!r} here.") from error
        raise InputRefusedError(_unreached(reference, kind, error)) from error
    path = reference if kind == "parquet" and not options else None
    return Table(frame=frame, name=f"{kind}:{redacted(reference)}", path=path)


def _kind_of_table(spark: SparkSession, reference: str, kind: str | None) -> str:
    """Choose the format, and refuse the files of a table that keeps a log of them."""
    found = kind or guess_format(reference)
    table = table_folder_of(spark, reference) if found in DATA_FORMATS else None
    if table is None:
        return found
    if kind is None and table.whole:
        return table.kind
    raise InputRefusedError(table.refusal(reference))


def _open(spark: SparkSession, reference: str, kind: str, options: dict[str, str]) -> DataFrame:
    if kind == "sql":
        return read_query(spark, reference)
    if kind == "table":
        # Spark takes a name in two parts that it does not know for a format and a path, and asks a Python process for
        # such a format: a process that prints a traceback if the job is refused meanwhile.
        if _IN_A_DATABASE.fullmatch(reference) and not spark.catalog.tableExists(reference):
            raise InputRefusedError(_no_table(spark, reference))
        return spark.read.options(**options).table(reference)
    if kind in ("trec-run", "trec-qrels"):
        return _read_trec(spark, reference, kind)
    if kind in ("csv", "tsv"):
        plain = {"header": "true", "escape": '"', "sep": "\t" if kind == "tsv" else ",", **options}
        return _read_csv(spark, reference, plain, kind)
    if kind == "parquet" and not options:
        return read_parquet(spark, reference)
    return read_files(spark, reference, kind, options)


def read_query(spark: SparkSession, text: str) -> DataFrame:
    """Read the rows of a query. Other statements do not parse as part of a query; Spark would run them at once."""
    return spark.sql(f"SELECT * FROM (\n{text.rstrip().removesuffix(';')}\n)")


def _read_csv(spark: SparkSession, path: str, options: dict[str, str], kind: str) -> DataFrame:
    """Mark lines with more or fewer fields than the header, and fail if headers differ; Spark does neither."""
    frame = read_files(spark, path, "csv", options, called=kind)
    schema = frame.schema
    if not len(schema):
        return frame  # without a header: its columns will be found missing
    marked = T.StructType([*schema.fields, T.StructField(MALFORMED, T.StringType())])
    # Spark counts the fields of the columns that are read: all of them without pruning. The option came with 3.5.1.
    checked = {**options, "columnNameOfCorruptRecord": MALFORMED, "columnPruning": "false"}
    if not _renamed_header(frame.columns):
        checked = {"enforceSchema": "false", **checked}
    return mark_text_table(spark.read.options(**checked).schema(marked).csv(escaped(path)))


def _renamed_header(columns: list[str]) -> bool:
    """Check for names that Spark makes of nameless and repeated columns, `_c0` and `name1`: no header has them."""
    places = [(name, str(at)) for at, name in enumerate(columns)]
    numbered = [name.removesuffix(at).lower() for name, at in places if name.endswith(at)]
    return "_c" in numbered or len(set(numbered)) < len(numbered)


def _read_trec(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Split lines at white space, as trec_eval 10 does. Skips empty lines, # comments, and fields after the tag."""
    line = F.trim(F.regexp_replace("value", r"\s+", " "))
    lines = read_files(spark, path, "text", called=kind).select(line.alias("line"))
    lines = lines.where((F.col("line") != "") & ~F.col("line").startswith("#"))
    fields = _RUN_FIELDS if kind == "trec-run" else _QRELS_FIELDS
    parts = F.split("line", " ")
    fits = F.size(parts) >= len(fields) if kind == "trec-run" else F.size(parts) == len(fields)
    columns = [F.when(fits, parts[at]).alias(name) for at, name in enumerate(fields)]
    return mark_text_table(lines.select(*columns, F.when(~fits, F.col("line")).alias(MALFORMED)))


def _no_table(spark: SparkSession, reference: str) -> str:
    hint = f" {IN_MEMORY}" if has_own_catalog(spark) else ""
    return f"there is no table {reference!r} in the catalog, and no file or folder of that name.{hint}"


def _unreached(reference: str, kind: str, error: Exception) -> str:
    why = (no_file_system(error, reference) or unreadable_file(error) or first_line(error)).rstrip(".")
    return f"cannot read {kind} {reference!r}: {why}."


def _unreadable(spark: SparkSession, reference: str, kind: str, error: AnalysisException) -> str:
    condition = condition_of(error)
    unknown = "TABLE_OR_VIEW_NOT_FOUND" in condition
    if "PATH_NOT_FOUND" in condition:
        return f"there is no path {reference!r}."
    name = (parameter_of(error, "relationName") or reference).replace("`", "")
    if unknown and os.path.exists(name):
        path = os.path.join(".", name)
        named = f"in SQL parquet.`{path}`" if kind == "sql" else f"{path!r}, without a format of tables"
        return f"there is no table {name!r} in the catalog; the folder of that name is {named}."
    if unknown and kind == "table":
        return _no_table(spark, reference)
    if "UNABLE_TO_INFER_SCHEMA" in condition:
        return f"{reference!r} holds no {kind} files."
    hint = f" {IN_MEMORY}" if unknown and has_own_catalog(spark) else ""
    return f"cannot read {kind} {reference!r}: {first_line(error)}{hint}"
