"""Parquet files that workers read themselves: their parts, their footers, and whether they changed."""

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

from ndcg_spark.core.arrow_tables import PLAIN
from ndcg_spark.errors import InputRefusedError, lacks_column, option
from ndcg_spark.sources.stores import address_of, file_system, reason_of

WAY_OUT = f"{option('source', 'spark')} leaves reading to Spark"
NANOSECONDS = (
    "it has timestamps in nanoseconds, which Spark does not read; write microseconds (pandas: to_parquet(..., "
    "coerce_timestamps='us')), or start Spark with --conf spark.sql.legacy.parquet.nanosAsLong=true, which takes "
    "them for bigint."
)
MAGIC = b"PAR1"
_END = 2**16
"""Bytes read for the footer at first: most footers are shorter, and a request to a store takes some 50 ms."""
_INSTANT = pa.timestamp("us", "UTC")
_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A planned file: bytes, version (ETag, or nanoseconds since 1970 of its change), digest of the footer."""

    path: str
    size: int
    version: str
    footer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The row groups of a file that start at one of the bytes from `start` up to, not including, `end`."""

    file: FileIdentity
    start: int
    end: int

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of the part. Refuses a file that changed after the evaluation was planned."""
        path = self.file.path
        with refusing_unreadable(path), opened(path) as found:
            if found.identity != self.file:
                raise InputRefusedError(f"{path} changed after the evaluation was planned; evaluate again.")
            starts = enumerate(starts_of_groups(found.metadata))
            groups = [at for at, start in starts if self.start <= start < self.end]
            for batch in batches_of(found, groups, list(columns), rows):
                typed = [batch.column(one.name).cast(one.type) for one in schema]
                yield pa.RecordBatch.from_arrays(typed, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """A Parquet file that is open, and its footer."""

    file: Any
    identity: FileIdentity
    metadata: pq.FileMetaData


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSizes:
    """How many parts all files have in about, and the bytes of a part. A task takes some hundredths of a second."""

    wanted: int = 8
    smallest: int = 2**22
    largest: int = 2**28


PART_SIZES = PartSizes()


@contextmanager
def opened(path: str) -> Iterator[OpenedFile]:
    """Open a Parquet file and read its footer; an OSError if it is none. Two requests to an object store."""
    store, inside = file_system(path)
    with store.open_input_file(inside) as file:
        size = file.size()
        end = _end_of(file, size, _END)
        if len(end) < 8 or end[-4:] != MAGIC:
            raise OSError(f"{path} is not a Parquet file")
        length = 8 + int.from_bytes(end[-8:-4], "little")
        footer = (end if length <= len(end) else _end_of(file, size, length))[-length:]
        known = {name.lower(): value for name, value in (file.metadata() or {}).items()}
        version = known.get("etag") or known.get("last-modified")
        named = str(store.get_file_info(inside).mtime_ns) if version is None else version.decode(errors="replace")
        identity = FileIdentity(path, size, named, hashlib.sha256(footer).hexdigest()[:16])
        yield OpenedFile(file=file, identity=identity, metadata=pq.read_metadata(pa.BufferReader(footer)))


def _end_of(file: Any, size: int, length: int) -> bytes:
    file.seek(max(0, size - length))
    return bytes(file.read())


def identify(path: str) -> FileIdentity:
    """Read the identity of a file; an OSError if it is not Parquet."""
    with opened(path) as found:
        return found.identity


def parts_of(files: list[FileIdentity], sizes: PartSizes = PART_SIZES) -> tuple[FilePart, ...]:
    """Divide files into parts. A part never holds rows of two files."""
    n_bytes = sum(file.size for file in files)
    step = max(sizes.smallest, min(sizes.largest, -(-n_bytes // sizes.wanted)))
    return tuple(
        FilePart(file=file, start=start, end=min(start + step, file.size))
        for file in files
        for start in range(0, file.size, step)
    )


@contextmanager
def refusing_unreadable(path: str) -> Iterator[None]:
    """Turn Arrow's errors about a file into a refusal that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputRefusedError(f"cannot read {path}: it is gone; evaluate again, or {WAY_OUT}.") from error
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(f"cannot read {path}: {reason_of(error)}; {WAY_OUT}.") from error


