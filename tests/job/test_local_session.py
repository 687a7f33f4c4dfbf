"""The local session that a job makes for itself: its settings, and what starts its Python workers."""

from __future__ import annotations

import gc
import os
import shlex
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pyspark
import pytest
from pyspark.sql import SparkSession

from ndcg_spark.cli import session
from ndcg_spark.cli.config import catalog_tables_written
from ndcg_spark.cli.worker_daemon import ends_quietly, freezes_survivors, zips_last
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.spark.settings import PROVIDED

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What a session of our own starts with, in an environment where nobody else has set one up."""
    started: list[dict[str, str]] = []
    for name in PROVIDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "_start_local", lambda name, settings: started.append(settings) or Mock())

    def settings_of(of_user: dict[str, str], *, short: bool = True) -> dict[str, str]:
        with session.spark_session("a job", of_user, short_lists=short):
            return started[-1]

    return settings_of


@pytest.mark.parametrize(("short", "most"), [(True, "2147483647"), (False, None)])
def test_a_session_of_our_own_weighs_batches_of_long_lists_only(settings_of, short, most):
    settings = settings_of({"spark.ui.enabled": "true"}, short=short)
    assert settings.get("spark.sql.execution.arrow.maxBytesPerBatch") == most
    assert settings["spark.ui.enabled"] == "true"  # the user has the last word


CATALOGS = {
    "of Spark": ({"spark.sql.catalogImplementation": "in-memory"}, ["a", "prod.a", "spark_catalog.prod.a"], []),
    "of Hive": ({"spark.sql.catalogImplementation": "hive"}, [], ["a", "prod.a"]),
    "another one": (
        {"spark.sql.catalogImplementation": "in-memory", "spark.sql.catalog.ice": "org.apache.iceberg.SparkCatalog"},
        ["a", "prod.a"],
        ["ice.prod.a"],
    ),
    "another one by default": (
        {"spark.sql.catalogImplementation": "in-memory", "spark.sql.catalog.ice": "org.apache.iceberg.SparkCatalog",
         "spark.sql.defaultCatalog": "ice"},
        ["spark_catalog.prod.a"],
        ["a", "prod.a"],
    ),
    "in its place": (
        {"spark.sql.catalogImplementation": "in-memory",
         "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog"},
        [],
        ["a", "prod.a", "spark_catalog.prod.a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "forgotten", "kept"), CATALOGS.values(), ids=CATALOGS)
def test_no_night_is_written_to_a_catalog_that_ends_with_the_session(
    monkeypatch: pytest.MonkeyPatch, settings_of, settings, forgotten, kept
) -> None:
    class Conf:
        def get(self, name: str, default: str) -> str:
            return settings.get(name, default)

    monkeypatch.setattr(session, "_start_local", lambda *_: Mock(conf=Conf()))
    for table in kept:
        with session.spark_session("a job", {}, short_lists=True, tables=lambda table=table: [table]):
            pass
    for table in forgotten:
        with (
            pytest.raises(
                OutputRefusedError, match=rf"table '{table}' would be forgotten .*catalogImplementation=hive"
            ),
            session.spark_session("a job", {}, short_lists=True, tables=lambda table=table: [table]),
        ):
            pass


def test_catalog_tables_are_known_by_their_options() -> None:
    options = {"input": "a.b", "input_format": None, "input_option": (), "output": "prod.m", "output_format": None,
               "rejects": "folder/r", "rejects_format": None, "per_query_output": "q", "per_query_format": "delta",
               "run_log": "log", "run_log_format": None}  # fmt: skip
    assert catalog_tables_written(options) == ["prod.m", "q", "log"]
    assert catalog_tables_written({**options, "output": "m.parquet", "run_log": None}) == ["q"]


@pytest.mark.parametrize(
    ("of_environment", "of_user", "ours"),
    [
        (None, None, True),
        ("/other/python", None, False),
        (None, "/other/python", False),
        ("/other/python", sys.executable, True),
    ],
)
def test_workers_take_the_installed_pyspark_unless_they_run_another_python(
    monkeypatch: pytest.MonkeyPatch,
    settings_of,
    tmp_path: Path,
    of_environment: str | None,
    of_user: str | None,
    *,
    ours: bool,
) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other) if of_environment else sys.executable)
    settings = settings_of({} if of_user is None else {"spark.pyspark.python": of_user})
    assert settings.get("spark.python.daemon.module") == ("ndcg_spark.cli.worker_daemon" if ours else None)
    assert settings.get("spark.python.unix.domain.socket.enabled") == ("true" if ours else None)


def test_a_worker_whose_socket_is_closed_ends_without_a_word():
    assert ends_quietly(Mock(side_effect=BrokenPipeError))(Mock(), True) == 1
    assert ends_quietly(Mock(return_value=0))(Mock(), True) == 0
    with pytest.raises(ValueError, match="a mistake"):
        ends_quietly(Mock(side_effect=ValueError("a mistake")))(Mock(), True)


DAEMON = [sys.executable, "-m", "ndcg_spark.cli.worker_daemon", "pyspark.worker"]


def test_a_daemon_that_spark_no_longer_listens_to_ends_without_a_word():
    """A job may be over before the daemon has started, as where its input is refused at once."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        ended = subprocess.run(
            DAEMON, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=nobody, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_worker_that_spark_no_longer_wants_ends_without_a_word(tmp_path):
    """It is asked for, and the socket is closed before it has told its number."""
    sockets = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": "."}
    with subprocess.Popen(
        DAEMON,
        cwd=tmp_path,
        env=os.environ | sockets | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        place = tmp_path / daemon.stdout.read(length).decode()
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as spark:
                spark.connect(str(place))
        time.sleep(1)
        told = daemon.communicate(timeout=60)[1]
    assert told == b""


def test_what_outlives_a_task_is_looked_through_once():
    gc.unfreeze()
    try:
        assert freezes_survivors(Mock(return_value=0))(Mock(), True) == 0
        assert gc.get_freeze_count() > len(sys.modules)
    finally:
        gc.unfreeze()


def test_zips_of_spark_come_after_what_is_installed():
    path = ["", "/files", "/spark/pyspark.zip", "/spark/py4j-0.10.9.9-src.zip", "/spark/core.jar", "/site-packages"]
    assert zips_last(path) == ["", "/files", "/spark/core.jar", "/site-packages", *path[2:4]]


def test_workers_come_from_the_installed_pyspark():
    """The path is as Spark makes it, its zips first; Python names the file of each module that it imports."""
    zips = sorted(Path(pyspark.__file__).parent.glob("python/lib/*.zip"))
    assert any(path.name == "pyspark.zip" for path in zips), zips
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(path) for path in [*zips, ROOT])}
    command = [sys.executable, "-v", "-m", "ndcg_spark.cli.worker_daemon", "pyspark.worker"]
    ended = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,  # at whose end the daemon ends, with a port written
        capture_output=True,
        timeout=60,
        check=False,
    )
    told = ended.stderr.decode()
    assert len(ended.stdout) == 4, told[-2000:]
    assert "import 'pyspark.daemon'" in told
    assert "pyspark.zip/" not in told
