"""Check outputs before anything is computed: they can be written, and do not overlap inputs or other outputs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from ndcg_spark.core.failures import first_line, is_denied, is_unsupported, spark_errors
from ndcg_spark.core.redaction import redact
from ndcg_spark.core.schemas import convert_inside
from ndcg_spark.errors import NdcgSparkError, OutputRefusedError, get_message
from ndcg_spark.sources.references import guess_format
from ndcg_spark.sources.stores import (
    TableFolder,
    find_local_table_folder,
    format_reason,
    has_wildcards,
    is_hidden,
    is_pattern,
    parse_address,
    strip_file_scheme,
)
from ndcg_spark.tables.claims import LOCK_FOLDER, Reporter
from ndcg_spark.tables.kinds import COMMITTED, TABLE_KINDS, ColumnType, ExistingTable, Field, Growth, list_columns
from ndcg_spark.tables.places import (
    canonicalize,
    find_shared_folder,
    is_local,
    is_within,
    require_folder,
    resolve_spark_path,
)
from ndcg_spark.tables.slices import refuse_stamps
from ndcg_spark.tables.writing import convert_write_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

_log = logging.getLogger(__name__)
PATH_FORMATS = ("parquet",)
_NIGHT = r"run_date=\d{4,}-\d\d-\d\d"
_NIGHTS_PATTERN = "run_date=*/slice=*"
_MAX_SLICES_READ = 1000
"""Limit of slices to read, the newest first. With ten thousand runs a night, a listing of all takes minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedPlaces:
    """Places that an input or output of a job uses, so that no other output may overlap them; `name` is for messages.

    `folders` (with everything below them) and `files` are canonical. `patterns` are globs that new files and folders
    must not match, because the next run would read them.
    """

    name: str
    folders: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def touches(self, place: str) -> bool:
        """Check whether a write to a canonical place would change these places."""
        places = (*self.folders, *self.files)
        overlaps = any(is_within(place, other) or is_within(other, place) for other in places)
        return overlaps or any(_matches(place, pattern) for pattern in self.patterns)


def find_used_places(
    spark: SparkSession | None,
    name: str,
    reference: str,
    kind: str | None,
    frame: DataFrame | None,
    *,
    files: Iterable[str] = (),
) -> UsedPlaces:
    """Find the places that a frame reads. Lists its files, runs no action. Refuse if no place can be found.

    `reference` is its path, table or query. Without a frame (None), single files and unreachable places are ignored,
    as are files on platforms that do not list them. Without Spark, `files` are those that the input was opened with.
    """
    kind = kind or guess_format(reference)
    folders, patterns = frozenset[str](), tuple[str, ...]()
    places = frozenset(_resolve_files(files))
    unknown: Exception | None = None
    try:
        if kind == "table" and spark is not None:
            from ndcg_spark.tables.catalog import describe

            location = describe(spark, reference).get("location")
            folders = frozenset([canonicalize(location)] if location else [])
        elif kind != "sql":
            place = canonicalize(_resolve_reference(spark, reference))
            if is_pattern(reference):
                patterns = (place,)
            elif not is_local(place) or os.path.isdir(place):
                folders = frozenset([place])
    except spark_errors(NdcgSparkError) as error:
        unknown = None if frame is None else error
    try:
        places = places if frame is None else frozenset(_resolve_files(map(unquote, frame.inputFiles())))
    except spark_errors() as error:
        unknown = unknown or (None if is_unsupported(error) else error)
    if unknown is not None and not (folders or patterns or places):
        reason = get_message(unknown) if isinstance(unknown, NdcgSparkError) else first_line(unknown)
        raise OutputRefusedError(
            f"cannot find the location of {name}, which no output may replace: {reason.rstrip('.')}."
        ) from unknown
    # A remote file is not a folder.
    return UsedPlaces(name=name, folders=folders - places, files=places, patterns=patterns)


def _resolve_reference(spark: SparkSession | None, reference: str) -> str:
    try:
        return resolve_spark_path(spark, reference)
    except OutputRefusedError:
        if parse_address(reference) is None:
            raise
        return reference  # an object store that only workers can reach


