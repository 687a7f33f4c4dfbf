"""The same small table for either engine: of Arrow, by a schema in the words of Spark; and what was found, as rows.

The fixture `engine` gives one of ENGINES.
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


def type_of(text: str) -> pa.DataType:
    """Give the type of Arrow for one that is written as Spark does: `array<struct<id: string, grade: int>>`."""
    kind, _, inner = text.strip().partition("<")
    if not inner:
        digits = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
        return pa.decimal128(int(digits[1]), int(digits[2])) if digits else TYPES[kind]
    parts = _parts(inner.removesuffix(">"))
    if kind == "struct":
        return pa.struct([(name.strip(), type_of(group)) for name, group in (part.split(":", 1) for part in parts)])
    return (pa.list_ if kind == "array" else pa.map_)(*map(type_of, parts))


def _parts(text: str) -> list[str]:
    """Divide at commas that no bracket holds."""
    actual, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        actual = [*actual, ""] if sign == "," and not depth else [*actual[:-1], actual[-1] + sign]
    return actual


def table(rows: Iterable[Sequence[Any]], schema: str) -> pa.Table:
    """Make a table of Arrow, as `spark.createDataFrame` makes one of Spark."""
    fields = [part.strip().split(" ", 1) for part in _parts(schema)]
    listed = list(rows)
    columns = zip(*listed, strict=True) if listed else [()] * len(fields)
    return pa.table(
        {name: pa.array(group, type_of(kind)) for (name, kind), group in zip(fields, columns, strict=True)}
    )


def with_columns(given: pa.Table, **columns: Any) -> pa.Table:
    """Add columns, or put others in the place of those that are there: arrays, or one value for all rows."""
    for name, values in columns.items():
        group = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.repeat(pa.scalar(values), len(given))
        at = given.schema.get_field_index(name)
        given = given.append_column(name, group) if at < 0 else given.set_column(at, name, group)
    return given


def rows_of(found: Any, metric: str | None = None) -> list[dict[str, Any]]:
    """Rows of a table of Arrow or of Spark; of one metric, if it is named."""
    rows = found.to_pylist() if isinstance(found, pa.Table) else [row.asDict() for row in found.collect()]
    return [row for row in rows if metric is None or row["metric"] == metric]


def refusal(
    kind: type[Exception] | tuple[type[Exception], ...], call: Callable[..., Any], *args: Any, **more: Any
) -> str:
    """Say what a refusal of a kind says, with options as arguments of Python."""
    with pytest.raises(kind) as raised:
        call(*args, **more)
    return spell_options(str(raised.value))


def by(names: str, **cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Give a test the cases of each engine: values of `names`, as for `pytest.mark.parametrize`."""
    values = [
        (engine, *(element if "," in names else (element,))) for engine, group in cases.items() for element in group
    ]
    return pytest.mark.parametrize(f"engine, {names}", values, indirect=["engine"])


def refused(evaluation: Any) -> str:
    """Say what an evaluation refuses once it runs; nothing where it does not."""
    try:
        evaluation.to_pandas()
    except InputRefusedError as error:
        return spell_options(str(error))
    return ""
