"""The same (query, item) twice, in all rows: one of them is kept, or the evaluation is refused.

Duplicates among the items that matter are looked for where lists are made, at no cost; see `worker.ranking.rankings`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import MALFORMED, columns_of, key_text, named, raise_if
from ndcg_spark.core.task_limit import in_tasks
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.canonical import TOPICS
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.column_names import (
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
from ndcg_spark.evaluation.tasks.rankings import advice_on_repeats


def resolve_duplicates(
    rows: DataFrame, plan: EvaluationPlan, n_tasks: int | None = None, *, others: Sequence[str] = ()
) -> DataFrame:
    """Keep one row of each (query, item), with the number of `copies` it stands for. Lazy.

    Rows are valid rows of a run or of judgments, with one score column at most; rejected ones that are marked become
    one for each query and segments. `best` keeps the best score (of
    judgments: the highest relevance), `first` the first by the order column, of any type that has an order. Of equal
    ones the highest relevance is kept, then the other of the two decides, then what the row carries: the choice does
    not depend on row order. `others`: columns of the table that the plan does not use, for messages. Spark cost: one
    shuffle of all rows by (query, item), read by `n_tasks` tasks at most.
    """
    policy = plan.convention.duplicates
    if ITEM not in rows.columns:
        return rows
    if policy == "first" and ORDER not in rows.columns:
        raise InvalidParameterError(
            f"duplicates=first needs the order column ({option('order')}) in the judgments too."
        )
    names = canonical_names(plan)
    keys = [name for name in (RUN, *names.query) if name in rows.columns]
    rest = [name for name in rows.columns if name not in (*keys, ITEM)]
    kept = F.min_by(F.struct(*columns_of(rest)), F.struct(*_preference(rows, rest, policy)))
    groups = columns_of([*keys, ITEM])
    if BAD_ROW in rows.columns:
        segments = columns_of([name for name in names.segments if name in rows.columns])
        groups.append(F.when(F.col(BAD_ROW).isNotNull(), F.struct(F.lit(True), *segments)).alias("rejected"))
    found = rows.groupBy(*groups).agg(kept.alias("kept"), F.count(F.lit(1)).alias(COPIES))
    flat = in_tasks(found, n_tasks).select(
        *columns_of([*keys, ITEM, COPIES]), *[F.col("kept").getField(name).alias(name) for name in rest]
    )
    if policy != "error":
        return flat
    message = ("item ", F.col(ITEM).cast("string"), " comes ", F.col(COPIES).cast("string"), " times in query ")
    text = key_text(keys, names.query)
    advice = advice_on_repeats("ranking" if {SCORE, RANK} & {*flat.columns} else "judgments", plan, others)
    guard = next(name for name in (SCORE, RANK, RELEVANCE) if name in flat.columns)
    kind = flat.schema[guard].dataType.simpleString()
    twice = F.col(COPIES) > 1
    if BAD_ROW in flat.columns:
        twice &= F.col(BAD_ROW).isNull()
    return flat.withColumn(guard, raise_if(named(guard), twice, *message, text, f". {advice}", kind=kind))


def other_columns(frame: DataFrame, plan: EvaluationPlan) -> tuple[str, ...]:
    """Columns that the plan does not use and that may name a ranker. Reads the schema, runs no action."""
    columns = plan.columns
    used = {*columns.query, *columns.score, *plan.segment_columns, columns.item, columns.rank, columns.relevance}
    used |= {columns.run, columns.weight, columns.order, MALFORMED}
    return tuple(
        one.name
        for one in frame.schema
        if one.name not in used
        and isinstance(one.dataType, T.StringType | T.IntegralType | T.BooleanType | T.DateType)
    )


def differing_columns(frame: DataFrame, plan: EvaluationPlan, query: str) -> list[str] | None:
    """Run an action: find columns of the main table in which rows of the same query and item differ.

    The query is given as a message names it: `query_id=7`. The result is those of `other_columns` that differ, for
    most items first; empty if no item comes twice, None if there is no such query.

    Spark cost: one scan, one small shuffle of the rows of that query.
    """
    others, item = other_columns(frame, plan), str(plan.columns.item)

    def differs(name: str) -> Column:
        """Whether the rows of an item have two values, of which one may be null."""
        column = named(name)
        return (F.min(column) != F.max(column)) | (F.count(column).between(1, F.count(F.lit(1)) - 1))

    rows = frame.where(key_text(plan.columns.query, {}) == query)
    flags = [F.coalesce(differs(name), F.lit(False)) for name in others]
    columns = [flag.cast("int").alias(f"differs_{at}") for at, flag in enumerate(flags)]
    items = rows.groupBy(named(item)).agg(F.count(F.lit(1)), *columns)
    sums = [F.sum(f"differs_{at}") for at in range(len(others))]
    n_items, *found = items.agg(F.count(F.lit(1)), *sums).collect()[0]
    if not n_items:
        return None
    return [name for n, name in sorted(zip(found, others, strict=True), key=lambda one: -one[0]) if n]


def _preference(rows: DataFrame, names: Sequence[str], policy: str) -> list[Column]:
    """What rows are compared by, all that a row has: of the row that is kept it is the smallest. Nulls come last."""
    by = [ORDER, RELEVANCE, RANK, SCORE] if policy == "first" else [RANK, SCORE, RELEVANCE, ORDER]
    carried = [name for name in names if name not in (*by, TOPICS)]
    found: list[Column] = []
    for name in [one for one in (*by, *carried, TOPICS) if one in names]:
        column = named(name)
        found += [column.isNull(), _falling(rows, name) if name in (SCORE, RELEVANCE) else column]
    return found


def _falling(rows: DataFrame, name: str) -> Column:
    """Numbers that fall as those of a column rise; ~x cannot overflow, as -x can."""
    whole = isinstance(rows.schema[name].dataType, T.IntegralType)
    return F.bitwise_not(named(name)) if whole else -named(name)
