"""Accounts of rows that were read and rejected, and the outputs that a job writes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ndcg_spark.core.failures import refusal_text
from ndcg_spark.core.row_counts import describe_bad_rows
from ndcg_spark.errors import InputRefusedError, NdcgSparkError, text_of
from ndcg_spark.jobs.logs import Progress
from ndcg_spark.jobs.options import flag_of
from ndcg_spark.jobs.places import Target
from ndcg_spark.tables import Reading, Rows, SliceWrite, check_output, refusing, write_together
from ndcg_spark.tables.claims import Tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from ndcg_spark.jobs.runner import Work


REJECT_SCHEMA = pa.schema([(name, pa.string()) for name in ("source", "reason", "row", "run")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Rows of the first table read and rejected, those of the judgments, and the tables that have bad rows."""

    read: int
    rejected: dict[str, int]
    judgments: dict[str, Any] | None
    with_rejects: frozenset[str]


def account(inputs: Work[Any], limit: float | None, all_valid: int | None = None) -> Accounts:
    """Count the rows of each table by reason; refuse a larger share than `limit`. Reads each table.

    `all_valid` is the number of rows of the first table if it is known to have no bad ones; it is not read then.
    """
    counted = inputs.count_rows(all_valid)
    for name, found in counted.items():
        bad = sum(found.rejected.values())
        if limit is not None and bad > limit * found.read:
            raise InputRefusedError(
                f"{describe_bad_rows(found, name)}; that is more than --max-reject-fraction {limit:g}. "
                "Nothing was written."
            )
    main, judgments = next(iter(counted.values())), counted.get("judgments")
    return Accounts(
        read=main.read,
        rejected=main.rejected,
        judgments=None if judgments is None else {"read": judgments.read, "rejected": judgments.rejected},
        with_rejects=frozenset(name for name, found in counted.items() if found.rejected),
    )


def rejected_counts(accounts: Accounts | None) -> dict[str, Any]:
    """How many rows of the first table were rejected, as JSON has it."""
    rejected = accounts.rejected if accounts else {}
    return {"rejected": sum(rejected.values()), "rejected_by_reason": rejected}


def check_target(
    spark: SparkSession | None,
    name: str,
    target: Target,
    schema: T.StructType | pa.Schema,
    readings: Sequence[Reading],
    tell: Tell,
) -> Reading:
    """Refuse a table that cannot be written or would overwrite other data; return its place. No action."""
    return check_output(
        spark,
        target.reference,
        target.kind,
        schema,
        name=flag_of(name),
        readings=readings,
        grow=target.grow,
        tell=tell,
    )


SOURCE_TIME = "source_computed_at"
"""Column of what is made of stored rows: the newest `computed_at` of these."""


def with_provenance(
    frame: DataFrame, facts: Mapping[str, Any], names: Sequence[str], now: datetime | None = None
) -> DataFrame:
    """Add facts as columns of text, `source_computed_at` if they have it, and `computed_at`; lazy."""
    from pyspark.sql import functions as F

    stamps = [F.lit(facts[name]).alias(name) for name in names]
    times = {name: F.lit(moment).cast("timestamp") for name, moment in _times(facts, now).items()}
    return frame.select("*", *stamps, *(one.alias(name) for name, one in times.items()))


def table_with_provenance(
    table: pa.Table, facts: Mapping[str, Any], names: Sequence[str], now: datetime | None = None
) -> pa.Table:
    """Do what `with_provenance` does, with a table of Arrow."""
    for name in names:
        table = table.append_column(name, pa.repeat(pa.scalar(facts[name], pa.string()), table.num_rows))
    for name, moment in _times(facts, now).items():
        table = table.append_column(name, pa.repeat(pa.scalar(moment, pa.timestamp("us", "UTC")), table.num_rows))
    return table


def _times(facts: Mapping[str, Any], now: datetime | None) -> dict[str, datetime | None]:
    """Points in time that rows are stored with: of what they are made of, where that is stored itself, and now."""
    source = {SOURCE_TIME: facts[SOURCE_TIME]} if SOURCE_TIME in facts else {}
    return {**source, "computed_at": (now or datetime.now(timezone.utc)).replace(microsecond=0)}


def refusal_of(error: Exception, inputs: Work[Any]) -> NdcgSparkError | None:
    """Find the refusal in an error; None where it is a crash. Reads each table when the cause is bad rows."""
    ours = error if isinstance(error, NdcgSparkError) else None
    if ours is not None and type(ours) is not InputRefusedError:
        return ours
    message = refusal_text(error) if ours is None else text_of(ours)
    if message is None:
        return None
    counted = inputs.count_rows() if message.startswith("bad row:") else {}
    if not counted:
        advised = inputs.advice(message)
        if ours is not None and advised == message:
            return ours
        return InputRefusedError(f"{advised.rstrip('.')}. Nothing was written.")
    found = [describe_bad_rows(rows, name) for name, rows in counted.items() if rows.rejected]
    advice = "Nothing was written; --on-invalid reject leaves such rows out."
    return InputRefusedError(f"{'; '.join(found) or message}. {advice}")


def write_all(
    tables: Sequence[Rows], files: Sequence[tuple[str, str, str]], facts: Mapping[str, Any], progress: Progress
) -> None:
    """Compute tables where no reader looks, then show all of them, or none. Runs an action for each.

    `files` are what a file holds, its path, and its text; there is one at most.
    """
    counts = {name: facts[name] for name in ("rows", "queries") if isinstance(facts.get(name), Mapping)}
    progress.note(**counts, config_hash=facts.get("config_hash"))
    # Last, where `swap_in` leaves it: nothing that could fail comes after it, so it is never put back.
    texts = [partial(StagedFile, path, text) for _, path, text in files]
    write_together(tables, more=texts, step=progress.step, tell=progress.line)
    written = [{"what": rows.holds, "reference": rows.reference} for rows in tables]
    written += [{"what": what, "reference": path} for what, path, _ in files]
    progress.note(outputs=written)


_LEFT_OVER = 6 * 3600
"""Seconds after which an unfinished file is that of a killed process, of any machine: such files are staged last."""


class StagedFile(SliceWrite):
    """A text file that is complete before anybody sees it. It is never undone: no step after its `swap` can fail."""

    def __init__(self, reference: str, text: str) -> None:
        self.reference = reference
        self._target = Path(os.path.realpath(reference))  # a link stays one
        self._unfinished = self._target.with_name(f"{self._target.name}.{os.getpid()}.unfinished")
        ours = re.compile(rf"{re.escape(self._target.name)}\.\d+\.unfinished")
        with suppress(OSError):  # a folder that cannot be listed, or a file of somebody else
            for place in self._target.parent.iterdir():
                if ours.fullmatch(place.name) and time.time() - place.stat().st_mtime > _LEFT_OVER:
                    place.unlink()
        try:
            with refusing(reference):
                self._unfinished.write_text(text + "\n", encoding="utf-8")
        except BaseException:
            self.close()
            raise

    def swap(self) -> None:
        self._unfinished.replace(self._target)

    def close(self) -> None:
        self._unfinished.unlink(missing_ok=True)
