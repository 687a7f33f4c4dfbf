"""Text files that Arrow reads as Spark reads them: csv and tsv, lines of JSON, and the TREC formats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import csv
from pyarrow import json as arrow_json

from ndcg_spark.core.schemas import MALFORMED, chosen_fields
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.sources.parquet import refusing_unreadable
from ndcg_spark.sources.stores import reason_of

TREC = {
    "trec-run": ("query_id", "iteration", "item_id", "rank", "score", "tag"),
    "trec-qrels": ("query_id", "iteration", "item_id", "relevance"),
}
SEPARATORS = {"csv": ",", "tsv": "\t"}
KINDS = (*SEPARATORS, *TREC, "json")
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
_UNREAD = re.compile(r"\.(?!(?:gz|bz2|zst)$)(?i:gz|bz2|zst|zstd|deflate|snappy|lz4|lzo\w*|xz)$")
"""Endings of files that Spark decompresses, or may, and Arrow does not in the same way."""
WAY_OUT = f"{option('engine', 'spark')} leaves reading to Spark"
_BLOCK = 2**22
_BLANKS = bytes(range(33))
"""What Java trims: a csv line of nothing else is no row."""
_STARTS_BLANK = re.compile(rb"\n[\x00-\x09\x0b-\x20]")
_BLANK_LINE = re.compile(rb"(?m)^[\x00-\x09\x0b-\x20]+(?:\n|\Z)")
_COMMENT = re.compile(rb"(?m)^#[^\n]*\n")
_TO_SPACES = bytes(32 if at in b"\t\x0b\x0c" else at for at in range(256))
_FIELD = r'(?:"[^"\n]*(?:""[^"\n]*)*"|[^"\n{0}]*)'
_ODD = {sep: re.compile(rf"(?m)^(?!{_FIELD}(?:{sep}{_FIELD})*$).*\n".format(sep).encode()) for sep in ",\t"}
"""Lines of csv in which quotes stand elsewhere than around whole fields."""
_ODD_JSON = re.compile(rb"[:\[,\s](?:-?\d{19,}|-0[,\]}\s]|[-+]?NaN|[-+]?Inf)|\xef\xbf\xbd")
"""Numbers that may not fit in a bigint, a zero with a sign, no numbers, and signs in place of bytes of no text."""
_NEAR_ODD_JSON = (re.compile(b"NaN"), re.compile(b"Inf"), re.compile(b"\xef\xbf\xbd"), re.compile(rb"-0[,\]}\s]"))
_TO_ZEROS = bytes(48 if 48 <= at <= 57 else at for at in range(256))


def obstacle_of(path: str) -> str | None:
    """Say in a clause why a file is not read here; None if it is."""
    return f"{path} is compressed in a way that Spark reads" if _UNREAD.search(path) else None


def _blocks(path: str) -> Iterator[bytes]:
    """Read whole lines, of UTF-8 that end in a line feed."""
    rest, is_first = b"", True
    compression = _COMPRESSIONS.get(path.rpartition(".")[2])
    with pa.input_stream(path, compression=compression) as file:
        while data := file.read(_BLOCK):
            if is_first:
                data, is_first = data.removeprefix(b"\xef\xbb\xbf"), False
            data = rest + data
            end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1))
            rest = data[end:]
            if end:
                yield _plain_lines(data[:end])
    if rest:
        yield _plain_lines(rest)


def _plain_lines(block: bytes) -> bytes:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        block.decode()
    except UnicodeDecodeError:
        block = block.decode(errors="replace").encode()
    return block if block.endswith(b"\n") else block + b"\n"


def schema_of(paths: Sequence[str], kind: str) -> pa.Schema | str:
    """Find the columns of files of a kind; or say in a clause why Spark has to."""
    if kind == "json":
        return _json_schema(paths)
    names: Sequence[str | None] = TREC.get(kind, ())
    if kind in SEPARATORS:
        headers = [header for path in paths if (header := _header(path, kind)) is not None]
        if not headers:
            return pa.schema([])  # whatever is asked for will be found missing
        if any(header != headers[0] for header in headers):
            return "headers of files differ"
        names = headers[0]
        if None in names or MALFORMED in names or len({str(name).lower() for name in names}) < len(names):
            return "a name in the header is empty, or there twice"
    return pa.schema([(name, pa.string()) for name in (*names, MALFORMED)])


def _header(path: str, kind: str) -> list[str | None] | None:
    """Read the names in the first line of a csv or tsv file; None if it has no line."""
    for block in _blocks(path):
        line = block.lstrip(_BLANKS).partition(b"\n")[0]
        if line:
            start = block.index(line)
            whole = block[block.rfind(b"\n", 0, start) + 1 : start] + line
            return fields_of_line(whole.decode(), SEPARATORS[kind])
    return None


def fields_of_line(line: str, separator: str) -> list[str | None]:
    """Split a line as Spark's parser does; see `_quoted`."""
    fields: list[str | None] = []
    at = 0
    while True:
        if line.startswith('"', at):
            value, at = _quoted(line, at, separator)
        else:
            end = _find(line, separator, at)
            value, at = line[at:end] or None, end
        fields.append(value)
        if at >= len(line):
            return fields
        at += 1


