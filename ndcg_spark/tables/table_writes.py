"""Write slices of catalog tables, by swapping the files of a partition or its location in the catalog."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.sources.folders import path_exists
from ndcg_spark.sources.references import quote_sql
from ndcg_spark.tables.catalog import (
    CatalogTable,
    add_columns,
    cast_to_table,
    check_table,
    create_table,
    describe,
    select_results,
)
from ndcg_spark.tables.claims import InProcessClaim, Reporter, lock_out_writers
from ndcg_spark.tables.commits import CommittedWrite, DeltaLog, IcebergLog
from ndcg_spark.tables.folders import FolderWrite, count_file_rows
from ndcg_spark.tables.kinds import COMMITTED
from ndcg_spark.tables.places import canonicalize, find_shared_folder
from ndcg_spark.tables.slices import PARTITIONS, Slices, SliceWrite, count_slices, verify_counts

STAGING_FOLDER = "_ndcg_spark"
_MAX_PARTITIONS_PER_STATEMENT = 500
_MAX_ATTEMPTS = 20
"""Attempts to claim slices of a table that other writers create, alter and drop at the same time."""


class LocalTableWrite(FolderWrite):
    """New rows of some slices of a catalog table whose files this process can rename.

    Files are replaced as in `FolderWrite`, so processes with separate catalogs exclude each other, too. A slice that
    is new to the catalog is registered once its files are complete.
    """

    spark: SparkSession

    def __init__(self, spark: SparkSession, catalog_table: CatalogTable, slices: Slices, report: Reporter) -> None:
        super().__init__(
            spark, Path(canonicalize(catalog_table.folder)), slices, catalog_table.name, report, catalog_table.format
        )
        self.catalog_table = catalog_table
        self._before: dict[str, str] | None = None

    def stage(self, rows: Any) -> None:
        """Run an action: write rows to a new folder; count them from the footers of their files."""
        super().stage(cast_to_table(rows, self.catalog_table))
        self._counts = {
            folder: count_file_rows(self.claim.rows_folder / folder, self.kind) for folder in self.folders
        }

    def swap(self) -> None:
        """Swap files, register new partitions, and count the table's rows."""
        self._before = read_locations(self.spark, self.reference, self.folders)
        super().swap()
        new = {folder: None for folder in self.folders if folder not in self._before}
        add_partitions(self.spark, self.reference, new)
        for folder in self._list_moved(self._before):
            set_location(self.spark, self.reference, folder, f"file:{self.root / folder}")
        self.spark.catalog.refreshTable(self.reference)
        verify_counts(self.spark, self.reference, self.folders, self._counts)

    def _list_moved(self, locations: Mapping[str, str]) -> list[str]:
        """List partitions whose location in the catalog was not below the table."""
        return [folder for folder, location in locations.items() if canonicalize(location) != str(self.root / folder)]

    def undo(self) -> None:
        super().undo()
        if self._before is None:
            return
        for folder in self._list_moved(self._before):
            set_location(self.spark, self.reference, folder, self._before[folder])
        drop_partitions(self.spark, self.reference, [folder for folder in self.folders if folder not in self._before])
        with suppress(*SPARK_ERRORS):  # the old rows are restored already
            self.spark.catalog.refreshTable(self.reference)

    def finish(self) -> None:
        """Do not mark the folder: the catalog lists its files, and `close` removes the old ones."""
        self.on_failure = None


