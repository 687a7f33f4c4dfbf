"""Errors of Spark, on classic sessions and on Connect, and the line that explains each."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ndcg_spark.core.redaction import redact
from ndcg_spark.errors import InputRefusedError, MissingPackageError, NdcgSparkError, find_refusal, to_one_line

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    SPARK_ERRORS: tuple[type[Exception], ...]
else:

    def __getattr__(name: str) -> Any:
        """Load Spark for whoever imports its errors by name; `spark_errors` does not."""
        if name != "SPARK_ERRORS":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import pyspark.errors  # noqa: F401  # spark_errors looks for it

        return spark_errors()


def spark_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the classes of Spark's errors, none in a process that has not loaded Spark, and others."""
    if "pyspark.errors" not in sys.modules:
        return others
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:  # a client of Spark Connect has no JVM beside it
        return PySparkException, *others
    return PySparkException, Py4JError, *others


_UNREADABLE = re.compile(r"\[(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)\b[\w.]*\] ([^\n]*)")
"""Conditions under which Spark cannot read a file (the latter until 3.5), and their message."""
_OTHER_HEADER = re.compile(
    r"(?:CSV header does not conform to the schema|Number of column in CSV header is not equal).*?^CSV file: (\S+)",
    re.DOTALL | re.MULTILINE,
)
"""A csv file whose header differs from that of the file from which Spark took the columns."""
_OTHER_TYPE = re.compile(
    r"\bfile (\S+?)\.?\s.*?column: \[([^\]\n]*)\], physicalType: (\w+), logicalType: ([\w(), ]+?)[\s;]", re.DOTALL
)
"""A Parquet file in which a column has another type than in the other files."""
_NOT_PARQUET = re.compile(r"^.*RuntimeException: (\S+ is not a Parquet file)\. ([^\n]*)$", re.MULTILINE)
"""Message of Spark 3.5 in a task, without a condition."""
_MISSING_MODULE = re.compile(r"\bModuleNotFoundError: No module named '(ndcg_spark|numpy|pandas|pyarrow|scipy)\b")
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|ClassNotFoundException: Class \S*FileSystem\S* not found")
"""Messages of Hadoop about a scheme that it does not know, or whose connector is missing."""
_CLOUDS = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")
"""Schemes whose connectors Spark publishes together."""
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_WITH_COLON = re.compile(r"Relative path in absolute URI: \S*:\S*")
"""Message of Hadoop about the name of a local file that it takes for a scheme."""
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)+[\w$]+: (.*)$", re.MULTILINE)
_PYTHON_CAUSE = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$", re.MULTILINE)
_UNEXPLAINED = re.compile(
    r"\[TASK_WRITE_FAILED\]|^Boxed Exception$|thrown from the Python worker|^Traceback \(most recent"
)
"""Lines that name the place or the wrapper of a failure, not its reason, which is the last of the causes."""
_DISK_FULL = re.compile(r"No space left on device|[Qq]uota exceeded")
_SPARK_DISK_FULL = re.compile(
    r"(No space left on device|[Qq]uota exceeded)[^\n]*\n(?:\s*at (?:java|sun)[^\n]*\n)*"
    r"\s*at org\.apache\.spark\.(?:storage|shuffle|io|util)\."
)
"""A full disk to which Spark's own classes write: temporary files. Outputs are written by Hadoop's."""
_TOO_MANY_FILES = re.compile(r"Too many open files")
_OTHER_PYTHON = re.compile(
    r"Python in worker has different version:? (\([^)]*\)|\S+) than that in driver:? ([\d.]+),"
)
"""Messages of Spark 3.5 and 4."""
_NOT_EXECUTABLE = re.compile(r'IOException: Cannot run program "([^"\n]*)"')
_TMPDIR = "set TMPDIR to a folder on another disk"
WORKERS_RUN = "Python workers run"
"""Start of the message of workers that lack a package."""
_WORKERS_RUN = re.compile(rf"ModuleNotFoundError: ({WORKERS_RUN} [^\n]*)")
HOW_TO_INSTALL = "install it where they run."
HOW_TO_SHIP = (
    "call ndcg_spark.add_package_to_workers(spark) first, or install it where they run, or use spark-submit "
    "--py-files dist/ndcg_spark.zip."
)
_CRASH = re.compile(
    r"Traceback \(most recent call last\)|Python worker (?:exited unexpectedly|failed to connect back)"
    r"|ExecutorLostFailure|OutOfMemoryError|SparkContext (?:was|has been) shut ?down|stopped SparkContext"
    r"|Answer from Java side is empty|StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION"
)
"""Messages about a worker, an executor or a session that died, or about code that failed."""
_UNSUPPORTED = re.compile(
    r"\bUNIMPLEMENTED\b|NOT_IMPLEMENTED|NOT_SUPPORTED|\[UNSUPPORTED_|UnsupportedOperationException"
    r"|\bnot (?:yet )?(?:implemented|supported)\b|Py4JSecurityException",
    re.IGNORECASE,
)
"""Messages of Spark, Connect servers, Sail and Databricks (the last) about features that they lack."""
_DENIED = re.compile(
    r"Access ?(?:is )?denied|AccessControlException|Permission ?denied|\b403\b|Forbidden|not authori[sz]ed"
    r"|PERMISSION_DENIED|INSUFFICIENT_PERMISSIONS",
    re.IGNORECASE,
)
"""Messages of file systems, stores and catalogs about a place that a user may not see."""
_JAVA_LINE = re.compile(r"^(?:: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.*)$", re.MULTILINE)


