"""The run log: one row for each run, whatever becomes of it; log lines as JSON; tags of Spark jobs."""

from __future__ import annotations

import json
import logging
import math
import platform
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.disks import to_viewfs
from support.engines import parametrize_engine
from support.main_job import (
    assert_refused,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_command,
    write_rows,
    write_table,
)
from support.oracle import build_ranking
from support.spark_rankings import since_spark

from ndcg_spark import __version__
from ndcg_spark.errors import PartlyWrittenError
from ndcg_spark.evaluation.local_work import LocalMeanNdcg
from ndcg_spark.evaluation.work import MeanNdcg
from ndcg_spark.jobs import run_log
from ndcg_spark.jobs import runner as job_run
from ndcg_spark.jobs.places import Target
from ndcg_spark.jobs.run_log import RUN_LOG_SCHEMA, RunLog
from ndcg_spark.tables import Slices, canonicalize

NIGHT = ("--run-date", "2026-01-31", "--dataset", "search", "--k", "6")
LOCAL = ("--engine", "local")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working folder with a table of six good rows, and one whose second row is bad."""
    write_rows(tmp_path / "in.parquet", build_ranking([3, 2, 3, 0, 1, 2]))
    bad = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [2.0, float("nan")], "relevance": [1.0, 0.0]}
    write_table(tmp_path / "bad.parquet", bad)
    return tmp_path


def logged(place: Path) -> list[dict[str, Any]]:
    return sorted(read_stored_rows(place / "runs"), key=lambda row: row["started_at"])


def run(place: Path, *more: object, table: str = "in.parquet", engine: str = "local") -> Any:
    return mean_ndcg("--input", place / table, *NIGHT, "--run-log", place / "runs", "--engine", engine, *more)


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something in the middle of the job."""
    for work in (MeanNdcg, LocalMeanNdcg):
        evaluate = work.run

        def first_act(self: Any, evaluate: Callable[[Any], Any] = evaluate) -> Any:
            act()
            return evaluate(self)

        monkeypatch.setattr(work, "run", first_act)


def test_a_run_that_succeeds(engine: Mapping[str, str], place: Path) -> None:
    """Six good rows of one query, and the only row of another, which is bad."""
    columns = {"query_id": ["q"] * 6 + ["lost"], "item_id": list("abcdefg"), "score": [6.0, 5, 4, 3, 2, 1, math.nan]}
    write_table(place / "some.parquet", {**columns, "relevance": [3.0, 2, 3, 0, 1, 2, 1]})
    before = datetime.now(timezone.utc)
    outputs = ["--output", place / "metrics", "--json", place / "night.json"]
    asked = (*outputs, "--on-invalid", "reject", "--segment-cols", "query_id")
    assert run(place, *asked, table="some.parquet", **engine).code == 0
    (row,) = logged(place)
    assert list(row) == [*RUN_LOG_SCHEMA.names, "dataset", "run_date", "slice"]
    assert (row["command"], row["status"], row["exit_code"], row["message"]) == ("mean-ndcg", "succeeded", 0, None)
    assert (row["run_date"], row["dataset"]) == ("2026-01-31", "search")
    counts = [row[name] for name in run_log.COUNTS]
    assert counts == [7, 6, 1, 0, 1, 1]
    assert json.loads(row["rejected_by_reason"]) == {"nan_score": 1}
    began, ended_at = (row[name].replace(tzinfo=timezone.utc) for name in ("started_at", "finished_at"))
    assert before <= began <= ended_at <= datetime.now(timezone.utc)
    assert 0 < row["seconds"] <= (ended_at - before).total_seconds()
    assert {row["config_hash"] for row in read_stored_rows(place / "metrics")} == {row["config_hash"]}
    steps = json.loads(row["steps"])
    assert [row["step"] for row in steps] == [
        "ranking and scoring", "counting bad rows", f"writing metrics to {place / 'metrics'}",
    ]  # fmt: skip
    assert sum(row["seconds"] for row in steps) <= row["seconds"]
    assert (row["package_version"], row["python_version"]) == (__version__, platform.python_version())


def test_what_a_run_has_read_and_written(place: Path, spark) -> None:
    outputs = ["--output", place / "metrics", "--json", place / "night.json"]
    more = ("--input-option", "password=S3CRET", "--gate", "ndcg@6>=0.1")
    assert run(place, *outputs, *more, engine="spark").code == 0
    (row,) = logged(place)
    file = place / "in.parquet"
    stamp = datetime.fromtimestamp(int(file.stat().st_mtime), timezone.utc)
    assert json.loads(row["inputs"]) == [
        {"option": "input", "reference": str(file), "format": "parquet", "files": 1, "bytes": file.stat().st_size,
         "newest": stamp.isoformat().replace("+00:00", "Z")},
    ]  # fmt: skip
    assert json.loads(row["outputs"]) == [
        {"what": "metrics", "reference": str(place / "metrics")},
        {"what": "JSON", "reference": str(place / "night.json")},
    ]
    config = json.loads(row["config"])
    assert config["input_option"] == ["password=***"]
    assert (config["gate"], config["k"], config["convention"]) == (["ndcg@6>=0.1"], "6", "default")
    assert "S3CRET" not in str(row)
    assert row["spark_version"] == spark.version


