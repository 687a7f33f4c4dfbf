"""Folders of files that Spark reads, and folders of tables that keep a log of their files (Delta, Iceberg, Hudi)."""

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

from ndcg_spark.core.columns import WITHOUT_IT, named
from ndcg_spark.core.failures import SPARK_ERRORS, condition_of, first_line, is_unsupported, no_file_system
from ndcg_spark.core.redaction import redacted
from ndcg_spark.core.session import is_on, session_time_zone
from ndcg_spark.core.workers import in_workers
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources import stores
from ndcg_spark.sources.parquet import NANOSECONDS, files_without, opened, plain_schema, read_objects
from ndcg_spark.sources.references import format_of_ending
from ndcg_spark.sources.stores import TableFolder, unescaped

_log = logging.getLogger(__name__)
DATA_FORMATS = ("parquet", "orc", "avro")
_FAILURES: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
_GLOB = re.compile(r"[*?\[{]")


def table_folder_of(spark: SparkSession, path: str) -> TableFolder | None:
    """Find the table whose files a path or pattern leads to; None if there is none. Looks for files, runs no action.

    Above a place that only Spark reaches, only folders of partitions and data files are looked into.
    """
    scheme, rest = _split(path)
    fixed = _GLOB.split(rest)[0] if stores.is_pattern(path) else rest
    base = (fixed if fixed == rest else fixed.rpartition("/")[0]).rstrip("/")
    base = base or ("/" if rest.startswith("/") else ".")

    def has(root: str, mark: str) -> bool:
        # Some engines find whatever they are asked for, so that a find says nothing.
        return is_there(spark, f"{root}/{mark}") and not is_there(spark, f"{root}/{mark}-{uuid.uuid4().hex}")

    roots: list[tuple[str, Callable[[str, str], bool]]] = []
    if not scheme:
        roots += [(root, stores.is_marked) for root in stores.folders_above(base)]
    if scheme or not os.path.exists(base):
        roots += [(f"{scheme}{root}", has) for root in stores.likely_roots(base)]
    for root, is_marked in roots:
        try:
            kind = next((kind for kind in stores.MARKS if is_marked(root, stores.MARKS[kind])), None)
        except _FAILURES as error:
            if not isinstance(error, OSError) and not _is_reached(spark, f"{scheme}{base}"):
                return None  # whoever reads it says so
            _log.warning(
                "whether %s is a Delta, Iceberg or Hudi table is unknown (%s): files below it are read as they are, "
                "and deleted rows would be read, too",
                redacted(root),
                error.strerror if isinstance(error, OSError) else first_line(error).rstrip("."),
            )
            continue
        if kind is not None:
            return TableFolder(kind, root, whole=root == f"{scheme}{rest.rstrip('/')}")
    return None


def _split(path: str) -> tuple[str, str]:
    """Scheme and host of a URI, empty for files of this machine; and the path."""
    match = re.match(r"(?i)(file:(?://[^/]*(?=/))?)", path)
    if match:
        return "", path[match.end() :]
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*)?", path)
    return (match[0], path[match.end() :]) if match else ("", path)


def _is_reached(spark: SparkSession, uri: str) -> bool:
    try:
        is_there(spark, uri)
    except SPARK_ERRORS:
        return False
    return True


def is_there(spark: SparkSession, uri: str) -> bool:
    """Check that Spark finds a path. Runs no action."""
    try:
        # Twice, as Spark logs a stack trace when a single path is not there.
        spark.read.format("text").load([uri, uri]).schema  # noqa: B018  # analysis is lazy on Connect
    except PySparkException as error:
        if "PATH_NOT_FOUND" in condition_of(error):
            return False
        raise
    return True


FILE_FORMATS = ("parquet", "orc", "avro", "csv", "json", "text")
_ALL_LEVELS, _MERGE = "recursiveFileLookup", "mergeSchema"
_OF_ONE_FILE = ("parquet", "orc")
"""Formats of which Spark reads the columns of one file only, unless it is told to merge those of all."""
_LAYOUT = re.compile(r"UNABLE_TO_INFER_SCHEMA|conflicting[ _](directory|partition)", re.IGNORECASE)
"""What Spark says of folders that it cannot make a table of; Spark 3.5 has no condition for all of it."""
_NO_COLUMN = T.StructType([T.StructField("_ndcg_spark_no_column", T.StringType())])
_TEXTS = {
    "whole": re.compile(r"0|-?[1-9][0-9]*"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "time": re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?"),
    "timestamp_ntz": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*[1-9])?"),
}
"""How Spark writes values of the types that it finds in names of folders."""


