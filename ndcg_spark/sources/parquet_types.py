"""Read the columns of a Parquet file from its footer, with the types that Spark has for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark.core.arrow_tables import SPARK_TYPES
from ndcg_spark.core.schemas import format_type, is_list
from ndcg_spark.errors import option
from ndcg_spark.sources.parquet import FileFooter, open_parquet

_UNSUPPORTED = f"has a type that only Spark reads; set {option('engine', 'spark')}."
_SAME_IN_SPARK = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()}
_LOGICAL_TYPES = {pa.string(): "String", pa.binary(): "None"}
_SPARK_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_SPARK_SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_OLD_CALENDARS = {b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetColumns:
    """Columns of a file. `refused` has those that Arrow and Spark read differently, as in `TableInfo.refused`."""

    schema: pa.Schema
    refused: Mapping[str, str]
    has_nanoseconds: bool


class _OtherTypeError(Exception):
    """A type that Arrow and Spark may read differently."""


def read_footer(path: str) -> FileFooter:
    """Read the footer of a file. Raise an OSError if it is not Parquet."""
    with open_parquet(path) as parquet_file:
        return parquet_file.footer


def convert_footers(footers: Sequence[FileFooter]) -> list[ParquetColumns | str]:
    """Return the columns of each file, or a clause on why only Spark can read it. Converts equal schemas once."""
    converted: list[ParquetColumns | str] = []
    previous: pq.FileMetaData | None = None
    for footer in footers:
        metadata = footer.parse()
        if previous is None or not _has_same_schema(metadata, previous):
            converted.append(_convert_footer(footer.identity.path, metadata))
        else:
            converted.append(converted[-1])
        previous = metadata
    return converted


def _has_same_schema(metadata: pq.FileMetaData, other: pq.FileMetaData) -> bool:
    """Check for equal columns. Parquet's comparison ignores the names of groups, such as lists."""
    schema, other_schema = metadata.schema, other.schema
    same_names = schema.to_arrow_schema().equals(other_schema.to_arrow_schema())
    return bool(same_names and schema.equals(other_schema) and metadata.metadata == other.metadata)


def _convert_footer(path: str, metadata: pq.FileMetaData) -> ParquetColumns | str:
    leaves = [metadata.schema.column(number) for number in range(len(metadata.schema))]
    key_values = metadata.metadata or {}
    if _OLD_CALENDARS & key_values.keys():
        return f"{path} may have dates of the Julian calendar"
    spark_types = _read_spark_types(key_values[_SPARK_SCHEMA_KEY]) if _SPARK_SCHEMA_KEY in key_values else None
    fields, refused, remaining = [], {}, iter(leaves)
    for field in metadata.schema.to_arrow_schema():
        field_leaves = [next(remaining) for _ in range(_count_leaves(field.type))]
        try:
            spark_type = _to_spark_type(field.type, field.name, iter(field_leaves))
            if spark_types is not None and spark_types.get(field.name) != format_type(spark_type):
                raise _OtherTypeError
        except _OtherTypeError:
            spark_type, refused[field.name] = pa.struct([]), _UNSUPPORTED
        fields.append((field.name, spark_type))
    names = {name.lower() for name, _ in fields}
    if len(names) < len(fields):
        return f"{path} has columns whose names differ only in case"
    has_nanoseconds = any('"nanoseconds"' in leaf.logical_type.to_json() for leaf in leaves)
    return ParquetColumns(schema=pa.schema(fields), refused=refused, has_nanoseconds=has_nanoseconds)


def _count_leaves(arrow_type: pa.DataType) -> int:
    if pa.types.is_struct(arrow_type):
        return sum(_count_leaves(field.type) for field in arrow_type)
    if pa.types.is_map(arrow_type):
        return _count_leaves(arrow_type.key_type) + _count_leaves(arrow_type.item_type)
    return _count_leaves(arrow_type.value_type) if is_list(arrow_type) else 1


def _to_spark_type(arrow_type: pa.DataType, path: str, leaves: Iterator[Any]) -> pa.DataType:
    """Convert a type to Spark's. Raise unless list levels have today's standard names: others are ambiguous."""
    if pa.types.is_struct(arrow_type) and arrow_type.num_fields:
        return pa.struct(
            [(field.name, _to_spark_type(field.type, f"{path}.{field.name}", leaves)) for field in arrow_type]
        )
    if pa.types.is_map(arrow_type):
        keys = _to_spark_type(arrow_type.key_type, f"{path}.key_value.key", leaves)
        return pa.map_(keys, _to_spark_type(arrow_type.item_type, f"{path}.key_value.value", leaves))
    if is_list(arrow_type):
        name = "item" if arrow_type.value_field.name == "item" else "element"
        return pa.list_(_to_spark_type(arrow_type.value_type, f"{path}.list.{name}", leaves))
    leaf = next(leaves)
    logical = json.loads(leaf.logical_type.to_json())
    if (
        pa.types.is_dictionary(arrow_type) and "." not in path
    ):  # Arrow cannot read lists of dictionaries from several row groups
        arrow_type = arrow_type.value_type
    arrow_type = SPARK_TYPES.get(arrow_type, arrow_type)
    if leaf.path != path or logical["Type"] in ("Float16", "Null"):
        raise _OtherTypeError
    if leaf.physical_type == "INT96":
        return pa.timestamp("us", "UTC")
    if pa.types.is_timestamp(arrow_type) and logical.get("is_from_converted_type") is False:
        return pa.timestamp("us", arrow_type.tz and "UTC")
    if (
        arrow_type in _SAME_IN_SPARK
        or pa.types.is_decimal128(arrow_type)
        or _LOGICAL_TYPES.get(arrow_type) == logical["Type"]
    ):
        return arrow_type
    raise _OtherTypeError


def _read_spark_types(schema: bytes) -> dict[str, str]:
    """Read the types that Spark stored in a file, which it prefers to Parquet's. "" for fields with own metadata."""
    fields = json.loads(schema)["fields"]
    return {
        field["name"]: "" if _has_special_metadata(field["metadata"]) else _format_spark_type(field["type"])
        for field in fields
    }


def _has_special_metadata(metadata: Mapping[str, Any]) -> bool:
    return any(key.startswith(("__", "ndcg_spark.")) for key in metadata)


def _format_spark_type(json_type: Any) -> str:
    if isinstance(json_type, str):
        return _SPARK_NAMES.get(json_type, json_type)
    if json_type["type"] == "array":
        return f"array<{_format_spark_type(json_type['elementType'])}>"
    if json_type["type"] == "map":
        return f"map<{_format_spark_type(json_type['keyType'])},{_format_spark_type(json_type['valueType'])}>"
    if json_type["type"] == "struct":
        inner = (
            f"{field['name']}:{_format_spark_type(field['type'])}"
            for field in json_type["fields"]
            if not _has_special_metadata(field["metadata"])
        )
        return f"struct<{','.join(inner)}>"
    return str(json_type["type"])
