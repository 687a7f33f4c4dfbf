"""Columns of a Parquet file in the types that Spark has for them, by its footer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ndcg_spark.core.arrow_tables import PLAIN
from ndcg_spark.core.schemas import type_text
from ndcg_spark.errors import option
from ndcg_spark.sources.parquet import FileIdentity, opened

_OTHER = f"is of a type that only Spark reads; {option('engine', 'spark')} leaves it to Spark."
_SAME = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()}
_TEXTS = {pa.string(): "String", pa.binary(): "None"}
_SPARK_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_OF_SPARK = b"org.apache.spark.sql.parquet.row.metadata"
_OLD_CALENDARS = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFooter:
    """Columns of a file, and those that Arrow reads otherwise than Spark, with reasons as in `TableInfo.refused`."""

    identity: FileIdentity
    schema: pa.Schema
    refused: Mapping[str, str]
    has_nanoseconds: bool


class _OtherTypeError(Exception):
    """A type that Arrow and Spark may read in two ways."""


def read_footer(path: str) -> ParquetFooter | str:
    """Read the footer of a file; or say in a clause why Spark has to. An OSError if it is no Parquet file."""
    with opened(path) as found:
        metadata, identity = found.metadata, found.identity
    leaves = [metadata.schema.column(at) for at in range(len(metadata.schema))]
    written = metadata.metadata or {}
    if _OLD_CALENDARS & written.keys():
        return f"{path} may have dates of an old calendar"
    in_spark = _types_in_spark(written[_OF_SPARK]) if _OF_SPARK in written else None
    fields, refused, rest = [], {}, iter(leaves)
    for one in metadata.schema.to_arrow_schema():
        own = [next(rest) for _ in range(_n_leaves(one.type))]
        try:
            kind = _type_in_spark(one.type, one.name, iter(own))
            if in_spark is not None and in_spark.get(one.name) != type_text(kind):
                raise _OtherTypeError
        except _OtherTypeError:
            kind, refused[one.name] = pa.struct([]), _OTHER
        fields.append((one.name, kind))
    names = {name.lower() for name, _ in fields}
    if len(names) < len(fields):
        return f"{path} has columns whose names differ in case alone"
    nanoseconds = any('"nanoseconds"' in leaf.logical_type.to_json() for leaf in leaves)
    return ParquetFooter(identity=identity, schema=pa.schema(fields), refused=refused, has_nanoseconds=nanoseconds)


def _n_leaves(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_n_leaves(one.type) for one in kind)
    if pa.types.is_map(kind):
        return _n_leaves(kind.key_type) + _n_leaves(kind.item_type)
    return _n_leaves(kind.value_type) if _is_list(kind) else 1


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _type_in_spark(kind: pa.DataType, path: str, leaves: Iterator[Any]) -> pa.DataType:
    """Translate a type whose levels have the names of today's writers: lists of others can be read in two ways."""
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(one.name, _type_in_spark(one.type, f"{path}.{one.name}", leaves)) for one in kind])
    if pa.types.is_map(kind):
        keys = _type_in_spark(kind.key_type, f"{path}.key_value.key", leaves)
        return pa.map_(keys, _type_in_spark(kind.item_type, f"{path}.key_value.value", leaves))
    if _is_list(kind):
        name = "item" if kind.value_field.name == "item" else "element"
        return pa.list_(_type_in_spark(kind.value_type, f"{path}.list.{name}", leaves))
    leaf = next(leaves)
    logical = json.loads(leaf.logical_type.to_json())
    if pa.types.is_dictionary(kind) and "." not in path:  # Arrow does not read lists of them from several row groups
        kind = kind.value_type
    kind = PLAIN.get(kind, kind)
    if leaf.path != path or logical["Type"] in ("Float16", "Null"):
        raise _OtherTypeError
    if leaf.physical_type == "INT96":
        return pa.timestamp("us", "UTC")
    if pa.types.is_timestamp(kind) and logical.get("is_from_converted_type") is False:
        return pa.timestamp("us", kind.tz and "UTC")
    if kind in _SAME or pa.types.is_decimal128(kind) or _TEXTS.get(kind) == logical["Type"]:
        return kind
    raise _OtherTypeError


def _types_in_spark(schema: bytes) -> dict[str, str]:
    """Types that Spark wrote into a file, and prefers to those of Parquet; none where metadata say more."""
    fields = json.loads(schema)["fields"]
    return {one["name"]: "" if _tells(one["metadata"]) else _spark_name(one["type"]) for one in fields}


def _tells(metadata: Mapping[str, Any]) -> bool:
    return any(name.startswith(("__", "ndcg_spark.")) for name in metadata)


def _spark_name(kind: Any) -> str:
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{_spark_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_spark_name(kind['keyType'])},{_spark_name(kind['valueType'])}>"
    if kind["type"] == "struct":
        inner = (f"{one['name']}:{_spark_name(one['type'])}" for one in kind["fields"] if not _tells(one["metadata"]))
        return f"struct<{','.join(inner)}>"
    return str(kind["type"])
