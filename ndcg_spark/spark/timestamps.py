"""Points in time as whole microseconds since 1970, whatever the time zone of the session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.spark.expressions import named, require_column

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_HAS_ZONE = r"(?i)\d\d:\d\d(:\d\d(\.\d+)?)?\s*(z|utc|gmt|[+-]\d\d?(:?\d\d)?)$"
_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumn:
    """A column of timestamps, under its exact name.

    Parameters
    ----------
    name : str
    kind : DataType
        Timestamp with or without time zone, or text.
    """

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
        text = f"trim(`{self.name.replace('`', '``')}`)"
        zoned = F.unix_micros(F.expr(f"try_cast({text} as timestamp)"))
        plain = _plain_micros(F.expr(f"try_cast({text} as timestamp_ntz)"))
        return F.when(F.expr(text).rlike(_HAS_ZONE), zoned).otherwise(plain)

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
    """Find a column of timestamps. Reads the schema, runs no action.

    Parameters
    ----------
    frame : DataFrame
    column, part, table : str
        As for `require_column`.
    parse_text : bool
        Whether text is read as timestamps; without time zone it is UTC.

    Returns
    -------
    TimeColumn

    Raises
    ------
    MissingColumnError, InputRefusedError
    """
    kind = require_column(frame, column, part, table)
    wanted = (T.TimestampType, T.TimestampNTZType, *((T.StringType,) if parse_text else ()))
    if not isinstance(kind, wanted):
        raise InputRefusedError(
            f"column {column!r} ({part}) of the {table} is {kind.simpleString()}, not a timestamp; cast it first."
        )
    return TimeColumn(name=column, kind=kind)


def _plain_micros(column: Column) -> Column:
    """Of a timestamp without time zone: a cast would take that of the session."""
    day = F.unix_date(F.to_date(column)).cast("bigint") * 86_400_000_000
    seconds = (F.date_part(F.lit("SECOND"), column) * _SECOND).cast("bigint")
    return day + F.hour(column) * _HOUR + F.minute(column) * _MINUTE + seconds
