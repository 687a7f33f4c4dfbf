"""Rankings of Parquet files that workers read and cut themselves: Spark sees pieces, a row for a stretch of a query.

To hand rows to Python costs Spark more than to sort them; workers that read columns as they lie in files pay neither.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, named
from ndcg_spark.spark.ranking.counts import settled
from ndcg_spark.spark.ranking.ideal import needs_ideal
from ndcg_spark.spark.ranking.stored import arrow_type, file_sizes, has_item, read_schema
from ndcg_spark.spark.rows import keys_of
from ndcg_spark.spark.sampling import sampled
from ndcg_spark.worker.files import parts_of
from ndcg_spark.worker.pieces import CutTask, make_cutter

LEAST_PARTS, LARGEST_PART = 8, 2**27
"""A part is a task, and each takes some hundredths of a second to start in Python."""
_COUNTS = ("n_rows", "n_left_out", "n_items", "n_judged", "n_relevant")


def rank_files(frame: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Rank a table that has no `obstacle_to_files`. Lists files and runs no action.

    Parameters
    ----------
    frame : DataFrame
        The main table, as it came.
    plan : EvaluationPlan

    Returns
    -------
    DataFrame
        Rankings with `pieces`, which the worker merges: see `worker.merging`. `run` only where there is a run
        column. Lazy.

    Notes
    -----
    Spark cost: a pass through Python workers that read the files, one shuffle of a row a query and input partition.
    """
    looks = plan.looks_at_items and has_item(frame, plan)
    parts = tuple(parts_of(file_sizes(frame), LEAST_PARTS, LARGEST_PART))
    fields = _piece_fields(frame, plan, looks=looks)
    task = CutTask(
        plan=plan,
        parts=parts,
        columns=read_schema(frame, plan),
        pieces=pa.schema([(field.name, arrow_type(field.dataType)) for field in fields]),
        looks=looks,
    )
    numbers = frame.sparkSession.range(0, len(parts), 1, max(1, len(parts)))
    pieces = sampled(numbers.mapInArrow(make_cutter(task), schema=T.StructType(fields)), plan)
    wanted = [F.sum(name).alias(name) for name in _COUNTS]
    for name in _carried(plan):
        wanted += [
            F.min(named(f"low:{name}")).alias(f"low:{name}"),
            F.max(named(f"high:{name}")).alias(f"high:{name}"),
        ]
    lists = [field.name for field in fields if isinstance(field.dataType, T.ArrayType)]
    wanted.append(F.collect_list(F.struct(*lists)).alias("pieces"))
    keys = keys_of(plan)
    return settled(pieces.groupBy(*columns_of(keys)).agg(*wanted), keys, _carried(plan), plan)


def _carried(plan: EvaluationPlan) -> list[str]:
    return [*plan.carried_segments, *(["weight"] if plan.columns.weight is not None else [])]


def _piece_fields(frame: DataFrame, plan: EvaluationPlan, *, looks: bool) -> list[T.StructField]:
    """What `worker.pieces` gives, in Spark's types."""
    columns, numbers = plan.columns, T.ArrayType(T.DoubleType())
    fields: dict[str, T.DataType] = {"run": T.StringType()} if columns.run is not None else {}
    fields |= {name: frame.schema[name].dataType for name in columns.query}
    fields |= {name: T.LongType() for name in _COUNTS}
    for name in _carried(plan):
        kind = T.DoubleType() if name == "weight" else frame.schema[name].dataType
        fields |= {f"low:{name}": kind, f"high:{name}": kind}
    fields |= {"scores": numbers} if columns.rank is None else {"ranks": T.ArrayType(T.IntegerType())}
    fields["relevances"] = numbers
    by_order = columns.rank is None and plan.convention.ties == "input_order"
    if looks or (columns.rank is None and not by_order):
        fields["items"] = T.ArrayType(frame.schema[str(columns.item)].dataType)
    if by_order:
        fields["order"] = T.ArrayType(frame.schema[str(columns.order)].dataType)
    if needs_ideal(plan):
        fields |= {"best": numbers, **({"best_items": fields["items"]} if looks else {})}
    return [T.StructField(name, kind) for name, kind in fields.items()]