def read_files(
    spark: SparkSession, path: str, kind: str, options: Mapping[str, str] | None = None, *, called: str | None = None
) -> DataFrame:
    """Read a table of files. Lazy. `kind` is Spark's name of the format, `called` the user's.

    A nightly table has the columns of all nights, null where a night lacks them. A column of folder names (`run=007`)
    is text if a name is not the text of its value: 007 and 7 are two runs. A path is refused if Spark would leave out
    data files because of their folder. Of local Parquet files, a column that some lack is marked, and refused where
    it is read.

    Spark cost: that of Spark's reader and a listing of the files. For a nightly table, a job reads the footers of all
    files; those of up to 2,000 local Parquet files are read in this process. Errors of Spark pass unchanged.
    """
    options, place, merges = dict(options or {}), stores.escaped(path), _is_asked(_MERGE, options or {})
    reader = spark.read.format(kind).options(**options)
    of_files = kind in FILE_FORMATS and not _is_asked(_ALL_LEVELS, options)
    try:
        frame = reader.load(place)
        schema = frame.schema  # analysis is lazy on Connect
        if kind in _OF_ONE_FILE and _MERGE.lower() not in map(str.lower, options) and _is_nightly(schema):
            reader, merges = reader.option(_MERGE, "true"), True
            frame = reader.load(place)
    except SPARK_ERRORS as error:
        if "TIMESTAMP(NANOS" in str(error):
            raise InputRefusedError(f"cannot read {called or kind} {redacted(path)!r}: {NANOSECONDS}") from error
        if of_files and _LAYOUT.search(str(error)):
            _refuse_lost_files(spark, path, _top_files(spark, path, options), options, called or kind)
        raise
    try:
        read = visible_files(frame) if of_files else []
    except SPARK_ERRORS as error:
        if not is_unsupported(error):
            raise
        return frame  # the platform does not say which files it reads
    if of_files:
        _refuse_lost_files(spark, path, read, options, called or kind)
    folders = {name.rpartition("/")[0] for name in read}
    lacking = {} if kind != "parquet" or merges else _lacking(spark, frame.columns, read, folders)
    if not any("=" in folder for folder in folders):
        return _with_marks(frame, lacking)
    columns = spark.read.format(kind).options(**options).schema(_NO_COLUMN).load(place).drop(*_NO_COLUMN.names).schema
    texts = {one.name for one in columns if not _are_texts(_values_of(one.name, folders), one.dataType, spark)}
    fields = [T.StructField(one.name, T.StringType()) if one.name in texts else one for one in frame.schema]
    return _with_marks(reader.schema(T.StructType(fields)).load(place) if texts else frame, lacking)


def _lacking(
    spark: SparkSession, columns: Sequence[str], files: Sequence[str], folders: Iterable[str]
) -> dict[str, str]:
    """Find columns that a local file lacks, and the file; columns of folders are in no file."""
    on_server = "connect" in type(spark).__module__
    if on_server or not 1 < len(files) <= stores.MAX_FILES or not all(name.startswith("file:") for name in files):
        return {}
    parts = (part for folder in folders for part in folder.split("/") if "=" in part)
    in_folders = {unescaped(part.partition("=")[0]).lower() for part in parts}
    exact = is_on(spark, "spark.sql.caseSensitive", "false")
    in_files = [name for name in columns if name.lower() not in in_folders]
    return files_without([name.removeprefix("file://") for name in files], in_files, exact=exact)


def _with_marks(frame: DataFrame, lacking: Mapping[str, str]) -> DataFrame:
    if not lacking:
        return frame
    chosen = [
        named(name).alias(name, metadata={WITHOUT_IT: lacking[name]}) if name in lacking else named(name)
        for name in frame.columns
    ]
    return frame.select(*chosen)


def files_below(reader: DataFrameReader, path: str) -> list[str]:
    """List the files below a path on all levels, as URIs in which nothing is escaped. Runs no action."""
    # As text no file is opened to find out its columns.
    return visible_files(reader.format("text").option(_ALL_LEVELS, "true").load(stores.escaped(path)))


def visible_files(frame: DataFrame) -> list[str]:
    """List the files that rows of a table may come from, as URIs in which nothing is escaped."""
    found = (unquote(uri) for uri in frame.inputFiles())
    return [name for name in found if not stores.is_hidden(name.rpartition("/")[2])]


def _is_asked(option: str, options: Mapping[str, str]) -> bool:
    return any(name.lower() == option.lower() and text.lower() == "true" for name, text in options.items())


def _is_nightly(schema: T.StructType) -> bool:
    """Check for folders of slices, as `ndcg_spark.tables` stores them, or those of one night."""
    names = schema.fieldNames()
    return names[-1:] == ["slice"] and "dataset" in names


def _top_files(spark: SparkSession, path: str, options: Mapping[str, str]) -> list[str] | None:
    """List the files that Spark reads; None if folders contradict each other, and it reads none."""
    try:
        return visible_files(spark.read.options(**options).format("text").load(stores.escaped(path)))
    except SPARK_ERRORS:
        return None


