"""Lists beside a table of judgments become long tables; other lists are ranked in the rows that they are in."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.core.columns import columns_of, info_of, key_text, named, raise_if, spark_type
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.columns import read_column
from ndcg_spark.evaluation.plan_columns import ColumnRead, read_carried, read_keys
from ndcg_spark.evaluation.plan_lists import (
    ListColumn,
    ranked_lists,
    relevant_list,
    settings_of_lists,
    with_common_items,
)
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col

ONE_TRUTH = "a table of relevant items has one row for each query. Put all items of a query into one list."


def require_query(settings: EvaluationSettings) -> None:
    """Raise where rows of lists have no key, by which queries could be told apart."""
    if not settings.columns.query:
        raise InvalidParameterError(
            "this compares queries one by one, and the lists have no query column: name the column "
            f"({option('query')})."
        )


def long_tables(
    frame: DataFrame, judgments: DataFrame, settings: EvaluationSettings
) -> tuple[DataFrame, DataFrame, EvaluationSettings]:
    """Turn lists into the long tables of a run and of its judgments, and fit settings to them. Lazy.

    A null list becomes a row without item, which is bad; an empty one becomes no row.
    """
    columns, info, judged = settings.columns, info_of(frame), info_of(judgments, "judgments")
    if columns.relevant in frame.columns:
        raise InvalidParameterError(
            f"column {columns.relevant!r} ({option('relevant')}) of the input has the relevant items, and there is a "
            "table of judgments; leave one of them out, or drop the column."
        )
    if not columns.query:
        raise InvalidParameterError(f"joining judgments needs a query column ({option('query')}).")
    if columns.item is None:
        raise InvalidParameterError(f"joining judgments needs an item column ({option('item')}).")
    named_so = [(name, option("query")) for name in columns.query]
    for name, part in [*named_so, *([] if columns.run is None else [(columns.run, option("run"))])]:
        info.require(name, part)
    found = settings_of_lists(info, settings)
    relevant = [] if columns.relevant is None else [relevant_list(judged, settings)]
    like = judged.type_of(columns.item) if columns.item in judged.names else None
    ranked = with_common_items([*ranked_lists(info, settings), *relevant], like=like)
    if relevant:
        judgments = _long_judgments(judgments, judged, settings, found.columns, ranked.pop())
    number = found.columns.rank or found.columns.score[0]
    entries = [_entries(frame, one, found.columns, number, run=len(ranked) > 1) for one in ranked]
    return _long(frame, info, settings, F.concat(*entries)), judgments, found


def _long(frame: DataFrame, info: TableInfo, settings: EvaluationSettings, entries: Column) -> DataFrame:
    """A row for each entry of a query, with the columns of the table that settings name."""
    columns = settings.columns
    kept = (*columns.query, *settings.segment_columns, columns.weight, columns.run)
    there = [name for name in dict.fromkeys(kept) if name is not None and info.has(name)]
    return frame.select(*columns_of(there), F.inline(entries))


def _long_judgments(
    frame: DataFrame, info: TableInfo, settings: EvaluationSettings, columns: Columns, relevant: ListColumn
) -> DataFrame:
    """Explode lists of relevant items; refuse a query in two rows (one shuffle), if duplicates are checked."""
    keys = [read_column(frame, one) for one in read_keys(info, settings, run=False).values()]
    if settings.check_duplicates != "none":
        first, is_known = columns.query[0], reduce(and_, [key.isNotNull() for key in keys])
        n_rows = F.count(F.when(is_known, 1)).over(Window.partitionBy(*keys))
        message = ("query ", key_text(columns.query, {}), " comes in ", n_rows.cast("string"), f" rows; {ONE_TRUTH}")
        kind = frame.schema[first].dataType.simpleString()
        frame = frame.withColumn(first, raise_if(named(first), n_rows > 1, *message, kind=kind))
    return _long(frame, info, settings, _entries(frame, relevant, columns, columns.relevance, usual=F.lit(1)))


def runs_of_lists(frame: DataFrame, settings: EvaluationSettings) -> DataFrame | None:
    """Select the empty lists, which the long table lacks: run and, if there are segments, query and segments. Lazy.

    Several ranked columns also yield the names of all runs, without a query. None where nothing is lost.
    """
    columns, info, spark = settings.columns, info_of(frame), frame.sparkSession
    carried = {name: one for name, one in read_carried(info, settings).items() if name != col.WEIGHT}
    keys = read_keys(info, settings)
    read = {name: one for name, one in keys.items() if carried or name == col.RUN} | carried
    chosen = [read_column(frame, one).alias(name) for name, one in read.items()]
    if len(columns.ranked) > 1:
        found = spark.range(1).select(F.explode(F.array(*[F.lit(name) for name in columns.ranked])).alias(col.RUN))
        for name in columns.ranked if carried else ():
            rows = frame.where(F.size(named(name)) == 0).select(F.lit(name).alias(col.RUN), *chosen)
            found = rows.unionByName(found, allowMissingColumns=True)
        return found
    empty = F.size(named(columns.ranked[0])) == 0
    for one in keys.values():
        empty &= named(one.source[0]).isNotNull()
    return frame.where(empty).select(*chosen) if chosen else None


def _entries(
    frame: DataFrame,
    one: ListColumn,
    columns: Columns,
    number: str,
    *,
    run: bool = False,
    usual: Column | None = None,
) -> Column:
    """An array of structs, the long rows of a list; without numbers `number` is the place, or what is `usual`."""
    item = str(columns.item)
    whose = [F.lit(one.name).alias(str(columns.run))] if run else []

    def placed(item_of: Column, place: Column) -> Column:
        numbers = [(place + 1 if usual is None else usual).alias(number)] if one.numbers is None else []
        order = [] if columns.order is None else [(place + 1).alias(columns.order)]
        return F.struct(*whose, item_of.alias(item), *numbers, *order)

    def or_null(read: ColumnRead) -> Column:
        nothing = F.lit(None).cast(spark_type(read.type.value_type))
        return F.coalesce(read_column(frame, read), F.array(nothing))

    found = F.transform(or_null(one.items), placed)
    if one.numbers is None:
        return found
    return F.zip_with(found, or_null(one.numbers), lambda entry, its: entry.withField(number, its))
