"""The local session that a job makes for itself: its settings, and what starts its Python workers."""

from __future__ import annotations

import gc
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyspark
import pytest
from pyspark.sql import SparkSession
from support.spark_rankings import session_settings

from ndcg_spark.core.engine import PROVIDED
from ndcg_spark.errors import InvalidParameterError, OutputRefusedError
from ndcg_spark.jobs import runner, session
from ndcg_spark.jobs.command import RUN_LOG, Command
from ndcg_spark.jobs.places import Target
from ndcg_spark.jobs.registry import load_jobs
from ndcg_spark.jobs.worker_daemon import freeze_survivors, move_zips_last, suppress_shutdown_errors

ROOT = Path(__file__).resolve().parents[2]


class Started:
    """A session that knows the settings that it was started with, and has nothing to stop."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf = settings

    def stop(self) -> None:
        pass


def ending(code: int | Exception) -> Callable[..., int]:
    """A worker that ends in this way."""

    def work(*_: object) -> int:
        if isinstance(code, Exception):
            raise code
        return code

    return work


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """What a session of our own starts with, in an environment where nobody else has set one up."""
    started: list[dict[str, str]] = []
    for name in PROVIDED:
        monkeypatch.delenv(name, raising=False)
    # stands in for: a process that has no session and starts one, because that takes ten seconds a case
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "_start_local", lambda name, settings: started.append(settings) or Started(settings))

    def settings_of(of_user: dict[str, str], *, short: bool = True) -> dict[str, str]:
        with session.open_session("a job", of_user, long_rows=not short):
            return started[-1]

    return settings_of


@pytest.mark.parametrize(("short", "most"), [(True, "2147483647"), (False, None)])
def test_a_session_of_our_own_weighs_batches_of_long_lists_only(settings_of, short, most):
    settings = settings_of({"spark.ui.enabled": "true"}, short=short)
    assert settings.get("spark.sql.execution.arrow.maxBytesPerBatch") == most
    assert settings["spark.ui.enabled"] == "true"  # the user has the last word


SERVER, SUBMITTED = {"SPARK_REMOTE": "sc://spark.example.com:15002"}, {"PYSPARK_GATEWAY_PORT": "1"}
DATABRICKS = {**SERVER, "DATABRICKS_RUNTIME_VERSION": "17.3"}
IN_MEMORY = {"spark.sql.catalogImplementation": "in-memory"}


@pytest.fixture
def session_from_outside(
    monkeypatch: pytest.MonkeyPatch, settings_of
) -> Callable[..., tuple[bool, list[SparkSession]]]:
    """Whether a job runs in the session of others, and the sessions that got the package."""

    def run(of_environment: dict[str, str], *, active: bool, **more: object) -> tuple[bool, list[SparkSession]]:
        for name, value in of_environment.items():
            monkeypatch.setenv(name, value)
        there, sent = Started(IN_MEMORY), []
        builder = SimpleNamespace(appName=lambda _: SimpleNamespace(getOrCreate=lambda: there))
        # stands in for: a notebook, spark-submit or a server, because each takes a process and ten seconds
        monkeypatch.setattr(SparkSession, "getActiveSession", lambda: there if active else None)
        monkeypatch.setattr(SparkSession, "builder", builder)
        monkeypatch.setattr("ndcg_spark.jobs.session.add_package_to_workers", sent.append)
        with session.open_session("a job", **{"settings": {}, "long_rows": False, **more}) as actual:
            return actual is there, sent

    return run


@pytest.mark.parametrize(
    ("of_environment", "active", "gets_the_package"),
    [
        ({}, True, False),
        (SUBMITTED, False, False),  # it has --py-files
        (SERVER, False, True),
        (SERVER, True, False),  # its user has sent it
        (DATABRICKS, False, False),
    ],
)
def test_a_session_from_outside_gets_the_package_where_nobody_else_can_send_it(
    session_from_outside, of_environment, active, gets_the_package
):
    is_theirs, sent = session_from_outside(of_environment, active=active)
    assert (is_theirs, len(sent)) == (True, gets_the_package)


@pytest.mark.parametrize(("of_environment", "active"), [({}, True), (SUBMITTED, False)])
def test_a_session_from_outside_takes_no_settings(session_from_outside, of_environment, active):
    with pytest.raises(
        InvalidParameterError, match="--conf is for a session that the job starts; here the session is set up from"
    ):
        session_from_outside(of_environment, active=active, settings={"spark.ui.enabled": "true"})


def test_a_table_is_forgotten_with_a_session_that_ends_with_the_job(session_from_outside):
    """As that of spark-submit does; that of a notebook goes on."""
    group = {"tables": {"m": "table"}}
    assert session_from_outside({}, active=True, **group) == (True, [])
    with pytest.raises(OutputRefusedError, match=r"table 'm' would be lost when the job ends"):
        session_from_outside(SUBMITTED, active=False, **group)


ICEBERG = {"spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog"}
CATALOGS = {
    "of Spark": ({}, ["a", "prod.a", "spark_catalog.prod.a", "`SPARK_CATALOG`.prod.a"], []),
    "another one": (ICEBERG, ["a", "prod.a"], ["ice.prod.a"]),
    "another one by default": (
        {**ICEBERG, "spark.sql.defaultCatalog": "ice"},
        ["spark_catalog.prod.a"],
        ["a", "prod.a"],
    ),
    "of Delta before that of Spark": (
        {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}, ["a", "prod.a"], []
    ),
    "of Unity Catalog in its place": (
        {"spark.sql.catalog.spark_catalog": "io.unitycatalog.spark.UCSingleCatalog"}, [], ["a", "prod.a"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "forgotten", "kept"), CATALOGS.values(), ids=CATALOGS)
@pytest.mark.classic("the catalog of a server outlives its sessions")
def test_which_names_are_of_a_catalog_that_ends_with_the_session(spark, settings, forgotten, kept) -> None:
    """Settings alone decide: no catalog is loaded, so that it need not be installed here."""
    from ndcg_spark.tables.catalog import list_session_tables

    with session_settings(spark, **{name.replace(".", "__"): value for name, value in settings.items()}):
        assert list_session_tables(spark, dict.fromkeys([*forgotten, *kept], "table")) == forgotten


CONNECTED = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


@pytest.mark.parametrize(
    ("kind", "remote", "of_a_server"),
    [
        (CONNECTED, "sc://spark.example.com:15002", True),
        (CONNECTED, None, True),  # that of Databricks Connect, or by .remote(...)
        (CONNECTED, "local[2]", False),  # pyspark starts a server for it, which ends with it
        (SparkSession, None, False),
        (SparkSession, "sc://spark.example.com:15002", False),
    ],
)
def test_a_session_on_a_server_that_somebody_else_runs_is_known(monkeypatch, kind, remote, of_a_server):
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if remote is not None:
        monkeypatch.setenv("SPARK_REMOTE", remote)
    assert session._is_remote(kind.__new__(kind)) is of_a_server


IN_TURN = """
import sys
from ndcg_spark.main import main
for arguments in sys.argv[1:]:
    print("code", main(arguments.split()), file=sys.stderr)
