"""Outputs of the main job: all of them are checked first, computed next, and made visible together at the end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ndcg_spark.evaluation.command.metric_table import (
    METRIC_SCHEMA,
    REJECT_SCHEMA,
    metric_rows,
    per_query_rows,
    per_query_table_schema,
)
from ndcg_spark.jobs.accounts import Accounts, Checked, written_rejects
from ndcg_spark.jobs.config import JobConfig, Target
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import to_json
from ndcg_spark.tables import (
    ManyNights,
    Reading,
    RunPartition,
    Swappable,
    canonical,
    check_output,
    reading_of,
    refuse_inside_table,
    refuse_nested,
    refusing,
    stage_partition,
    swap_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from ndcg_spark.evaluation.command.inputs import Inputs


def check_outputs(spark: SparkSession, inputs: Inputs, config: JobConfig, progress: Progress) -> None:
    """Raise when an output could not be written, or would overwrite what is not ours. Runs no action."""
    planned: list[tuple[str, Target | None, T.StructType]] = [
        ("--output", config.output, METRIC_SCHEMA),
        ("--rejects", config.rejects, REJECT_SCHEMA),
    ]
    if config.per_query_output is not None:
        schema = per_query_table_schema(inputs.rankings, inputs.plan)
        planned.append(("--per-query-output", config.per_query_output, schema))
    check_rejects(inputs, config.rejects)
    if any(target for _, target, _ in planned) or config.json_path not in (None, "-"):
        refuse_outputs(spark, planned, _readings(spark, inputs, config), config.json_path, progress)


def check_rejects(inputs: Checked, target: Target | None) -> None:
    """Raise when rows are to be kept as they came, and cannot be. Reads schemas, runs no action."""
    if target is not None:
        inputs.checked(originals=True)


def refuse_outputs(
    spark: SparkSession,
    planned: Sequence[tuple[str, Target | None, T.StructType]],
    readings: list[Reading],
    json_path: str | Sequence[str] | None,
    progress: Progress,
) -> None:
    """Raise when one of several outputs could not be written, or would overwrite what is not ours. Runs no action.

    The outputs are added to `readings`, what the job reads. `progress` gets a line for columns that a table gets, or
    that the results lack.
    """
    for flag, target, schema in planned:
        if target is not None:
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
    paths = [one for one in ([json_path] if isinstance(json_path, str | None) else json_path) if one is not None]
    for path in paths:
        if path != "-":
            refuse_nested(canonical(os.path.abspath(path)), path, readings)
            with refusing(path):
                refuse_inside_table(path)


def _readings(spark: SparkSession, inputs: Inputs, config: JobConfig) -> list[Reading]:
    sources = [
        ("--input", config.source),
        ("--judgments", config.judgments),
        ("--items", config.items),
        ("--interactions", config.interactions),
    ]
    there = [(flag, source) for flag, source in sources if source is not None]
    return [
        reading_of(spark, f"{flag} {source.reference!r}", source.reference, source.kind, table.frame)
        for (flag, source), table in zip(there, inputs.tables, strict=True)
    ]


def write_outputs(
    spark: SparkSession,
    summary: list[dict[str, Any]],
    per_query: DataFrame | None,
    outcome: dict[str, Any],
    inputs: Inputs,
    accounts: Accounts | None,
    config: JobConfig,
    progress: Progress,
) -> None:
    """Write all outputs of a job, or none. Runs an action for each table, and one more for each catalog table.

    `per_query` is needed where queries are to be written.
    """
    runs = sorted({row["run"] for row in summary})
    without = sorted(set(runs) - {row["run"] for row in summary if not row["segment_by"] and row["n_queries"]})
    planned: list[Planned] = []
    if config.rejects is not None:
        planned.append(Planned("rejects", config.rejects, written_rejects(inputs, accounts), [""], [""]))
    if config.per_query_output is not None and per_query is not None:
        planned.append(
            Planned("queries", config.per_query_output, per_query_rows(per_query, inputs.plan), runs, without)
        )
    if config.output is not None:
        computed_at = datetime.now(timezone.utc).replace(microsecond=0)
        frame = metric_rows(spark, summary, outcome, computed_at)
        planned.append(Planned("metrics", config.output, frame, runs, []))
    partition = RunPartition(run_date=config.run_date, dataset=config.dataset)
    shown = [{name: value for name, value in row.items() if name != "state"} for row in outcome["metrics"]]
    write_together(planned, partition, config.json_path, {**outcome, "metrics": shown}, progress)


__all__ = ["REJECT_SCHEMA"]


class Planned(NamedTuple):
    """A table to write: what it is called, its place, rows, runs, and those of them that may have no rows.

    Rows that are a `whole` are one slice, which the only one of the runs names.
    """

    what: str
    target: Target
    frame: DataFrame
    runs: list[str]
    empty: list[str]
    whole: bool = False


def write_together(
    planned: Sequence[Planned],
    partition: RunPartition | ManyNights,
    json_path: str | None,
    outcome: dict[str, Any],
    progress: Progress,
) -> None:
    files = [] if json_path in (None, "-") else [("JSON", str(json_path), to_json(outcome))]
    write_all(planned, partition, files, outcome, progress)


def write_all(
    planned: Sequence[Planned],
    partition: RunPartition | ManyNights,
    files: Sequence[tuple[str, str, str]],
    outcome: dict[str, Any],
    progress: Progress,
) -> None:
    """Compute tables where no reader looks, then make all of them visible, or none. Runs an action for each.

    `files` are what a file holds, its path, and its text; there is one at most.
    """
    progress.note(**{name: outcome[name] for name in ("rows", "queries", "config_hash") if name in outcome})
    with ExitStack() as stack:
        staged: list[Swappable] = []
        for what, target, frame, its, empty, whole in planned:
            with progress.step(f"writing {what} to {target.reference}"):
                one = stage_partition(
                    frame,
                    target.reference,
                    target.kind,
                    partition,
                    its,
                    empty=empty,
                    whole=whole,
                    grow=target.grow,
                    tell=progress.line,
                )
                staged.append(stack.enter_context(closing(one)))
        for _, path, text in files:
            # Last, where `swap_in` leaves it: nothing that could fail comes after it, so it is never put back.
            staged.append(stack.enter_context(closing(StagedFile(path, text))))
        swap_in(staged)
    written = [{"what": one.what, "reference": one.target.reference} for one in planned]
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


def write_text(what: str, path: str, text: str, progress: Progress) -> None:
    """Write a file in one step, and note it for the run log, which calls it `what`."""
    with closing(StagedFile(path, text)) as staged:
        swap_in([staged])
    progress.note(outputs=[{"what": what, "reference": path}])
