"""Messages between tasks without Spark, by partition id, and rows; in memory or in files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import EXCHANGE_SCHEMA, from_bytes, int_values
from ndcg_spark.core.ragged import IntArray

HELD_BYTES = 2**20
"""Limit of the bytes that a worker process sends through its pipe; more goes to a file."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages that a task sent: a partition id, a kind, and where the payload is in `payloads`, or in a file."""

    ids: IntArray
    kinds: IntArray
    starts: IntArray
    sizes: IntArray
    payloads: bytes | str

    def of(self, ids: IntArray) -> Sent:
        """Select the messages for some partition ids, of which payloads in memory are copied."""
        selected = np.flatnonzero(np.isin(self.ids, ids))
        starts, sizes, payloads = self.starts[selected], self.sizes[selected], self.payloads
        if isinstance(payloads, bytes):
            payloads = b"".join(payloads[start : start + size] for start, size in zip(starts, sizes, strict=True))
            starts = np.cumsum(sizes) - sizes
        return Sent(self.ids[selected], self.kinds[selected], starts, sizes, payloads)

    def messages(self) -> Iterator[pa.RecordBatch]:
        """Read messages as they were sent; payloads stay where they are."""
        if not len(self.ids):
            return
        stored = self.payloads
        source = pa.memory_map(stored) if isinstance(stored, str) else pa.BufferReader(stored)
        payloads = source.read_buffer()
        for index, (start, size) in enumerate(zip(self.starts.tolist(), self.sizes.tolist(), strict=True)):
            offsets = pa.py_buffer(np.array([0, size], dtype=np.int32))
            payload = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payloads.slice(start, size)])
            id_and_kind = [pa.array([int(numbers[index])], pa.int32()) for numbers in (self.ids, self.kinds)]
            yield pa.RecordBatch.from_arrays([*id_and_kind, payload], schema=EXCHANGE_SCHEMA)


class Spool:
    """Bytes of a task: in memory until they are more than `limit`, then in a file of `folder`.

    Arrow writes to it as to a file object.
    """

    closed = False

    def __init__(self, folder: str, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._held: list[bytes] = []
        self._file: BinaryIO | None = None
        self._path = ""
        self.size = 0

    def write(self, content: Any) -> int:
        content = bytes(content)
        self.size += len(content)
        if self._file is None and self.size > self._limit:
            number, self._path = tempfile.mkstemp(dir=self._folder)
            self._file = os.fdopen(number, "wb")
            self._file.writelines(self._held)
            self._held = []
        if self._file is None:
            self._held.append(content)
        else:
            self._file.write(content)
        return len(content)

    def flush(self) -> None:
        """Do nothing: what is in memory needs no flush, and `close` flushes the file."""

    def close(self) -> bytes | str:
        """Return what was written, or the path of the file that has it."""
        if self._file is None:
            return b"".join(self._held)
        self._file.close()
        return self._path


def send(
    work: Callable[..., Iterator[pa.RecordBatch]], task: Sequence[Any], folder: str, limit: int = HELD_BYTES
) -> Sent:
    """Run a function that yields messages, and keep them."""
    spool = Spool(folder, limit)
    ids, kinds, sizes = list[int](), list[int](), list[int]()
    for batch in work(*task):
        ids += int_values(batch.column("partition_id")).tolist()
        kinds += int_values(batch.column("kind")).tolist()
        for payload in batch.column("payload"):
            content = payload.as_py()
            sizes.append(len(content))
            spool.write(content)
    lengths = np.array(sizes, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    return Sent(np.array(ids, dtype=np.int64), np.array(kinds, dtype=np.int64), starts, lengths, spool.close())


def collect(
    work: Callable[..., Iterator[pa.RecordBatch]], task: Sequence[Any], folder: str, limit: int = HELD_BYTES
) -> bytes | str:
    """Run a function that yields rows, and keep them as an Arrow stream; empty if there are none."""
    spool = Spool(folder, limit)
    stream = None
    for batch in work(*task):
        if stream is None:
            stream = pa.ipc.new_stream(pa.PythonFile(spool, mode="w"), batch.schema)
        stream.write_batch(batch)
    if stream is not None:
        stream.close()
    return spool.close()


def rows_in(collected: bytes | str) -> list[pa.RecordBatch]:
    """Read what `collect` kept; rows in a file are mapped into memory, and stay when the file is removed."""
    if not collected:
        return []
    if isinstance(collected, str):
        with pa.memory_map(collected) as source:
            return from_bytes(source.read_buffer())
    return from_bytes(pa.py_buffer(collected))


def merge(
    work: Callable[..., Iterator[pa.RecordBatch]],
    sent: Iterable[Sent],
    task: Sequence[Any],
    folder: str,
    limit: int = HELD_BYTES,
) -> bytes | str:
    """Run a function of messages that yields rows."""
    arrived = (message for messages in sent for message in messages.messages())
    return collect(work, [arrived, *task], folder, limit)


def shares(sent: Sequence[Sent], n_shares: int) -> list[list[Sent]]:
    """Divide messages by their partition ids into shares of about as many bytes, those of an id together."""
    ids = np.concatenate([messages.ids for messages in sent]) if sent else np.array([], dtype=np.int64)
    if not len(ids):
        return []
    sizes = np.bincount(ids, weights=np.concatenate([messages.sizes for messages in sent]))
    share_of = np.minimum((np.cumsum(sizes) - sizes) * n_shares // max(sizes.sum(), 1), n_shares - 1)
    of_share = [np.flatnonzero(share_of == share) for share in range(n_shares)]
    divided = [
        [selection for messages in sent if len((selection := messages.of(share_ids)).ids)] for share_ids in of_share
    ]
    return [share_ids for share_ids in divided if share_ids]
