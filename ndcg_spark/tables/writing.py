"""Writing slices: rows are staged where no reader looks, then put in place of the old ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ndcg_spark.core.failures import SPARK_ERRORS, first_line, is_crash, unfit_surroundings
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError, find_refusal, text_of
from ndcg_spark.sources.references import guess_format
from ndcg_spark.tables.catalog import (
    TABLE_KINDS,
    TableFacts,
    add_columns,
    check_table,
    create_table,
    drop_empty_table,
)
from ndcg_spark.tables.claims import Tell, alone
from ndcg_spark.tables.commits import CommittedWrite
from ndcg_spark.tables.delta import DeltaLog
from ndcg_spark.tables.folders import FolderWrite
from ndcg_spark.tables.iceberg import IcebergLog
from ndcg_spark.tables.places import canonical, shared_folder, spark_path
from ndcg_spark.tables.remote import RemoteFolderWrite
from ndcg_spark.tables.slices import PARTITIONS, ManyNights, RunPartition, refuse_stamps, stamped
from ndcg_spark.tables.table_writes import LocalTableWrite, RemoteTableWrite

_log = logging.getLogger(__name__)
_ATTEMPTS = 6
"""To claim slices of a table that others make and drop at the same time."""


class _Write(Protocol):
    """How slices of one kind of place are replaced."""

    undoable: bool

    def stage(self, rows: DataFrame, kind: str, empty: Sequence[str]) -> None: ...
    def swap(self) -> None: ...
    def undo(self) -> None: ...
    def finish(self) -> None: ...
    def release(self) -> None: ...


class Swappable(Protocol):
    """Anything that `swap_in` makes visible together with others."""

    reference: str

    @property
    def undoable(self) -> bool:
        """Whether a swap can be taken back."""

    def swap(self) -> None:
        """Make the new content visible."""

    def undo(self) -> None:
        """Make the old content visible again, also after a swap that failed half-way."""

    def finish(self) -> None:
        """Keep the new content for good."""


class Staged:
    """Rows that are written, and not visible yet. Close it in any case: what was not swapped in is removed."""

    def __init__(self, reference: str, write: _Write, on_failure: Callable[[], None] | None) -> None:
        self.reference, self._write, self._on_failure = reference, write, on_failure

    @property
    def undoable(self) -> bool:
        return self._write.undoable

    def swap(self) -> None:
        with refusing(self.reference):
            self._write.swap()

    def undo(self) -> None:
        self._write.undo()

    def finish(self) -> None:
        self._on_failure = None
        self._write.finish()

    def close(self) -> None:
        """Remove old rows, or new ones that were not swapped in, and let others write the slices."""
        self._write.release()
        if self._on_failure is not None:
            self._on_failure()
            self._on_failure = None


def stage_partition(
    frame: DataFrame,
    reference: str,
    kind: str | None,
    partition: RunPartition | ManyNights,
    runs: Sequence[str],
    *,
    empty: Sequence[str] = (),
    whole: bool = False,
    grow: bool = True,
    tell: Tell = _log.warning,
) -> Staged:
    """Run an action: write rows of a night, data set and runs where no reader looks; claim their slices until close.

    Column `run` has no other values than `runs`, the runs to replace (names of slices for `ManyNights`); those in
    `empty` may have no rows. With `whole`, all rows are the one slice of `runs`. For a catalog table, `swap_in` runs
    one more action, which counts its rows.

    `reference` is a folder or a catalog table, made if it does not exist. `kind` is `parquet` for a folder; `table`,
    `delta`, `iceberg` for a catalog table, the first for any of these providers, orc or Hive; None guesses. With
    `grow`, a catalog table gets the columns that it lacks; they stay if the rows do not come. `tell` reports removed
    leftovers.
    """
    kind = kind or guess_format(reference)
    spark, folders = frame.sparkSession, partition.folders(runs)
    if len(set(folders.values())) < len(folders):
        raise OutputRefusedError(f"two runs for {reference!r} happen to get the same slice name; rename one of them.")
    refuse_stamps(frame.columns, reference)
    with refusing(reference):
        rows = stamped(frame, partition, runs, whole=whole)
        if kind in TABLE_KINDS:
            stored = T.StructType([one for one in rows.schema if one.name not in PARTITIONS])
            attempts = (
                _open_table(spark, stored, reference, kind, folders, grow=grow, tell=tell) for _ in range(_ATTEMPTS)
            )
            staged = next(filter(None, attempts), None)
        else:
            place = spark_path(spark, reference)
            folder = shared_folder(spark, place, reference)
            write: _Write = (
                RemoteFolderWrite(place, folders, reference)
                if folder is None
                else FolderWrite(spark, folder, folders, reference, tell)
            )
            staged = Staged(reference, write, None)
    if staged is None:
        raise OutputRefusedError(f"table {reference!r} was dropped or altered by somebody else meanwhile; run again.")
    try:
        with refusing(reference):
            staged._write.stage(rows, kind, empty)
    except BaseException:
        staged.close()
        raise
    return staged


def _open_table(
    spark: SparkSession,
    stored: T.StructType,
    reference: str,
    kind: str,
    folders: Mapping[str, str],
    *,
    grow: bool,
    tell: Tell,
) -> Staged | None:
    """Claim slices of a table, made if it does not exist; None if it was dropped or altered meanwhile.

    A writer drops the table that it made if its rows do not come and nobody else has claimed slices of it, which can
    only be seen in a shared folder; elsewhere an empty table stays.
    """
    check_table(spark, reference, stored, kind, grow=grow)
    created = create_table(spark, reference, stored, kind)
    on_failure, write = None, None
    try:
        facts = check_table(spark, reference, stored, kind, grow=grow)
        if facts is None:
            return None
        root = shared_folder(spark, canonical(facts.location), reference) if facts.location else None
        if facts.growth.added:
            with nullcontext() if root is None else alone(root):  # of two jobs, one would undo the other's columns
                add_columns(spark, reference, facts.growth.added)
            facts = check_table(spark, reference, stored, kind, grow=grow)
        if facts is None or facts.growth.added:
            return None
        on_failure = partial(_drop_created, spark, facts, root) if created and root is not None else None
        write = _table_write(spark, facts, folders, root, tell)
        if spark.catalog.tableExists(reference):
            return Staged(reference, write, on_failure)
        write.release()
        return None
    except BaseException:
        if write is not None:
            write.release()
        if on_failure is not None:
            on_failure()
        raise


def _table_write(
    spark: SparkSession, facts: TableFacts, folders: Mapping[str, str], root: Path | None, tell: Tell
) -> _Write:
    """Choose the write by the table's format, and by whether this process reaches its files."""
    slices = list(folders.values())
    if facts.format == "delta":
        return CommittedWrite(spark, facts, DeltaLog(spark, facts.name, slices, root), folders, root, tell)
    if facts.format == "iceberg":
        return CommittedWrite(spark, facts, IcebergLog(spark, facts.name, slices), folders, root, tell)
    kind = RemoteTableWrite if root is None else LocalTableWrite
    return kind(spark, facts, folders, tell)


