"""Bad rows: their reasons, their treatment and their counts."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import (
    exact_col,
    format_key_or_line,
    format_query_key,
    pack_row,
    raise_if,
    require_key_column,
    row_to_json,
)
from ndcg_spark.core.row_counts import RowCount as RowCount
from ndcg_spark.core.row_counts import describe_bad_rows as describe_bad_rows
from ndcg_spark.core.schemas import MALFORMED, MALFORMED_LINE
from ndcg_spark.errors import option

Reasons = list[tuple[str, Column]]


def list_key_reasons(frame: DataFrame, query: Sequence[str], item: str, table: str) -> Reasons:
    """List reasons for rows without a query or an item. Reads the schema, runs no action."""
    reasons = [(MALFORMED_LINE, F.col(MALFORMED).isNotNull())] if MALFORMED in frame.columns else []
    for column, option_name, reason in [
        *((name, option("query"), "null_query") for name in query),
        (item, option("item"), "null_item"),
    ]:
        missing = require_key_column(frame, column, option_name, table).isNull()
        if isinstance(frame.schema[column].dataType, T.FloatType | T.DoubleType):
            missing = missing | F.isnan(exact_col(column))
        reasons.append((reason, missing))
    return reasons


def first_reason(reasons: Reasons) -> Column:
    """First reason why a row is bad, as text; null for a valid row."""
    first = F.lit(None).cast("string")
    for reason, bad in reversed(reasons):
        first = F.when(bad, F.lit(reason)).otherwise(first)
    return first


def drop_bad_rows(frame: DataFrame, reasons: Reasons, keys: Sequence[str], on_invalid: str) -> DataFrame:
    """Keep valid rows; with `on_invalid=fail` the action raises for a bad row, with its first reason and key. Lazy.

    `keys` are the columns that name a row for a person.
    """
    reason = first_reason(reasons)
    if on_invalid == "reject":
        return frame.where(reason.isNull())
    message = ("bad row: ", reason, " at ", format_key_or_line(frame, format_query_key(keys, {})))
    return frame.where(raise_if(F.lit(True), reason.isNotNull(), *message, kind="boolean"))


def check_each_row(frame: DataFrame, reasons: Reasons, keys: Sequence[str], *, originals: Sequence[str]) -> DataFrame:
    """Check each row: `reason` and `key` (null: valid), `n` (1), and `row` as it came if `originals` is not empty.

    Lazy. `row` is a struct of the columns `originals`.
    """
    reason = first_reason(reasons)
    key = format_key_or_line(frame, format_query_key(keys, {}))
    columns = [reason.alias("reason"), F.when(reason.isNotNull(), key).alias("key")]
    columns.append(F.lit(1).cast("bigint").alias("n"))
    if originals:
        columns.append(pack_row(frame, originals).alias("row"))
    return frame.select(*columns)


def count_rows(checked: DataFrame) -> RowCount:
    """Run an action: count rows from `check_each_row` by reason. Spark cost: one scan, one small shuffle."""
    counts = checked.groupBy("reason").agg(F.sum("n").alias("n"), F.min("key").alias("example")).collect()
    bad = sorted((row for row in counts if row["reason"] is not None), key=lambda row: str(row["reason"]))
    return RowCount(
        read=sum(row["n"] for row in counts),
        rejected={row["reason"]: row["n"] for row in bad},
        examples={row["reason"]: row["example"] for row in bad},
    )


def select_rejects(checked: DataFrame, table: str) -> DataFrame:
    """Bad rows from `check_each_row` as they came, with the reason; lazy.

    Columns: `source` (the given `input` or `judgments`), `reason`, `row` (JSON, so that tables of any shape fit one
    rejects table).
    """
    bad = checked.where(F.col("reason").isNotNull())
    row = F.col("row")
    kind = checked.schema["row"].dataType
    if isinstance(kind, T.StructType):
        row = row_to_json(row, kind.names)
    return bad.select(F.lit(table).alias("source"), "reason", row.alias("row"))
