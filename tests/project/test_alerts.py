"""Each alert of docs/examples/alerts finds its problem, and nothing else, in thirty nights of a metric table."""

from __future__ import annotations

import importlib.util
import re
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.evaluation.frames.summary import METRIC_SCHEMA
from ndcg_spark.jobs.run_log import RUN_LOG_SCHEMA

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
NIGHT = date(2026, 1, 31)
TABLES = {"prod.ranking_metrics": "metrics_of_alerts", "prod.run_log": "runs_of_alerts"}
STORED = [T.StructField("dataset", T.StringType()), T.StructField("run_date", T.DateType())]


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_alerts", EXAMPLES / "run_alerts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_alerts(spark: SparkSession, **options: int) -> dict[str, list[dict[str, Any]]]:
    alarms = load_example().run_alerts(spark, NIGHT, TABLES, **options)
    return {name: [row.asDict() for row in rows] for name, rows in alarms.items()}


def create_view(spark: SparkSession, rows: list[dict[str, Any]], schema: T.StructType, view: str) -> None:
    stored = T.StructType([*schema.fields, *STORED])
    values = [tuple(row.get(name) for name in stored.fieldNames()) for row in rows]
    frame: DataFrame = spark.createDataFrame(values, stored)
    frame.createOrReplaceTempView(view)


def metric(ago: int, value: float | None, *, run: str = "bm25", **more: Any) -> dict[str, Any]:
    """Build a row of the metric table, some nights ago."""
    row = {"run": run, "segment_by": "", "segment": "", "metric": "ndcg", "k": 10, "value": value, "n_queries": 100,
           "n_rows": 1000, "n_left_out": 10, "config_hash": "a", "dataset": "search",
           "run_date": NIGHT - timedelta(days=ago)}  # fmt: skip
    return row | more


def job(hours_ago: float, status: str, **more: Any) -> dict[str, Any]:
    """Build a row of the run log; `alarms` adds when it started, as an hour may pass before its tests run."""
    row = {"run_id": f"{status} {hours_ago}", "command": "mean-ndcg", "status": status, "dataset": "search",
           "hours_ago": hours_ago, "run_date": NIGHT, "rows_read": 1000, "rows_rejected": 1}  # fmt: skip
    return row | more


# Values alternate by 0.01 around 0.5: mean 0.5, standard deviation a little above 0.01.
USUAL = [metric(ago, 0.5 + 0.01 * (-1) ** ago) for ago in range(1, 29)]
SEGMENT = metric(0, 0.1, segment_by="country", segment="DE", n_left_out=900)
OTHER_METRIC = [metric(0, 0.1, metric="ap"), metric(0, 0.1, k=5)]

METRIC_CASES = {
    "a quiet night": ([*USUAL, metric(0, 0.49), SEGMENT, *OTHER_METRIC], {}),
    "no metrics for the night": (USUAL, {"night_missing": ("bm25",)}),
    "a run that came eight nights ago is no more missed": ([metric(8, 0.5, run="old"), metric(0, 0.5)], {}),
    "one of two runs is missing": (
        [*USUAL, metric(0, 0.5), metric(7, 0.5, run="dense")], {"night_missing": ("dense",)},
    ),
    "no metrics for eight nights": ([metric(8, 0.5)], {"night_missing": ("bm25",)}),
    "no metrics for a year": ([metric(365, 0.5), metric(366, 0.5)], {"night_missing": ("bm25",)}),
    "no metrics for eight nights, of the runs of the last one": (
        [metric(8, 0.5), metric(15, 0.5, run="dense"), metric(16, 0.5, run="old")],
        {"night_missing": ("bm25", "dense")},
    ),
    "a later night does not hide a missing one": (
        [metric(1, 0.5), metric(-1, 0.5)], {"night_missing": ("bm25",)},
    ),
    "a night before the first": ([metric(-1, 0.5)], {}),
    "below the bound": ([metric(0, 0.399), metric(0, 0.4, run="dense")], {"gate": ("bm25",)}),
    "no query counts": ([metric(0, None)], {"gate": ("bm25",)}),
    "a drop": ([*USUAL, metric(0, 0.46)], {"drop": ("bm25",)}),
    "a drop within what is usual": ([*USUAL, metric(0, 0.475)], {}),
    "a rise": ([*USUAL, metric(0, 0.9)], {}),
    "a drop of less than matters": ([*(metric(ago, 0.5) for ago in range(1, 29)), metric(0, 0.4951)], {}),
    "a drop after constant nights": ([*(metric(ago, 0.5) for ago in range(1, 29)), metric(0, 0.49)],
                                     {"drop": ("bm25",)}),
    "another configuration": ([*USUAL, metric(0, 0.46, config_hash="b")], {}),
    "too few nights": ([*USUAL[:6], metric(0, 0.46)], {}),
    "just enough nights": ([*(metric(ago, 0.5) for ago in range(1, 8)), metric(0, 0.46)], {"drop": ("bm25",)}),
    "nights long ago do not count": ([*(metric(29 + ago, 0.9) for ago in range(9)), metric(1, 0.5), metric(0, 0.5)],
                                     {}),
    "rows left out": ([metric(0, 0.5, n_left_out=60)], {"rows_left_out": ("bm25",)}),
    "nothing but rows left out": ([metric(0, 0.5, n_rows=0, n_left_out=60)], {"rows_left_out": ("bm25",)}),
    "no rows at all": ([metric(0, 0.5, n_rows=0, n_left_out=0)], {}),
}  # fmt: skip

