"""Write slices: stage new rows where readers ignore them, then replace the old rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from ndcg_spark.core.failures import explain_environment_error, first_line, is_crash, spark_errors
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError, find_refusal, get_message
from ndcg_spark.sources.references import guess_format
from ndcg_spark.tables.claims import Reporter
from ndcg_spark.tables.folders import FolderWrite, RemoteFolderWrite
from ndcg_spark.tables.kinds import TABLE_KINDS
from ndcg_spark.tables.places import canonicalize, find_shared_folder, require_folder, resolve_spark_path
from ndcg_spark.tables.slices import Frame, Slices, SliceWrite, refuse_stamps

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows to write, the slices that they replace, and their destination; `holds` names the rows in messages."""

    frame: Frame
    slices: Slices
    reference: str = ""
    kind: str | None = None
    grow: bool = True
    holds: str = "rows"


def write_together(
    tables: Iterable[Rows],
    *,
    stage_others: Iterable[Callable[[], SliceWrite]] = (),
    step: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
    report: Reporter = _log.warning,
) -> None:
    """Stage all tables, then make all of them visible, or none. Runs an action for each table of Spark.

    `stage_others` stage outputs that are not tables; `step` is a context that is entered for each table.
    """
    with ExitStack() as stack:
        writes: list[SliceWrite] = []
        for rows in tables:
            with step(f"writing {rows.holds} to {rows.reference}"):
                write = stage_slices(
                    rows.frame, rows.reference, rows.kind, rows.slices, grow=rows.grow, report=report
                )
                writes.append(stack.enter_context(closing(write)))
        writes += [stack.enter_context(closing(stage())) for stage in stage_others]
        swap_in(writes)


def stage_slices(
    frame: Frame,
    reference: str,
    kind: str | None,
    slices: Slices,
    *,
    grow: bool = True,
    report: Reporter = _log.warning,
) -> SliceWrite:
    """Stage the rows of slices where readers ignore them, and claim the slices until the write is closed.

    Runs an action if the rows are Spark's. `reference` is a folder or a catalog table; it is created if missing.
    `kind` is `parquet` for a folder, and `table`, `delta` or `iceberg` for a catalog table (`table`: any of these
    providers, orc or Hive); None guesses. With `grow`, missing columns are added to a catalog table; they stay if the
    write fails. For a catalog table, `swap_in` runs one more action to count rows. `report` gets
    a line about removed leftovers.
    """
    kind, in_arrow = kind or guess_format(reference), isinstance(frame, pa.Table)
    if len(set(slices.folders.values())) < len(slices.folders):
        raise OutputRefusedError(f"two runs for {reference!r} have the same slice name; rename one of them.")
    refuse_stamps(frame.schema.names, reference)
    write: SliceWrite
    with convert_write_errors(reference):
        if in_arrow:
            require_folder(kind, canonicalize(reference), reference)
        spark, rows = (None, slices.stamp_table(frame)) if in_arrow else (frame.sparkSession, slices.stamp(frame))
        if kind in TABLE_KINDS:
            from ndcg_spark.tables.table_writes import open_table_write

            write = open_table_write(rows, reference, kind, slices, grow=grow, report=report)
        else:
            place = resolve_spark_path(spark, reference)
            folder = find_shared_folder(spark, place, reference)
            write = (
                RemoteFolderWrite(place, slices, reference, kind)
                if folder is None
                else FolderWrite(spark, folder, slices, reference, report, kind)
            )
        try:
            write.stage(rows)
        except BaseException:
            write.close()
            raise
    return write


def swap_in(writes: Sequence[SliceWrite]) -> None:
    """Make staged rows visible: all of them, or none if one fails.

    Readers see each slice as a whole, except in remote folders. The caller closes the writes. Raise an
    OutputRefusedError if nothing was written. Raise a PartlyWrittenError if a remote folder was partly replaced, or
    if an output failed after another one that could not be undone.
    """
    # Writes that cannot be undone come first: if one fails, nothing else has been written.
    ordered = sorted(writes, key=lambda write: write.undoable)
    for number, write in enumerate(ordered):
        try:
            with convert_write_errors(write.reference):
                write.swap()
        except BaseException as error:
            not_undone = [done.reference for done in ordered[:number] if not done.undoable]
            not_undone += _undo_writes(ordered[: number + 1])
            if not_undone:
                raise PartlyWrittenError(
                    f"{write.reference} was not written completely, and {', '.join(not_undone)} could not be "
                    f"undone: {get_message(error)}"
                ) from error
            raise
    with ExitStack() as callbacks:
        for write in reversed(ordered):
            callbacks.callback(write.finish)


def _undo_writes(writes: Sequence[SliceWrite]) -> list[str]:
    """Undo writes, the last one first. Return the references of those that could not be undone."""
    failed = []
    for write in reversed(writes):
        try:
            write.undo()
        except Exception as error:  # the other writes must be undone, too
            _log.warning("could not undo %s: %s", write.reference, first_line(error))
            failed.append(write.reference)
    return failed


@contextmanager
def convert_write_errors(reference: str) -> Iterator[None]:
    """Turn errors of Spark or files about an output into refusals. Refusals of rows and crashes are not changed."""
    try:
        yield
    except spark_errors() as error:
        refusal = explain_environment_error(error)
        if refusal is not None:
            raise refusal from error
        if find_refusal(str(error)) or is_crash(error):
            raise
        raise OutputRefusedError(f"cannot write {reference!r}: {first_line(error)}") from error
    except ConnectionError:  # the Java process has ended
        raise
    except OSError as error:
        raise OutputRefusedError(f"cannot write {reference!r}: {error.strerror or error}.") from error
