"""How many rows are bad, why, and where: the accounts of what went in."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.workers import as_shipped
from ndcg_spark.evaluation.frames.canonical import row_as_json
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, make_row_checker


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """Rows of a table by what became of them: for each reason a number of rows, and the key of one as an example."""

    read: int
    rejected: dict[str, int]
    examples: dict[str, str]


def checked_rows(rows: DataFrame, rules: RowRules) -> DataFrame:
    """Find bad rows, and count valid ones. Lazy.

    Takes canonical rows, or arrays. Gives `reason`, `key`, `n`, and `row` (the row as it came) where it was there: a
    row for each bad one, and rows without a reason that stand for `n` valid ones each. A row with several scores
    comes once for each. One pass through Python workers, which send back only counts of valid rows.
    """
    fields = [
        T.StructField("reason", T.StringType()),
        T.StructField("key", T.StringType()),
        T.StructField("n", T.LongType()),
    ]
    if "row" in rows.columns:
        fields.append(T.StructField("row", rows.schema["row"].dataType))
    return rows.mapInArrow(as_shipped(make_row_checker(rules)), schema=T.StructType(fields))


def count_rows(checked: DataFrame) -> RowCount:
    """Run an action: count rows from `checked_rows` by reason. Spark cost: one scan, one small shuffle."""
    found = checked.groupBy("reason").agg(F.sum("n").alias("n"), F.min("key").alias("example")).collect()
    bad = sorted((row for row in found if row["reason"] is not None), key=lambda row: str(row["reason"]))
    return RowCount(
        read=sum(row["n"] for row in found),
        rejected={row["reason"]: row["n"] for row in bad},
        examples={row["reason"]: row["example"] for row in bad},
    )


def describe_bad_rows(counted: RowCount, table: str) -> str:
    """Say in a line how many rows of a table are bad, why, and where one is."""
    total = sum(counted.rejected.values())
    parts = [f"{reason} {n} (e.g. {counted.examples[reason]})" for reason, n in counted.rejected.items()]
    return f"{total} bad row{'s' if total != 1 else ''} of {counted.read} in the {table}: {'; '.join(parts)}"


def rejects_table(checked: DataFrame, table: str) -> DataFrame:
    """Bad rows from `checked_rows` as they came, with the reason; lazy.

    Rows: `source` (the given `input` or `judgments`), `reason`, `row` (JSON, so that tables of any shape fit one
    rejects table).
    """
    bad = checked.where(F.col("reason").isNotNull())
    row = F.col("row")
    kind = checked.schema["row"].dataType
    if isinstance(kind, T.StructType):
        row = row_as_json(row, kind.names)
    return bad.select(F.lit(table).alias("source"), "reason", row.alias("row"))
