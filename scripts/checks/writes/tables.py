"""Kinds of tables that faults.py writes: how they are made and read, and the steps of a write that can break.

Another one is another entry of FORMATS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ndcg_spark.tables import commits, folders, slice_name, table_writes
from ndcg_spark.tables.claims import Claim
from ndcg_spark.tables.commits import DeltaLog, IcebergLog
from scripts.checks.writes.places import location
from scripts.checks.writes.sessions import iceberg_settings

SliceKey = tuple[str, str, str]
Rows = list[tuple[int, int, int]]
COLUMNS = "run STRING, version INT, i INT, n INT, dataset STRING"


@dataclass(frozen=True)
class Format:
    """A kind of table.

    `reference` names a table of it, given a folder and a name. `create` makes it where the writer does not; `{table}`
    stands for the reference. `read` returns the rows of a night by slice. `steps` are functions that the writer calls
    on its way, as (owner, name). `folder` says that a table is a folder of Parquet files, which a reader watches.
    `settings` are those that its session needs below a scratch folder, if any. `elsewhere` says that it
    needs an environment of its own. `metastore` says that processes share a table of it by a Hive metastore.
    """

    reference: Callable[[Path, str], str]
    read: Callable[[SparkSession, str, date], dict[SliceKey, Rows]]
    steps: dict[str, tuple[object, str]]
    create: str = ""
    folder: bool = False
    settings: Callable[[Path], dict[str, str]] = lambda _: {}
    elsewhere: bool = False
    metastore: bool = False

    def make(self, spark: SparkSession, table: str) -> None:
        """Make a table before its first write, where the writer does not."""
        if self.create:
            spark.sql(self.create.format(table=table))

    def root(self, spark: SparkSession | None, table: str) -> Path:
        """Return the folder of the files; None if no writer has created the table yet."""
        if self.folder or spark is None or not spark.catalog.tableExists(table):
            return Path(table)
        return location(spark, table)

    def drop(self, spark: SparkSession, table: str) -> None:
        """Forget a table of the catalog."""
        if not self.folder:
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def in_table(spark: SparkSession, table: str, night: date) -> dict[SliceKey, Rows]:
    """Read the rows of a night in a catalog table."""
    rows_by_slice: dict[SliceKey, Rows] = {}
    if spark.catalog.tableExists(table):
        for row in spark.table(table).where(f"run_date = DATE'{night}'").collect():
            rows_by_slice.setdefault((night.isoformat(), row.dataset, row.run), []).append(
                (row.version, row.i, row.n)
            )
    return rows_by_slice


def in_shared_table(spark: SparkSession, table: str, night: date) -> dict[SliceKey, Rows]:
    """Read the rows of a night in a catalog table; refresh first, because a session caches the list of files."""
    if spark.catalog.tableExists(table):
        spark.catalog.refreshTable(table)
    return in_table(spark, table, night)


def place_of(root: Path, key: SliceKey) -> Path:
    """Return the folder of a slice."""
    night, dataset, run = key
    return root / f"run_date={night}" / f"slice={slice_name(dataset, run)}"


def in_folder(spark: SparkSession | None, table: str, night: date) -> dict[SliceKey, Rows]:
    """Read the rows of a night in a folder, with Arrow."""
    del spark
    root, rows_by_slice = Path(table), {}
    for place in root.glob(f"run_date={night}/slice=*/*.parquet"):
        for row in pq.ParquetFile(place).read().to_pylist():
            key = (night.isoformat(), row["dataset"], row["run"])
            if place.parent != place_of(root, key):
                raise RuntimeError(f"{place} holds rows of {key}")
            rows_by_slice.setdefault(key, []).append((row["version"], row["i"], row["n"]))
    return rows_by_slice


RELEASE = (Claim, "release")
"""Called when the new rows are there and the old ones are not removed yet: a process can be killed there."""
FILES = {"stage": (folders.FolderWrite, "stage"), "put": (folders.FolderWrite, "_put_slice")}
CATALOG = {**FILES, "register": (table_writes, "add_partitions"), "verify": (table_writes, "verify_counts")}
COMMITS = {"stage": (commits.CommittedWrite, "stage"), "commit": (commits.CommittedWrite, "_commit")}
COMMITS["verify"] = (commits, "verify_counts")
PARTITIONED = "PARTITIONED BY (run_date DATE, slice STRING)"

FORMATS = {
    "folder": Format(reference=lambda folder, name: f"{folder}/{name}", read=in_folder, steps=FILES, folder=True),
    "parquet": Format(
        reference=lambda _, name: f"faults_parquet_{name}",
        read=in_shared_table,
        steps=CATALOG,
        metastore=True,
    ),
    "orc": Format(
        reference=lambda _, name: f"faults_orc_{name}",
        read=in_shared_table,
        steps=CATALOG,
        metastore=True,
        create=f"CREATE TABLE {{table}} ({COLUMNS}, run_date DATE, slice STRING) USING orc "
        "PARTITIONED BY (run_date, slice)",
    ),
    "hive": Format(
        reference=lambda _, name: f"faults_hive_{name}",
        read=in_shared_table,
        steps=CATALOG,
        metastore=True,
        create=f"CREATE TABLE {{table}} ({COLUMNS}) {PARTITIONED} STORED AS PARQUET",
    ),
    "iceberg": Format(
        reference=lambda _, name: f"ice.db.{name}",
        read=in_table,
        steps={**COMMITS, "find": (IcebergLog, "find_commit")},
        settings=iceberg_settings,
        elsewhere=True,
    ),
    "delta": Format(
        reference=lambda _, name: f"faults_delta_{name}",
        read=in_table,
        create=f"CREATE TABLE {{table}} ({COLUMNS}, run_date DATE, slice STRING) USING delta "
        "PARTITIONED BY (run_date, slice)",
        steps={**COMMITS, "find": (DeltaLog, "find_commit")},
        elsewhere=True,
    ),
}
