"""Rows of a shuffle that carry packed batches: a partition id, a kind, and Arrow batches as bytes.

Spark moves some thousand binary rows, never a row a query. What the kinds are, each sender says.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

EXCHANGE_SCHEMA = pa.schema([("partition_id", pa.int32()), ("kind", pa.int32()), ("payload", pa.binary())])


def message(ids: Iterable[int], kind: int, payloads: list[bytes]) -> pa.RecordBatch:
    """Build rows of the exchange."""
    columns = [pa.array(list(ids), pa.int32()), pa.repeat(pa.scalar(kind, pa.int32()), len(payloads))]
    return pa.RecordBatch.from_arrays([*columns, pa.array(payloads, pa.binary())], schema=EXCHANGE_SCHEMA)


def to_bytes(*batches: pa.RecordBatch) -> bytes:
    """Write batches of one schema as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types


def from_bytes(payload: pa.Buffer) -> list[pa.RecordBatch]:
    """Read what `to_bytes` wrote."""
    return list(pa.ipc.open_stream(payload))
