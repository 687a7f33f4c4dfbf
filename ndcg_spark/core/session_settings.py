"""Settings of a session, also where the platform hides them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS, condition_of
from ndcg_spark.errors import NdcgSparkError

PROVIDED = (
    "PYSPARK_GATEWAY_PORT",
    "SPARK_REMOTE",
    "DATABRICKS_RUNTIME_VERSION",
    "SPARK_CONNECT_MODE_ENABLED",
)
"""Any of these says that somebody else (spark-submit, a Connect server, Databricks) decides on the session."""
_MASTER = re.compile(r"(?:^[ \t]*spark\.master[ \t=:]+|--master[ =]|spark\.master=)([^\s\"']+)", re.MULTILINE)
"""In the arguments of spark-submit, and in the file of defaults."""
SHUFFLE_PARTITIONS = 200
"""Spark's own default."""
LASTING_CATALOG = "--conf spark.sql.catalogImplementation=hive"
IN_MEMORY = (
    f"The catalog of this session is kept in memory; start Spark with {LASTING_CATALOG} to use that of a metastore."
)
"""What to say where `has_own_catalog`."""
_NO_VALUE = ("[SQL_CONF_NOT_FOUND]", "[CONFIG_NOT_AVAILABLE]", "configuration not found: ")
"""What is said of a setting that is not set (the last by Sail), and of one that the platform hides. Spark 3.5 has the
condition in the text only."""


def setting(spark: SparkSession, name: str, default: str) -> str:
    """Return a setting as it is in force, or a default where it has no value or the platform hides it.

    Serverless compute on Databricks answers `CONFIG_NOT_AVAILABLE` for most names, whatever default is asked for.
    Whatever else Spark answers is raised: it is about the question, not about the setting.
    """
    try:
        # Without a default, which Spark would take for a value: it refuses what the setting cannot be.
        found = spark.conf.get(name)
    except SPARK_ERRORS as error:
        if not any(condition in str(error) for condition in _NO_VALUE):
            raise
        return default
    return default if found is None else str(found)


def is_on(spark: SparkSession, name: str, default: str) -> bool:
    """Whether a setting is true; Spark takes `TRUE` and `True`, too, and hands them out as they were written."""
    return setting(spark, name, default).strip().lower() == "true"


def session_time_zone(spark: SparkSession) -> str:
    """Return the time zone of a session; if none is set it is that of Java."""
    return setting(spark, "spark.sql.session.timeZone", "UTC")


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the number of shuffle partitions; Spark's default for `auto`, which Databricks allows."""
    found = setting(spark, "spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    return int(found) if found.isdecimal() else SHUFFLE_PARTITIONS


def has_own_catalog(spark: SparkSession) -> bool:
    """Whether the catalog of a session is kept in its memory, and forgotten with it."""
    return setting(spark, "spark.sql.catalogImplementation", "hidden") == "in-memory"


def runs_locally(spark: SparkSession, unknown: str = "") -> bool:
    """Whether executors run on this machine. `unknown` stands for a master that the platform hides."""
    return setting(spark, "spark.master", unknown).startswith("local")


def session_here() -> SparkSession:
    """Return the session that is active, or start one; workers of a new one on this machine run this Python."""
    try:
        return SparkSession.active()  # knows sessions of Spark Connect, too
    except PySparkException as error:
        if condition_of(error) != "NO_ACTIVE_OR_DEFAULT_SESSION":
            raise
    if _would_be_local():
        use_this_python()
    return SparkSession.builder.getOrCreate()


def _would_be_local() -> bool:
    """Whether nobody else has said where a session runs that is yet to start: then it runs on this machine."""
    if any(name in os.environ for name in PROVIDED) or not os.environ.get("MASTER", "local").startswith("local"):
        return False
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf")) / "spark-defaults.conf"
    said = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    try:
        said += "\n" + defaults.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):  # there are none
        pass
    except OSError as error:
        raise NdcgSparkError(
            f"Spark's defaults {str(defaults)!r} cannot be read ({error.strerror}): let this user read the file, or "
            "name another folder by SPARK_CONF_DIR."
        ) from error
    masters = _MASTER.findall(said)
    return all(master.startswith("local") for master in masters)


def use_this_python() -> None:
    """Let the workers of a local session that is about to start run this Python, unless PYSPARK_PYTHON names one.

    Otherwise Spark starts the `python3` of PATH, which may be another one, without this package.
    """
    if not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
