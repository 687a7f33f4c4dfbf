"""Read text files with Arrow, with the rows of Spark: csv and tsv, lines of JSON, and the TREC formats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import csv
from pyarrow import json as arrow_json

from ndcg_spark.core.schemas import MALFORMED, convert_inside, select_fields
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.sources.parquet import refuse_unreadable
from ndcg_spark.sources.stores import format_reason

TREC = {
    "trec-run": ("query_id", "iteration", "item_id", "rank", "score", "tag"),
    "trec-qrels": ("query_id", "iteration", "item_id", "relevance"),
}
SEPARATORS = {"csv": ",", "tsv": "\t"}
KINDS = (*SEPARATORS, *TREC, "json")
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
_UNSUPPORTED_ENDING = re.compile(r"\.(?!(?:gz|bz2|zst)$)(?i:gz|bz2|zst|zstd|deflate|snappy|lz4|lzo\w*|xz)$")
"""Compression endings that Spark supports, or may support, and this module does not."""
ENGINE_HINT = f"{option('engine', 'spark')} lets Spark read the file"
_BLOCK_BYTES = 2**22
_BLANKS = bytes(range(33))
"""The bytes that Java trims. A csv line with only these bytes is not a row."""
_STARTS_BLANK = re.compile(rb"\n[\x00-\x09\x0b-\x20]")
_BLANK_LINE = re.compile(rb"(?m)^[\x00-\x09\x0b-\x20]+(?:\n|\Z)")
_COMMENT = re.compile(rb"(?m)^#[^\n]*\n")
_TO_SPACES = bytes(32 if byte in b"\t\x0b\x0c" else byte for byte in range(256))
_FIELD = r'(?:"[^"\n]*(?:""[^"\n]*)*"|[^"\n{0}]*)'
_ODD_QUOTES = {sep: re.compile(rf"(?m)^(?!{_FIELD}(?:{sep}{_FIELD})*$).*\n".format(sep).encode()) for sep in ",\t"}
"""Lines of csv with quotes that do not enclose a whole field."""
_ODD_JSON = re.compile(rb"[:\[,\s](?:-?\d{19,}|-0[,\]}\s]|[-+]?NaN|[-+]?Inf)|\xef\xbf\xbd")
"""Numbers that may not fit in a bigint, -0, NaN and infinities, and the replacement character of invalid UTF-8."""
_ODD_JSON_HINTS = (re.compile(b"NaN"), re.compile(b"Inf"), re.compile(b"\xef\xbf\xbd"), re.compile(rb"-0[,\]}\s]"))
_TO_ZEROS = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))


def find_obstacle(path: str) -> str | None:
    """Return a clause on why Arrow cannot read a file as Spark would; None if it can."""
    return f"{path} has a compression that only Spark reads" if _UNSUPPORTED_ENDING.search(path) else None


def _read_blocks(path: str) -> Iterator[bytes]:
    """Read blocks of whole lines, as UTF-8 with a line feed at the end of each line."""
    rest, is_first = b"", True
    compression = _COMPRESSIONS.get(path.rpartition(".")[2])
    with pa.input_stream(path, compression=compression) as file:
        while block := file.read(_BLOCK_BYTES):
            if is_first:
                block, is_first = block.removeprefix(b"\xef\xbb\xbf"), False
            block = rest + block
            end = 1 + max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1))
            rest = block[end:]
            if end:
                yield _normalize_lines(block[:end])
    if rest:
        yield _normalize_lines(rest)


def _normalize_lines(block: bytes) -> bytes:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        block.decode()
    except UnicodeDecodeError:
        block = block.decode(errors="replace").encode()
    return block if block.endswith(b"\n") else block + b"\n"


def find_schema(paths: Sequence[str], kind: str) -> pa.Schema | str:
    """Find the columns of the files; or return a clause on why only Spark can."""
    if kind == "json":
        return _infer_json_schema(paths)
    names: Sequence[str | None] = TREC.get(kind, ())
    if kind in SEPARATORS:
        headers = [header for path in paths if (header := _read_header(path, kind)) is not None]
        if not headers:
            return pa.schema([])  # callers report the missing columns
        if any(header != headers[0] for header in headers):
            return "headers of files differ"
        names = headers[0]
        if None in names or MALFORMED in names or len({str(name).lower() for name in names}) < len(names):
            return "a name in the header is empty or repeated"
    return pa.schema([(name, pa.string()) for name in (*names, MALFORMED)])


def _read_header(path: str, kind: str) -> list[str | None] | None:
    """Read the names in the first line of a csv or tsv file; None if all lines are blank."""
    for block in _read_blocks(path):
        line = block.lstrip(_BLANKS).partition(b"\n")[0]
        if line:
            start = block.index(line)
            whole = block[block.rfind(b"\n", 0, start) + 1 : start] + line
            return split_line(whole.decode(), SEPARATORS[kind])
    return None


def split_line(line: str, separator: str) -> list[str | None]:
    """Split a line into fields as Spark's parser does; see `_read_quoted`."""
    fields: list[str | None] = []
    position = 0
    while True:
        if line.startswith('"', position):
            field, position = _read_quoted(line, position, separator)
        else:
            end = _find_separator(line, separator, position)
            field, position = line[position:end] or None, end
        fields.append(field)
        if position >= len(line):
            return fields
        position += 1


