"""The packaged job on a real cluster, by spark-submit: the numbers of local Spark, whatever is killed meanwhile.

One of these runs every time, the others by `scripts/check cluster`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Cluster, Gate, SubmittedJob, kill, wait_for
from support.disks import mount_small_disk
from support.main_job import (
    RunResult,
    assert_refused,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_mean_ndcg,
    write_rows,
)
from support.object_store import SECRET, Server, s3_server
from support.oracle import Row
from support.processes import ROOT, build_package, make_bare_python

# The session makes what is compared with; jobs are processes of their own.
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.classic("processes with sessions of their own")]
JOB = ROOT / "jobs" / "mean_ndcg.py"
SPEAKING = ("run", "segment_by", "segment", "metric", "k")
FILE_EACH = {"spark.sql.files.maxPartitionBytes": "1k", "spark.sql.files.openCostInBytes": "0"}


@dataclass(frozen=True)
class Stage:
    """A cluster, and Python on it without the package."""

    cluster: Cluster
    python: Path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("cluster")
    python, environment = make_bare_python(folder / "python")
    package = build_package(folder, environment)
    with Cluster(folder / "cluster", environment, package) as cluster:
        yield Stage(cluster, python)


def write_table(folder: Path, seed: int) -> Path:
    """Six files of rankings, each sorted by query, with a segment."""
    rng = random.Random(seed)
    for at in range(6):
        rows = [
            Row(query=f"q{at}-{n:03}", item=f"i{i}", score=rng.choice([rng.random(), 0.5]), relevance=i * n % 4)
            for n in range(50)
            for i in range(12)
        ]
        write_rows(folder / f"{at}.parquet", rows, country=lambda row: "DE" if row.query[-1] in "02468" else "FR")
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An older table and a newer one."""
    folder = tmp_path_factory.mktemp("tables")
    return write_table(folder / "old", 1), write_table(folder / "new", 2)


def flags(table: Path | str, folder: Path) -> list[object]:
    same = ["--run-date", "2026-01-31", "--dataset", "shop", "--k", "1,3,10", "--segment-cols", "country"]
    return ["--input", table, *same, "--output", folder / "metrics", "--per-query-output", folder / "queries"]


def bits(folder: Path) -> list[tuple[Any, ...]]:
    """Keys, value to the last bit, and state of every row of a metric table; values of every query."""
    metrics = [
        (*[str(row[name]) for name in SPEAKING], (row["value"] or 0.0).hex(), row["n_queries"], str(row["state"]))
        for row in read_stored_rows(folder / "metrics")
    ]
    queries = [(row["query_id"], str(row["k"]), row["ndcg"].hex()) for row in read_stored_rows(folder / "queries")]
    return [*sorted(metrics), *sorted(queries)]


@pytest.fixture(scope="module")
def in_local_mode(tables, tmp_path_factory) -> list[tuple[Any, ...]]:
    """What local Spark makes of the newer table; its workers read the files themselves."""
    folder = tmp_path_factory.mktemp("local")
    run_mean_ndcg(*flags(tables[1], folder))
    actual = bits(folder)
    assert len(actual) > 900
    return actual


def visible(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in read_files(folder).items() if ".ndcg-spark" not in name}


def lost_executors(stage: Stage) -> int:
    """How many were killed, by the logs of the workers."""
    return sum(log.read_text().count("exited with code 137") for log in stage.cluster.folder.glob("worker-*.log"))


class Held:
    """A job that computes and stages its tables, and then waits before it swaps them in.

    It is to write its JSON beside the final file; a pipe stands there, which nobody reads yet.
    """

    def __init__(self, job: SubmittedJob) -> None:
        self._job, self.driver = job, job.driver()
        self._pipe = job.folder / f"answer.json.{self.driver}.unfinished"
        os.mkfifo(self._pipe)

    def wait(self, folder: Path) -> None:
        """Until both tables are staged."""
        for table in ("metrics", "queries"):
            staged = partial(lambda name: any(folder.glob(f"{name}/.ndcg-spark/write-*/rows/_SUCCESS")), table)
            wait_for(staged, f"rows of {table} are staged", lambda: self._job.is_alive)

    def go_on(self) -> str:
        return self._pipe.read_text()


