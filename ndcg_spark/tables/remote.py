"""Slices of a folder that only Spark reaches: on object stores, HDFS, the disks of a Connect server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from ndcg_spark.spark.table_folders import is_there
from ndcg_spark.tables.claims import ThreadClaim
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITIONS


class RemoteFolderWrite:
    """New rows of some slices of a remote folder, by Spark's dynamic partition overwrite.

    This promises what the file system's committer gives: Spark computes all rows first and writes them to a staging
    folder of this job; then it deletes the old files of each slice and moves the new ones in. On HDFS that takes
    moments; on object stores a move is a copy, so a reader may find a slice without rows, or with some of them, for
    as long as the copies take. Nothing can be undone. A catalog table has none of this: prefer one.
    """

    undoable = False

    def __init__(self, place: str, folders: Mapping[str, str], reference: str) -> None:
        self.place, self.folders = place, folders
        self._claim = ThreadClaim(canonical(place), list(folders.values()), reference)

    def stage(self, rows: DataFrame, kind: str, empty: Sequence[str]) -> None:
        """Look at the slices that may have no rows. Spark stages the rows itself, in `swap`."""
        self._rows, self._kind = rows, kind
        spark, there = rows.sparkSession, [self.folders[run] for run in empty]
        self._before = {one: self._files(one) for one in there if is_there(spark, f"{self.place}/{one}")}

    def swap(self) -> None:
        """Run an action: write the rows over the old ones of their slices, then empty slices that got none."""
        writer = self._rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*PARTITIONS).format(self._kind).save(self.place)
        for folder, files in self._before.items():
            if self._files(folder) == files:
                nothing = self._rows.drop(*PARTITIONS).limit(0)
                nothing.write.mode("overwrite").format(self._kind).save(f"{self.place}/{folder}")

    def _files(self, folder: str) -> set[str]:
        """Files of a slice; Spark gives those of each write names of their own."""
        stored = self._rows.drop(*PARTITIONS).schema
        reader = self._rows.sparkSession.read.schema(stored).format(self._kind)
        return set(reader.load(f"{self.place}/{folder}").inputFiles())

    def undo(self) -> None:
        """Nothing can be undone."""

    def finish(self) -> None:
        """There is nothing to remove."""

    def release(self) -> None:
        """Let others write the slices."""
        self._claim.release()