def _drop_created(spark: SparkSession, facts: TableFacts, root: Path) -> None:
    """Drop a table that was made for rows which did not come, unless somebody else uses it."""
    with alone(root) as nobody:
        if nobody:
            drop_empty_table(spark, facts)


def swap_in(staged: Sequence[Swappable]) -> None:
    """Make staged rows visible: all or, when one fails, none. The caller closes them. Readers see each slice whole.

    `OutputRefusedError`: nothing was written. `PartlyWrittenError`: a remote folder is half replaced, or an output
    failed after one that cannot be taken back: a remote folder, or one whose catalog or file system is gone.
    """
    # What cannot be undone comes first: when it fails, nothing else has been written.
    ordered = sorted(staged, key=lambda one: one.undoable)
    for at, one in enumerate(ordered):
        try:
            one.swap()
        except BaseException as error:
            kept = [done.reference for done in ordered[:at] if not done.undoable]
            kept += _undone(ordered[: at + 1])
            if kept:
                raise PartlyWrittenError(
                    f"{one.reference} was not written, or not whole, and {', '.join(kept)} could not be taken back: "
                    f"{text_of(error)}"
                ) from error
            raise
    with ExitStack() as each:
        for one in reversed(ordered):
            each.callback(one.finish)


def _undone(staged: Sequence[Swappable]) -> list[str]:
    lost = []
    for one in reversed(staged):
        try:
            one.undo()
        except Exception as error:  # whatever it is, the others are to be taken back, too
            _log.warning("could not take back %s: %s", one.reference, first_line(error))
            lost.append(one.reference)
    return lost


@contextmanager
def refusing(reference: str) -> Iterator[None]:
    """Turn errors of Spark or files about an output into refusals; refusals of rows and crashes pass unchanged."""
    try:
        yield
    except SPARK_ERRORS as error:
        unfit = unfit_surroundings(error)
        if unfit is not None:
            raise unfit from error
        if find_refusal(str(error)) or is_crash(error):
            raise
        raise OutputRefusedError(f"cannot write {reference!r}: {first_line(error)}") from error
    except ConnectionError:  # to Java, which is gone
        raise
    except OSError as error:
        raise OutputRefusedError(f"cannot write {reference!r}: {error.strerror or error}.") from error
