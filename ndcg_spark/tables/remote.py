"""Slices of a folder that only Spark reaches: on object stores, HDFS, the disks of a Connect server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from pyspark.sql import DataFrame

from ndcg_spark.spark.failures import SPARK_ERRORS, first_line
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
        self.place, self.folders, self.reference = place, folders, reference
        self._claim = ThreadClaim(canonical(place), list(folders.values()), reference)

    def stage(self, rows: DataFrame, kind: str, empty: Sequence[str]) -> None:
        """Look at the slices as they are. Spark stages the rows itself, in `swap`."""
        self._rows, self._kind = rows, kind
        self._empty = [self.folders[run] for run in empty]
        self._before = self._files()

    def swap(self) -> None:
        """Run an action: write the rows over the old ones of their slices, then empty slices that got none.

        A RuntimeError says that Spark has failed after it began to replace files.
        """
        writer = self._rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        try:
            writer.partitionBy(*PARTITIONS).format(self._kind).save(self.place)
        except SPARK_ERRORS as error:
            now = self._files()
            changed = [folder for folder, files in self._before.items() if now[folder] != files]
            if changed:
                raise RuntimeError(
                    f"{self.reference!r} was half written: rows of {', '.join(changed)} are incomplete until the job "
                    f"has run again ({first_line(error)})"
                ) from error
            raise
        now = self._files() if self._empty else {}
        for folder in self._empty:
            if self._before[folder] and now[folder] == self._before[folder]:
                nothing = self._rows.drop(*PARTITIONS).limit(0)
                nothing.write.mode("overwrite").format(self._kind).save(f"{self.place}/{folder}")

    def _files(self) -> dict[str, set[str]]:
        """Files of each slice; Spark gives those of each write names of their own."""
        reader = self._rows.sparkSession.read.schema(self._rows.drop(*PARTITIONS).schema).format(self._kind)
        nights = [f"{self.place}/{night}" for night in {folder.partition("/")[0] for folder in self.folders.values()}]
        there = [night for night in nights if is_there(self._rows.sparkSession, night)]
        files = reader.load(there).inputFiles() if there else []
        return {
            folder: {file for file in files if f"/{folder}/" in unquote(file)} for folder in self.folders.values()
        }

    def undo(self) -> None:
        """Nothing can be undone."""

    def finish(self) -> None:
        """There is nothing to remove."""

    def release(self) -> None:
        """Let others write the slices."""
        self._claim.release()