def test_files_that_other_jobs_have_written(spark, place: Path) -> None:
    runs = ("--run-log", place / "runs")
    asked = ("--input", place / "in.parquet", "--k", "6", "--json")
    assert mean_ndcg(*asked, place / "steps.json", "--explain-difference", "sklearn", *runs).code == 0
    assert run_command("diagnose", "runs", *asked, place / "losses.json", *runs).code == 0
    written = [json.loads(row["outputs"]) for row in logged(place)]
    assert written == [[{"what": "JSON", "reference": str(place / name)}] for name in ("steps.json", "losses.json")]


def test_which_files_a_query_has_read(spark, place: Path) -> None:
    """By a hash of their names, as Spark never uses a name twice."""
    for name in ("in", "in", "copy"):
        shutil.copy(place / "in.parquet", place / f"{name}2.parquet")
        query = f"SELECT * FROM parquet.`{place}/{name}2.parquet`;"
        assert mean_ndcg("--input", query, *NIGHT, "--run-log", place / "runs").code == 0
    inputs = [json.loads(row["inputs"])[0] for row in logged(place)]
    assert {(row["format"], row["files"]) for row in inputs} == {("sql", 1)}
    digests = [row["digest"] for row in inputs]
    assert digests[0] == digests[1] != digests[2]


def test_a_gate_that_is_not_met(place: Path) -> None:
    assert run(place, "--output", place / "metrics", "--gate", "ndcg@6>=0.99").code == 3
    (row,) = logged(place)
    assert (row["status"], row["exit_code"], row["n_queries"]) == ("gate_not_met", 3, 1)
    assert read_stored_rows(place / "metrics")


@pytest.mark.parametrize(
    ("table", "message"),
    [("bad.parquet", "1 bad row of 2 in the input: nan_score 1"), ("none.parquet", "there is no path")],
)
def test_a_refused_run(place: Path, table: str, message: str) -> None:
    ended = run(place, "--output", place / "metrics", table=table)
    assert ended.code == 2
    (row,) = logged(place)
    assert (row["status"], row["exit_code"], row["outputs"]) == ("refused", 2, "[]")
    assert message in row["message"]
    assert row["message"] in ended.err
    assert not (place / "metrics").exists()


@pytest.mark.parametrize(
    ("error", "code", "status", "message"),
    [
        (PartlyWrittenError("half of it"), 1, "failed", "PartlyWrittenError: half of it"),
        (RuntimeError("no\nluck, token=S3CRET"), 1, "failed", "RuntimeError: no"),
        (KeyboardInterrupt(), 130, "interrupted", None),
    ],
)
def test_a_run_that_fails_or_is_interrupted(place: Path, monkeypatch, error, code, status, message) -> None:
    def fail() -> None:
        raise error

    during(monkeypatch, fail)
    assert run(place).code == code
    (row,) = logged(place)
    assert (row["status"], row["exit_code"], row["message"]) == (status, code, message)


@since_spark("4.0", "tags of classic sessions")
def test_a_run_has_a_row_while_it_runs_and_tags_its_spark_jobs(place: Path, monkeypatch, spark) -> None:
    """This is what stays of a run that is killed."""
    seen: list[Any] = []
    spark.addTag("mine")
    # On Connect each client of a session has tags of its own; those of the job are on the active one.
    during(monkeypatch, lambda: seen.extend([logged(place), spark.getTags() | SparkSession.active().getTags()]))
    try:
        assert run(place, engine="spark").code == 0
        assert spark.getTags() == {"mine"}
    finally:
        spark.clearTags()
    ((row,), tags) = seen
    assert (row["status"], row["finished_at"], row["exit_code"]) == ("started", None, None)
    assert tags == {"mine", "ndcg-spark mean-ndcg", f"ndcg-spark run {row['run_id']}"}
    (after,) = logged(place)
    assert (after["run_id"], after["started_at"]) == (row["run_id"], row["started_at"])


def test_a_second_run_of_a_night_has_a_row_of_its_own(place: Path) -> None:
    assert [run(place).code, run(place, "--gate", "ndcg@6>=0.99").code] == [0, 3]
    assert [row["status"] for row in logged(place)] == ["succeeded", "gate_not_met"]


