"""Write slices of a folder, on a local file system or in a remote place that only Spark can reach.

Remote places are object stores, HDFS, and the disks of a Connect server.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
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

from ndcg_spark.core.failures import first_line, get_condition, spark_errors
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError
from ndcg_spark.sources.stores import NULL_FOLDER_VALUE, escape_wildcards, is_hidden, walk_folder
from ndcg_spark.tables.claims import Claim, InProcessClaim, Reporter, claim_slices
from ndcg_spark.tables.places import canonicalize
from ndcg_spark.tables.slices import PARTITIONS, Frame, Slices, SliceWrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of <fcntl.h> and <stdio.h> on Linux
_EXCHANGE_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_SYNC_UNSUPPORTED = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.EBADF,
)  # of file systems that cannot, or only what is open for writing


class FolderWrite(SliceWrite):
    """New rows of some slices of a folder: staged beside the old ones, swapped in by a rename for each slice.

    Spark stages Spark's rows; this process stages Arrow's rows.

    Readers see the old folder of a slice or the new one. On Linux file systems that can exchange two names
    (ext4, xfs, btrfs, tmpfs, overlayfs), the swap is atomic. Elsewhere (NFS, macOS) the old folder is renamed first,
    and between the two renames readers find no rows of the slice. A new slice appears atomically everywhere. A reader
    that listed the old files before the swap and opens them after it misses files, but never gets a mixture.
    (A reader that opens a folder before the swap, and lists it only after the write, can find it empty.)
    """

    claim: Claim

    def __init__(
        self,
        spark: SparkSession | None,
        root: Path,
        slices: Slices,
        reference: str,
        report: Reporter,
        kind: str = "parquet",
    ) -> None:
        super().__init__(reference, slices)
        self.spark, self.root, self.kind = spark, root, kind
        self.claim = claim_slices(root, self.folders, report)
        self._swapped: list[tuple[str, str]] = []

    def stage(self, rows: Any) -> None:
        """Write rows to this writer's own folder. Runs an action for rows of Spark."""
        staged = stage_files(rows, self.kind, self.claim)
        self.slices.check(staged, self.reference)
        empty = [folder for folder in self.folders if folder not in staged]
        for first in empty[:1]:  # a file without rows keeps the columns
            _write_empty(rows, self.kind, self.claim.rows_folder / first)
        for folder in empty[1:]:
            shutil.copytree(self.claim.rows_folder / empty[0], self.claim.rows_folder / folder)

    def swap(self) -> None:
        """Replace the old slices by the staged ones, and check the result."""
        _sync_folder(self.claim.rows_folder)
        for folder in self.folders:
            staged, place = self.claim.rows_folder / folder, self.root / folder
            names = sorted(os.listdir(staged))
            place.parent.mkdir(exist_ok=True)
            self._swapped.append((folder, self._put_slice(staged, place, folder)))
            if sorted(os.listdir(place)) != names:
                raise OutputRefusedError(f"{folder} of {self.reference!r} was changed by somebody else meanwhile.")

    def _put_slice(self, staged: Path, place: Path, folder: str) -> str:
        if not place.exists():
            os.rename(staged, place)  # unlike Hadoop's rename, this fails if the target exists
            return "new"
        if exchange_names(staged, place):
            return "exchanged"
        old = self.claim.replaced_folder / folder
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
            folder, method = self._swapped.pop()
            staged, place = self.claim.rows_folder / folder, self.root / folder
            if method == "exchanged":
                exchange_names(staged, place)
                continue
            os.rename(place, staged)
            if method == "moved":
                os.rename(self.claim.replaced_folder / folder, place)
        for night in {(self.root / folder).parent for folder in self.folders}:
            with contextlib.suppress(OSError):  # the folder has slices of other writers
                night.rmdir()

    def finish(self) -> None:
        """Refresh Spark's cache of the folder, and write the `_SUCCESS` file that Spark writes."""
        with contextlib.suppress(OSError):
            (self.root / "_SUCCESS").touch()
        if self.spark is not None:
            self.spark.catalog.refreshByPath(f"file:{self.root}")


def _sync_folder(folder: Path) -> None:
    """Sync files to disk: after a power failure, new names must not point to files without content."""
    for parent, _, names in walk_folder(folder):
        for place in (parent, *(os.path.join(parent, name) for name in names)):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in _SYNC_UNSUPPORTED:
                    raise
            finally:
                os.close(descriptor)


def stage_files(rows: Frame, kind: str, claim: Claim) -> set[str]:
    """Write rows to a writer's folder. Return the slices that have rows. Runs an action for rows of Spark.

    Refuse if executors wrote rows to their own disks.
    """
    if isinstance(rows, pa.Table):
        return set(_stage_table(rows, claim))
    from pyspark.sql import functions as F

    from ndcg_spark.core.session import runs_locally

    # Executors on this machine share its disks.
    counter = None if runs_locally(rows.sparkSession, "local") else _make_row_counter(rows.sparkSession)
    if counter is not None:
        rows = rows.observe(counter, F.count(F.lit(1)).alias("n"))
    rows.write.partitionBy(*PARTITIONS).format(kind).save(f"file://{claim.rows_folder}")
    folders = {str(place.relative_to(claim.rows_folder)) for place in claim.rows_folder.glob("*=*/*=*")}
    if counter is not None:
        n, n_here = counter.get.get("n"), sum(count_file_rows(claim.rows_folder / folder, kind) for folder in folders)
        if n is not None and n != n_here:
            raise OutputRefusedError(
                f"only {n_here} of {n} rows for {str(claim.root)!r} were found: executors wrote the others to their "
                "own disks. Use a folder that all machines share, an object store, or a catalog table."
            )
    return folders


