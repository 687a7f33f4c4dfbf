"""References to tables, as users write them: what their text says of the format, before anything is opened."""

from __future__ import annotations

import os
import re

_QUERY = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(?:select|with|from|values|table)(?=[\s('\"`]|--|/\*)", re.IGNORECASE | re.DOTALL
)
"""A query of SQL begins with one of these words, perhaps after comments and parentheses."""
_ENDINGS = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".avro": "avro",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_COMPRESSED = re.compile(r"\.(gz|bz2|zst|snappy|lz4)$", re.IGNORECASE)


def reference_text(reference: str | os.PathLike[str]) -> str:
    """Text of a reference; of a path object, a text that is not taken for a table or a query."""
    text = os.fspath(reference)
    return text if isinstance(reference, str) or os.path.isabs(text) else os.path.join(".", text)


def guess_format(reference: str) -> str:
    """Guess the format of a reference: a query, a path by its ending, or a table of the catalog.

    >>> guess_format("judgments.csv.gz"), guess_format("s3://bucket/run"), guess_format("prod.rankings")
    ('csv', 'parquet', 'table')
    """
    exists = os.path.exists(reference)
    if not exists and _QUERY.match(reference):
        return "sql"
    is_path = exists or "/" in reference or os.sep in reference
    return format_of_ending(reference.rstrip("/")) or ("parquet" if is_path else "table")


def format_of_ending(name: str) -> str | None:
    """Return the format of a file name's ending, which an ending of a compression may follow."""
    return _ENDINGS.get(os.path.splitext(_COMPRESSED.sub("", name.lower()))[1])


def without_ending(name: str) -> str:
    """Strip the endings of format and compression from a file name."""
    plain = _COMPRESSED.sub("", name)
    return os.path.splitext(plain)[0] if format_of_ending(plain) else plain


def sql_text(value: str) -> str:
    """Write a text as a SQL literal, for statements that take no parameters."""
    # The code of $, as Spark replaces ${name} by the setting of that name before it parses.
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"
