"""What Spark raises, on classic sessions and on Connect, and the line of it that a person needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyspark
from pyspark.errors import AnalysisException, PySparkException

from ndcg_spark.errors import InputRefusedError, MissingPackageError, find_refusal, one_line
from ndcg_spark.redaction import redacted

try:
    from py4j.protocol import Py4JError
except ImportError:  # a client of Spark Connect has no JVM beside it
    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
else:
    SPARK_ERRORS = (PySparkException, Py4JError)

_UNREADABLE = re.compile(r"\[(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER)\b[\w.]*\] ([^\n]*)")
"""The conditions under which Spark cannot read a file (the latter until 3.5), and what they say."""
_NO_PARQUET = re.compile(r"^.*RuntimeException: (\S+ is not a Parquet file)\. ([^\n]*)$", re.MULTILINE)
"""What Spark 3.5 says of such a file in a task, without a condition."""
_NOT_THERE = re.compile(r"\bModuleNotFoundError: No module named '(ndcg_spark|numpy|pandas|pyarrow|scipy)\b")
_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|ClassNotFoundException: Class \S*FileSystem\S* not found")
"""What Hadoop says of a scheme that it does not know, or whose connector is not there."""
_CLOUDS = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")
"""Schemes whose connectors Spark publishes together."""
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)+[\w$]+: (.*)$", re.MULTILINE)
_PYTHON_CAUSE = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$", re.MULTILINE)
_UNEXPLAINED = re.compile(
    r"\[TASK_WRITE_FAILED\]|^Boxed Exception$|thrown from the Python worker|^Traceback \(most recent"
)
"""Lines that say where something failed, or in what it was wrapped, not why; that is the last of the causes."""
_NO_ROOM = re.compile(r"No space left on device|[Qq]uota exceeded")
_CRASH = re.compile(
    r"Traceback \(most recent call last\)|Python worker (?:exited unexpectedly|failed to connect back)"
    r"|ExecutorLostFailure|OutOfMemoryError|SparkContext (?:was|has been) shut ?down|stopped SparkContext"
    r"|Answer from Java side is empty|StatusCode\.UNAVAILABLE|INVALID_HANDLE\.SESSION"
)
"""What is said of a worker, an executor or a session that is gone, or of code that failed."""
_JAVA_LINE = re.compile(r"^(?:: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.*)$", re.MULTILINE)


def condition_of(error: PySparkException) -> str:
    """Name the condition that an error of Spark stands for, as `PATH_NOT_FOUND`.

    Parameters
    ----------
    error : PySparkException

    Returns
    -------
    str
        Empty where it has none.
    """
    name = getattr(error, "getCondition", None) or error.getErrorClass  # the former came with Spark 4.0
    return name() or ""


def first_line(error: Exception) -> str:
    """Take the line that says what went wrong out of an error of Spark.

    Parameters
    ----------
    error : Exception
        One of `SPARK_ERRORS`.

    Returns
    -------
    str
    """
    if isinstance(error, PySparkException):
        message = getattr(error, "getMessage", None)  # it came with Spark 4.0
        text = (message() if message else None) or str(error)
    else:
        found = _JAVA_LINE.search(str(error))
        text = found.group(1) if found else str(error)
    line = text.strip().splitlines()[0]
    if not _UNEXPLAINED.search(line):
        return _SQLSTATE.sub("", line).strip()
    in_python = _PYTHON_CAUSE.search(str(error))
    causes = [in_python[1]] if in_python else _CAUSE.findall(str(error))
    return _SQLSTATE.sub("", causes[-1] if causes else line).strip()


def is_crash(error: Exception) -> bool:
    """Whether an error says that a worker, an executor or the session is gone, or that code failed in a worker.

    Parameters
    ----------
    error : Exception
        One of `SPARK_ERRORS`.

    Returns
    -------
    bool
        False where the disk of a worker is full: somebody has to make room before the job can run again.
    """
    text = str(error)
    return _CRASH.search(text) is not None and not _NO_ROOM.search(text)


def no_file_system(error: Exception, reference: str) -> str | None:
    """Say in a clause that Spark has no file system for a path, and what to add.

    Parameters
    ----------
    error : Exception
        One of `SPARK_ERRORS`.
    reference : str

    Returns
    -------
    str or None
        None where the error is about something else.
    """
    if not _NO_FILE_SYSTEM.search(str(error)):
        return None
    scheme = reference.partition(":")[0]
    lacks = f"Spark here has no file system for {scheme}"
    if scheme == "dbfs":
        return f"{lacks}, which is known on Databricks only"
    if scheme.lower() not in _CLOUDS:
        return f"{lacks}; add its connector"
    scala = "2.12" if pyspark.__version__.startswith("3.") else "2.13"
    package = f"org.apache.spark:spark-hadoop-cloud_{scala}:{pyspark.__version__}"
    named = ", which calls it s3a" if scheme.lower() in ("s3", "s3n") else ""
    local = "a local job takes --conf spark.jars.packages=..."
    return f"{lacks}; start it with --packages {package}{named} ({local}), or use the cloud's own Spark"


@contextmanager
def plain_refusals() -> Iterator[None]:
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
        In place of one about Python workers that lack this package, or one that it needs. Other errors pass
        unchanged.

    Examples
    --------
    >>> with plain_refusals():  # doctest: +SKIP
    ...     evaluate(rankings, k=10).summary.show()
    InputRefusedError: bad row: nan_score at query_id=7
    """
    try:
        yield
    except SPARK_ERRORS as error:
        message, missing = refusal_text(error), missing_on_workers(error)
        if message is not None:
            raise InputRefusedError(message) from None
        if missing is not None:
            raise missing from None
        raise