def _read_quoted(line: str, start: int, separator: str) -> tuple[str | None, int]:
    """Read a field that begins with a quote. Return its text and its end.

    Blanks after the closing quote are dropped. If other text follows the closing quote, the field is the raw text up
    to the next separator. If there is no closing quote, the field is the rest of the line.
    """
    text, position = "", start + 1
    while (quote := line.find('"', position)) >= 0:
        text += line[position:quote]
        if line.startswith('"', quote + 1):
            text, position = text + '"', quote + 2
            continue
        end = quote + 1
        while end < len(line) and line[end] <= " " and line[end] != separator:
            end += 1
        if end == len(line) or line[end] == separator:
            return text or None, end
        stop = _find_separator(line, separator, end + 1)
        # At the end of a line, Spark's parser adds a quote.
        is_doubled = end > quote + 1 and stop == len(line) and line[end] != '"' and line.startswith('"', end + 1)
        return f'"{text}{line[quote:stop]}' + '"' * is_doubled, stop
    return text + line[position:] or (None if position > start + 1 else '"'), len(line)


def _find_separator(line: str, separator: str, start: int) -> int:
    end = line.find(separator, start)
    return len(line) if end < 0 else end


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text file and its columns."""

    path: str
    kind: str
    schema: pa.Schema

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        fields = select_fields(columns, schema)
        with refuse_unreadable(self.path):
            for table in self._tables([name for name in fields.names if name != MALFORMED]):
                arrays = [table.column(field.name).cast(field.type) for field in fields]
                yield from pa.Table.from_arrays(arrays, schema=fields).to_batches(rows)

    def _tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        if self.kind == "json":
            types = pa.schema([self.schema.field(name) for name in columns] or [self.schema.field(0)])
            yield from (_parse_objects(block, explicit_schema=types) for block in _read_json_blocks(self.path))
        elif self.kind in TREC:
            yield from (
                table for block in _read_blocks(self.path) for table in _parse_trec(block, self.kind, columns)
            )
        else:
            names = [name for name in self.schema.names if name != MALFORMED]
            for block in _read_csv_blocks(self.path):
                yield from _parse_csv(block, names, SEPARATORS[self.kind], columns)


def _parse_trec(block: bytes, kind: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Split lines at white space, as trec_eval 10 does. Skip empty lines, # comments, and fields after the tag."""
    block = block.translate(_TO_SPACES)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    block = block.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")
    if block.startswith(b"#") or b"\n#" in block:
        block = _COMMENT.sub(b"", block)
    names = TREC[kind]
    odd_lines: list[str] = []
    if block.strip(b"\n"):
        yield _parse_fields(block, names, " ", columns, odd_lines, quote=False)
    rows = [line.split(" ") for line in odd_lines]
    is_run = kind == "trec-run"
    fits = [is_run and len(row) > len(names) for row in rows]
    lines = [None if fit else line for fit, line in zip(fits, odd_lines, strict=True)]
    if odd_lines:
        yield _build_table([row if fit else [] for fit, row in zip(fits, rows, strict=True)], lines, names, columns)


def _read_csv_blocks(path: str) -> Iterator[bytes]:
    """Read the lines below the header, without blank lines."""
    has_header = False
    for block in _read_blocks(path):
        if b"\0" in block:
            raise InputRefusedError(f"cannot read {path}: it contains zero bytes; {ENGINE_HINT}.")
        if block[:1] <= b" " or _STARTS_BLANK.search(block):
            block = _BLANK_LINE.sub(b"", block)
        if not has_header:
            block = block.lstrip(b"\n")
            has_header, block = bool(block), block.partition(b"\n")[2]
        yield block


