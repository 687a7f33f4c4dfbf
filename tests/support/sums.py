"""Partial sums to means, as Spark puts them together between two workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ndcg_spark.core.labels import ASKED
from ndcg_spark.evaluation.tasks.partial_sums import COUNTS, GROUP_KEYS, PARTIAL_SCHEMA, finish_means
from support.arrow_rankings import pieces


def summary_rows(rows: Iterable[dict[str, Any]], confidence: float = 0.95) -> dict[tuple, dict[str, Any]]:
    """By group: rows of `PARTIAL_SCHEMA` grouped, their counts added, their states collected, and finished."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in GROUP_KEYS), []).append(row)
    columns: dict[str, list[Any]] = {key: [group[at] for group in groups] for at, key in enumerate(GROUP_KEYS)}
    columns[ASKED] = [its_rows[0][ASKED] for its_rows in groups.values()]
    for name in COUNTS:
        columns[name] = [sum(row[name] for row in its_rows) for its_rows in groups.values()]
    columns["states"] = [[row["state"] for row in its_rows] for its_rows in groups.values()]
    types = {"states": pa.list_(pa.list_(pa.int64())), "k": pa.int32(), "segment": pa.string(), ASKED: pa.string()}
    arrays = [pa.array(values, types.get(name)) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    results = [row for one in finish_means(iter(pieces(batch, 7)), confidence) for row in one.to_pylist()]
    return dict(zip(groups, results, strict=True))


def finished_rows(partial: Iterable[pa.RecordBatch]) -> dict[tuple, dict[str, Any]]:
    """Means over all queries, by (segment set, metric, k)."""
    batches = list(partial)
    assert all(batch.schema == PARTIAL_SCHEMA for batch in batches)
    found = summary_rows(row for batch in batches for row in batch.to_pylist())
    return {(row["segment_by"], row["metric"], row["k"]): row for row in found.values()}
