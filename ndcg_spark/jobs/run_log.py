"""Run log: one row per run of a job, with the state of the inputs that it read."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark import tables
from ndcg_spark._version import __version__
from ndcg_spark.core.failures import first_line, spark_errors
from ndcg_spark.core.redaction import redact, redact_values
from ndcg_spark.errors import NdcgSparkError, to_one_line
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.outputs import check_target
from ndcg_spark.jobs.places import Source, Target, format_place
from ndcg_spark.sources.listing import NOTHING_LISTED, Listing, describe_files, hash_names
from ndcg_spark.sources.stores import MAX_LOCAL_FILES, is_file, is_hidden, list_files, walk_folder
from ndcg_spark.tables.claims import Reporter
from ndcg_spark.tables.folders import FolderWrite
from ndcg_spark.tables.kinds import TABLE_KINDS
from ndcg_spark.tables.places import find_shared_folder, is_local, resolve_spark_path
from ndcg_spark.tables.slices import Frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


STARTED, SUCCEEDED, REFUSED = "started", "succeeded", "refused"
GATE_NOT_MET, FLAGGED = "gate_not_met", "flagged"
ENDED_WELL = (SUCCEEDED, GATE_NOT_MET, FLAGGED)
"""Statuses of runs that have written their outputs."""
INTERRUPTED, FAILED = "interrupted", "failed"
_COMMIT = re.compile(r"(\d{20})\.json")


def describe_inputs(
    spark: SparkSession | None, sources: Mapping[str, Source], listings: Mapping[str, Listing] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Describe the tables that a job reads, from the file system and the catalog; reads no rows.

    `listings` are those of inputs that were opened before: their state then counts, as later files are not read.

    Local files have `files`, `bytes`, `newest`. Remote files and queries have `files` and `digest`, a hash of the
    sorted file names, which Spark never reuses. Delta and Iceberg tables have `version`. `unknown` is the reason if
    the state could not be read.
    """
    return [
        {
            "option": name.replace("_", "-"),
            "reference": redact(source.reference),
            "format": source.format,
            **(listings[name].state if name in listings else _read_state(spark, source)),
        }
        for name, source in sources.items()
        if source.reference
    ]


def list_inputs(spark: SparkSession, sources: Mapping[str, Source]) -> dict[str, Listing]:
    """Read the state of inputs that Spark is about to open; it lists their files itself."""
    return {name: Listing((), _read_state(spark, source)) for name, source in sources.items()}


def _read_state(spark: SparkSession | None, source: Source) -> dict[str, Any]:
    try:
        return _find_state(spark, source.reference, source.format)
    except spark_errors(OSError) as error:  # the job itself reports an unreadable input
        return {"unknown": to_one_line(redact(first_line(error)))}


def _find_state(spark: SparkSession | None, reference: str, kind: str) -> dict[str, Any]:
    if spark is None:
        return describe_folder(reference) or _hash_objects(reference)
    if kind == "sql":
        from ndcg_spark.sources.formats import read_query

        return hash_names(read_query(spark, reference).inputFiles())
    if kind == "table":
        return _describe_table(spark, reference)
    file_state = describe_folder(reference)
    remote = not file_state and "://" in reference and not reference.startswith("file:")
    # The text format opens no file to infer a schema.
    return hash_names(spark.read.format("text").load(reference).inputFiles()) if remote else file_state


def _hash_objects(reference: str) -> dict[str, Any]:
    files = list_files(reference)
    return {} if isinstance(files, str) else hash_names(files)


def describe_folder(reference: str) -> dict[str, Any]:
    """Describe the files below a local path; empty for a remote path, a glob, or too many files."""
    place = Path(tables.canonicalize(reference))
    if not place.is_absolute() or not place.exists():
        return {}
    files = list(islice(_walk_files(place), MAX_LOCAL_FILES + 1))
    if len(files) > MAX_LOCAL_FILES:
        return {}
    state = describe_files(files)
    log = place / "_delta_log"
    names = os.listdir(log) if log.is_dir() else []
    commits = [int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))]
    version = {"version": max(commits)} if commits else {}
    return state and state | version


def _walk_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for folder, inner, names in walk_folder(place, follow_links=True):
        inner[:] = [name for name in inner if not is_hidden(name)]
        yield from (Path(folder, name) for name in names if not is_hidden(name) and is_file(f"{folder}/{name}"))


