"""`log_evaluation`: the content of a run of MLflow, in a store of files."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from datetime import date, datetime
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pyspark.sql import functions as F
from support import engines
from support.oracle import Row
from support.processes import run_process
from support.spark_rankings import SHORT_LIVED, create_scored_table

from ndcg_spark import evaluate
from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.errors import InputRefusedError, MissingColumnError, MissingPackageError
from ndcg_spark.mlflow import log_evaluation, mlflow_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    Row(query=query, item=item, score=score, relevance=relevance)
    for query, item, score, relevance in (
        ("a", "x", 2.0, 0.0),
        ("a", "y", 1.0, 1.0),
        ("b", "x", 2.0, 1.0),
        ("b", "y", 1.0, 0.0),
    )
]
SECOND = 1 / math.log2(3)  # NDCG of a list whose one relevant item is second
MEANS = {"dcg_at_1": 0.5, "dcg_at_2": (1 + SECOND) / 2, "idcg_at_1": 1.0, "idcg_at_2": 1.0, "ndcg_at_1": 0.5}


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow_module = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'ndcg-spark[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = mlflow_module.get_tracking_uri()
    mlflow_module.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow_module
    mlflow_module.end_run()
    mlflow_module.set_tracking_uri(before)


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def result(request):
    cells = [(row.query, row.item, row.score, row.relevance) for row in ROWS]
    table = engines.table(cells, "query_id string, item_id string, score double, relevance double")
    if request.param == "spark":
        table = convert_tables({"data": table}, request.getfixturevalue("spark"))["data"]
    return evaluate(table, k=[1, 2], convention="trec_eval", segments=["query_id"])


def test_a_run_has_means_convention_and_segments(mlflow, result):
    with mlflow.start_run() as run:
        logged = log_evaluation(result, step=7)
    assert logged == {name: pytest.approx(value) for name, value in {**MEANS, "ndcg_at_2": MEANS["dcg_at_2"]}.items()}
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics == logged
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "ndcg_at_2")
    assert [metric.step for metric in history] == [7]
    assert data.params["convention"] == "trec_eval"
    assert data.params["convention.ties"] == "item_desc"
    assert {name.partition(".")[2] for name in data.params} >= {"gain", "discount", "no_relevant", "pad_to_k"}
    assert data.tags["ndcg_spark.config_hash"] == result.settings.digest
    table = mlflow.load_table("ndcg_spark/segments.json", run_ids=[run.info.run_id])
    of_a = table[(table["segment"] == "a") & (table["metric"] == "ndcg")]
    assert sorted(of_a["value"]) == [0.0, pytest.approx(SECOND)]
    assert "state" not in table.columns


def test_a_run_has_the_metrics_of_each_query(mlflow, result):
    """Query a has its relevant item second, b first; timestamps are by the clock of the session."""
    with mlflow.start_run() as run:
        log_evaluation(result, prefix="test/", step=7)
        log_evaluation(result, per_query=False)
    client = mlflow.MlflowClient()
    files = [artifact.path for artifact in client.list_artifacts(run.info.run_id, "ndcg_spark")]
    assert sorted(files) == ["ndcg_spark/segments.json", "ndcg_spark/test_per_query_7.parquet"]
    rows = pq.read_table(client.download_artifacts(run.info.run_id, files[-1])).to_pylist()
    values = {(row["query_id"], row["k"]): row["ndcg"] for row in rows}
    assert values == {("a", 1): 0.0, ("a", 2): pytest.approx(SECOND), ("b", 1): 1.0, ("b", 2): 1.0}
    assert list(rows[0]) == list(
        getattr(result.per_query_table, "column_names", None) or result.per_query_table.columns
    )


def test_keys_of_every_kind_are_in_the_file(mlflow, spark):
    """Timestamps keep the session's time zone, which is not that of this process."""
    table = spark.sql(
        "SELECT timestamp'2026-01-31 23:30:00' AS at, date'2026-01-31' AS day, 1.5BD AS price, 'x' AS item_id, "
        "1.0D AS score, 1 AS relevance"
    )
    with mlflow.start_run() as run:
        log_evaluation(evaluate(table, query=["at", "price"], k=1, segments=["day"]))
    path = mlflow.MlflowClient().download_artifacts(run.info.run_id, "ndcg_spark/per_query.parquet")
    (row,) = pq.read_table(path).to_pylist()
    assert (row["at"], row["day"]) == (datetime(2026, 1, 31, 23, 30), date(2026, 1, 31))
    assert (row["price"], row["ndcg"]) == (Decimal("1.5"), 1.0)


