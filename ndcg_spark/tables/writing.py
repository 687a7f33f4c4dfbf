"""Writing slices: rows are staged where no reader looks, then put in place of the old ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS, first_line, is_crash, unfit_surroundings
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError, find_refusal, text_of
from ndcg_spark.sources.references import guess_format
from ndcg_spark.tables.catalog import (
    COMMITTED,
    TABLE_KINDS,
    TableFacts,
    add_columns,
    check_table,
    create_table,
    select_results,
)
from ndcg_spark.tables.claims import Tell, lock_out_writers
from ndcg_spark.tables.commits import CommittedWrite, DeltaLog, IcebergLog
from ndcg_spark.tables.folders import FolderWrite, RemoteFolderWrite
from ndcg_spark.tables.places import canonical, shared_folder, spark_path
from ndcg_spark.tables.slices import Slices, SliceWrite, refuse_stamps
from ndcg_spark.tables.table_writes import LocalTableWrite, RemoteTableWrite

_log = logging.getLogger(__name__)
_ATTEMPTS = 20
"""To claim slices of a table that others make, alter and drop at the same time."""


def stage_slices(
    frame: DataFrame,
    reference: str,
    kind: str | None,
    slices: Slices,
    *,
    grow: bool = True,
    tell: Tell = _log.warning,
) -> SliceWrite:
    """Run an action: write the rows of slices where no reader looks; claim the slices until close.

    `reference` is a folder or a catalog table, made if it does not exist. `kind` is `parquet` for a folder; `table`,
    `delta`, `iceberg` for a catalog table, the first for any of these providers, orc or Hive; None guesses. With
    `grow`, a catalog table gets the columns that it lacks; they stay if the rows do not come. For a catalog table,
    `swap_in` runs one more action, which counts its rows. `tell` reports removed leftovers.
    """
    kind, spark = kind or guess_format(reference), frame.sparkSession
    if len(set(slices.folders.values())) < len(slices.folders):
        raise OutputRefusedError(f"two runs for {reference!r} happen to get the same slice name; rename one of them.")
    refuse_stamps(frame.columns, reference)
    with refusing(reference):
        rows = slices.stamp(frame)
        if kind in TABLE_KINDS:
            write = _open_table(rows, reference, kind, slices, grow=grow, tell=tell)
        else:
            place = spark_path(spark, reference)
            folder = shared_folder(spark, place, reference)
            write = (
                RemoteFolderWrite(place, slices, reference, kind)
                if folder is None
                else FolderWrite(spark, folder, slices, reference, tell, kind)
            )
        try:
            write.stage(rows)
        except BaseException:
            write.close()
            raise
    return write


def _open_table(rows: DataFrame, reference: str, kind: str, slices: Slices, *, grow: bool, tell: Tell) -> SliceWrite:
    """Claim slices of a table, made if it does not exist; again if it was dropped or altered meanwhile.

    A writer drops the table that it made if its rows do not come and nobody else has claimed slices of it, which can
    only be seen in a shared folder; elsewhere an empty table stays.
    """
    spark, stored, is_ours = rows.sparkSession, select_results(rows.schema), False
    for _ in range(_ATTEMPTS):
        facts = check_table(spark, reference, stored, kind, grow=grow)
        if facts is None:
            is_ours = create_table(spark, reference, stored, kind)
            continue
        root = shared_folder(spark, canonical(facts.location), reference) if facts.location else None
        if facts.growth.added:
            # Of two jobs, one would undo the other's columns.
            with nullcontext() if root is None else lock_out_writers(root):
                add_columns(spark, reference, facts.growth.added)
            continue
        on_failure = partial(_drop_created, spark, facts, root) if is_ours and root is not None else None
        write: SliceWrite | None = None
        try:
            write = _table_write(spark, facts, slices, root, tell)
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


def _table_write(spark: SparkSession, facts: TableFacts, slices: Slices, root: Path | None, tell: Tell) -> SliceWrite:
    """Choose the write by the table's format, and by whether this process reaches its files."""
    folders = list(slices.folders.values())
    if facts.format == "delta":
        return CommittedWrite(spark, facts, DeltaLog(spark, facts.name, folders, root), slices, root, tell)
    if facts.format == "iceberg":
        return CommittedWrite(spark, facts, IcebergLog(spark, facts.name, folders), slices, root, tell)
    kind = RemoteTableWrite if root is None else LocalTableWrite
    return kind(spark, facts, slices, tell)


def _drop_created(spark: SparkSession, facts: TableFacts, root: Path) -> None:
    """Drop a table that was made for rows which did not come, unless somebody else writes it, or has written it."""
    with lock_out_writers(root) as is_unused:
        if is_unused and spark.catalog.tableExists(facts.name):
            has_commits = facts.format in COMMITTED
            content = spark.table(facts.name) if has_commits else spark.sql(f"SHOW PARTITIONS {facts.name}")
            if not content.take(1):
                spark.sql(f"DROP TABLE {facts.name}")


def swap_in(writes: Sequence[SliceWrite]) -> None:
    """Make staged rows visible: all or, when one fails, none. The caller closes them. Readers see each slice whole.

    `OutputRefusedError`: nothing was written. `PartlyWrittenError`: a remote folder is half replaced, or an output
    failed after one that cannot be taken back: a remote folder, or one whose catalog or file system is gone.
    """
    # What cannot be undone comes first: when it fails, nothing else has been written.
    ordered = sorted(writes, key=lambda write: write.undoable)
    for at, write in enumerate(ordered):
        try:
            with refusing(write.reference):
                write.swap()
        except BaseException as error:
            kept = [done.reference for done in ordered[:at] if not done.undoable]
            kept += _undo(ordered[: at + 1])
            if kept:
                raise PartlyWrittenError(
                    f"{write.reference} was not written, or not whole, and {', '.join(kept)} could not be taken "
                    f"back: {text_of(error)}"
                ) from error
            raise
    with ExitStack() as each:
        for write in reversed(ordered):
            each.callback(write.finish)


def _undo(writes: Sequence[SliceWrite]) -> list[str]:
    """Take writes back, the last one first; return those of which that failed."""
    lost = []
    for write in reversed(writes):
        try:
            write.undo()
        except Exception as error:  # whatever it is, the others are to be taken back, too
            _log.warning("could not take back %s: %s", write.reference, first_line(error))
            lost.append(write.reference)
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
