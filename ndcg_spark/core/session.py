"""Settings of a Spark session, also if the platform hides them, and the number of tasks that read a table."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core.engine import PROVIDED
from ndcg_spark.core.failures import SPARK_ERRORS, get_condition
from ndcg_spark.errors import NdcgSparkError

_MASTER = re.compile(r"(?:^[ \t]*spark\.master[ \t=:]+|--master[ =]|spark\.master=)([^\s\"']+)", re.MULTILINE)
"""The master in the arguments of spark-submit, and in the file of defaults."""
SHUFFLE_PARTITIONS = 200
"""Spark's own default."""
BATCH_BYTES, MAX_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1)
"""The limit for bytes of a batch, and the value that means no limit."""
LASTING_CATALOG = "--conf spark.sql.catalogImplementation=hive"
IN_MEMORY = f"The catalog of this session is kept in memory; start Spark with {LASTING_CATALOG} to use a metastore."
"""Hint for messages if `has_own_catalog`."""
_NO_VALUE = ("[SQL_CONF_NOT_FOUND]", "[CONFIG_NOT_AVAILABLE]", "configuration not found: ")
"""Messages about a setting that is not set (the last by Sail), or that the platform hides."""


def get_setting(spark: SparkSession, name: str, default: str) -> str:
    """Return a setting in force, or a default if it has no value or the platform hides it. Other errors are raised.

    Serverless compute on Databricks hides most settings, whatever default is passed.
    """
    try:
        # Without a default, which Spark would take for a value: it refuses what the setting cannot be.
        setting = spark.conf.get(name)
    except SPARK_ERRORS as error:
        if not any(condition in str(error) for condition in _NO_VALUE):
            raise
        return default
    return default if setting is None else str(setting)


def is_on(spark: SparkSession, name: str, default: str) -> bool:
    """Check whether a setting is true; Spark takes `TRUE` and `True`, too, and returns them as they were written."""
    return get_setting(spark, name, default).strip().lower() == "true"


def limits_batches(spark: SparkSession) -> bool:
    """Check whether Spark computes the size of a batch at every row that it hands to Python; 3.5 never does."""
    return get_setting(spark, BATCH_BYTES, MAX_BATCH_BYTES).removesuffix("b") != MAX_BATCH_BYTES


@contextmanager
def merge_cached_partitions(spark: SparkSession) -> Iterator[None]:
    """Let adaptive execution merge small partitions of tables that are cached inside the block, as of other tables.

    Otherwise 360 queries of a catalog table are ranked in 200 tasks, twice. Nothing changes if the platform hides or
    keeps the setting.
    """
    setting = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
    before = get_setting(spark, setting, "true")
    try:
        if before != "true":
            spark.conf.set(setting, "true")
    except SPARK_ERRORS:
        before = "true"
    try:
        yield
    finally:
        if before != "true":
            spark.conf.set(setting, before)


def session_time_zone(spark: SparkSession) -> str:
    """Return the time zone of a session; if none is set it is that of Java."""
    return get_setting(spark, "spark.sql.session.timeZone", "UTC")


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the number of shuffle partitions; Spark's default for `auto`, which Databricks allows."""
    partitions = get_setting(spark, "spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    return int(partitions) if partitions.isdecimal() else SHUFFLE_PARTITIONS


def has_own_catalog(spark: SparkSession) -> bool:
    """Check whether the catalog of a session is kept in its memory, and lost with it."""
    return get_setting(spark, "spark.sql.catalogImplementation", "hidden") == "in-memory"


def runs_locally(spark: SparkSession, unknown: str = "") -> bool:
    """Check whether executors run on this machine. `unknown` replaces a master that the platform hides."""
    return get_setting(spark, "spark.master", unknown).startswith("local")


def get_session() -> SparkSession:
    """Return the active session, or start one and log it; workers of a new local session run this Python."""
    try:
        return SparkSession.active()  # knows sessions of Spark Connect, too
    except PySparkException as error:
        if get_condition(error) != "NO_ACTIVE_OR_DEFAULT_SESSION":
            raise
    if _would_be_local():
        use_this_python()
    spark = SparkSession.builder.getOrCreate()
    logging.getLogger("ndcg_spark").warning("no active Spark session: started one with Spark %s", spark.version)
    return spark


def _would_be_local() -> bool:
    """Check that no variable, argument or file of defaults puts a new session on another machine."""
    if any(name in os.environ for name in PROVIDED) or not os.environ.get("MASTER", "local").startswith("local"):
        return False
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf")) / "spark-defaults.conf"
    texts = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    try:
        texts += "\n" + defaults.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):  # there are none
        pass
    except OSError as error:
        raise NdcgSparkError(
            f"cannot read Spark's defaults {str(defaults)!r} ({error.strerror}): make the file readable, or set "
            "SPARK_CONF_DIR to another folder."
        ) from error
    masters = _MASTER.findall(texts)
    return all(master.startswith("local") for master in masters)


