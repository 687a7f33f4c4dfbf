"""Slices of a folder: on a file system that this process can rename in, or in a place that only Spark reaches.

The latter are object stores, HDFS, the disks of a Connect server.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ndcg_spark.core.failures import condition_of, first_line, spark_errors
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError
from ndcg_spark.sources.stores import NULL_FOLDER_VALUE, is_hidden, walk_folder
from ndcg_spark.tables.claims import Claim, Tell, ThreadClaim, claim_slices
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITIONS, Frame, Slices, SliceWrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of <fcntl.h> and <stdio.h> on Linux
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)  # of file systems that cannot, or only what is open for writing
_PATTERN, _ESCAPED = re.compile(r"[*?\[\]{}\\]"), r"\\\g<0>"
"""Signs that Hadoop takes for a pattern, and what it takes them for themselves by."""


class FolderWrite(SliceWrite):
    """New rows of some slices of a folder: staged beside the old ones, swapped in by a rename for each slice.

    Rows of Spark are staged by Spark, those of Arrow by this process.

    Readers see the old folder of a slice or the new one. On Linux, file systems that can exchange two names in one
    step (ext4, xfs, btrfs, tmpfs, overlayfs) leave no moment in between; elsewhere (NFS, macOS) the old folder is
    renamed away first, and for the time between two renames a reader finds no rows of the slice. A slice that was
    not there before comes in one step everywhere. A reader that has listed the old files before the swap and opens
    them after it meets missing files, never a mixture. (A reader that is held up between opening a folder and
    listing it, for as long as the rest of the write takes, can find the old folder empty.)
    """

    claim: Claim

    def __init__(
        self,
        spark: SparkSession | None,
        root: Path,
        slices: Slices,
        reference: str,
        tell: Tell,
        kind: str = "parquet",
    ) -> None:
        super().__init__(reference, slices)
        self.spark, self.root, self.kind = spark, root, kind
        self.claim = claim_slices(root, self.folders, tell)
        self._swapped: list[tuple[str, str]] = []

    def stage(self, rows: Any) -> None:
        """Write rows to a folder of this writer's own: for rows of Spark, an action."""
        staged = stage_files(rows, self.kind, self.claim)
        self.slices.check(staged, self.reference)
        empty = [folder for folder in self.folders if folder not in staged]
        for first in empty[:1]:  # a file without rows, so that the columns are known
            _write_empty(rows, self.kind, self.claim.rows / first)
        for folder in empty[1:]:
            shutil.copytree(self.claim.rows / empty[0], self.claim.rows / folder)

    def swap(self) -> None:
        """Put the staged slices in place of the old ones, and check that they are there."""
        _sync(self.claim.rows)
        for folder in self.folders:
            staged, place = self.claim.rows / folder, self.root / folder
            names = sorted(os.listdir(staged))
            place.parent.mkdir(exist_ok=True)
            self._swapped.append((folder, self._put(staged, place, folder)))
            if sorted(os.listdir(place)) != names:
                raise OutputRefusedError(f"{folder} of {self.reference!r} was changed by somebody else meanwhile.")

    def _put(self, staged: Path, place: Path, folder: str) -> str:
        if not place.exists():
            os.rename(staged, place)  # unlike Hadoop's rename, this never moves into a folder that has appeared
            return "new"
        if exchange(staged, place):
            return "exchanged"
        old = self.claim.replaced / folder
        old.parent.mkdir(parents=True, exist_ok=True)
        os.rename(place, old)
        try:
            os.rename(staged, place)
        except BaseException:
            os.rename(old, place)
            raise
        return "moved"

    def undo(self) -> None:
        while self._swapped:
            folder, how = self._swapped.pop()
            staged, place = self.claim.rows / folder, self.root / folder
            if how == "exchanged":
                exchange(staged, place)
                continue
            os.rename(place, staged)
            if how == "moved":
                os.rename(self.claim.replaced / folder, place)
        for night in {(self.root / folder).parent for folder in self.folders}:
            with contextlib.suppress(OSError):  # rows of others are there, or come at this moment
                night.rmdir()

    def finish(self) -> None:
        """Make Spark forget the old files, and mark the folder as Spark marks its own."""
        with contextlib.suppress(OSError):
            (self.root / "_SUCCESS").touch()
        if self.spark is not None:
            self.spark.catalog.refreshByPath(f"file:{self.root}")


def _sync(folder: Path) -> None:
    """Sync files to disk: after a loss of power new names must not lead to files without content."""
    for parent, _, names in walk_folder(folder):
        for place in (parent, *(os.path.join(parent, name) for name in names)):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in _NO_SYNC:
                    raise
            finally:
                os.close(descriptor)