def _describe_table(spark: SparkSession, table: str) -> dict[str, Any]:
    """Return the version of a Delta or Iceberg table, or describe the files of another table on this machine."""
    from ndcg_spark.tables.catalog import describe
    from ndcg_spark.tables.commits import IcebergLog

    properties = describe(spark, table)
    provider = properties.get("provider", "").lower()
    if provider == "delta":
        latest = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("version").first()
        return {"version": latest[0]} if latest else {}
    if provider == "iceberg":
        current = IcebergLog(spark, table, ()).read_version()
        return {} if current is None else {"version": current}
    location = properties.get("location")
    return describe_folder(location) if location else {}


COUNTS = ("rows_read", "rows_evaluated", "rows_rejected", "rows_left_out", "n_queries", "n_lost_queries")
_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
RUN_LOG_SCHEMA = pa.schema(
    [
        *((name, _TEXT) for name in ("run_id", "command", "status")),
        ("exit_code", pa.int32()),
        ("started_at", _TIME),
        ("finished_at", _TIME),
        ("seconds", pa.float64()),
        ("message", _TEXT),
        *((name, pa.int64()) for name in COUNTS),
        *((name, _TEXT) for name in ("rejected_by_reason", "config_hash", "config", "inputs", "outputs", "steps")),
        *((f"{name}_version", _TEXT) for name in ("package", "spark", "python", "numpy", "pyarrow")),
    ]
)


class RunLog:
    """Table of runs. `slices` is the slice of a run; `report` reports removed leftovers."""

    def __init__(self, spark: SparkSession | None, target: Target, slices: tables.Slices, report: Reporter) -> None:
        self.reference, self._spark, self._target, self._report = target.reference, spark, target, report
        self._slices = slices
        self._folder: Path | None = None

    def check(self, used_places: Sequence[tables.UsedPlaces]) -> None:
        """Refuse a run log that cannot be written, or that overlaps an input or output of the job."""
        places = check_target(self._spark, "run_log", self._target, RUN_LOG_SCHEMA, used_places, self._report)
        if self._target.format == "parquet":
            (place,) = places.folders
            self._folder = find_shared_folder(self._spark, place, self.reference)

    def write(self, row: Mapping[str, Any], slices: tables.Slices | None = None) -> None:
        """Write the row of this run, moved to `slices` if the results are of another night. May run an action."""
        before, self._slices = self._slices, slices or self._slices
        with ExitStack() as stack:
            writes = [self._stage([row], self._slices, stack)]
            if before != self._slices:
                writes.append(self._stage([], replace(before, may_be_empty=frozenset(before.folders)), stack))
            tables.swap_in(writes)

    def _stage(self, rows: Sequence[Mapping[str, Any]], slices: tables.Slices, stack: ExitStack) -> tables.SliceWrite:
        if self._folder is not None and not (self._folder / "_delta_log").exists():
            # Written with pyarrow: a Spark job for one row takes longer than some evaluations.
            with tables.convert_write_errors(self.reference):
                write = FolderWrite(self._spark, self._folder, slices, self.reference, self._report)
                stack.enter_context(closing(write))
                place = write.claim.rows_folder / write.folders[0]
                place.mkdir(parents=True)
                pq.write_table(_build_arrow_table(rows, slices.dataset), place / "part-00000.parquet")
            return write
        target = self._target
        return stack.enter_context(
            closing(
                tables.stage_slices(
                    self._build_frame(rows),
                    self.reference,
                    target.kind,
                    slices,
                    grow=target.grow,
                    report=self._report,
                )
            )
        )

    def _build_frame(self, rows: Sequence[Mapping[str, Any]]) -> Frame:
        if self._spark is None:
            return pa.Table.from_pylist([*rows], RUN_LOG_SCHEMA)
        from pyspark.sql.pandas.types import from_arrow_schema

        values = [tuple(row.get(name) for name in RUN_LOG_SCHEMA.names) for row in rows]
        return self._spark.createDataFrame(values, from_arrow_schema(RUN_LOG_SCHEMA)).coalesce(1)


def _build_arrow_table(rows: Sequence[Mapping[str, Any]], dataset: str) -> pa.Table:
    """Build a table with the types that Spark would write, and the data set as the last column."""
    schema = RUN_LOG_SCHEMA.append(pa.field("dataset", _TEXT))
    return pa.Table.from_pylist([{**row, "dataset": dataset} for row in rows], schema)