@pytest.mark.parametrize("kind", ["parquet", "table"])
def test_runs_at_the_same_time_keep_all_rows(place: Path, spark, kind: str) -> None:
    n, together = 4, threading.Barrier(4)
    reference = str(place / "runs") if kind == "parquet" else "runs_at_the_same_time"

    def one(number: int) -> None:
        slices = Slices.for_night(date(2026, 1, 31), "search", [f"run {number}"], whole=True)
        log = RunLog(spark, Target(reference=reference, kind=kind), slices, print)
        log.check([])
        for status in ("started", "succeeded"):
            together.wait(60)
            log.write({"run_id": f"run {number}", "status": status})

    try:
        with ThreadPoolExecutor(n) as pool:
            list(pool.map(one, range(n)))
        rows = (spark.table(reference) if kind == "table" else spark.read.parquet(reference)).collect()
        actual = sorted((row["run_id"], row["status"]) for row in rows)
        assert actual == [(f"run {i}", "succeeded") for i in range(n)]
        assert [name for name in read_files(place / "runs") if ".ndcg-spark" in name] == []
    finally:
        spark.sql("DROP TABLE IF EXISTS runs_at_the_same_time")


def test_a_catalog_table(place: Path, spark) -> None:
    try:
        assert mean_ndcg("--input", place / "in.parquet", *NIGHT, "--run-log", "run_log_of_test").code == 0
        (row,) = spark.table("run_log_of_test").collect()
        assert (row["status"], str(row["run_date"]), row["rows_read"]) == ("succeeded", "2026-01-31", 6)
    finally:
        spark.sql("DROP TABLE IF EXISTS run_log_of_test")


@parametrize_engine(
    "log, more",
    local=[
        ("{place}/in.parquet/runs", []),
        ("{place}/table/runs", ["--input", "{place}/table"]),
        ("{place}", []),
        ("{place}/metrics/runs", ["--output", "{place}/metrics"]),
        ("{place}/all", ["--output", "{place}/all/metrics"]),
        ("{place}/all", ["--json", "{place}/all/night.json"]),
    ],
    spark=[("{place}/table", ["--input", "SELECT * FROM parquet.`{place}/table`"])],
)
def test_a_run_log_that_would_touch_something_else_is_refused(engine, place: Path, log: str, more: list[str]) -> None:
    write_rows(place / "table" / "a.parquet", build_ranking([1, 0]))
    (place / "all").mkdir()
    before = read_files(place)
    words = [element.format(place=place) for element in ["--input", "{place}/in.parquet", *more, "--run-log", log]]
    assert_refused(mean_ndcg(*words, *NIGHT, "--engine", engine["engine"]))
    assert read_files(place) == before


def test_a_plan_that_is_only_explained_is_no_run(place: Path) -> None:
    assert run(place, "--explain").code == 0
    assert not (place / "runs").exists()


def test_a_run_log_that_fails_at_the_end_changes_no_exit_code(place: Path, monkeypatch) -> None:
    write, times = RunLog.write, []

    def second_fails(self: RunLog, row: Any, *about: Any) -> None:
        times.append(row["status"])
        if len(times) == 2:
            raise OSError("disk full")
        write(self, row, *about)

    monkeypatch.setattr(RunLog, "write", second_fails)
    ended = run(place, "--output", place / "metrics")
    assert (ended.code, times) == (0, ["started", "succeeded"])
    warning = f"warning: the end of this run is not in the run log {str(place / 'runs')!r}: disk full"
    assert warning in ended.err.splitlines()
    assert read_stored_rows(place / "metrics")


def test_another_job(spark, place: Path) -> None:
    words = ["--run-log", place / "runs", "--run-log-format", "parquet", "--dataset", "search"]
    events = {"query_id": ["q"], "item_id": ["a"], "event": ["view"], "ts": ["2026-01-01T00:00:00Z"]}
    table = write_table(place / "events.csv", events)
    assert run_command("build-judgments", "events", "--input", table, *words).code == 0
    (row,) = logged(place)
    assert (row["command"], row["status"], row["dataset"]) == ("build-judgments events", "succeeded", "search")


# --- JSON


