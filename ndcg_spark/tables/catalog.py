"""Catalog tables: what they are, how they differ from new results, and what is written to them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import named, quoted
from ndcg_spark.core.failures import SPARK_ERRORS, first_line
from ndcg_spark.core.session import has_own_catalog, setting
from ndcg_spark.errors import OutputRefusedError, option
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITION_FIELDS, PARTITIONS

_WIDER = {"int": ("bigint",), "float": ("double",)}
"""Types that a column of a catalog table may have instead, as no value changes by the cast."""
_DATASET = "dataset"
"""The last column of a new table; columns that were added later follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of table that jobs write, known by its `marks`, columns that each such table has, with values.

    User-named columns that identify rows are after the first of `keys` (None: from the first column on) and before
    the second; without `keys` there are none.
    """

    name: str
    marks: frozenset[str]
    keys: tuple[str | None, str] | None = None

    def keys_in(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Columns of a table that identify rows; none if their order does not show them."""
        if self.keys is None or self.keys[1] not in columns:
            return ()
        first = columns.index(self.keys[0]) + 1 if self.keys[0] in columns else 0
        return tuple(name for name in columns[first : columns.index(self.keys[1])] if name != _DATASET)


def _kind(name: str, marks: str, keys: tuple[str | None, str] | None = None) -> Kind:
    return Kind(name=name, marks=frozenset(marks.split()), keys=keys)


KINDS = (
    _kind("table of compared periods", "period period_start n_days baseline metric n_wins"),
    _kind("table of periods", "period period_start n_days metric n_queries"),
    _kind("table of flags", "night metric status rule n_nights"),
    _kind("table of business links", "metric rate n_nights n_changes"),
    _kind("comparison table", "baseline segment_by metric n_wins n_losses"),
    _kind("metric table", "segment_by metric n_queries n_no_relevant n_left_out"),
    _kind("table of click estimates", "segment_by n_queries n_impressions n_eff"),
    _kind("per-query table", "k status n_items n_relevant", ("run", "k")),
    _kind("run log", "run_id command status started_at"),
    _kind("table of rejected rows", "source reason row"),
    _kind("table of propensities", "position propensity n_clicks"),
    _kind("table of rankings", "score rank", (None, "score")),
    _kind("judgments table", "relevance", (None, "relevance")),
)
"""The first whose marks a table has; a kind with the marks of another and more comes before it."""