def batches_of(found: OpenedFile, groups: list[int], columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Read columns of row groups. Of an object store, ranges that lie close together are one request."""
    remote = address_of(found.identity.path) is not None
    read = partial(pq.ParquetFile, pre_buffer=remote, coerce_int96_timestamp_unit="us")
    with read(found.file, metadata=found.metadata) as file:
        # What was fetched ahead is held until the last row group of a call is read.
        for some in [[one] for one in groups] if remote else [groups]:
            yield from file.iter_batches(rows, row_groups=some, columns=columns, use_threads=False)


def starts_of_groups(metadata: pq.FileMetaData) -> list[int]:
    starts = []
    for group in range(metadata.num_row_groups):
        first = metadata.row_group(group).column(0)
        dictionary = first.dictionary_page_offset
        starts.append(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))
    return starts


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that Spark gets for a column; None if it gets none."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        inner = plain_type(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return _INSTANT if kind.tz else None  # without a zone, files of old writers mean instants, others do not
    same = (types.is_signed_integer, types.is_boolean, types.is_float32, types.is_float64, types.is_date32)
    return kind if types.is_decimal128(kind) or any(holds(kind) for holds in same) else None


def plain_schema(found: pa.Schema) -> pa.Schema:
    """Select the columns that Spark can get, with the types that it gets."""
    kinds = [(one.name, plain_type(one.type)) for one in found]
    return pa.schema([(name, kind) for name, kind in kinds if kind is not None])


def read_objects(
    batches: Iterator[pa.RecordBatch], paths: Sequence[str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read files by number; all must have the columns of the first."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _rows(paths[number], schema)


def _rows(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with refusing_unreadable(path), opened(path) as found:
        obstacle = misfit(
            path, plain_schema(found.metadata.schema.to_arrow_schema()), {name: name for name in schema.names}, schema
        )
        if obstacle is not None:
            raise InputRefusedError(f"{obstacle}; only Spark's own connector to the store reads such tables.")
        groups = list(range(found.metadata.num_row_groups))
        for batch in batches_of(found, groups, schema.names, _ROWS):
            # Of timestamps no nanoseconds are cut off, which could make two of them one.
            typed = [batch.column(one.name).cast(one.type, safe=pa.types.is_timestamp(one.type)) for one in schema]
            yield pa.RecordBatch.from_arrays(typed, schema=schema)


def misfit(path: str, found: pa.Schema, columns: Mapping[str, str], schema: pa.Schema) -> str | None:
    """Say which column of a file differs from the table. Spark handles such files."""
    for name, column in columns.items():
        alike = [one for one in found if one.name.lower() == column.lower()]
        wanted = schema.field(name).type
        if len(alike) != 1 or alike[0].name != column:
            return f"column {column!r} is not in {path}, or is spelled differently"
        kind = alike[0].type
        if pa.types.is_dictionary(kind):  # as pandas writes categories; a cast to the wanted type takes their values
            kind = kind.value_type
        if pa.types.is_unsigned_integer(kind) or pa.types.is_large_string(kind):
            kind = PLAIN[kind]  # which holds all of its values, and is what Spark makes of it
        if kind != wanted:
            return f"column {column!r} of {path} is {kind}, not {wanted}"
    return None


Range = tuple[Any, Any]
AT_ONCE = 8
"""Footers that a process reads side by side: most of the time is waiting."""
FOUND_SCHEMA = pa.schema([("number", pa.int64()), ("found", pa.string())])


@dataclass(frozen=True, slots=True)
class Footer:
    """A file, and its row groups or the reason why workers cannot read it."""

    identity: FileIdentity
    obstacle: str | None
    lacks: str | None
    """A column that is not in the file, in any spelling."""
    groups: list[tuple[int, Range | None]]
    """Where each row group starts, and the range of the query column in it (None: unknown)."""


def read_footers(paths: Sequence[str], columns: Mapping[str, str], schema: pa.Schema) -> list[Footer] | str:
    """Read footers of local files; or say in a clause why workers cannot read one of the files.

    `columns` has names in the files by those of `schema`; ranges of row groups are those of the first of them.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return _usable(list(pool.map(lambda path: _read(path, columns, schema), paths)))


def files_without(paths: Sequence[str], columns: Sequence[str], *, exact: bool) -> dict[str, str]:
    """Find columns that a readable file lacks, and the first such file; `exact` compares the case of letters, too."""

    def spelled(name: str) -> str:
        return name if exact else name.lower()

    def names(path: str) -> set[str] | None:
        try:
            with opened(path) as file:
                return set(map(spelled, file.metadata.schema.to_arrow_schema().names))
        except (OSError, pa.ArrowException):
            return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        held = [(path, its) for path, its in zip(paths, pool.map(names, paths), strict=True) if its is not None]
    without = ((name, [path for path, its in held if spelled(name) not in its]) for name in columns)
    return {name: paths[0] for name, paths in without if paths}


def send_footers(
    batches: Iterator[pa.RecordBatch], paths: Sequence[str], columns: Mapping[str, str], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Read footers of files by number, as JSON."""
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda number: _read(paths[number], columns, schema), numbers))
        texts = [json.dumps(one if isinstance(one, str) else asdict(one)) for one in found]
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(texts)], schema=FOUND_SCHEMA)


def parse_footers(texts: Sequence[str]) -> list[Footer] | str:
    """Parse the rows of `send_footers`; or say in a clause why workers cannot read one of the files."""
    return _usable([_parsed(json.loads(text)) for text in texts])


def _parsed(found: str | dict[str, Any]) -> Footer | str:
    if isinstance(found, str):
        return found
    groups = [(start, tuple(ends) if ends else None) for start, ends in found["groups"]]
    return Footer(FileIdentity(**found["identity"]), found["obstacle"], found["lacks"], groups)


def _usable(found: Sequence[Footer | str]) -> list[Footer] | str:
    lacking = [one for one in found if isinstance(one, Footer) and one.lacks is not None]
    if lacking and len(lacking) < len(found):
        raise InputRefusedError(f"column {lacking[0].lacks!r} of the input {lacks_column(lacking[0].identity.path)}")
    for one in found:
        if isinstance(one, str) or one.obstacle:
            return one if isinstance(one, str) else str(one.obstacle)
    return [one for one in found if isinstance(one, Footer)]


def _read(path: str, columns: Mapping[str, str], schema: pa.Schema) -> Footer | str:
    try:
        with opened(path) as found:
            return _footer(found, columns, schema)
    except (OSError, pa.ArrowException) as error:
        return f"a file cannot be read ({reason_of(error, path)})"


def _footer(file: OpenedFile, columns: Mapping[str, str], schema: pa.Schema) -> Footer:
    path, metadata = file.identity.path, file.metadata
    names = {name.lower() for name in metadata.schema.to_arrow_schema().names}
    lacks = next((column for column in columns.values() if column.lower() not in names), None)
    obstacle = misfit(path, metadata.schema.to_arrow_schema(), columns, schema)
    if b"org.apache.spark.legacyDateTime" in (metadata.metadata or {}) and pa.date32() in schema.types:
        obstacle = f"{path} has dates of an old calendar"
    groups: list[tuple[int, Range | None]] = []
    if obstacle is None:
        paths = [metadata.schema.column(n).path for n in range(len(metadata.schema))]
        first = next(iter(columns.values()))
        for number, start in enumerate(starts_of_groups(metadata)):
            statistics = metadata.row_group(number).column(paths.index(first)).statistics if first in paths else None
            known = statistics if statistics is not None and statistics.has_min_max else None
            ends = None if known is None else (known.min, known.max)
            groups.append((start, ends if ends is not None and isinstance(ends[0], int | str) else None))
    return Footer(file.identity, obstacle, lacks, groups)


def bounds_between(footers: Sequence[Footer], parts: Sequence[FilePart]) -> tuple[Range, ...] | None:
    """For each part, the query values between which only its rows lie; None if parts are not in order."""
    groups = {one.identity.path: one.groups for one in footers}
    ranges: dict[int, Range] = {}
    for number, part in enumerate(parts):
        inside = [found for start, found in groups[part.file.path] if part.start <= start < part.end]
        if None in inside:
            return None
        if inside:
            ranges[number] = (min(one[0] for one in inside if one), max(one[1] for one in inside if one))
    if len({type(end) for found in ranges.values() for end in found}) > 1:
        return None
    bounds: list[Range] = [(None, None)] * len(parts)
    for before, after in pairwise(sorted(ranges, key=ranges.__getitem__)):
        highest, lowest = ranges[before][1], ranges[after][0]
        if highest > lowest:
            return None
        bounds[before] = (bounds[before][0], lowest)
        bounds[after] = (highest, bounds[after][1])
    return tuple(bounds)
