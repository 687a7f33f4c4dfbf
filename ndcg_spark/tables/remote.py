"""Slices of a folder that only Spark reaches: on object stores, HDFS, the disks of a Connect server."""

from __future__ import annotations

import re
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ndcg_spark.core.failures import SPARK_ERRORS, condition_of, first_line
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError
from ndcg_spark.tables.claims import ThreadClaim
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITIONS, Slices, SliceWrite

_PATTERN, _ESCAPED = re.compile(r"[*?\[\]{}\\]"), r"\\\g<0>"
"""Signs that Hadoop takes for a pattern, and what it takes them for themselves by."""
_UNREACHABLE: tuple[type[Exception], ...] = (*SPARK_ERRORS, OSError)


class RemoteFolderWrite(SliceWrite):
    """New rows of some slices of a remote folder, by Spark's dynamic partition overwrite.

    This promises what the file system's committer gives: Spark computes all rows first and writes them to a staging
    folder of this job; then it deletes the old files of each slice and moves the new ones in. On HDFS that takes
    moments; on object stores a move is a copy, so a reader may find a slice without rows, or with some of them, for
    as long as the copies take. Nothing can be undone. A catalog table has none of this: prefer one.
    """

    undoable = False

    def __init__(self, place: str, slices: Slices, reference: str, kind: str = "parquet") -> None:
        super().__init__(reference, slices)
        self.place, self.kind = place, kind
        self.claim = ThreadClaim(canonical(place), self.folders, reference)

    def stage(self, rows: DataFrame) -> None:
        """Remember the slices as they are. Spark stages the rows itself, in `swap`."""
        self._rows = self.slices.reject_unexpected(rows, self.reference)
        self._before = self._files()

    def swap(self) -> None:
        """Run an action: overwrite slices, then empty those without rows. PartlyWrittenError: files were replaced."""
        try:
            self._overwrite()
        except BaseException as error:
            changed = self._changed()
            if changed:
                why = first_line(error) if isinstance(error, Exception) else "interrupted"
                raise PartlyWrittenError(
                    f"{self.reference!r} was half written: rows of {', '.join(changed)} are wrong until the job has "
                    f"run again ({why})."
                ) from error
            raise

    def _overwrite(self) -> None:
        writer = self._rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*PARTITIONS).format(self.kind).save(self.place)
        now = self._files()
        replaced = {folder for folder, files in self._before.items() if now[folder] != files}
        if any(now[folder] & self._before[folder] for folder in replaced):
            raise OutputRefusedError(
                "Spark has written new files beside the old ones: its output committer cannot replace partitions, so "
                "choose another one, and remove the files"
            )
        self.slices.check(replaced, self.reference)
        for folder in self.folders:  # those that were not replaced may be empty
            if self._before[folder] and folder not in replaced:
                nothing = self._rows.drop(*PARTITIONS).limit(0)
                nothing.write.mode("overwrite").format(self.kind).save(f"{self.place}/{folder}")

    def _changed(self) -> list[str]:
        """Slices that have changed; all of them if that cannot be found out."""
        try:
            now = self._files()
        except _UNREACHABLE:
            return list(self._before)
        return [folder for folder, files in self._before.items() if now[folder] != files]

    def _files(self) -> dict[str, set[str]]:
        """Files of each slice, by one listing; those of each write have other names."""
        pattern = f"{_PATTERN.sub(_ESCAPED, self.place)}/{{{','.join(sorted(self.folders))}}}"
        reader = self._rows.sparkSession.read.schema(self._rows.drop(*PARTITIONS).schema).format(self.kind)
        try:
            files = reader.load(pattern).inputFiles()
        except PySparkException as error:
            if "PATH_NOT_FOUND" not in condition_of(error):
                raise
            files = []
        return {folder: {file for file in files if f"/{folder}/" in unquote(file)} for folder in self.folders}