def kind_of(columns: Sequence[str]) -> Kind | None:
    """Find the kind of a table by its columns in their order, whatever was added to it; None if none of ours."""
    names = [one.lower() for one in columns]
    first = names[: names.index(_DATASET)] if _DATASET in names else names
    for some in (set(first), set(names)):
        for kind in KINDS:
            if kind.marks <= some:
                return kind
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Columns of results that a table lacks, `added` to it, and columns of the table that results are `lacking`."""

    added: tuple[T.StructField, ...] = ()
    lacking: tuple[str, ...] = ()

    def lines(self, reference: str) -> list[str]:
        found = []
        if self.added:
            names = ", ".join(repr(one.name) for one in self.added)
            what, is_null = ("columns", "they are") if len(self.added) > 1 else ("column", "it is")
            verb = is_null.split()[1]
            found.append(f"{what} {names} {verb} added to {reference!r}; {is_null} null for earlier nights")
        if self.lacking:
            names, is_null = ", ".join(map(repr, self.lacking)), "they are" if len(self.lacking) > 1 else "it is"
            found.append(f"this night has no {names} of {reference!r}; {is_null} null")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A table that is there, and what a refusal says of it.

    `name` is such as `'./metrics'` or `table 'metrics'`, `way_out` as `write to a new folder`. `schema` has the
    columns of all nights, in the order of the table. Columns that are declared (`in_catalog`) keep their spelling and
    wider types.
    """

    name: str
    schema: T.StructType
    way_out: str
    in_catalog: bool = False

    def growth(self, results: T.StructType, *, grow: bool) -> Growth:
        """Compare the columns with those of results, which have `dataset` and no partition columns.

        Refused are a table of another kind, and a column of another type or spelling; without `grow` any difference.
        """
        have = [one for one in self.schema if one.name not in PARTITIONS]
        pairs = {one.name: self._alike(one.name, have) for one in results}
        taken = {one.name for one in pairs.values() if one is not None}
        added = tuple(one for one in results if pairs[one.name] is None)
        lacking = tuple(one for one in have if one.name not in taken)
        self._check_kind(results, [one.name for one in have])
        for one in results:
            self._check_type(pairs[one.name], one)
        for one in lacking:
            if not one.nullable and self.in_catalog:
                raise OutputRefusedError(
                    f"column {one.name!r} of {self.name} must not be null, and these results do not have it; "
                    f"{self.way_out}."
                )
        found = Growth(added=added, lacking=tuple(one.name for one in lacking))
        if not grow:
            self._refuse(found)
        return found

    def _refuse(self, growth: Growth) -> None:
        parts = (("has no", [one.name for one in growth.added]), ("has a", growth.lacking))
        for has, names in parts:
            if names:
                raise OutputRefusedError(
                    f"{self.name} {has} column {', '.join(map(repr, names))}, unlike these results; {self.way_out}, "
                    f"or let the table grow ({option('grow', 'True')})."
                )

    def _alike(self, name: str, have: Sequence[T.StructField]) -> T.StructField | None:
        """The column of a name; else the one that differs in case, which Spark ignores."""
        exact = next((one for one in have if one.name == name), None)
        return exact or next((one for one in have if one.name.lower() == name.lower()), None)

    def _check_kind(self, results: T.StructType, have: list[str]) -> None:
        names = results.fieldNames()
        ours, theirs = kind_of(names), kind_of(have)
        if theirs is not None and (ours is None or theirs.name != ours.name):
            what = "other results" if ours is None else f"rows of a {ours.name}"
            raise OutputRefusedError(f"{self.name} is a {theirs.name}, and these are {what}; {self.way_out}.")
        if theirs is None and ours is not None:
            raise OutputRefusedError(f"{self.name} has other columns than a {ours.name}; {self.way_out}.")
        if _DATASET not in (one.lower() for one in have):  # no results were ever written to it
            raise OutputRefusedError(f"{self.name} has other columns than these results; {self.way_out}.")
        if ours is None:
            return
        keys = ours.keys_in(names), ours.keys_in(have)
        lowered = [{name.lower() for name in some} for some in keys]
        known = {name.lower() for name in have}
        if (lowered[1] and lowered[0] != lowered[1]) or not lowered[0] <= known:
            listed = [", ".join(map(repr, some)) or "other columns" for some in keys]
            raise OutputRefusedError(
                f"rows of {self.name} are identified by {listed[1]}, and those of these results by {listed[0]}; "
                f"{self.way_out}."
            )

    def _check_type(self, have: T.StructField | None, want: T.StructField) -> None:
        if have is None:
            return
        if have.name != want.name and not self.in_catalog:
            raise OutputRefusedError(
                f"column {want.name!r} is spelled {have.name!r} in {self.name}; rename it in the input, or "
                f"{self.way_out}."
            )
        wanted = want.dataType.simpleString()
        wider = _WIDER.get(wanted, ()) if self.in_catalog else ()
        if have.dataType.simpleString() not in (wanted, *wider):
            raise OutputRefusedError(
                f"column {want.name!r} is {have.dataType.simpleString()} in {self.name} and "
                f"{wanted} in these results; cast it in the input, or {self.way_out}."
            )


COMMITTED = ("delta", "iceberg")
"""Providers whose tables have commits; those of others have partitions."""
TABLE_PROVIDERS = ("parquet", "orc", "hive", *COMMITTED)
TABLE_KINDS = ("table", *COMMITTED)
"""Formats of outputs that are catalog tables: of any provider, or of this one."""
_DELEGATES = ("builtin", "DeltaCatalog", "HoodieCatalog")
"""Classes that may stand for `spark_catalog` and leave it to Spark's own catalog to remember tables."""
_OF_ICEBERG = "SparkSessionCatalog"
_ATTEMPTS = 6
"""To add columns that other jobs add at the same time, and to see them."""
_altering = threading.Lock()
"""A catalog of Hive replaces all columns of a table at once, so that one of two threads would undo the other."""
_QUOTED = r"`(?:[^`]|``)*`"
_DETAILS = ("# detailed table information", "# detailed partition information")
_GONE = "TABLE_OR_VIEW_NOT_FOUND"
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
    found = _TABLE.fullmatch(table)
    schema, name = (found[1] or "", found[2]) if found else ("", table)  # what is no name, Spark refuses
    return schema, name[1:-1].replace("``", "`") if name.startswith("`") else name


