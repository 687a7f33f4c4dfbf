"""Types that mypy infers for calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parents[2]
CALLS = """
from pathlib import Path
from typing import Literal

import pandas as pd
from pyspark.sql import DataFrame
from typing_extensions import assert_type

from ndcg_spark import evaluate
from ndcg_spark.evaluation import Evaluation, LocalEvaluation


def evaluated(spark: DataFrame, table: pd.DataFrame, path: Path, engine: Literal["auto", "local", "spark"]) -> None:
    assert_type(evaluate(spark, k=3), Evaluation)
    assert_type(evaluate(spark, table), Evaluation)
    assert_type(evaluate(table, spark), Evaluation)
    assert_type(evaluate(path, spark), Evaluation)
    assert_type(evaluate(table, k=3), LocalEvaluation)
    assert_type(evaluate(table, judgments=table), LocalEvaluation)
    assert_type(evaluate(table, items=table), Evaluation | LocalEvaluation)
    assert_type(evaluate(table, path), Evaluation | LocalEvaluation)
    assert_type(evaluate("run.parquet"), Evaluation | LocalEvaluation)
    assert_type(evaluate(path, engine="local", k=3), LocalEvaluation)
    assert_type(evaluate(table, engine="spark"), Evaluation)
    assert_type(evaluate(table, engine=engine), Evaluation | LocalEvaluation)
    evaluate(3)  # type: ignore[call-overload]
    evaluate(table, engine="sparc")  # type: ignore[call-overload]
"""


@pytest.mark.slow
def test_the_result_of_an_evaluation_is_of_the_engine_that_the_call_shows(tmp_path):
    """A wrong type is an error, and so is an unneeded `ignore`."""
    (tmp_path / "calls.py").write_text(CALLS)
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", tmp_path / "calls.py"],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "Success: no issues found in 1 source file\n", ended.stderr
