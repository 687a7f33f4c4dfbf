"""Read folders of files with Spark, and detect tables that keep a log of their files (Delta, Iceberg, Hudi)."""

from __future__ import annotations

import logging
import math
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.columns import WITHOUT_IT, exact_col
from ndcg_spark.core.failures import (
    SPARK_ERRORS,
    explain_missing_file_system,
    first_line,
    get_condition,
    is_unsupported,
)
from ndcg_spark.core.redaction import redact
from ndcg_spark.core.session import is_on, session_time_zone
from ndcg_spark.core.workers import in_workers
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources import stores
from ndcg_spark.sources.parquet import NANOSECONDS, find_missing_columns, open_parquet, read_objects, to_spark_schema
from ndcg_spark.sources.references import guess_file_format
from ndcg_spark.sources.stores import TableFolder, unescape_name

_log = logging.getLogger(__name__)
DATA_FORMATS = ("parquet", "orc", "avro")
_FAILURES: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
_GLOB = re.compile(r"[*?\[{]")


def find_table_folder(spark: SparkSession, path: str) -> TableFolder | None:
    """Return the Delta, Iceberg or Hudi table that contains a path or pattern, or None. Runs no Spark action.

    For paths that only Spark can read, only likely parents are checked: those of partition and `data` folders.
    """
    scheme, rest = _split_scheme(path)
    prefix = _GLOB.split(rest)[0] if stores.is_pattern(path) else rest
    base = (prefix if prefix == rest else prefix.rpartition("/")[0]).rstrip("/")
    base = base or ("/" if rest.startswith("/") else ".")

    def has(root: str, mark: str) -> bool:
        # Some file systems report every path as existing; a random name detects those.
        return path_exists(spark, f"{root}/{mark}") and not path_exists(spark, f"{root}/{mark}-{uuid.uuid4().hex}")

    roots: list[tuple[str, Callable[[str, str], bool]]] = []
    if not scheme:
        roots += [(root, stores.is_marked) for root in stores.list_folders_above(base)]
    if scheme or not os.path.exists(base):
        roots += [(f"{scheme}{root}", has) for root in stores.list_likely_roots(base)]
    for root, is_marked in roots:
        try:
            kind = next((kind for kind in stores.MARKS if is_marked(root, stores.MARKS[kind])), None)
        except _FAILURES as error:
            if not isinstance(error, OSError) and not _is_reachable(spark, f"{scheme}{base}"):
                return None  # reading the path reports the error
            _log.warning(
                "cannot check whether %s is a Delta, Iceberg or Hudi table (%s): its files are read as they are, "
                "deleted rows included",
                redact(root),
                error.strerror if isinstance(error, OSError) else first_line(error).rstrip("."),
            )
            continue
        if kind is not None:
            return TableFolder(kind, root, whole=root == f"{scheme}{rest.rstrip('/')}")
    return None


def _split_scheme(path: str) -> tuple[str, str]:
    """Split a URI into its scheme with host (empty for local files) and its path."""
    match = re.match(r"(?i)(file:(?://[^/]*(?=/))?)", path)
    if match:
        return "", path[match.end() :]
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*)?", path)
    return (match[0], path[match.end() :]) if match else ("", path)


def _is_reachable(spark: SparkSession, uri: str) -> bool:
    try:
        path_exists(spark, uri)
    except SPARK_ERRORS:
        return False
    return True


def path_exists(spark: SparkSession, uri: str) -> bool:
    """Check whether a path exists for Spark. Runs no action."""
    try:
        # Spark logs a stack trace for a single missing path, but not for two.
        spark.read.format("text").load([uri, uri]).schema  # noqa: B018  # analysis is lazy on Connect
    except PySparkException as error:
        if "PATH_NOT_FOUND" in get_condition(error):
            return False
        raise
    return True


