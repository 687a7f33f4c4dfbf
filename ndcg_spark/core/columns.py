"""Column expressions that several rooms share: columns and keys of tables, numbers, times as UTC, exact sums."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import reduce
from operator import add

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.core.schemas import (
    BELOW_MICROSECONDS,
    HAS_NANOSECONDS,
    MALFORMED,
    NO_KEYS,
    NUMBER_TEXT,
    ONE_EACH,
    TableInfo,
    describe_repeats,
    format_type,
)
from ndcg_spark.core.session import is_on, session_time_zone
from ndcg_spark.errors import MARKS, InputRefusedError, explain_missing_column, mark_refusal

TEXT_TABLE = "ndcg_spark.text_table"
"""Metadata of the column `MALFORMED`: text of the table is parsed; see `mark_text_table`."""
WITHOUT_IT = "ndcg_spark.file_without_it"
"""Metadata of a column: the name of a file of the table that lacks it; see `sources/folders.py`."""
_COLLATED = re.compile(r" collate \w+")


def exact_col(column: str) -> Column:
    """Return the top-level column with exactly this name; dots do not select fields."""
    return F.col(quote_name(column))


def normalize_zero(frame: DataFrame, column: str) -> Column:
    """Replace -0.0 by 0.0: workers and texts distinguish the two."""
    kind = frame.schema[column].dataType
    if not isinstance(kind, T.FloatType | T.DoubleType):
        return exact_col(column)
    return F.when(exact_col(column) == 0, F.lit(0.0).cast(kind)).otherwise(exact_col(column))


def describe_table(frame: DataFrame, label: str = "input", *, only: str | None = None) -> TableInfo:
    """Describe the columns of a table, which messages call `label`. Reads the schema, runs no action.

    With `only`, other columns have no types: a table may have thousands.
    """
    has_times = "timestamp" in frame.schema.simpleString()
    zone = session_time_zone(frame.sparkSession) if has_times else None
    fields: list[pa.Field] = []
    refused: dict[str, str] = {}
    spellings: dict[str, str] = {}
    for field in frame.schema.fields:
        if only not in (None, field.name):
            fields.append(pa.field(field.name, pa.null()))
            continue
        kind = _arrow_type(field.dataType, zone)
        fields.append(pa.field(field.name, kind))
        if format_type(kind) != field.dataType.simpleString():
            spellings[field.name] = field.dataType.simpleString()
        refused |= _list_refusals(field)
    return TableInfo(
        schema=pa.schema(fields),
        label=label,
        is_text=is_text_table(frame),
        case_sensitive=is_on(frame.sparkSession, "spark.sql.caseSensitive", "false"),
        refused=refused,
        spellings=spellings,
    )


def _arrow_type(kind: T.DataType, zone: str | None) -> pa.DataType:
    """Translate a type; what Arrow does not have, and vectors of `pyspark.ml`, become a struct without fields."""
    if isinstance(kind, T.ArrayType):
        return pa.list_(_arrow_type(kind.elementType, zone))
    if isinstance(kind, T.MapType):
        keys = NO_KEYS if isinstance(kind.keyType, T.NullType) else _arrow_type(kind.keyType, zone)
        return pa.map_(keys, _arrow_type(kind.valueType, zone))
    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(field.name, _arrow_type(field.dataType, zone)) for field in kind.fields])
    if isinstance(kind, T.TimestampType):
        return pa.timestamp("us", tz=zone)
    if isinstance(kind, T.UserDefinedType):
        return pa.struct([])
    try:
        return to_arrow_type(kind)
    except SPARK_ERRORS:
        return pa.struct([])


def spark_type(kind: pa.DataType) -> T.DataType:
    """Translate a type of Arrow; a timestamp without zone stays one."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def spark_schema(schema: pa.Schema) -> T.StructType:
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in schema])


def _list_refusals(field: T.StructField) -> dict[str, str]:
    """Return why a column, or a field of its structs, cannot be used, as `TableInfo.refused`."""
    metadata, kind = field.metadata or {}, field.dataType
    reasons = {field.name: _explain_collation(kind, field.name)}
    element = kind.elementType if isinstance(kind, T.ArrayType) else kind
    if isinstance(element, T.StructType):
        reasons |= {
            f"{field.name}.{inner.name}": _explain_collation(inner.dataType, inner.name) for inner in element.fields
        }
    if WITHOUT_IT in metadata:
        reasons[field.name] = explain_missing_column(metadata[WITHOUT_IT])
    elif BELOW_MICROSECONDS in metadata:
        reasons[field.name] = HAS_NANOSECONDS
    return {key: why for key, why in reasons.items() if why}


