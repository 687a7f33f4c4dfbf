"""Explode lists into long tables if judgments are a table of their own. Other lists are ranked row by row."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.core.columns import describe_table, exact_col, exact_cols, format_query_key, raise_if, spark_type
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.evaluation.frames.columns import read_column
from ndcg_spark.evaluation.plan_columns import ColumnRead, read_keys
from ndcg_spark.evaluation.plan_lists import (
    ONE_LIST_PER_QUERY,
    ListColumn,
    LongRows,
    plan_long_tables,
    read_empty_lists,
)
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col


def explode_tables(
    frame: DataFrame, judgments: DataFrame, settings: EvaluationSettings
) -> tuple[DataFrame, DataFrame, EvaluationSettings]:
    """Explode lists into the long tables of a run and of its judgments, and fit settings to them. Lazy.

    A null list becomes a row without an item, which is a bad row. An empty list becomes no row.
    """
    info, judged = describe_table(frame), describe_table(judgments, "judgments")
    plan = plan_long_tables(info, judged, settings)
    if plan.judgments is not None:
        judgments = _explode_judgments(judgments, judged, settings, plan.judgments)
    return _explode_lists(frame, plan.rows), judgments, plan.settings


def _explode_lists(frame: DataFrame, long: LongRows) -> DataFrame:
    """Return a row for each list entry, with the columns of the table that settings name."""
    entries = [_build_entries(frame, ranker, long) for ranker in long.lists]
    return frame.select(*exact_cols(long.kept_columns), F.inline(F.concat(*entries)))


def _explode_judgments(frame: DataFrame, info: TableInfo, settings: EvaluationSettings, long: LongRows) -> DataFrame:
    """Explode lists of relevant items. If duplicates are checked, refuse a query in two rows (one shuffle)."""
    keys = [read_column(frame, read) for read in read_keys(info, settings, run=False).values()]
    if settings.check_duplicates != "none":
        query = settings.columns.query
        is_known = reduce(and_, [key.isNotNull() for key in keys])
        n_rows = F.count(F.when(is_known, 1)).over(Window.partitionBy(*keys))
        message = (
            "query ",
            format_query_key(query, {}),
            " comes in ",
            n_rows.cast("string"),
            f" rows; {ONE_LIST_PER_QUERY}",
        )
        kind = frame.schema[query[0]].dataType.simpleString()
        frame = frame.withColumn(query[0], raise_if(exact_col(query[0]), n_rows > 1, *message, kind=kind))
    return _explode_lists(frame, long)


def select_empty_lists(frame: DataFrame, settings: EvaluationSettings) -> DataFrame | None:
    """Select the rows with empty lists, which the long table lacks: run and, with segments, query and segments. Lazy.

    If there are several ranked columns, a row without a query for each run is added. Returns None if nothing is lost.
    """
    columns, info, spark = settings.columns, describe_table(frame), frame.sparkSession
    reads = read_empty_lists(info, settings)
    selected = [read_column(frame, read).alias(name) for name, read in reads.items()]
    if len(columns.ranked) > 1:
        runs = spark.range(1).select(F.explode(F.array(*[F.lit(run) for run in columns.ranked])).alias(col.RUN))
        for run in columns.ranked if selected else ():
            rows = frame.where(F.size(exact_col(run)) == 0).select(F.lit(run).alias(col.RUN), *selected)
            runs = rows.unionByName(runs, allowMissingColumns=True)
        return runs
    empty = F.size(exact_col(columns.ranked[0])) == 0
    for read in read_keys(info, settings).values():
        empty &= exact_col(read.source[0]).isNotNull()
    return frame.where(empty).select(*selected) if selected else None


def _build_entries(frame: DataFrame, ranker: ListColumn, long: LongRows) -> Column:
    """Return the long rows of a list as an array of structs."""
    run = [] if long.run is None else [F.lit(ranker.name).alias(long.run)]

    def build_entry(item: Column, position: Column) -> Column:
        default = F.lit(1) if long.relevant else position + 1
        numbers = [default.alias(long.number)] if ranker.numbers is None else []
        order = [] if long.order is None else [(position + 1).alias(long.order)]
        return F.struct(*run, item.alias(long.item), *numbers, *order)

    def read_or_null(read: ColumnRead) -> Column:
        nothing = F.lit(None).cast(spark_type(read.type.value_type))
        return F.coalesce(read_column(frame, read), F.array(nothing))

    entries = F.transform(read_or_null(ranker.items), build_entry)
    if ranker.numbers is None:
        return entries
    return F.zip_with(
        entries, read_or_null(ranker.numbers), lambda entry, number: entry.withField(long.number, number)
    )
