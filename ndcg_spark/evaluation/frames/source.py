"""Choose the source of rows: a table that Spark reads, or Parquet files that workers read with the same results."""

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
from ndcg_spark.core.session import PARTITION_BYTES, is_on, runs_locally, shuffle_partitions
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
"""Partition ids per shuffle partition, so that Spark's hash of the ids fills partitions about evenly."""
FOOTER_TASKS = 16
"""Tasks that read footers of objects, eight at a time each."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """Rows that Spark reads and passes to workers. `fell_back`: workers could not read the objects of a store."""

    name: ClassVar[str] = "spark"
    rows: DataFrame
    n_partitions: int
    reason: str
    fell_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource:
    """Files that workers read. `rows` are the canonical columns as Spark reads them, used for their types only.

    `files` has bounds if the files are sorted by query and a query can be scored without any other table.
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
    """Decide whether Spark or workers read the main table, with canonical columns `rows` and Parquet files at `path`.

    For objects of a store, runs a small job in which workers read footers.
    """
    spark, settings = frame.sparkSession, plan.settings
    if path is None:
        obstacle: str | None = NO_FILES
    elif settings.source == "spark":
        obstacle = "source=spark was requested"
    elif plan.why_spark_reads is not None:
        obstacle = plan.why_spark_reads
    else:
        obstacle = _find_session_obstacle(spark, path, settings)
    columns = obstacle or _map_columns(frame, plan.rows)
    if isinstance(columns, str):
        source: ParquetSource | str = columns
    else:
        source = _build_parquet_source(frame, plan, rows, str(path), columns, n_tasks=n_tasks, sizes=sizes)
    if isinstance(source, ParquetSource):
        return source
    require_spark_allowed(settings, source)
    n_partitions = IDS_PER_PARTITION * (n_tasks or shuffle_partitions(spark))
    fell_back = not isinstance(columns, str) and stores.parse_address(str(path)) is not None
    return SparkSource(rows=rows, n_partitions=n_partitions, reason=source, fell_back=fell_back)


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
    """Build the source, or return the reason, as a clause, why workers cannot read the files."""
    spark = frame.sparkSession
    in_store = stores.parse_address(path) is not None
    listed = _list_objects(frame, path) if in_store else stores.list_files(stores.strip_file_scheme(path))
    if isinstance(listed, str):
        return listed
    if not in_store:  # Hadoop may be configured with another default file system
        elsewhere = [uri for uri in frame.inputFiles() if not uri.startswith("file:")]
        if elsewhere:
            return f"Spark finds the path on another file system, as {elsewhere[0]}"
    in_folders = stores.find_folder_column(
        path if in_store else stores.strip_file_scheme(path), listed, columns.values()
    )
    if in_folders is not None:
        return f"column {in_folders!r} is in the names of folders"
    schema = pa.schema([(name, plan.rows.columns[name].type) for name in columns])
    footers = (
        _read_footers(spark, listed, columns, schema) if in_store else parquet.read_footers(listed, columns, schema)
    )
    if isinstance(footers, str):
        return footers
    identities = [footer.identity for footer in footers]
    parts = parquet.split_files(identities, sizes)
    settings = plan.settings
    single_key = len(settings.columns.query) == 1 and settings.columns.run is None
    needs_other_tables = plan.judgments is not None or bool(settings.needs)
    bounds = parquet.find_part_bounds(footers, parts) if single_key and not needs_other_tables else None
    n_bytes = sum(identity.size for identity in identities)
    min_partitions = min(MIN_PARTITIONS, n_tasks or MIN_PARTITIONS)
    source_schema = pa.schema({columns[field.name]: field.type for field in schema})
    files = FilesTask(parts=parts, plan=plan.rows, schema=source_schema, bounds=bounds)
    kind = "Parquet objects that workers can read" if in_store else "Parquet files under a local path"
    in_order = ", sorted by query" if bounds else ""
    return ParquetSource(
        rows=rows,
        files=files,
        n_partitions=min(MAX_PARTITIONS, max(min_partitions, n_bytes // PARTITION_BYTES)),
        reason=f"{len(listed):,} {kind}{in_order}",
    )


def _list_objects(frame: DataFrame, path: str) -> list[str] | str:
    """List the objects below a path: as Spark has listed them or, if it cannot reach the store, as Arrow does."""
    objects = sorted(unquote(uri) for uri in frame.inputFiles())
    if objects:
        return stores.check_endings(objects)
    try:
        return stores.list_files(path)
    except (OSError, pa.ArrowException) as error:
        return f"the objects cannot be listed ({stores.format_reason(error)})"


def _read_footers(
    spark: SparkSession, paths: Sequence[str], columns: dict[str, str], schema: pa.Schema
) -> list[Footer] | str:
    """Read the footers of at most `MAX_FILES` objects in a Spark job."""
    numbers = spark.range(0, len(paths), 1, min(len(paths), FOOTER_TASKS))
    sent_schema = from_arrow_schema(parquet.FOOTER_SCHEMA)
    rows = in_workers(numbers, parquet.send_footers, paths, columns, schema, schema=sent_schema).collect()
    return parquet.parse_footers([row["found"] for row in sorted(rows, key=lambda row: int(row["number"]))])


def _find_session_obstacle(spark: SparkSession, path: str, settings: EvaluationSettings) -> str | None:
    """Return the reason why workers of this session cannot read a path, or None."""
    if stores.is_pattern(path):
        return "Spark expands wildcards in the path"
    if "connect" in type(spark).__module__:
        return "on Spark Connect, the files are on the server"
    for setting in ("ignoreCorruptFiles", "ignoreMissingFiles", "parquet.mergeSchema"):
        if is_on(spark, f"spark.sql.{'files.' if 'ignore' in setting else ''}{setting}", "false"):
            return f"{setting} is set"
    here = runs_locally(spark)
    if stores.parse_address(path) is not None:
        have_credentials = here or settings.source == "parquet"
        return (
            None
            if have_credentials
            else "workers may lack credentials for the store; choose source=parquet if they have them"
        )
    if path.startswith("file:"):
        return None
    if not here or _SCHEME.match(path):
        return "the path is not on this machine (file:/... is a path that all workers have)"
    return None


def _map_columns(frame: DataFrame, plan: TablePlan) -> dict[str, str] | str:
    """Map canonical to source columns for workers, or return the reason why workers cannot read the table."""
    if plan.has_malformed:
        return f"column {MALFORMED!r} marks malformed rows"
    columns = {name: read.source[0] for name, read in plan.columns.items()}
    for name, column in columns.items():
        if not _is_read_alike(name, plan.columns[name]):
            return f"column {column!r} is {frame.schema[column].dataType.simpleString()}"
    return columns


def _is_read_alike(name: str, read: ColumnRead) -> bool:
    """Return True if workers read a column of files with the same values as Spark.

    Floats are the same as numbers and segments only, not as keys.
    """
    kind = read.type
    is_whole, is_floating = pa.types.is_integer(kind), pa.types.is_floating(kind)
    if name in (RANK, RELEVANCE, ORDER, WEIGHT) or name.startswith(SCORE):
        return read.conversion is Conversion.AS_IS and bool(is_whole or is_floating)
    if read.conversion in (Conversion.CAST, Conversion.TO_TEXT, Conversion.SPARK_TEXT):
        return bool(is_whole)  # a key that is cast to the width in the other table
    is_segment = name.startswith("segment_")
    is_plain = is_whole or pa.types.is_string(kind) or pa.types.is_date(kind)
    return bool(is_plain or (is_segment and (is_floating or pa.types.is_boolean(kind))))
