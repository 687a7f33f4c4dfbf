"""Small column expressions that several steps share."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.session_settings import is_on
from ndcg_spark.errors import InputRefusedError, MissingColumnError, mark_refusal, not_in_file

MALFORMED = "__malformed_line"
"""Column beside those of a text format: the line, where it is no row. No user's column has such a name."""
BELOW_MICROSECONDS = "ndcg_spark.below_microseconds"
"""Metadata of a column of timestamps of which Spark has cut nanoseconds off; see `core/given.py`."""
WITHOUT_IT = "ndcg_spark.file_without_it"
"""Metadata of a column that one of the files of a table lacks, whose name it is; see `sources/folders.py`."""
_KEY_TYPES = (
    T.NumericType,
    T.StringType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.BinaryType,
)
"""Types of queries, items, runs, segments, clusters and users: equal for Spark where their bytes are, but for the two
zeros, which `comparable` makes one, and for collations, which `require_column` refuses."""
_COLLATED = re.compile(r" collate \w+")
MALFORMED_LINE = "malformed_line"
"""The reason why such a row is bad; workers are handed the line behind it, as `malformed_line: 1 Q0 a`."""
_ONE_EACH = "name each column once, as in SELECT r.*, q.relevance FROM runs r JOIN judgments q ..."
_NUMBER = r"(?i)^[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf|infinity)$"


def named(column: str) -> Column:
    """Refer to a top-level column by its exact name, dots and all."""
    return F.col(quoted(column))


def comparable(frame: DataFrame, column: str) -> Column:
    """Give a column whose values are compared: -0.0 is 0.0, which workers and texts tell apart."""
    kind = frame.schema[column].dataType
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return named(column)
    return F.when(named(column) == 0, F.lit(0.0).cast(kind)).otherwise(named(column))


def is_key(kind: T.DataType) -> bool:
    """Whether workers compare values of a type as Spark does."""
    return isinstance(kind, _KEY_TYPES)


def comparable_key(frame: DataFrame, column: str, part: str, table: str) -> Column:
    """Give a column whose values are compared; refuse arrays, structs, maps and the like. Reads the schema."""
    kind = require_column(frame, column, part, table)
    if not is_key(kind):
        raise InputRefusedError(f"column {column!r} ({part}) is {kind.simpleString()}; cast it to text first.")
    return comparable(frame, column)


def refuse_collation(kind: T.DataType, what: str, column: str) -> None:
    """Raise for text, or an array or map of it, with a collation: workers compare its bytes, and Spark does not."""
    text = getattr(kind, "elementType", getattr(kind, "keyType", kind))
    name = str(getattr(text, "collation", None) or "UTF8_BINARY")  # text of Spark 3.5 has none
    if not isinstance(text, T.StringType) or name == "UTF8_BINARY":
        return
    plain, value = _COLLATED.sub("", kind.simpleString()), column if column.isidentifier() else quoted(column)
    alike = f" (of one spelling: CAST({'rtrim' if 'RTRIM' in name else 'lower'}({value}) AS {plain}))"
    raise InputRefusedError(
        f"{what} is {kind.simpleString()}, in which Spark takes different texts for equal, and workers do not; make "
        f"it plain text: CAST({value} AS {plain}){alike if text is kind else ''}."
    )


