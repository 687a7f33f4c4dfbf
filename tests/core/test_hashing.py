"""Hashes of queries: their own wherever they are read, and spread over partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ndcg_spark.core.batches import TEXTS_AT_ONCE, key_hashes, partition_of

KEYS = {
    "numbers": pa.array([3, 7, 3, -1, 2**62, 0]),
    "narrow": pa.array([3, 7, 3, -1, 2, 0], pa.int8()),
    "dates": pa.array([3, 7, 3, -1, 2, 0], pa.date32()),
    "texts": pa.array(["", "a", "", "b", "aa", "ba"]),
    "other texts": pa.array(["中", "a\0", "中", "a", "\0a", "\0"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_hash_of_a_query_is_its_own_wherever_it_lies(name: str) -> None:
    column = KEYS[name]
    hashes = key_hashes(pa.RecordBatch.from_pydict({"q": column}), ("q",))
    assert len(set(hashes.tolist())) == 5
    assert hashes[0] == hashes[2]
    later = pa.concat_arrays([column.slice(3), column]).slice(2)
    assert (
        key_hashes(pa.RecordBatch.from_pydict({"q": later}), ("q",)).tolist() == hashes.tolist()[5:] + hashes.tolist()
    )


def test_texts_are_hashed_alike_in_whatever_batch_they_lie() -> None:
    """One batch is hashed in three parts, and in batches that divide it elsewhere."""
    batch = pa.RecordBatch.from_pydict({"q": [f"{n}" * (n % 7) for n in range(2 * TEXTS_AT_ONCE + 5)]})
    parts = [key_hashes(batch.slice(at, 1001), ("q",)) for at in range(0, batch.num_rows, 1001)]
    assert key_hashes(batch, ("q",)).tolist() == np.concatenate(parts).tolist()


def test_columns_of_a_key_do_not_change_places() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 1, 2], "b": [2, 1, 1, 2], "c": ["x", "y", "y", "x"]})
    assert len(set(key_hashes(batch, ("a", "b")).tolist())) == 4
    assert len(set(key_hashes(batch, ("a", "c")).tolist())) == 4


def test_hashes_of_successive_queries_spread_over_partitions() -> None:
    for values in (pa.array(range(100_000)), pa.array([f"q{n}" for n in range(100_000)])):
        hashes = key_hashes(pa.RecordBatch.from_pydict({"q": values}), ("q",))
        counts = np.bincount(partition_of(hashes, 50), minlength=50)
        assert counts.min() > 1_500
        assert counts.max() < 2_500


def test_runs_of_a_query_share_its_partition() -> None:
    """As its judgments, which have no run, do; and their hashes differ."""
    n = 1000
    queries = [f"q{number}" for number in range(n)]
    expected = partition_of(key_hashes(pa.RecordBatch.from_pydict({"q": queries}), ("q",)), 64)
    hashes = [key_hashes(pa.RecordBatch.from_pydict({"q": queries, "run": [run] * n}), ("q",), "run") for run in "ab"]
    assert [partition_of(one, 64).tolist() for one in hashes] == [expected.tolist()] * 2
    assert len(set(np.concatenate(hashes).tolist())) == 2 * n


@pytest.mark.parametrize("n_partitions", [1, 3, 64, 2**14])
def test_every_hash_has_a_partition(n_partitions: int) -> None:
    ends = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    found = partition_of(ends, n_partitions)
    assert (found.min(), found.max()) == (0, n_partitions - 1)


def test_zero_and_minus_zero_are_one_key() -> None:
    hashes = key_hashes(pa.RecordBatch.from_pydict({"q": [0.0, -0.0, 1.0]}), ("q",))
    assert hashes[0] == hashes[1] != hashes[2]
