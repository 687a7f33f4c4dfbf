"""Bad rows of files that workers read: every reason that Spark's own checks have."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from test_bad_rows import BAD_ROWS, BY_RANK, GOOD

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.worker.bad_rows import bad_rows, usable_rows

OF_OTHER_TYPES = ("NaN rank", "rank 1.5", "infinite rank", "level without gain")
"""Ranks that are no whole numbers, and tables of gains, are left to Spark."""
HERE = {name: bad for name, bad in BAD_ROWS.items() if name not in OF_OTHER_TYPES}
TOO_LARGE = {"rank": 10_000_001}


def batch_of(*rows: dict[str, object]) -> pa.RecordBatch:
    kinds = {name: pa.string() if isinstance(value, str) else pa.float64() for name, value in GOOD.items()}
    kinds["rank"] = pa.int64()
    cells = {name: [({**GOOD, **row})[name] for row in rows] for name in GOOD}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, kinds[name], from_pandas=False) for name, values in cells.items()}
    )


@pytest.mark.parametrize("name", HERE)
def test_fail_stops_with_the_reason_and_the_key(name):
    bad = HERE[name]
    batch = batch_of({}, {"item_id": "y"}, {"query_id": "q9", **bad.cells})
    run, query = bad.cells.get("run", "a"), bad.cells.get("query_id", "q9")
    with pytest.raises(InputRefusedError) as caught:
        usable_rows(batch, bad.plan)
    assert str(caught.value) == f"bad row: {bad.reason} at run={run or 'null'}, query_id={query or 'null'}"
    kept = usable_rows(batch, replace(bad.plan, on_invalid="reject"))
    assert kept.column("item_id").to_pylist() == ["x", "y"]


def test_a_rank_may_be_too_large():
    plan = replace(BAD_ROWS["rank 0"].plan, columns=BY_RANK)
    assert [reason for reason, _ in bad_rows(batch_of({}, TOO_LARGE), plan)] == ["rank_too_large"]


def test_good_rows_are_handed_on_as_they_are():
    batch = batch_of({}, {"relevance": None}, {"relevance": -100.0}, {"relevance": 63.0}, {"w": 0.0})
    plan = BAD_ROWS["NaN score"].plan
    assert usable_rows(batch, plan) is batch
    unretrieved = batch_of({"score": None})
    assert usable_rows(unretrieved, replace(plan, null_score="unretrieved")) is unretrieved