def quoted(name: str) -> str:
    """Write a name as one part of an identifier of SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def require_column(frame: DataFrame, column: str, part: str, table: str) -> T.DataType:
    """Raise unless a table has a column, once, whose values workers see as Spark does; return its type.

    Reads the schema, runs no action. For the message: `part` is the option that named the column, and `table` what a
    person calls the table (`input`, `judgments`). A missing column raises MissingColumnError, one that is there
    twice, as after a join, or that has a collation InputRefusedError.
    """
    if column in frame.columns:
        same = same_names(frame, column)
        if len(same) > 1:
            raise InputRefusedError(f"column {column!r} ({part}) is {_doubled(same)} in the {table}; {_ONE_EACH}")
        field = frame.schema[column]
        refuse_collation(field.dataType, f"column {column!r} ({part}) of the {table}", column)
        metadata = field.metadata or {}
        if WITHOUT_IT in metadata:
            raise not_in_file(f"column {column!r} ({part}) of the {table}", metadata[WITHOUT_IT])
        if BELOW_MICROSECONDS in metadata:
            raise InputRefusedError(
                f"column {column!r} ({part}) of the {table} has timestamps in nanoseconds, which Spark cuts to "
                "microseconds, and makes some equal; round them (pandas: .dt.floor('us')), or make them text."
            )
        return field.dataType
    names = [name for name in frame.columns if name != MALFORMED]
    near = [name for name in names if name.lower() == column.lower()]
    near = near or difflib.get_close_matches(column, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    have = ", ".join(names) or "no columns at all"
    raise MissingColumnError(f"column {column!r} ({part}) is not in the {table}, which has: {have}.{hint}")


def has_column(frame: DataFrame, column: str) -> bool:
    """Check whether a table has a column; refuse one whose name differs in case alone, which Spark takes for it."""
    if column in frame.columns:
        return True
    other = next((name for name in frame.columns if name.lower() == column.lower()), None)
    if other is None or is_on(frame.sparkSession, "spark.sql.caseSensitive", "false"):
        return False
    raise InputRefusedError(
        f"column {column!r} is called {other!r} in a table that was given: rename it, as in "
        f".withColumnRenamed({other!r}, {column!r}), or name it as it is written there."
    )


def field_named(frame: DataFrame, column: str, fields: Sequence[str], name: str) -> str | None:
    """Find a field of structs in a column, whatever the case of its name; refuse two that differ in case alone."""
    same = [field for field in fields if field.lower() == name.lower()]
    if len(same) > 1 and is_on(frame.sparkSession, "spark.sql.caseSensitive", "false"):
        same = [field for field in same if field == name] or same
    if len(same) > 1:
        names = " and ".join(same)
        raise InputRefusedError(f"column {column!r} has structs with fields {names}, one name to Spark; rename one.")
    return same[0] if same else None


def same_names(frame: DataFrame, column: str) -> list[str]:
    """Find the columns that Spark takes a name for: more than one is an error wherever the name is used."""
    same = [name for name in frame.columns if name.lower() == column.lower()]
    if len(same) < 2 or not is_on(frame.sparkSession, "spark.sql.caseSensitive", "false"):
        return same
    return [name for name in same if name == column]


def row_of(frame: DataFrame, names: Sequence[str]) -> Column:
    """Put columns of a row into a struct, as the row came; refuse two of one name, which a struct cannot hold."""
    spellings = Counter(name.lower() for name in names)
    for name in names:
        same = same_names(frame, name) if spellings[name.lower()] > 1 else [name]
        if len(same) > 1:
            where = "in a table whose bad rows are to be kept as they came"
            raise InputRefusedError(f"column {name!r} is {_doubled(same)} {where}; {_ONE_EACH}")
    return F.struct(*columns_of(names))


def _doubled(same: Sequence[str]) -> str:
    spellings = sorted(set(same))
    return f"there {len(same)} times" + (f" ({', '.join(spellings)})" if len(spellings) > 1 else "")


def number(frame: DataFrame, column: str, part: str, table: str, *, parse_text: bool) -> Column:
    """Give a numeric column as double; booleans count as 1 and 0. `part` and `table` are as for `require_column`.

    With `parse_text`, for formats that have nothing else, text is read as numbers; what is no number becomes null.
    """
    kind = require_column(frame, column, part, table)
    if isinstance(kind, T.StringType) and parse_text:
        parsed = F.expr(f"try_cast(trim({quoted(column)}) as double)")
        return F.when(F.trim(named(column)).rlike(_NUMBER), parsed)  # Java also takes 1d and 0x1p3 for numbers
    if not isinstance(kind, T.NumericType | T.BooleanType):
        raise InputRefusedError(
            f"column {column!r} ({part}) of the {table} is {kind.simpleString()}, not a number; cast it first."
        )
    return named(column).cast("double")


def refuse(*parts: Column | str) -> Column:
    """Raise on the worker with a message that the driver recognises, where this column is evaluated."""
    opening, closing = mark_refusal("\0").split("\0")
    pieces = [F.lit(part) if isinstance(part, str) else part for part in (opening, *parts, closing)]
    return F.raise_error(F.concat(*pieces))


def key_text(keys: Iterable[str], labels: Mapping[str, str]) -> Column:
    """Name a query for a person, as a column: `query_id=7`. Keys without a label are named as they are."""
    parts = [
        F.concat(F.lit(f"{labels.get(key, key)}="), F.coalesce(named(key).cast("string"), F.lit("null")))
        for key in keys
    ]
    return F.concat_ws(", ", *parts)


def malformed_key(frame: DataFrame, key: Column) -> Column:
    """Name a row for a person by a key or, where it is a malformed line, by the start of that line."""
    if MALFORMED not in frame.columns:
        return key
    line = F.concat(F.lit("line '"), F.substring(named(MALFORMED), 1, 200), F.lit("'"))
    return F.when(named(MALFORMED).isNull(), key).otherwise(line)


def raise_if(value: Column, bad: Column, *message: Column | str, kind: str) -> Column:
    """Give `value`, which is of type `kind` in Spark's words, or raise with a message where `bad` is true."""
    if not hasattr(DataFrame, "zipWithIndex"):
        # Before 4.2 Spark may move later filters below what raises, and so meet rows that an earlier filter takes
        # out. Filters stay above what may differ from run to run, as this number may.
        bad = bad & (F.spark_partition_id() >= 0)
    return F.when(bad, refuse(*message).cast(kind)).otherwise(value)


def columns_of(names: Sequence[str]) -> list[Column]:
    """Refer to several top-level columns by their exact names."""
    return [named(name) for name in names]


def is_ml_vector(kind: T.DataType) -> bool:
    """Whether a type is that of vectors of `pyspark.ml`."""
    return type(kind).__name__ == "VectorUDT"


def vector_column(frame: DataFrame, column: str) -> Column | None:
    """Give vectors as array<float>, where they are that, or array<double>; None for a column of something else."""
    kind = frame.schema[column].dataType
    if is_ml_vector(kind):
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(named(column))
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if isinstance(element, T.FloatType):
        return named(column)
    return named(column).cast("array<double>") if isinstance(element, T.NumericType) else None


def row_as_json(row: Column, names: Sequence[str]) -> Column:
    """Write a row with these columns as JSON, with its nulls, and with the malformed line if it is one."""
    with_nulls = {"ignoreNullFields": "false"}
    text = F.to_json(row, with_nulls)
    if MALFORMED not in names:
        return text
    return F.when(row[MALFORMED].isNull(), F.to_json(row.dropFields(MALFORMED), with_nulls)).otherwise(text)
