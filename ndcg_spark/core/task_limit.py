"""How many tasks follow a shuffle where adaptive execution is off, which otherwise joins small partitions."""

from __future__ import annotations

import re
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.core.session_settings import is_on, setting, shuffle_partitions

BYTES_OF_A_PARTITION = 2**25
_STATISTICS = re.compile(r"([ :+-]*)(.+), Statistics\(sizeInBytes=([\d.]+(?:E\+\d+)?) ([KMGTPE]i)?B(, rowCount=)?")
"""A line of `EXPLAIN COST`: how deep it is, the step, its size and, where it is known, the number of rows."""
_UNITS = {unit: 2 ** (10 * at) for at, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_KEEPS_ROWS = re.compile(
    r"(?:Project|Filter|Aggregate|Window|Sort|Deduplicate|Distinct|Union|Sample|Repartition|RepartitionByExpression|"
    r"RebalancePartitions|GlobalLimit|LocalLimit|Offset|SubqueryAlias|Join LeftSemi|Join LeftAnti)\b|Join .* = "
)
"""Steps that make about as many rows as they read, at most. Any other, such as a cross join, may make any number."""
_CORES_OF_MASTER = re.compile(r"local(?:\[(\d+)(?:, *\d+)?\])?")
_SPLITS = re.compile(r"\bRange \(0, 1, step=1, splits=(\d+)\)")


def task_limit(frame: DataFrame, *others: DataFrame | None) -> int | None:
    """Decide in how many tasks to read the shuffles of an evaluation of these tables; None leaves it to Spark.

    The larger of the cores and the bytes read / 32 MiB, at most the shuffle partitions. None with adaptive execution,
    or if Spark does not know how much is read.

    Spark cost: no action, and nothing with adaptive execution, nor where a local master names as many cores as there
    are shuffle partitions. Otherwise plans are explained: some 20 ms each.
    """
    spark = frame.sparkSession
    if is_on(spark, "spark.sql.adaptive.enabled", "true"):
        return None
    most = shuffle_partitions(spark)
    n_cores = _cores(spark) if most > 1 else None
    if n_cores is None or n_cores >= most:
        return None  # nothing to save
    n_bytes = 0
    for table in (frame, *others):
        read = 0 if table is None else _bytes_read(table)
        if read is None:
            return None
        n_bytes += read
    return min(most, max(n_cores, n_bytes // BYTES_OF_A_PARTITION))


def in_tasks(frame: DataFrame, n_tasks: int | None) -> DataFrame:
    """Let at most so many tasks read the shuffle that a table ends in; None leaves it to Spark."""
    return frame if n_tasks is None else frame.coalesce(n_tasks)


def _cores(spark: SparkSession) -> int | None:
    """Cores of the cluster: those that a local master names, or as many parts as Spark divides a range into."""
    here = _CORES_OF_MASTER.fullmatch(setting(spark, "spark.master", ""))
    if here:
        return int(here[1] or 1)
    found = _SPLITS.search(_explained(spark, "SELECT * FROM range(1)"))
    return None if found is None else int(found[1])


def _bytes_read(frame: DataFrame) -> int | None:
    """Bytes that a table is read from, or None if that is unknown or says nothing about its size."""
    view = f"ndcg_spark_{uuid4().hex}"
    try:
        # To drop a view takes a table of the same plan out of the cache. The condition makes the plan another one.
        frame.where(F.lit(view).isNotNull()).createOrReplaceTempView(view)
    except SPARK_ERRORS:
        return None
    try:
        text = _explained(frame.sparkSession, f"SELECT * FROM {view}", "COST")
    finally:
        frame.sparkSession.catalog.dropTempView(view)
    return _bytes_of_plan(text.partition("== Physical Plan ==")[0])


def _explained(spark: SparkSession, query: str, mode: str = "") -> str:
    """The plan of a query as text, empty if Spark has none."""
    try:
        return str(spark.sql(f"EXPLAIN {mode} {query}").collect()[0][0])
    except SPARK_ERRORS:
        return ""


def _bytes_of_plan(text: str) -> int | None:
    """Add up what the leaves of an optimized plan read."""
    steps = [found for found in map(_STATISTICS.match, text.splitlines()) if found]
    depths = [len(step[1]) for step in steps]
    total = 0.0
    for step, depth, next_depth in zip(steps, depths, [*depths[1:], 0], strict=True):
        if next_depth > depth:
            if not _KEEPS_ROWS.match(step[2]):
                return None
        elif step[2].startswith("InMemoryRelation") and not step[5]:
            return None  # not in the cache yet, and its plan is not shown
        else:
            total += float(step[3]) * _UNITS[step[4] or ""]
    return int(total) if steps and total < _UNITS["Ei"] else None  # Spark stands in exbibytes for what it cannot know
