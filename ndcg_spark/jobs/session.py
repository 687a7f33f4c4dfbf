"""The Spark session of a job: the one there is, or a local one of our own."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from ndcg_spark.errors import InvalidParameterError, NdcgSparkError, OutputRefusedError
from ndcg_spark.jobs import worker_daemon
from ndcg_spark.jobs.interrupts import Interrupts, quiet_interrupts
from ndcg_spark.jobs.surroundings import check_arrow, check_surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGEST_BATCH = str(2**31 - 1)
"""Bytes; below this Spark asks for the size of a batch at every row, which takes longer than to write the row."""


@contextmanager
def spark_session(
    app_name: str, settings: Mapping[str, str], *, short_lists: bool, tables: Callable[[], Mapping[str, str]] = dict
) -> Iterator[SparkSession]:
    """Give the session to run in, and stop it afterwards if it was made here.

    `settings` are for a local session; under spark-submit and on a server they belong there. `short_lists` says that
    ten thousand rankings fit into memory easily, so that Spark need not weigh each on its way to Python. `tables`
    gives the catalog tables that will be written, and their kinds; a catalog that ends with the session is refused.
    """
    check_arrow()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints the stack of what we explain
    with quiet_interrupts() as interrupts:
        yield from _session(app_name, settings, interrupts, short_lists=short_lists, tables=tables())


def _session(
    app_name: str,
    settings: Mapping[str, str],
    interrupts: Interrupts,
    *,
    short_lists: bool,
    tables: Mapping[str, str],
) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from ndcg_spark.core.session_settings import PROVIDED, use_this_python
    from ndcg_spark.core.shipping import add_package_to_workers

    active = SparkSession.getActiveSession()
    if active is not None or any(name in os.environ for name in PROVIDED):
        if settings:
            raise InvalidParameterError("--conf is for local runs; here the session is set up from outside.")
        spark = active or SparkSession.builder.appName(app_name).getOrCreate()
        if active is None and "SPARK_REMOTE" in os.environ and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
            add_package_to_workers(spark)  # there is no line of a user to do that; Databricks installs packages
        interrupts.started()
        if active is None and not _of_a_server(spark):
            _refuse_forgotten(spark, tables)
        yield spark
        return
    with as_file(files("ndcg_spark.jobs") / "log4j2-quiet.properties") as log_settings:
        quiet = {"spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log_settings}"'}
        use_this_python()
        check_surroundings(settings)
        python = settings.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"])
        spark = _start_local(app_name, {**local_settings(python, short_lists=short_lists), **quiet, **settings})
        try:
            interrupts.started()
            _refuse_forgotten(spark, tables)
            yield spark
        finally:
            with warnings.catch_warnings():
                if interrupts.seen:
                    warnings.simplefilter("ignore")  # the call that was interrupted may take the next one with it
                spark.stop()


def _of_a_server(spark: SparkSession) -> bool:
    """Whether a session is one of many on a server that somebody else runs: its catalog outlives the job."""
    on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return on_connect and not os.environ.get("SPARK_REMOTE", "").startswith("local")


def _refuse_forgotten(spark: SparkSession, tables: Mapping[str, str]) -> None:
    """Refuse tables of a catalog that nobody sees after this session, whose files would be in the way of the next."""
    from ndcg_spark.core.session_settings import LASTING_CATALOG
    from ndcg_spark.tables.catalog import forgotten_tables

    found = forgotten_tables(spark, tables)
    if found:
        folders = ", ".join(f"./{table.replace('`', '')}" for table in found)
        raise OutputRefusedError(
            f"table{'s' * (len(found) > 1)} {', '.join(map(repr, found))} would be forgotten when the job ends: the "
            f"catalog of its session is kept in memory. For a folder name a path ({folders}); for a table that lasts "
            f"start Spark with {LASTING_CATALOG}."
        )


def local_settings(python: str, *, short_lists: bool) -> dict[str, str]:
    """Settings of a session of our own, whose workers run `python`; `short_lists` is as for `spark_session`."""
    cores = os.cpu_count() or 1
    unweighed = {"spark.sql.execution.arrow.maxBytesPerBatch": LARGEST_BATCH} if short_lists else {}
    own_daemon = worker_daemon.SETTINGS if python == sys.executable else {}
    return {
        **unweighed,
        **own_daemon,
        "spark.master": f"local[{cores}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{_memory_share()}m",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # it takes the stack at every column expression
        "spark.sql.files.maxPartitionBytes": "32m",  # what a core sorts at once then fits its caches better
        "spark.sql.shuffle.partitions": str(32 * cores),  # adaptive execution puts small ones together
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }


def _memory_share() -> int:
    """Megabytes for the JVM: a third of the machine, between 1 and 8 GB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError, AttributeError):
        total = 3072
    return max(1024, min(8192, total // 3))


def _start_local(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from ndcg_spark.core.failures import condition_of, first_line, unfit_surroundings

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        if "JAVA_GATEWAY" in condition_of(error):
            raise NdcgSparkError(
                "Spark could not start, for what Java says above: a setting that it refuses, too little memory, or a "
                "Java that is too old (JAVA_HOME names another)."
            ) from error
        raise
    except (OSError, Py4JError) as error:  # as of a folder for temporary files, or of a setting that Spark refuses
        unfit = unfit_surroundings(error)
        raise unfit or NdcgSparkError(f"Spark could not start: {first_line(error)}") from error
