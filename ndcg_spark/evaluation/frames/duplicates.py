"""Resolve duplicates: keep one row of each item of a query or refuse them, and find the columns that differ."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import describe_table, exact_col, exact_cols, format_query_key, raise_if
from ndcg_spark.core.session import in_tasks
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.columns import TOPICS_COLUMN
from ndcg_spark.evaluation.plan import list_unused_columns
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_ranking import advise_on_repeats
from ndcg_spark.evaluation.tasks.query_rows import (
    BAD_ROW,
    COPIES,
    ITEM,
    ORDER,
    RANK,
    RELEVANCE,
    RUN,
    SCORE,
    canonical_names,
)


def resolve_duplicates(
    rows: DataFrame, settings: EvaluationSettings, n_tasks: int | None = None, *, others: Sequence[str] = ()
) -> DataFrame:
    """Keep one valid row of each (query, item), and its number of `copies`. Lazy; one shuffle of rows.

    `best` keeps the best score (in judgments the highest relevance), `first` the first in order. Ties are decided by
    relevance, then by the other rule, then by all other columns, so the result does not depend on row order. Rejected
    rows are combined into one row for each query and its segments.
    """
    policy = settings.convention.duplicates
    if ITEM not in rows.columns:
        return rows
    if policy == "first" and ORDER not in rows.columns:
        raise InvalidParameterError(
            f"duplicates=first needs the order column ({option('order')}) in the judgments too."
        )
    names = canonical_names(settings)
    keys = [key for key in (RUN, *names.query) if key in rows.columns]
    rest = [column for column in rows.columns if column not in (*keys, ITEM)]
    preferred = F.min_by(F.struct(*exact_cols(rest)), F.struct(*_order_by_preference(rows, rest, policy)))
    groups = exact_cols([*keys, ITEM])
    if BAD_ROW in rows.columns:
        segments = exact_cols([segment for segment in names.segments if segment in rows.columns])
        groups.append(F.when(F.col(BAD_ROW).isNotNull(), F.struct(F.lit(True), *segments)).alias("rejected"))
    grouped = rows.groupBy(*groups).agg(preferred.alias("kept"), F.count(F.lit(1)).alias(COPIES))
    flat = in_tasks(grouped, n_tasks).select(
        *exact_cols([*keys, ITEM, COPIES]), *[F.col("kept").getField(name).alias(name) for name in rest]
    )
    if policy != "error":
        return flat
    message = ("item ", F.col(ITEM).cast("string"), " appears ", F.col(COPIES).cast("string"), " times in query ")
    text = format_query_key(keys, names.query)
    advice = advise_on_repeats("ranking" if {SCORE, RANK} & {*flat.columns} else "judgments", settings, others)
    guard = next(column for column in (SCORE, RANK, RELEVANCE) if column in flat.columns)
    kind = flat.schema[guard].dataType.simpleString()
    twice = F.col(COPIES) > 1
    if BAD_ROW in flat.columns:
        twice &= F.col(BAD_ROW).isNull()
    return flat.withColumn(guard, raise_if(exact_col(guard), twice, *message, text, f". {advice}", kind=kind))


def find_differing_columns(frame: DataFrame, settings: EvaluationSettings, query: str) -> list[str] | None:
    """Find the unused columns in which rows of the same item differ in a query, those of most items first.

    Runs an action (a scan). `query` is text such as `query_id=7`. Returns an empty list if no item occurs twice, None
    if the query does not exist.
    """
    others, item = list_unused_columns(describe_table(frame), settings), str(settings.columns.item)

    def is_different(name: str) -> Column:
        """Return True if the rows of an item have two values, one of which may be null."""
        column = exact_col(name)
        return (F.min(column) != F.max(column)) | (F.count(column).between(1, F.count(F.lit(1)) - 1))

    rows = frame.where(format_query_key(settings.columns.query, {}) == query)
    flags = [F.coalesce(is_different(column), F.lit(False)) for column in others]
    columns = [flag.cast("int").alias(f"differs_{index}") for index, flag in enumerate(flags)]
    items = rows.groupBy(exact_col(item)).agg(F.count(F.lit(1)), *columns)
    sums = [F.sum(f"differs_{index}") for index in range(len(others))]
    n_items, *n_different = items.agg(F.count(F.lit(1)), *sums).collect()[0]
    if not n_items:
        return None
    return [column for n, column in sorted(zip(n_different, others, strict=True), key=lambda pair: -pair[0]) if n]


def _order_by_preference(rows: DataFrame, names: Sequence[str], policy: str) -> list[Column]:
    """Return sort keys, over all columns, by which the row to keep comes first. Nulls are last."""
    rule = [ORDER, RELEVANCE, RANK, SCORE] if policy == "first" else [RANK, SCORE, RELEVANCE, ORDER]
    carried = [column for column in names if column not in (*rule, TOPICS_COLUMN)]
    keys: list[Column] = []
    for name in [name for name in (*rule, *carried, TOPICS_COLUMN) if name in names]:
        column = sort_key = exact_col(name)
        if name in (SCORE, RELEVANCE):  # the highest first; unlike -x, ~x cannot overflow
            sort_key = F.bitwise_not(column) if isinstance(rows.schema[name].dataType, T.IntegralType) else -column
        keys += [column.isNull(), sort_key]
    return keys