"""
JOBS_OF_ITS_OWN = {
    "mean-ndcg --input no/ --k 2 --on-invalid reject --output m --per-query-output prod.q --rejects r --run-log l": (
        "tables 'm', 'prod.q', 'r', 'l' ", "./m, ./prod.q, ./r, ./l"
    ),
    "roll-up --input absent/ --output spark_catalog.default.periods": (
        "table 'spark_catalog.default.periods' ", "./spark_catalog.default.periods"
    ),
    "report --metrics absent/ --output page.html --run-log runs": ("table 'runs' ", "./runs"),
}  # fmt: skip


@pytest.mark.spark
@pytest.mark.classic("processes with sessions of their own")
def test_a_session_of_our_own_writes_no_table_that_nobody_finds_again(tmp_path: Path) -> None:
    """Before anything is read: the inputs are not there."""
    outside = {name: value for name, value in os.environ.items() if name not in PROVIDED}
    ended = subprocess.run(
        [sys.executable, "-c", IN_TURN, *JOBS_OF_ITS_OWN],
        cwd=tmp_path,
        env=outside | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = [line for line in ended.stderr.splitlines() if line.startswith(("ndcg-spark: ", "code "))]
    for (tables, folders), line, code in zip(JOBS_OF_ITS_OWN.values(), said[::2], said[1::2], strict=True):
        assert code == "code 2"
        assert line.startswith(f"ndcg-spark: {tables}would be lost when the job ends")
        assert f"({folders})" in line
        assert "--conf spark.sql.catalogImplementation=hive" in line
    assert list(tmp_path.iterdir()) == []


def tables_to_write(command: click.Command) -> set[str | None]:
    """Options that name a table to write, as the help says."""
    about = {param.name: getattr(param, "help", None) or "" for param in command.params}
    return {name for name, text in about.items() if re.search("[Tt]able .*to write|Output table", text)}


@pytest.mark.parametrize("command", [*load_jobs()], ids=lambda element: element.name)
def test_outputs_of_all_jobs_are_known_for_tables_by_their_names(command: Command[Any]) -> None:
    written = [element for element in (*command.shown_outputs, RUN_LOG) if not element.file]
    made = command.to_click()
    assert tables_to_write(made) == {field.name for field in written}
    given = {str(param.name): None for param in made.params} | {"schema": "grow"}
    for entry in written:
        targets = [entry.target(given | {entry.name: name}) for name in ("m", "./m")]
        assert [target.format for target in targets if target is not None] == ["table", "parquet"]
        assert entry.target(given) is None


def test_catalog_tables_are_known_by_their_options() -> None:
    def written(run_log: Target | None = None, **targets: Target) -> dict[str, str]:
        return runner.list_catalog_tables(SimpleNamespace(targets=targets, run_log=run_log))

    folder, table = Target(reference="folder/r", kind=None), Target(reference="prod.m", kind=None)
    delta, log = Target(reference="q", kind="delta"), Target(reference="log", kind=None)
    assert written(log, output=table, rejects=folder, per_query_output=delta) == {
        "prod.m": "table", "q": "delta", "log": "table",
    }  # fmt: skip
    assert written(output=Target(reference="m.parquet", kind=None), per_query_output=delta) == {"q": "delta"}
    # No catalog forgets a path; it is refused as what it is.
    assert written(output=table, per_query_output=Target(reference="/folder/q", kind="delta")) == {"prod.m": "table"}


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
    assert settings.get("spark.python.daemon.module") == ("ndcg_spark.jobs.worker_daemon" if ours else None)
    assert settings.get("spark.python.unix.domain.socket.enabled") == ("true" if ours else None)


def test_a_worker_whose_socket_is_closed_ends_without_a_word():
    assert suppress_shutdown_errors(ending(BrokenPipeError()))(None, True) == 1
    assert suppress_shutdown_errors(ending(0))(None, True) == 0
    with pytest.raises(ValueError, match="a mistake"):
        suppress_shutdown_errors(ending(ValueError("a mistake")))(None, True)


DAEMON = [sys.executable, "-m", "ndcg_spark.jobs.worker_daemon", "pyspark.worker"]


def test_a_daemon_that_spark_no_longer_listens_to_ends_without_a_word():
    """A job may be over before the daemon has started, as where its input is refused at once."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        ended = subprocess.run(
            DAEMON, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=nobody, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_worker_that_spark_no_longer_wants_ends_without_a_word():
    """It is asked for, and the socket is closed before it has told its number. Until 4.0 it is a port."""
    sockets = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_DIR": "."}
    with (
        tempfile.TemporaryDirectory() as short,
        subprocess.Popen(
            DAEMON,
            cwd=short,
            env=os.environ | sockets | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as daemon,
    ):
        (told_first,) = struct.unpack("!i", daemon.stdout.read(4))
        if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1):
            family, place = socket.AF_UNIX, str(Path(short, daemon.stdout.read(told_first).decode()))
        else:
            family, place = socket.AF_INET, ("127.0.0.1", told_first)
        for _ in range(20):
            with socket.socket(family) as spark:
                spark.connect(place)
        time.sleep(1)
        message = daemon.communicate(timeout=60)[1]
    assert message == b""


