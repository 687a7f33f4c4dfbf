"""Bad rows: why they are bad, what happens to them, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import comparable_key, key_text, malformed_key, named, raise_if, row_as_json, row_of
from ndcg_spark.core.schemas import MALFORMED, MALFORMED_LINE
from ndcg_spark.errors import option

Reasons = list[tuple[str, Column]]


def key_reasons(frame: DataFrame, query: Sequence[str], item: str, table: str) -> Reasons:
    """List reasons for rows without a query or an item. Reads the schema, runs no action."""
    reasons = [(MALFORMED_LINE, F.col(MALFORMED).isNotNull())] if MALFORMED in frame.columns else []
    for column, part, reason in [
        *((name, option("query"), "null_query") for name in query),
        (item, option("item"), "null_item"),
    ]:
        missing = comparable_key(frame, column, part, table).isNull()
        if isinstance(frame.schema[column].dataType, T.FloatType | T.DoubleType):
            missing = missing | F.isnan(named(column))
        reasons.append((reason, missing))
    return reasons


def first_reason(reasons: Reasons) -> Column:
    """First reason why a row is bad, as text; null for a valid row."""
    first = F.lit(None).cast("string")
    for reason, bad in reversed(reasons):
        first = F.when(bad, F.lit(reason)).otherwise(first)
    return first


def without_bad_rows(frame: DataFrame, reasons: Reasons, keys: Sequence[str], on_invalid: str) -> DataFrame:
    """Keep valid rows; with `on_invalid=fail` the action raises for a bad row, with its first reason and key. Lazy.

    `keys` are the columns that name a row for a person.
    """
    reason = first_reason(reasons)
    if on_invalid == "reject":
        return frame.where(reason.isNull())
    message = ("bad row: ", reason, " at ", malformed_key(frame, key_text(keys, {})))
    return frame.where(raise_if(F.lit(True), reason.isNotNull(), *message, kind="boolean"))


def checked(frame: DataFrame, reasons: Reasons, keys: Sequence[str], *, originals: Sequence[str]) -> DataFrame:
    """Check each row: `reason` and `key` (null: valid), `n` (1), and `row` as it came if `originals` is not empty.

    Lazy. `row` is a struct of the columns `originals`.
    """
    reason = first_reason(reasons)
    key = malformed_key(frame, key_text(keys, {}))
    columns = [reason.alias("reason"), F.when(reason.isNotNull(), key).alias("key")]
    columns.append(F.lit(1).cast("bigint").alias("n"))
    if originals:
        columns.append(row_of(frame, originals).alias("row"))
    return frame.select(*columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """Rows of a table: number read, number rejected by reason, and the key of one example of each reason."""

    read: int
    rejected: dict[str, int]
    examples: dict[str, str]


def count_rows(checked: DataFrame) -> RowCount:
    """Run an action: count rows from `checked` by reason. Spark cost: one scan, one small shuffle."""
    found = checked.groupBy("reason").agg(F.sum("n").alias("n"), F.min("key").alias("example")).collect()
    bad = sorted((row for row in found if row["reason"] is not None), key=lambda row: str(row["reason"]))
    return RowCount(
        read=sum(row["n"] for row in found),
        rejected={row["reason"]: row["n"] for row in bad},
        examples={row["reason"]: row["example"] for row in bad},
    )


def describe_bad_rows(counted: RowCount, table: str) -> str:
    """Describe in a line how many rows of a table are bad, why, and where one is."""
    total = sum(counted.rejected.values())
    parts = [f"{reason} {n} (e.g. {counted.examples[reason]})" for reason, n in counted.rejected.items()]
    return f"{total} bad row{'s' if total != 1 else ''} of {counted.read} in the {table}: {'; '.join(parts)}"


def rejects_table(checked: DataFrame, table: str) -> DataFrame:
    """Bad rows from `checked` as they came, with the reason; lazy.

    Columns: `source` (the given `input` or `judgments`), `reason`, `row` (JSON, so that tables of any shape fit one
    rejects table).
    """
    bad = checked.where(F.col("reason").isNotNull())
    row = F.col("row")
    kind = checked.schema["row"].dataType
    if isinstance(kind, T.StructType):
        row = row_as_json(row, kind.names)
    return bad.select(F.lit(table).alias("source"), "reason", row.alias("row"))
