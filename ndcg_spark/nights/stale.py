"""Find nights whose stored results are older than their inputs, for example after an earlier night was run again.

Stored tables are read; with Spark this is one action for each table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.labels import join_names
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.jobs.command import Input
from ndcg_spark.jobs.engine import needs_spark
from ndcg_spark.jobs.outputs import SOURCE_TIME
from ndcg_spark.jobs.places import Source, Target
from ndcg_spark.jobs.run_log import ENDED_WELL, read_runs
from ndcg_spark.nights.steps import Night, Step
from ndcg_spark.sources.local import open_local
from ndcg_spark.tables import canonicalize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 2**17


@dataclass(frozen=True, slots=True)
class Stale:
    """Nights of a step whose results are older than their inputs."""

    step: str
    nights: tuple[date, ...]

    @property
    def line(self) -> str:
        return f"{self.step}: {join_names(map(str, self.nights))} {'is' if len(self.nights) == 1 else 'are'} older"


class _StoredResult(NamedTuple):
    """Stored results of the night `end`, or of the period from `start` to it, and the time of their newest input."""

    end: date
    start: date | None
    time: datetime


def find_stale(spark: SparkSession | None, night: Night, first: date, last: date | None = None) -> list[Stale]:
    """Find the nights of each step that must be run again, from `first` to `last`."""
    input_times: dict[tuple[str, str], dict[date, datetime]] = {}
    stale_steps = []
    for step in night.steps:
        nights, dataset = set(), step.dataset or night.dataset
        results = list(_read_results(spark, night, step, first))
        for table_input in step.request.command.reads if results else ():
            if table_input.name in step.needs:
                source = _choose_source(night, step, table_input.name)
                key = (source.reference, dataset)
                if key not in input_times:
                    input_times[key] = _read_computed_times(spark, source, dataset)
                nights |= set(_find_older(results, table_input, input_times[key]))
        nights = {run_date for run_date in nights if first <= run_date and (last is None or run_date <= last)}
        if nights:
            stale_steps.append(Stale(step.name, tuple(sorted(nights))))
    return stale_steps


def _choose_source(night: Night, step: Step, option: str) -> Source:
    """Return the table that an earlier step wrote; instead of per-query metrics, the much smaller means."""
    maker = next(other for other in night.steps if other.name == step.needs[option])
    means = maker.request.targets.get("output")
    return (
        step.request.sources[option]
        if means is None
        else Source(reference=means.reference, kind=means.kind, options={})
    )


def has_later_nights(night: Night) -> bool:
    """Return whether an output folder holds a later night, or an output can only be read by Spark."""
    targets = [target for step in night.steps if step.needs for target in step.request.targets.values()]
    targets += [] if night.request.run_log is None else [night.request.run_log]
    return any(needs_spark(target) or _has_later(target, night.run_date) for target in targets)


def _has_later(target: Target, night: date) -> bool:
    folders = (folder.name for folder in Path(canonicalize(target.reference)).glob("run_date=*"))
    return any(folder > f"run_date={night}" for folder in folders)


def _find_older(
    results: Iterable[_StoredResult], table_input: Input, computed: Mapping[date, datetime]
) -> Iterator[date]:
    """Yield the nights to run again; for a period, its last night."""
    for result in results:
        first = {"one": result.end, "period": result.start}.get(table_input.nights)
        nights = [night for night in computed if (first is None or first <= night) and night <= result.end]
        if any(computed[night] > result.time for night in nights):
            yield max(nights)


def _read_results(spark: SparkSession | None, night: Night, step: Step, first: date) -> Iterator[_StoredResult]:
    """Read the stored results of a step from the night `first` on; pages are found in the run log."""
    request = step.request
    if request.command.name == "report":
        run_log, pages = night.request.run_log, dict[str, dict[str, Any]]()
        for row in [] if run_log is None else read_runs(spark, run_log, first, night.dataset, later=True):
            if row["command"] == "report" and row["status"] in ENDED_WELL:
                for page in json.loads(row["outputs"] or "[]"):
                    before = pages.setdefault(str(page), row)
                    pages[str(page)] = max(before, row, key=lambda logged: logged["started_at"])
        yield from (_StoredResult(row["run_date"], None, _add_zone(row["started_at"])) for row in pages.values())
    elif step.needs and "output" in request.targets:
        target = request.targets["output"]
        source = Source(reference=target.reference, kind=target.kind, options={})
        times = _read_times(spark, source, step.dataset or night.dataset, SOURCE_TIME, "min")
        for (end, start), time in times.items():
            if end >= first:
                yield _StoredResult(end, start, time)


def _read_computed_times(spark: SparkSession | None, source: Source, dataset: str) -> dict[date, datetime]:
    """Read the time when each night of a table was computed."""
    return {night: time for (night, _), time in _read_times(spark, source, dataset, "computed_at", "max").items()}


def _read_times(
    spark: SparkSession | None, source: Source, dataset: str, column: str, aggregate: str
) -> dict[tuple[date, date | None], datetime]:
    """Return the `min` or `max` time of each night and period of a data set; empty if the table has none."""
    try:
        rows = (
            _read_times_with_spark(spark, source, dataset, column, aggregate)
            if spark
            else _read_times_with_arrow(source, dataset, column, aggregate)
        )
    except NdcgSparkError:  # the table does not exist yet
        return {}
    return {
        (row["run_date"], row.get("period_start")): _add_zone(row["time"])
        for row in rows
        if row["run_date"] is not None and row["time"] is not None
    }


def _read_times_with_spark(
    spark: SparkSession, source: Source, dataset: str, column: str, aggregate: str
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    from ndcg_spark.core.columns import has_column, micros_to_datetime, to_micros
    from ndcg_spark.history.frames import night_column
    from ndcg_spark.sources.formats import open_table

    frame = open_table(spark, source.reference, source.kind, source.options).frame
    if not has_column(frame, column) or not has_column(frame, "run_date"):
        return []
    if has_column(frame, "dataset"):
        frame = frame.where(F.col("dataset") == dataset)
    starts = ["period_start"] if has_column(frame, "period_start") else []
    times = {"min": F.min, "max": F.max}[aggregate](to_micros(column))
    rows = frame.groupBy(night_column(frame, "table").alias("run_date"), *starts).agg(times.alias("time")).collect()
    return [{**row.asDict(), "time": micros_to_datetime(row["time"])} for row in rows]


def _read_times_with_arrow(source: Source, dataset: str, column: str, aggregate: str) -> list[dict[str, Any]]:
    table = open_local(source.reference, source.kind, source.options)
    if isinstance(table, str) or not table.info.has(column) or not table.info.has("run_date"):
        return []
    keys = [key for key in ("run_date", "period_start") if table.info.has(key)]
    columns = [*keys, *(["dataset"] if table.info.has("dataset") else []), column]
    schema = pa.schema([(selected, table.info.type_of(selected)) for selected in columns])
    batches = [batch for part in table.parts(1) for batch in part.read(columns, schema, _BATCH_ROWS)]
    rows = pa.Table.from_batches(batches, schema)
    if "dataset" in columns:
        rows = rows.filter(pc.equal(rows.column("dataset"), dataset))
    times = rows.group_by(keys).aggregate([(column, aggregate)]).rename_columns([*keys, "time"])
    return [row if isinstance(row["run_date"], date) else {**row, "run_date": None} for row in times.to_pylist()]


def _add_zone(time: datetime) -> datetime:
    """Return a time with a time zone: Arrow reads times with a zone, Spark's driver returns local times without."""
    return time.astimezone()
