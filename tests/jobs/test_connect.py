"""Spark Connect with a server in a process of its own: the numbers and refusals of classic Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.connect_server import NoServerError, connect_server
from support.error_kinds import assert_expected_errors
from support.main_job import find_value, write_rows
from support.oracle import build_ranking
from support.spark_rankings import SHORT_LIVED_SETTINGS

pytestmark = [pytest.mark.spark, pytest.mark.classic("processes with sessions of their own")]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600  # seconds; shared machines may stall


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Of the client: no session of the tests, and this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose Python workers do not have the package."""
    with ExitStack() as stack:
        try:
            folder = tmp_path_factory.mktemp("connect")
            yield stack.enter_context(connect_server(folder, settings=SHORT_LIVED_SETTINGS))
        except NoServerError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def seen(server: str, environment: dict[str, str]) -> dict[str, Any]:
    client = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "connect_client.py", server],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert client.returncode == 0, client.stderr[-3000:]
    return json.loads(client.stdout)


def test_a_long_table(seen):
    """The first worked example of the specification."""
    expected = [[1, 3.0, 3.0, 1.0], [6, 6.861127, 7.140995, 0.960808]]
    assert [pytest.approx(row, abs=5e-7) for row in sorted(seen["per_query"])] == expected
    assert seen["means"] == {"1": 1.0, "6": pytest.approx(0.960808, abs=5e-7)}


def test_a_path_is_read_by_the_session_that_the_user_made(seen):
    """By `.remote(...)`, without an address in the environment; as on classic sessions, folders are checked.

    Of parquet and of csv; text of a DataFrame is refused.
    """
    source, means, (name, text), runs, refused = seen["path"]
    assert (source, means) == ("spark", pytest.approx([0.960808] * 2, abs=5e-7))
    assert "is string, not a number" in refused[1]
    assert name == "InputRefusedError"
    assert "levels' has data files on two levels" in text
    assert runs == ["007", "7"]


def test_columns_over_arrays(seen):
    """By hand: (3 + 1/log2(3)) / (3 + 3/log2(3)), and 7 + 1/log2(3)."""
    names, values = seen["columns"]
    assert names == ["ndcg(ranked)", "ndcg(ranked, ideal)", "dcg(ranked)"]
    assert values == pytest.approx([1.0, 0.742098, 7.630930], abs=5e-7)


def test_workers_have_the_package_once_it_is_shipped(seen):
    name, text = seen["lacking"]
    assert name == "MissingPackageError"
    assert text.startswith("Python workers run ")
    assert (
        f"which has no ndcg_spark, and this program runs {sys.executable}: call "
        "ndcg_spark.add_package_to_workers(spark) first" in text
    )
    assert seen["shipped"] == [True, True]


def test_errors_are_those_of_a_classic_session(seen):
    """Of which test_error_kinds.py expects the same."""
    assert_expected_errors(seen["errors"])
    assert "boom" in seen["crash"]


READ_TABLE = """
import json, sys
from pyspark.sql import SparkSession
table = SparkSession.builder.remote(sys.argv[1]).getOrCreate().table("metrics_of_a_job")
rows = table.where("metric = 'ndcg' and k = 6").selectExpr("string(run_date)", "value").collect()
print(json.dumps([list(row) for row in rows]))
"""


def test_a_job_with_a_server_in_its_environment_ships_the_package_itself(server, environment, tmp_path):
    """A session of its own, which has nothing of what other sessions of the server were sent.

    The catalog is that of the server, in whose memory the table of the job is found later.
    """
    source = write_rows(tmp_path / "rows.parquet", build_ranking([3, 2, 3, 0, 1, 2]))
    ended = subprocess.run(
        [
            sys.executable,
            ROOT / "jobs" / "mean_ndcg.py",
            "--input",
            source,
            *["--convention", "linear", "--k", "6", "--json", "-", "--output", "metrics_of_a_job"],
            *["--run-date", "2026-01-31"],
        ],
        env=environment | {"SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert find_value(json.loads(ended.stdout.splitlines()[-1]), "ndcg", 6) == pytest.approx(0.960808, abs=5e-7)
    actual = subprocess.run(
        [sys.executable, "-c", READ_TABLE, server], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert json.loads(actual.stdout) == [["2026-01-31", pytest.approx(0.960808, abs=5e-7)]], actual.stderr[-3000:]


def test_clicks(seen):
    """Labels by hand: propensity 3/6, (6 + 2 * 3) / 20; A = 6 + 2 * 3; positions have no SNIPS."""
    fitted = seen["clicks"]["fitted"]
    assert fitted[0]["n_iterations"] == 6
    assert seen["clicks"]["labels"] == {"a": 0.6}
    assert seen["clicks"]["estimate"] == [12.0, None]


def test_models_are_chosen_by_an_evaluator(seen):
    actual = seen["ml"]
    assert actual["ours"] == actual["evaluate"]
    assert actual["metrics"][1] > actual["metrics"][0]  # factors that were fitted, and those that ALS begins with


def test_a_job_is_refused_in_a_line(seen):
    for case, message, end in (
        ("bad", "1 bad row of 2 in the input: nan_score 1", "leaves such rows out."),
        ("corrupt", "z.parquet", "Nothing was written."),
    ):
        code, (line,) = seen["jobs"][case]
        assert code == 2
        assert message in line
        assert line.endswith(end)


def test_a_report_says_what_it_says_on_a_classic_session(seen):
    # the same values as in tests/reports/test_report.py
    assert seen["report"] == [
        "NDCG@10 of new fell by 0.0200 to 0.4210 since 29 January 2026: country=DE fell from 0.4510 to 0.4310",
        10,
        [20, 20],
        "query 7 · DE",
        4,
    ]


def test_comparisons(seen):
    """The worked comparison, with digits."""
    actual = seen["comparisons"]
    plain, clustered = actual["plain"], actual["clustered"]
    assert (plain["p_value"], plain["p_sign_flip"]) == (pytest.approx(0.019159835596, abs=5.1e-13), 0.021484375)
    assert plain["boot_low"] == pytest.approx(0.022714646424, abs=5.1e-13)
    assert clustered["std_error"] == pytest.approx(0.034184728740, abs=5.1e-13)
    independence, difference, low, n_days = actual["week"]  # of one night: its numbers
    assert (independence, difference, n_days) == ("query", plain["difference"], 1)
    assert low == plain["boot_low"]
    assert actual["changed"] > 0
    assert actual["sums"] == pytest.approx([1.0] * 6, abs=1e-12)