def _is_spark_error(error: Exception, name: str) -> bool:
    """Check for an error of a class of `pyspark.errors`, without loading Spark."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, getattr(errors, name))


def get_condition(error: PySparkException) -> str:
    """Return the condition of an error of Spark, such as `PATH_NOT_FOUND`; empty if it has none."""
    name = getattr(error, "getCondition", None) or error.getErrorClass  # the former came with Spark 4.0
    return name() or ""


def get_parameter(error: PySparkException, name: str) -> str | None:
    """Return a message parameter of an error of Spark, such as `relationName`; None if it has no such parameter."""
    return dict(error.getMessageParameters() or {}).get(name)  # of Spark 3.5 it is a map of Java


def first_line(error: Exception) -> str:
    """Extract the line that explains an error, of Spark or not; the name of its class if it has no text."""
    if _is_spark_error(error, "PySparkException"):
        message = getattr(error, "getMessage", None)  # it came with Spark 4.0
        text = (message() if message else None) or str(error)
    else:
        match = _JAVA_LINE.search(str(error))
        text = match.group(1) if match else str(error)
    line = next(iter(text.strip().splitlines()), type(error).__name__)
    if not _UNEXPLAINED.search(line):
        return _SQLSTATE.sub("", line).strip()
    in_python = _PYTHON_CAUSE.search(str(error))
    causes = [in_python[1]] if in_python else _CAUSE.findall(str(error))
    return _SQLSTATE.sub("", causes[-1] if causes else line).strip()


def is_crash(error: Exception) -> bool:
    """Check whether a worker, an executor or the session died, or code failed in a worker.

    False for a full disk of a worker: somebody has to free space before the job can run again.
    """
    text = str(error)
    return _CRASH.search(text) is not None and not _DISK_FULL.search(text)


def is_unsupported(error: Exception) -> bool:
    """Check whether an error says that the platform lacks a feature; False for the network, permissions, ..."""
    return _UNSUPPORTED.search(str(error)) is not None


def is_denied(error: Exception) -> bool:
    """Check whether an error says that this user may not see a place."""
    return _DENIED.search(str(error)) is not None


def explain_missing_file_system(error: Exception, reference: str) -> str | None:
    """Explain in a clause that Spark has no file system for a path, and how to add it; None for any other error."""
    if not _NO_FILE_SYSTEM.search(str(error)):
        return None
    scheme = reference.partition(":")[0]
    lacks = f"Spark has no file system for {scheme}"
    if scheme == "dbfs":
        return f"{lacks}, which exists only on Databricks"
    if scheme.lower() not in _CLOUDS:
        return f"{lacks}; add its connector"
    import pyspark

    scala = "2.12" if pyspark.__version__.startswith("3.") else "2.13"
    package = f"org.apache.spark:spark-hadoop-cloud_{scala}:{pyspark.__version__}"
    named = ", which calls it s3a" if scheme.lower() in ("s3", "s3n") else ""
    local = "a local job takes --conf spark.jars.packages=..."
    return f"{lacks}; start it with --packages {package}{named} ({local}), or use the cloud's own Spark"


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn Spark's errors about bad data into `InputRefusedError` with a message of one line.

    Results are lazy, so an action such as `collect` or `write` finds bad data. Spark then raises an error of its own,
    whose text is a stack trace with the message inside, and whose class differs between classic sessions and Connect.

    Yields
    ------
    None

    Raises
    ------
    InputRefusedError
        In place of an error of Spark about bad data or about a file that Spark cannot read.
    MissingPackageError
        In place of one about Python workers that lack a package or run another Python.
    NdcgSparkError
        In place of one about a full disk of Spark's own. Other errors pass unchanged.

    Examples
    --------
    >>> with readable_errors():  # doctest: +SKIP
    ...     evaluate(rankings, k=10).summary.show()
    InputRefusedError: bad row: nan_score at query_id=7
    """
    try:
        yield
    except spark_errors() as error:
        message, unfit = extract_refusal(error), explain_environment_error(error)
        if message is not None:
            raise InputRefusedError(message) from None
        if unfit is not None:
            raise unfit from None
        raise


