"""Where rows come from: any table that Spark reads, or Parquet files that workers read themselves.

The source is decided once and carried along as a value. A DataFrame is always read by Spark. Workers read files only
where the user gave their path, and only where that cannot change a number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.canonical import item_needed
from ndcg_spark.spark.expressions import MALFORMED
from ndcg_spark.worker.ranking.canonical import ITEM, ORDER, RANK, RELEVANCE, RUN, WEIGHT, canonical_names
from ndcg_spark.worker.ranking.complete_queries import FilesTask
from ndcg_spark.worker.ranking.parquet import FileIdentity, FilePart, identify, parts_of, starts_of_groups

MAX_FILES = 2_000
"""Whose footers are read before anything else is done, about a millisecond each."""
WANTED_PARTS, SMALLEST_PART, LARGEST_PART = 8, 2**22, 2**28
"""Of all files, and bytes of one: a part is a task, which takes some hundredths of a second to start."""
BYTES_OF_A_PARTITION = 2**25
MIN_PARTITIONS, MAX_PARTITIONS = 8, 2**14
IDS_OF_A_PARTITION = 4
"""Partition ids for each shuffle partition, which Spark's hash of them then fills about evenly."""
Range = tuple[Any, Any]
_Kinds = dict[T.DataType, pa.DataType]
_WHOLE: _Kinds = {
    T.ByteType(): pa.int8(),
    T.ShortType(): pa.int16(),
    T.IntegerType(): pa.int32(),
    T.LongType(): pa.int64(),
}
_NUMBERS = {**_WHOLE, T.FloatType(): pa.float32(), T.DoubleType(): pa.float64()}
_KEYS = {**_WHOLE, T.StringType(): pa.string(), T.DateType(): pa.date32()}
_KINDS = {**_NUMBERS, **_KEYS, T.BooleanType(): pa.bool_()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """Rows that Spark reads, projects and hands to workers.

    Parameters
    ----------
    rows : DataFrame
        Canonical columns.
    n_partitions : int
        Partition ids of the exchange.
    reason : str
        For `--explain`.
    """

    rows: DataFrame
    n_partitions: int
    reason: str

    @property
    def name(self) -> str:
        """What `--source` calls it."""
        return "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource:
    """Files that workers read.

    Parameters
    ----------
    rows : DataFrame
        The canonical columns as Spark would read them: for types, never run.
    files : FilesTask
        With bounds where the files are sorted by query.
    n_partitions : int
    reason : str
    """

    rows: DataFrame
    files: FilesTask
    n_partitions: int
    reason: str

    @property
    def name(self) -> str:
        """What `--source` calls it."""
        return "parquet"


Source = SparkSource | ParquetSource


def choose_source(
    frame: DataFrame,
    plan: EvaluationPlan,
    rows: DataFrame,
    *,
    path: str | None = None,
    judged: bool = True,
) -> Source:
    """Decide who reads the main table. Reads footers where a path was given; runs no action.

    Parameters
    ----------
    frame : DataFrame
        The table as it was read.
    plan : EvaluationPlan
    rows : DataFrame
        Its canonical columns, or what duplicates leave of them.
    path : str or None
        The path that the user gave, if it was one of Parquet files.
    judged : bool
        Whether relevances are taken from this table.

    Returns
    -------
    SparkSource or ParquetSource

    Raises
    ------
    InvalidParameterError
        When `source=parquet` was asked for and is not possible.
    """
    spark = frame.sparkSession
    if path is None:
        obstacle: str | None = "the input is a DataFrame or a table, not a path of Parquet files"
    else:
        obstacle = "source=spark was asked for" if plan.source == "spark" else _plan_obstacle(plan)
    found = obstacle or _parquet_source(spark, frame, plan, rows, str(path), judged=judged)
    if isinstance(found, ParquetSource):
        return found
    if plan.source == "parquet":
        raise InvalidParameterError(f"source=parquet is not available for this table: {found}. Use source=auto.")
    n_partitions = IDS_OF_A_PARTITION * int(str(spark.conf.get("spark.sql.shuffle.partitions", "200")))
    return SparkSource(rows=rows, n_partitions=n_partitions, reason=found)


def _plan_obstacle(plan: EvaluationPlan) -> str | None:
    convention = plan.convention
    found = {
        "duplicates are resolved among all rows": convention.duplicates != "error" or plan.check_duplicates == "all",
        "a sample is taken": plan.sample < 1,
    }
    return next((reason for reason, holds in found.items() if holds), None)


def _parquet_source(
    spark: SparkSession, frame: DataFrame, plan: EvaluationPlan, rows: DataFrame, path: str, *, judged: bool
) -> ParquetSource | str:
    """Build the source, or say in a clause why workers cannot read the files."""
    local = _session_obstacle(spark, path)
    columns = _columns(frame, plan, judged=judged)
    if local or isinstance(columns, str):
        return local or str(columns)
    listed = _listed(local_path(path))
    if isinstance(listed, str):
        return listed
    schema = pa.schema([(name, _KINDS[rows.schema[name].dataType]) for name in columns])
    footers = _footers(listed, columns, schema)
    if isinstance(footers, str):
        return footers
    identities = [one.identity for one in footers]
    parts = parts_of(identities, WANTED_PARTS, SMALLEST_PART, LARGEST_PART)
    single_key = len(plan.columns.query) == 1 and plan.columns.run is None
    bounds = _bounds(footers, parts, columns["query_0"]) if single_key else None
    n_bytes = sum(one.size for one in identities)
    files = FilesTask(parts=parts, columns=columns, schema=schema, bounds=bounds)
    in_order = ", sorted by query: complete queries are scored where they are read" if bounds else ""
    return ParquetSource(
        rows=rows,
        files=files,
        n_partitions=min(MAX_PARTITIONS, max(MIN_PARTITIONS, n_bytes // BYTES_OF_A_PARTITION)),
        reason=f"{len(listed)} Parquet files under a local path{in_order}",
    )


def _session_obstacle(spark: SparkSession, path: str) -> str | None:
    if any(sign in path for sign in "*?[]{}"):
        return "Spark takes signs in the path for a pattern"
    if "connect" in type(spark).__module__:
        return "on Spark Connect, files lie with the server"
    is_local = str(spark.conf.get("spark.master", "")).startswith("local") and "://" not in path
    if not (is_local or path.startswith("file:")):
        return "the path is not one of this machine (file:/... says that it is one of every worker)"
    if is_local and spark.conf.get("spark.hadoop.fs.defaultFS", None) not in (None, "file:///"):
        return "paths are on another file system by default"
    for setting in ("ignoreCorruptFiles", "ignoreMissingFiles", "parquet.mergeSchema"):
        if str(spark.conf.get(f"spark.sql.{'files.' if 'ignore' in setting else ''}{setting}", "false")) == "true":
            return f"{setting} is set"
    return None


def local_path(path: str) -> str:
    """Turn `file:` addresses into paths of this machine. Like Spark, decode nothing: `%20` is part of a name."""
    if not path.startswith("file:"):
        return path
    rest = path.removeprefix("file:")
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest


def _columns(frame: DataFrame, plan: EvaluationPlan, *, judged: bool) -> dict[str, str] | str:
    """The columns that workers read, by canonical name; or why they cannot."""
    columns, names = plan.columns, canonical_names(plan)
    wanted: dict[str, tuple[str, _Kinds]] = {name: (column, _KEYS) for name, column in names.query.items()}
    if columns.run is not None:
        wanted[RUN] = (columns.run, {T.StringType(): pa.string()})
    if columns.rank is not None:
        wanted[RANK] = (columns.rank, _NUMBERS)
    wanted |= {name: (column, _NUMBERS) for name, column in names.scores.items()}
    has_item = columns.item in frame.columns and (item_needed(plan, judged) or plan.checks_top_duplicates)
    optional: list[tuple[str, str | None, _Kinds]] = [
        (ITEM, columns.item if has_item else None, _KEYS),
        (WEIGHT, columns.weight, {T.DoubleType(): pa.float64()}),
        (ORDER, columns.order, _NUMBERS),
        (RELEVANCE, columns.relevance if judged else None, _NUMBERS),
    ]
    wanted |= {name: (column, kinds) for name, column, kinds in optional if column and column in frame.columns}
    wanted |= {name: (column, _KINDS) for name, column in names.segments.items() if column in frame.columns}
    if MALFORMED in frame.columns:
        return f"column {MALFORMED!r} says which rows are bad"
    for column, kinds in wanted.values():
        if frame.schema[column].dataType not in kinds:
            return f"column {column!r} is {frame.schema[column].dataType.simpleString()}"
    return {name: column for name, (column, _) in wanted.items()}


def _listed(path: str) -> list[str] | str:
    """All files that Spark would read below a path; or why workers cannot."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        return "the path is not a file or folder of this machine"
    found: list[str] = []
    for folder, folders, files in os.walk(path, followlinks=True):
        if any(name in folders for name in ("_delta_log", ".hoodie")):  # below the path, which is of no table itself
            return "not every file below the path belongs to the table"
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")) or "=" in name)
        found += [os.path.join(folder, name) for name in sorted(files) if not name.startswith((".", "_"))]
        if len(found) > MAX_FILES:
            return f"there are more than {MAX_FILES:,} files"
    others = [name for name in found if not name.endswith(".parquet")]
    return f"{others[0]} has another ending" if others else found or "there are no files"


@dataclass(frozen=True, slots=True)
class _Footer:
    identity: FileIdentity
    obstacle: str | None
    groups: list[tuple[int, Range | None]]
    """Where each row group starts, and the range of the query column in it."""


def _footers(paths: Sequence[str], columns: dict[str, str], schema: pa.Schema) -> list[_Footer] | str:
    with ThreadPoolExecutor(8) as pool:
        try:
            found = list(pool.map(lambda path: _footer(path, columns, schema), paths))
        except (OSError, pa.ArrowException) as error:
            return f"a file cannot be read ({str(error).splitlines()[0]})"
    obstacle = next((one.obstacle for one in found if one.obstacle), None)
    return obstacle or found


def _footer(path: str, columns: dict[str, str], schema: pa.Schema) -> _Footer:
    identity = identify(path)
    with pq.ParquetFile(path) as file:
        found, metadata = file.schema_arrow, file.metadata
        obstacle = _misfit(path, found, columns, schema)
        if b"org.apache.spark.legacyDateTime" in (metadata.metadata or {}) and pa.date32() in schema.types:
            obstacle = f"{path} has dates of an old calendar"
        groups: list[tuple[int, Range | None]] = []
        if obstacle is None:
            at = [metadata.schema.column(n).path for n in range(len(metadata.schema))].index(columns["query_0"])
            for number, start in enumerate(starts_of_groups(metadata)):
                statistics = metadata.row_group(number).column(at).statistics
                known = statistics is not None and statistics.has_min_max
                groups.append((start, (statistics.min, statistics.max) if known else None))
    return _Footer(identity, obstacle, groups)


def _misfit(path: str, found: pa.Schema, columns: dict[str, str], schema: pa.Schema) -> str | None:
    """Say which column of a file is not as the table has it. Spark knows what to do then."""
    for name, column in columns.items():
        if f"/{column.lower()}=" in path.lower():
            return f"column {column!r} is in the names of folders"
        alike = [one for one in found if one.name.lower() == column.lower()]
        wanted = schema.field(name).type
        if len(alike) != 1 or alike[0].name != column:
            return f"column {column!r} is not in {path}, or is spelled differently"
        if alike[0].type != wanted and not (wanted == pa.string() and alike[0].type == pa.large_string()):
            return f"column {column!r} of {path} is {alike[0].type}, not {wanted}"
    return None


def _bounds(footers: Sequence[_Footer], parts: Sequence[FilePart], column: str) -> tuple[Range, ...] | None:
    """For each part, between which values of a column its rows lie in no other part.

    Returns None where parts are not in the order of the column, or their files do not say so.
    """
    groups = {one.identity.path: one.groups for one in footers}
    ranges: dict[int, Range] = {}
    for number, part in enumerate(parts):
        inside = [found for start, found in groups[part.file.path] if part.start <= start < part.end]
        if None in inside:
            return None
        if inside:
            ranges[number] = (min(one[0] for one in inside if one), max(one[1] for one in inside if one))
    kinds = {type(end) for found in ranges.values() for end in found}
    if len(kinds) > 1 or not kinds <= {int, str}:
        return None
    bounds: list[Range] = [(None, None)] * len(parts)
    for before, after in pairwise(sorted(ranges, key=ranges.__getitem__)):
        highest, lowest = ranges[before][1], ranges[after][0]
        if highest > lowest:
            return None
        bounds[before] = (bounds[before][0], lowest)
        bounds[after] = (highest, bounds[after][1])
    return tuple(bounds)
