"""Outputs of a job: all of them are checked first, computed next, and made visible together at the end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ndcg_spark.jobs.places import Target
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.tables import (
    ManyNights,
    Reading,
    RunPartition,
    Swappable,
    TableRows,
    canonical,
    check_output,
    refuse_inside_table,
    refuse_nested,
    refusing,
    write_together,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql import types as T


def refuse_outputs(
    spark: SparkSession,
    planned: Sequence[tuple[str, Target, T.StructType]],
    readings: list[Reading],
    files: Sequence[str],
    progress: Progress,
) -> None:
    """Raise when one of several outputs could not be written, or would overwrite what is not ours. Runs no action.

    The outputs are added to `readings`, what the job reads. `progress` gets a line for columns that a table gets, or
    that the results lack.
    """
    for flag, target, schema in planned:
        found = check_output(
            spark,
            target.reference,
            target.kind,
            schema,
            name=flag,
            readings=readings,
            grow=target.grow,
            tell=progress.line,
        )
        readings.append(found)
    for path in files:
        refuse_nested(canonical(os.path.abspath(path)), path, readings)
        with refusing(path):
            refuse_inside_table(path)


def write_all(
    tables: Sequence[TableRows],
    night: RunPartition | ManyNights,
    files: Sequence[tuple[str, str, str]],
    facts: dict[str, Any],
    progress: Progress,
) -> None:
    """Compute tables where no reader looks, then make all of them visible, or none. Runs an action for each.

    `files` are what a file holds, its path, and its text; there is one at most.
    """
    counts = {name: facts[name] for name in ("rows", "queries") if isinstance(facts.get(name), Mapping)}
    progress.note(**counts, config_hash=facts.get("config_hash"))

    def staged(stack: ExitStack) -> list[Swappable]:
        # Last, where `swap_in` leaves it: nothing that could fail comes after it, so it is never put back.
        return [stack.enter_context(closing(StagedFile(path, text))) for _, path, text in files]

    write_together(tables, night, more=staged, step=progress.step, tell=progress.line)
    written = [{"what": one.holds, "reference": one.reference} for one in tables]
    written += [{"what": what, "reference": path} for what, path, _ in files]
    progress.note(outputs=written)


_LEFT_OVER = 6 * 3600
"""Seconds after which an unfinished file is that of a killed process, of any machine: such files are staged last."""


class StagedFile:
    """A text file that is complete before anybody sees it."""

    undoable = True

    def __init__(self, reference: str, text: str) -> None:
        self.reference = reference
        self._target = Path(os.path.realpath(reference))  # a link stays one
        self._unfinished = self._target.with_name(f"{self._target.name}.{os.getpid()}.unfinished")
        self._remove_leftovers()
        try:
            with refusing(reference):
                self._unfinished.write_text(text + "\n", encoding="utf-8")
        except BaseException:
            self.close()
            raise

    def _remove_leftovers(self) -> None:
        ours = re.compile(rf"{re.escape(self._target.name)}\.\d+\.unfinished")
        with suppress(OSError):  # a folder that cannot be listed, or a file of somebody else
            for place in self._target.parent.iterdir():
                if ours.fullmatch(place.name) and time.time() - place.stat().st_mtime > _LEFT_OVER:
                    place.unlink()

    def swap(self) -> None:
        """Put the file in its place."""
        with refusing(self.reference):
            self._unfinished.replace(self._target)

    def undo(self) -> None:
        """Nothing that could fail comes after `swap`."""

    def finish(self) -> None:
        """There is nothing to keep."""

    def close(self) -> None:
        """Remove what was not put in its place."""
        self._unfinished.unlink(missing_ok=True)