def extract_refusal(error: Exception) -> str | None:
    """Extract the message of an error of Spark about the data; None for any other error."""
    if not isinstance(error, spark_errors()) or _is_spark_error(error, "AnalysisException"):
        return None  # an analysis error may print the plan, which contains messages that were never raised
    refusal = find_refusal(str(error)) or explain_unreadable_file(error)
    return None if refusal is None else to_one_line(redact(refusal))


def explain_environment_error(error: Exception) -> NdcgSparkError | None:
    """Explain a full disk of Spark's own, too many open files, or an unfit Python of workers; None otherwise."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NdcgSparkError(
            f"{error.strerror} for temporary files: free space in {tempfile.gettempdir()}, or {_TMPDIR}."
        )
    if not isinstance(error, spark_errors()):
        return None
    text = str(error)
    full = _SPARK_DISK_FULL.search(text)
    if full is not None:
        return NdcgSparkError(f"Spark has no room for its temporary files ({full[1]}): {_advise_on_full_disk()}")
    if _TOO_MANY_FILES.search(text):
        return NdcgSparkError("Spark reached the limit of open files (ulimit -n): raise it, for example to 4096.")
    return _explain_unfit_python(text)


def _advise_on_full_disk() -> str:
    """Advise where Spark has its temporary files, and how to move them."""
    local, spark = _find_local_session()
    if not local or spark is None:
        return "free space on the disks of its executors, or set spark.local.dir to other disks."
    folder = os.environ.get("SPARK_LOCAL_DIRS") or spark.conf.get("spark.local.dir", None) or "/tmp"
    named = "SPARK_LOCAL_DIRS" if os.environ.get("SPARK_LOCAL_DIRS") else "spark.local.dir"
    return f"free space in {folder}, or set {named} to a folder on another disk."


def _find_local_session() -> tuple[bool, SparkSession | None]:
    """Check whether the active session runs on this machine, and return it."""
    from pyspark.sql import SparkSession

    from ndcg_spark.core.session import runs_locally  # session imports this module

    with suppress(Exception):  # Java may have ended
        spark = SparkSession.getActiveSession()
        return spark is not None and runs_locally(spark), spark
    return False, None


def _explain_unfit_python(text: str) -> MissingPackageError | None:
    """Explain a package that Python workers lack, or a Python that does not run or is another one."""
    report = _WORKERS_RUN.search(text)
    if report is not None:
        return MissingPackageError(report[1])
    command = os.environ.get("PYSPARK_PYTHON") or "python3"
    differs, bad_program, lacks = (
        _OTHER_PYTHON.search(text),
        _NOT_EXECUTABLE.search(text),
        _MISSING_MODULE.search(text),
    )
    if differs is not None:
        driver_version, worker_version = (version.strip("()").replace(", ", ".") for version in differs.group(2, 1))
        problem = (
            f"Python workers run Python {worker_version} ({command}), and this program runs Python {driver_version} "
            f"({sys.executable})"
        )
    elif bad_program is not None:
        problem = f"Python workers cannot run {bad_program[1]}, and this program runs {sys.executable}"
    elif lacks is not None:
        local, _ = _find_local_session()
        problem = f"Python workers do not have {lacks[1]}"
        if not local or os.environ.get("PYSPARK_PYTHON") == sys.executable:
            return MissingPackageError(f"{problem}: {HOW_TO_INSTALL if lacks[1] != 'ndcg_spark' else HOW_TO_SHIP}")
        problem = f"{problem}: they run {command}, and this program runs {sys.executable}"
    else:
        return None
    return MissingPackageError(f"{problem}; export PYSPARK_PYTHON={sys.executable} before the session is created.")


def explain_unreadable_file(error: Exception) -> str | None:
    """Explain in a line which file Spark could not read, and why; None for any other error."""
    text = str(error)
    other = _OTHER_HEADER.search(text)
    if other:
        return f"{other[1]} has another header than the other files; give all files the same header, or remove it."
    typed = _OTHER_TYPE.search(f"{text}\n")
    if typed:
        file, column, actual, expected = typed.groups()
        return (
            f"{file} has column {column!r} as {actual}, other files as {expected}; cast it to one type in all files."
        )
    match = _UNREADABLE.search(text)
    if match is None:
        old = _NOT_PARQUET.search(text)
        return f"{old.group(1)} ({old.group(2).strip()}); restore the file, or remove it." if old else None
    line = _SQLSTATE.sub("", match.group(1)).strip().rstrip(".")
    if _WITH_COLON.search(text):
        return f"{line}. Spark does not read local files with a colon in their names; rename the file."
    cause = _CAUSE.search(text, match.end())
    why = f" ({cause.group(1).strip().rstrip('.')})" if cause else ""
    return f"{line}{why}; restore the file, or remove it."