def _stage_table(rows: pa.Table, claim: Claim) -> Iterator[str]:
    """Write stamped rows of Arrow, without the partition columns. Yield the slices."""
    night, slice_names = (rows.column(column).cast(pa.string()) for column in PARTITIONS)
    slice_folders = pc.binary_join_element_wise("slice=", pc.fill_null(slice_names, NULL_FOLDER_VALUE), "")
    folders = pc.binary_join_element_wise(pc.binary_join_element_wise("run_date=", night, ""), slice_folders, "/")
    content = rows.drop_columns([*PARTITIONS])
    distinct = pc.unique(folders).to_pylist()
    for folder in distinct:
        slice_rows = content if len(distinct) == 1 else content.filter(pc.equal(folders, folder))
        _write_file(slice_rows, claim.rows_folder / folder)
        yield folder


def _write_file(rows: pa.Table, folder: Path) -> None:
    """Write rows as Spark would: with the same types, compression and form of the file name.

    Timestamps are INT96, unless a column has no time zone: Arrow has one switch for both kinds.
    """
    folder.mkdir(parents=True)
    path = folder / f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
    use_int96 = all(
        column_type.tz is not None for column_type in rows.schema.types if pa.types.is_timestamp(column_type)
    )
    parquet.write_table(
        rows, path, compression="snappy", store_schema=False, use_deprecated_int96_timestamps=use_int96
    )


def _write_empty(rows: Frame, kind: str, folder: Path) -> None:
    """Write a file without rows, which keeps the columns."""
    if isinstance(rows, pa.Table):
        _write_file(rows.drop_columns([*PARTITIONS]).slice(0, 0), folder)
    else:
        rows.drop(*PARTITIONS).limit(0).write.format(kind).save(f"file://{folder}")


def _make_row_counter(spark: SparkSession) -> Observation | None:
    """Make a counter of written rows; None on Spark Connect before 4.0, which has none."""
    from pyspark.sql import Observation

    on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return None if on_connect and not find_spec("pyspark.sql.connect.observation") else Observation()


def count_file_rows(folder: Path, kind: str) -> int:
    """Count the rows of a slice from the footers of its files (orc or parquet)."""
    files = [file for file in folder.iterdir() if not is_hidden(file.name)]
    if kind == "orc":
        from pyarrow import orc

        return sum(orc.ORCFile(file).nrows for file in files)
    return sum(parquet.read_metadata(file).num_rows for file in files)


def exchange_names(first: Path, second: Path) -> bool:
    """Exchange the names of two folders atomically. Return False if the system or file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _EXCHANGE_UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(first))


class RemoteFolderWrite(SliceWrite):
    """New rows of some slices of a remote folder, written by Spark's dynamic partition overwrite.

    The guarantees are those of the file system's committer. Spark computes all rows first and writes them to a
    staging folder of this job; then it deletes the old files of each slice and moves the new ones in. On HDFS that is
    fast. On object stores a move is a copy: until the copies end, readers may find a slice empty or incomplete.
    Nothing can be undone. Prefer a catalog table, which has none of these limits.
    """

    undoable = False

    def __init__(self, place: str, slices: Slices, reference: str, kind: str = "parquet") -> None:
        super().__init__(reference, slices)
        self.place, self.kind = place, kind
        self.claim = InProcessClaim(canonicalize(place), self.folders, reference)

    def stage(self, rows: DataFrame) -> None:
        """List the current files of the slices. Spark stages the rows itself, in `swap`."""
        self._rows = self.slices.reject_unexpected(rows, self.reference)
        self._before = self._list_files()

    def swap(self) -> None:
        """Run an action: overwrite slices, then empty those without rows.

        Raise a PartlyWrittenError if it fails after files were replaced.
        """
        try:
            self._overwrite()
        except BaseException as error:
            changed = self._list_changed()
            if changed:
                reason = first_line(error) if isinstance(error, Exception) else "interrupted"
                raise PartlyWrittenError(
                    f"{self.reference!r} was only partly written: rows of {', '.join(changed)} are wrong until the "
                    f"job runs again ({reason})."
                ) from error
            raise

    def _overwrite(self) -> None:
        writer = self._rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*PARTITIONS).format(self.kind).save(self.place)
        now = self._list_files()
        replaced = {folder for folder, files in self._before.items() if now[folder] != files}
        if any(now[folder] & self._before[folder] for folder in replaced):
            raise OutputRefusedError(
                "Spark has written new files beside the old ones: its output committer cannot replace partitions; "
                f"choose another one, and remove the newest files of these slices in {self.place}"
            )
        self.slices.check(replaced, self.reference)
        for folder in self.folders:  # those that were not replaced may be empty
            if self._before[folder] and folder not in replaced:
                nothing = self._rows.drop(*PARTITIONS).limit(0)
                nothing.write.mode("overwrite").format(self.kind).save(f"{self.place}/{folder}")

    def _list_changed(self) -> list[str]:
        """List the slices that have changed; all of them if their files cannot be listed."""
        try:
            now = self._list_files()
        except spark_errors(OSError):
            return list(self._before)
        return [folder for folder, files in self._before.items() if now[folder] != files]

    def _list_files(self) -> dict[str, set[str]]:
        """List the files of each slice, with one listing. Each write uses new file names."""
        pattern = f"{escape_wildcards(self.place)}/{{{','.join(sorted(self.folders))}}}"
        from pyspark.errors import PySparkException

        reader = self._rows.sparkSession.read.schema(self._rows.drop(*PARTITIONS).schema).format(self.kind)
        try:
            files = reader.load(pattern).inputFiles()
        except PySparkException as error:
            if "PATH_NOT_FOUND" not in get_condition(error):
                raise
            files = []
        return {folder: {file for file in files if f"/{folder}/" in unquote(file)} for folder in self.folders}