def _quoted(line: str, start: int, separator: str) -> tuple[str | None, int]:
    """Read a field that begins with a quote: its text and end.

    Blanks behind the closing quote are left out. Where other text follows it, the field is what stands there up to
    the next separator; if no quote closes it, it is the rest of the line.
    """
    text, at = "", start + 1
    while (quote := line.find('"', at)) >= 0:
        text += line[at:quote]
        if line.startswith('"', quote + 1):
            text, at = text + '"', quote + 2
            continue
        end = quote + 1
        while end < len(line) and line[end] <= " " and line[end] != separator:
            end += 1
        if end == len(line) or line[end] == separator:
            return text or None, end
        stop = _find(line, separator, end + 1)
        # At the end of a line, one quote too many is what Spark's parser has.
        is_doubled = end > quote + 1 and stop == len(line) and line[end] != '"' and line.startswith('"', end + 1)
        return f'"{text}{line[quote:stop]}' + '"' * is_doubled, stop
    return text + line[at:] or (None if at > start + 1 else '"'), len(line)


def _find(line: str, separator: str, start: int) -> int:
    end = line.find(separator, start)
    return len(line) if end < 0 else end


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text file with columns of these names and types."""

    path: str
    kind: str
    schema: pa.Schema

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        wanted = chosen_fields(columns, schema)
        with refusing_unreadable(self.path):
            for table in self._tables([name for name in wanted.names if name != MALFORMED]):
                arrays = [table.column(one.name).cast(one.type) for one in wanted]
                yield from pa.Table.from_arrays(arrays, schema=wanted).to_batches(rows)

    def _tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        if self.kind == "json":
            types = pa.schema([self.schema.field(name) for name in columns] or [self.schema.field(0)])
            yield from (_objects(block, explicit_schema=types) for block in _json_blocks(self.path))
        elif self.kind in TREC:
            yield from (table for block in _blocks(self.path) for table in _trec_tables(block, self.kind, columns))
        else:
            names = [name for name in self.schema.names if name != MALFORMED]
            for block in _rows_of_csv(self.path):
                yield from _csv_tables(block, names, SEPARATORS[self.kind], columns)


def _trec_tables(block: bytes, kind: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Split lines at white space, as trec_eval 10 does. Skips empty lines, # comments, and fields after the tag."""
    block = block.translate(_TO_SPACES)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    block = block.replace(b" \n", b"\n").replace(b"\n ", b"\n").removeprefix(b" ")
    if block.startswith(b"#") or b"\n#" in block:
        block = _COMMENT.sub(b"", block)
    names = TREC[kind]
    others: list[str] = []
    if block.strip(b"\n"):
        yield _split(block, names, " ", columns, others, quote=False)
    rows = [line.split(" ") for line in others]
    is_run = kind == "trec-run"
    fits = [is_run and len(row) > len(names) for row in rows]
    lines = [None if fit else line for fit, line in zip(fits, others, strict=True)]
    if others:
        yield _table_of_rows([row if fit else [] for fit, row in zip(fits, rows, strict=True)], lines, names, columns)


def _rows_of_csv(path: str) -> Iterator[bytes]:
    """Read the lines below the header, without blank ones."""
    has_header = False
    for block in _blocks(path):
        if b"\0" in block:
            raise InputRefusedError(f"cannot read {path}: it has bytes that are zero; {WAY_OUT}.")
        if block[:1] <= b" " or _STARTS_BLANK.search(block):
            block = _BLANK_LINE.sub(b"", block)
        if not has_header:
            block = block.lstrip(b"\n")
            has_header, block = bool(block), block.partition(b"\n")[2]
        yield block


