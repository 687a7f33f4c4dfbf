"""Parquet files that workers read without Spark: parts, footers, and detection of changed files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark.core.arrow_tables import SPARK_TYPES
from ndcg_spark.errors import InputRefusedError, explain_missing_column, option
from ndcg_spark.sources.stores import find_file_system, format_reason, parse_address

SOURCE_HINT = f"{option('source', 'spark')} lets Spark read the files"
NANOSECONDS = (
    "it has timestamps in nanoseconds, which Spark does not read; write microseconds (pandas: to_parquet(..., "
    "coerce_timestamps='us')), or start Spark with --conf spark.sql.legacy.parquet.nanosAsLong=true, which reads "
    "them as bigint."
)
MAGIC = b"PAR1"
_TAIL_BYTES = 2**16
"""Bytes read first to get the footer. Most footers are shorter; a second request to a store takes about 50 ms."""
_INSTANT = pa.timestamp("us", "UTC")
_MAX_BATCH_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file when it was planned: size in bytes, version (ETag, or mtime in nanoseconds), digest of the footer."""

    path: str
    size: int
    version: str
    footer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The row groups of a file whose first byte is in [start, end)."""

    file: FileIdentity
    start: int
    end: int

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of the part. Refuse a file that changed after the evaluation was planned."""
        path = self.file.path
        with refuse_unreadable(path), open_parquet(path) as parquet_file:
            if parquet_file.identity != self.file:
                raise InputRefusedError(f"{path} changed after the evaluation was planned; evaluate again.")
            starts = enumerate(list_group_starts(parquet_file.metadata))
            groups = [number for number, start in starts if self.start <= start < self.end]
            for batch in read_row_groups(parquet_file, groups, list(columns), rows):
                typed = [batch.column(field.name).cast(field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(typed, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFooter:
    """The footer of a Parquet file. It is kept as bytes, because it takes several times the memory when parsed."""

    identity: FileIdentity
    content: bytes

    def parse(self) -> pq.FileMetaData:
        return pq.read_metadata(pa.BufferReader(self.content))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """An open Parquet file and its footer."""

    file: Any
    footer: FileFooter
    metadata: pq.FileMetaData

    @property
    def identity(self) -> FileIdentity:
        return self.footer.identity


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSizes:
    """Approximate number of parts of all files together, and limits of a part's bytes. A task costs some 10 ms."""

    n_parts: int = 8
    smallest: int = 2**22
    largest: int = 2**28


PART_SIZES = PartSizes()


@contextmanager
def open_parquet(path: str) -> Iterator[OpenedFile]:
    """Open a Parquet file and read its footer. Raise an OSError for other files. Costs two requests to a store."""
    store, inside = find_file_system(path)
    with store.open_input_file(inside) as file:
        size = file.size()
        tail = _read_tail(file, size, _TAIL_BYTES)
        if len(tail) < 8 or tail[-4:] != MAGIC:
            raise OSError(f"{path} is not a Parquet file")
        length = 8 + int.from_bytes(tail[-8:-4], "little")
        content = (tail if length <= len(tail) else _read_tail(file, size, length))[-length:]
        headers = {key.lower(): value for key, value in (file.metadata() or {}).items()}
        version = headers.get("etag") or headers.get("last-modified")
        version_text = (
            str(store.get_file_info(inside).mtime_ns) if version is None else version.decode(errors="replace")
        )
        identity = FileIdentity(path, size, version_text, hashlib.sha256(content).hexdigest()[:16])
        footer = FileFooter(identity=identity, content=content)
        yield OpenedFile(file=file, footer=footer, metadata=footer.parse())


def _read_tail(file: Any, size: int, length: int) -> bytes:
    file.seek(max(0, size - length))
    return bytes(file.read())


def split_files(files: list[FileIdentity], sizes: PartSizes = PART_SIZES) -> tuple[FilePart, ...]:
    """Split files into parts. A part holds rows of one file only."""
    n_bytes = sum(file.size for file in files)
    step = max(sizes.smallest, min(sizes.largest, -(-n_bytes // sizes.n_parts)))
    return tuple(
        FilePart(file=file, start=start, end=min(start + step, file.size))
        for file in files
        for start in range(0, file.size, step)
    )


@contextmanager
def refuse_unreadable(path: str) -> Iterator[None]:
    """Raise an InputRefusedError that names the file for Arrow's errors about it."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputRefusedError(
            f"cannot read {path}: it no longer exists; evaluate again, or {SOURCE_HINT}."
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(f"cannot read {path}: {format_reason(error)}; {SOURCE_HINT}.") from error


def read_row_groups(
    parquet_file: OpenedFile, groups: list[int], columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Read columns of row groups. In an object store, adjacent ranges are read with one request."""
    is_remote = parse_address(parquet_file.identity.path) is not None
    read = partial(pq.ParquetFile, pre_buffer=is_remote, coerce_int96_timestamp_unit="us")
    with read(parquet_file.file, metadata=parquet_file.metadata) as file:
        # Prefetched bytes stay in memory until the last row group of a call is read.
        for selected in [[group] for group in groups] if is_remote else [groups]:
            yield from file.iter_batches(rows, row_groups=selected, columns=columns, use_threads=False)


def list_group_starts(metadata: pq.FileMetaData) -> list[int]:
    """Return the offset of the first byte of each row group."""
    starts = []
    for group in range(metadata.num_row_groups):
        column = metadata.row_group(group).column(0)
        dictionary = column.dictionary_page_offset
        starts.append(column.data_page_offset if dictionary is None else min(dictionary, column.data_page_offset))
    return starts


def to_spark_type(arrow_type: pa.DataType) -> pa.DataType | None:
    """Return the type that Spark gets for a column; None if workers cannot read it."""
    types = pa.types
    if types.is_dictionary(arrow_type):
        return to_spark_type(arrow_type.value_type)
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        inner = to_spark_type(arrow_type.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_string(arrow_type) or types.is_large_string(arrow_type):
        return pa.string()
    if types.is_binary(arrow_type) or types.is_large_binary(arrow_type):
        return pa.binary()
    if types.is_timestamp(arrow_type):
        return _INSTANT if arrow_type.tz else None  # without a zone, it is an instant in files of old writers only
    unchanged = (types.is_signed_integer, types.is_boolean, types.is_float32, types.is_float64, types.is_date32)
    return arrow_type if types.is_decimal128(arrow_type) or any(holds(arrow_type) for holds in unchanged) else None


def to_spark_schema(schema: pa.Schema) -> pa.Schema:
    """Select the columns that workers can read, with the types that Spark gets."""
    kinds = [(field.name, to_spark_type(field.type)) for field in schema]
    return pa.schema([(name, kind) for name, kind in kinds if kind is not None])


def read_objects(
    batches: Iterator[pa.RecordBatch], paths: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read files by number. All files must have the columns of the first."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _read_object(paths[number], schema)


def _read_object(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with refuse_unreadable(path), open_parquet(path) as parquet_file:
        obstacle = describe_mismatch(
            path,
            to_spark_schema(parquet_file.metadata.schema.to_arrow_schema()),
            {column: column for column in schema.names},
            schema,
        )
        if obstacle is not None:
            raise InputRefusedError(f"{obstacle}; Spark reads such tables only with its own connector to the store.")
        groups = list(range(parquet_file.metadata.num_row_groups))
        for batch in read_row_groups(parquet_file, groups, schema.names, _MAX_BATCH_ROWS):
            # The cast of timestamps is safe: truncated nanoseconds could make two values equal.
            typed = [
                batch.column(field.name).cast(field.type, safe=pa.types.is_timestamp(field.type)) for field in schema
            ]
            yield pa.RecordBatch.from_arrays(typed, schema=schema)


def describe_mismatch(path: str, file_schema: pa.Schema, columns: Mapping[str, str], schema: pa.Schema) -> str | None:
    """Describe in a clause the first column of a file that differs from the table; None if all match."""
    for canonical, column in columns.items():
        matches = [field for field in file_schema if field.name.lower() == column.lower()]
        expected_type = schema.field(canonical).type
        if len(matches) != 1 or matches[0].name != column:
            return f"column {column!r} is not in {path}, or is spelled differently"
        file_type = matches[0].type
        if pa.types.is_dictionary(
            file_type
        ):  # pandas writes categories as dictionaries; a cast to the expected type decodes them
            file_type = file_type.value_type
        if pa.types.is_unsigned_integer(file_type) or pa.types.is_large_string(file_type):
            file_type = SPARK_TYPES[file_type]  # the type that Spark uses, which holds all of its values
        if file_type != expected_type:
            return f"column {column!r} of {path} is {file_type}, not {expected_type}"
    return None


ValueRange = tuple[Any, Any]
READ_THREADS = 8
"""Threads that read footers in a process, which mostly wait for input."""
FOOTER_SCHEMA = pa.schema([("number", pa.int64()), ("found", pa.string())])


@dataclass(frozen=True, slots=True)
class Footer:
    """A file, and its row groups or the reason that workers cannot read it."""

    identity: FileIdentity
    obstacle: str | None
    lacks: str | None
    """A column that the file lacks, whatever the case of its letters."""
    groups: list[tuple[int, ValueRange | None]]
    """Start of each row group, and the range of its query column (None: unknown)."""


def read_footers(paths: Sequence[str], columns: Mapping[str, str], schema: pa.Schema) -> list[Footer] | str:
    """Read footers of local files; or return a clause on why workers cannot read one of them.

    `columns` maps names of `schema` to names in the files. Ranges of row groups are those of the first column.
    """
    with ThreadPoolExecutor(READ_THREADS) as pool:
        return _refuse_obstacles(list(pool.map(lambda path: _read_footer(path, columns, schema), paths)))


def check_footers(footers: Sequence[FileFooter], columns: Mapping[str, str], schema: pa.Schema) -> list[Footer] | str:
    """Check footers that were already read; see `read_footers`."""
    return _refuse_obstacles([_check_footer(footer.identity, footer.parse(), columns, schema) for footer in footers])


def find_missing_columns(paths: Sequence[str], columns: Sequence[str], *, exact: bool) -> dict[str, str]:
    """Return each column that a readable file lacks, with the first such file. `exact` compares case, too."""

    def normalize_case(column: str) -> str:
        return column if exact else column.lower()

    def read_columns(path: str) -> set[str] | None:
        try:
            with open_parquet(path) as file:
                return set(map(normalize_case, file.metadata.schema.to_arrow_schema().names))
        except (OSError, pa.ArrowException):
            return None

    with ThreadPoolExecutor(READ_THREADS) as pool:
        columns_by_path = [
            (path, file_columns)
            for path, file_columns in zip(paths, pool.map(read_columns, paths), strict=True)
            if file_columns is not None
        ]
    missing = (
        (column, [path for path, file_columns in columns_by_path if normalize_case(column) not in file_columns])
        for column in columns
    )
    return {column: paths[0] for column, paths in missing if paths}


def send_footers(
    batches: Iterator[pa.RecordBatch], paths: Sequence[str], columns: Mapping[str, str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read footers of files by number, as JSON."""
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        with ThreadPoolExecutor(READ_THREADS) as pool:
            footers = list(pool.map(lambda number: _read_footer(paths[number], columns, schema), numbers))
        texts = [json.dumps(footer if isinstance(footer, str) else asdict(footer)) for footer in footers]
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(texts)], schema=FOOTER_SCHEMA)


def parse_footers(texts: Sequence[str]) -> list[Footer] | str:
    """Parse the rows of `send_footers`; or return a clause on why workers cannot read one of the files."""
    return _refuse_obstacles([_parse_footer(json.loads(text)) for text in texts])


def _parse_footer(footer: str | dict[str, Any]) -> Footer | str:
    if isinstance(footer, str):
        return footer
    groups = [(start, tuple(ends) if ends else None) for start, ends in footer["groups"]]
    return Footer(FileIdentity(**footer["identity"]), footer["obstacle"], footer["lacks"], groups)


def _refuse_obstacles(footers: Sequence[Footer | str]) -> list[Footer] | str:
    lacking = [footer for footer in footers if isinstance(footer, Footer) and footer.lacks is not None]
    if lacking and len(lacking) < len(footers):
        raise InputRefusedError(
            f"column {lacking[0].lacks!r} of the input {explain_missing_column(lacking[0].identity.path)}"
        )
    for footer in footers:
        if isinstance(footer, str) or footer.obstacle:
            return footer if isinstance(footer, str) else str(footer.obstacle)
    return [footer for footer in footers if isinstance(footer, Footer)]


def _read_footer(path: str, columns: Mapping[str, str], schema: pa.Schema) -> Footer | str:
    try:
        with open_parquet(path) as parquet_file:
            return _check_footer(parquet_file.identity, parquet_file.metadata, columns, schema)
    except (OSError, pa.ArrowException) as error:
        return f"a file cannot be read ({format_reason(error, path)})"


def _check_footer(
    identity: FileIdentity, metadata: pq.FileMetaData, columns: Mapping[str, str], schema: pa.Schema
) -> Footer:
    path = identity.path
    names = {column_name.lower() for column_name in metadata.schema.to_arrow_schema().names}
    lacks = next((column for column in columns.values() if column.lower() not in names), None)
    obstacle = describe_mismatch(path, metadata.schema.to_arrow_schema(), columns, schema)
    if b"org.apache.spark.legacyDateTime" in (metadata.metadata or {}) and pa.date32() in schema.types:
        obstacle = f"{path} has dates of an old calendar"
    groups: list[tuple[int, ValueRange | None]] = []
    if obstacle is None:
        paths = [metadata.schema.column(n).path for n in range(len(metadata.schema))]
        first = next(iter(columns.values()))
        for number, start in enumerate(list_group_starts(metadata)):
            statistics = metadata.row_group(number).column(paths.index(first)).statistics if first in paths else None
            min_max = statistics if statistics is not None and statistics.has_min_max else None
            ends = None if min_max is None else (min_max.min, min_max.max)
            groups.append((start, ends if ends is not None and isinstance(ends[0], int | str) else None))
    return Footer(identity, obstacle, lacks, groups)


def find_part_bounds(footers: Sequence[Footer], parts: Sequence[FilePart]) -> tuple[ValueRange, ...] | None:
    """Return for each part the open interval of query values that are in this part only; None if parts overlap.

    A query at an end of the interval may continue in the next part. None as an end: the interval is unbounded.
    """
    groups = {footer.identity.path: footer.groups for footer in footers}
    ranges: dict[int, ValueRange] = {}
    for number, part in enumerate(parts):
        inside = [value_range for start, value_range in groups[part.file.path] if part.start <= start < part.end]
        if None in inside:
            return None
        if inside:
            ranges[number] = (min(group[0] for group in inside if group), max(group[1] for group in inside if group))
    if len({type(bound) for value_range in ranges.values() for bound in value_range}) > 1:
        return None
    bounds: list[ValueRange] = [(None, None)] * len(parts)
    for before, after in pairwise(sorted(ranges, key=ranges.__getitem__)):
        highest, lowest = ranges[before][1], ranges[after][0]
        if highest > lowest:
            return None
        bounds[before] = (bounds[before][0], lowest)
        bounds[after] = (highest, bounds[after][1])
    return tuple(bounds)
