"""Read the canonical columns of a table in Spark by a `TablePlan`, and report bad rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import (
    describe_table,
    exact_col,
    exact_cols,
    pack_row,
    parse_number,
    row_to_json,
    spark_type,
)
from ndcg_spark.core.schemas import MALFORMED, MALFORMED_LINE, is_key
from ndcg_spark.core.workers import in_workers
from ndcg_spark.evaluation.plan_columns import KEYS, SAMPLE, ColumnRead, Conversion, TablePlan
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck, find_bad_rows

TOPICS_COLUMN = "topics"
"""Topics of an item, next to the canonical columns if a metric reads them. Workers pass the column through."""
_RUN_STRUCTS = "lists"


def select_canonical_columns(frame: DataFrame, plan: TablePlan, more: Mapping[str, Column] = {}) -> DataFrame:
    """Select the canonical columns of a table, and the columns `more`. Lazy.

    `bad_row` columns exist only if a conversion may fail or lines may be malformed.
    """
    columns = {name: read_column(frame, read) for name, read in plan.columns.items()}
    if plan.sample < 1:  # keys are hashed as text, so that an int and a bigint have the same hash
        key = F.xxhash64(F.lit(SAMPLE), *[columns[key_column].cast("string") for key_column in plan.query])
        frame = frame.where(F.shiftrightunsigned(key, 11) * F.lit(2.0**-53) < plan.sample)
    selected = [column.alias(name) for name, column in (columns | dict(more)).items()]
    if plan.runs:
        structs = [
            F.struct(
                F.lit(run).alias(col.RUN), *(read_column(frame, read).alias(name) for name, read in reads.items())
            )
            for run, reads in plan.runs.items()
        ]
        selected.append(F.array(*structs).alias(_RUN_STRUCTS))
    selected += [_build_reason(frame, plan, sources).alias(name) for name, sources in plan.bad_rows.items()]
    if plan.keeps_original:
        selected.append(_build_original(frame).alias("row"))
    rows = frame.select(*selected)
    if not plan.runs:
        return rows
    return rows.select(
        *exact_cols([column for column in rows.columns if column != _RUN_STRUCTS]), F.inline(_RUN_STRUCTS)
    )


def read_column(frame: DataFrame, read: ColumnRead) -> Column:
    """Read one column, with its `Conversion`."""
    column = exact_col(read.source[0])
    for field in read.source[1:]:
        if isinstance(frame.schema[read.source[0]].dataType, T.MapType):
            column = F.map_keys(column) if field == KEYS else F.map_values(column)
        else:
            column = column.getField(field)
    match read.conversion:
        case Conversion.AS_IS:
            return column
        case Conversion.CLEAN_ZERO:
            return F.when(column == 0, F.lit(0.0).cast(spark_type(read.type))).otherwise(column)
        case Conversion.TO_TEXT | Conversion.SPARK_TEXT:
            is_double = isinstance(frame.schema[read.source[0]].dataType, T.FloatType | T.DoubleType)
            return (F.when(column == 0, F.abs(column)).otherwise(column) if is_double else column).cast("string")
        case Conversion.PARSE_DOUBLE:
            return parse_number(read.source[0])
        case Conversion.ONES:
            return F.transform(column, lambda _: F.lit(1.0))
        case _:
            return column.cast(spark_type(read.type))


def _build_reason(frame: DataFrame, plan: TablePlan, names: tuple[str, ...]) -> Column:
    """Return the first reason why Spark cannot read a row, as text; null for other rows."""
    reason = F.lit(None).cast("string")
    for read in reversed([plan.columns[column] for column in names]):
        bad = read_column(frame, read).isNull() & exact_col(read.source[0]).isNotNull()
        reason = F.when(bad, F.lit(read.reason)).otherwise(reason)
    if not plan.has_malformed:
        return reason
    line = F.concat(F.lit(f"{MALFORMED_LINE}: "), F.substring(exact_col(MALFORMED), 1, 200))
    return F.when(exact_col(MALFORMED).isNotNull(), line).otherwise(reason)


def _build_original(frame: DataFrame) -> Column:
    """Return the row as it is in the input: as a struct if workers can pass it through, else as JSON.

    A struct is cheaper, as only bad rows, which are few, become JSON later.
    """
    row, info = pack_row(frame, frame.columns), describe_table(frame)
    kinds = [field.type.value_type if pa.types.is_list(field.type) else field.type for field in info.schema]
    return row if all(map(is_key, kinds)) and not info.spellings else row_to_json(row, frame.columns)


def report_bad_rows(rows: DataFrame, check: RowCheck) -> DataFrame:
    """Find bad rows in one pass through workers: `reason`, `key`, `n` and, if the input has it, `row`. Lazy.

    A row without a reason counts `n` valid rows. A row with several scores occurs once for each.
    """
    fields = [
        T.StructField("reason", T.StringType()),
        T.StructField("key", T.StringType()),
        T.StructField("n", T.LongType()),
    ]
    if "row" in rows.columns:
        fields.append(T.StructField("row", rows.schema["row"].dataType))
    return in_workers(rows, find_bad_rows, check, schema=T.StructType(fields))