def _resolve_files(paths: Iterable[str]) -> Iterator[str]:
    """Return the canonical places of files. Links of folders are resolved once per folder, for speed."""
    resolved: dict[str, str] = {}
    for path in paths:
        folder, slash, name = path.rpartition("/")
        if folder not in resolved:
            resolved[folder] = canonicalize(folder or slash).rstrip("/")
        place = f"{resolved[folder]}/{name}"
        yield os.path.realpath(place) if is_local(place) and os.path.islink(place) else place


def _matches(place: str, pattern: str) -> bool:
    """Check whether a glob matches a place or a folder around it, up to the braces of its parts."""
    part_patterns, parts = pattern.split("/"), place.split("/")
    pairs = zip(parts, part_patterns, strict=False)
    return len(parts) >= len(part_patterns) and all(
        fnmatchcase(part, re.sub(r"\{.*", "*", part_pattern)) for part, part_pattern in pairs
    )


def refuse_nested(place: str, reference: str, used_places: Sequence[UsedPlaces]) -> None:
    """Raise when writing to a canonical place would change what is read or otherwise written."""
    for places in used_places:
        if places.touches(place):
            raise OutputRefusedError(f"output {reference!r} overlaps {places.name}; choose another path or table.")


def check_output(
    spark: SparkSession | None,
    reference: str,
    kind: str | None,
    schema: T.StructType | pa.Schema,
    *,
    name: str = "an output",
    used_places: Sequence[UsedPlaces] = (),
    grow: bool = True,
    report: Reporter | None = None,
) -> UsedPlaces:
    """Refuse an output that cannot be written, or that this package did not write. Runs no action.

    Lists folders and reads schemas. Return the output's place, for the `used_places` of the next output. With `grow`,
    table and rows may lack each other's columns; `report` gets lines about these columns and about skipped checks.
    Without a session, the output must be a local folder.
    """
    kind = kind or guess_format(reference)
    with convert_write_errors(reference):  # folders may deny access
        if kind not in (*TABLE_KINDS, *PATH_FORMATS):
            raise OutputRefusedError(
                f"{reference!r}: outputs are written as {', '.join((*PATH_FORMATS, *TABLE_KINDS))}, not {kind!r}."
            )
        refuse_stamps(schema.names, reference)
        new_columns = (*list_columns(schema), ColumnType("dataset", "string"))
        if spark is None:
            require_folder(kind, canonicalize(reference), reference)
        if kind in TABLE_KINDS and spark is not None:
            from ndcg_spark.tables.catalog import check_table, locate_table

            _check_name(spark, reference, kind)
            place = locate_table(spark, reference)
            refuse_nested(canonicalize(place), reference, used_places)
            catalog_table = check_table(spark, reference, new_columns, kind, grow=grow)
            growth = Growth() if catalog_table is None else catalog_table.growth
            find_shared_folder(spark, place, reference)
        else:
            place = resolve_spark_path(spark, reference)
            refuse_nested(canonicalize(place), reference, used_places)
            growth = _check_folder(spark, place, reference, kind, new_columns, grow, report or _log.warning)
    if report is not None:
        for line in growth.format_lines(reference):
            report(line)
    return UsedPlaces(name=f"{name} {reference!r}", folders=frozenset([canonicalize(place)]))