@pytest.mark.slow
@pytest.mark.classic("a process with a session of its own")
def test_the_lines_of_the_docs_run_with_nothing_but_the_extra(tmp_path):
    """Packages of other extras and a tracking server are absent."""
    packages = tmp_path / "packages"
    packages.mkdir()
    link_packages(packages, extras=("spark", "mlflow"))
    page = (ROOT / "docs" / "mlflow.md").read_text(encoding="utf-8")
    (lines, _) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    assert "set_tracking_uri" not in lines
    (tmp_path / "example.py").write_text(BEFORE_EXAMPLE + lines + AFTER_EXAMPLE, encoding="utf-8")
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environment |= {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}", "SPARK_SUBMIT_OPTS": SHORT_LIVED}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    environment["PYSPARK_PYTHON"] = str(python)
    ended = run_process([python, "example.py"], tmp_path, environment)
    assert ended.code == 0, ended.err[-3000:]
    actual = json.loads(ended.out.splitlines()[-1])
    assert actual["uri"].endswith("mlflow.db")
    assert actual["metrics"] == pytest.approx(
        {
            "dcg_at_1": 0.0,
            "dcg_at_10": SECOND,
            "idcg_at_1": 1.0,
            "idcg_at_10": 1.0,
            "ndcg_at_1": 0.0,
            "ndcg_at_10": SECOND,
        }
    )
    assert actual["rows"] == 6


BEFORE_EXAMPLE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
schema = "query_id string, item_id string, score double, relevance double"
rankings = spark.createDataFrame([("q", "x", 2.0, 0.0), ("q", "y", 1.0, 1.0)], schema)
"""
AFTER_EXAMPLE = """
import json
run = mlflow.last_active_run()
table = mlflow.load_table("ndcg_spark/segments.json", run_ids=[run.info.run_id])
print(json.dumps({"uri": mlflow.get_tracking_uri(), "metrics": run.data.metrics, "rows": len(table)}))
"""


def link_packages(folder: Path, extras: tuple[str, ...]) -> None:
    """Link what pip would install for extras of this package: their requirements, recursively."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(requirement_text for extra in extras for requirement_text in project["optional-dependencies"][extra]),
    ]
    todo, seen = [(Requirement(requirement_text), "") for requirement_text in wanted], set()
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            pytest.skip(f"{requirement.name} is not installed: pip install 'ndcg-spark[{','.join(extras)}]'")
        for name in {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / name).exists():
                (folder / name).symlink_to(installed.locate_file(name))
        todo += [
            (Requirement(requirement_text), more)
            for requirement_text in installed.requires or ()
            for more in (requirement.extras or {""})
        ]


def test_rows_of_a_metric_table_and_several_rankers(mlflow, spark):
    night = evaluate(create_scored_table(spark, ROWS), metrics=["p(rel=1)@1", "rr"]).summary
    night = night.drop("run").crossJoin(spark.createDataFrame([("new/model",), ("old",)], "run string"))
    for name, value in (("convention", "default;gain=linear"), ("config_hash", "c0ffee"), ("package_version", "9.9")):
        night = night.selectExpr("*", f"'{value}' as {name}")
    logged = log_evaluation(night, prefix="nightly_")
    assert {name: round(value, 6) for name, value in logged.items()} == {
        "nightly_new_model/p_at_1": 0.5,
        "nightly_new_model/rr": 0.75,
        "nightly_old/p_at_1": 0.5,
        "nightly_old/rr": 0.75,
    }
    data = mlflow.get_run(mlflow.active_run().info.run_id).data
    assert data.params["nightly_convention.gain"] == "linear"
    tags = [data.tags[f"nightly_ndcg_spark.{name}"] for name in ("config_hash", "version")]
    assert tags == ["c0ffee", "9.9"]
    two = night.unionByName(night.drop("config_hash").selectExpr("*", "'beef' as config_hash"))
    with pytest.raises(InputRefusedError, match="'new_model/p_at_1' twice"):
        log_evaluation(two)
    two = night.unionByName(night.drop("package_version").selectExpr("*", "'9.8' as package_version"))
    with pytest.raises(InputRefusedError, match=r"several values of package_version \(9.8, 9.9\)"):
        log_evaluation(two)
    clash = night.withColumnRenamed("run", "its").selectExpr("*", "if(its = 'old', 'new\\\\model', its) as run")
    with pytest.raises(InputRefusedError, match="the same name in MLflow"):
        log_evaluation(clash)
    with pytest.raises(InputRefusedError, match="no rows"):
        log_evaluation(night.limit(0))


def test_rows_of_a_version_before_are_logged(mlflow, result):
    """It had neither requested names nor all counts."""
    gone = ("asked", "n_unjudged_items", "n_rejected", "n_lost_queries")
    stamps = ("convention", "config_hash", "package_version")
    if isinstance(result.summary, pa.Table):
        night = engines.with_columns(result.summary, **dict.fromkeys(stamps, "x"))
        old = night.drop_columns(list(gone))
    else:
        night = result.summary.withColumns({name: F.lit("x") for name in stamps})
        old = night.drop(*gone)
    assert log_evaluation(old) == log_evaluation(night)


def test_other_tables_are_refused(mlflow, result):
    with pytest.raises(MissingColumnError, match="'convention'"):
        log_evaluation(result.summary)


def test_every_choice_of_a_preset_is_a_parameter_that_mlflow_takes(mlflow):
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name

    for name in Convention.__dataclass_fields__:
        _validate_param_name(f"convention.{name}")
    for run, metric in (("", "ndcg"), ("../x", "p(rel=2)"), ("a'b\"\n", "err(max_rel=-0.5)"), ("é 中", "r")):
        _validate_metric_name(mlflow_name(run, metric, 10))


def test_without_mlflow_the_way_out_is_named(monkeypatch, result):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"ndcg-spark\[mlflow\]"):
        log_evaluation(result)
