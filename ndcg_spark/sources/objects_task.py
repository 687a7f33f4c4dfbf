"""Whole tables of Parquet objects, for a Spark that has no way to their store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources.footers import misfit
from ndcg_spark.sources.parquet import batches_of, opened, refusing_unreadable

_INSTANT = pa.timestamp("us", "UTC")
_ROWS = 131_072


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Find the type under which Spark gets the values of a column; None where it gets none."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        inner = plain_type(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return _INSTANT if kind.tz else None  # without a zone, files of old writers mean instants, others do not
    same = (types.is_signed_integer, types.is_boolean, types.is_float32, types.is_float64, types.is_date32)
    return kind if types.is_decimal128(kind) or any(holds(kind) for holds in same) else None


def plain_schema(found: pa.Schema) -> pa.Schema:
    """Keep the columns that Spark can get, under the types in which it gets them."""
    kinds = [(one.name, plain_type(one.type)) for one in found]
    return pa.schema([(name, kind) for name, kind in kinds if kind is not None])


def make_object_reader(paths: Sequence[str], schema: pa.Schema) -> BatchFunction:
    """Build the function that reads the files whose numbers are given; all must have the columns of the first."""
    return batch_function(
        lambda batches: (
            row for batch in batches for number in batch.column(0).to_pylist() for row in _rows(paths[number], schema)
        )
    )


def _rows(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with refusing_unreadable(path), opened(path) as found:
        obstacle = misfit(
            path,
            plain_schema(found.metadata.schema.to_arrow_schema()),
            {name: name for name in schema.names},
            schema,
        )
        if obstacle is not None:
            raise InputRefusedError(f"{obstacle}; only Spark's own connector to the store reads such tables.")
        groups = list(range(found.metadata.num_row_groups))
        for batch in batches_of(found, groups, schema.names, _ROWS):
            typed = [batch.column(one.name).cast(one.type, safe=False) for one in schema]
            yield pa.RecordBatch.from_arrays(typed, schema=schema)
