"""Tables of every format that nightly results are written to: how they are made, written, read and looked into."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from glob import glob
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.sources.folders import read_files
from ndcg_spark.tables import Rows, SliceKey, Slices, SliceWrite, stage_slices, table_writes, write_together, writing
from ndcg_spark.tables.commits import DeltaLog
from scripts.checks.writes.sessions import METASTORE

NIGHT, BEFORE = date(2026, 1, 31), date(2026, 1, 30)
SCHEMA = "run string, k int, value int, night date"


@dataclass(frozen=True)
class Place:
    """Table to write to; `reached` is true if this process and Spark share its files."""

    spark: SparkSession
    title: str
    kind: str
    reference: str
    base: Path
    """Folder of everything that this session writes."""
    reached: bool = True
    shared: bool = True
    """Whether another process can have the same table."""
    ddl: str = ""
    """How a person makes it; empty where the first write does."""

    @property
    def is_folder(self) -> bool:
        """Check whether the table is a folder outside the catalog."""
        return self.kind == "parquet"

    @property
    def commits(self) -> bool:
        """Check whether the format keeps a log of its files."""
        return self.kind in ("iceberg", "delta")

    def stage(self, rows: DataFrame, slices: Slices) -> SliceWrite:
        """Stage rows; the caller closes it."""
        with self._reach():
            return stage_slices(rows, self.reference, self.kind, slices)

    def write(self, rows: DataFrame, slices: Slices | None = None, **more: Any) -> None:
        """Write rows in place of those of the same slices."""
        with self._reach():
            table_rows = Rows(frame=rows, slices=slices or shop(), reference=self.reference, kind=self.kind)
            write_together([table_rows], **more)

    @contextmanager
    def _reach(self) -> Iterator[None]:
        """Let the package believe that only Spark reaches the files, where that is to be tried.

        As Sail has no DESCRIBE HISTORY, the log of Delta is read from its files all the same.
        """
        originals = writing.find_shared_folder, table_writes.DeltaLog
        if not self.reached:
            writing.find_shared_folder = table_writes.find_shared_folder = lambda *_: None
            table_writes.DeltaLog = lambda spark, table, slices, _: DeltaLog(spark, table, slices, self.root)
        try:
            yield
        finally:
            writing.find_shared_folder, table_writes.DeltaLog = originals
            table_writes.find_shared_folder = writing.find_shared_folder

    @property
    def root(self) -> Path:
        """Folder of the files."""
        return Path(self.reference) if self.is_folder else location(self.spark, self.reference)

    def frame(self) -> DataFrame:
        """The rows."""
        if self.is_folder:
            return read_files(self.spark, str(self.root), self.kind)
        return self.spark.table(self.reference)

    def exists(self) -> bool:
        """Check whether the table exists."""
        if self.is_folder:
            return any(self.root.glob("run_date=*"))
        return bool(self.spark.catalog.tableExists(self.reference))

    def values(self) -> list[tuple[str, str, str, int, int]]:
        """Sorted (night, data set, run, value, number of rows)."""
        if not self.exists():
            return []
        if self.kind == "table":  # a session remembers the files that another process has replaced since
            self.spark.catalog.refreshTable(self.reference)
        counted = self.frame().groupBy("run_date", "dataset", "run", "value").count().collect()
        return sorted((str(row[0]), *row[1:]) for row in counted)

    def files(self, slices: Slices) -> dict[str, str]:
        """Digests of the files of a slice, by their paths."""
        (folder,) = slices.folders.values()
        paths = glob(f"{self.root}/{folder}/*.parquet") + glob(f"{self.root}/data/{folder}/*.parquet")
        return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}

    def provider(self) -> str:
        """Name of the format in the catalog."""
        return _describe_table(self.spark, self.reference)["provider"].lower()

    def clear(self) -> None:
        """Begin anew, without rows."""
        self.drop()
        if self.ddl:
            self.spark.sql(self.ddl)

    def drop(self) -> None:
        """Remove the table and its files."""
        if self.exists():
            root = self.root
            if not self.is_folder:
                self.spark.sql(f"DROP TABLE {self.reference}")
            shutil.rmtree(root, ignore_errors=True)


def location(spark: SparkSession, table: str) -> Path:
    """Folder of a table."""
    return Path(_describe_table(spark, table)["location"].removeprefix("file:"))


def _describe_table(spark: SparkSession, table: str) -> dict[str, str]:
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    return {str(row[0]).lower(): str(row[1]) for row in rows}


def shop(night: date = NIGHT, runs: Sequence[str] = ("",), empty: Sequence[str] = ()) -> Slices:
    """Slices of a data set."""
    return Slices.for_night(night, "shop", runs, may_be_empty=empty)


def app(night: date = NIGHT, runs: Sequence[str] = ("",)) -> Slices:
    """Slices of another one."""
    return Slices.for_night(night, "app", runs)


def rows(spark: SparkSession, value: int, runs: Sequence[str] = ("",), n: int = 3, night: date = NIGHT) -> DataFrame:
    """Build rows of some runs, all with the same value."""
    return spark.createDataFrame([(run, i, value, night) for run in runs for i in range(n)], SCHEMA)


def broken(frame: DataFrame) -> DataFrame:
    """Make the last of the rows raise an error."""
    return frame.selectExpr("run", "k", "CAST(IF(k = 2, raise_error('broken row'), value) AS INT) AS value", "night")


def several_nights(spark: SparkSession, value: int) -> tuple[DataFrame, Slices]:
    """Build rows of two nights of one run."""
    frame = rows(spark, value, night=BEFORE).union(rows(spark, value))
    keys = tuple(SliceKey(night, "") for night in (BEFORE, NIGHT))
    return frame, Slices(dataset="shop", keys=keys, columns={"night": "night", "run": "run"})


def list_places(leg: str, spark: SparkSession, root: Path, *, hive: bool = True) -> list[Place]:
    """Return the tables of a leg; none of them exists yet."""
    if leg == "iceberg":
        return [
            Place(spark, "Iceberg", "iceberg", "ice.db.one", root),
            Place(spark, "Iceberg, files out of reach", "iceberg", "ice.db.far", root, reached=False),
        ]
    if leg == "delta":
        return [
            Place(spark, "Delta", "delta", "one", root),
            Place(spark, "Delta, files out of reach", "delta", "far", root, reached=False),
        ]
    shared = (root / METASTORE).exists()  # a writer in another process finds the tables in it
    places = [
        Place(spark, "parquet folder", "parquet", str(root / "folder"), root),
        Place(spark, "parquet table", "table", "formats_table", root, shared=shared),
    ]
    if hive or shared:
        partitions = "PARTITIONED BY (run_date DATE, slice STRING)"
        ddl = f"CREATE TABLE formats_hive ({SCHEMA}, dataset string) {partitions} STORED AS PARQUET"
        places.append(Place(spark, "Hive table", "table", "formats_hive", root, shared=shared, ddl=ddl))
    return places