def _refuse_lost_files(
    spark: SparkSession, path: str, read: list[str] | None, options: Mapping[str, str], kind: str
) -> None:
    """Raise if Spark leaves out data files below a path: it reads those at the top, or those of all `day=1`."""
    found = read or []
    if len({name.rpartition("/")[0] for name in found}) < 2 or stores.is_pattern(path):
        try:  # options may leave out files by name or time
            found = files_below(spark.read.options(**options), path)
        except SPARK_ERRORS as error:
            if not is_unsupported(error):
                raise
            return  # the platform does not list files
    data = stores.data_files(found, lambda name: format_of_ending(name) == kind)
    levels = None if stores.is_pattern(path) else stores.two_levels(data)
    shown = repr(redacted(path))
    if levels is not None:
        raise InputRefusedError(
            f"{shown} has data files on two levels, as {levels[0]!r} and {levels[1]!r}, of which Spark leaves some "
            "out; move all to one level, or read them with the option recursiveFileLookup=true of Spark's reader "
            "(names of folders are no columns then)."
        )
    lost = [] if read is None else sorted(set(data).difference(read))
    if lost and read:
        names = stores.below_common_folder(min(read), lost[0])
        raise InputRefusedError(
            f"Spark does not read all data files below {shown}: it reads {names[0]!r} and leaves out {names[1]!r}; "
            "use a path of files on one level, or the option recursiveFileLookup=true of Spark's reader."
        )
    if lost:
        raise InputRefusedError(
            f"Spark does not read the data files below {shown}, such as {lost[0]!r}, as names of their folders are "
            "not name=value; use the path of one folder."
        )


def _values_of(column: str, folders: Iterable[str]) -> set[str]:
    """Values of a column in names of folders. Of several folders of that name Spark takes the innermost."""
    found = set()
    for folder in folders:
        parts = (part.partition("=") for part in reversed(folder.split("/")))
        texts = (unescaped(text) for name, _, text in parts if unescaped(name).lower() == column.lower())
        found.add(next(texts, stores.NO_VALUE))  # stray files lie in other folders
    return found - {stores.NO_VALUE}


def _are_texts(texts: Iterable[str], kind: T.DataType, spark: SparkSession) -> bool:
    """Check that each text is how Spark writes the value that it reads."""
    if isinstance(kind, T.DoubleType):
        return all(map(_is_text_of_double, texts))
    if isinstance(kind, T.TimestampType):
        zone = session_time_zone(spark)
        return all(_TEXTS["timestamp_ntz"].fullmatch(text) and _is_on_the_clock(text, zone) for text in texts)
    name = "whole" if isinstance(kind, T.IntegralType | T.DecimalType) else kind.typeName().partition("(")[0]
    return name not in _TEXTS or all(map(_TEXTS[name].fullmatch, texts))


def _is_text_of_double(text: str) -> bool:
    """Check for the shortest digits as Java writes them; of the two zeros, which are one key, only 0.0 is a text."""
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


def _is_on_the_clock(text: str, zone: str) -> bool:
    """Check that clocks of a zone show a time: Spark moves those that are skipped in spring."""
    try:
        shown = datetime.fromisoformat(text[:19]).replace(tzinfo=ZoneInfo(zone))
        again = shown.astimezone(timezone.utc).astimezone(shown.tzinfo)
        return again.replace(tzinfo=None) == shown.replace(tzinfo=None)
    except (ValueError, KeyError, OverflowError):
        return True  # offsets have no gaps


def read_parquet(spark: SparkSession, path: str) -> DataFrame:
    """Read a table of Parquet files. Lazy; costs as `read_files`.

    Where Spark has no file system for an object store, Arrow lists the objects and reads the first footer in this
    process, and workers read the rest, one task an object, without columns in folder names, structs, maps, and
    timestamps without a time zone. A store that neither reaches is refused.
    """
    try:
        return read_files(spark, path, "parquet")
    except SPARK_ERRORS as error:
        lacks = no_file_system(error, path)
        if lacks is None or stores.address_of(path) is None:
            raise
        return _read_by_workers(spark, path, lacks)


def _read_by_workers(spark: SparkSession, path: str, lacks: str) -> DataFrame:
    at = ""
    try:
        listed = stores.list_files(path)
        if isinstance(listed, str):
            raise InputRefusedError(f"cannot read parquet {path!r}: {listed}; {lacks}.")
        at = listed[0]
        with opened(at) as first:
            schema = plain_schema(first.metadata.schema.to_arrow_schema())
    except FileNotFoundError as error:
        raise InputRefusedError(f"there is no path {(at or path)!r}.") from error
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(f"cannot read parquet {path!r}: {stores.reason_of(error, at)}; {lacks}.") from error
    in_folders = stores.column_of_folders(path, listed, schema.names)
    if in_folders is not None:
        raise InputRefusedError(f"column {in_folders!r} of {path!r} is in files and folder names; {lacks}.")
    numbers = spark.range(0, len(listed), 1, len(listed))
    return in_workers(numbers, read_objects, listed, schema, schema=from_arrow_schema(schema))
