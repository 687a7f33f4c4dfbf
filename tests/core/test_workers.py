"""Sessions whose Python workers run another Python than the program, one that lacks this package."""

from __future__ import annotations

import json
import os
import venv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.processes import ROOT, list_installed, run_process
from support.spark_rankings import SHORT_LIVED, session_settings

from ndcg_spark.core import session as settings
from ndcg_spark.core.workers import arrow_schema

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession
from ndcg_spark import evaluate, readable_errors

found = {"value": evaluate("rankings", k=1).summary.where("metric = 'ndcg'").head()["value"]}
SparkSession.getActiveSession().stop()

os.environ["PYSPARK_PYTHON"] = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
summary = evaluate(spark.read.parquet("rankings"), k=1).summary
try:
    summary.collect()
except Exception as error:
    found["raw"] = str(error)
try:
    with readable_errors():
        summary.collect()
except Exception as error:
    found["plain"] = [type(error).__name__, str(error)]
found["environment"] = os.environ["PYSPARK_PYTHON"]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Output of a program with a broken `python3` on PATH; it makes the second of its two sessions itself."""
    folder = tmp_path_factory.mktemp("workers")
    packages = folder / "packages"
    packages.mkdir()
    for path in list_installed():
        (packages / path.name).symlink_to(path)
    here, bare = make_python(folder / "here", packages, ROOT), make_python(folder / "bare", packages)
    (folder / "rankings").mkdir()
    rows = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [2.0, 1.0], "relevance": [1.0, 0.0]}
    pq.write_table(pa.table(rows), folder / "rankings" / "rows.parquet")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").write_text("#!/bin/sh\necho not this one >&2\nexit 1\n")
    (folder / "bin" / "python3").chmod(0o755)
    environment = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    java = f"{SHORT_LIVED} -Dspark.master=local[1] -Dspark.ui.enabled=false"
    environment |= {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "SPARK_SUBMIT_OPTS": java}
    ended = run_process([here, "program.py", bare], folder, environment | {"SPARK_LOCAL_IP": "127.0.0.1"})
    assert ended.code == 0, ended.err[-3000:]
    return {**json.loads(ended.out.splitlines()[-1]), "here": str(here), "bare": str(bare)}


def make_python(folder: Path, *paths: Path) -> Path:
    """Make an environment with the packages of these folders."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "packages.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "bin" / "python"


@pytest.mark.spark
@pytest.mark.classic("processes with sessions of their own")
def test_a_session_that_we_start_runs_this_python(report):
    assert report["value"] == 1.0


@pytest.mark.spark
@pytest.mark.classic("processes with sessions of their own")
def test_existing_session_is_unchanged_and_its_error_names_both_pythons(report):
    """The first line is Spark's own."""
    assert report["environment"] == report["bare"]
    line = (
        f"Python workers run {report['bare']}, which has no ndcg_spark, and this program runs {report['here']}: "
        f"export PYSPARK_PYTHON={report['here']} before the session is created."
    )
    assert report["plain"] == ["MissingPackageError", line]
    heading, first = report["raw"].strip().splitlines()[:2]
    assert "Python worker" in heading
    assert first == f"ModuleNotFoundError: {line}"


@pytest.mark.parametrize(
    ("variables", "local"),
    [
        ({}, True),
        ({"MASTER": "local[4]"}, True),
        ({"MASTER": "spark://there:7077"}, False),
        ({"PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell"}, True),
        ({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, False),
        ({"PYSPARK_SUBMIT_ARGS": "--conf spark.master=k8s://there pyspark-shell"}, False),
        ({"SPARK_REMOTE": "sc://there"}, False),
        ({"PYSPARK_GATEWAY_PORT": "1"}, False),
        ({"SPARK_CONF_DIR": "."}, False),
    ],
    ids=str,
)
def test_would_run_locally_without_a_session(tmp_path, monkeypatch, variables, local):
    (tmp_path / "spark-defaults.conf").write_text("# spark.master local\nspark.master   yarn\n")
    monkeypatch.chdir(tmp_path)
    for name in (*settings.PROVIDED, "MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings._would_be_local() == local


def test_times_of_no_zone_stay_so_for_workers(spark):
    schema = "a timestamp, b timestamp_ntz, c array<timestamp>, d struct<e: timestamp_ntz, f: timestamp>"
    with session_settings(spark, spark__sql__session__timeZone="America/New_York"):
        actual = arrow_schema(spark.createDataFrame([], schema).schema, spark)
    here, nowhere = pa.timestamp("us", tz="America/New_York"), pa.timestamp("us")
    assert [actual.field(name).type for name in "ab"] == [here, nowhere]
    assert actual.field("c").type.value_type == here
    assert [field.type for field in actual.field("d").type] == [nowhere, here]
