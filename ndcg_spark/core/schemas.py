"""Description of a table's columns, without rows and without Spark: names, types, and reasons to refuse them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.errors import InputRefusedError, MissingColumnError

MALFORMED = "__malformed_line"
"""Column beside those of a text format: the line, if it is malformed. No user's column has such a name."""
MALFORMED_LINE = "malformed_line"
"""Reason of such a bad row; workers get it with the line, as `malformed_line: 1 Q0 a`."""
NUMBER_TEXT = r"(?i)^[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf|infinity)$"
"""Text of a text table that is a number, around which blanks may be."""
BELOW_MICROSECONDS = "ndcg_spark.below_microseconds"
"""Metadata of a column of timestamps of which nanoseconds were cut off; see `core/arrow_tables.py`."""
HAS_NANOSECONDS = (
    "has timestamps in nanoseconds, which Spark truncates to microseconds, so that some become equal; round them "
    "(pandas: .dt.floor('us')), or cast them to text."
)
"""Why such a column is refused, as `TableInfo.refused`."""
_SPELLINGS = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
}
NO_KEYS = pa.list_(pa.null())
"""Placeholder for the key type of `map()`, which Arrow does not have."""
ONE_EACH = "name each column once, as in SELECT r.*, q.relevance FROM runs r JOIN judgments q ..."


def format_type(kind: pa.DataType) -> str:
    """Name a type as Spark does: `array<struct<id:string,score:double>>`."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{format_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{format_type(kind.key_type)},{format_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{format_type(field.type)}' for field in kind)}>"
    return _SPELLINGS.get(kind, str(kind))


def is_list(kind: pa.DataType) -> bool:
    """Check for lists of any length, with offsets of any width."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def convert_inside(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Convert a type, or those inside lists, maps and structs; every field becomes nullable."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, convert_inside(field.type, convert)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(convert_inside(kind.key_type, convert), convert_inside(kind.item_type, convert))
    return pa.list_(convert_inside(kind.value_type, convert)) if pa.types.is_list(kind) else convert(kind)


def is_numeric(kind: pa.DataType) -> bool:
    """Check for a numeric type; booleans are not numeric."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_key(kind: pa.DataType) -> bool:
    """Check for a type of queries, items, runs, segments, clusters and users, which workers compare as Spark does.

    Exceptions: the two zeros, which are read as one, and collations, which are refused.
    """
    others = (pa.types.is_boolean, pa.types.is_string, pa.types.is_binary, pa.types.is_date32, pa.types.is_timestamp)
    return is_numeric(kind) or any(is_type(kind) for is_type in others)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """Columns of a table, which messages call `label`. With `is_text`, numbers and times are text to be parsed.

    `refused` says why a column, or a field (`column.field`), cannot be used: the rest of a sentence that begins with
    its name. `spellings` are names of types that Arrow does not have.
    """

    schema: pa.Schema
    label: str = "input"
    is_text: bool = False
    case_sensitive: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    spellings: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def type_of(self, column: str) -> pa.DataType:
        return self.schema.field(self.schema.get_all_field_indices(column)[0]).type

    def type_text(self, column: str) -> str:
        return self.spellings.get(column) or format_type(self.type_of(column))

    def find_names(self, column: str) -> list[str]:
        """Find the columns that a name stands for: more than one is an error wherever the name is used."""
        if self.case_sensitive:
            return [name for name in self.names if name == column]
        return [name for name in self.names if name.lower() == column.lower()]

    @property
    def own_names(self) -> list[str]:
        """The names of the columns, without those that readers add."""
        return [name for name in self.names if name not in (MALFORMED, REFUSAL)]

    def require(self, column: str, option_name: str) -> pa.DataType:
        """Return the type of a column; raise if it is missing, ambiguous or refused.

        `option_name` is the option that named it.
        """
        if column in self.names:
            same = self.find_names(column)
            if len(same) > 1:
                problem = f"column {column!r} ({option_name}) is {describe_repeats(same)} in the {self.label}"
                raise InputRefusedError(f"{problem}; {ONE_EACH}")
            self.check(column, f"column {column!r} ({option_name}) of the {self.label}")
            return self.type_of(column)
        names = self.own_names
        near = [name for name in names if name.lower() == column.lower()]
        near = near or difflib.get_close_matches(column, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        have = ", ".join(names) or "no columns"
        raise MissingColumnError(
            f"column {column!r} ({option_name}) is not in the {self.label}, which has: {have}.{hint}"
        )

    def check(self, key: str, subject: str) -> None:
        """Raise for a column or a field that cannot be used, which a message calls `subject`."""
        if key in self.refused:
            raise InputRefusedError(f"{subject} {self.refused[key]}")

    def has(self, column: str) -> bool:
        """Check for a column; refuse one whose name differs in case alone, which Spark takes for it."""
        if column in self.names:
            return True
        other = next((name for name in self.names if name.lower() == column.lower()), None)
        if other is None or self.case_sensitive:
            return False
        raise InputRefusedError(
            f"column {column!r} is named {other!r} in a table; rename it, as in "
            f".withColumnRenamed({other!r}, {column!r}), or use that name."
        )

    def require_key(self, column: str, option_name: str) -> pa.DataType:
        """Return the type of a column for comparisons; refuse arrays, structs, maps and the like."""
        kind = self.require(column, option_name)
        if column in self.spellings or not is_key(kind):
            raise InputRefusedError(
                f"column {column!r} ({option_name}) is {self.type_text(column)}; cast it to text first."
            )
        return kind

    def require_number(self, column: str, option_name: str) -> pa.DataType:
        """Return the type of a column of numbers or booleans, or of text in a text table."""
        kind = self.require(column, option_name)
        parsed = pa.types.is_string(kind) and self.is_text
        if column in self.spellings or not (parsed or is_numeric(kind) or pa.types.is_boolean(kind)):
            raise InputRefusedError(
                f"column {column!r} ({option_name}) of the {self.label} is {self.type_text(column)}, not a number; "
                "cast it first."
            )
        return kind

    def find_field(self, column: str, name: str) -> str | None:
        """Find a field of structs in a column, whatever the case of its name; refuse two of one name to Spark."""
        same = [field.name for field in list_fields(self.type_of(column)) if field.name.lower() == name.lower()]
        if len(same) > 1 and self.case_sensitive:
            same = [field for field in same if field == name] or same
        if len(same) > 1:
            names = " and ".join(same)
            raise InputRefusedError(
                f"column {column!r} has structs with fields {names}, which Spark treats as one name; rename one."
            )
        return same[0] if same else None


def select_fields(columns: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """Select columns to read, and `MALFORMED` if the schema has it."""
    return pa.schema([field for field in schema if field.name in (*columns, MALFORMED)])


def list_fields(kind: pa.DataType) -> list[pa.Field]:
    """Fields of a struct, or of the structs in a list; none for any other type."""
    element = kind.value_type if pa.types.is_list(kind) else kind
    return list(element) if pa.types.is_struct(element) else []


def describe_repeats(same: list[str]) -> str:
    spellings = sorted(set(same))
    return f"present {len(same)} times" + (f" ({', '.join(spellings)})" if len(spellings) > 1 else "")
