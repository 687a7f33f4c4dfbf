"""Lists beside a table of judgments become long tables; other lists are ranked in the rows that they are in."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.core.columns import columns_of, info_of, key_text, named, raise_if, spark_type
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
    """Turn lists into the long tables of a run and of its judgments, and fit settings to them. Lazy.

    A null list becomes a row without item, which is bad; an empty one becomes no row.
    """
    info, judged = info_of(frame), info_of(judgments, "judgments")
    plan = plan_long_tables(info, judged, settings)
    if plan.judgments is not None:
        judgments = _explode_judgments(judgments, judged, settings, plan.judgments)
    return _explode_lists(frame, plan.rows), judgments, plan.settings


def _explode_lists(frame: DataFrame, long: LongRows) -> DataFrame:
    """A row for each entry of a query, with the columns of the table that settings name."""
    entries = [_build_entries(frame, one, long) for one in long.lists]
    return frame.select(*columns_of(long.kept), F.inline(F.concat(*entries)))


def _explode_judgments(frame: DataFrame, info: TableInfo, settings: EvaluationSettings, long: LongRows) -> DataFrame:
    """Explode lists of relevant items; refuse a query in two rows (one shuffle), if duplicates are checked."""
    keys = [read_column(frame, one) for one in read_keys(info, settings, run=False).values()]
    if settings.check_duplicates != "none":
        query = settings.columns.query
        is_known = reduce(and_, [key.isNotNull() for key in keys])
        n_rows = F.count(F.when(is_known, 1)).over(Window.partitionBy(*keys))
        message = ("query ", key_text(query, {}), " comes in ", n_rows.cast("string"), f" rows; {ONE_LIST_PER_QUERY}")
        kind = frame.schema[query[0]].dataType.simpleString()
        frame = frame.withColumn(query[0], raise_if(named(query[0]), n_rows > 1, *message, kind=kind))
    return _explode_lists(frame, long)


def select_empty_lists(frame: DataFrame, settings: EvaluationSettings) -> DataFrame | None:
    """Select the empty lists, which the long table lacks: run and, if there are segments, query and segments. Lazy.

    Several ranked columns also yield the names of all runs, without a query. None where nothing is lost.
    """
    columns, info, spark = settings.columns, info_of(frame), frame.sparkSession
    read = read_empty_lists(info, settings)
    chosen = [read_column(frame, one).alias(name) for name, one in read.items()]
    if len(columns.ranked) > 1:
        found = spark.range(1).select(F.explode(F.array(*[F.lit(name) for name in columns.ranked])).alias(col.RUN))
        for name in columns.ranked if chosen else ():
            rows = frame.where(F.size(named(name)) == 0).select(F.lit(name).alias(col.RUN), *chosen)
            found = rows.unionByName(found, allowMissingColumns=True)
        return found
    empty = F.size(named(columns.ranked[0])) == 0
    for one in read_keys(info, settings).values():
        empty &= named(one.source[0]).isNotNull()
    return frame.where(empty).select(*chosen) if chosen else None


def _build_entries(frame: DataFrame, one: ListColumn, long: LongRows) -> Column:
    """An array of structs, the long rows of a list."""
    whose = [] if long.run is None else [F.lit(one.name).alias(long.run)]

    def placed(item_of: Column, place: Column) -> Column:
        usual = F.lit(1) if long.relevant else place + 1
        numbers = [usual.alias(long.number)] if one.numbers is None else []
        order = [] if long.order is None else [(place + 1).alias(long.order)]
        return F.struct(*whose, item_of.alias(long.item), *numbers, *order)

    def or_null(read: ColumnRead) -> Column:
        nothing = F.lit(None).cast(spark_type(read.type.value_type))
        return F.coalesce(read_column(frame, read), F.array(nothing))

    found = F.transform(or_null(one.items), placed)
    if one.numbers is None:
        return found
    return F.zip_with(found, or_null(one.numbers), lambda entry, its: entry.withField(long.number, its))
