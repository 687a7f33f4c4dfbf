"""Rows of the oracle as batches that workers read from files, and their pieces put together as Spark does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from support.oracle import Row

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.packing import packed_name
from ndcg_spark.worker.pieces import CutTask, cut_rows

SUMMED_COUNTS = ("n_rows", "n_left_out", "n_items", "n_judged")
"""Of whole queries, which are added up where they are read."""
COUNTS = (*SUMMED_COUNTS, "n_relevant")


def file_rows(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as they lie in a file."""
    item = pa.int64() if isinstance(rows[0].item, int) else pa.string()
    columns = {
        "query_id": pa.array([row.query for row in rows], pa.string()),
        "item_id": pa.array([row.item for row in rows], item),
        "score": pa.array([None if row.score is None else float(row.score) for row in rows], pa.float64()),
        "relevance": pa.array([row.relevance for row in rows], pa.float64()),
        "position": pa.array([row.position for row in rows], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


def cut_task(rows: pa.RecordBatch, plan: EvaluationPlan) -> CutTask:
    """What the driver would send to cut such rows."""
    texts = pa.types.is_string(rows.schema.field("item_id").type)
    looks, by_order = plan.looks_at_items, plan.convention.ties == "input_order"
    lists = [["scores", "relevances", *["items"] * (looks or not by_order), *["order"] * by_order]]
    lists += [["best", *["best_items"] * looks]] * (plan.convention.ideal != "k_ones")
    fields: dict[str, pa.DataType] = {"query_id": pa.string()} | dict.fromkeys(COUNTS, pa.int64())
    numbers = [[name for name in names if not (texts and name.endswith("items"))] for names in lists]
    fields |= {packed_name(*numbers): pa.binary()}
    fields |= {name: pa.list_(pa.string()) for names in lists for name in names if texts and name.endswith("items")}
    schema = pa.schema(list(fields.items()))
    return CutTask(plan=plan, parts=(), columns=rows.schema, pieces=schema, looks=looks)


def cut_somewhere(rows: pa.RecordBatch, plan: EvaluationPlan, seed: int) -> pa.RecordBatch:
    """Rankings with pieces: the rows cut in batches of random sizes, then gathered by query."""
    random_, task, at, found = random.Random(seed), cut_task(rows, plan), 0, []
    while at < rows.num_rows:
        n_rows = random_.randint(1, rows.num_rows)
        found += cut_rows(usable_rows(rows.slice(at, n_rows), plan), task).to_pylist()
        at += n_rows
    random_.shuffle(found)
    return gathered(found, task)


def gathered(found: list[dict[str, Any]], task: CutTask) -> pa.RecordBatch:
    """One row a query, as Spark groups them."""
    lists = [field for field in task.pieces if pa.types.is_list(field.type) or pa.types.is_binary(field.type)]
    queries = []
    for query, its in groupby(
        sorted(found, key=lambda piece: piece["query_id"]), key=lambda piece: piece["query_id"]
    ):
        same = list(its)
        counts = {name: sum(piece[name] for piece in same) for name in COUNTS}
        together = [{field.name: piece[field.name] for field in lists} for piece in same]
        queries.append({"run": "", "query_id": query, **counts, "pieces": together})
    kinds = {"run": pa.string(), "query_id": pa.string(), **dict.fromkeys(COUNTS, pa.int64())}
    kinds["pieces"] = pa.list_(pa.struct(lists))
    return pa.RecordBatch.from_pylist(queries, schema=pa.schema(list(kinds.items())))