def _check_folder(
    spark: SparkSession | None,
    place: str,
    reference: str,
    kind: str,
    new_columns: Sequence[ColumnType],
    grow: bool,
    report: Reporter,
) -> Growth:
    """Compare the columns of slices with the results. Refuse a folder with other files, or inside another table.

    Runs a Spark job that reads footers if there are several slices.
    """
    if has_wildcards(place):
        raise OutputRefusedError(
            f"{place!r} contains a wildcard (* ? [ ] {{ }} \\), so Spark would not find it; choose another path."
        )
    folder = find_shared_folder(spark, place, reference)
    table = _find_logged_table(spark, reference)
    if table is not None:
        raise OutputRefusedError(
            f"{reference!r} belongs to {table}; to write to it, create a catalog table "
            f"(CREATE TABLE ... USING {table.kind} LOCATION {table.root!r}) and name it, or write to another folder."
        )
    parent_table = (
        _find_remote_table_above(spark, place, report)
        if folder is None and spark is not None
        else _find_table_above(Path(place))
    )
    _refuse_inside(reference, parent_table)
    try:
        if folder is None and spark is not None:
            slices = _list_remote_slices(spark, place, reference, kind)
        else:
            slices = _list_local_slices(Path(place), reference, kind) if os.path.exists(place) else []
        if not slices:
            return Growth()
        columns: Iterable[Field]
        if spark is None:
            columns = _merge_columns([place.removeprefix("file:") for place in slices], reference, kind)
        else:
            columns = spark.read.format(kind).option("mergeSchema", "true").load(slices).schema
    except spark_errors() as error:
        raise OutputRefusedError(f"cannot read {reference!r} as {kind}: {first_line(error)}") from error
    return ExistingTable(name=repr(reference), schema=columns, hint="write to a new folder").compare(
        new_columns, grow=grow
    )


def _find_logged_table(spark: SparkSession | None, path: str) -> TableFolder | None:
    """Return the Delta, Iceberg or Hudi table that contains a path, or None."""
    if spark is not None:
        from ndcg_spark.sources.folders import find_table_folder

        return find_table_folder(spark, path)
    return find_local_table_folder(strip_file_scheme(path))


def _merge_columns(folders: Sequence[str], reference: str, kind: str) -> tuple[ColumnType, ...]:
    """Merge the columns of all files in some folders, read from their footers, as Spark does."""
    merged: dict[str, ColumnType] = {}
    previous: tuple[ColumnType, ...] = ()
    for path in (os.path.join(folder, name) for folder in folders for name in _list_visible(Path(folder))):
        try:
            status = os.stat(path)
            columns = _read_columns(path, status.st_size, status.st_mtime_ns)
        except (OSError, pa.ArrowException) as error:
            raise OutputRefusedError(f"cannot read {reference!r} as {kind}: {format_reason(error, path)}.") from error
        if columns is previous:
            continue
        previous = columns
        for column in columns:
            first = merged.setdefault(column.name, column)
            if first.kind != column.kind:
                raise OutputRefusedError(
                    f"cannot read {reference!r} as {kind}: column {column.name!r} is {column.kind} in {path}, and "
                    f"{first.kind} in other files."
                )
    return tuple(merged.values())


@lru_cache(maxsize=4 * _MAX_SLICES_READ)
def _read_columns(path: str, size: int, mtime: int) -> tuple[ColumnType, ...]:
    """Read the columns of a file. The steps of a night check the same run log and tables several times."""
    schema = parquet.read_metadata(path).schema
    leaves = (schema.column(number) for number in range(len(schema)))
    instants = tuple(f"{leaf.path}." for leaf in leaves if leaf.physical_type == "INT96")
    return _list_columns(schema.to_arrow_schema().remove_metadata(), instants)


@lru_cache
def _list_columns(fields: pa.Schema, instants: tuple[str, ...]) -> tuple[ColumnType, ...]:
    """List the columns of a Parquet file with Spark's types: INT96 is a timestamp with a time zone."""
    holds_instants = [any(path.startswith(f"{field.name}.") for path in instants) for field in fields]
    types = [
        convert_inside(field.type, _add_zone) if holds else field.type
        for field, holds in zip(fields, holds_instants, strict=True)
    ]
    return list_columns(field.with_type(spark_type) for field, spark_type in zip(fields, types, strict=True))


