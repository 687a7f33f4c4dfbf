"""The Spark session of a job, and checks of the machine before a local Spark starts."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.utils import require_minimum_pyarrow_version

from ndcg_spark.core.engine import PROVIDED
from ndcg_spark.core.failures import explain_environment_error, first_line, get_condition
from ndcg_spark.core.session import BATCH_BYTES, LASTING_CATALOG, MAX_BATCH_BYTES, use_this_python
from ndcg_spark.core.workers import add_package_to_workers
from ndcg_spark.errors import InvalidParameterError, MissingPackageError, NdcgSparkError, OutputRefusedError
from ndcg_spark.jobs import worker_daemon
from ndcg_spark.jobs.interrupts import handle_interrupts
from ndcg_spark.tables.catalog import list_session_tables

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
SMALL_TABLES = {
    "spark.sql.shuffle.partitions": "4",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1",
}
"""Settings of a local session for small tables. Most of its time goes into classes and plans that are used once, so
the optimizing compiler does not pay off: flags and page of 360 queries take half of the CPU time."""
_FILES_BESIDE_JARS = 100
"""Files that Java opens besides its jars in a small job; with 64 fewer than this the job fails."""
_PRINT_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_TIMEOUT_SECONDS = 60


def check_arrow() -> None:
    try:
        require_minimum_pyarrow_version()
    except ImportError as error:
        why = re.sub(r"^\[\w+\] ", "", str(error)).strip().rstrip(".")
        raise MissingPackageError(f"{why}: pip install --upgrade pyarrow, for Python workers, too.") from None


def check_environment(settings: Mapping[str, str]) -> None:
    """Refuse to start a local session if Spark, Java, the workers' Python, or temporary folders are missing."""
    home = _find_spark_home()
    _check_temporary_folder()
    if home is not None:
        _check_open_file_limit(home)
        _check_java(home)
    _check_local_folders(settings)
    if settings.get("spark.master", "local").startswith("local"):  # else it is a path on other machines
        _check_worker_python(os.environ["PYSPARK_PYTHON"])


def _find_spark_home() -> Path | None:
    """Return the folder of the Spark that will start; None if pyspark finds it."""
    spark_home = os.environ.get("SPARK_HOME")
    home = Path(spark_home or Path(pyspark.__file__).parent)
    if not (home / "bin" / "spark-submit").exists():
        if not spark_home:
            return None
        raise NdcgSparkError(
            f"SPARK_HOME is {spark_home!r}, which has no bin/spark-submit: unset it, to use the Spark of "
            f"the installed pyspark {pyspark.__version__}."
        )
    version_match = re.search(
        r"-([\d.]+)[^-]*\.jar$", next((path.name for path in home.glob("jars/spark-core_*.jar")), "")
    )
    if version_match and version_match[1].split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise NdcgSparkError(
            f"SPARK_HOME is {str(home)!r}, a Spark {version_match[1].rstrip('.')}, and the installed pyspark is "
            f"{pyspark.__version__}: unset SPARK_HOME, or pip install pyspark=={version_match[1].rstrip('.')}."
        )
    return home


def _check_temporary_folder() -> None:
    try:
        tempfile.gettempdir()
    except OSError as error:  # gettempdir has tried each candidate with a small file
        raise NdcgSparkError(
            f"{error.strerror or error}: free space in one of them, or set TMPDIR to a folder on another disk."
        ) from None


def _check_local_folders(settings: Mapping[str, str]) -> None:
    """Refuse if no temporary folder is writable: Spark's Java would end without a message."""
    name = "SPARK_LOCAL_DIRS" if "SPARK_LOCAL_DIRS" in os.environ else "spark.local.dir"
    folders = os.environ.get(name, settings.get(name))
    if folders is None:
        return
    why = "the list is empty"
    for folder in filter(None, folders.split(",")):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return
        why = "Permission denied"
    raise NdcgSparkError(
        f"{name} is {folders!r}, where Spark cannot have temporary files ({why}): name another folder."
    )


def _check_open_file_limit(home: Path) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # the hard limit: Java raises the soft limit to it
    needed = len(list(home.glob("jars/*.jar"))) + _FILES_BESIDE_JARS
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise NdcgSparkError(
            f"a process may open {limit} files (ulimit -n), and Spark needs at least {needed}: raise the limit, for "
            "example to 4096."
        )