def _explain_collation(kind: T.DataType, column: str) -> str:
    """Explain why text with a collation is refused: workers compare bytes, and Spark does not."""
    text = getattr(kind, "elementType", getattr(kind, "keyType", kind))
    name = str(getattr(text, "collation", None) or "UTF8_BINARY")  # text of Spark 3.5 has none
    if not isinstance(text, T.StringType) or name == "UTF8_BINARY":
        return ""
    plain, value = _COLLATED.sub("", kind.simpleString()), column if column.isidentifier() else quote_name(column)
    alike = f" (or, to keep these equal, CAST({'rtrim' if 'RTRIM' in name else 'lower'}({value}) AS {plain}))"
    return (
        f"is {kind.simpleString()}, in which Spark treats different texts as equal and workers do not; "
        f"convert it to plain text: CAST({value} AS {plain}){alike if text is kind else ''}."
    )


def require_key_column(frame: DataFrame, column: str, option_name: str, table: str) -> Column:
    """Return a column for comparisons; refuse arrays, structs, maps and the like. Reads the schema."""
    describe_table(frame, table, only=column).require_key(column, option_name)
    return normalize_zero(frame, column)


def quote_name(name: str) -> str:
    """Quote a name as one part of an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def require_column(frame: DataFrame, column: str, option_name: str, table: str) -> T.DataType:
    """Return the type of a column; raise if it is missing or ambiguous, or if workers see other values than Spark.

    Reads the schema, runs no action. `option_name` is the option that named the column, and `table` is the
    user's name for the table (`input`, `judgments`). Raises MissingColumnError or InputRefusedError.
    """
    describe_table(frame, table, only=column).require(column, option_name)
    return frame.schema[column].dataType


def has_column(frame: DataFrame, column: str) -> bool:
    """Check whether a table has a column; refuse one whose name differs in case alone, which Spark takes for it."""
    return describe_table(frame, only=column).has(column)


def pack_row(frame: DataFrame, names: Sequence[str]) -> Column:
    """Put columns of a row into a struct, as the row came; refuse two of one name, which a struct cannot hold."""
    info, spellings = describe_table(frame), Counter(name.lower() for name in names)
    for name in names:
        if spellings[name.lower()] > 1 and len(same := info.find_names(name)) > 1:
            where = "in a table whose bad rows are stored"
            raise InputRefusedError(f"column {name!r} is {describe_repeats(same)} {where}; {ONE_EACH}")
    return F.struct(*exact_cols(names))


def mark_text_table(frame: DataFrame) -> DataFrame:
    """Mark a table that has numbers and times as text, which `number_column` and `time_column` parse. Lazy."""
    if MALFORMED not in frame.columns:
        frame = frame.withColumn(MALFORMED, F.lit(None).cast("string"))
    return frame.withMetadata(MALFORMED, {TEXT_TABLE: True})


def is_text_table(frame: DataFrame) -> bool:
    return MALFORMED in frame.columns and TEXT_TABLE in (frame.schema[MALFORMED].metadata or {})


def number_column(frame: DataFrame, column: str, option_name: str, table: str) -> Column:
    """Cast a numeric column to double; booleans are 1 and 0. `option_name` and `table` are as for `require_column`.

    Text of a text table is parsed, and null if it is not a number; any other text is refused.
    """
    kind = describe_table(frame, table, only=column).require_number(column, option_name)
    return parse_number(column) if pa.types.is_string(kind) else exact_col(column).cast("double")


def parse_number(column: str) -> Column:
    """Parse text as a double, null if it is not a number; Java would also parse 1d and 0x1p3."""
    return F.when(
        F.trim(exact_col(column)).rlike(NUMBER_TEXT), F.expr(f"try_cast(trim({quote_name(column)}) as double)")
    )


def refuse(*parts: Column | str) -> Column:
    """Raise on the worker with a message that the driver recognises, where this column is evaluated."""
    opening, closing = mark_refusal("\0").split("\0")
    texts = [F.lit(part) if isinstance(part, str) else F.translate(part.cast("string"), MARKS, "") for part in parts]
    return F.raise_error(F.concat(F.lit(opening), *texts, F.lit(closing)))


def format_query_key(keys: Iterable[str], labels: Mapping[str, str]) -> Column:
    """Name a query for a person, as a column: `query_id=7`. Keys without a label are named as they are."""
    parts = [
        F.concat(F.lit(f"{labels.get(key, key)}="), F.coalesce(exact_col(key).cast("string"), F.lit("null")))
        for key in keys
    ]
    return F.concat_ws(", ", *parts)


def format_key_or_line(frame: DataFrame, key: Column) -> Column:
    """Name a row for a person by a key or, where it is a malformed line, by the start of that line."""
    if MALFORMED not in frame.columns:
        return key
    line = F.concat(F.lit("line '"), F.substring(exact_col(MALFORMED), 1, 200), F.lit("'"))
    return F.when(exact_col(MALFORMED).isNull(), key).otherwise(line)


def raise_if(value: Column, bad: Column, *message: Column | str, kind: str) -> Column:
    """Return `value`, which is of Spark's type `kind`, or raise with a message where `bad` is true."""
    if not hasattr(DataFrame, "zipWithIndex"):
        # Before 4.2 Spark may move later filters below what raises, and so meet rows that an earlier filter takes
        # out. Filters stay above what may differ from run to run, as this number may.
        bad = bad & (F.spark_partition_id() >= 0)
    return F.when(bad, refuse(*message).cast(kind)).otherwise(value)