@pytest.mark.parametrize(
    "scheme",
    ["", pytest.param("file:", marks=pytest.mark.cluster("workers read the files; otherwise the same"))],
    ids=["read by Spark", "read by workers"],
)
def test_a_killed_executor_and_a_second_run_change_no_bit(stage, tables, in_local_mode, tmp_path, scheme):
    """An executor has finished tasks, whose rows are lost with it, while the other is in the middle of its first.

    Later, when the rows are written and not yet visible, another job wants to write the same slice.
    """
    cluster, gate, folder = stage.cluster, Gate(tmp_path / "gate", stage.python), tmp_path / "out"
    before, lost = set(cluster.shuffle_files()), lost_executors(stage)
    with cluster.submit(
        JOB,
        *flags(f"{scheme}{tables[1]}", folder),
        *("--json", "answer.json"),
        folder=tmp_path / "job",
        settings=FILE_EACH,
        PYSPARK_PYTHON=str(gate.python),
    ) as job:

        def victim() -> int | None:
            ready = gate.waiting() and set(cluster.shuffle_files()) - before
            return gate.first() if ready else None

        pid = wait_for(victim, "one executor has finished a task, the other one has begun", lambda: job.is_alive)
        assert pid in cluster.executors()
        kill(pid)
        wait_for(lambda: lost_executors(stage) == lost + 1, "a worker reports a killed executor")
        held = Held(job)
        gate.open()
        held.wait(folder)
        assert_refused(mean_ndcg(*flags(tables[0], folder)), f"is being written by process {held.driver} on ")
        assert '"metrics"' in held.go_on()
        ended = job.wait()
    assert ended.code == 0, ended.err[-3000:]
    assert list(folder.glob("*/.ndcg-spark")) == []
    assert bits(folder) == in_local_mode


# ---------------------------------------------------------------------------------------- in the middle of a write


@pytest.mark.cluster("killed writers are checked every time without a cluster")
def test_a_driver_that_is_killed_in_the_middle_of_a_write(stage, tables, tmp_path, in_local_mode):
    """The old rows are there; the next run says what it found, and heals."""
    folder = tmp_path / "out"
    run_mean_ndcg(*flags(tables[0], folder))
    before = visible(folder)
    job = stage.cluster.submit(
        JOB, *flags(tables[1], folder), "--json", "answer.json", folder=tmp_path / "job", settings=FILE_EACH
    )
    with job:
        held = Held(job)
        held.wait(folder)
        job.kill()
    assert visible(folder) == before
    ended = mean_ndcg(*flags(tables[1], folder))
    assert ended.code == 0, ended.err
    message = [line for line in ended.complaints if "removed files of a killed writer" in line]
    assert ended.complaints == message
    assert [f"process {held.driver} on " in line for line in message] == [True, True]
    assert sorted(name for line in message for name in ("metrics", "queries") if f"{folder / name}:" in line) == [
        "metrics",
        "queries",
    ]
    assert list(folder.glob("*/.ndcg-spark")) == []
    assert bits(folder) == in_local_mode


@pytest.mark.cluster("Spark waits some seconds before it speculates")
def test_tasks_that_fail_half_way_or_run_twice_double_nothing(stage, tmp_path):
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.5",
        "spark.sql.files.maxRecordsPerFile": "10",  # the first half of an attempt is in complete files
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    program = ROOT / "tests" / "support" / "cluster_writes.py"
    with stage.cluster.submit(program, tmp_path, folder=tmp_path / "job", settings=settings) as job:
        ended = job.wait()
    assert ended.code == 0, ended.err[-3000:]
    for attempts, stored in ended.json.values():
        assert {"0-0", "0-1", "1-0", "1-1"} <= set(attempts)
        assert stored == list(range(400))