FILE_FORMATS = ("parquet", "orc", "avro", "csv", "json", "text")
_RECURSIVE, _MERGE_SCHEMA = "recursiveFileLookup", "mergeSchema"
_SINGLE_FILE_SCHEMA = ("parquet", "orc")
"""Formats whose columns Spark reads from one file only, unless `mergeSchema` is set."""
_LAYOUT_ERROR = re.compile(r"UNABLE_TO_INFER_SCHEMA|conflicting[ _](directory|partition)", re.IGNORECASE)
"""Spark's errors about a folder layout that is not a table. Spark 3.5 has no error condition for some of them."""
_PLACEHOLDER_SCHEMA = T.StructType([T.StructField("_ndcg_spark_no_column", T.StringType())])
_VALUE_TEXTS = {
    "whole": re.compile(r"0|-?[1-9][0-9]*"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "time": re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?"),
    "timestamp_ntz": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?"),
}
"""The text that Spark writes for values of each type that it infers from folder names."""


def read_files(
    spark: SparkSession, path: str, kind: str, options: Mapping[str, str] | None = None, *, label: str | None = None
) -> DataFrame:
    """Read a table of files. Lazy. `kind` is Spark's name of the format, `label` the user's.

    A nightly table has the columns of all nights; they are null for nights without them. A partition column
    (`run=007`) is read as text if a number would lose digits: 007 and 7 are two runs. A path is refused if Spark
    would skip data files because of their folder. A column that some local Parquet files lack is marked, and refused
    when it is read.

    Spark cost: Spark's reader and a listing of the files. For a nightly table, a Spark job reads the footers of all
    files; footers of up to 2,000 local Parquet files are read in this process. Spark's errors are not changed.
    """
    options, location, is_merged = (
        dict(options or {}),
        stores.escape_path(path),
        _is_enabled(_MERGE_SCHEMA, options or {}),
    )
    reader = spark.read.format(kind).options(**options)
    lists_files = kind in FILE_FORMATS and not _is_enabled(_RECURSIVE, options)
    try:
        frame = reader.load(location)
        schema = frame.schema  # analysis is lazy on Connect
        if (
            kind in _SINGLE_FILE_SCHEMA
            and _MERGE_SCHEMA.lower() not in map(str.lower, options)
            and _is_nightly(schema)
        ):
            reader, is_merged = reader.option(_MERGE_SCHEMA, "true"), True
            frame = reader.load(location)
    except SPARK_ERRORS as error:
        if "TIMESTAMP(NANOS" in str(error):
            raise InputRefusedError(f"cannot read {label or kind} {redact(path)!r}: {NANOSECONDS}") from error
        if lists_files and _LAYOUT_ERROR.search(str(error)):
            _refuse_skipped_files(spark, path, _list_top_files(spark, path, options), options, label or kind)
        raise
    try:
        files = list_visible_files(frame) if lists_files else []
    except SPARK_ERRORS as error:
        if not is_unsupported(error):
            raise
        return frame  # the platform does not list the files that it reads
    if lists_files:
        _refuse_skipped_files(spark, path, files, options, label or kind)
    folders = {file.rpartition("/")[0] for file in files}
    missing = {} if kind != "parquet" or is_merged else _find_missing_columns(spark, frame.columns, files, folders)
    if not any("=" in folder for folder in folders):
        return _mark_missing_columns(frame, missing)
    columns = (
        spark.read.format(kind)
        .options(**options)
        .schema(_PLACEHOLDER_SCHEMA)
        .load(location)
        .drop(*_PLACEHOLDER_SCHEMA.names)
        .schema
    )
    text_columns = {
        field.name
        for field in columns
        if not _is_lossless(_list_folder_values(field.name, folders), field.dataType, spark)
    }
    fields = [
        T.StructField(field.name, T.StringType()) if field.name in text_columns else field for field in frame.schema
    ]
    return _mark_missing_columns(
        reader.schema(T.StructType(fields)).load(location) if text_columns else frame, missing
    )


def _find_missing_columns(
    spark: SparkSession, columns: Sequence[str], files: Sequence[str], folders: Iterable[str]
) -> dict[str, str]:
    """Return each column that is missing in a local file, with that file. Partition columns are ignored."""
    on_server = "connect" in type(spark).__module__
    if on_server or not 1 < len(files) <= stores.MAX_FILES or not all(file.startswith("file:") for file in files):
        return {}
    levels = (level for folder in folders for level in folder.split("/") if "=" in level)
    partition_columns = {unescape_name(level.partition("=")[0]).lower() for level in levels}
    exact = is_on(spark, "spark.sql.caseSensitive", "false")
    file_columns = [column for column in columns if column.lower() not in partition_columns]
    return find_missing_columns([file.removeprefix("file://") for file in files], file_columns, exact=exact)


def _mark_missing_columns(frame: DataFrame, missing: Mapping[str, str]) -> DataFrame:
    if not missing:
        return frame
    columns = [
        exact_col(column).alias(column, metadata={WITHOUT_IT: missing[column]})
        if column in missing
        else exact_col(column)
        for column in frame.columns
    ]
    return frame.select(*columns)


def list_files_below(reader: DataFrameReader, path: str) -> list[str]:
    """List the files below a path on all levels, as unescaped URIs. Runs no action."""
    # The text format has fixed columns, so Spark opens no file to infer them.
    return list_visible_files(reader.format("text").option(_RECURSIVE, "true").load(stores.escape_path(path)))


def list_visible_files(frame: DataFrame) -> list[str]:
    """List the files that a DataFrame reads, as unescaped URIs, without hidden files."""
    files = (unquote(uri) for uri in frame.inputFiles())
    return [file for file in files if not stores.is_hidden(file.rpartition("/")[2])]


def _is_enabled(option: str, options: Mapping[str, str]) -> bool:
    return any(name.lower() == option.lower() and text.lower() == "true" for name, text in options.items())


def _is_nightly(schema: T.StructType) -> bool:
    """Check whether the columns are those of slice folders that `ndcg_spark.tables` wrote, or of one night."""
    names = schema.fieldNames()
    return names[-1:] == ["slice"] and "dataset" in names


def _list_top_files(spark: SparkSession, path: str, options: Mapping[str, str]) -> list[str] | None:
    """List the files that Spark reads; None if it reads none because the folders' columns conflict."""
    try:
        return list_visible_files(spark.read.options(**options).format("text").load(stores.escape_path(path)))
    except SPARK_ERRORS:
        return None


def _refuse_skipped_files(
    spark: SparkSession, path: str, files_read: list[str] | None, options: Mapping[str, str], file_format: str
) -> None:
    """Raise if Spark skips data files below a path. It reads files at the top, or in `name=value` folders."""
    files = files_read or []
    if len({file.rpartition("/")[0] for file in files}) < 2 or stores.is_pattern(path):
        try:  # options may filter files by name or time
            files = list_files_below(spark.read.options(**options), path)
        except SPARK_ERRORS as error:
            if not is_unsupported(error):
                raise
            return  # the platform does not list files
    data_files = stores.select_data_files(files, lambda file: guess_file_format(file) == file_format)
    levels = None if stores.is_pattern(path) else stores.find_two_levels(data_files)
    shown_path = repr(redact(path))
    if levels is not None:
        raise InputRefusedError(
            f"{shown_path} has data files on two levels, such as {levels[0]!r} and {levels[1]!r}, and Spark skips "
            "some of them; move all files to one level, or set Spark's option recursiveFileLookup=true "
            "(folder names are then not columns)."
        )
    skipped = [] if files_read is None else sorted(set(data_files).difference(files_read))
    if skipped and files_read:
        pair = stores.strip_common_folder(min(files_read), skipped[0])
        raise InputRefusedError(
            f"Spark does not read all data files below {shown_path}: it reads {pair[0]!r} and skips {pair[1]!r}; "
            "use a path with files on one level, or set Spark's option recursiveFileLookup=true."
        )
    if skipped:
        raise InputRefusedError(
            f"Spark does not read the data files below {shown_path}, such as {skipped[0]!r}, because their "
            "folder names are not name=value; use the path of one folder."
        )


def _list_folder_values(column: str, folders: Iterable[str]) -> set[str]:
    """Return the values of a partition column. Spark uses the innermost of nested folders."""
    values = set()
    for folder in folders:
        levels = (part.partition("=") for part in reversed(folder.split("/")))
        texts = (unescape_name(text) for name, _, text in levels if unescape_name(name).lower() == column.lower())
        values.add(next(texts, stores.NULL_FOLDER_VALUE))  # stray files may be in other folders
    return values - {stores.NULL_FOLDER_VALUE}


def _is_lossless(texts: Iterable[str], data_type: T.DataType, spark: SparkSession) -> bool:
    """Check whether Spark would write each value as the same text that it was read from."""
    if isinstance(data_type, T.DoubleType):
        return all(map(_is_double_text, texts))
    if isinstance(data_type, T.TimestampType):
        zone = session_time_zone(spark)
        return all(_VALUE_TEXTS["timestamp_ntz"].fullmatch(text) and _is_existing_time(text, zone) for text in texts)
    type_name = (
        "whole" if isinstance(data_type, T.IntegralType | T.DecimalType) else data_type.typeName().partition("(")[0]
    )
    return type_name not in _VALUE_TEXTS or all(map(_VALUE_TEXTS[type_name].fullmatch, texts))


def _is_double_text(text: str) -> bool:
    """Check for the shortest digits, as Java writes them. -0.0 is rejected: 0.0 is the same key."""
    try:
        value = float(text) + 0.0
    except ValueError:  # Java also reads 1d and 0x1p3
        return False
    if not math.isfinite(value):
        return text in ("NaN", "Infinity", "-Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text == repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return text == f"{'-' * sign}{digits[0]}.{rest}E{int(exponent) + len(digits) - 1}"


def _is_existing_time(text: str, zone: str) -> bool:
    """Check that a local time exists in a time zone. Spark shifts times that are skipped in spring."""
    try:
        local_time = datetime.fromisoformat(text[:19]).replace(tzinfo=ZoneInfo(zone))
        round_trip = local_time.astimezone(timezone.utc).astimezone(local_time.tzinfo)
        return round_trip.replace(tzinfo=None) == local_time.replace(tzinfo=None)
    except (ValueError, KeyError, OverflowError):
        return True  # offsets have no gaps


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Read a table of Parquet files. Lazy; same cost as `read_files`.

    If Spark has no file system for an object store, Arrow lists the objects and reads the first footer in this
    process, and workers read the files, one task per object. Partition columns, structs, maps and timestamps without
    a time zone are not read then. A store that neither Spark nor Arrow can read is refused.
    """
    try:
        return read_files(spark, path, "parquet")
    except SPARK_ERRORS as error:
        reason = explain_missing_file_system(error, path)
        if reason is None or stores.parse_address(path) is None:
            raise
        return _read_in_workers(spark, path, reason)


def _read_in_workers(spark: SparkSession, path: str, reason: str) -> DataFrame:
    file = ""
    try:
        files = stores.list_files(path)
        if isinstance(files, str):
            raise InputRefusedError(f"cannot read parquet {path!r}: {files}; {reason}.")
        file = files[0]
        with open_parquet(file) as parquet_file:
            schema = to_spark_schema(parquet_file.metadata.schema.to_arrow_schema())
    except FileNotFoundError as error:
        raise InputRefusedError(f"there is no path {(file or path)!r}.") from error
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(
            f"cannot read parquet {path!r}: {stores.format_reason(error, file)}; {reason}."
        ) from error
    folder_column = stores.find_folder_column(path, files, schema.names)
    if folder_column is not None:
        raise InputRefusedError(
            f"column {folder_column!r} of {path!r} is both in the files and in folder names; {reason}."
        )
    numbers = spark.range(0, len(files), 1, len(files))
    return in_workers(numbers, read_objects, files, schema, schema=from_arrow_schema(schema))
