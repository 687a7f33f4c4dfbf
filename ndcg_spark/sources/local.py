"""Tables that Arrow opens, without Spark, with the rows and types that Spark would read: of files and in memory."""

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

from ndcg_spark.core.arrow_tables import is_table, not_a_table, opened_table, plain_table
from ndcg_spark.core.redaction import redacted
from ndcg_spark.core.schemas import HAS_NANOSECONDS, MALFORMED, TableInfo, chosen_fields
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources import stores, text_files
from ndcg_spark.sources.parquet import AT_ONCE, NANOSECONDS, PART_SIZES, parts_of, refusing_unreadable
from ndcg_spark.sources.parquet_types import ParquetFooter, read_footer
from ndcg_spark.sources.references import guess_format
from ndcg_spark.sources.slices import choose_value
from ndcg_spark.sources.text_files import TextPart

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_DIGITS = re.compile(r"[-+]?[0-9]{1,18}")
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_WORD = re.compile(r"(?!\s*[-+]?(NaN|Infinity)\s*$)([^\W\d_]|.*[g-oq-su-wyG-OQ-SU-WY_]).*", re.DOTALL)
"""Names that are no number, date or time, also to Java, which takes 1d and 0x1p3 for numbers."""

_ROWS = 2**17


class Part(Protocol):
    """Rows of a table. A part is small, and whatever process gets it reads it."""

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns, and `MALFORMED` if the schema has it, in its types; at most about `rows` rows at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTable:
    """A table, its format and reference without credentials, and its size.

    `files` are Parquet files without columns in folder names.
    """

    info: TableInfo
    name: str
    n_bytes: int
    divide: Callable[[int], Sequence[Part]]
    files: tuple[str, ...] = ()

    def parts(self, wanted: int) -> tuple[Part, ...]:
        """Divide the rows into about so many parts; a text file is one."""
        return tuple(self.divide(wanted))


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of a table in memory."""

    table: pa.Table

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle these rows alone: Arrow's own way takes all of the table that they are a slice of."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return _unpickled, (sink.getvalue(),)

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        wanted = chosen_fields(columns, schema)
        yield from self.table.select(wanted.names).cast(wanted).to_batches(rows)


def _unpickled(content: pa.Buffer) -> TablePart:
    return TablePart(pa.ipc.open_stream(content).read_all())


@dataclass(frozen=True, slots=True)
class ArrowPart:
    """Batches of an Arrow IPC file."""

    path: str
    start: int
    end: int

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        names = chosen_fields(columns, schema).names
        with refusing_unreadable(self.path), pa.memory_map(self.path) as file, pa.ipc.open_file(file) as batches:
            for at in range(self.start, self.end):
                given = pa.Table.from_batches([batches.get_batch(at)]).select(names)
                table, cut = plain_table(self.path, given)
                if cut:
                    raise InputRefusedError(f"column {min(cut)!r} of {self.path} {HAS_NANOSECONDS}")
                yield from TablePart(table).read(columns, schema, rows)


@dataclass(frozen=True, slots=True)
class FolderPart:
    """A part of a file, one of whose columns is `some`, and the values of columns in the names of its folders."""

    part: Part
    some: pa.Field
    values: Mapping[str, Any]

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        wanted = chosen_fields(columns, schema)
        of_file = [one for one in wanted if one.name not in self.values] or [self.some]
        for batch in self.part.read([one.name for one in of_file], pa.schema(of_file), rows):
            arrays = [
                pa.repeat(pa.scalar(self.values[one.name], one.type), batch.num_rows)
                if one.name in self.values
                else batch.column(one.name)
                for one in wanted
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


@dataclass(frozen=True, slots=True)
class PartOfValue:
    """Rows of a part in which a column, a text, date or whole number, has this text."""

    part: Part
    column: pa.Field
    text: str

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        wanted, name = chosen_fields(columns, schema), self.column.name
        fields = wanted if name in wanted.names else wanted.append(self.column)
        for batch in self.part.read(fields.names, fields, rows):
            yield batch.filter(pc.equal(batch.column(name).cast(pa.string()), self.text)).select(wanted.names)


def rows_of(table: LocalTable, column: str, text: str) -> LocalTable:
    """Rows in which a column has a text. Files in folders that name another are not read."""
    field = pa.field(column, table.info.type_of(column))

    def divide(wanted: int) -> list[PartOfValue]:
        named = ((part, getattr(part, "values", {})) for part in table.parts(wanted))
        return [PartOfValue(part, field, text) for part, its in named if str(its.get(column, text)) == text]

    return replace(table, divide=divide, files=())


def rows_of_one(table: LocalTable, column: str, name: str, asked: date | str | None, **options: Any) -> LocalTable:
    """Rows of one night, or one data set, as `sources.api.rows_of_one`. Reads the column."""
    if not table.info.has(column):
        return table
    schema = pa.schema([(column, table.info.type_of(column))])
    texts: set[str | None] = {None}
    for part in table.parts(1):
        for batch in part.read([column], schema, _ROWS):
            texts |= set(pc.unique(batch.column(column).cast(pa.string())).to_pylist())
    known = sorted(text for text in texts if text is not None)
    there = (len(known), known[0], known[-1]) if known else (0, None, None)
    taken = choose_value(column, name, asked, there, known.__contains__, **options)
    return table if taken is None else rows_of(table, column, taken)


def table_of(given: Any, name: str, *, label: str = "input", or_path: bool = False) -> LocalTable:
    """Open a table of pandas, polars or Arrow, or a list of dicts, whose argument, `or_path`, is called `name`.

    Values are those of `plain_table`, as where Spark gets the table.
    """
    given = opened_table(name, given)
    if not is_table(given):
        raise not_a_table(name, given, ("DataFrame", "str") if or_path else ("DataFrame",))
    table, cut = plain_table(name, given)
    info = TableInfo(schema=_schema_in_spark(table), label=label, refused=dict.fromkeys(cut, HAS_NANOSECONDS))
    return LocalTable(info=info, name="", n_bytes=table.nbytes, divide=partial(_slices, table))


def _in_spark(kind: pa.DataType) -> pa.DataType:
    """Leave out what types of Spark do not tell: time zones, names of elements, whether there are nulls."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _in_spark(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_spark(kind.key_type), _in_spark(kind.item_type))
    return pa.list_(_in_spark(kind.value_type)) if pa.types.is_list(kind) else kind


