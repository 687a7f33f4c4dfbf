"""Points in time as whole microseconds since 1970, whatever the time zone of the session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import named, quoted, require_column
from ndcg_spark.errors import InputRefusedError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WITHOUT_ZONE = r"^[-+]?\d+(-\d+){0,2}([ T]\d*(:\d*){0,2}(\.\d*)?)?$"
"""A date, and maybe a time of day; whatever follows is a zone, as an offset or by name."""
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """A column of timestamps with or without time zone, or of text, under its exact name."""

    name: str
    kind: T.DataType

    @property
    def column(self) -> Column:
        """The column as it is."""
        return named(self.name)

    @property
    def is_text(self) -> bool:
        """Whether some values may be no timestamps."""
        return isinstance(self.kind, T.StringType)

    @property
    def micros(self) -> Column:
        """Microseconds since 1970, bigint; null for a null, and for text that is no timestamp."""
        if isinstance(self.kind, T.TimestampType):
            return F.unix_micros(self.column)
        if isinstance(self.kind, T.TimestampNTZType):
            return _plain_micros(self.column)
        text = f"trim({quoted(self.name)})"
        zoned = F.unix_micros(F.expr(f"try_cast({text} as timestamp)"))
        plain = F.expr(f"try_cast({text} as timestamp_ntz)")  # leaves a zone out; null for a time without date
        return F.when(F.expr(text).rlike(_WITHOUT_ZONE), _plain_micros(plain)).when(plain.isNotNull(), zoned)

    def bound(self, micros: int) -> Column:
        """A point in time to compare `comparable` with."""
        if isinstance(self.kind, T.TimestampNTZType):
            instant = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
            return F.lit(instant.isoformat(sep=" ")).cast("timestamp_ntz")
        return F.timestamp_micros(F.lit(micros)) if isinstance(self.kind, T.TimestampType) else F.lit(micros)

    @property
    def comparable(self) -> Column:
        """What to compare with a `bound`: the column itself where Spark can then skip files and row groups."""
        return self.micros if self.is_text else self.column


def time_column(frame: DataFrame, column: str, part: str, table: str, *, parse_text: bool) -> TimeColumn:
    """Find a column of timestamps; with `parse_text`, of text, too. Reads the schema, runs no action.

    Text without time zone is UTC. `part` and `table` are as for `require_column`.
    """
    kind = require_column(frame, column, part, table)
    wanted = (T.TimestampType, T.TimestampNTZType, *((T.StringType,) if parse_text else ()))
    if not isinstance(kind, wanted):
        raise InputRefusedError(
            f"column {column!r} ({part}) of the {table} is {kind.simpleString()}, not a timestamp; cast it first."
        )
    return TimeColumn(name=column, kind=kind)


def utc_date(column: Column, kind: T.DataType) -> Column:
    """Date of a date or a timestamp, in UTC: a cast would take the time zone of the session."""
    if not isinstance(kind, T.TimestampType):
        return F.to_date(column)
    micros = F.unix_micros(column)
    # A quotient of doubles: far from 1970 its last bit may be off.
    return F.date_from_unix_date(F.rint((micros - _of_day(micros)) / F.lit(_DAY)).cast("int"))


def utc_text(column: Column) -> Column:
    """Write a timestamp in UTC, up to its minute: `2026-03-08 02:30 UTC`.

    Spark writes times of the session's zone, and that has no 02:30 on the night when clocks go forward.
    """
    of_day = _of_day(F.unix_micros(column))
    hour, minute = (F.lpad(F.floor(its).cast("string"), 2, "0") for its in (of_day / _HOUR, of_day % _HOUR / _MINUTE))
    day = utc_date(column, T.TimestampType()).cast("string")
    return F.concat(day, F.lit(" "), hour, F.lit(":"), minute, F.lit(" UTC"))


def _of_day(micros: Column) -> Column:
    """Microseconds since midnight in UTC, before 1970, too."""
    return F.pmod(micros, F.lit(_DAY))


def _plain_micros(column: Column) -> Column:
    """Of a timestamp without time zone: a cast would take that of the session."""
    parts = {
        _DAY: F.unix_date(F.to_date(column)),
        _HOUR: F.hour(column),
        _MINUTE: F.minute(column),
    }
    seconds = (F.date_part(F.lit("SECOND"), column) * _SECOND).cast("bigint")
    # These parts are ints, and a product of ints is an int: 36 minutes are more microseconds than it holds.
    return reduce(add, (part.cast("bigint") * unit for unit, part in parts.items()), seconds)
