"""Nights whose stored results are older than what they were made of, as after an earlier night was run again.

What is called `find` reads stored tables: Spark runs an action for each.
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
from ndcg_spark.tables import canonical

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 2**17


@dataclass(frozen=True, slots=True)
class Stale:
    """Nights of a step whose results are older than what they were made of."""

    step: str
    nights: tuple[date, ...]

    @property
    def line(self) -> str:
        return f"{self.step}: {join_names(map(str, self.nights))} {'is' if len(self.nights) == 1 else 'are'} older"


class _Made(NamedTuple):
    """Results of a night, or of a period that ends with it, and the newest time of what they were made of."""

    end: date
    start: date | None
    time: datetime


def find_stale(spark: SparkSession | None, night: Night, first: date, last: date | None = None) -> list[Stale]:
    """Find nights to renew of each step, from a first to a last one."""
    sources: dict[tuple[str, str], dict[date, datetime]] = {}
    found = []
    for step in night.steps:
        nights, dataset = set(), step.dataset or night.dataset
        made = list(_results(spark, night, step, first))
        for read in step.request.command.reads if made else ():
            if read.name in step.needs:
                source = _source(night, step, read.name)
                place = (source.reference, dataset)
                if place not in sources:
                    sources[place] = _computed(spark, source, dataset)
                nights |= set(_older(made, read, sources[place]))
        nights = {one for one in nights if first <= one and (last is None or one <= last)}
        if nights:
            found.append(Stale(step.name, tuple(sorted(nights))))
    return found


def _source(night: Night, step: Step, name: str) -> Source:
    """What an earlier step wrote; for its metrics of queries, which may be many, the means written with them."""
    maker = next(one for one in night.steps if one.name == step.needs[name])
    means = maker.request.targets.get("output")
    return (
        step.request.sources[name]
        if means is None
        else Source(reference=means.reference, kind=means.kind, options={})
    )


def has_later_nights(night: Night) -> bool:
    """Return whether a folder that a step writes has a later night, or a table that only Spark can look into."""
    places = [place for step in night.steps if step.needs for place in step.request.targets.values()]
    places += [] if night.request.run_log is None else [night.request.run_log]
    return any(needs_spark(place) or _has_later(place, night.run_date) for place in places)


def _has_later(place: Target, night: date) -> bool:
    names = (one.name for one in Path(canonical(place.reference)).glob("run_date=*"))
    return any(name > f"run_date={night}" for name in names)


def _older(made: Iterable[_Made], read: Input, computed: Mapping[date, datetime]) -> Iterator[date]:
    """Nights that have to run again: of a period, its last one."""
    for one in made:
        first = {"one": one.end, "period": one.start}.get(read.nights)
        its = [night for night in computed if (first is None or first <= night) and night <= one.end]
        if any(computed[night] > one.time for night in its):
            yield max(its)


def _results(spark: SparkSession | None, night: Night, step: Step, first: date) -> Iterator[_Made]:
    """Results of a step, as stored, from a first night on; pages as the run log has them."""
    request = step.request
    if request.command.name == "report":
        place, pages = night.request.run_log, dict[str, dict[str, Any]]()
        for row in [] if place is None else read_runs(spark, place, first, night.dataset, later=True):
            if row["command"] == "report" and row["status"] in ENDED_WELL:
                for output in json.loads(row["outputs"] or "[]"):
                    before = pages.setdefault(str(output), row)
                    pages[str(output)] = max(before, row, key=lambda one: one["started_at"])
        yield from (_Made(row["run_date"], None, _aware(row["started_at"])) for row in pages.values())
    elif step.needs and "output" in request.targets:
        target = request.targets["output"]
        source = Source(reference=target.reference, kind=target.kind, options={})
        for (end, start), time in _times(spark, source, step.dataset or night.dataset, SOURCE_TIME, "min").items():
            if end >= first:
                yield _Made(end, start, time)


def _computed(spark: SparkSession | None, source: Source, dataset: str) -> dict[date, datetime]:
    """When the nights of a table were computed."""
    return {night: time for (night, _), time in _times(spark, source, dataset, "computed_at", "max").items()}


def _times(
    spark: SparkSession | None, source: Source, dataset: str, column: str, how: str
) -> dict[tuple[date, date | None], datetime]:
    """Least or largest time of each night, and period, of a data set; empty for a table without them."""
    try:
        rows = _by_spark(spark, source, dataset, column, how) if spark else _by_arrow(source, dataset, column, how)
    except NdcgSparkError:  # it is not there yet
        return {}
    return {
        (row["run_date"], row.get("period_start")): _aware(row["time"])
        for row in rows
        if row["run_date"] is not None and row["time"] is not None
    }


def _by_spark(spark: SparkSession, source: Source, dataset: str, column: str, how: str) -> list[dict[str, Any]]:
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
    times = {"min": F.min, "max": F.max}[how](to_micros(column))
    rows = frame.groupBy(night_column(frame, "table").alias("run_date"), *starts).agg(times.alias("time")).collect()
    return [{**row.asDict(), "time": micros_to_datetime(row["time"])} for row in rows]


def _by_arrow(source: Source, dataset: str, column: str, how: str) -> list[dict[str, Any]]:
    table = open_local(source.reference, source.kind, source.options)
    if isinstance(table, str) or not table.info.has(column) or not table.info.has("run_date"):
        return []
    keys = [name for name in ("run_date", "period_start") if table.info.has(name)]
    names = [*keys, *(["dataset"] if table.info.has("dataset") else []), column]
    schema = pa.schema([(name, table.info.type_of(name)) for name in names])
    batches = [one for part in table.parts(1) for one in part.read(names, schema, _BATCH_ROWS)]
    rows = pa.Table.from_batches(batches, schema)
    if "dataset" in names:
        rows = rows.filter(pc.equal(rows.column("dataset"), dataset))
    found = rows.group_by(keys).aggregate([(column, how)]).rename_columns([*keys, "time"])
    return [row if isinstance(row["run_date"], date) else {**row, "run_date": None} for row in found.to_pylist()]


def _aware(time: datetime) -> datetime:
    """The run log read by Arrow has times with a zone, those of Spark's driver are local."""
    return time.astimezone()