RUN_CASES = {
    "all well": ([job(1, "succeeded")], {}),
    "failed": ([job(1, "failed")], {"run_failed": ("mean-ndcg",)}),
    "refused": ([job(1, "refused", rows_read=None)], {"run_failed": ("mean-ndcg",)}),
    "gate": ([job(1, "gate_not_met")], {"run_failed": ("mean-ndcg",)}),
    "flagged": ([job(1, "flagged", exit_code=0)], {}),
    "flagged, with fail-on-flag": ([job(1, "flagged", exit_code=3)], {"run_failed": ("mean-ndcg",)}),
    "interrupted": ([job(1, "interrupted")], {"run_failed": ("mean-ndcg",)}),
    "healed": ([job(2, "failed"), job(1, "succeeded")], {}),
    "failed again": ([job(2, "succeeded"), job(1, "failed")], {"run_failed": ("mean-ndcg",)}),
    "still running": ([job(5, "started", rows_read=None)], {}),
    "killed": ([job(7, "started", rows_read=None)], {"run_failed": ("mean-ndcg",)}),
    "another night": ([job(1, "failed", run_date=date(2026, 1, 30))], {}),
    "another command": ([job(2, "failed", command="report"), job(1, "succeeded")], {"run_failed": ("report",)}),
    "just the share of rows that may be rejected": ([job(1, "succeeded", rows_rejected=1)], {}),
    "rows rejected": ([job(1, "succeeded", rows_rejected=2)], {"rows_rejected": ("mean-ndcg",)}),
    "rows rejected earlier": ([job(2, "succeeded", rows_rejected=2), job(1, "succeeded")], {}),
}


@pytest.fixture(scope="module")
def alarms(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Rows of each alert; a case is a data set."""
    now = datetime.now(timezone.utc)
    for cases, schema, view in (
        (METRIC_CASES, METRIC_SCHEMA, "metrics_of_alerts"),
        (RUN_CASES, from_arrow_schema(RUN_LOG_SCHEMA), "runs_of_alerts"),
    ):
        named = [row | {"dataset": case} for case, (rows, _) in cases.items() for row in rows]
        started = [row | {"started_at": now - timedelta(hours=row.get("hours_ago", 0))} for row in named]
        create_view(spark, started, schema, view)
    return run_alerts(spark)


@pytest.mark.parametrize(("name", "cases"), [("run", METRIC_CASES), ("command", RUN_CASES)])
def test_alarms(alarms: dict[str, list[dict[str, Any]]], name: str, cases: dict[str, Any]) -> None:
    actual: dict[str, dict[str, tuple[str, ...]]] = {case: {} for case in cases}
    for alert, rows in alarms.items():
        for row in rows:
            if row["dataset"] in cases:
                of_case = actual[row["dataset"]]
                of_case[alert] = (*of_case.get(alert, ()), row[name])
    assert actual == {case: expected for case, (_, expected) in cases.items()}


def test_unfinished_job_is_an_alarm_once_all_should_have_ended(
    alarms: dict[str, list[dict[str, Any]]], spark: SparkSession
) -> None:
    """A task that runs after all jobs passes `--hours 0`; other alerts wait six hours."""
    now = {row["dataset"] for row in run_alerts(spark, hours=0)["run_failed"]}
    assert now - {row["dataset"] for row in alarms["run_failed"]} == {"still running"}


def test_rows_are_an_alarm_before_there_are_so_many_that_jobs_are_refused() -> None:
    config = (EXAMPLES / "night_tables.toml").read_text(encoding="utf-8")
    largest = re.search(r"^max-reject-fraction = (\S+)$", config, re.M).group(1)
    assert load_example().BOUNDS["rejected_share"] < float(largest)


def test_every_parameter_of_the_alerts_has_a_value() -> None:
    known = {"night", "hours", *load_example().BOUNDS}
    for path in (EXAMPLES / "alerts").glob("*.sql"):
        comment, query = path.read_text(encoding="utf-8").split("\n-- Put the name", 1)
        parameters = set(re.findall(r":(\w+)", query))
        assert parameters <= known
        assert parameters == set(re.findall(r"^-- :(\w+)  ", comment, re.M)), path.name


def test_the_folder_can_be_given(spark: SparkSession, tmp_path: Path) -> None:
    """Databricks runs the text of a script, without `__file__`."""
    names: dict[str, Any] = {"__name__": "run_alerts"}
    exec(compile((EXAMPLES / "run_alerts.py").read_text(encoding="utf-8"), "run_alerts.py", "exec"), names)
    (tmp_path / "one.sql").write_text("SELECT :night AS night", encoding="utf-8")
    actual = names["run_alerts"](spark, NIGHT, folder=tmp_path)
    assert {name: [row.night for row in rows] for name, rows in actual.items()} == {"one": [NIGHT]}


def test_there_are_alerts() -> None:
    assert sorted(path.stem for path in (EXAMPLES / "alerts").glob("*.sql")) == [
        "drop", "gate", "night_missing", "rows_left_out", "rows_rejected", "run_failed",
    ]  # fmt: skip