@pytest.mark.cluster("a cluster of its own")
def test_rows_on_disks_that_machines_do_not_share_are_missed(stage, tables, tmp_path):
    """One executor has the folder of the driver, the other one another folder at the same path."""
    with mount_small_disk(tmp_path / "disk", 4096) as disk:  # skips where nothing can be mounted
        run_mean_ndcg(*flags(tables[0], disk.folder))
        before = visible(disk.folder)
        kept = stage.cluster
        wanted = flags(tables[1], disk.folder)
        with (
            Cluster(tmp_path / "cluster", kept.environment, kept.package, unshared=disk.folder) as cluster,
            cluster.submit(JOB, *wanted, folder=tmp_path / "job", settings=FILE_EACH) as job,
        ):
            ended = job.wait()
        assert_refused(RunResult(ended.code, "", ended.out), "executors wrote the others to their own disks")
        assert visible(disk.folder) == before


@pytest.mark.cluster("full disks are checked every time with local Spark")
def test_executors_that_fill_a_disk(stage, tables, tmp_path, in_local_mode):
    with mount_small_disk(tmp_path / "disk", 1024) as disk:
        run_mean_ndcg(*flags(tables[0], disk.folder))
        before = visible(disk.folder)
        disk.fill(left=24 << 10)
        with stage.cluster.submit(JOB, *flags(tables[1], disk.folder), folder=tmp_path / "job") as job:
            ended = job.wait()
        disk.free()
        # spark-submit puts what a Python job writes to standard error on standard output.
        message = RunResult(ended.code, "", ended.out)
        assert_refused(message, "No space left on device")
        assert visible(disk.folder) == before
        with stage.cluster.submit(JOB, *flags(tables[1], disk.folder), folder=tmp_path / "again") as job:
            assert job.wait().code == 0
        assert bits(disk.folder) == in_local_mode


# ------------------------------------------------------------------------------------------------------ object stores


@pytest.fixture(scope="module")
def store(tables: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An S3 server with the newer table, as s3://data/rows, which nobody reads without credentials."""
    if find_spec("moto") is None:
        pytest.skip("moto[server], an S3 server, is not installed")
    with s3_server(tmp_path_factory.mktemp("store")) as server:
        server.put("data")
        server.put_folder(tables[1], "data/rows")
        yield server


def at_the_store(stage: Stage, store: Server, folder: Path, *, credentials: bool) -> RunResult:
    """Run the job on `s3://data/rows`; the driver has credentials, and executors as is said.

    Executors of a standalone cluster have the environment of their worker, so only `spark.executorEnv` tells them.
    """
    message = store.settings()
    if not credentials:
        message = {name: value for name, value in message.items() if "KEY" not in name}
    settings = {f"spark.executorEnv.{name}": value for name, value in message.items()}
    arguments = [*flags("s3://data/rows", folder), "--source", "parquet", "--json", "answer.json"]
    with stage.cluster.submit(JOB, *arguments, folder=folder / "job", settings=settings, **store.settings()) as job:
        return job.wait()


@pytest.mark.cluster("object stores are checked every time with local Spark")
def test_executors_read_an_object_store(stage, store, tmp_path, in_local_mode):
    before = len(store.requests())
    ended = at_the_store(stage, store, tmp_path, credentials=True)
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert [request for request in store.requests()[before:] if request.startswith("GET data/rows/")]
    assert SECRET not in ended.out
    assert bits(tmp_path) == in_local_mode


@pytest.mark.cluster("object stores are checked every time with local Spark")
def test_executors_without_credentials_of_an_object_store_are_refused(stage, store, tmp_path):
    """What the driver has is not passed on: the line names the object and why, and nothing is written."""
    ended = at_the_store(stage, store, tmp_path, credentials=False)
    # spark-submit puts what a Python job writes to standard error on standard output.
    assert_refused(
        RunResult(ended.code, "", ended.out), "--source parquet is not available", "s3://data/rows/", "ACCESS_DENIED"
    )
    assert SECRET not in ended.out
    assert not (tmp_path / "metrics").exists()
