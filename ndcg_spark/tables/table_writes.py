"""Slices of catalog tables: the files of a partition are swapped, or its location in the catalog."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.sources.folders import is_there
from ndcg_spark.tables import catalog
from ndcg_spark.tables.catalog import TableFacts
from ndcg_spark.tables.claims import Tell, ThreadClaim
from ndcg_spark.tables.folders import FolderWrite, rows_in
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITIONS, check_staged

HIDDEN = "_ndcg_spark"


class LocalTableWrite:
    """New rows of some slices of a catalog table whose files this process can rename.

    Files are replaced as in `FolderWrite`, so processes with catalogs of their own exclude each other too. A slice
    that the catalog does not have yet is registered once its files are complete.
    """

    undoable = True

    def __init__(self, spark: SparkSession, facts: TableFacts, folders: Mapping[str, str], tell: Tell) -> None:
        self.spark, self.facts, self.folders = spark, facts, list(folders.values())
        self.files = FolderWrite(spark, Path(canonical(facts.folder)), folders, facts.name, tell)
        self._before: dict[str, str] | None = None

    def stage(self, rows: DataFrame, kind: str, empty: Sequence[str]) -> None:
        """Run an action: write rows to a folder of their own; count them by the footers of their files."""
        del kind  # that of the table counts
        self.files.stage(catalog.as_declared(rows, self.facts), self.facts.format, empty)
        self._counted = {
            folder: rows_in(self.files.claim.rows / folder, self.facts.format) for folder in self.folders
        }

    def swap(self) -> None:
        """Swap files, register new partitions, and count the table's rows."""
        name, root = self.facts.name, self.files.root
        self._before = catalog.partition_locations(self.spark, name, self.folders)
        self.files.swap()
        catalog.add_partitions(self.spark, name, {one: None for one in self.folders if one not in self._before})
        for folder, location in self._before.items():
            if canonical(location) != str(root / folder):
                catalog.set_location(self.spark, name, folder, f"file:{root / folder}")
        self.spark.catalog.refreshTable(name)
        catalog.verify_counts(self.spark, name, self.folders, self._counted)

    def undo(self) -> None:
        self.files.undo()
        if self._before is None:
            return
        for folder, location in self._before.items():
            if canonical(location) != str(self.files.root / folder):
                catalog.set_location(self.spark, self.facts.name, folder, location)
        catalog.drop_partitions(self.spark, self.facts.name, [one for one in self.folders if one not in self._before])
        with suppress(*SPARK_ERRORS):  # the rows are back
            self.spark.catalog.refreshTable(self.facts.name)

    def finish(self) -> None:
        """Do nothing; `release` removes the old files."""

    def release(self) -> None:
        self.files.release()


class RemoteTableWrite:
    """New rows of some slices of a catalog table whose files only Spark reaches.

    They are written to a folder of their own below the table; then the catalog is told the new location of each
    partition, which is one step for each. Two processes that replace one slice at the same time are told apart by
    the location that each found at first: the slower one is refused. Between its last look and its `ALTER TABLE`
    there is a moment in which it is not; then its rows win, whole. Old files are overwritten with none afterwards.
    """

    undoable = True

    def __init__(self, spark: SparkSession, facts: TableFacts, folders: Mapping[str, str], tell: Tell) -> None:
        self.spark, self.facts, self.folders, self.tell = spark, facts, folders, tell
        self._claim = ThreadClaim(facts.folder, list(folders.values()), facts.name)
        self._own = f"{facts.folder.rstrip('/')}/{HIDDEN}"
        self._attempt = f"{self._own}/{uuid.uuid4().hex}"
        self._swapped: list[str] = []
        self._is_live = False  # whether the catalog may point to what was staged
        try:
            self._before = catalog.partition_locations(spark, facts.name, list(folders.values()))
        except BaseException:
            self._claim.release()
            raise

    def stage(self, rows: DataFrame, kind: str, empty: Sequence[str]) -> None:
        """Run two actions: write rows to a folder of their own, and count them."""
        del kind  # that of the table counts
        rows = catalog.as_declared(rows, self.facts)
        self._nothing = rows.drop(*PARTITIONS).limit(0)
        rows.write.partitionBy(*PARTITIONS).format(self.facts.format).save(self._attempt)
        self._counted = {}
        if any(is_there(self.spark, f"{self._attempt}/{folder}") for folder in self.folders.values()):
            self._counted = catalog.count_slices(self.spark.read.format(self.facts.format).load(self._attempt))
        found = set(self._counted)
        check_staged(found, self.folders, empty, self.facts.name)
        for folder in set(self.folders.values()) - found:
            self._nothing.write.format(self.facts.format).save(f"{self._attempt}/{folder}")

    def swap(self) -> None:
        """Set the new locations in the catalog, and check that it has them."""
        wanted = list(self.folders.values())
        if catalog.partition_locations(self.spark, self.facts.name, wanted) != self._before:
            raise OutputRefusedError(f"another job wrote the same runs to {self.facts.name!r} meanwhile; run again.")
        new = {folder: f"{self._attempt}/{folder}" for folder in wanted}
        self._swapped, self._is_live = wanted, True
        catalog.add_partitions(
            self.spark, self.facts.name, {one: at for one, at in new.items() if one not in self._before}
        )
        for folder in self._before:
            catalog.set_location(self.spark, self.facts.name, folder, new[folder])
        ours = catalog.partition_locations(self.spark, self.facts.name, wanted)
        if not all(ours.get(folder, "").startswith(self._attempt) for folder in wanted):
            raise OutputRefusedError(f"another job wrote the same runs to {self.facts.name!r} meanwhile; run again.")
        # Again: no lock keeps other jobs from undoing that.
        catalog.add_columns(self.spark, self.facts.name, list(self.facts.columns))
        catalog.verify_counts(self.spark, self.facts.name, wanted, self._counted)

    def undo(self) -> None:
        ours = catalog.partition_locations(self.spark, self.facts.name, self._swapped)
        for folder, location in ours.items():
            if not location.startswith(self._attempt):
                continue  # not swapped yet, or swapped by somebody else since
            if folder in self._before:
                catalog.set_location(self.spark, self.facts.name, folder, self._before[folder])
            else:
                catalog.drop_partitions(self.spark, self.facts.name, [folder])
        self._is_live = False
        with suppress(*SPARK_ERRORS):  # the rows are back
            self.spark.catalog.refreshTable(self.facts.name)

    def finish(self) -> None:
        """Empty the old files in the folders of this package."""
        for folder, location in self._before.items():
            if location.startswith(self._own) or location == f"{self.facts.folder.rstrip('/')}/{folder}":
                self._discard(location)

    def release(self) -> None:
        """Discard what was staged, unless readers may see it."""
        try:
            if not self._is_live and is_there(self.spark, self._attempt):
                self._discard(self._attempt)
        except SPARK_ERRORS:
            self.tell(f"{self._attempt} is no longer used by table {self.facts.name}, and could not be emptied")
        finally:
            self._claim.release()

    def _discard(self, location: str) -> None:
        """Overwrite files with none, as Spark cannot delete them."""
        try:
            self._nothing.write.mode("overwrite").format(self.facts.format).save(location)
        except SPARK_ERRORS:
            self.tell(f"{location} is no longer used by table {self.facts.name}, and could not be emptied")
