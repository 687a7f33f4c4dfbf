"""How many rows are bad, why, and where: the accounts of what went in."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.spark.expressions import key_text
from ndcg_spark.spark.reasons import BAD_ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """Rows of a table by what became of them.

    Parameters
    ----------
    read : int
    rejected : dict from reason to number of rows
    examples : dict from reason to the key of one such row
    """

    read: int
    rejected: dict[str, int]
    examples: dict[str, str]


def count_rows(checked: DataFrame, keys: tuple[str, ...]) -> RowCount:
    """Run an action: count the rows of a table by reason.

    Parameters
    ----------
    checked : DataFrame
        Canonical rows with `bad_row`.
    keys : tuple of str
        Columns that make an example; those the table lacks are passed over.

    Returns
    -------
    RowCount

    Notes
    -----
    Spark cost: one action, one scan, one small shuffle.
    """
    shown = [name for name in (*keys, "item") if name in checked.columns]
    example = F.min(F.when(F.col(BAD_ROW).isNotNull(), key_text(shown)))
    found = checked.groupBy(BAD_ROW).agg(F.count(F.lit(1)).alias("n"), example.alias("example")).collect()
    bad = sorted((row for row in found if row[BAD_ROW] is not None), key=lambda row: str(row[BAD_ROW]))
    return RowCount(
        read=sum(row["n"] for row in found),
        rejected={row[BAD_ROW]: row["n"] for row in bad},
        examples={row[BAD_ROW]: row["example"] for row in bad},
    )


def describe_bad_rows(counted: RowCount, table: str) -> str:
    """Say in a line how many rows of a table are bad, why, and where one is.

    Parameters
    ----------
    counted : RowCount
    table : str

    Returns
    -------
    str
    """
    total = sum(counted.rejected.values())
    parts = [f"{reason} {n} (e.g. {counted.examples[reason]})" for reason, n in counted.rejected.items()]
    return f"{total} bad row{'s' if total != 1 else ''} of {counted.read} in the {table}: {'; '.join(parts)}"


def rejects_table(checked: DataFrame, table: str) -> DataFrame:
    """Bad rows as they came, with the reason.

    Parameters
    ----------
    checked : DataFrame
        Original columns and `bad_row`.
    table : str
        `input` or `judgments`.

    Returns
    -------
    DataFrame
        `source`, `reason`, `row` (the row as JSON, so that tables of any shape fit one rejects table); lazy.
    """
    original = F.struct(*[F.col("`" + name + "`") for name in checked.columns if name != BAD_ROW])
    row = F.to_json(original, {"ignoreNullFields": "false"})
    bad = checked.where(F.col(BAD_ROW).isNotNull())
    return bad.select(F.lit(table).alias("source"), F.col(BAD_ROW).alias("reason"), row.alias("row"))
