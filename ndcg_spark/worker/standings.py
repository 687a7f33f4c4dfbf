"""Nights of means in, how one of them stands to those before it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from typing import Any

import pyarrow as pa

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.anomaly import in_words, standing
from ndcg_spark.worker.batches import BatchFunction, batch_function

NIGHTS = "nights"
MEAN_KEYS = ("dataset", "run", "segment_by", "segment", "metric", "k", "config_hash")
STANDING_SCHEMA = pa.schema(
    [
        *((name, pa.int32() if name == "k" else pa.string()) for name in MEAN_KEYS),
        ("value", pa.float64()),
        ("std_error", pa.float64()),
        ("flagged", pa.bool_()),
        ("nights", pa.int32()),
        ("same_weekday", pa.bool_()),
        *((name, pa.float64()) for name in ("median", "spread", "z", "limit")),
        ("note", pa.string()),
        ("rule", pa.string()),
    ]
)


def make_judge(night: date) -> BatchFunction:
    """Build the function from a row a mean, with its `nights` (day, value, std_error), to `STANDING_SCHEMA`."""

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [found for row in batch.to_pylist() if (found := _judged(row, night)) is not None]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=STANDING_SCHEMA)

    return batch_function(judge)


def _judged(row: dict[str, Any], night: date) -> dict[str, Any] | None:
    """None for a mean that the night does not have."""
    about = {name: row[name] for name in MEAN_KEYS}
    tonight, history = [], {}
    for one in row[NIGHTS]:
        day = date.fromisoformat(one["day"])
        if day == night:
            tonight.append(one)
        elif day in history:
            raise InputRefusedError(f"the mean {about} has two values on {day}; choose one slice.")
        else:
            history[day] = one["value"]
    if not tonight:
        return None
    if len(tonight) > 1:
        raise InputRefusedError(f"the mean {about} has two values on {night}; choose one slice.")
    value, std_error = tonight[0]["value"], tonight[0]["std_error"]
    found = standing(value, std_error, night, list(history.items()))
    return {**about, "value": value, "std_error": std_error, **asdict(found), "rule": in_words(value, found)}
