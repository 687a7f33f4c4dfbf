"""Small tables for either engine, built in Arrow from a schema in Spark's syntax; results as rows.

The fixture `engine` is one of ENGINES.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from ndcg_spark.errors import InputRefusedError, spell_options

ENGINES: Mapping[str, Mapping[str, str]] = {
    "local": {"engine": "local"},
    "spark": {"engine": "spark"},
    "window": {"engine": "spark", "strategy": "window"},
}
"""Options of `evaluate` that say who ranks."""
TYPES = {
    "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(),
    "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "void": pa.null(),
}  # fmt: skip


def parse_type(text: str) -> pa.DataType:
    """Parse a type in Spark's syntax, such as `array<struct<id: string, grade: int>>`, into a type of Arrow."""
    kind, _, inner = text.strip().partition("<")
    if not inner:
        digits = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
        return pa.decimal128(int(digits[1]), int(digits[2])) if digits else TYPES[kind]
    parts = _split_at_commas(inner.removesuffix(">"))
    if kind == "struct":
        return pa.struct(
            [(name.strip(), parse_type(inner_type)) for name, inner_type in (part.split(":", 1) for part in parts)]
        )
    return (pa.list_ if kind == "array" else pa.map_)(*map(parse_type, parts))


def _split_at_commas(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        parts = [*parts, ""] if sign == "," and not depth else [*parts[:-1], parts[-1] + sign]
    return parts


def table(rows: Iterable[Sequence[Any]], schema: str) -> pa.Table:
    """Build a table of Arrow, as `spark.createDataFrame` builds one of Spark."""
    fields = [part.strip().split(" ", 1) for part in _split_at_commas(schema)]
    listed = list(rows)
    columns = zip(*listed, strict=True) if listed else [()] * len(fields)
    return pa.table(
        {name: pa.array(values, parse_type(kind)) for (name, kind), values in zip(fields, columns, strict=True)}
    )


def with_columns(rows: pa.Table, **columns: Any) -> pa.Table:
    """Add or replace columns: arrays, or one value for all rows."""
    for name, values in columns.items():
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.repeat(pa.scalar(values), len(rows))
        at = rows.schema.get_field_index(name)
        rows = rows.append_column(name, array) if at < 0 else rows.set_column(at, name, array)
    return rows


def collect_rows(frame: Any, metric: str | None = None) -> list[dict[str, Any]]:
    """Return rows of a table of Arrow or of Spark; of one metric if it is named."""
    rows = frame.to_pylist() if isinstance(frame, pa.Table) else [row.asDict() for row in frame.collect()]
    return [row for row in rows if metric is None or row["metric"] == metric]


def catch_refusal(
    kind: type[Exception] | tuple[type[Exception], ...], call: Callable[..., Any], *args: Any, **more: Any
) -> str:
    """Return the message of a refusal, with options spelled as arguments of Python."""
    with pytest.raises(kind) as raised:
        call(*args, **more)
    return spell_options(str(raised.value))


def parametrize_engine(names: str, **cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test by engine: `cases` holds the values of `names` of each engine."""
    values = [
        (engine, *(case if "," in names else (case,)))
        for engine, engine_cases in cases.items()
        for case in engine_cases
    ]
    return pytest.mark.parametrize(f"engine, {names}", values, indirect=["engine"])


def run_refused(evaluation: Any) -> str:
    """Run an evaluation; return the message of its refusal, or an empty string."""
    try:
        evaluation.to_pandas()
    except InputRefusedError as error:
        return spell_options(str(error))
    return ""