def _schema_in_spark(table: pa.Table) -> pa.Schema:
    return pa.schema([(one.name, _in_spark(one.type)) for one in table.schema])


def _slices(table: pa.Table, wanted: int) -> list[TablePart]:
    step = max(1, -(-len(table) // max(1, wanted)))
    return [TablePart(table.slice(start, step)) for start in range(0, max(1, len(table)), step)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """Files of a table: their columns, and parts with the paths that they are of."""

    schema: pa.Schema
    divide: Callable[[int], Sequence[tuple[str, Part]]]
    n_bytes: int
    refused: Mapping[str, str] = field(default_factory=dict)
    is_text: bool = False
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folders:
    """Columns in names of folders, and their values for each file."""

    schema: pa.Schema
    values: Mapping[str, Mapping[str, Any]]


def open_local(
    reference: str, kind: str | None = None, options: Mapping[str, str] | None = None, *, label: str = "input"
) -> LocalTable | str:
    """Open a table of files; or say in a clause why Spark has to read it. Reads schemas; of JSON, all lines.

    Arguments and refusals are those of `sources.formats.open_table`; `arrow` is a format, too.
    """
    stores.refuse_secrets(reference)
    known = kind or guess_format(reference)
    if known not in _OPENERS:
        if known == "table":
            return f"{reference!r} is a table of a catalog, not a path, as {f'./{reference}'!r} would be"
        return f"the format {known} is Spark's"
    path = stores.local_path(reference)
    try:
        files = _obstacle(reference, known, options or {}) or _list_files(reference, path, kind, known)
        if isinstance(files, str):
            return files
        opened = _OPENERS[known](files, known, reference)
        if isinstance(opened, _Opened) and known not in text_files.TREC:
            opened = _add_folders(opened, path, files)
    except FileNotFoundError as error:
        raise InputRefusedError(f"there is no path {reference!r}.") from error
    except (OSError, pa.ArrowException) as error:
        if known == "arrow":
            raise InputRefusedError(f"cannot read arrow {reference!r}: {stores.reason_of(error, path)}.") from error
        return f"a file cannot be read ({stores.reason_of(error, path)})"
    if isinstance(opened, str):
        return opened
    return LocalTable(
        info=TableInfo(schema=opened.schema, label=label, is_text=opened.is_text, refused=opened.refused),
        name=f"{known}:{redacted(reference)}",
        n_bytes=opened.n_bytes,
        files=opened.files,
        divide=lambda wanted: [part for _, part in opened.divide(wanted)],
    )


def _add_folders(opened: _Opened, root: str, files: Sequence[str]) -> _Opened | str:
    """Add the columns in names of folders to those of files; or say in a clause why Spark has to."""
    folders = _read_folders(root, files)
    if isinstance(folders, str) or not folders.schema.names:
        return folders if isinstance(folders, str) else opened
    names = [name.lower() for name in (*opened.schema.names, *folders.schema.names)]
    some = next((one for one in opened.schema if one.name not in (*opened.refused, MALFORMED)), None)
    if len(set(names)) < len(names) or some is None:
        return "a column is in files and in names of folders, or files have none"

    def divide(wanted: int) -> list[tuple[str, Part]]:
        return [(path, FolderPart(part, some, folders.values[path])) for path, part in opened.divide(wanted)]

    return replace(opened, schema=pa.schema([*opened.schema, *folders.schema]), divide=divide, files=())


def _obstacle(reference: str, kind: str, options: Mapping[str, str]) -> str | None:
    """Say in a clause why a path is Spark's, whatever is there."""
    remote, path = stores.address_of(reference) is not None, stores.local_path(reference)
    if options:
        return "options of Spark's reader are given"
    if remote and kind != "parquet":
        return f"Spark alone reads {kind} of object stores"
    if stores.is_pattern(reference):
        return "Spark takes signs in the path for a pattern"
    if not remote and _SCHEME.match(path) and not os.path.exists(path):
        return "Spark alone may reach the path"
    return "the name of the file is that of a hidden one" if stores.is_hidden(os.path.basename(path)) else None


def _list_files(reference: str, path: str, kind: str | None, known: str) -> list[str] | str:
    """List the files of a table, or say in a clause why Spark has to read them."""
    if stores.address_of(reference) is not None:
        if stores.has_log_above(path):
            return "the path may lead to files of a Delta, Iceberg or Hudi table"
    elif not os.path.exists(path):
        raise FileNotFoundError(path)
    elif known == "parquet" and (table := stores.table_folder(path)) is not None:
        if kind is None and table.whole:
            return f"the format {table.kind} is Spark's"
        raise InputRefusedError(table.refusal(reference))
    files = stores.list_files(path, ".parquet" if known == "parquet" else "")
    if files == stores.NO_FILES and known not in text_files.TREC:
        raise InputRefusedError(f"{reference!r} holds no {known} files.")
    if isinstance(files, list) and any(map(stores.has_metadata_file, {os.path.dirname(file) for file in files})):
        return "files of metadata lie beside the data"
    return files


def _read_folders(root: str, files: Sequence[str]) -> _Folders | str:
    """Read the columns in names of folders below a root; or say in a clause why Spark has to."""
    folders = {file: file[len(root) :].strip("/").split("/")[:-1] for file in files}
    texts = {
        file: {stores.unescaped(name): text for name, _, text in (one.partition("=") for one in its)}
        for file, its in folders.items()
    }
    names = list(next(iter(texts.values()), {}))
    if any(list(its) != names or len(its) < len(folders[file]) for file, its in texts.items()):
        return "names of folders name their columns in several ways"
    kinds = {name: _infer_type({its[name] for its in texts.values()} - {stores.NO_VALUE}) for name in names}
    unknown = next((name for name, kind in kinds.items() if kind is None), None)
    if unknown is not None:
        return f"what Spark makes of names of folders ({unknown}=...) depends on all of them"
    values = {file: {name: _read_value(its[name], kinds[name]) for name in names} for file, its in texts.items()}
    return _Folders(schema=pa.schema(list(kinds.items())), values=values)


def _infer_type(texts: Set[str]) -> pa.DataType | None:
    """Find the type of values of a column in names of folders; None where that is not certain."""
    whole = {text for text in texts if _DIGITS.fullmatch(text)}
    days = {text for text in texts if _is_day(text)}
    words = {text for text in texts if _WORD.fullmatch(text) and _WORD.fullmatch(stores.unescaped(text))}
    if not texts or whole | days | words != texts:
        return None
    if words:
        return pa.string()
    if days:
        return None if whole else pa.date32()
    if not all(map(_WHOLE.fullmatch, whole)):
        return pa.string()  # 007 and 7 are two runs
    return pa.int32() if all(-(2**31) <= int(text) < 2**31 for text in whole) else pa.int64()


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _read_value(text: str, kind: pa.DataType) -> Any:
    if text == stores.NO_VALUE:
        return None
    if pa.types.is_date32(kind):
        return date.fromisoformat(text)
    return int(text) if pa.types.is_integer(kind) else stores.unescaped(text)


def _open_parquet(files: Sequence[str], kind: str, reference: str) -> _Opened | str:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = list(pool.map(read_footer, files))
    footers = [one for one in read if isinstance(one, ParquetFooter)]
    if len(footers) < len(read):
        return next(one for one in read if isinstance(one, str))
    if any(one.has_nanoseconds for one in footers):
        raise InputRefusedError(f"cannot read {kind} {redacted(reference)!r}: {NANOSECONDS}")
    first = footers[0]
    other = next((one for one in footers if (one.schema, one.refused) != (first.schema, first.refused)), None)
    if other is not None:
        return f"{other.identity.path} has other columns than {first.identity.path}"
    identities = [one.identity for one in footers]

    def divide(wanted: int) -> list[tuple[str, Part]]:
        sizes = replace(PART_SIZES, wanted=wanted)
        return [(part.file.path, part) for part in parts_of(identities, sizes)]

    n_bytes = sum(one.size for one in identities)
    return _Opened(schema=first.schema, divide=divide, n_bytes=n_bytes, refused=first.refused, files=tuple(files))


def _open_arrow(files: Sequence[str], kind: str, reference: str) -> _Opened | str:
    schemas, counts = [], {}
    for path in files:
        with pa.memory_map(path) as file, pa.ipc.open_file(file) as batches:
            table = plain_table(path, batches.schema.empty_table())[0]
            schemas.append(_schema_in_spark(table))
            counts[path] = batches.num_record_batches
    if any(schema != schemas[0] for schema in schemas):
        return "files have several schemas"

    def divide(wanted: int) -> list[tuple[str, Part]]:
        step = max(1, -(-sum(counts.values()) // max(1, wanted)))
        starts = [(path, start) for path, n in counts.items() for start in range(0, n, step)]
        return [(path, ArrowPart(path, start, min(start + step, counts[path]))) for path, start in starts]

    return _Opened(schema=schemas[0], divide=divide, n_bytes=_size(files))


def _open_text(files: Sequence[str], kind: str, reference: str) -> _Opened | str:
    obstacle = next(filter(None, map(text_files.obstacle_of, files)), None)
    schema = obstacle or text_files.schema_of(files, kind)
    if isinstance(schema, str):
        return schema
    parts = [(path, TextPart(path, kind, schema)) for path in files]
    return _Opened(schema=schema, divide=lambda _: parts, n_bytes=_size(files), is_text=kind != "json")


def _size(files: Sequence[str]) -> int:
    return sum(map(os.path.getsize, files))


_OPENERS = {"parquet": _open_parquet, "arrow": _open_arrow, **dict.fromkeys(text_files.KINDS, _open_text)}