def exact_cols(names: Sequence[str]) -> list[Column]:
    return [exact_col(name) for name in names]


def is_ml_vector(kind: T.DataType) -> bool:
    return type(kind).__name__ == "VectorUDT"


def vector_column(frame: DataFrame, column: str) -> Column | None:
    """Return vectors as array<float> or array<double>; None for a column of something else."""
    kind = frame.schema[column].dataType
    if is_ml_vector(kind):
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(exact_col(column))
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if isinstance(element, T.FloatType):
        return exact_col(column)
    return exact_col(column).cast("array<double>") if isinstance(element, T.NumericType) else None


def row_to_json(row: Column, names: Sequence[str]) -> Column:
    """Write a row with these columns as JSON, with its nulls, and with the malformed line if it is one."""
    with_nulls = {"ignoreNullFields": "false"}
    text = F.to_json(row, with_nulls)
    if MALFORMED not in names:
        return text
    return F.when(row[MALFORMED].isNull(), F.to_json(row.dropFields(MALFORMED), with_nulls)).otherwise(text)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WITHOUT_ZONE = r"^[-+]?\d+(-\d+){0,2}([ T]\d*(:\d*){0,2}(\.\d*)?)?$"
"""A date, and maybe a time of day; any text after it is a zone."""
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """A column of timestamps with or without time zone, or of text, under its exact name."""

    name: str
    kind: T.DataType

    @property
    def column(self) -> Column:
        return exact_col(self.name)

    @property
    def is_text(self) -> bool:
        return isinstance(self.kind, T.StringType)

    @property
    def micros(self) -> Column:
        """Microseconds since 1970, bigint; null for a null, and for text that is not a timestamp."""
        if isinstance(self.kind, T.TimestampType):
            return F.unix_micros(self.column)
        if isinstance(self.kind, T.TimestampNTZType):
            return _micros_without_zone(self.column)
        text = f"trim({quote_name(self.name)})"
        zoned = F.unix_micros(F.expr(f"try_cast({text} as timestamp)"))
        plain = F.expr(f"try_cast({text} as timestamp_ntz)")  # leaves a zone out; null for a time without date
        return F.when(F.expr(text).rlike(_WITHOUT_ZONE), _micros_without_zone(plain)).when(plain.isNotNull(), zoned)

    def bound(self, micros: int) -> Column:
        """A point in time, to compare with `comparable`."""
        if isinstance(self.kind, T.TimestampNTZType):
            instant = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
            return F.lit(instant.isoformat(sep=" ")).cast("timestamp_ntz")
        return F.timestamp_micros(F.lit(micros)) if isinstance(self.kind, T.TimestampType) else F.lit(micros)

    @property
    def comparable(self) -> Column:
        """Column to compare with a `bound`: the column itself if Spark can then skip files and row groups."""
        return self.micros if self.is_text else self.column