def _check_java(home: Path) -> None:
    if (Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-env.sh").exists():
        return  # it may set JAVA_HOME
    oldest = 8 if pyspark.__version__.startswith("3.") else 17
    hint = f"install Java {max(oldest, 17)}, or set JAVA_HOME to one"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(java_home, "bin", "java") if java_home else "java")
    if java is None:
        raise NdcgSparkError(
            f"Spark needs Java, and there is no bin/java in JAVA_HOME={java_home!r}: {hint}."
            if java_home
            else f"Spark needs Java, and there is no java on PATH: {hint}."
        )
    try:
        release = (Path(java).resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:  # some have no such file
        return
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if version and int(version[1]) < oldest:
        raise NdcgSparkError(f"Spark needs Java {oldest} or later, and {java} is Java {version[1]}: {hint}.")


def _check_worker_python(python: str) -> None:
    if python == sys.executable:
        return
    hint = f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={sys.executable}"
    if shutil.which(python) is None:
        raise NdcgSparkError(f"PYSPARK_PYTHON is {python!r}, which is not an executable: {hint}.")
    try:
        answer = subprocess.run(
            [python, "-c", _PRINT_VERSION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NdcgSparkError(f"PYSPARK_PYTHON is {python!r}, which does not run ({error}): {hint}.") from None
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if answer.returncode:
        last = (answer.stderr.strip() or f"exit code {answer.returncode}").splitlines()[-1]
        raise NdcgSparkError(f"PYSPARK_PYTHON is {python!r}, which does not run ({last}): {hint}.")
    if answer.stdout.strip() != version:
        raise NdcgSparkError(
            f"PYSPARK_PYTHON is {python!r}, Python {answer.stdout.strip()}, and this program runs Python {version} "
            f"({sys.executable}); Spark needs the same for both: {hint}."
        )


@contextmanager
def open_session(
    app_name: str,
    settings: Mapping[str, str],
    *,
    long_rows: bool,
    small_tables: bool = False,
    tables: Mapping[str, str] = {},
) -> Iterator[SparkSession]:
    """Open a session, and stop it afterwards if it was created here. `settings` are for a local session only.

    `long_rows`: ten thousand rows may not fit into memory, so Spark must check the size of batches.
    `small_tables`: no rankings are read, so a local session is set up to start and plan quickly. `tables` are the
    catalog tables that will be written, and their kinds; an in-memory catalog is refused.
    """
    check_arrow()
    # It logs a stack trace for errors that we report in one line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with handle_interrupts() as interrupts:
        active = SparkSession.getActiveSession()
        if active is not None or any(name in os.environ for name in PROVIDED):
            if settings:
                raise InvalidParameterError(
                    "--conf is for a session that the job starts; here the session is set up from outside."
                )
            spark = active or SparkSession.builder.appName(app_name).getOrCreate()
            if active is None and "SPARK_REMOTE" in os.environ and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
                add_package_to_workers(spark)  # users cannot do that themselves here; Databricks installs packages
            interrupts.finish_start()
            if active is None and not _is_remote(spark):
                _refuse_temporary_tables(spark, tables)
            yield spark
            return
        with as_file(files("ndcg_spark.jobs") / "log4j2-quiet.properties") as log_settings:
            quick = SMALL_TABLES if small_tables else {}
            java = (
                f'"-Dlog4j2.configurationFile={log_settings}"',
                quick.get(JAVA_OPTIONS, ""),
                settings.get(JAVA_OPTIONS, ""),
            )
            use_this_python()
            check_environment(settings)
            python = settings.get("spark.pyspark.python", os.environ["PYSPARK_PYTHON"])
            spark = _start_local(
                app_name,
                {
                    **build_local_settings(python, long_rows=long_rows),
                    **quick,
                    **settings,
                    JAVA_OPTIONS: " ".join(filter(None, java)),
                },
            )
            try:
                interrupts.finish_start()
                _refuse_temporary_tables(spark, tables)
                yield spark
            finally:
                with warnings.catch_warnings():
                    if interrupts.seen:
                        warnings.simplefilter("ignore")  # the call after an interrupted one may fail too
                    spark.stop()


def _is_remote(spark: SparkSession) -> bool:
    """Check whether the session is on a server that somebody else runs: its catalog outlives the job."""
    on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    return on_connect and not os.environ.get("SPARK_REMOTE", "").startswith("local")


def _refuse_temporary_tables(spark: SparkSession, tables: Mapping[str, str]) -> None:
    """Refuse catalog tables that end with this session: their files would block the next session."""
    names = list_session_tables(spark, tables)
    if names:
        folders = ", ".join(f"./{table.replace('`', '')}" for table in names)
        raise OutputRefusedError(
            f"table{'s' * (len(names) > 1)} {', '.join(map(repr, names))} would be lost when the job ends: the "
            f"catalog of its session is kept in memory. To write a folder, name a path ({folders}); to keep a table, "
            f"start Spark with {LASTING_CATALOG}."
        )


def build_local_settings(python: str, *, long_rows: bool) -> dict[str, str]:
    """Build the settings of a local session whose workers run `python`."""
    cores = os.cpu_count() or 1
    batch_size = {} if long_rows else {BATCH_BYTES: MAX_BATCH_BYTES}
    own_daemon = worker_daemon.SETTINGS if python == sys.executable else {}
    return {
        **batch_size,
        **own_daemon,
        "spark.master": f"local[{cores}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{_compute_driver_memory()}m",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # it captures the stack at every column expression
        "spark.sql.files.maxPartitionBytes": "32m",  # smaller partitions fit the caches of a core when sorted
        "spark.sql.shuffle.partitions": str(32 * cores),  # adaptive execution merges small partitions
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
    }


def _compute_driver_memory() -> int:
    """Return the megabytes for the JVM: a third of the machine's memory, between 1 and 8 GB."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError, AttributeError):
        total = 3072
    return max(1024, min(8192, total // 3))


def _start_local(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError  # a client of Spark Connect has none

    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        if "JAVA_GATEWAY" in get_condition(error):
            raise NdcgSparkError(
                "Spark could not start; Java's message above says why: a refused setting, too little memory, or "
                "a Java that is too old (set JAVA_HOME to another)."
            ) from error
        raise
    except (OSError, Py4JError) as error:  # such as an unwritable temporary folder, or a refused setting
        unfit = explain_environment_error(error)
        raise unfit or NdcgSparkError(f"Spark could not start: {first_line(error)}") from error
