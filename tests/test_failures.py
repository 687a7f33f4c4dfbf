"""What is read out of the errors of Spark, old and new."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from ndcg_spark.spark.failures import condition_of, first_line


class OldError(PySparkException):
    """As Spark 3.5 has it: `getCondition` and `getMessage` came with 4.0."""

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
    assert condition_of(error) == condition
    assert first_line(error) == "[PATH_NOT_FOUND] Path does not exist: /x"