class RemoteTableWrite(SliceWrite):
    """New rows of some slices of a catalog table whose files only Spark reaches.

    The rows are written to a new folder below the table; then the location of each partition is changed in the
    catalog, one partition at a time. If two processes replace the same slice, the slower one is refused, because the
    location is not the one that it read at first. A change between this check and `ALTER TABLE` is not noticed: the
    slower one then replaces the slice as a whole. Old files are overwritten with empty ones afterwards.
    """

    def __init__(self, spark: SparkSession, catalog_table: CatalogTable, slices: Slices, report: Reporter) -> None:
        super().__init__(catalog_table.name, slices)
        self.spark, self.catalog_table, self.report = spark, catalog_table, report
        self.claim = InProcessClaim(catalog_table.folder, self.folders, catalog_table.name)
        self._root = catalog_table.folder.rstrip("/")
        self._attempt = f"{self._root}/{STAGING_FOLDER}/{uuid.uuid4().hex}"
        self._is_live = False  # True once the catalog may point to the staged files
        try:
            self._before = self._read_locations()
        except BaseException:
            self.claim.release()
            raise

    def _read_locations(self) -> dict[str, str]:
        return read_locations(self.spark, self.reference, self.folders)

    def stage(self, rows: DataFrame) -> None:
        """Run two actions: write rows to a new folder, and count them."""
        rows, kind = cast_to_table(rows, self.catalog_table), self.catalog_table.format
        self._nothing = rows.drop(*PARTITIONS).limit(0)
        rows.write.partitionBy(*PARTITIONS).format(kind).save(self._attempt)
        self._counts: dict[str, int] = {}
        if any(path_exists(self.spark, f"{self._attempt}/{folder}") for folder in self.folders):
            self._counts = count_slices(self.spark.read.format(kind).load(self._attempt))
        self.slices.check(self._counts, self.reference)
        for folder in set(self.folders) - set(self._counts):
            self._nothing.write.format(kind).save(f"{self._attempt}/{folder}")

    def swap(self) -> None:
        """Set the new locations in the catalog, and check that it has them."""
        if self._read_locations() != self._before:
            raise OutputRefusedError(f"another job wrote the same runs to {self.reference!r} meanwhile; run again.")
        new = {folder: f"{self._attempt}/{folder}" for folder in self.folders if folder not in self._before}
        self._is_live = True
        add_partitions(self.spark, self.reference, new)
        for folder in self._before:
            set_location(self.spark, self.reference, folder, f"{self._attempt}/{folder}")
        locations = self._read_locations()
        if not all(locations.get(folder, "").startswith(self._attempt) for folder in self.folders):
            raise OutputRefusedError(f"another job wrote the same runs to {self.reference!r} meanwhile; run again.")
        # Added again: no lock keeps other jobs from dropping the columns.
        add_columns(self.spark, self.reference, list(self.catalog_table.columns))
        verify_counts(self.spark, self.reference, self.folders, self._counts)

    def undo(self) -> None:
        for folder, location in (self._read_locations() if self._is_live else {}).items():
            if not location.startswith(self._attempt):
                continue  # not swapped yet, or replaced by another job since
            if folder in self._before:
                set_location(self.spark, self.reference, folder, self._before[folder])
            else:
                drop_partitions(self.spark, self.reference, [folder])
        self._is_live = False
        with suppress(*SPARK_ERRORS):  # the old rows are restored already
            self.spark.catalog.refreshTable(self.reference)

    def finish(self) -> None:
        """Empty the old files in the folders of this package."""
        for folder, location in self._before.items():
            if location.startswith(f"{self._root}/{STAGING_FOLDER}") or location == f"{self._root}/{folder}":
                self._discard(location)

    def close(self) -> None:
        """Discard the staged files, unless readers may see them."""
        try:
            if not self._is_live and path_exists(self.spark, self._attempt):
                self._discard(self._attempt)
        except SPARK_ERRORS:
            self._report_leftover(self._attempt)
        finally:
            super().close()

    def _discard(self, location: str) -> None:
        """Overwrite a folder with no rows, because Spark cannot delete files."""
        try:
            self._nothing.write.mode("overwrite").format(self.catalog_table.format).save(location)
        except SPARK_ERRORS:
            self._report_leftover(location)

    def _report_leftover(self, location: str) -> None:
        self.report(f"{location} is no longer used by table {self.reference}, and could not be emptied")


