"""Counts of rows that were read and rejected, and the outputs that a job writes."""

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

from ndcg_spark.core.failures import extract_refusal
from ndcg_spark.core.row_counts import describe_bad_rows
from ndcg_spark.errors import InputRefusedError, NdcgSparkError, end_sentence, get_message
from ndcg_spark.jobs.logs import Progress
from ndcg_spark.jobs.options import format_flag
from ndcg_spark.jobs.places import Target
from ndcg_spark.tables import Rows, SliceWrite, UsedPlaces, check_output, convert_write_errors, write_together
from ndcg_spark.tables.claims import Reporter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from ndcg_spark.jobs.runner import Work


REJECT_SCHEMA = pa.schema([(name, pa.string()) for name in ("source", "reason", "row", "run")])


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCounts:
    """Row counts of the inputs: the first table's, those of the judgments, and the tables that have bad rows."""

    read: int
    rejected: dict[str, int]
    judgments: dict[str, Any] | None
    with_rejects: frozenset[str]


def count_inputs(work: Work[Any], limit: float | None, all_valid: int | None = None) -> InputCounts:
    """Count the bad rows of each table by reason; refuse if their share exceeds `limit`. Reads each table.

    `all_valid` is the number of rows of the first table if all are known to be valid; the table is not read then.
    """
    counts = work.count_rows(all_valid)
    for name, count in counts.items():
        bad = sum(count.rejected.values())
        if limit is not None and bad > limit * count.read:
            raise InputRefusedError(
                f"{describe_bad_rows(count, name)}; that is more than --max-reject-fraction {limit:g}. "
                "Nothing was written."
            )
    main, judgments = next(iter(counts.values())), counts.get("judgments")
    return InputCounts(
        read=main.read,
        rejected=main.rejected,
        judgments=None if judgments is None else {"read": judgments.read, "rejected": judgments.rejected},
        with_rejects=frozenset(name for name, count in counts.items() if count.rejected),
    )


def summarize_rejected(counts: InputCounts | None) -> dict[str, Any]:
    """Return the number of rejected rows of the first table, in total and by reason, for the JSON."""
    rejected = counts.rejected if counts else {}
    return {"rejected": sum(rejected.values()), "rejected_by_reason": rejected}


def check_target(
    spark: SparkSession | None,
    name: str,
    target: Target,
    schema: T.StructType | pa.Schema,
    used_places: Sequence[UsedPlaces],
    report: Reporter,
) -> UsedPlaces:
    """Refuse a table that cannot be written or would overwrite other data; return its place. Runs no action."""
    return check_output(
        spark,
        target.reference,
        target.kind,
        schema,
        name=format_flag(name),
        used_places=used_places,
        grow=target.grow,
        report=report,
    )


SOURCE_TIME = "source_computed_at"
"""Column of results that are computed from stored rows: the newest `computed_at` of these rows."""


def add_provenance(
    frame: DataFrame, facts: Mapping[str, Any], names: Sequence[str], now: datetime | None = None
) -> DataFrame:
    """Add facts as string columns, `source_computed_at` if `facts` has it, and `computed_at`; lazy."""
    from pyspark.sql import functions as F

    stamps = [F.lit(facts[name]).alias(name) for name in names]
    times = {name: F.lit(moment).cast("timestamp") for name, moment in _collect_times(facts, now).items()}
    return frame.select("*", *stamps, *(moment_column.alias(name) for name, moment_column in times.items()))


def add_provenance_to_table(
    table: pa.Table, facts: Mapping[str, Any], names: Sequence[str], now: datetime | None = None
) -> pa.Table:
    """Add the columns of `add_provenance` to an Arrow table."""
    for name in names:
        table = table.append_column(name, pa.repeat(pa.scalar(facts[name], pa.string()), table.num_rows))
    for name, moment in _collect_times(facts, now).items():
        table = table.append_column(name, pa.repeat(pa.scalar(moment, pa.timestamp("us", "UTC")), table.num_rows))
    return table


def _collect_times(facts: Mapping[str, Any], now: datetime | None) -> dict[str, datetime | None]:
    """Return the timestamp columns of stored rows: when they were computed, and their source, if it was stored."""
    source = {SOURCE_TIME: facts[SOURCE_TIME]} if SOURCE_TIME in facts else {}
    return {**source, "computed_at": (now or datetime.now(timezone.utc)).replace(microsecond=0)}


def build_refusal(error: Exception, work: Work[Any]) -> NdcgSparkError | None:
    """Build the refusal that an error means; None if it is a crash. Reads each table if the cause is bad rows."""
    own_error = error if isinstance(error, NdcgSparkError) else None
    if own_error is not None and type(own_error) is not InputRefusedError:
        return own_error
    message = extract_refusal(error) if own_error is None else get_message(own_error)
    if message is None:
        return None
    counts = work.count_rows() if message.startswith("bad row:") else {}
    if not counts:
        with_hint = work.add_hint(message)
        if own_error is not None and with_hint == message:
            return own_error
        return InputRefusedError(f"{end_sentence(with_hint)} Nothing was written.")
    descriptions = [describe_bad_rows(rows, name) for name, rows in counts.items() if rows.rejected]
    hint = 'Nothing was written; on-invalid = "reject" in a file, or --on-invalid reject, leaves such rows out.'
    if any("null_score" in rows.rejected for rows in counts.values()):
        hint += ' If a null score means that the item was not retrieved: null-score = "unretrieved".'
    return InputRefusedError(f"{'; '.join(descriptions) or message}. {hint}")


def write_all(
    tables: Sequence[Rows], files: Sequence[tuple[str, str, str]], facts: Mapping[str, Any], progress: Progress
) -> None:
    """Write all tables and files, or none: stage each, then make all visible. Runs an action for each table.

    `files` holds a label for messages, the path, and the text of each file.
    """
    counts = {name: facts[name] for name in ("rows", "queries") if isinstance(facts.get(name), Mapping)}
    progress.record(**counts, config_hash=facts.get("config_hash"))
    # Text files come last: they are complete by then, and renaming them is all that is left, so none is rolled back.
    texts = [partial(StagedFile, path, text) for _, path, text in files]
    write_together(tables, stage_others=texts, step=progress.step, report=progress.log)
    written = [{"what": rows.holds, "reference": rows.reference} for rows in tables]
    written += [{"what": label, "reference": path} for label, path, _ in files]
    progress.record(outputs=written)


_MAX_UNFINISHED_SECONDS = 6 * 3600
"""Age after which an unfinished file must belong to a killed process: text files are staged last, for a moment."""


class StagedFile(SliceWrite):
    """A text file that becomes visible when it is complete. `swap` only renames it and is not rolled back."""

    def __init__(self, reference: str, text: str) -> None:
        self.reference = reference
        self._target = Path(os.path.realpath(reference))  # write the target of a link, not the link
        self._unfinished = self._target.with_name(f"{self._target.name}.{os.getpid()}.unfinished")
        pattern = re.compile(rf"{re.escape(self._target.name)}\.\d+\.unfinished")
        with suppress(OSError):  # the folder may be unreadable, or the file not ours
            for path in self._target.parent.iterdir():
                if pattern.fullmatch(path.name) and time.time() - path.stat().st_mtime > _MAX_UNFINISHED_SECONDS:
                    path.unlink()
        try:
            with convert_write_errors(reference):
                self._unfinished.write_text(text + "\n", encoding="utf-8")
        except BaseException:
            self.close()
            raise

    def swap(self) -> None:
        self._unfinished.replace(self._target)

    def close(self) -> None:
        self._unfinished.unlink(missing_ok=True)