@since_spark("4.0", "the schema of JSON log lines")
@pytest.mark.parametrize("log", ["runs", "night_of_run_log"])
def test_jobs_that_are_about_a_night_are_found_under_it(place: Path, spark, log: str) -> None:
    """The night and the data set are those of the metric table; no option names them."""
    assert mean_ndcg("--input", place / "in.parquet", *NIGHT, *LOCAL, "--output", place / "metrics").code == 0
    reference = place / log if log == "runs" else log
    metrics = ("--input", place / "metrics", "--run-log", reference)
    try:
        assert run_command("roll-up", *metrics, "--output", place / "periods").code == 0
        if log == "runs":
            assert run_command("flag-changes", *metrics, "--output", place / "flags").code == 0
            page = ("--metrics", place / "metrics", "--output", place / "report.html")
            assert run_command("report", *page, "--run-log", reference).code == 0
            assert run_command("roll-up", *metrics, "--output", place / "in.parquet").code == 2
        table = spark.read.parquet(str(reference)) if log == "runs" else spark.table(log)
        rows = table.orderBy("started_at").select("command", "status", "dataset", "run_date").collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS night_of_run_log")
    jobs = ["roll-up", "flag-changes", "report"] if log == "runs" else ["roll-up"]
    night = ("succeeded", "search", date(2026, 1, 31))
    assert [tuple(row) for row in rows][: len(jobs)] == [(job, *night) for job in jobs]
    assert [row["status"] for row in rows][len(jobs) :] == (["refused"] if log == "runs" else [])


def test_json_lines(place: Path, spark, tmp_path) -> None:
    schema = pytest.importorskip("pyspark.logger", reason="Spark writes such lines from 4.0 on").SPARK_LOG_SCHEMA
    asked = ("--log-format", "json", "--output", place / "metrics", "--json", "-")
    ended = run(place, *asked, engine="spark")
    assert (ended.code, ended.json["rows"]["read"]) == (0, 6)
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert {tuple(line) for line in lines} == {("ts", "level", "logger", "msg", "context")}
    assert [line["msg"].split(": ")[-1].split(" ")[0] for line in (lines[0], lines[-1])] == ["started", "succeeded"]
    (row,) = logged(place)
    assert {line["context"]["run_id"] for line in lines} == {row["run_id"]}
    steps = [line["context"]["step"] for line in lines if "step" in line["context"]]
    assert steps == ["ranking and scoring", f"writing metrics to {place / 'metrics'}"]
    assert lines[-1]["context"]["rows_read"] == 6
    (tmp_path / "log").write_text(ended.err)
    read = spark.read.schema(schema).json(str(tmp_path / "log")).collect()
    assert [row["msg"] for row in read] == [line["msg"] for line in lines]
    assert [row["ts"] for row in read if row["ts"] is None] == []
    assert read[-1]["context"]["status"] == "succeeded"
    assert logging.getLogger("ndcg_spark").handlers == []


def test_a_refusal_as_json(place: Path) -> None:
    ended = mean_ndcg("--input", place / "bad.parquet", *NIGHT, *LOCAL, "--log-format", "json")
    first, *_, last = [json.loads(line) for line in ended.err.splitlines()]
    assert (ended.code, first["level"], last["level"], last["context"]) == (2, "INFO", "ERROR", {"exit_code": 2})
    assert last["msg"].startswith("ndcg-spark: 1 bad row of 2 in the input")


def test_a_crash_as_json(place: Path, monkeypatch) -> None:
    def fail() -> None:
        raise RuntimeError("password=S3CRET")

    during(monkeypatch, fail)
    ended = mean_ndcg("--input", place / "in.parquet", *NIGHT, *LOCAL, "--log-format", "json")
    last = json.loads(ended.err.splitlines()[-1])
    assert (ended.code, last["level"], last["exception"]["class"]) == (1, "ERROR", "RuntimeError")
    assert last["exception"]["msg"] == "password=***"
    assert last["exception"]["stacktrace"][-1]["method"] == "fail"


def test_without_options_nothing_new_is_said(place: Path) -> None:
    ended = mean_ndcg("--input", place / "in.parquet", *NIGHT, *LOCAL)
    assert (ended.code, ended.complaints) == (0, [])


def test_a_run_log_in_the_place_of_an_output_is_found(spark, tmp_path: Path) -> None:
    """Tables need not be there yet."""
    there = to_viewfs(tmp_path)
    spark.sql(f"CREATE SCHEMA run_log_place LOCATION '{there}'")
    try:
        for output, kind, log in (
            (f"{there}/metrics/", None, f"{there}/metrics/log"),
            ("run_log_place.metrics", "delta", f"{there}/metrics/log"),
            ("run_log_place.metrics", "iceberg", f"{there}/metrics"),
            ("run_log_place.metrics", "table", there),
        ):
            target = Target(reference=output, kind=kind)
            (place,) = run_log.find_places(spark, SimpleNamespace(sources={}, targets={"output": target}, paths={}))
            assert place.touches(canonicalize(log)), kind
            assert not place.touches(canonicalize(f"{there}/log")), kind
    finally:
        spark.sql("DROP SCHEMA run_log_place")


def test_how_a_run_ended() -> None:
    assert job_run.describe_end(None, 0) == ("succeeded", None)
    assert job_run.describe_end(None, 3) == ("gate_not_met", None)