def _csv_tables(block: bytes, names: Sequence[str], separator: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    others: list[str] = []
    if has_quotes := b'"' in block:
        others += (line.decode().removesuffix("\n") for line in _ODD[separator].findall(block))
        block = _ODD[separator].sub(b"", block) if others else block
    if block.strip(b"\n"):
        yield _split(block, names, separator, columns, others, quote=has_quotes and '"')
    rows = [fields_of_line(line, separator) for line in others]
    bad = [None if len(row) == len(names) else line for row, line in zip(rows, others, strict=True)]
    if others:
        yield _table_of_rows(rows, bad, names, columns)


def _split(
    block: bytes,
    names: Sequence[str],
    separator: str,
    columns: Sequence[str],
    others: list[str],
    *,
    quote: str | bool,
) -> pa.Table:
    """Split lines with as many fields as there are names, and add the others to a list."""

    def skip(row: Any) -> str:
        others.append(row.text)
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


def _table_of_rows(
    rows: Sequence[Sequence[str | None]],
    malformed: Sequence[str | None],
    names: Sequence[str],
    columns: Sequence[str],
) -> pa.Table:
    """Build a table of rows, null where one is too short."""
    places = {name: names.index(name) for name in columns}
    arrays = {
        name: pa.array([row[at] if at < len(row) else None for row in rows], pa.string())
        for name, at in places.items()
    }
    return pa.table({**arrays, MALFORMED: pa.array(malformed, pa.string())})


def _json_blocks(path: str) -> Iterator[bytes]:
    """Read lines without blanks around them."""
    for block in _blocks(path):
        if not _is_of_objects(block):
            block = b"".join(line + b"\n" for one in block.split(b"\n") if (line := one.strip(b" \t")))
        if block:
            yield block


def _is_of_objects(block: bytes) -> bool:
    """Check that each line begins and ends as an object does."""
    n = block.count(b"\n")
    return block.startswith(b"{") and block.count(b"\n{") == n - 1 and block.count(b"}\n") == n


def _is_odd(block: bytes) -> bool:
    """Search for `_ODD_JSON`; quickly where what it needs is not there."""
    is_near = b"0" * 19 in block.translate(_TO_ZEROS) or any(one.search(block) for one in _NEAR_ODD_JSON)
    return is_near and _ODD_JSON.search(block) is not None


def _objects(block: bytes, **options: Any) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(block),
        arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        arrow_json.ParseOptions(unexpected_field_behavior="ignore", **options) if options else None,
    )


def _json_schema(paths: Sequence[str]) -> pa.Schema | str:
    """Find the types of lines of JSON as Spark does, which reads all lines for it, too; or say why Spark has to."""
    merged, path = pa.struct([]), ""
    try:
        for path in paths:
            for block in _json_blocks(path):
                table = _objects(block) if _is_of_objects(block) and not _is_odd(block) else None
                if table is None or len(table) != block.count(b"\n"):
                    raise TypeError("other lines than objects")
                merged = _merged(merged, pa.struct(list(table.schema)))
        if "_corrupt_record" in {one.name for one in merged}:
            raise TypeError("a column of broken lines")
        return pa.schema(list(_named(merged)))
    except (pa.ArrowException, TypeError) as error:
        return f"{path} has lines that only Spark reads ({reason_of(error)})"


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Find the type of values of two types; a TypeError if Spark makes them text. Arrow guesses times in text."""
    kinds = [pa.string() if pa.types.is_timestamp(kind) else kind for kind in (one, other)]
    if pa.types.is_null(kinds[0]) or kinds[0] == kinds[1]:
        return kinds[1]
    if pa.types.is_null(kinds[1]):
        return kinds[0]
    if all(map(pa.types.is_struct, kinds)):
        fields = [{its.name: its.type for its in kind} for kind in kinds]
        names = dict.fromkeys(name for its in fields for name in its)
        return pa.struct([(name, _merged(*(its.get(name, pa.null()) for its in fields))) for name in names])
    if all(map(pa.types.is_list, kinds)):
        return pa.list_(_merged(*(kind.value_type for kind in kinds)))
    if set(kinds) == {pa.int64(), pa.float64()}:
        return pa.float64()
    raise TypeError("values of one name and several types")


def _named(kind: pa.DataType) -> pa.DataType:
    """Put fields in the order that Spark has; what has only nulls is text."""
    if pa.types.is_list(kind):
        return pa.list_(_named(kind.value_type))
    if not pa.types.is_struct(kind):
        return pa.string() if pa.types.is_null(kind) or pa.types.is_timestamp(kind) else kind
    if not kind.num_fields:
        raise TypeError("objects without fields")
    if len({one.name.lower() for one in kind}) < kind.num_fields:
        raise TypeError("names that differ in case alone")
    return pa.struct([(one.name, _named(one.type)) for one in sorted(kind, key=lambda one: one.name)])