def _add_zone(arrow_type: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(arrow_type) else arrow_type


def _check_name(spark: SparkSession, reference: str, kind: str) -> None:
    if "/" in reference:
        location = f" USING {kind} LOCATION {reference!r}" if kind in COMMITTED else ""
        raise OutputRefusedError(
            f"{reference!r} is a path, but {kind} outputs are tables of the catalog: create one "
            f"(CREATE TABLE ...{location}) and name it."
        )
    if kind in COMMITTED and not spark.catalog.tableExists(reference):
        try:
            spark.read.format(kind).load(f"/{LOCK_FOLDER}/none").schema  # noqa: B018  # analysis is lazy on Connect
        except spark_errors() as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                raise OutputRefusedError(
                    f"this Spark has no {kind.capitalize()}, so table {reference!r} cannot be created; start Spark "
                    f"with the {kind.capitalize()} package, or choose another format."
                ) from error


def refuse_inside_table(path: str) -> None:
    _refuse_inside(path, _find_table_above(Path(os.path.realpath(path))))


def _refuse_inside(reference: str, table: str | None) -> None:
    if table is not None:
        raise OutputRefusedError(
            f"{reference!r} is inside {table!r}, which contains nights of another table ({_NIGHTS_PATTERN}); "
            "choose a path outside of it."
        )


def _find_table_above(place: Path) -> str | None:
    """Return the nearest folder above a place that contains nights of a table, or None."""
    return next((str(folder) for folder in place.parents if _has_nights(folder)), None)


def _has_nights(folder: Path) -> bool:
    nights = (name for name in _list_names(folder) if name.startswith("run_date="))
    return any(name.startswith("slice=") for night in nights for name in _list_names(folder / night))


def _list_names(folder: Path) -> list[str]:
    """List the names in a folder; none if it does not exist or denies access."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _find_remote_table_above(spark: SparkSession, place: str, report: Reporter) -> str | None:
    """Like `_find_table_above`, with Spark's globs, which list each folder above the place once."""
    from ndcg_spark.sources.folders import path_exists

    root = re.match(r"(?:[^/:]+:(?://[^/]*)?)?", place)[0]  # type: ignore[index]  # matches anything
    path = place.removeprefix(root)
    while "/" in path:
        path = path.rpartition("/")[0]
        try:
            if path_exists(spark, f"{root or 'file:'}{path}/{_NIGHTS_PATTERN}"):
                return f"{root}{path}"
        except spark_errors() as error:
            if not is_denied(error):  # parent folders often deny listing
                report(
                    f"warning: cannot check whether {redact(place)!r} is inside another table, because "
                    f"{redact(root + path)!r} cannot be listed: {first_line(error)}"
                )
                return None
    return None


def _list_local_slices(folder: Path, reference: str, kind: str) -> list[str]:
    """List the slices that have files, the newest night first. Refuse other files and folders."""
    nights = _list_visible(folder)
    for night in nights:
        _refuse_foreign(night, reference, kind, is_folder=(folder / night).is_dir())
    names = (f"{night}/{name}" for night in reversed(nights) for name in _list_visible(folder / night))
    slices = []
    for name in islice(names, _MAX_SLICES_READ):
        _refuse_foreign(name, reference, kind, is_folder=(folder / name).is_dir())
        files = _list_visible(folder / name)
        for file in files:
            _refuse_foreign(f"{name}/{file}", reference, kind)
        if files:
            slices.append(f"file:{folder / name}")
    return slices


def _list_visible(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not is_hidden(name))


def _list_remote_slices(spark: SparkSession, place: str, reference: str, kind: str) -> list[str]:
    """Like `_list_local_slices`, with Spark's listing of all files."""
    from ndcg_spark.sources.folders import list_files_below, path_exists

    if not path_exists(spark, place):
        return []
    names = [
        canonicalize(uri).removeprefix(canonicalize(place)).lstrip("/") for uri in list_files_below(spark.read, place)
    ]
    for name in names:
        _refuse_foreign(name, reference, kind)
    slices = sorted({name.rpartition("/")[0] for name in names}, reverse=True)
    return [f"{place}/{name}" for name in slices[:_MAX_SLICES_READ]]


def _refuse_foreign(name: str, reference: str, kind: str, *, is_folder: bool = False) -> None:
    """Raise if a path below a table is not a night, a slice, or a file in a slice."""
    parts = name.split("/")
    levels = (_NIGHT, "slice=.*", rf".*\.{kind}(\.\w+)?")
    fits = all(re.fullmatch(level, part, re.DOTALL) for level, part in zip(levels, parts, strict=False))
    if not fits or len(parts) > len(levels) or is_folder != (len(parts) < len(levels)):
        raise OutputRefusedError(
            f"{reference!r} contains {name!r}, but nightly tables contain only {kind} files in "
            "run_date=.../slice=...; write to a new folder."
        )
