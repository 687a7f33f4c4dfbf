"""Outputs of the main job: all of them are checked first, computed next, and made visible together at the end."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ndcg_spark.cli.accounts import written_rejects
from ndcg_spark.cli.config import JobConfig, Target
from ndcg_spark.cli.metric_table import (
    METRIC_SCHEMA,
    REJECT_SCHEMA,
    metric_rows,
    per_query_rows,
    per_query_table_schema,
)
from ndcg_spark.cli.progress import Progress
from ndcg_spark.cli.report import to_json
from ndcg_spark.tables import (
    Reading,
    RunPartition,
    Swappable,
    canonical,
    check_output,
    reading_of,
    refuse_nested,
    refusing,
    stage_partition,
    swap_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from ndcg_spark.cli.inputs import Inputs


def check_outputs(spark: SparkSession, inputs: Inputs, config: JobConfig) -> None:
    """Raise when an output could not be written, or would overwrite what is not ours. Runs no action.

    Parameters
    ----------
    spark : SparkSession
    inputs : Inputs
    config : JobConfig

    Raises
    ------
    OutputRefusedError
    """
    planned: list[tuple[str, Target | None, T.StructType]] = [
        ("--output", config.output, METRIC_SCHEMA),
        ("--rejects", config.rejects, REJECT_SCHEMA),
    ]
    if config.per_query_output is not None:
        schema = per_query_table_schema(inputs.rankings, inputs.plan)
        planned.append(("--per-query-output", config.per_query_output, schema))
    json_path = None if config.json_path == "-" else config.json_path
    if json_path is None and not any(target for _, target, _ in planned):
        return
    readings = _readings(spark, inputs, config)
    for flag, target, schema in planned:
        if target is not None:
            found = check_output(spark, target.reference, target.kind, schema, name=flag, readings=readings)
            readings.append(found)
    if json_path is not None:
        refuse_nested(canonical(os.path.abspath(json_path)), json_path, readings)


def _readings(spark: SparkSession, inputs: Inputs, config: JobConfig) -> list[Reading]:
    sources = [("--input", config.source), ("--judgments", config.judgments)]
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
    config: JobConfig,
    progress: Progress,
) -> None:
    """Write all outputs of a job, or none. Runs an action for each table, and one more for each catalog table.

    Parameters
    ----------
    spark : SparkSession
    summary : list of dict
        Rows of the metric table.
    per_query : DataFrame or None
        Needed where queries are to be written.
    outcome : dict
        What `--json` shows.
    inputs : Inputs
    config : JobConfig
    progress : Progress
    """
    runs = sorted({row["run"] for row in summary})
    without = sorted({row["run"] for row in summary if not row["segment_by"] and not row["n_queries"]})
    planned: list[tuple[str, Target, DataFrame, list[str], list[str]]] = []
    if config.rejects is not None:
        planned.append(("rejects", config.rejects, written_rejects(inputs), [""], [""]))
    if config.per_query_output is not None and per_query is not None:
        planned.append(("queries", config.per_query_output, per_query_rows(per_query), runs, without))
    if config.output is not None:
        computed_at = datetime.now(timezone.utc).replace(microsecond=0)
        frame = metric_rows(spark, summary, outcome, computed_at)
        planned.append(("metrics", config.output, frame, runs, []))
    partition = RunPartition(run_date=config.run_date, dataset=config.dataset)
    with ExitStack() as stack:
        staged: list[Swappable] = []
        for what, target, frame, its, empty in planned:
            with progress.step(f"writing {what} to {target.reference}"):
                one = stage_partition(
                    frame, target.reference, target.kind, partition, its, empty=empty, tell=progress.line
                )
                staged.append(stack.enter_context(closing(one)))
        if config.json_path not in (None, "-"):
            shown = [{name: value for name, value in row.items() if name != "state"} for row in outcome["metrics"]]
            text = to_json({**outcome, "metrics": shown})
            # Last: of what is swapped in, it is the one thing that cannot be put back.
            staged.append(stack.enter_context(closing(StagedFile(str(config.json_path), text))))
        swap_in(staged)


class StagedFile:
    """A text file that is complete before anybody sees it."""

    undoable = True

    def __init__(self, reference: str, text: str) -> None:
        self.reference = reference
        self._target = Path(reference)
        self._unfinished = self._target.with_name(f"{self._target.name}.{os.getpid()}.unfinished")
        with refusing(reference):
            self._unfinished.write_text(text + "\n", encoding="utf-8")

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


def write_text(path: str, text: str) -> None:
    """Write a file in one step.

    Parameters
    ----------
    path : str
    text : str
    """
    with closing(StagedFile(path, text)) as staged:
        swap_in([staged])
