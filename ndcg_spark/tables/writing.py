"""Writing slices: rows are staged where no reader looks, then put in place of the old ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from ndcg_spark.core.failures import first_line, is_crash, spark_errors, unfit_surroundings
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError, find_refusal, text_of
from ndcg_spark.sources.references import guess_format
from ndcg_spark.tables.claims import Tell
from ndcg_spark.tables.folders import FolderWrite, RemoteFolderWrite
from ndcg_spark.tables.kinds import TABLE_KINDS
from ndcg_spark.tables.places import canonical, require_folder, shared_folder, spark_path
from ndcg_spark.tables.slices import Frame, Slices, SliceWrite, refuse_stamps

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows to write, the slices that they replace, and where they go; `holds` is their name for a person."""

    frame: Frame
    slices: Slices
    reference: str = ""
    kind: str | None = None
    grow: bool = True
    holds: str = "rows"


def write_together(
    tables: Iterable[Rows],
    *,
    more: Iterable[Callable[[], SliceWrite]] = (),
    step: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
    tell: Tell = _log.warning,
) -> None:
    """Compute tables where no reader looks, then show all of them, or none. Runs an action for each of Spark.

    `more` stage outputs that are not tables; `step` is entered for each table.
    """
    with ExitStack() as stack:
        writes: list[SliceWrite] = []
        for rows in tables:
            with step(f"writing {rows.holds} to {rows.reference}"):
                write = stage_slices(rows.frame, rows.reference, rows.kind, rows.slices, grow=rows.grow, tell=tell)
                writes.append(stack.enter_context(closing(write)))
        writes += [stack.enter_context(closing(stage())) for stage in more]
        swap_in(writes)


def stage_slices(
    frame: Frame,
    reference: str,
    kind: str | None,
    slices: Slices,
    *,
    grow: bool = True,
    tell: Tell = _log.warning,
) -> SliceWrite:
    """Write the rows of slices where no reader looks, by an action if they are Spark's; claim the slices until close.

    `reference` is a folder or a catalog table, made if it does not exist. `kind` is `parquet` for a folder; `table`,
    `delta`, `iceberg` for a catalog table, the first for any of these providers, orc or Hive; None guesses. With
    `grow`, a catalog table gets the columns that it lacks; they stay if the rows do not come. For a catalog table,
    `swap_in` runs one more action, which counts its rows. `tell` reports removed leftovers.
    """
    kind, in_arrow = kind or guess_format(reference), isinstance(frame, pa.Table)
    if len(set(slices.folders.values())) < len(slices.folders):
        raise OutputRefusedError(f"two runs for {reference!r} happen to get the same slice name; rename one of them.")
    refuse_stamps(frame.schema.names, reference)
    write: SliceWrite
    with refusing(reference):
        if in_arrow:
            require_folder(kind, canonical(reference), reference)
        spark, rows = (None, slices.stamp_table(frame)) if in_arrow else (frame.sparkSession, slices.stamp(frame))
        if kind in TABLE_KINDS:
            from ndcg_spark.tables.table_writes import open_table_write

            write = open_table_write(rows, reference, kind, slices, grow=grow, tell=tell)
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
    except spark_errors() as error:
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
