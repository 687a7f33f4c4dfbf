"""Reasons read from errors of Spark, old and new."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from ndcg_spark.core.failures import (
    explain_environment_error,
    first_line,
    get_condition,
    is_denied,
    is_unsupported,
    readable_errors,
)
from ndcg_spark.errors import (
    InputRefusedError,
    InvalidParameterError,
    MissingPackageError,
    OutputRefusedError,
    mark_refusal,
)
from ndcg_spark.jobs.outputs import build_refusal
from ndcg_spark.jobs.runner import describe_end
from ndcg_spark.tables import convert_write_errors

Py4JError = pytest.importorskip("py4j.protocol", reason="a client of Spark Connect has no Java").Py4JError


class OldError(PySparkException):
    """An error of Spark 3.5: `getCondition` and `getMessage` came with 4.0."""

    # stands in for: an error of Spark 3.5, because there is one Spark here; scripts/test-matrix has the other

    getCondition = property()  # noqa: N815  # looked up, it is not there
    getMessage = property()  # noqa: N815  # the same

    def __init__(self, text: str, name: str | None) -> None:
        Exception.__init__(self, text)
        self.text, self.name = text, name

    def getErrorClass(self) -> str | None:  # noqa: N802  # Spark's name
        return self.name

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(("name", "condition"), [("PATH_NOT_FOUND", "PATH_NOT_FOUND"), (None, "")])
def test_errors_of_spark_3_5(name: str | None, condition: str) -> None:
    error = OldError("[PATH_NOT_FOUND] Path does not exist: /x\n  at org.apache", name)
    assert get_condition(error) == condition
    assert first_line(error) == "[PATH_NOT_FOUND] Path does not exist: /x"


ON_A_CLUSTER = """Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: Lost task 1.3 in stage 3.0 (TID 9) (10.0.0.2 executor 1): org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/x/rows. SQLSTATE: 58030
\tat x
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat x
\tSuppressed: org.apache.hadoop.fs.FSError: java.io.IOException: cannot be closed
Caused by: java.io.IOException: No space left on device
\t... 9 more
"""  # noqa: E501  # a line of Spark


def test_failed_write_has_its_cause() -> None:
    """The condition names the place; Spark reports what was thrown last as the last cause."""
    of_java = Py4JError(f"x\n: org.apache.spark.SparkException: {ON_A_CLUSTER}")
    for error in (OldError(ON_A_CLUSTER, "TASK_WRITE_FAILED"), of_java):
        assert first_line(error) == "No space left on device"
    assert first_line(OldError(ON_A_CLUSTER.split("\n")[0], None)).startswith("Job aborted due to stage failure")


LINES = "\n  File x.py, line 3, in f\n    g()\n    ^^^\n"
IN_PYTHON = {
    "3.5": f"\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
           f"Traceback (most recent call last):{LINES}MemoryError: no room for 8 GiB\n",
    "a write": f"[TASK_WRITE_FAILED] Task failed.\n\tat x\nCaused by: org.apache.spark.api.python.PythonException: "
               f"Traceback (most recent call last):{LINES}MemoryError: no room for 8 GiB\n\n\tat org.apache\n",
}  # fmt: skip
LOST = {
    **IN_PYTHON,
    "executor": "Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure: Lost "
                "task (executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
    "worker": "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
    "heap": "Caused by: java.lang.OutOfMemoryError: Java heap space",
    "session": "Job 3 cancelled because SparkContext was shut down",
}  # fmt: skip


@pytest.mark.parametrize("text", IN_PYTHON.values(), ids=IN_PYTHON)
def test_an_error_in_python_is_named(text: str) -> None:
    assert first_line(OldError(text, None)) == "MemoryError: no room for 8 GiB"
    assert describe_end(OldError(text, None), 0) == ("failed", "OldError: MemoryError: no room for 8 GiB")


@pytest.mark.parametrize("text", LOST.values(), ids=LOST)
def test_crash_during_a_write_is_not_a_refusal(text: str) -> None:
    """The next run may succeed; exit code 2 means that it will not."""
    with pytest.raises(OldError), convert_write_errors("prod.metrics"):
        raise OldError(text, None)


def test_a_full_disk_of_a_worker_is_a_refusal_of_the_output() -> None:
    full = f"Traceback (most recent call last):{LINES}OSError: [Errno 28] No space left on device"
    with pytest.raises(OutputRefusedError, match=r"prod\.metrics"), convert_write_errors("prod.metrics"):
        raise OldError(full, None)


def test_packages_that_workers_lack_are_named_in_a_write_too() -> None:
    text = f"Traceback (most recent call last):{LINES}ModuleNotFoundError: No module named 'numpy'"
    with pytest.raises(MissingPackageError, match="do not have numpy"), convert_write_errors("prod.metrics"):
        raise OldError(text, None)


def test_lost_java_process_is_not_a_refusal() -> None:
    with pytest.raises(ConnectionRefusedError), convert_write_errors("prod.metrics"):
        raise ConnectionRefusedError(111, "Connection refused")


def test_boxed_error_of_scala_has_its_content() -> None:
    """Example: a disk that fills up during an adaptive query."""
    boxed = "o1.save.\n: java.util.concurrent.ExecutionException: Boxed Exception\n\tat x\n"
    causes = "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n\tat x\n"
    assert first_line(Py4JError(f"An error occurred while calling {boxed}{causes}")).endswith(
        "No space left on device"
    )
    assert first_line(Py4JError(f"An error occurred while calling {boxed}")) == "Boxed Exception"


class Tables:
    """Tables of a job whose rows are valid."""

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        raise AssertionError("nothing is read for these errors")

    def add_hint(self, message: str) -> str:
        return message


def test_a_refusal_that_spark_3_5_hands_on_as_an_error_of_java() -> None:
    raised = mark_refusal("an item appears twice in the ranking of query q=1.")
    error = Py4JError(
        f"An error occurred while calling o1.collectToPython.\n: java.lang.RuntimeException: {raised}\n\tat x"
    )
    assert (
        str(build_refusal(error, Tables()))
        == "an item appears twice in the ranking of query q=1. Nothing was written."
    )


class Advising(Tables):
    def add_hint(self, message: str) -> str:
        return f"{message} Remove it."


def test_refusals_of_python_and_spark_get_advice() -> None:
    raised, other = InputRefusedError("an item appears twice."), OutputRefusedError("there is no folder.")
    assert str(build_refusal(raised, Advising())) == "an item appears twice. Remove it. Nothing was written."
    assert build_refusal(raised, Tables()) is raised
    assert build_refusal(other, Advising()) is other


SPARK_4 = """An error occurred while calling o660.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///x/b.parquet.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
Caused by: java.lang.RuntimeException: file:/x/b.parquet is not a Parquet file.
\tat org.apache.parquet
Caused by: java.io.EOFException: the end
"""  # noqa: E501  # a line of Spark
SPARK_3_5 = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times: org.apache.spark.SparkException: [CANNOT_READ_FILE_FOOTER] Could not read footer for file: file:///x/b.parquet.
\tat x
"""  # noqa: E501  # a line of Spark
SPARK_3_5_TASK = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted: Lost task 1.0 in stage 2.0 (TID 2) (10.0.0.1 executor driver): java.lang.RuntimeException: file:/x/b.parquet is not a Parquet file. Expected magic number at tail, but found [1, 2]
\tat x
"""  # noqa: E501  # a line of Spark


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SPARK_4,
            "Encountered error while reading file file:///x/b.parquet (file:/x/b.parquet is not a Parquet file)",
        ),
        (SPARK_3_5, "Could not read footer for file: file:///x/b.parquet"),
        (
            SPARK_3_5_TASK,
            "file:/x/b.parquet is not a Parquet file (Expected magic number at tail, but found [1, 2])",
        ),
    ],
    ids=["4", "3.5", "3.5 in a task"],
)
def test_unreadable_file_is_not_a_crash(text: str, message: str) -> None:
    for error in (Py4JError(text), OldError(text, None)):
        assert (
            str(build_refusal(error, Tables())) == f"{message}; restore the file, or remove it. Nothing was written."
        )


FULL = (
    "x\n: java.io.IOException: No space left on device\n\tat java.base/java.io.FileOutputStream.writeBytes(Native)\n"
)
OF_OUTPUTS = (
    "\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:379)\n"
)
WORKER = "Python workers run /b/python, which has no ndcg_spark, and this program runs /a/python: install it."
MISMATCH = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot"
)
MISMATCH_OF_3_5 = MISMATCH.replace("version: 3.12", "version (3, 12)").replace("driver: 3.11", "driver 3.11")
SURROUNDINGS = {
    "a full disk of shuffles": (
        FULL + "\tat org.apache.spark.storage.TimeTrackingOutputStream.write(TimeTrackingOutputStream.java:59)",
        "Spark has no room for its temporary files (No space left on device): free space ",
    ),
    "a full disk of outputs": (FULL + OF_OUTPUTS + "\tat org.apache.spark.storage.x", None),
    "open files": (
        "x\n: java.io.FileNotFoundException: /tmp/x (Too many open files)",
        "Spark reached the limit of open files",
    ),
    "another Python": (MISMATCH, "Python workers run Python 3.12 ("),
    "another Python, in 3.5": (MISMATCH_OF_3_5, "Python workers run Python 3.12 ("),
    "no Python": (
        'x\n: java.io.IOException: Cannot run program "/no/python": error=2',
        "Python workers cannot run /no/python",
    ),
    "no package": (f"ModuleNotFoundError: {WORKER}\n\nThe above exception", WORKER),
    "an old path": ("ModuleNotFoundError: No module named 'scipy'", "Python workers do not have scipy: "),
    "something else": ("x\n: org.apache.spark.SparkException: [INTERNAL_ERROR] y", None),
}


@pytest.mark.parametrize(("text", "begins"), SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_missing_parts_of_spark_give_one_line(text: str, begins: str | None) -> None:
    for error in (Py4JError(text), OldError(text, None)):
        actual = explain_environment_error(error)
        if begins is None:
            assert actual is None
        else:
            assert str(actual).startswith(begins)
            assert "\n" not in str(actual)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_of_the_driver_gives_one_line(number: int) -> None:
    actual = explain_environment_error(OSError(number, os.strerror(number)))
    assert str(actual).startswith(f"{os.strerror(number)} for temporary files: free space in {tempfile.gettempdir()}")
    assert explain_environment_error(OSError(errno.EACCES, "Permission denied")) is None


def test_a_block_of_a_notebook_raises_refusals_as_ours() -> None:
    raised = Py4JError(f"x\n: java.lang.RuntimeException: {mark_refusal('query q=1 is bad.')}\n\tat x")

    def work(error: Exception) -> None:
        with readable_errors():
            raise error

    with pytest.raises(InputRefusedError) as caught:
        work(raised)
    assert str(caught.value) == "query q=1 is bad."
    assert caught.value.__suppress_context__  # no stack trace of Spark above it
    for other in (Py4JError("x"), AnalysisException(str(raised)), InvalidParameterError("k")):
        with pytest.raises(type(other)) as passed:
            work(other)
        assert passed.value is other


def test_another_error_of_spark_is_a_crash() -> None:
    assert build_refusal(Py4JError("x\n: org.apache.spark.SparkException: [INTERNAL_ERROR] y"), Tables()) is None


@pytest.mark.parametrize("error", [Py4JError(""), OldError("", None), OldError("\n", None), TimeoutError()], ids=repr)
def test_an_error_without_text_is_called_by_its_class(error: Exception) -> None:
    assert first_line(error) == type(error).__name__


@pytest.mark.parametrize(
    ("text", "unsupported", "denied"),
    [
        ("[NOT_IMPLEMENTED] inputFiles() is not implemented.", True, False),
        ("not supported: unresolved analyze_plan InputFiles", True, False),
        ("py4j.security.Py4JSecurityException: Method inputFiles() is not whitelisted on class Dataset", True, False),
        ("x\n: org.apache.hadoop.fs.s3a.AWSBadRequestException: AccessDenied", False, True),
        ("org.apache.hadoop.security.AccessControlException: Permission denied: user=etl", False, True),
        ("[INSUFFICIENT_PERMISSIONS] User does not have permission", False, True),
        ("java.net.SocketTimeoutException: Read timed out", False, False),
    ],
)
def test_unsupported_and_denied_operations(text: str, unsupported: bool, denied: bool) -> None:
    for error in (Py4JError(text), OldError(text, None)):
        assert (is_unsupported(error), is_denied(error)) == (unsupported, denied)


TYPES_IN_4 = """An error occurred while calling o660.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file file:///x/b%20c.parquet. Data type mismatches when reading Parquet column [relevance]. Expected Spark type bigint, actual Parquet type DOUBLE. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.parquetColumnDataTypeMismatchError(QueryExecutionErrors.scala:850)
Caused by: org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException: column: [relevance], physicalType: DOUBLE, logicalType: bigint
\tat org.apache.parquet
"""  # noqa: E501  # a line of Spark
TYPES_IN_3_5 = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: org.apache.spark.SparkException: Parquet column cannot be converted in file file:///x/b%20c.parquet. Column: [relevance], Expected: bigint, Found: DOUBLE.
\tat x
Caused by: org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException: column: [relevance], physicalType: DOUBLE, logicalType: bigint
\tat x
"""  # noqa: E501  # a line of Spark


@pytest.mark.parametrize("text", [TYPES_IN_4, TYPES_IN_3_5], ids=["4", "3.5"])
def test_files_with_two_types_get_advice_to_cast(text: str) -> None:
    said = (
        "file:///x/b%20c.parquet has column 'relevance' as DOUBLE, other files as bigint; cast it to one type in all "
        "files."
    )
    for error in (Py4JError(text), OldError(text, None)):
        assert str(build_refusal(error, Tables())) == f"{said} Nothing was written."