def _parse_csv(block: bytes, names: Sequence[str], separator: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    odd_lines: list[str] = []
    if has_quotes := b'"' in block:
        odd_lines += (line.decode().removesuffix("\n") for line in _ODD_QUOTES[separator].findall(block))
        block = _ODD_QUOTES[separator].sub(b"", block) if odd_lines else block
    if block.strip(b"\n"):
        yield _parse_fields(block, names, separator, columns, odd_lines, quote=has_quotes and '"')
    rows = [split_line(line, separator) for line in odd_lines]
    malformed = [None if len(row) == len(names) else line for row, line in zip(rows, odd_lines, strict=True)]
    if odd_lines:
        yield _build_table(rows, malformed, names, columns)


def _parse_fields(
    block: bytes,
    names: Sequence[str],
    separator: str,
    columns: Sequence[str],
    rejected: list[str],
    *,
    quote: str | bool,
) -> pa.Table:
    """Parse lines that have one field for each name, and append the other lines to `rejected`."""

    def skip(row: Any) -> str:
        rejected.append(row.text)
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(block),
        csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(names)),
        csv.ParseOptions(delimiter=separator, quote_char=quote, invalid_row_handler=skip),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            include_columns=list(columns or names[:1]),
        ),
    )
    return table.append_column(MALFORMED, pa.nulls(len(table), pa.string()))


def _build_table(
    rows: Sequence[Sequence[str | None]],
    malformed: Sequence[str | None],
    names: Sequence[str],
    columns: Sequence[str],
) -> pa.Table:
    """Build a table of rows. Missing fields at the end of a row are null."""
    places = {column: names.index(column) for column in columns}
    arrays = {
        column: pa.array([row[place] if place < len(row) else None for row in rows], pa.string())
        for column, place in places.items()
    }
    return pa.table({**arrays, MALFORMED: pa.array(malformed, pa.string())})


def _read_json_blocks(path: str) -> Iterator[bytes]:
    """Read blocks of lines of JSON, without blank lines and blanks around lines."""
    for block in _read_blocks(path):
        if not _has_objects_only(block):
            block = b"".join(line + b"\n" for raw_line in block.split(b"\n") if (line := raw_line.strip(b" \t")))
        if block:
            yield block


def _has_objects_only(block: bytes) -> bool:
    """Check that each line begins and ends like a JSON object."""
    n = block.count(b"\n")
    return block.startswith(b"{") and block.count(b"\n{") == n - 1 and block.count(b"}\n") == n


def _has_odd_values(block: bytes) -> bool:
    """Search for `_ODD_JSON`, after a cheap test that rules out most blocks."""
    may_match = b"0" * 19 in block.translate(_TO_ZEROS) or any(hint.search(block) for hint in _ODD_JSON_HINTS)
    return may_match and _ODD_JSON.search(block) is not None


def _parse_objects(block: bytes, **options: Any) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(unexpected_field_behavior="ignore", **options) if options else None,
    )


def _infer_json_schema(paths: Sequence[str]) -> pa.Schema | str:
    """Infer the types of lines of JSON from all lines, as Spark does; or return a clause on why only Spark can."""
    merged, path = pa.schema([]), ""
    try:
        for path in paths:
            for block in _read_json_blocks(path):
                table = _parse_objects(block) if _has_objects_only(block) and not _has_odd_values(block) else None
                if table is None or len(table) != block.count(b"\n"):
                    raise TypeError("lines that are not objects")
                merged = _merge_columns(merged, table.schema)
        if "_corrupt_record" in merged.names:
            raise TypeError("a column of broken lines")
        return pa.schema(list(_to_spark_type(pa.struct(list(merged)))))
    except (pa.ArrowException, TypeError) as error:
        return f"{path} has lines that only Spark reads ({format_reason(error)})"


def _merge_columns(columns: pa.Schema, others: pa.Schema) -> pa.Schema:
    """Merge the columns of two blocks. Raise a TypeError if Spark would read text."""
    texts = pa.schema([(field.name, convert_inside(field.type, _timestamp_to_text)) for field in others])
    try:
        return pa.unify_schemas([columns, texts], promote_options="permissive")
    except pa.ArrowTypeError:
        raise TypeError("values of different types under one name") from None


def _timestamp_to_text(arrow_type: pa.DataType) -> pa.DataType:
    """Undo that Arrow parses text as timestamps."""
    return pa.string() if pa.types.is_timestamp(arrow_type) else arrow_type


def _to_spark_type(arrow_type: pa.DataType) -> pa.DataType:
    """Sort the fields of structs by name, as Spark does. Columns with only nulls are text."""
    if pa.types.is_list(arrow_type):
        return pa.list_(_to_spark_type(arrow_type.value_type))
    if not pa.types.is_struct(arrow_type):
        return pa.string() if pa.types.is_null(arrow_type) else arrow_type
    if not arrow_type.num_fields:
        raise TypeError("objects without fields")
    if len({field.name.lower() for field in arrow_type}) < arrow_type.num_fields:
        raise TypeError("names that differ only in case")
    return pa.struct(
        [(field.name, _to_spark_type(field.type)) for field in sorted(arrow_type, key=lambda field: field.name)]
    )