def collect_versions(spark: SparkSession | None) -> dict[str, str | None]:
    """Return the versions of the software; the version of Spark is None for the local engine."""
    return {
        "package_version": __version__,
        "spark_version": None if spark is None else spark.version,
        "python_version": platform.python_version(),
        "numpy_version": np.__version__,
        "pyarrow_version": pa.__version__,
    }


def extract_counts(facts: Mapping[str, Any]) -> dict[str, int]:
    """Extract the counts of the run log from the JSON of a job; counts that it lacks are missing."""
    rows, queries = facts.get("rows") or {}, facts.get("queries") or {}
    counts = {f"rows_{name}": rows.get(name) for name in ("read", "evaluated", "rejected", "left_out")}
    counts |= {"n_queries": queries.get("in_mean"), "n_lost_queries": queries.get("lost")}
    return {name: int(value) for name, value in counts.items() if value is not None}


def format_options(request: Request[Any]) -> str:
    """Format the options in force as JSON, without credentials."""
    return to_json(redact_values(dict(request.in_force)))


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def find_places(
    spark: SparkSession | None, request: Request[Any], listings: Mapping[str, Listing] = MappingProxyType({})
) -> list[tables.UsedPlaces]:
    """Find where a job reads and writes, as far as is known before Spark opens its tables. Runs no action."""
    used_places = []
    for name, source in request.sources.items():
        reference, kind = source.reference, source.format
        with suppress(*spark_errors()):  # the job refuses inputs that cannot be opened
            frame = None if spark is None else _open_frame(spark, reference, kind)
            label, files = format_place(name, reference), listings.get(name, NOTHING_LISTED).files
            used_places.append(tables.find_used_places(spark, label, reference, kind, frame, files=files))
    for name, target in request.targets.items():
        reference = target.reference
        with suppress(*spark_errors(NdcgSparkError)):  # the job refuses outputs that cannot be written
            place = tables.canonicalize(_resolve_place(spark, reference, is_table=target.format in TABLE_KINDS))
            used_places.append(tables.UsedPlaces(name=format_place(name, reference), folders=frozenset([place])))
    for name, path in request.paths.items():
        file = tables.canonicalize(os.path.abspath(path))
        used_places.append(tables.UsedPlaces(name=format_place(name, path), files=frozenset([file])))
    return used_places


def _open_frame(spark: SparkSession, reference: str, kind: str) -> DataFrame | None:
    """Open a catalog table or a query; None for a path."""
    from ndcg_spark.sources.formats import read_query

    frame = spark.table(reference) if kind == "table" else None
    return read_query(spark, reference) if kind == "sql" else frame


def _resolve_place(spark: SparkSession | None, reference: str, *, is_table: bool) -> str:
    if spark is None or not is_table:
        return resolve_spark_path(spark, reference)
    from ndcg_spark.tables.catalog import locate_table

    return locate_table(spark, reference)


def read_runs(
    spark: SparkSession | None, place: Target, night: date, dataset: str, *, later: bool = False
) -> list[dict[str, Any]]:
    """Read the runs of a night and data set, and of later nights if `later`; none if the run log does not exist.

    Runs an action if the run log is a table.
    """
    if place.format not in TABLE_KINDS and is_local(tables.canonicalize(place.reference)):
        root, of_night = Path(tables.canonicalize(place.reference)), f"run_date={night}"
        nights = sorted(path for path in root.glob("run_date=*" if later else of_night) if path.name >= of_night)
        return [
            {**row, "run_date": date.fromisoformat(folder.name.partition("=")[2])}
            for folder in nights
            for path in folder.glob("slice=*/*.parquet")
            for row in pq.ParquetFile(path).read().to_pylist()
            if row["dataset"] == dataset
        ]
    from ndcg_spark.sources.formats import open_table

    if spark is None:
        return []
    try:
        log = open_table(spark, place.reference, None if place.format in TABLE_KINDS else place.kind).frame
    except NdcgSparkError:  # it does not exist yet
        return []
    is_wanted = log["run_date"] >= night if later else log["run_date"] == night
    rows = log.where(is_wanted & (log["dataset"] == dataset))
    return [row.asDict() for row in rows.collect()]
