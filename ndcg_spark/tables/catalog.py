"""Catalog tables: read their properties, check them against results, create and alter them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import exact_col, quote_name
from ndcg_spark.core.failures import SPARK_ERRORS, first_line
from ndcg_spark.core.session import get_setting, has_own_catalog
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.kinds import (
    COMMITTED,
    PARTITION_COLUMNS,
    ColumnType,
    ExistingTable,
    Field,
    Growth,
    list_columns,
    match_name,
)
from ndcg_spark.tables.places import canonicalize
from ndcg_spark.tables.slices import PARTITIONS


def select_results(schema: T.StructType) -> T.StructType:
    """Drop the partition columns from a schema."""
    return T.StructType([field for field in schema if field.name not in PARTITIONS])


TABLE_PROVIDERS = ("parquet", "orc", "hive", *COMMITTED)
_DELEGATING_CATALOGS = ("builtin", "DeltaCatalog", "HoodieCatalog")
"""Classes of `spark_catalog` that store tables in Spark's own catalog."""
_MAX_ATTEMPTS = 6
"""Attempts to add columns that other jobs add at the same time, and to see them."""
_alter_lock = threading.Lock()
"""A Hive catalog replaces all columns of a table at once, so one of two threads could drop the other's columns."""
_QUOTED = r"`(?:[^`]|``)*`"
_DETAILS = ("# detailed table information", "# detailed partition information")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_TABLE_EXISTS = re.compile(r"TABLE(_OR_VIEW)?_ALREADY_EXISTS")
_TABLE = re.compile(rf"(?:(.*)\.)?({_QUOTED}|[^`.]*)")
_SCHEMA = re.compile(rf"(?:[A-Za-z_]\w*|{_QUOTED})(?:\.(?:[A-Za-z_]\w*|{_QUOTED}))*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table as the catalog describes it. `growth` is the difference between its columns and the rows to write.

    `columns` has no partition columns. `format` is the format of its files, or of its log. `location` is None if the
    catalog does not report one, as for some tables of `COMMITTED`.
    """

    name: str
    format: str
    location: str | None
    columns: T.StructType
    growth: Growth

    @property
    def folder(self) -> str:
        if self.location is None:
            raise OutputRefusedError(f"the catalog has no location for table {self.name!r}; name another table.")
        return self.location


def describe(spark: SparkSession, target: str) -> dict[str, str]:
    """Read the details of a table or of `TABLE PARTITION (...)`, such as `provider` and `location`, in lower case.

    Columns are not included. A view has neither provider nor location.
    """
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {target}").collect()
    rows = [((row[0] or "").strip().lower(), (row[1] or "").strip()) for row in described]
    start = next((number for number, (key, _) in enumerate(rows) if key in _DETAILS), 0)
    properties: dict[str, str] = {}
    for key, value in rows[start:]:
        properties.setdefault(key, value)
    return properties


def locate_table(spark: SparkSession, table: str) -> str:
    """Return the canonical place of a table's files, even before it is created; `table:NAME` if it is unknown.

    Refuse a missing schema, and a view.
    """
    try:
        if spark.catalog.tableExists(table):
            properties = describe(spark, table)
            location = properties.get("location")
            if properties.get("provider", "").lower() not in COMMITTED and not location:
                raise OutputRefusedError(f"{table!r} is a view, or a table without a location; name another table.")
        else:
            schema, name = split_name(table)
            if schema and not spark.catalog.databaseExists(schema):
                raise OutputRefusedError(f"table {table!r} cannot be created: there is no schema {schema!r}.")
            rows = spark.sql(f"DESCRIBE SCHEMA {schema or read_current_schema(spark)}").collect()
            properties = {str(row[0]).lower(): row[1] for row in rows}
            location = f"{properties['location'].rstrip('/')}/{name.lower()}" if properties.get("location") else None
    except SPARK_ERRORS as error:
        raise OutputRefusedError(f"cannot write to table {table!r}: {first_line(error)}") from error
    return canonicalize(location) if location else f"table:{table.replace('`', '').lower()}"


def split_name(table: str) -> tuple[str, str]:
    """Split the name of a table into its schema, with quotes, and its last part, without quotes.

    >>> split_name("`my-catalog`.`a.b`.`runs``of``night`")
    ('`my-catalog`.`a.b`', 'runs`of`night')
    >>> split_name("metrics")
    ('', 'metrics')
    """
    match = _TABLE.fullmatch(table)
    schema, name = (match[1] or "", match[2]) if match else ("", table)  # Spark refuses an invalid name
    return schema, name[1:-1].replace("``", "`") if name.startswith("`") else name


def list_session_tables(spark: SparkSession, tables: Mapping[str, str]) -> list[str]:
    """List the tables to write that an in-memory `spark_catalog` would keep only for this session.

    `tables` has the format of each table.
    """
    if not has_own_catalog(spark):
        return []
    catalog = get_setting(spark, "spark.sql.catalog.spark_catalog", "builtin").rpartition(".")[2]
    if catalog not in (*_DELEGATING_CATALOGS, "SparkSessionCatalog"):
        return []
    session_tables = [table for table in tables if _find_catalog(spark, table) == "spark_catalog"]
    if catalog in _DELEGATING_CATALOGS:
        return session_tables
    not_iceberg = [table for table in session_tables if choose_provider(spark, tables[table]) != "iceberg"]
    return [table for table in not_iceberg if not spark.catalog.tableExists(table)]


def _find_catalog(spark: SparkSession, table: str) -> str:
    """Find the catalog of a table by its name. The session must have its initial current catalog."""
    prefix = split_name(table)[0].partition(".")[0].strip("`")
    if prefix.lower() == "spark_catalog":
        return "spark_catalog"
    if prefix and get_setting(spark, f"spark.sql.catalog.{prefix}", ""):
        return prefix
    return get_setting(spark, "spark.sql.defaultCatalog", "spark_catalog")


def read_current_schema(spark: SparkSession) -> str:
    schema = spark.catalog.currentDatabase()
    return schema if _SCHEMA.fullmatch(schema) else quote_name(schema)


def check_table(
    spark: SparkSession, table: str, new_columns: Iterable[Field], kind: str = "table", *, grow: bool = True
) -> CatalogTable | None:
    """Check a table against the columns of new rows. Return it, or None if it does not exist.

    Refuse another provider, other partitioning, or other columns. `new_columns` has no partition columns; `kind` is a
    provider, or `table` for any. See `ExistingTable.compare` for `grow`.
    """
    try:
        if not spark.catalog.tableExists(table):
            return None
        properties = describe(spark, table)
        schema = read_schema(spark, table)
        provider = properties.get("provider", "hive").lower()
        # A Delta commit can replace any rows, so such a table may be clustered instead of partitioned.
        columns = [] if provider == "delta" else spark.catalog.listColumns(table)
    except SPARK_ERRORS as error:
        if _NOT_FOUND in str(error) and not spark.catalog.tableExists(table):
            return None  # another writer created and dropped it; a view that lacks its table still exists
        raise OutputRefusedError(f"cannot write to table {table!r}: {first_line(error)}") from error
    if kind not in ("table", provider):
        raise OutputRefusedError(f"table {table!r} is of provider {provider!r}, not {kind!r}; name another table.")
    if provider not in TABLE_PROVIDERS:
        raise OutputRefusedError(
            f"table {table!r} is of provider {provider!r}; this version writes {', '.join(TABLE_PROVIDERS)}."
        )
    serde = properties.get("serde library", "").lower()
    file_format = (
        provider if provider != "hive" else next((name for name in ("parquet", "orc") if name in serde), None)
    )
    if file_format is None:
        raise OutputRefusedError(f"table {table!r} is stored by {serde!r}; this version writes parquet and orc.")
    partitioned_by = [column.name for column in columns if column.isPartition]
    # The catalog names partitions in the order of the columns.
    if provider != "delta" and (sorted(partitioned_by) if provider == "iceberg" else partitioned_by) != list(
        PARTITIONS
    ):
        raise OutputRefusedError(f"table {table!r} must be partitioned by {' and '.join(PARTITIONS)}, in this order.")
    buckets = [repr(column.name) for column in columns if column.isBucket]
    if buckets:  # replaced files would not belong to a bucket
        raise OutputRefusedError(
            f"table {table!r} has buckets of {', '.join(buckets)}; it must be partitioned by "
            f"{' and '.join(PARTITIONS)} and nothing else: make it without CLUSTERED BY (bucket(...) of Iceberg), or "
            "name another table."
        )
    if provider == "iceberg" and read_wap_setting(spark, table, "spark.wap.id"):
        raise OutputRefusedError(
            f"table {table!r} has write.wap.enabled, and spark.wap.id is set: a commit would be staged where neither "
            "this job nor a reader sees it; set spark.wap.branch in place of spark.wap.id, and publish that branch."
        )
    existing = ExistingTable(name=f"table {table!r}", schema=schema, hint="name another table", in_catalog=True)
    return CatalogTable(
        name=table,
        format=file_format,
        location=properties.get("location"),
        columns=select_results(schema),
        growth=existing.compare(new_columns, grow=grow),
    )


def read_schema(spark: SparkSession, table: str) -> T.StructType:
    """Read the current columns of a table. Spark caches those of an earlier query."""
    with suppress(*SPARK_ERRORS):  # some engines need no refresh
        spark.catalog.refreshTable(table)
    return spark.table(table).schema


def add_columns(spark: SparkSession, table: str, columns: Iterable[Field]) -> None:
    """Add missing columns to a table; they are null in its rows. Repeat until Spark sees them.

    A query that looked the table up before, and ends later, can make Spark cache the table without these columns.
    Their values in later rows would be lost.
    """
    failure: Exception | None = None
    new_columns = list_columns(columns)
    with _alter_lock:
        for _ in range(_MAX_ATTEMPTS):
            existing = {name.lower() for name in read_schema(spark, table).names}
            missing = [column for column in new_columns if column.name.lower() not in existing]
            if not missing:
                return
            statement = f"ALTER TABLE {table} ADD COLUMNS ({', '.join(map(_declare, missing))})"
            try:
                spark.sql(statement)
            except SPARK_ERRORS as error:  # another job may have added them just now
                failure = error
    names = ", ".join(repr(column.name) for column in missing)
    reason = first_line(failure).rstrip(".") if failure else "Spark does not see it"
    raise OutputRefusedError(
        f"table {table!r} has no column {names}, and it could not be added ({reason}); name another table, or have "
        f"somebody run: {statement}"
    ) from failure


def _declare(column: ColumnType) -> str:
    return f"`{column.name.replace('`', '``')}` {column.kind}"


def read_wap_setting(spark: SparkSession, table: str, name: str) -> str:
    """Return `spark.wap.branch` or `spark.wap.id` if it is set and an Iceberg table respects it; else ""."""
    value = get_setting(spark, name, "")
    if not value:
        return ""
    properties = spark.sql(f"SHOW TBLPROPERTIES {table} ('write.wap.enabled')").collect()
    return value if any(str(row[1]).lower() == "true" for row in properties) else ""


def choose_provider(spark: SparkSession, kind: str) -> str:
    """Choose the provider of a new table. For kind `table`: the session's default if it has commits, else parquet."""
    if kind != "table":
        return kind
    fallback = "delta" if "DATABRICKS_RUNTIME_VERSION" in os.environ else "parquet"
    default = get_setting(spark, "spark.sql.sources.default", fallback).lower()
    return default if default in COMMITTED else "parquet"


def create_table(spark: SparkSession, table: str, new_columns: Iterable[Field], kind: str) -> bool:
    """Create a table unless it exists. Return True if this call created it.

    Another writer may create it first, and may even drop it again.
    """
    columns = ", ".join(map(_declare, [*list_columns(new_columns), *PARTITION_COLUMNS]))
    provider = choose_provider(spark, kind)
    try:
        spark.sql(f"CREATE TABLE {table} ({columns}) USING {provider} PARTITIONED BY ({', '.join(PARTITIONS)})")
    except SPARK_ERRORS as error:
        if not _TABLE_EXISTS.search(str(error)) and not spark.catalog.tableExists(table):
            raise
        return False
    return True


def cast_to_table(rows: DataFrame, catalog_table: CatalogTable) -> DataFrame:
    """Cast rows to the columns of a table, partition columns last. Missing columns are null. Lazy."""
    declared = {*PARTITIONS, *(column.lower() for column in catalog_table.columns.names)}
    undeclared = [column for column in rows.columns if column.lower() not in declared]
    if undeclared:
        raise OutputRefusedError(
            f"table {catalog_table.name!r} has no column {undeclared[0]!r}: another job changed its columns "
            "meanwhile; run again."
        )
    columns = []
    for field in catalog_table.columns:
        match = match_name(field.name, rows.columns)
        value = F.lit(None) if match is None else exact_col(match)
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*columns, *PARTITIONS)


def read_columns(spark: SparkSession, catalog_table: CatalogTable) -> CatalogTable:
    """Read the columns of a table again, as other jobs may have added some."""
    return replace(catalog_table, columns=select_results(read_schema(spark, catalog_table.name)))
