"""The same (query, item) twice, in all rows: one of them is kept, or the evaluation is refused.

Duplicates among the items that matter are looked for where lists are made, at no cost; see `worker.ranking.rankings`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.canonical import TOPICS
from ndcg_spark.spark.expressions import columns_of, key_text, named, raise_if
from ndcg_spark.spark.tasks import in_tasks
from ndcg_spark.worker.ranking.canonical import COPIES, ITEM, ORDER, RANK, RELEVANCE, RUN, SCORE, canonical_names


def resolve_duplicates(rows: DataFrame, plan: EvaluationPlan, n_tasks: int | None = None) -> DataFrame:
    """Keep one row of each (query, item), with the number of `copies` it stands for. Lazy.

    Rows are valid rows of a run or of judgments, with one score column at most. `best` keeps the best score (of
    judgments: the highest relevance), `first` the first by the order column, of any type that has an order. Of equal
    ones the highest relevance is kept, then the other of the two decides, then what the row carries: the choice does
    not depend on row order. Spark cost: one shuffle of all rows by (query, item), read by `n_tasks` tasks at most.
    """
    policy = plan.convention.duplicates
    if ITEM not in rows.columns:
        return rows
    if policy == "first" and ORDER not in rows.columns:
        raise InvalidParameterError("duplicates=first needs the order column (order-col) in the judgments too.")
    names = canonical_names(plan)
    keys = [name for name in (RUN, *names.query) if name in rows.columns]
    rest = [name for name in rows.columns if name not in (*keys, ITEM)]
    kept = F.min_by(F.struct(*columns_of(rest)), F.struct(*_preference(rows, rest, policy)))
    found = rows.groupBy(*columns_of([*keys, ITEM])).agg(kept.alias("kept"), F.count(F.lit(1)).alias(COPIES))
    flat = in_tasks(found, n_tasks).select(
        *columns_of([*keys, ITEM, COPIES]), *[F.col("kept").getField(name).alias(name) for name in rest]
    )
    if policy != "error":
        return flat
    message = ("item ", F.col(ITEM).cast("string"), " comes ", F.col(COPIES).cast("string"), " times in query ")
    text = key_text(keys, names.query)
    guard = next(name for name in (SCORE, RANK, RELEVANCE) if name in flat.columns)
    kind = flat.schema[guard].dataType.simpleString()
    return flat.withColumn(guard, raise_if(named(guard), F.col(COPIES) > 1, *message, text, ".", kind=kind))


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