def refusal_text(error: Exception) -> str | None:
    """Find the line for a person in an error of Spark that is about the data.

    Parameters
    ----------
    error : Exception

    Returns
    -------
    str or None
        None where the error is about something else.
    """
    if not isinstance(error, SPARK_ERRORS) or isinstance(error, AnalysisException):
        return None  # an analysis error may print the plan, in which messages stand that were never raised
    found = find_refusal(str(error)) or unreadable_file(error)
    return None if found is None else one_line(redacted(found))


def missing_on_workers(error: Exception) -> MissingPackageError | None:
    """Find out whether Python workers lack this package, or one that it needs.

    Parameters
    ----------
    error : Exception

    Returns
    -------
    MissingPackageError or None
        None where the error is about something else.
    """
    found = _NOT_THERE.search(str(error)) if isinstance(error, SPARK_ERRORS) else None
    if found is None:
        return None
    if found.group(1) != "ndcg_spark":
        return MissingPackageError(f"Python workers do not have {found.group(1)}: install it where they run.")
    return MissingPackageError(
        "Python workers do not have ndcg_spark: call ndcg_spark.ship(spark) first, or install it where they run, or "
        "use spark-submit --py-files dist/ndcg_spark.zip."
    )


def unreadable_file(error: Exception) -> str | None:
    """Say in a line which file Spark could not read, and why.

    Parameters
    ----------
    error : Exception
        One of `SPARK_ERRORS`, which names the condition in its text, also as an error of Java.

    Returns
    -------
    str or None
        None where the error is about something else.
    """
    text = str(error)
    found = _UNREADABLE.search(text)
    if found is None:
        old = _NO_PARQUET.search(text)
        return f"{old.group(1)} ({old.group(2).strip()}); restore the file, or leave it out." if old else None
    line = _SQLSTATE.sub("", found.group(1)).strip().rstrip(".")
    cause = _CAUSE.search(text, found.end())
    why = f" ({cause.group(1).strip().rstrip('.')})" if cause else ""
    return f"{line}{why}; restore the file, or leave it out."
