"""`log_evaluation`: what a run of MLflow holds afterwards, in a store of files."""

from __future__ import annotations

import math

import pytest
from support.oracle import Row
from support.spark_rankings import scored_table

from ndcg_spark import evaluate
from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InputRefusedError, MissingColumnError, MissingPackageError
from ndcg_spark.mlflow import log_evaluation, mlflow_name

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
    found = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'ndcg-spark[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = found.get_tracking_uri()
    found.set_tracking_uri((tmp_path / "runs").as_uri())
    yield found
    found.end_run()
    found.set_tracking_uri(before)


@pytest.fixture(scope="module")
def result(spark):
    return evaluate(scored_table(spark, ROWS), k=[1, 2], convention="trec_eval", segments=["query_id"])


def test_a_run_has_means_convention_and_segments(mlflow, result):
    with mlflow.start_run() as run:
        logged = log_evaluation(result, step=7)
    assert logged == {name: pytest.approx(value) for name, value in {**MEANS, "ndcg_at_2": MEANS["dcg_at_2"]}.items()}
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics == logged
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "ndcg_at_2")
    assert [one.step for one in history] == [7]
    assert data.params["convention"] == "trec_eval"
    assert data.params["convention.ties"] == "item_desc"
    assert {name.partition(".")[2] for name in data.params} >= {"gain", "discount", "no_relevant", "pad_to_k"}
    assert data.tags["ndcg_spark.config_hash"] == result.plan.digest
    table = mlflow.load_table("ndcg_spark/segments.json", run_ids=[run.info.run_id])
    of_a = table[(table["segment"] == "a") & (table["metric"] == "ndcg")]
    assert sorted(of_a["value"]) == [0.0, pytest.approx(SECOND)]
    assert "state" not in table.columns


def test_rows_of_a_metric_table_and_several_rankers(mlflow, spark):
    night = evaluate(scored_table(spark, ROWS), metrics=["p(rel=1)@1", "rr"]).summary
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
    assert data.params["convention.gain"] == "linear"
    assert (data.tags["ndcg_spark.config_hash"], data.tags["ndcg_spark.version"]) == ("c0ffee", "9.9")
    two = night.unionByName(night.drop("config_hash").selectExpr("*", "'beef' as config_hash"))
    with pytest.raises(InputRefusedError, match=r"several values of config_hash \(beef, c0ffee\)"):
        log_evaluation(two)
    clash = night.withColumnRenamed("run", "its").selectExpr("*", "if(its = 'old', 'new\\\\model', its) as run")
    with pytest.raises(InputRefusedError, match="by one name"):
        log_evaluation(clash)
    with pytest.raises(InputRefusedError, match="no rows"):
        log_evaluation(night.limit(0))


def test_a_table_that_is_no_summary_is_refused(mlflow, result):
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
