"""Messages between tasks: equal from memory and from files, by partition id, in shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ndcg_spark.core.batches import make_message
from ndcg_spark.local.messages import collect, merge, rows_in, send, shares

MESSAGES = [([3, 1], 0, [b"three", b"one"]), ([1, 2, 0], 4, [b"", b"two" * 100, b"nought"])]


def build_messages() -> Iterator[pa.RecordBatch]:
    for ids, kind, payloads in MESSAGES:
        yield make_message(ids, kind, payloads)


def count_rows(batches: Iterator[pa.RecordBatch]) -> Counter[tuple[int, int, bytes]]:
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


SENT = count_rows(build_messages())


@pytest.mark.parametrize("limit", [0, 10, 10**6])
def test_messages_arrive_as_they_were_sent(tmp_path: Path, limit: int):
    actual = send(build_messages, (), str(tmp_path), limit)
    assert isinstance(actual.payloads, str) == (limit < 500)
    assert count_rows(actual.messages()) == SENT


@pytest.mark.parametrize("limit", [0, 10**6])
@pytest.mark.parametrize("n_shares", [1, 2, 3, 9])
def test_each_message_is_in_one_share_with_all_others_of_its_id(tmp_path: Path, limit: int, n_shares: int):
    sent = [send(build_messages, (), str(tmp_path), limit) for _ in range(2)]
    actual = [
        count_rows(row for message_file in share for row in message_file.messages())
        for share in shares(sent, n_shares)
    ]
    assert 0 < len(actual) <= n_shares
    assert sum(actual, Counter()) == SENT + SENT
    ids = [{row[0] for row in share} for share in actual]
    assert sum(map(len, ids)) == len(set().union(*ids)) == 4


def test_no_messages_give_no_shares(tmp_path: Path):
    assert shares([send(lambda: iter(()), (), str(tmp_path))], 3) == []


def count_batches(batches: Iterator[pa.RecordBatch], more: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows + more], "id": batch.column("partition_id")[:1]})


@pytest.mark.parametrize("limit", [0, 10**6])
def test_rows_come_from_memory_and_from_files(tmp_path: Path, limit: int):
    sent = [send(build_messages, (), str(tmp_path), limit)]
    actual = merge(count_batches, sent, (10,), str(tmp_path), limit)
    assert isinstance(actual, str) == (limit == 0)
    batches = rows_in(actual)
    for file in tmp_path.iterdir():
        file.unlink()  # rows that were mapped into memory stay
    assert [row["n"] for batch in batches for row in batch.to_pylist()] == [11] * 5


def test_no_rows_give_no_batches(tmp_path: Path):
    assert rows_in(collect(lambda: iter(()), (), str(tmp_path))) == []


def test_large_ids_divide_evenly(tmp_path: Path):
    """Shares are divided by bytes: a large and a small one would leave a process idle."""
    ids = np.arange(1000)
    sent = [send(lambda: iter([make_message(ids, 0, [b"x" * 100] * 1000)]), (), str(tmp_path))]
    sizes = [sum(int(message_file.sizes.sum()) for message_file in share) for share in shares(sent, 4)]
    assert sizes == [25_000] * 4
