"""Which rows of a batch cannot be used, and why: the reasons of `spark.reasons`, in the same order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.gains import relevance_range
from ndcg_spark.kernels.ragged import BoolArray, FloatArray
from ndcg_spark.plan import LARGEST_RANK, LARGEST_WEIGHT, EvaluationPlan
from ndcg_spark.worker.batches import float_values

LARGEST_DOUBLE = float(np.finfo(np.float64).max)


def usable_rows(batch: pa.RecordBatch, plan: EvaluationPlan) -> pa.RecordBatch:
    """Take the rows that can be evaluated.

    Parameters
    ----------
    batch : pyarrow record batch
        Rows under the column names of the input.
    plan : EvaluationPlan

    Returns
    -------
    pyarrow record batch
        The batch itself where all are good.

    Raises
    ------
    InputRefusedError
        For a bad row under `on_invalid=fail`, naming its first reason and its query.
    """
    bad: BoolArray | None = None
    for reason, at in bad_rows(batch, plan):
        if plan.on_invalid == "fail":
            raise InputRefusedError(f"bad row: {reason} at {_key_text(batch, plan, int(np.flatnonzero(at)[0]))}")
        bad = at if bad is None else bad | at
    return batch if bad is None else batch.filter(pa.array(~bad))


def bad_rows(batch: pa.RecordBatch, plan: EvaluationPlan) -> Iterator[tuple[str, BoolArray]]:
    """Give every reason for which some row is bad.

    Parameters
    ----------
    batch : pyarrow record batch
    plan : EvaluationPlan

    Yields
    ------
    tuple
        The reason, and for each row whether it holds; reasons that hold for none are left out.
    """
    for reason, at in _reasons(batch, plan):
        if at is not None and at.any():
            yield reason, at


def _reasons(batch: pa.RecordBatch, plan: EvaluationPlan) -> Iterator[tuple[str, BoolArray | None]]:
    columns = plan.columns
    if columns.run is not None:
        yield "null_run", _null(batch, columns.run)
    for name in columns.query:
        yield "null_query", _null(batch, name)
    yield from _rank_reasons(batch, plan) if columns.rank is not None else _score_reasons(batch, plan)
    if columns.item in batch.schema.names:
        yield "null_item", _null(batch, str(columns.item))
    if columns.weight is not None:
        weight, known = float_values(batch.column(columns.weight))
        yield "bad_weight", ~(known & (weight >= 0) & (weight <= LARGEST_WEIGHT))
    if columns.order is not None:
        yield "null_order", _null(batch, columns.order)
    yield from _relevance_reasons(batch, plan)


def _rank_reasons(batch: pa.RecordBatch, plan: EvaluationPlan) -> Iterator[tuple[str, BoolArray | None]]:
    name = str(plan.columns.rank)
    if plan.null_score == "bad":
        yield "null_rank", _null(batch, name)
    if not _within(batch.column(name), 1, LARGEST_RANK):
        rank, known = float_values(batch.column(name))
        yield "rank_below_1", known & (rank < 1)
        yield "rank_too_large", rank > LARGEST_RANK


def _score_reasons(batch: pa.RecordBatch, plan: EvaluationPlan) -> Iterator[tuple[str, BoolArray | None]]:
    name = plan.columns.score[0]
    if plan.null_score == "bad":
        yield "null_score", _null(batch, name)
    if not _within(batch.column(name), -LARGEST_DOUBLE, LARGEST_DOUBLE):
        score = float_values(batch.column(name))[0]
        yield "nan_score", np.isnan(score)
        yield "infinite_score", np.isinf(score)


def _relevance_reasons(batch: pa.RecordBatch, plan: EvaluationPlan) -> Iterator[tuple[str, BoolArray | None]]:
    column, negative = batch.column(plan.columns.relevance), plan.convention.negative
    lowest, highest = relevance_range(plan.convention.gain)
    least = {"error": max(lowest, 0.0), "clip": -LARGEST_DOUBLE}.get(negative, lowest)
    if _within(column, max(least, -LARGEST_DOUBLE), min(highest, LARGEST_DOUBLE)):
        return
    relevance: FloatArray = float_values(column)[0]
    yield "nan_relevance", np.isnan(relevance)
    yield "infinite_relevance", np.isinf(relevance)
    yield "gain_overflow", relevance > highest
    if negative != "clip":
        yield "gain_overflow", relevance < lowest
    if negative == "error":
        yield "negative_relevance", relevance < 0


def _within(column: pa.Array, lowest: float, highest: float) -> bool:
    """Whether all values of a column are numbers between two, ends included: for good batches one pass."""
    if column.null_count == len(column):
        return True
    if column.null_count and pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()  # where a null is not 0
        return bool(lowest <= ends["min"] and ends["max"] <= highest)
    values = column.to_numpy() if pa.types.is_integer(column.type) else float_values(column)[0]
    return bool(lowest <= values.min() and values.max() <= highest)  # not so if any is NaN


def _key_text(batch: pa.RecordBatch, plan: EvaluationPlan, row: int) -> str:
    shown = {name: "run" if name == plan.columns.run else name for name in plan.columns.keys}
    found = {shown[name]: batch.column(name)[row].as_py() for name in plan.columns.keys}
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in found.items())


def _null(batch: pa.RecordBatch, name: str) -> BoolArray | None:
    column = batch.column(name)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else None