def open_table_write(
    rows: DataFrame, reference: str, kind: str, slices: Slices, *, grow: bool, report: Reporter
) -> SliceWrite:
    """Claim slices of a table, which is created if missing. Retry if the table is dropped or altered meanwhile.

    A writer that created the table and fails drops it again, unless others have claimed slices of it. Such claims are
    visible only in a shared folder; elsewhere an empty table stays.
    """
    spark, new_columns, is_ours = rows.sparkSession, select_results(rows.schema), False
    for _ in range(_MAX_ATTEMPTS):
        catalog_table = check_table(spark, reference, new_columns, kind, grow=grow)
        if catalog_table is None:
            is_ours = create_table(spark, reference, new_columns, kind)
            continue
        root = (
            find_shared_folder(spark, canonicalize(catalog_table.location), reference)
            if catalog_table.location
            else None
        )
        if catalog_table.growth.added:
            # Without the lock, one of two jobs could drop the columns of the other.
            with nullcontext() if root is None else lock_out_writers(root):
                add_columns(spark, reference, catalog_table.growth.added)
            continue
        on_failure = partial(_drop_created, spark, catalog_table, root) if is_ours and root is not None else None
        write: SliceWrite | None = None
        try:
            write = _make_write(spark, catalog_table, slices, root, report)
            if spark.catalog.tableExists(reference):
                write.on_failure = on_failure
                return write
        except BaseException:
            if write is not None:
                write.close()
            if on_failure is not None:
                on_failure()
            raise
        write.close()
        is_ours = False
    raise OutputRefusedError(f"table {reference!r} was dropped or altered by somebody else meanwhile; run again.")


def _make_write(
    spark: SparkSession, catalog_table: CatalogTable, slices: Slices, root: Path | None, report: Reporter
) -> SliceWrite:
    """Choose the write by the table's format, and for partitioned files by whether this process can reach them."""
    folders = list(slices.folders.values())
    if catalog_table.format == "delta":
        return CommittedWrite(
            spark, catalog_table, DeltaLog(spark, catalog_table.name, folders, root), slices, root, report
        )
    if catalog_table.format == "iceberg":
        return CommittedWrite(
            spark, catalog_table, IcebergLog(spark, catalog_table.name, folders), slices, root, report
        )
    write_class = RemoteTableWrite if root is None else LocalTableWrite
    return write_class(spark, catalog_table, slices, report)


def _drop_created(spark: SparkSession, catalog_table: CatalogTable, root: Path) -> None:
    """Drop a table that was created for a failed write, unless another job writes it, or has written it."""
    with lock_out_writers(root) as is_unused:
        if is_unused and spark.catalog.tableExists(catalog_table.name):
            has_commits = catalog_table.format in COMMITTED
            content = (
                spark.table(catalog_table.name) if has_commits else spark.sql(f"SHOW PARTITIONS {catalog_table.name}")
            )
            if not content.take(1):
                spark.sql(f"DROP TABLE {catalog_table.name}")


def read_locations(spark: SparkSession, table: str, folders: Sequence[str]) -> dict[str, str]:
    """Read the locations of partitions in the catalog, by folder. One query for each partition."""
    known: set[str] = set()
    for night in {folder.partition("/")[0] for folder in folders}:
        partitions = spark.sql(f"SHOW PARTITIONS {table} PARTITION ({_format_spec(night)})").collect()
        known |= {row[0] for row in partitions}
    return {
        folder: describe(spark, f"{table} PARTITION ({_format_spec(folder)})")["location"]
        for folder in known.intersection(folders)
    }


def add_partitions(spark: SparkSession, table: str, locations: Mapping[str, str | None]) -> None:
    """Register new partitions by folder and location (None: below the table)."""
    remaining = iter(locations.items())
    while chunk := list(islice(remaining, _MAX_PARTITIONS_PER_STATEMENT)):
        clauses = [
            f"PARTITION ({_format_spec(folder)})" + (f" LOCATION {quote_sql(location)}" if location else "")
            for folder, location in chunk
        ]
        spark.sql(f"ALTER TABLE {table} ADD IF NOT EXISTS {' '.join(clauses)}")


def set_location(spark: SparkSession, table: str, folder: str, location: str) -> None:
    spark.sql(f"ALTER TABLE {table} PARTITION ({_format_spec(folder)}) SET LOCATION {quote_sql(location)}")


def drop_partitions(spark: SparkSession, table: str, folders: Sequence[str]) -> None:
    """Remove partitions from the catalog, with their files if the table is managed."""
    for folder in folders:
        spark.sql(f"ALTER TABLE {table} DROP IF EXISTS PARTITION ({_format_spec(folder)})")


def _format_spec(folder: str) -> str:
    night, _, rest = folder.partition("/slice=")
    spec = f"run_date = DATE'{night.partition('=')[2]}'"
    return f"{spec}, slice = '{rest}'" if rest else spec
