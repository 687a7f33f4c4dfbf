"""What Spark raises, on classic sessions and on Connect, and the line of it that a person needs."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

try:
    from py4j.protocol import Py4JError
except ImportError:  # a client of Spark Connect has no JVM beside it
    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
else:
    SPARK_ERRORS = (PySparkException, Py4JError)

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
    return text.strip().splitlines()[0]