def stage_files(rows: Frame, kind: str, claim: Claim) -> set[str]:
    """Write rows to a writer's folder, by an action if they are Spark's; return the slices that have rows.

    Refused when executors have written rows to disks of their own.
    """
    if isinstance(rows, pa.Table):
        return set(_stage_table(rows, claim))
    from pyspark.sql import functions as F

    from ndcg_spark.core.session import runs_locally

    # Executors on this machine share its disks.
    counter = None if runs_locally(rows.sparkSession, "local") else _observation(rows.sparkSession)
    if counter is not None:
        rows = rows.observe(counter, F.count(F.lit(1)).alias("n"))
    rows.write.partitionBy(*PARTITIONS).format(kind).save(f"file://{claim.rows}")
    folders = {str(place.relative_to(claim.rows)) for place in claim.rows.glob("*=*/*=*")}
    if counter is not None:
        n, n_here = counter.get.get("n"), sum(count_file_rows(claim.rows / folder, kind) for folder in folders)
        if n is not None and n != n_here:
            raise OutputRefusedError(
                f"of {n} rows for {str(claim.root)!r} there are {n_here}: executors wrote the others to disks of "
                "their own. Name a folder that all machines share, an object store, or a catalog table."
            )
    return folders


def _stage_table(rows: pa.Table, claim: Claim) -> Iterator[str]:
    """Write stamped rows of Arrow, without the columns that name their slices; yield the slices."""
    night, name = (rows.column(column).cast(pa.string()) for column in PARTITIONS)
    names = pc.binary_join_element_wise("slice=", pc.fill_null(name, NULL_FOLDER_VALUE), "")
    folders = pc.binary_join_element_wise(pc.binary_join_element_wise("run_date=", night, ""), names, "/")
    content = rows.drop_columns([*PARTITIONS])
    different = pc.unique(folders).to_pylist()
    for folder in different:
        part = content if len(different) == 1 else content.filter(pc.equal(folders, folder))
        _write_file(part, claim.rows / folder)
        yield folder


def _write_file(rows: pa.Table, folder: Path) -> None:
    """Write rows as Spark would: the same types, kind of name, and compression.

    Points in time are INT96, unless there are times without a zone beside them, for which Arrow has the same switch.
    """
    folder.mkdir(parents=True)
    path = folder / f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
    old_times = all(one.tz is not None for one in rows.schema.types if pa.types.is_timestamp(one))
    parquet.write_table(
        rows, path, compression="snappy", store_schema=False, use_deprecated_int96_timestamps=old_times
    )


def _write_empty(rows: Frame, kind: str, folder: Path) -> None:
    """Write a file without rows, so that the columns are known."""
    if isinstance(rows, pa.Table):
        _write_file(rows.drop_columns([*PARTITIONS]).slice(0, 0), folder)
    else:
        rows.drop(*PARTITIONS).limit(0).write.format(kind).save(f"file://{folder}")


def _observation(spark: SparkSession) -> Observation | None:
    """Make a counter of rows; clients of Spark Connect have it from 4.0 on."""
    from pyspark.sql import Observation

    on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return None if on_connect and not find_spec("pyspark.sql.connect.observation") else Observation()


def count_file_rows(folder: Path, kind: str) -> int:
    """Count the rows of a slice by the footers of its files (orc or parquet)."""
    files = [place for place in folder.iterdir() if not is_hidden(place.name)]
    if kind == "orc":
        from pyarrow import orc

        return sum(orc.ORCFile(place).nrows for place in files)
    return sum(parquet.read_metadata(place).num_rows for place in files)


def exchange(first: Path, second: Path) -> bool:
    """Swap the names of two folders in one step; False if system or file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), str(first))


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
        except spark_errors(OSError):
            return list(self._before)
        return [folder for folder, files in self._before.items() if now[folder] != files]

    def _files(self) -> dict[str, set[str]]:
        """Files of each slice, by one listing; those of each write have other names."""
        pattern = f"{_PATTERN.sub(_ESCAPED, self.place)}/{{{','.join(sorted(self.folders))}}}"
        from pyspark.errors import PySparkException

        reader = self._rows.sparkSession.read.schema(self._rows.drop(*PARTITIONS).schema).format(self.kind)
        try:
            files = reader.load(pattern).inputFiles()
        except PySparkException as error:
            if "PATH_NOT_FOUND" not in condition_of(error):
                raise
            files = []
        return {folder: {file for file in files if f"/{folder}/" in unquote(file)} for folder in self.folders}
