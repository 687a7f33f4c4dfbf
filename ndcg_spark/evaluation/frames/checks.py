"""Bad rows of rankings and judgments: which they are."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ndcg_spark.core.workers import as_shipped
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, make_row_checker


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
