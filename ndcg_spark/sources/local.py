"""Open tables in files and in memory with Arrow, without Spark, with the rows and types that Spark would read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.arrow_tables import collect_table, is_table, to_spark_types, wrong_table_error
from ndcg_spark.core.redaction import redact
from ndcg_spark.core.schemas import HAS_NANOSECONDS, MALFORMED, TableInfo, convert_inside, select_fields
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources import stores, text_files
from ndcg_spark.sources.listing import Listing
from ndcg_spark.sources.parquet import (
    NANOSECONDS,
    PART_SIZES,
    READ_THREADS,
    FileFooter,
    refuse_unreadable,
    split_files,
)
from ndcg_spark.sources.parquet_types import ParquetColumns, convert_footers, read_footer
from ndcg_spark.sources.references import guess_format
from ndcg_spark.sources.slices import choose_value
from ndcg_spark.sources.text_files import TextPart

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DIGITS = re.compile(r"[-+]?[0-9]{1,18}")
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_WORD = re.compile(r"(?!\s*[-+]?(NaN|Infinity)\s*$)([^\W\d_]|.*[g-oq-su-wyG-OQ-SU-WY_]).*", re.DOTALL)
"""Texts that are not a number, date or time, even for Java, which parses 1d and 0x1p3 as numbers."""

_MAX_BATCH_ROWS = 2**17
MAX_RESULT_BYTES = 256 * 2**20
"""Larger files of a table of means, flags or comparisons are read by Spark, whose executors share the rows."""


class Part(Protocol):
    """Some rows of a table. A part is cheap to pickle; the process that receives it reads the rows."""

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns, and `MALFORMED` if the schema has it, as batches of at most about `rows` rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTable:
    """A table with its name (format and reference, without credentials) and its size.

    `footers` are those of its Parquet files, if it has no partition columns.
    """

    info: TableInfo
    name: str
    n_bytes: int
    divide: Callable[[int], Sequence[Part]]
    footers: tuple[FileFooter, ...] = ()
    listing: Listing | None = None

    def parts(self, n_parts: int) -> tuple[Part, ...]:
        """Split the rows into about `n_parts` parts. A text file is one part."""
        return tuple(self.divide(n_parts))


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of a table in memory."""

    table: pa.Table

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only these rows. Arrow would pickle the whole table that they are a slice of."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return _unpickle_table, (sink.getvalue(),)

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        selected = select_fields(columns, schema)
        yield from self.table.select(selected.names).cast(selected).to_batches(rows)


def _unpickle_table(content: pa.Buffer) -> TablePart:
    return TablePart(pa.ipc.open_stream(content).read_all())


@dataclass(frozen=True, slots=True)
class ArrowPart:
    """Batches of an Arrow IPC file."""

    path: str
    start: int
    end: int

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        names = select_fields(columns, schema).names
        with refuse_unreadable(self.path), pa.memory_map(self.path) as file, pa.ipc.open_file(file) as batches:
            for number in range(self.start, self.end):
                selected = pa.Table.from_batches([batches.get_batch(number)]).select(names)
                table, cut = to_spark_types(self.path, selected)
                if cut:
                    raise InputRefusedError(f"column {min(cut)!r} of {self.path} {HAS_NANOSECONDS}")
                yield from TablePart(table).read(columns, schema, rows)


@dataclass(frozen=True, slots=True)
class FolderPart:
    """A part of a file, with the values of its partition columns.

    `anchor` is a column of the file, which is read for the number of rows if only partition columns are requested.
    """

    part: Part
    anchor: pa.Field
    values: Mapping[str, Any]

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        fields = select_fields(columns, schema)
        file_fields = [column for column in fields if column.name not in self.values] or [self.anchor]
        for batch in self.part.read([column.name for column in file_fields], pa.schema(file_fields), rows):
            arrays = [
                pa.repeat(pa.scalar(self.values[column.name], column.type), batch.num_rows)
                if column.name in self.values
                else batch.column(column.name)
                for column in fields
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=fields)


