"""Rankings of Parquet files that workers read and cut themselves: Spark sees pieces, a row for a stretch of a query.

To hand rows to Python costs Spark more than to sort them; workers that read columns as they lie in files pay neither.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, named
from ndcg_spark.spark.ranking.counts import settled
from ndcg_spark.spark.ranking.ideal import needs_ideal
from ndcg_spark.spark.ranking.local_files import table_parts
from ndcg_spark.spark.ranking.moving import by_query
from ndcg_spark.spark.ranking.stored import arrow_type, has_item, read_schema
from ndcg_spark.spark.rows import keys_of
from ndcg_spark.worker.batches import BatchFunction
from ndcg_spark.worker.moving import make_moved_cutter
from ndcg_spark.worker.packing import GROUPS, packed_name
from ndcg_spark.worker.pieces import CutTask, make_cutter

_COUNTS = ("n_rows", "n_left_out", "n_items", "n_judged", "n_relevant")


def rank_files(frame: DataFrame, plan: EvaluationPlan, *, moves: bool) -> DataFrame:
    """Rank a table that has no `obstacle_to_files`. Lists files and runs no action.

    Parameters
    ----------
    frame : DataFrame
        The main table, as it came.
    plan : EvaluationPlan
    moves : bool
        Whether rows are moved to their query before they are cut: see `is_scattered`.

    Returns
    -------
    DataFrame
        Rankings with `pieces`, which the worker merges: see `worker.merging`. `run` only where there is a run
        column. Lazy.

    Notes
    -----
    Spark cost: a pass through Python workers that read the files, one shuffle of a row a query and input partition.
    Where rows are moved, another pass and a shuffle of all rows, in packed batches.
    """
    task = cut_task(frame, plan)
    if moves:
        return gathered(by_query(frame, task, make_moved_cutter(task), piece_schema(frame, task)), task)
    return gathered(by_part(frame, task, make_cutter(task)), task)


def cut_task(frame: DataFrame, plan: EvaluationPlan) -> CutTask:
    """Gather what workers must know to cut a table. Lists files and runs no action.

    Parameters
    ----------
    frame : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    CutTask
    """
    looks = plan.looks_at_items and has_item(frame, plan)
    fields = _piece_fields(frame, plan, looks=looks)
    return CutTask(
        plan=plan,
        parts=table_parts(frame),
        columns=read_schema(frame, plan),
        pieces=pa.schema([(name, arrow_type(kind)) for name, kind in fields.items()]),
        looks=looks,
    )


def by_part(frame: DataFrame, task: CutTask, read: BatchFunction, **others: T.DataType) -> DataFrame:
    """Let workers read the parts of a table, a task each.

    Parameters
    ----------
    frame : DataFrame
        The table, for its session and types.
    task : CutTask
    read : callable
        From numbers of parts to pieces.
    **others : DataType
        Columns that it gives beside those of pieces.

    Returns
    -------
    DataFrame
        Lazy.
    """
    numbers = frame.sparkSession.range(0, len(task.parts), 1, max(1, len(task.parts)))
    return numbers.mapInArrow(read, schema=piece_schema(frame, task, **others))


def piece_schema(frame: DataFrame, task: CutTask, **others: T.DataType) -> T.StructType:
    """Columns of pieces, as Spark has them.

    Parameters
    ----------
    frame : DataFrame
    task : CutTask
    **others : DataType
        Columns beside those of pieces.

    Returns
    -------
    StructType
    """
    fields = {**_piece_fields(frame, task.plan, looks=task.looks), **others}
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


def gathered(pieces: DataFrame, task: CutTask, *others: Column) -> DataFrame:
    """Put the pieces of each query into one row.

    Parameters
    ----------
    pieces : DataFrame
    task : CutTask
    *others : Column
        Aggregates beside those of pieces.

    Returns
    -------
    DataFrame
        The query, counts, carried columns, `pieces`; lazy.
    """
    plan, packed = task.plan, next(name for name in pieces.columns if GROUPS in name)
    wanted = [F.sum(name).alias(name) for name in _COUNTS]
    for name in _carried(plan):
        low, high = f"low:{name}", f"high:{name}"
        wanted += [F.min(named(low)).alias(low), F.max(named(high)).alias(high)]
    lists = [packed, *[name for name in ("items", "best_items") if name in pieces.columns]]
    piece = F.when(named(packed).isNotNull(), F.struct(*columns_of(lists)))
    keys = keys_of(plan)
    grouped = pieces.groupBy(*columns_of(keys)).agg(*wanted, F.collect_list(piece).alias("pieces"), *others)
    return settled(grouped, keys, _carried(plan), plan)


def _carried(plan: EvaluationPlan) -> list[str]:
    return [*plan.carried_segments, *(["weight"] if plan.columns.weight is not None else [])]


def _piece_fields(frame: DataFrame, plan: EvaluationPlan, *, looks: bool) -> dict[str, T.DataType]:
    """What `worker.pieces` gives, in Spark's types."""
    columns = plan.columns
    fields: dict[str, T.DataType] = {"run": T.StringType()} if columns.run is not None else {}
    fields |= {name: frame.schema[name].dataType for name in columns.query}
    fields |= {name: T.LongType() for name in _COUNTS}
    for name in _carried(plan):
        kind = T.DoubleType() if name == "weight" else frame.schema[name].dataType
        fields |= {f"low:{name}": kind, f"high:{name}": kind}
    by_order = columns.rank is None and plan.convention.ties == "input_order"
    ranked, best = (
        ["scores" if columns.rank is None else "ranks", "relevances"],
        ["best"] if needs_ideal(plan) else [],
    )
    with_items = looks or (columns.rank is None and not by_order)
    ranked += [*(["items"] if with_items else []), *(["order"] if by_order else [])]
    best += ["best_items"] if looks and best else []
    texts = []
    if with_items and isinstance(frame.schema[str(columns.item)].dataType, T.StringType):
        texts = [name for name in (*ranked, *best) if name.endswith("items")]
    groups = [[name for name in names if name not in texts] for names in (ranked, best)]
    fields |= {packed_name(*[names for names in groups if names]): T.BinaryType()}
    fields |= {name: T.ArrayType(T.StringType()) for name in texts}
    return fields
