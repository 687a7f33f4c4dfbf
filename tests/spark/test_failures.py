"""What is read out of the errors of Spark, old and new."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ndcg_spark.cli.accounts import refusal_of
from ndcg_spark.errors import mark_refusal
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


def test_a_refusal_that_spark_3_5_hands_on_as_an_error_of_java() -> None:
    raised = mark_refusal("an item comes twice in the ranking of query q=1.")
    error = Py4JError(
        f"An error occurred while calling o1.collectToPython.\n: java.lang.RuntimeException: {raised}\n\tat x"
    )
    assert str(refusal_of(error, Mock())) == "an item comes twice in the ranking of query q=1. Nothing was written."
