"""References to tables, as users write them, and the format that their text implies. Opens nothing."""

from __future__ import annotations

import os
import re

_QUERY = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(?:select|with|from|values|table)(?=[\s('\"`]|--|/\*)", re.IGNORECASE | re.DOTALL
)
"""The first word of a SQL query, after comments and parentheses if any."""
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


def format_reference(reference: str | os.PathLike[str]) -> str:
    """Return a reference as text. A path object becomes a text that cannot be read as a table name or a query."""
    text = os.fspath(reference)
    return text if isinstance(reference, str) or os.path.isabs(text) else os.path.join(".", text)


def guess_format(reference: str) -> str:
    """Guess the format of a reference: a SQL query, a path (by its ending), or a table of the catalog.

    >>> guess_format("judgments.csv.gz"), guess_format("s3://bucket/run"), guess_format("prod.rankings")
    ('csv', 'parquet', 'table')
    """
    exists = os.path.exists(reference)
    if not exists and _QUERY.match(reference):
        return "sql"
    is_path = exists or "/" in reference or os.sep in reference
    return guess_file_format(reference.rstrip("/")) or ("parquet" if is_path else "table")


def guess_file_format(name: str) -> str | None:
    """Return the format of a file name by its ending, before a compression ending if any."""
    return _ENDINGS.get(os.path.splitext(_COMPRESSED.sub("", name.lower()))[1])


def strip_endings(name: str) -> str:
    """Strip the format and compression endings from a file name."""
    plain = _COMPRESSED.sub("", name)
    return os.path.splitext(plain)[0] if guess_file_format(plain) else plain


def quote_sql(value: str) -> str:
    """Quote a text as a SQL literal, for statements that accept no parameters."""
    # $ is escaped, because Spark replaces ${name} by the setting of that name before it parses.
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024") + "'"
