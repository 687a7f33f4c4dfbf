"""Where rows come from: any table that Spark reads, or Parquet files that workers read, if that changes no number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.core.session import BYTES_OF_A_PARTITION, is_on, runs_locally, shuffle_partitions
from ndcg_spark.core.workers import in_workers
from ndcg_spark.evaluation.plan import NO_FILES, RankingPlan, require_spark_allowed
from ndcg_spark.evaluation.plan_columns import ColumnRead, Conversion, TablePlan
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.complete_queries import FilesTask
from ndcg_spark.evaluation.tasks.query_rows import ORDER, RANK, RELEVANCE, SCORE, WEIGHT
from ndcg_spark.sources import parquet, stores
from ndcg_spark.sources.parquet import Footer, PartSizes

MIN_PARTITIONS, MAX_PARTITIONS = 8, 2**14
IDS_PER_PARTITION = 4
"""Partition ids for each shuffle partition, which Spark's hash of them then fills about evenly."""
FOOTER_TASKS = 16
"""Tasks that read footers of objects, eight at a time each."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """Rows that Spark reads and hands to workers. `fell_back`: workers could not read the objects of a store."""

    name: ClassVar[str] = "spark"
    rows: DataFrame
    n_partitions: int
    reason: str
    fell_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource:
    """Files that workers read. `rows` are the canonical columns as Spark would read them, for their types only.

    `files` has bounds if the files are sorted by query and have all that a query is scored by.
    """

    name: ClassVar[str] = "parquet"
    rows: DataFrame
    files: FilesTask
    n_partitions: int
    reason: str


Source = SparkSource | ParquetSource


def choose_source(
    frame: DataFrame,
    plan: RankingPlan,
    rows: DataFrame,
    *,
    path: str | None = None,
    n_tasks: int | None = None,
    sizes: PartSizes = parquet.PART_SIZES,
) -> Source:
    """Decide who reads the main table; `path` is where its Parquet files are, `rows` its canonical columns.

    Runs a small job for objects of a store only: workers read their footers.
    """
    spark, settings = frame.sparkSession, plan.settings
    if path is None:
        obstacle: str | None = NO_FILES
    elif settings.source == "spark":
        obstacle = "source=spark was asked for"
    elif plan.spark_reads is not None:
        obstacle = plan.spark_reads
    else:
        obstacle = _find_session_obstacle(spark, path, settings)
    columns = obstacle or _map_columns(frame, plan.rows)
    if isinstance(columns, str):
        found: ParquetSource | str = columns
    else:
        found = _build_parquet_source(frame, plan, rows, str(path), columns, n_tasks=n_tasks, sizes=sizes)
    if isinstance(found, ParquetSource):
        return found
    require_spark_allowed(settings, found)
    n_partitions = IDS_PER_PARTITION * (n_tasks or shuffle_partitions(spark))
    fell_back = not isinstance(columns, str) and stores.parse_address(str(path)) is not None
    return SparkSource(rows=rows, n_partitions=n_partitions, reason=found, fell_back=fell_back)


def _build_parquet_source(
    frame: DataFrame,
    plan: RankingPlan,
    rows: DataFrame,
    path: str,
    columns: dict[str, str],
    *,
    n_tasks: int | None,
    sizes: PartSizes,
) -> ParquetSource | str:
    """Build the source, or say in a clause why workers cannot read the files."""
    spark = frame.sparkSession
    in_store = stores.parse_address(path) is not None
    listed = _list_objects(frame, path) if in_store else stores.list_files(stores.strip_file_scheme(path))
    if isinstance(listed, str):
        return listed
    if not in_store:  # Hadoop's settings may say that paths are on another file system by default
        elsewhere = [uri for uri in frame.inputFiles() if not uri.startswith("file:")]
        if elsewhere:
            return f"Spark finds the path on another file system, as {elsewhere[0]}"
    in_folders = stores.find_folder_column(
        path if in_store else stores.strip_file_scheme(path), listed, columns.values()
    )
    if in_folders is not None:
        return f"column {in_folders!r} is in the names of folders"
    schema = pa.schema([(name, plan.rows.columns[name].type) for name in columns])
    read = (
        _read_footers(spark, listed, columns, schema) if in_store else parquet.read_footers(listed, columns, schema)
    )
    if isinstance(read, str):
        return read
    identities = [one.identity for one in read]
    parts = parquet.split_files(identities, sizes)
    settings = plan.settings
    single_key = len(settings.columns.query) == 1 and settings.columns.run is None
    complete = (
        plan.judgments is None and not settings.needs
    )  # what else a query is scored by comes from another table
    bounds = parquet.find_part_bounds(read, parts) if single_key and complete else None
    n_bytes = sum(one.size for one in identities)
    fewest = min(MIN_PARTITIONS, n_tasks or MIN_PARTITIONS)
    of_files = pa.schema({columns[one.name]: one.type for one in schema})
    files = FilesTask(parts=parts, plan=plan.rows, schema=of_files, bounds=bounds)
    what = "Parquet objects that workers reach by themselves" if in_store else "Parquet files under a local path"
    in_order = ", sorted by query" if bounds else ""
    return ParquetSource(
        rows=rows,
        files=files,
        n_partitions=min(MAX_PARTITIONS, max(fewest, n_bytes // BYTES_OF_A_PARTITION)),
        reason=f"{len(listed):,} {what}{in_order}",
    )


def _list_objects(frame: DataFrame, path: str) -> list[str] | str:
    """Objects below a path: as Spark has listed them already or, where it has no way to the store, as Arrow does."""
    by_spark = sorted(unquote(uri) for uri in frame.inputFiles())
    if by_spark:
        return stores.check_endings(by_spark)
    try:
        return stores.list_files(path)
    except (OSError, pa.ArrowException) as error:
        return f"the objects cannot be listed ({stores.format_reason(error)})"


def _read_footers(
    spark: SparkSession, paths: Sequence[str], columns: dict[str, str], schema: pa.Schema
) -> list[Footer] | str:
    """Run a job: read a footer per object, at most `MAX_FILES`."""
    numbers = spark.range(0, len(paths), 1, min(len(paths), FOOTER_TASKS))
    sent = from_arrow_schema(parquet.FOOTER_SCHEMA)
    rows = in_workers(numbers, parquet.send_footers, paths, columns, schema, schema=sent).collect()
    return parquet.parse_footers([row["found"] for row in sorted(rows, key=lambda row: int(row["number"]))])


def _find_session_obstacle(spark: SparkSession, path: str, settings: EvaluationSettings) -> str | None:
    if stores.is_pattern(path):
        return "Spark takes signs in the path for a pattern"
    if "connect" in type(spark).__module__:
        return "on Spark Connect, files lie with the server"
    for name in ("ignoreCorruptFiles", "ignoreMissingFiles", "parquet.mergeSchema"):
        if is_on(spark, f"spark.sql.{'files.' if 'ignore' in name else ''}{name}", "false"):
            return f"{name} is set"
    here = runs_locally(spark)
    if stores.parse_address(path) is not None:
        known = here or settings.source == "parquet"
        return (
            None if known else "whether workers have credentials of their own is unknown; the source parquet says so"
        )
    if path.startswith("file:"):
        return None
    if not here or _SCHEME.match(path):
        return "the path is not one of this machine (file:/... says that it is one of every worker)"
    return None


def _map_columns(frame: DataFrame, plan: TablePlan) -> dict[str, str] | str:
    """The columns that workers read, by canonical name; or why they cannot."""
    if plan.has_malformed:
        return f"column {MALFORMED!r} says which rows are bad"
    columns = {name: one.source[0] for name, one in plan.columns.items()}
    for name, column in columns.items():
        if not _is_read_alike(name, plan.columns[name]):
            return f"column {column!r} is {frame.schema[column].dataType.simpleString()}"
    return columns


def _is_read_alike(name: str, read: ColumnRead) -> bool:
    """Whether workers read a column of files as Spark hands it to them. Of floats only numbers and segments are."""
    kind = read.type
    whole, floating = pa.types.is_integer(kind), pa.types.is_floating(kind)
    if name in (RANK, RELEVANCE, ORDER, WEIGHT) or name.startswith(SCORE):
        return read.conversion is Conversion.AS_IS and bool(whole or floating)
    if read.conversion in (Conversion.CAST, Conversion.TO_TEXT, Conversion.SPARK_TEXT):
        return bool(whole)  # a key in the width of the other table
    is_segment = name.startswith("segment_")
    plain = whole or pa.types.is_string(kind) or pa.types.is_date(kind)
    return bool(plain or (is_segment and (floating or pa.types.is_boolean(kind))))