def forgotten_tables(spark: SparkSession, tables: Mapping[str, str]) -> list[str]:
    """Find tables to write (kinds by name) of a `spark_catalog` in memory, which only this session knows."""
    if not has_own_catalog(spark):
        return []
    keeper = setting(spark, "spark.sql.catalog.spark_catalog", "builtin").rpartition(".")[2]
    if keeper not in (*_DELEGATES, _OF_ICEBERG):
        return []
    found = [table for table in tables if _catalog_of(spark, table) == "spark_catalog"]
    if keeper in _DELEGATES:
        return found
    others = [table for table in found if provider_of_new(spark, tables[table]) != "iceberg"]
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
    spark: SparkSession, table: str, stored: T.StructType, kind: str = "table", *, grow: bool = True
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
    format_ = provider if provider != "hive" else next((one for one in ("parquet", "orc") if one in serde), None)
    if format_ is None:
        raise OutputRefusedError(f"table {table!r} is stored by {serde!r}; this version writes parquet and orc.")
    by = [one.name for one in columns if one.isPartition]
    # The catalog names partitions in the order of the columns.
    if provider != "delta" and (sorted(by) if provider == "iceberg" else by) != list(PARTITIONS):
        raise OutputRefusedError(f"table {table!r} must be partitioned by {' and '.join(PARTITIONS)}, in this order.")
    buckets = [repr(one.name) for one in columns if one.isBucket]
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
    body = T.StructType([one for one in schema if one.name not in PARTITIONS])
    there = Grown(name=f"table {table!r}", schema=schema, way_out="name another table", in_catalog=True)
    growth = there.growth(stored, grow=grow)
    return TableFacts(name=table, format=format_, location=facts.get("location"), columns=body, growth=growth)


def read_schema(spark: SparkSession, table: str) -> T.StructType:
    """Read the columns of a table anew: Spark remembers those of an earlier query."""
    with suppress(*SPARK_ERRORS):  # not every engine has to be told
        spark.catalog.refreshTable(table)
    return spark.table(table).schema


def add_columns(spark: SparkSession, table: str, columns: Sequence[T.StructField]) -> None:
    """Add columns to a table unless it has them; they are null in its rows. Spark sees them afterwards.

    A query that looked the table up before, and ends later, would else let Spark remember the table without them, and
    lose their values in later rows.
    """
    failure: Exception | None = None
    with _altering:
        for _ in range(_ATTEMPTS):
            have = {name.lower() for name in read_schema(spark, table).names}
            new = [one for one in columns if one.name.lower() not in have]
            if not new:
                return
            statement = f"ALTER TABLE {table} ADD COLUMNS ({', '.join(map(_declared, new))})"
            try:
                spark.sql(statement)
            except SPARK_ERRORS as error:  # another job may have added them just now
                failure = error
    names = ", ".join(repr(one.name) for one in new)
    why = first_line(failure).rstrip(".") if failure else "Spark does not see it"
    raise OutputRefusedError(
        f"table {table!r} has no column {names}, and it could not be added ({why}); name another table, or have "
        f"somebody run: {statement}"
    ) from failure


def _declared(one: T.StructField) -> str:
    return f"`{one.name.replace('`', '``')}` {one.dataType.simpleString()}"


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


def create_table(spark: SparkSession, table: str, stored: T.StructType, kind: str) -> bool:
    """Create a table unless it exists; return whether it was created here, as somebody else may be quicker."""
    if spark.catalog.tableExists(table):
        return False
    columns = ", ".join(map(_declared, [*stored, *PARTITION_FIELDS]))
    try:
        spark.sql(
            f"CREATE TABLE {table} ({columns}) USING {provider_of_new(spark, kind)} "
            f"PARTITIONED BY ({', '.join(PARTITIONS)})"
        )
    except SPARK_ERRORS:
        if not spark.catalog.tableExists(table):
            raise
        return False
    return True


def drop_empty_table(spark: SparkSession, facts: TableFacts) -> None:
    """Drop a table without partitions, or without rows if it has commits."""
    if spark.catalog.tableExists(facts.name):
        committed = facts.format in COMMITTED
        something = spark.table(facts.name) if committed else spark.sql(f"SHOW PARTITIONS {facts.name}")
        if not something.take(1):
            spark.sql(f"DROP TABLE {facts.name}")


def cast_to_table(rows: DataFrame, facts: TableFacts) -> DataFrame:
    """Cast rows to the columns of a table, partition columns last; those that they lack are null. Lazy."""
    declared = {one.name.lower() for one in facts.columns}
    lost = [name for name in rows.columns if name.lower() not in declared and name not in PARTITIONS]
    if lost:
        raise OutputRefusedError(
            f"table {facts.name!r} has no column {lost[0]!r}: somebody changed its columns meanwhile; run again."
        )
    exact, loose = set(rows.columns), {name.lower(): name for name in rows.columns}
    spelled = {one.name: one.name if one.name in exact else loose.get(one.name.lower()) for one in facts.columns}
    body = [
        (F.lit(None) if spelled[one.name] is None else named(str(spelled[one.name])))
        .cast(one.dataType)
        .alias(one.name)
        for one in facts.columns
    ]
    return rows.select(*body, *PARTITIONS)


def read_columns(spark: SparkSession, facts: TableFacts) -> TableFacts:
    """Read the columns of a table again: other jobs may have added some."""
    return replace(facts, columns=select_results(read_schema(spark, facts.name)))


def select_results(schema: T.StructType) -> T.StructType:
    return T.StructType([field for field in schema if field.name not in PARTITIONS])