def time_column(frame: DataFrame, column: str, option_name: str, table: str) -> TimeColumn:
    """Find a column of timestamps, or of text in a text table. Reads the schema, runs no action.

    Text without time zone is UTC. `option_name` and `table` are as for `require_column`.
    """
    kind = require_column(frame, column, option_name, table)
    kinds = (T.TimestampType, T.TimestampNTZType, *((T.StringType,) if is_text_table(frame) else ()))
    if not isinstance(kind, kinds):
        raise InputRefusedError(
            f"column {column!r} ({option_name}) of the {table} is {kind.simpleString()}, not a timestamp; cast it "
            "first."
        )
    return TimeColumn(name=column, kind=kind)


def utc_date(column: Column, kind: T.DataType) -> Column:
    """Date of a date or a timestamp, in UTC: a cast would take the time zone of the session."""
    if not isinstance(kind, T.TimestampType):
        return F.to_date(column)
    micros = F.unix_micros(column)
    # A quotient of doubles: far from 1970 its last bit may be off.
    return F.date_from_unix_date(F.rint((micros - _micros_since_midnight(micros)) / F.lit(_DAY)).cast("int"))


def computed_micros(frame: DataFrame) -> Column:
    """Return when rows were computed, in microseconds since 1970; null if the table has no `computed_at`."""
    return to_micros("computed_at") if has_column(frame, "computed_at") else F.lit(None).cast("bigint")


def to_micros(column: str) -> Column:
    """Microseconds since 1970 of a column of times; text may be times, too."""
    return F.unix_micros(F.expr(f"try_cast({column} as timestamp)"))


def micros_to_datetime(micros: int | None) -> datetime | None:
    """Point in time, in UTC, of microseconds since 1970."""
    return None if micros is None else datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


def format_utc(column: Column) -> Column:
    """Write a timestamp in UTC, up to its minute: `2026-03-08 02:30 UTC`.

    Spark writes times of the session's zone, and that has no 02:30 on the night when clocks go forward.
    """
    of_day = _micros_since_midnight(F.unix_micros(column))
    hour, minute = (
        F.lpad(F.floor(quotient).cast("string"), 2, "0") for quotient in (of_day / _HOUR, of_day % _HOUR / _MINUTE)
    )
    day = utc_date(column, T.TimestampType()).cast("string")
    return F.concat(day, F.lit(" "), hour, F.lit(":"), minute, F.lit(" UTC"))


def _micros_since_midnight(micros: Column) -> Column:
    """Microseconds since midnight in UTC, before 1970, too."""
    return F.pmod(micros, F.lit(_DAY))


def _micros_without_zone(column: Column) -> Column:
    """Microseconds of a timestamp without time zone: a cast would take that of the session."""
    amounts = {
        _DAY: F.unix_date(F.to_date(column)),
        _HOUR: F.hour(column),
        _MINUTE: F.minute(column),
    }
    seconds = (F.date_part(F.lit("SECOND"), column) * _SECOND).cast("bigint")
    # These parts are ints, and a product of ints is an int: 36 minutes are more microseconds than it holds.
    return reduce(add, (amount.cast("bigint") * unit for unit, amount in amounts.items()), seconds)


_BITS = 32
_LIMB = 2.0**_BITS


def limbs(value: Column, n: int, *, highest: int = 0) -> Iterator[Column]:
    """Cut values into whole numbers of units 2^(32 highest), 2^(32 (highest - 1)), ..., the highest unit first.

    The value is a double below 2^(63 + 32 highest) in size. Make it a column of its own first, or Spark computes it
    for each limb anew. All limbs but the first are below 2^32 in size: 2^31 rows add without overflow.
    """
    rest = value * F.lit(_LIMB**-highest) if highest else value
    for _ in range(n):
        yield rest.cast("bigint")
        rest = (rest % F.lit(1.0)) * F.lit(_LIMB)


def from_limbs(sums: Sequence[Column], *, highest: int = 0) -> Column:
    """Combine sums of limbs, in the order of `limbs`, to a double.

    Carries are passed up as whole numbers, then parts are added from the smallest.
    """
    carried, total = F.lit(0).cast("bigint"), F.lit(0.0)
    for index in range(len(sums) - 1, -1, -1):
        whole = sums[index] + carried
        if index:
            carried, whole = F.shiftright(whole, _BITS), whole.bitwiseAND(F.lit(int(_LIMB) - 1))
        total = total + whole.cast("double") * F.lit(_LIMB ** (highest - index))
    return total