def use_this_python() -> None:
    """Let workers of a new local session run this Python, unless PYSPARK_PYTHON names one.

    Otherwise Spark starts the `python3` of PATH, which may lack this package.
    """
    if not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable


PARTITION_BYTES = 2**25
_STATISTICS = re.compile(r"([ :+-]*)(.+), Statistics\(sizeInBytes=([\d.]+(?:E\+\d+)?) ([KMGTPE]i)?B(, rowCount=)?")
"""A line of `EXPLAIN COST`: its depth, the step, its size and, if known, the number of rows."""
_UNITS = {unit: 2 ** (10 * at) for at, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_KEEPS_ROWS = re.compile(
    r"(?:Project|Filter|Aggregate|Window|Sort|Deduplicate|Distinct|Union|Sample|Repartition|RepartitionByExpression|"
    r"RebalancePartitions|GlobalLimit|LocalLimit|Offset|SubqueryAlias|Join LeftSemi|Join LeftAnti)\b|Join .* = "
)
"""Steps that return at most about as many rows as they read. Others, such as a cross join, may return any number."""
_MASTER_CORES = re.compile(r"local(?:\[(\d+)(?:, *\d+)?\])?")
_SPLITS = re.compile(r"\bRange \(0, 1, step=1, splits=(\d+)\)")


def task_limit(frame: DataFrame, *others: DataFrame | None) -> int | None:
    """Number of tasks that read the shuffles of an evaluation of these tables; None leaves it to Spark.

    The larger of the cores and the bytes read / 32 MiB, at most the shuffle partitions. None with adaptive execution,
    or if Spark does not know how much is read. Spark cost: no action; plans are explained, some 20 ms each, except
    with adaptive execution or with as many local cores as shuffle partitions.
    """
    spark = frame.sparkSession
    if is_on(spark, "spark.sql.adaptive.enabled", "true"):
        return None
    max_tasks = shuffle_partitions(spark)
    n_cores = _count_cores(spark) if max_tasks > 1 else None
    if n_cores is None or n_cores >= max_tasks:
        return None  # nothing to save
    n_bytes = 0
    for table in (frame, *others):
        read = 0 if table is None else _estimate_bytes(table)
        if read is None:
            return None
        n_bytes += read
    return min(max_tasks, max(n_cores, n_bytes // PARTITION_BYTES))


def in_tasks(frame: DataFrame, n_tasks: int | None) -> DataFrame:
    """Let at most `n_tasks` read the shuffle at the end of a plan; None leaves it to Spark."""
    return frame if n_tasks is None else frame.coalesce(n_tasks)


def _count_cores(spark: SparkSession) -> int | None:
    """Cores of the cluster: from a local master, or from the parts into which Spark divides a range."""
    local = _MASTER_CORES.fullmatch(get_setting(spark, "spark.master", ""))
    if local:
        return int(local[1] or 1)
    match = _SPLITS.search(_explain_query(spark, "SELECT * FROM range(1)"))
    return None if match is None else int(match[1])


def _estimate_bytes(frame: DataFrame) -> int | None:
    """Bytes that a table is read from, or None if unknown or if they do not bound its size."""
    view = f"ndcg_spark_{uuid4().hex}"
    try:
        # Dropping a view uncaches tables of the same plan, so a condition makes the plan unique.
        frame.where(F.lit(view).isNotNull()).createOrReplaceTempView(view)
    except SPARK_ERRORS:
        return None
    try:
        text = _explain_query(frame.sparkSession, f"SELECT * FROM {view}", "COST")
    finally:
        frame.sparkSession.catalog.dropTempView(view)
    return _sum_leaf_bytes(text.partition("== Physical Plan ==")[0])


def _explain_query(spark: SparkSession, query: str, mode: str = "") -> str:
    """Return the plan of a query as text, empty if Spark has none."""
    try:
        return str(spark.sql(f"EXPLAIN {mode} {query}").collect()[0][0])
    except SPARK_ERRORS:
        return ""


def _sum_leaf_bytes(text: str) -> int | None:
    """Add up what the leaves of an optimized plan read."""
    steps = [match for match in map(_STATISTICS.match, text.splitlines()) if match]
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
    return int(total) if steps and total < _UNITS["Ei"] else None  # Spark reports exbibytes for an unknown size