@dataclass(frozen=True, slots=True)
class FilteredPart:
    """The rows of a part in which a column (text, date or whole number) equals a value, given as text."""

    part: Part
    column: pa.Field
    text: str

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of the partition columns of the part."""
        return getattr(self.part, "values", {})

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        selected, column = select_fields(columns, schema), self.column.name
        fields = selected if column in selected.names else selected.append(self.column)
        for batch in self.part.read(fields.names, fields, rows):
            yield batch.filter(pc.equal(batch.column(column).cast(pa.string()), self.text)).select(selected.names)


def filter_rows(table: LocalTable, column: str, text: str) -> LocalTable:
    """Select the rows in which a column equals a text. Partition folders with another value are not read."""
    column_field = pa.field(column, table.info.type_of(column))

    def divide(n_parts: int) -> list[FilteredPart]:
        parts = ((part, getattr(part, "values", {})) for part in table.parts(n_parts))
        return [
            FilteredPart(part, column_field, text)
            for part, folder_values in parts
            if str(folder_values.get(column, text)) == text
        ]

    return replace(table, divide=divide, footers=())


def select_local_value(
    table: LocalTable, column: str, label: str, requested: date | str | None, **options: Any
) -> LocalTable:
    """Select the rows of one night or one data set, like `sources.api.select_value`. Reads the column."""
    if not table.info.has(column):
        return table
    schema = pa.schema([(column, table.info.type_of(column))])

    def read_values(rows: LocalTable) -> Iterator[pa.Array]:
        for part in rows.parts(1):
            for batch in part.read([column], schema, _MAX_BATCH_ROWS):
                yield pc.unique(batch.column(column).cast(pa.string()))

    if requested is not None and not options.get("accepts_single"):
        selected = filter_rows(table, column, str(requested))
        if any(len(values) for values in read_values(selected)):  # then the other values do not matter
            return selected
    distinct: set[str | None] = {None}
    for values_of_batch in read_values(table):
        distinct |= set(values_of_batch.to_pylist())
    values = sorted(text for text in distinct if text is not None)
    extent = (len(values), values[0], values[-1]) if values else (0, None, None)
    chosen = choose_value(column, label, requested, extent, values.__contains__, **options)
    return table if chosen is None else filter_rows(table, column, chosen)


def find_type_obstacle(table: LocalTable, types: Mapping[str, pa.DataType]) -> str | None:
    """Describe in a clause why only Spark reads columns as `types`; None if `read_columns` does."""
    info = table.info
    if info.is_text:
        return f"Spark parses the numbers and dates of {table.name}"
    for column, expected in types.items():
        if info.has(column):
            info.check(column, f"column {column!r}")
            if not _is_readable_as(info.type_of(column), expected):
                return f"column {column!r} of {table.name} is {info.type_text(column)}, which Spark converts"
    return None


def find_result_obstacle(table: LocalTable, types: Mapping[str, pa.DataType]) -> str | None:
    """Describe like `find_type_obstacle` why only Spark reads a table of results, which is read whole."""
    if table.n_bytes > MAX_RESULT_BYTES:
        return f"{table.name} has more than {MAX_RESULT_BYTES >> 20} MiB"
    return find_type_obstacle(table, types)


def _is_readable_as(actual: pa.DataType, expected: pa.DataType) -> bool:
    if actual == expected or pa.types.is_null(actual):
        return True
    small = pa.types.is_integer(actual) and actual.bit_width <= 32
    wider = pa.types.is_int64(expected) or pa.types.is_float64(expected)
    is_single = pa.types.is_float32(actual) and pa.types.is_float64(expected)
    return bool(wider and (small or is_single))


def read_columns(table: LocalTable, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Read columns as `types`, null where the table lacks one. Reads the rows."""
    present = [column for column in types if table.info.has(column)]
    schema = pa.schema([(column, table.info.type_of(column)) for column in present or table.info.names[:1]])
    batches = [batch for part in table.parts(1) for batch in part.read(schema.names, schema, _MAX_BATCH_ROWS)]
    rows = pa.Table.from_batches(batches, schema)
    if table.n_bytes <= MAX_RESULT_BYTES:  # a table of results has many small files, and each batch costs time
        rows = rows.combine_chunks()
    nulls = {column: pa.nulls(rows.num_rows, column_type) for column, column_type in types.items()}
    return pa.table({**nulls, **{column: rows.column(column).cast(types[column]) for column in present}})