def test_what_outlives_a_task_is_looked_through_once():
    gc.unfreeze()
    try:
        assert freeze_survivors(ending(0))(None, True) == 0
        assert gc.get_freeze_count() > len(sys.modules)
    finally:
        gc.unfreeze()


def test_zips_of_spark_come_after_what_is_installed():
    path = ["", "/files", "/spark/pyspark.zip", "/spark/py4j-0.10.9.9-src.zip", "/spark/core.jar", "/site-packages"]
    assert move_zips_last(path) == ["", "/files", "/spark/core.jar", "/site-packages", *path[2:4]]


def test_workers_come_from_the_installed_pyspark():
    """The path is as Spark makes it, its zips first; Python names the file of each module that it imports."""
    zips = sorted(Path(pyspark.__file__).parent.glob("python/lib/*.zip"))
    assert any(path.name == "pyspark.zip" for path in zips), zips
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(path) for path in [*zips, ROOT])}
    command = [sys.executable, "-v", "-m", "ndcg_spark.jobs.worker_daemon", "pyspark.worker"]
    ended = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,  # at whose end the daemon ends, with a port written
        capture_output=True,
        timeout=60,
        check=False,
    )
    message = ended.stderr.decode()
    assert len(ended.stdout) == 4, message[-2000:]
    assert "import 'pyspark.daemon'" in message
    assert "pyspark.zip/" not in message
