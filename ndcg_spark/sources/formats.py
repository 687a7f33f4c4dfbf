"""Open a reference to a table, in any format, as a DataFrame."""

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
    explain_missing_file_system,
    explain_unreadable_file,
    first_line,
    get_condition,
    get_parameter,
)
from ndcg_spark.core.redaction import redact
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.core.session import IN_MEMORY, has_own_catalog
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.sources.folders import DATA_FORMATS, find_table_folder, read_files, read_parquet
from ndcg_spark.sources.references import guess_format
from ndcg_spark.sources.stores import escape_path, refuse_secrets
from ndcg_spark.sources.text_files import SEPARATORS, TREC

_QUALIFIED_NAME = re.compile(r"\w+\.\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, its format and reference without credentials, and its path if Parquet."""

    frame: DataFrame
    name: str
    path: str | None


def open_table(
    spark: SparkSession, reference: str, kind: str | None = None, options: dict[str, str] | None = None
) -> Table:
    """Open a table in one of the two TREC formats or any format that Spark can read. Reads schemas.

    `kind` is the format; None guesses it with `guess_format`. For json, Spark scans the files to infer a schema. csv
    and tsv need a header. Their columns stay text, so that ids such as 007 keep their zeros; numbers are parsed
    later, and text that is not a number makes a bad row. The folder of a Delta, Iceberg or Hudi table is read as that
    table; a path to its files is refused, because they include deleted rows.
    """
    refuse_secrets(reference)
    kind = _choose_format(spark, reference, kind)
    options = options or {}
    try:
        frame = _open(spark, reference, kind, options)
        frame.schema  # noqa: B018  # analysis is lazy on Connect: find a missing table here, not later
    except AnalysisException as error:
        raise InputRefusedError(_format_unreadable(spark, reference, kind, error)) from error
    except SPARK_ERRORS as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise InvalidParameterError(f"Spark has no reader for the format {kind!r} here.") from error
        raise InputRefusedError(_format_unreachable(reference, kind, error)) from error
    path = reference if kind == "parquet" and not options else None
    return Table(frame=frame, name=f"{kind}:{redact(reference)}", path=path)


def _choose_format(spark: SparkSession, reference: str, kind: str | None) -> str:
    """Choose the format. Refuse files that belong to a Delta, Iceberg or Hudi table."""
    file_format = kind or guess_format(reference)
    table = find_table_folder(spark, reference) if file_format in DATA_FORMATS else None
    if table is None:
        return file_format
    if kind is None and table.whole:
        return table.kind
    raise InputRefusedError(table.refusal(reference))


def _open(spark: SparkSession, reference: str, kind: str, options: dict[str, str]) -> DataFrame:
    if kind == "sql":
        return read_query(spark, reference)
    if kind == "table":
        # Spark reads an unknown name a.b as format and path, and starts a Python process to look the format up. That
        # process prints a traceback if the job is refused meanwhile.
        if _QUALIFIED_NAME.fullmatch(reference) and not spark.catalog.tableExists(reference):
            raise InputRefusedError(_format_missing_table(spark, reference))
        return spark.read.options(**options).table(reference)
    if kind in TREC:
        return _read_trec(spark, reference, kind)
    if kind in SEPARATORS:
        plain = {"header": "true", "escape": '"', "sep": SEPARATORS[kind], **options}
        return _read_csv(spark, reference, plain, kind)
    if kind == "parquet" and not options:
        return read_parquet(spark, reference)
    return read_files(spark, reference, kind, options)


def read_query(spark: SparkSession, text: str) -> DataFrame:
    """Read the rows of a query, as a subquery: other statements, which Spark would run at once, do not parse."""
    return spark.sql(f"SELECT * FROM (\n{text.rstrip().removesuffix(';')}\n)")


def _read_csv(spark: SparkSession, path: str, options: dict[str, str], kind: str) -> DataFrame:
    """Read csv, mark lines with more or fewer fields than the header, and fail if headers differ."""
    frame = read_files(spark, path, "csv", options, label=kind)
    schema = frame.schema
    if not len(schema):
        return frame  # an empty file: callers report the missing columns
    marked_schema = T.StructType([*schema.fields, T.StructField(MALFORMED, T.StringType())])
    # With column pruning, Spark counts only the fields that are read. The option exists since Spark 3.5.1.
    read_options = {**options, "columnNameOfCorruptRecord": MALFORMED, "columnPruning": "false"}
    if not _has_generated_names(frame.columns):
        read_options = {"enforceSchema": "false", **read_options}
    return mark_text_table(spark.read.options(**read_options).schema(marked_schema).csv(escape_path(path)))


def _has_generated_names(columns: list[str]) -> bool:
    """Check for names that Spark generates for empty and repeated header fields, such as `_c0` and `name1`."""
    numbered_columns = [(column, str(place)) for place, column in enumerate(columns)]
    generated = [column.removesuffix(place).lower() for column, place in numbered_columns if column.endswith(place)]
    return "_c" in generated or len(set(generated)) < len(generated)


def _read_trec(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Split lines at white space, as trec_eval 10 does. Skip empty lines, # comments, and fields after the tag."""
    line = F.trim(F.regexp_replace("value", r"\s+", " "))
    lines = read_files(spark, path, "text", label=kind).select(line.alias("line"))
    lines = lines.where((F.col("line") != "") & ~F.col("line").startswith("#"))
    fields, parts = TREC[kind], F.split("line", " ")
    fits = F.size(parts) >= len(fields) if kind == "trec-run" else F.size(parts) == len(fields)
    columns = [F.when(fits, parts[number]).alias(field) for number, field in enumerate(fields)]
    return mark_text_table(lines.select(*columns, F.when(~fits, F.col("line")).alias(MALFORMED)))


def _format_missing_table(spark: SparkSession, reference: str) -> str:
    hint = f" {IN_MEMORY}" if has_own_catalog(spark) else ""
    return f"there is no table {reference!r} in the catalog, and no file or folder of that name.{hint}"


def _format_unreachable(reference: str, kind: str, error: Exception) -> str:
    reason = (
        explain_missing_file_system(error, reference) or explain_unreadable_file(error) or first_line(error)
    ).rstrip(".")
    return f"cannot read {kind} {reference!r}: {reason}."


def _format_unreadable(spark: SparkSession, reference: str, kind: str, error: AnalysisException) -> str:
    condition = get_condition(error)
    is_unknown = "TABLE_OR_VIEW_NOT_FOUND" in condition
    if "PATH_NOT_FOUND" in condition:
        return f"there is no path {reference!r}."
    table = (get_parameter(error, "relationName") or reference).replace("`", "")
    if is_unknown and os.path.exists(table):
        path = os.path.join(".", table)
        suggestion = f"in SQL parquet.`{path}`" if kind == "sql" else f"{path!r}, without a format of tables"
        return f"there is no table {table!r} in the catalog; the folder of that name is {suggestion}."
    if is_unknown and kind == "table":
        return _format_missing_table(spark, reference)
    if "UNABLE_TO_INFER_SCHEMA" in condition:
        return f"{reference!r} holds no {kind} files."
    hint = f" {IN_MEMORY}" if is_unknown and has_own_catalog(spark) else ""
    return f"cannot read {kind} {reference!r}: {first_line(error)}{hint}"