def open_memory_table(rows: Any, name: str, *, label: str = "input", or_path: bool = False) -> LocalTable:
    """Open a table of pandas, polars or Arrow, or a list of dicts.

    `name` is the caller's argument, and `or_path` is True if it also accepts a path; both are for messages. Values
    are converted by `to_spark_types`, as they are for Spark.
    """
    rows = collect_table(name, rows)
    if not is_table(rows):
        raise wrong_table_error(name, rows, ("DataFrame", "str") if or_path else ("DataFrame",))
    table, cut = to_spark_types(name, rows)
    info = TableInfo(schema=_to_spark_schema(table), label=label, refused=dict.fromkeys(cut, HAS_NANOSECONDS))
    return LocalTable(info=info, name="", n_bytes=table.nbytes, divide=partial(_split_table, table))


def _to_spark_type(arrow_type: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", arrow_type.tz and "UTC") if pa.types.is_timestamp(arrow_type) else arrow_type


def _to_spark_schema(table: pa.Table) -> pa.Schema:
    """Normalize what Spark's types do not distinguish: time zones, names of list elements, nullability."""
    return pa.schema([(field.name, convert_inside(field.type, _to_spark_type)) for field in table.schema])


def _split_table(table: pa.Table, n_parts: int) -> list[TablePart]:
    step = max(1, -(-len(table) // max(1, n_parts)))
    return [TablePart(table.slice(start, step)) for start in range(0, max(1, len(table)), step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenedFiles:
    """Open files of a table, with their columns. `divide` returns parts, each with the path of its file."""

    schema: pa.Schema
    divide: Callable[[int], Sequence[tuple[str, Part]]]
    n_bytes: int
    refused: Mapping[str, str] = field(default_factory=dict)
    is_text: bool = False
    footers: tuple[FileFooter, ...] = ()


def open_local(
    reference: str, kind: str | None = None, options: Mapping[str, str] | None = None, *, label: str = "input"
) -> LocalTable | str:
    """Open a table of files; or return a clause on why only Spark can. Reads schemas, and all lines of JSON.

    Parameters and refusals are those of `sources.formats.open_table`. The format `arrow` is supported, too.
    """
    stores.refuse_secrets(reference)
    file_format = kind or guess_format(reference)
    if file_format not in _OPENERS:
        if file_format == "table":
            return f"{reference!r} is a table of a catalog, not a path such as {f'./{reference}'!r}"
        return f"only Spark reads the format {file_format}"
    path = stores.strip_file_scheme(reference)
    try:
        files = _find_obstacle(reference, file_format, options or {}) or _list_files(
            reference, path, kind, file_format
        )
        if isinstance(files, str):
            return files
        listing = Listing.from_files(files)  # before they are read: a later change is then noticed
        opened = _OPENERS[file_format](files, file_format, reference)
        if isinstance(opened, _OpenedFiles) and file_format not in text_files.TREC:
            opened = _add_folders(opened, path, files)
    except FileNotFoundError as error:
        raise InputRefusedError(f"there is no path {reference!r}.") from error
    except (OSError, pa.ArrowException) as error:
        if file_format == "arrow":
            raise InputRefusedError(
                f"cannot read arrow {reference!r}: {stores.format_reason(error, path)}."
            ) from error
        return f"a file cannot be read ({stores.format_reason(error, path)})"
    if isinstance(opened, str):
        return opened
    return LocalTable(
        info=TableInfo(schema=opened.schema, label=label, is_text=opened.is_text, refused=opened.refused),
        name=f"{file_format}:{redact(reference)}",
        n_bytes=opened.n_bytes,
        footers=opened.footers,
        listing=listing,
        divide=lambda n_parts: [part for _, part in opened.divide(n_parts)],
    )


def _add_folders(opened: _OpenedFiles, root: str, files: Sequence[str]) -> _OpenedFiles | str:
    """Add partition columns to the columns of files; or return a clause on why only Spark can."""
    folders = _read_folders(root, files)
    if isinstance(folders, str):
        return folders
    schema, values = folders
    if not schema.names:
        return opened
    names = [name.lower() for name in (*opened.schema.names, *schema.names)]
    anchor = next((column for column in opened.schema if column.name not in (*opened.refused, MALFORMED)), None)
    if len(set(names)) < len(names) or anchor is None:
        return "a column is both in files and in folder names, or the files have no columns"

    def divide(n_parts: int) -> list[tuple[str, Part]]:
        return [(path, FolderPart(part, anchor, values[path])) for path, part in opened.divide(n_parts)]

    return replace(opened, schema=pa.schema([*opened.schema, *schema]), divide=divide, footers=())


def _find_obstacle(reference: str, file_format: str, options: Mapping[str, str]) -> str | None:
    """Return a clause on why only Spark can read a path, whatever its files are; None if it is not restricted."""
    is_remote, path = stores.parse_address(reference) is not None, stores.strip_file_scheme(reference)
    if options:
        return "options of Spark's reader are set"
    if is_remote and file_format != "parquet":
        return f"only Spark reads {file_format} from object stores"
    if stores.is_pattern(reference):
        return "Spark expands wildcards in the path"
    if not is_remote and _SCHEME.match(path) and not os.path.exists(path):
        return "only Spark may be able to read the path"
    return "the file name is that of a hidden file" if stores.is_hidden(os.path.basename(path)) else None


def _list_files(reference: str, path: str, kind: str | None, file_format: str) -> list[str] | str:
    """List the files of a table, or return a clause on why only Spark can read them."""
    if stores.parse_address(reference) is not None:
        if stores.has_log_above(path):
            return "the path may contain files of a Delta, Iceberg or Hudi table"
    elif not os.path.exists(path):
        raise FileNotFoundError(path)
    elif file_format == "parquet" and (table := stores.find_local_table_folder(path)) is not None:
        if kind is None and table.whole:
            return f"only Spark reads the format {table.kind}"
        raise InputRefusedError(table.refusal(reference))
    files = stores.list_files(path, ".parquet" if file_format == "parquet" else "", stores.MAX_LOCAL_FILES)
    if files == stores.NO_FILES and file_format not in text_files.TREC:
        raise InputRefusedError(f"{reference!r} holds no {file_format} files.")
    if isinstance(files, list) and any(map(stores.has_metadata_file, {os.path.dirname(file) for file in files})):
        return "there are metadata files beside the data"
    return files


def _read_folders(root: str, files: Sequence[str]) -> tuple[pa.Schema, dict[str, dict[str, Any]]] | str:
    """Return the partition columns, and their values for each file; or a clause on why only Spark can read them."""
    folders = {file: file[len(root) :].strip("/").split("/")[:-1] for file in files}
    texts = {
        file: {stores.unescape_name(column): text for column, _, text in (level.partition("=") for level in levels)}
        for file, levels in folders.items()
    }
    columns = list(next(iter(texts.values()), {}))
    if any(list(by_column) != columns or len(by_column) < len(folders[file]) for file, by_column in texts.items()):
        return "folder names differ in their columns"
    types = {
        column: _infer_type({by_column[column] for by_column in texts.values()} - {stores.NULL_FOLDER_VALUE})
        for column in columns
    }
    uncertain = next((column for column, column_type in types.items() if column_type is None), None)
    if uncertain is not None:
        return f"Spark infers the type of {uncertain} from all folder names ({uncertain}=...)"
    values = {
        file: {column: _read_value(by_column[column], types[column]) for column in columns}
        for file, by_column in texts.items()
    }
    return pa.schema(list(types.items())), values


def _infer_type(texts: Set[str]) -> pa.DataType | None:
    """Infer the type of a partition column; None if Spark might infer another."""
    numbers = {text for text in texts if _DIGITS.fullmatch(text)}
    days = {text for text in texts if _is_day(text)}
    words = {text for text in texts if _WORD.fullmatch(text) and _WORD.fullmatch(stores.unescape_name(text))}
    if not texts or numbers | days | words != texts:
        return None
    if words:
        return pa.string()
    if days:
        return None if numbers else pa.date32()
    if not all(map(_WHOLE.fullmatch, numbers)):
        return pa.string()  # 007 and 7 are two runs
    return pa.int32() if all(-(2**31) <= int(text) < 2**31 for text in numbers) else pa.int64()


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _read_value(text: str, column_type: pa.DataType) -> Any:
    if text == stores.NULL_FOLDER_VALUE:
        return None
    if pa.types.is_date32(column_type):
        return date.fromisoformat(text)
    return int(text) if pa.types.is_integer(column_type) else stores.unescape_name(text)


def _open_parquet(files: Sequence[str], kind: str, reference: str) -> _OpenedFiles | str:
    with ThreadPoolExecutor(READ_THREADS) as pool:
        footers = list(pool.map(read_footer, files))
    columns_or_clauses = convert_footers(footers)
    columns = [item for item in columns_or_clauses if isinstance(item, ParquetColumns)]
    if len(columns) < len(columns_or_clauses):
        return next(item for item in columns_or_clauses if isinstance(item, str))
    if any(item.has_nanoseconds for item in columns):
        raise InputRefusedError(f"cannot read {kind} {redact(reference)!r}: {NANOSECONDS}")
    first = columns[0]
    different = next((path for path, item in zip(files, columns, strict=True) if item != first), None)
    if different is not None:
        return f"{different} has other columns than {files[0]}"
    identities = [footer.identity for footer in footers]

    def divide(n_parts: int) -> list[tuple[str, Part]]:
        sizes = replace(PART_SIZES, n_parts=n_parts)
        return [(part.file.path, part) for part in split_files(identities, sizes)]

    n_bytes = sum(footer.size for footer in identities)
    return _OpenedFiles(
        schema=first.schema,
        divide=divide,
        n_bytes=n_bytes,
        refused=first.refused,
        footers=tuple(footers),
    )


def _open_arrow(files: Sequence[str], kind: str, reference: str) -> _OpenedFiles | str:
    schemas, counts = [], {}
    for path in files:
        with pa.memory_map(path) as file, pa.ipc.open_file(file) as batches:
            table = to_spark_types(path, batches.schema.empty_table())[0]
            schemas.append(_to_spark_schema(table))
            counts[path] = batches.num_record_batches
    if any(schema != schemas[0] for schema in schemas):
        return "files have different schemas"

    def divide(n_parts: int) -> list[tuple[str, Part]]:
        step = max(1, -(-sum(counts.values()) // max(1, n_parts)))
        starts = [(path, start) for path, n in counts.items() for start in range(0, n, step)]
        return [(path, ArrowPart(path, start, min(start + step, counts[path]))) for path, start in starts]

    return _OpenedFiles(schema=schemas[0], divide=divide, n_bytes=_count_bytes(files))


def _open_text(files: Sequence[str], kind: str, reference: str) -> _OpenedFiles | str:
    obstacle = next(filter(None, map(text_files.find_obstacle, files)), None)
    schema = obstacle or text_files.find_schema(files, kind)
    if isinstance(schema, str):
        return schema
    parts = [(path, TextPart(path, kind, schema)) for path in files]
    return _OpenedFiles(schema=schema, divide=lambda _: parts, n_bytes=_count_bytes(files), is_text=kind != "json")


def _count_bytes(files: Sequence[str]) -> int:
    return sum(map(os.path.getsize, files))


_OPENERS = {"parquet": _open_parquet, "arrow": _open_arrow, **dict.fromkeys(text_files.KINDS, _open_text)}
