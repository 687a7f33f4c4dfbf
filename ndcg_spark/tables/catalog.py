"""Catalog tables: what they are, and what is written to them."""

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

from ndcg_spark.core.columns import named, quoted
from ndcg_spark.core.failures import SPARK_ERRORS, first_line
from ndcg_spark.core.session import has_own_catalog, setting
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.kinds import (
    COMMITTED,
    PARTITION_COLUMNS,
    ColumnType,
    Field,
    Grown,
    Growth,
    columns_in,
    match_name,
)
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITIONS


def select_results(schema: T.StructType) -> T.StructType:
    """Leave out the columns by which tables are partitioned."""
    return T.StructType([field for field in schema if field.name not in PARTITIONS])


TABLE_PROVIDERS = ("parquet", "orc", "hive", *COMMITTED)
_DELEGATES = ("builtin", "DeltaCatalog", "HoodieCatalog")
"""Classes that may stand for `spark_catalog` and leave it to Spark's own catalog to remember tables."""
_ATTEMPTS = 6
"""To add columns that other jobs add at the same time, and to see them."""
_altering = threading.Lock()
"""A catalog of Hive replaces all columns of a table at once, so that one of two threads would undo the other."""
_QUOTED = r"`(?:[^`]|``)*`"
_DETAILS = ("# detailed table information", "# detailed partition information")
_GONE = "TABLE_OR_VIEW_NOT_FOUND"
_TABLE_EXISTS = re.compile(r"TABLE(_OR_VIEW)?_ALREADY_EXISTS")
_TABLE = re.compile(rf"(?:(.*)\.)?({_QUOTED}|[^`.]*)")
_SCHEMA = re.compile(rf"(?:[A-Za-z_]\w*|{_QUOTED})(?:\.(?:[A-Za-z_]\w*|{_QUOTED}))*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table as the catalog describes it; `columns` without partitions, `growth` against the rows to write.

    `format` is that of its files, or of the log of them. `location` is None if the catalog does not say, as for some
    tables of `COMMITTED`.
    """

    name: str
    format: str
    location: str | None
    columns: T.StructType
    growth: Growth

    @property
    def folder(self) -> str:
        if self.location is None:
            raise OutputRefusedError(f"the catalog does not say where table {self.name!r} lies; name another table.")
        return self.location


def describe(spark: SparkSession, what: str) -> dict[str, str]:
    """Read facts of a table, or of `TABLE PARTITION (...)`, by lower-case name, such as `provider` and `location`.

    Columns are left out. A view has neither provider nor location.
    """
    shown = spark.sql(f"DESCRIBE TABLE EXTENDED {what}").collect()
    rows = [((row[0] or "").strip().lower(), (row[1] or "").strip()) for row in shown]
    start = next((at for at, (name, _) in enumerate(rows) if name in _DETAILS), 0)
    facts: dict[str, str] = {}
    for name, value in rows[start:]:
        facts.setdefault(name, value)
    return facts


def place_of_table(spark: SparkSession, table: str) -> str:
    """Canonical place of a table's files, also before it is created; `table:NAME` if the catalog does not say.

    A missing schema and a view are refused.
    """
    try:
        if spark.catalog.tableExists(table):
            facts = describe(spark, table)
            location = facts.get("location")
            if facts.get("provider", "").lower() not in COMMITTED and not location:
                raise OutputRefusedError(f"{table!r} is a view, or a table without a location; name another table.")
        else:
            schema, name = split_name(table)
            if schema and not spark.catalog.databaseExists(schema):
                raise OutputRefusedError(f"there is no schema {schema!r} to make table {table!r} in.")
            rows = spark.sql(f"DESCRIBE SCHEMA {schema or current_schema(spark)}").collect()
            facts = {str(row[0]).lower(): row[1] for row in rows}
            location = f"{facts['location'].rstrip('/')}/{name.lower()}" if facts.get("location") else None
    except SPARK_ERRORS as error:
        raise OutputRefusedError(f"cannot write to table {table!r}: {first_line(error)}") from error
    return canonical(location) if location else f"table:{table.replace('`', '').lower()}"


def split_name(table: str) -> tuple[str, str]:
    """Split the name of a table into its schema, as it is quoted, and its last part without quotes.

    >>> split_name("`my-catalog`.`a.b`.`runs``of``night`")
    ('`my-catalog`.`a.b`', 'runs`of`night')
    >>> split_name("metrics")
    ('', 'metrics')
    """
    match = _TABLE.fullmatch(table)
    schema, name = (match[1] or "", match[2]) if match else ("", table)  # what is no name, Spark refuses
    return schema, name[1:-1].replace("``", "`") if name.startswith("`") else name


def forgotten_tables(spark: SparkSession, tables: Mapping[str, str]) -> list[str]:
    """Find tables to write (kinds by name) of a `spark_catalog` in memory, which only this session knows."""
    if not has_own_catalog(spark):
        return []
    keeper = setting(spark, "spark.sql.catalog.spark_catalog", "builtin").rpartition(".")[2]
    if keeper not in (*_DELEGATES, "SparkSessionCatalog"):
        return []
    names = [table for table in tables if _catalog_of(spark, table) == "spark_catalog"]
    if keeper in _DELEGATES:
        return names
    others = [table for table in names if provider_of_new(spark, tables[table]) != "iceberg"]
    return [table for table in others if not spark.catalog.tableExists(table)]


def _catalog_of(spark: SparkSession, table: str) -> str:
    """Name the catalog of a table in a session that has just started."""
    first = split_name(table)[0].partition(".")[0].strip("`")
    if first.lower() == "spark_catalog":
        return "spark_catalog"
    if first and setting(spark, f"spark.sql.catalog.{first}", ""):
        return first
    return setting(spark, "spark.sql.defaultCatalog", "spark_catalog")


def current_schema(spark: SparkSession) -> str:
    name = spark.catalog.currentDatabase()
    return name if _SCHEMA.fullmatch(name) else quoted(name)


def check_table(
    spark: SparkSession, table: str, stored: Iterable[Field], kind: str = "table", *, grow: bool = True
) -> TableFacts | None:
    """Refuse a table of another provider, partitioning or columns than `stored`; None if there is no such table.

    `stored` is without partition columns; `kind` is a provider, or `table` for any. See `Grown.growth` for `grow`.
    """
    try:
        if not spark.catalog.tableExists(table):
            return None
        facts = describe(spark, table)
        schema = read_schema(spark, table)
        provider = facts.get("provider", "hive").lower()
        # A commit of Delta replaces any rows, so that such a table may be clustered instead.
        columns = [] if provider == "delta" else spark.catalog.listColumns(table)
    except SPARK_ERRORS as error:
        if _GONE in str(error) and not spark.catalog.tableExists(table):
            return None  # another writer made it, failed, and dropped it again; a view may lack its table instead
        raise OutputRefusedError(f"cannot write to table {table!r}: {first_line(error)}") from error
    if kind not in ("table", provider):
        raise OutputRefusedError(f"table {table!r} is of provider {provider!r}, not {kind!r}; name another table.")
    if provider not in TABLE_PROVIDERS:
        raise OutputRefusedError(
            f"table {table!r} is of provider {provider!r}; this version writes {', '.join(TABLE_PROVIDERS)}."
        )
    serde = facts.get("serde library", "").lower()
    format_ = provider if provider != "hive" else next((name for name in ("parquet", "orc") if name in serde), None)
    if format_ is None:
        raise OutputRefusedError(f"table {table!r} is stored by {serde!r}; this version writes parquet and orc.")
    by = [column.name for column in columns if column.isPartition]
    # The catalog names partitions in the order of the columns.
    if provider != "delta" and (sorted(by) if provider == "iceberg" else by) != list(PARTITIONS):
        raise OutputRefusedError(f"table {table!r} must be partitioned by {' and '.join(PARTITIONS)}, in this order.")
    buckets = [repr(column.name) for column in columns if column.isBucket]
    if buckets:  # files that are put in place of others lie in no bucket
        raise OutputRefusedError(
            f"table {table!r} has buckets of {', '.join(buckets)}; it must be partitioned by "
            f"{' and '.join(PARTITIONS)} and nothing else: make it without CLUSTERED BY (bucket(...) of Iceberg), or "
            "name another table."
        )
    if provider == "iceberg" and publishes_later(spark, table, "spark.wap.id"):
        raise OutputRefusedError(
            f"table {table!r} has write.wap.enabled, and spark.wap.id is set: a commit would be staged where neither "
            "this job nor a reader sees it; set spark.wap.branch in place of spark.wap.id, and publish that branch."
        )
    existing = Grown(name=f"table {table!r}", schema=schema, way_out="name another table", in_catalog=True)
    return TableFacts(
        name=table,
        format=format_,
        location=facts.get("location"),
        columns=select_results(schema),
        growth=existing.growth(stored, grow=grow),
    )


def read_schema(spark: SparkSession, table: str) -> T.StructType:
    """Read the columns of a table anew: Spark remembers those of an earlier query."""
    with suppress(*SPARK_ERRORS):  # not every engine has to be told
        spark.catalog.refreshTable(table)
    return spark.table(table).schema


def add_columns(spark: SparkSession, table: str, columns: Iterable[Field]) -> None:
    """Add columns to a table unless it has them; they are null in its rows. Spark sees them afterwards.

    A query that looked the table up before, and ends later, would else let Spark remember the table without them, and
    lose their values in later rows.
    """
    failure: Exception | None = None
    wanted = columns_in(columns)
    with _altering:
        for _ in range(_ATTEMPTS):
            have = {name.lower() for name in read_schema(spark, table).names}
            new = [column for column in wanted if column.name.lower() not in have]
            if not new:
                return
            statement = f"ALTER TABLE {table} ADD COLUMNS ({', '.join(map(_declare, new))})"
            try:
                spark.sql(statement)
            except SPARK_ERRORS as error:  # another job may have added them just now
                failure = error
    names = ", ".join(repr(column.name) for column in new)
    why = first_line(failure).rstrip(".") if failure else "Spark does not see it"
    raise OutputRefusedError(
        f"table {table!r} has no column {names}, and it could not be added ({why}); name another table, or have "
        f"somebody run: {statement}"
    ) from failure


def _declare(column: ColumnType) -> str:
    return f"`{column.name.replace('`', '``')}` {column.kind}"


def publishes_later(spark: SparkSession, table: str, name: str) -> str:
    """Value of `spark.wap.branch` or `spark.wap.id` if an Iceberg table heeds it; else empty."""
    value = setting(spark, name, "")
    if not value:
        return ""
    shown = spark.sql(f"SHOW TBLPROPERTIES {table} ('write.wap.enabled')").collect()
    return value if any(str(row[1]).lower() == "true" for row in shown) else ""


def provider_of_new(spark: SparkSession, kind: str) -> str:
    """Choose the provider of a new table: for kind `table` the session's default if it has commits, else parquet."""
    if kind != "table":
        return kind
    usual = "delta" if "DATABRICKS_RUNTIME_VERSION" in os.environ else "parquet"
    default = setting(spark, "spark.sql.sources.default", usual).lower()
    return default if default in COMMITTED else "parquet"


def create_table(spark: SparkSession, table: str, stored: Iterable[Field], kind: str) -> bool:
    """Create a table unless it exists; return whether it was created here.

    Another writer may have created it first, and may even have dropped it again.
    """
    columns = ", ".join(map(_declare, [*columns_in(stored), *PARTITION_COLUMNS]))
    provider = provider_of_new(spark, kind)
    try:
        spark.sql(f"CREATE TABLE {table} ({columns}) USING {provider} PARTITIONED BY ({', '.join(PARTITIONS)})")
    except SPARK_ERRORS as error:
        if not _TABLE_EXISTS.search(str(error)) and not spark.catalog.tableExists(table):
            raise
        return False
    return True


def cast_to_table(rows: DataFrame, facts: TableFacts) -> DataFrame:
    """Cast rows to the columns of a table, partition columns last; those that they lack are null. Lazy."""
    declared = {*PARTITIONS, *(name.lower() for name in facts.columns.names)}
    lost = [name for name in rows.columns if name.lower() not in declared]
    if lost:
        raise OutputRefusedError(
            f"table {facts.name!r} has no column {lost[0]!r}: somebody changed its columns meanwhile; run again."
        )
    columns = []
    for field in facts.columns:
        match = match_name(field.name, rows.columns)
        value = F.lit(None) if match is None else named(match)
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*columns, *PARTITIONS)


def read_columns(spark: SparkSession, facts: TableFacts) -> TableFacts:
    """Read the columns of a table again: other jobs may have added some."""
    return replace(facts, columns=select_results(read_schema(spark, facts.name)))
