"""Write bad rows of the input as JSON, with the same text as Spark's `to_json`."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.evaluation.tasks.columns import convert_batch
from ndcg_spark.evaluation.tasks.complete_queries import FilesTask
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck, find_bad_rows

REJECTS = pa.schema([(column, pa.string()) for column in ("source", "reason", "row")])
_EXPONENT = re.compile(r"e([+-]?)0*(\d+)")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def find_originals(files: FilesTask, check: RowCheck, source: str) -> pa.Table:
    """Return the bad rows of a table with a single part, as `REJECTS`. The task must read all columns."""
    reasons, rows = list[str](), list[str]()
    for batch in find_bad_rows(_append_originals(files), check):
        row_type = batch.schema.field("row").type
        for index, reason in enumerate(batch.column("reason").to_pylist()):
            if reason is not None:
                reasons.append(reason)
                rows.append(format_row(batch.column("row")[index].as_py(), row_type))
    columns = [pa.repeat(source, len(rows)), pa.array(reasons, pa.string()), pa.array(rows, pa.string())]
    return pa.table(columns, schema=REJECTS)


def _append_originals(files: FilesTask) -> Iterator[pa.RecordBatch]:
    for batch in files.read_source(0):
        rows = convert_batch(batch, files.plan)
        original = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        if files.plan.runs:  # a row with several runs was read once for each run
            original = pa.concat_arrays([original] * len(files.plan.runs))
        yield pa.RecordBatch.from_arrays([*rows.columns, original], names=[*rows.schema.names, "row"])


def format_row(row: dict[str, Any], kind: pa.StructType) -> str:
    """Format a row as JSON, with its nulls. The column of malformed lines is included if the line is malformed."""
    fields = [field for field in kind if field.name != MALFORMED or row[MALFORMED] is not None]
    return _format_object((_quote_text(field.name), _format_value(row[field.name], field.type)) for field in fields)


def _format_object(pairs: Iterator[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{name}:{value}" for name, value in pairs) + "}"


def _format_value(value: Any, kind: pa.DataType) -> str:
    types = pa.types
    if value is None:
        return "null"
    if types.is_struct(kind):
        return _format_object(
            (_quote_text(field.name), _format_value(value[field.name], field.type)) for field in kind
        )
    if types.is_map(kind):
        return _format_object(
            (_quote_text(_format_key(key)), _format_value(item, kind.item_type)) for key, item in value
        )
    if types.is_list(kind):
        return "[" + ",".join(_format_value(item, kind.value_type) for item in value) + "]"
    if types.is_boolean(kind):
        return "true" if value else "false"
    if types.is_floating(kind):
        return _format_number(value if kind == pa.float64() else np.float32(value))
    if types.is_timestamp(kind):
        return _quote_text(_format_time(value, zoned=kind.tz is not None))
    if types.is_binary(kind):
        return _quote_text(base64.b64encode(value).decode())
    return str(value) if types.is_integer(kind) or types.is_decimal(kind) else _quote_text(str(value))


def _quote_text(text: str) -> str:
    return _ESCAPE.sub(lambda match: f"\\u{match[1].upper()}", json.dumps(text, ensure_ascii=False))


def _format_key(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format_time(value: datetime, *, zoned: bool) -> str:
    """Format a time to the millisecond; with a zone, as UTC."""
    plain = value.astimezone(timezone.utc) if zoned else value
    return f"{plain:%Y-%m-%dT%H:%M:%S}.{plain.microsecond // 1000:03}{'Z' if zoned else ''}"


def _format_number(value: Any) -> str:
    """Format a number as Java does: 0.001, 1.0E-4, 1.0E7."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e7:
        return np.format_float_positional(value, unique=True, trim="0")
    return _EXPONENT.sub(
        lambda match: f"E{'-' if match[1] == '-' else ''}{match[2]}",
        np.format_float_scientific(value, unique=True, trim="0"),
    )
