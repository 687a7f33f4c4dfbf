"""Tables of one row per night: nights of a metric table and of clicks, and the periods that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import MALFORMED, columns_of, named, number, raise_if, require_column
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames.summary import CONFIG_HASH, CONVENTION, rules_column
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.settings import RollUpSettings
from ndcg_spark.history.tasks.nights import SERIES

METRIC_TABLE = "metric table"
"""What the table is called for a person."""
NIGHT = "night"
MOST_NAMES = 10
"""Names that exist, in an error about one that does not."""
PERIOD = ("period", "period_start", "period_end")
HELD = "held"
"""Column with the periods that hold a night."""


def series_rows(metrics: DataFrame, *, parse_text: bool = False) -> DataFrame:
    """Metric table with a column `night` in place of `run_date`, and keys of the types they are stored with.

    Lazy: all columns of the table, in which k may be text with `parse_text`. The action raises for a row without
    date.
    """
    for name in ("run_date", *SERIES):
        require_column(metrics, name, "column of a metric table", METRIC_TABLE)
    k = number(metrics, "k", "column of a metric table", METRIC_TABLE, parse_text=parse_text).cast("int")
    by = F.coalesce(F.col("segment_by").cast("string"), F.lit(""))  # csv and json write no empty text
    keys = {
        NIGHT: night_column(metrics, METRIC_TABLE),
        "run": F.coalesce(F.col("run").cast("string"), F.lit("")),
        "segment_by": by,
        "segment": segment_column(by),
        "metric": F.col("metric").cast("string"),
        "k": k,
    }
    others = [named(name) for name in metrics.columns if name not in keys and name != "run_date"]
    return metrics.select(*[column.alias(name) for name, column in keys.items()], *others)


def segment_column(by: Column) -> Column:
    """Segment as text: empty for all queries, whatever the format makes of an empty text."""
    return F.when(by == "", F.lit("")).otherwise(F.col("segment").cast("string"))


def require_present(table: DataFrame, what: str, column: Column, names: Sequence[str]) -> None:
    """Run an action: raise for the first name that no row has, and list those that rows have.

    For names that gave no rows of a metric table: a name may be misspelt, or its rows may not be there yet. `what` is
    what is named: `run`, `night`.
    """
    if not names:
        return
    named_so = table.select(column.alias("name")).distinct()
    there = {row["name"] for row in named_so.where(F.col("name").isin(*names)).collect()}
    missing = [name for name in names if name not in there]
    if not missing:
        return
    others = [row["name"] for row in named_so.where("name <> ''").orderBy(F.desc("name")).take(MOST_NAMES + 1)]
    listed = ", ".join(others[:MOST_NAMES][::-1]) + (", and others" if len(others) > MOST_NAMES else "")
    raise InputRefusedError(
        f"there is no {what} {missing[0]!r} in the {METRIC_TABLE}; there {'is' if len(others) == 1 else 'are'} "
        f"{listed or 'none'}."
    )


def metric_at() -> Column:
    """Metric and cutoff of a row, as a user names both: `ndcg@10`."""
    return F.concat_ws("@", F.col("metric").cast("string"), F.coalesce(F.col("k").cast("string"), F.lit("all")))


def night_column(frame: DataFrame, table: str) -> Column:
    """`run_date` as a date; the action raises where it is none, and for a malformed line."""
    night = date_or_null(frame, table)
    text = F.coalesce(F.col("run_date").cast("string"), F.lit("null"))
    if MALFORMED in frame.columns:
        night = F.when(F.col(MALFORMED).isNull(), night)
        text = F.coalesce(F.col(MALFORMED), text)
    message = (f"the {table} has a row whose run_date is no date: ", text, ".")
    return raise_if(night, night.isNull(), *message, kind="date")


def date_or_null(frame: DataFrame, table: str) -> Column:
    """`run_date` as a date, null where it is none.

    A column of dates stays as it is: partitions can be chosen by it.
    """
    kind = require_column(frame, "run_date", "the night", table)
    if isinstance(kind, T.StringType):
        return F.expr("try_cast(trim(run_date) as date)")
    if isinstance(kind, T.DateType):
        return F.col("run_date")
    raise InputRefusedError(f"column 'run_date' of the {table} is {kind.simpleString()}; cast it to date.")


def between(night: Column, start: date | None, end: date | None) -> Column:
    """Whether a night lies between two, both included; None is no bound."""
    inside = F.lit(True)
    if start is not None:
        inside = inside & (night >= F.lit(start))
    if end is not None:
        inside = inside & (night <= F.lit(end))
    return inside


def day_of(night: Column) -> Column:
    """Number of a date, counted from 1970."""
    return F.datediff(night, F.lit(date(1970, 1, 1)))


def config_hash(rows: DataFrame) -> Column:
    """Configuration that a row was computed by, as text; null where the table does not say."""
    if "config_hash" in rows.columns:
        return F.col("config_hash").cast("string")
    return F.lit(None).cast("string")


def nights_to_add(rows: DataFrame, columns: Sequence[str], settings: RollUpSettings) -> DataFrame:
    """Select the nights, of rows from `series_rows`, that the periods of settings need. Lazy.

    Gives the night and the columns that are asked for; `convention` and `config_hash`, null where the table lacks
    them; `rules` by `rules_column`; `as_of`, the last night that is known; and `held`, an array of (`period`,
    `period_start`, `period_end`), which is never empty.

    Spark cost: without `as_of` the dates are read once more.
    """
    provenance = [
        (F.col(name) if name in rows.columns else F.lit(None)).cast("string").alias(name)
        for name in (CONVENTION, CONFIG_HASH)
    ]
    kept = rows.select(*columns_of([NIGHT, *columns]), *provenance, rules_column(rows).alias(RULES))
    if settings.as_of is None:
        kept = kept.crossJoin(F.broadcast(rows.agg(F.max(NIGHT).alias("as_of"))))
    else:
        kept = kept.withColumn("as_of", F.lit(settings.as_of)).where(F.col(NIGHT) <= F.col("as_of"))
    held = kept.where(between(F.col(NIGHT), *settings.read)).withColumn(HELD, _periods(settings))
    return held.where(F.size(HELD) > 0)


def _periods(settings: RollUpSettings) -> Column:
    night = F.col(NIGHT)
    month = F.trunc(night, "month")
    periods: dict[str, list[tuple[Column, Column]]] = {
        "week": [(F.trunc(night, "week"), F.date_add(F.trunc(night, "week"), 6))],
        "month": [(month, F.last_day(month))],
        "rolling_7": [(F.date_add(night, ahead - 6), F.date_add(night, ahead)) for ahead in range(7)],
    }
    every = [
        F.struct(F.lit(name).alias("period"), start.alias("period_start"), end.alias("period_end"))
        for name in dict.fromkeys(settings.periods)
        for start, end in periods[name]
    ]

    def wanted(one: Column) -> Column:
        found = (one["period"] != "rolling_7") | (one["period_end"] <= F.col("as_of"))
        if settings.start is not None:
            found = found & (one["period_end"] >= F.lit(settings.start))
        return found if settings.end is None else found & (one["period_start"] <= F.lit(settings.end))

    return F.filter(F.array(*every), wanted)
