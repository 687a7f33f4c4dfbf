"""Progress at a terminal on Spark Connect, and what identifies an input."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from support.disks import drop_root, make_closed_folder
from support.processes import open_terminal, wait_for_text

from ndcg_spark.jobs.logs import Progress
from ndcg_spark.jobs.places import Source
from ndcg_spark.jobs.run_log import describe_folder, describe_inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.conf import RuntimeConfig


class ConnectSession:
    """What a session of Spark Connect has for progress."""

    # stands in for: that session, because a server takes a minute to start; its clients only add and remove handlers

    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def registerProgressHandler(self, handler: Any) -> None:  # noqa: N802
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Any) -> None:  # noqa: N802
        self.handlers.remove(handler)


@contextmanager
def at_a_terminal() -> Iterator[Callable[[], str]]:
    """Standard error is a terminal; a function says what it has shown."""
    with open_terminal() as (stream, read), redirect_stderr(stream):
        yield read


def test_tasks_are_counted_on_connect() -> None:
    session = ConnectSession()
    stages = [
        SimpleNamespace(num_tasks=8, num_completed_tasks=3),
        SimpleNamespace(num_tasks=4, num_completed_tasks=0),
    ]
    with at_a_terminal() as shown:
        progress = Progress()
        with progress.show_tasks(session):
            (handler,) = session.handlers
            handler(stages=stages, inflight_tasks=1, operation_id="x", done=False)  # no step is shown
            with progress.step("ranking"):
                handler(stages=[], inflight_tasks=0, operation_id="x", done=False)
                handler(stages=stages, inflight_tasks=2, operation_id="x", done=False)
                handler(stages=stages, inflight_tasks=0, operation_id="x", done=True)
                wait_for_text("ranking: 3 of 12 tasks, 2 running", shown)
            handler(stages=stages, inflight_tasks=3, operation_id="x", done=False)
        text = shown()
    assert session.handlers == []
    assert set(re.findall(r"\d+ of \d+ tasks, \d+ running", text)) == {"3 of 12 tasks, 2 running"}


def test_the_handler_goes_when_a_job_fails() -> None:
    session, had = ConnectSession(), []

    def fail() -> None:
        with Progress().show_tasks(session):
            had.extend(session.handlers)
            raise ValueError("no")

    with at_a_terminal(), pytest.raises(ValueError, match="no"):
        fail()
    assert (len(had), session.handlers) == (1, [])


@pytest.mark.classic("a session without handlers of progress")
def test_a_classic_session_has_its_own_bar(spark: SparkSession) -> None:
    """Its refusal of a handler ends no job, and the spinner counts no tasks beside the bar of the session."""
    if hasattr(spark, "registerProgressHandler"):  # since Spark 4.0
        with pytest.raises(PySparkException, match="ONLY_SUPPORTED_WITH_SPARK_CONNECT"):
            spark.registerProgressHandler(print)
    with at_a_terminal() as shown:
        progress = Progress()
        with progress.show_tasks(spark), progress.step("ranking"):
            wait_for_text("ranking", shown)
        text = shown()
    assert [what for what, _ in progress.steps] == ["ranking"]
    assert "tasks" not in text


def test_a_log_file_gets_no_handler() -> None:
    session = ConnectSession()
    with Progress().show_tasks(session):
        assert session.handlers == []


def test_steps_are_kept_and_credentials_are_not_printed(capsys: pytest.CaptureFixture) -> None:
    progress = Progress()
    with progress.step("writing metrics to s3://KEY:SECRET@bucket/m"):
        pass
    assert capsys.readouterr().err == "writing metrics to s3://***@bucket/m: 0.0 s\n"
    assert [what for what, _ in progress.steps] == ["writing metrics to s3://KEY:SECRET@bucket/m"]


# --- inputs


def write(path: Path, text: str, seconds: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (seconds, seconds))
    return path


def test_files_are_counted_without_those_that_readers_pass_over(tmp_path: Path) -> None:
    write(tmp_path / "t" / "country=DE" / "a.parquet", "abc", 1_000_000_000)
    write(tmp_path / "t" / "country=FR" / "b.parquet", "defgh", 1_000_000_060)
    for name in ("_SUCCESS", ".a.crc", "_tmp/x", ".ndcg-spark/x", "b.parquet._COPYING_"):
        write(tmp_path / "t" / name, "12345", 1_900_000_000)
    # 1,000,000,000 seconds after 1970 is 2001-09-09T01:46:40Z
    expected = {"files": 2, "bytes": 8, "newest": "2001-09-09T01:47:40Z"}
    assert describe_folder(str(tmp_path / "t")) == describe_folder(f"file://{tmp_path}/t") == expected
    assert describe_folder(str(tmp_path / "t" / "country=DE" / "a.parquet"))["bytes"] == 3
    write(tmp_path / "t" / "_country=US" / "c.parquet", "i", 1)  # Spark reads it
    assert describe_folder(str(tmp_path / "t"))["files"] == 3


def test_the_version_of_a_delta_table_is_its_last_commit(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", "abc", 1)
    for name in ("00000000000000000009.json", "00000000000000000010.json", "00000000000000000010.checkpoint.parquet"):
        write(tmp_path / "_delta_log" / name, "{}", 1)
    assert describe_folder(str(tmp_path))["version"] == 10


def test_files_that_cannot_be_listed_are_no_fewer_files(public_folder: Path, spark: SparkSession) -> None:
    """Neither are they unknown in silence."""
    write(public_folder / "a.parquet", "abc", 1)
    make_closed_folder(public_folder / "more")
    source = Source(reference=str(public_folder), kind="parquet", options={})
    with drop_root():
        (actual,) = describe_inputs(spark, {"input": source})
    assert actual.pop("unknown") == f"[Errno 13] Permission denied: '{public_folder}/more'"
    assert actual == {"option": "input", "reference": str(public_folder), "format": "parquet"}


def test_columns_called_like_facts_of_a_table_are_no_facts(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    """A view has neither location nor provider; the type of the column is no path."""
    write(tmp_path / "string" / "a.parquet", "abc", 1)
    monkeypatch.chdir(tmp_path)
    spark.sql("CREATE VIEW identity_view AS SELECT 'x' AS location, 'y' AS provider")
    try:
        (actual,) = describe_inputs(spark, {"input": Source(reference="identity_view", kind=None, options={})})
    finally:
        spark.sql("DROP VIEW identity_view")
    assert actual == {"option": "input", "reference": "identity_view", "format": "table"}


@pytest.mark.parametrize("reference", ["s3://bucket/t", "none", "in*.parquet", "hdfs://name/t"])
def test_what_is_not_a_local_path_has_no_facts(reference: str) -> None:
    assert describe_folder(reference) == {}


SNAPSHOT = "SELECT name, snapshot_id FROM prod.t.refs WHERE type = 'BRANCH'"


class Catalog:
    """A session whose catalog has one table."""

    # stands in for: tables of Delta and Iceberg, because neither runs on this Spark; scripts/check writes has them

    def __init__(self, conf: RuntimeConfig, **answers: list[tuple[Any, ...]]) -> None:
        self.conf, self.answers, self.asked = conf, answers, []

    def sql(self, statement: str) -> Any:
        self.asked.append(statement)
        rows = next(rows for name, rows in self.answers.items() if name in statement)
        result = SimpleNamespace(collect=lambda: rows, first=lambda: rows[0] if rows else None)
        result.select = lambda *_: result
        return result


def test_tables_with_versions(spark: SparkSession) -> None:
    for provider, answers, facts, statement in (
        ("delta", {"HISTORY": [(41,)]}, {"version": 41}, "DESCRIBE HISTORY prod.t LIMIT 1"),
        ("iceberg", {"refs": [("audit", 1), ("main", 7051729675574597004)]}, {"version": 7051729675574597004},
         SNAPSHOT),
        ("iceberg", {"refs": []}, {}, SNAPSHOT),
    ):  # fmt: skip
        described = [("query_id", "string", None), ("Provider", provider, "")]
        session = Catalog(conf=spark.conf, EXTENDED=described, **answers)
        (actual,) = describe_inputs(session, {"input": Source(reference="prod.t", kind=None, options={})})
        assert actual == {"option": "input", "reference": "prod.t", "format": "table", **facts}
        assert session.asked == ["DESCRIBE TABLE EXTENDED prod.t", statement]


def test_a_query_is_known_by_its_text_and_the_names_of_its_files(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ba":
        write(tmp_path / "t" / name, "x", 1)
    digest = hashlib.sha256(f"file://{tmp_path}/t/a\nfile://{tmp_path}/t/b".encode()).hexdigest()[:16]
    for read, facts in (
        ("VALUES ('x') AS t(value)", {}),
        (f"text.`{tmp_path}/t`", {"files": 2, "digest": digest}),
    ):
        query = f"SELECT * FROM (SELECT value AS token FROM {read}) WHERE token = 'S3CRET'"
        (actual,) = describe_inputs(spark, {"input": Source(reference=query, kind=None, options={})})
        assert actual.pop("reference") == query.replace("S3CRET", "***")
        assert actual == {"option": "input", "format": "sql", **facts}
