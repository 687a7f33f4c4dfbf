"""A standalone cluster of processes, a master and two workers, and jobs that are submitted to it.

Everything listens on this machine only, on free ports, and ends with the `with` block, however that ends. The two

Everything listens on this machine only, on free ports, and ends with the `with` block, however that ends. The two
workers use different host names of the same machine, as Spark never runs two attempts of a task on one host.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

from support.main_job import RunResult
from support.processes import PATIENCE, kill_group
from support.spark_rankings import SHORT_LIVED

T = TypeVar("T")
HOSTS = ("127.0.0.1", "localhost")
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
PROC = Path("/proc")


def wait_for(poll: Callable[[], T | None], what: str, alive: Callable[[], bool] = lambda: True) -> T:
    """Poll until the answer is true; fail if the process ends first or the time is up."""
    deadline = time.monotonic() + PATIENCE
    while True:
        was_alive = alive()
        answer = poll()
        if answer:
            return answer
        assert was_alive, f"the process ended before: {what}"
        assert time.monotonic() < deadline, f"in vain, for {PATIENCE} s: {what}"
        time.sleep(0.02)


def list_children(pids: Iterable[int]) -> dict[int, str]:
    """Return the children of some processes, by id, with their command lines."""
    parents, children = set(pids), {}
    for folder in PROC.glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in parents:
                children[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return children


@dataclass
class SubmittedJob:
    """A submitted job, which is killed at the end of its `with` block; `folder` is its working directory."""

    process: subprocess.Popen[str]
    folder: Path

    def __enter__(self) -> SubmittedJob:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> RunResult:
        try:
            code = self.process.wait(PATIENCE)
        finally:
            kill_group(self.process)
        return RunResult(code, (self.folder / "out").read_text(), (self.folder / "err").read_text())

    def driver(self) -> int:
        """Return the process id of the job's Python; spark-submit starts it."""

        def python() -> int | None:
            started = list_children([self.process.pid]).items()  # also the launcher of Java, for a moment
            return next((pid for pid, line in started if Path(line.split(" ")[0]).name.startswith("python")), None)

        return wait_for(python, "Python of the driver", lambda: self.is_alive)

    def kill(self) -> None:
        """Kill driver and JVM, as if their machine had failed."""
        kill_group(self.process)
        self.process.wait()


@dataclass
class Cluster:
    """A cluster for a `with` block; all its processes get `environment`.

    The executors of the second worker see an empty folder in place of `unshared`; that
    needs a mount, so it needs root.
    """

    folder: Path
    environment: Mapping[str, str]
    package: Path
    cores: int = 1
    url: str = ""
    unshared: Path | None = None
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    _started: list[subprocess.Popen[str]] = field(default_factory=list)
    _files: list[IO[Any]] = field(default_factory=list)

    def __enter__(self) -> Cluster:
        if not PROC.joinpath("self", "stat").exists():
            pytest.skip("processes are looked up in /proc, which only Linux has")
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._started):
            kill_group(process)  # executors are in the groups of their workers
            process.wait()
        for file in self._files:
            file.close()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        spark_class = Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class"
        settings = {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "SPARK_LOCAL_IP": "127.0.0.1",  # pages of master and workers, too
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        any_port = ["--port", "0", "--webui-port", "0"]
        master = self._run([spark_class, MASTER, "--host", "127.0.0.1", *any_port], "master", settings)
        self.url = self._wait_for_lines("master", r"Starting Spark master at (spark://\S+)", 1, master)[0]
        for at, host in enumerate(HOSTS):
            size = ["--cores", str(self.cores), "--memory", f"{self.cores}g", "--work-dir", str(self.folder / "work")]
            command: list[object] = [spark_class, WORKER, "--host", host, *size, *any_port, self.url]
            if at and self.unshared is not None:
                mount = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
                command = ["unshare", "--mount", "sh", "-c", mount, self.unshared, *command]
            self.workers.append(self._run(command, f"worker-{at}", settings))
        self._wait_for_lines("master", "Registering worker ()", len(HOSTS), master)

    def _wait_for_lines(self, name: str, pattern: str, times: int, process: subprocess.Popen[str]) -> list[str]:
        log = self.folder / f"{name}.log"

        def find_lines() -> list[str] | None:
            lines: list[str] = re.findall(pattern, log.read_text())
            return lines if len(lines) >= times else None

        return wait_for(find_lines, f"{pattern!r} in the log of the {name}", lambda: process.poll() is None)

    def _run(self, command: Sequence[object], name: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        out = (self.folder / f"{name}.log").open("w")
        self._files.append(out)
        return self._popen(command, self.folder, {**self.environment, **environment}, out, out)

    def _popen(
        self, command: Sequence[object], folder: Path, environment: Mapping[str, str], out: IO[str], err: IO[str]
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def submit(
        self, job: Path, *flags: object, folder: Path, settings: Mapping[str, str] = {}, **environment: str
    ) -> SubmittedJob:
        """Start a job with the package as a zip; its driver and the Python of executors get `environment`."""
        chosen = {
            "spark.cores.max": str(2 * self.cores),
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            # Wait for both executors.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            **settings,
        }
        command: list[object] = [Path(self.environment["SPARK_HOME"]) / "bin" / "spark-submit", "--master", self.url]
        command += [part for name, value in chosen.items() for part in ("--conf", f"{name}={value}")]
        command += ["--py-files", self.package, job, *flags]
        folder.mkdir(parents=True, exist_ok=True)
        out, err = (folder / "out").open("w"), (folder / "err").open("w")
        self._files += [out, err]
        process = self._popen(command, folder, {**self.environment, **environment}, out, err)
        return SubmittedJob(process, folder)

    def executors(self) -> dict[int, str]:
        """Return the running executors with their command lines."""
        processes = list_children(worker.pid for worker in self.workers)
        return {pid: line for pid, line in processes.items() if "CoarseGrainedExecutorBackend" in line}

    def shuffle_files(self) -> list[Path]:
        """Return files that map tasks have finished writing."""
        return list((self.folder / "local").glob("**/shuffle_*.data"))


class Gate:
    """A Python for executors: the first executor to ask gets it, the others wait until the gate opens.

    While the gate is closed, one executor works and the others hang in their first Python task.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.python = folder / "python"
        self.python.write_text(
            "#!/bin/sh\n"
            f'if mkdir "{folder}/first" 2>/dev/null; then : > "{folder}/first/$PPID"\n'
            f'else : > "{folder}/held-$PPID"; while [ ! -e "{folder}/open" ]; do sleep 0.05; done; fi\n'
            f'exec {python} "$@"\n'
        )
        self.python.chmod(0o755)

    def first(self) -> int | None:
        """Return the process id of the executor that passed."""
        return next((int(place.name) for place in self._folder.glob("first/*")), None)

    def waiting(self) -> list[int]:
        """Return the process ids of the executors that wait."""
        return [int(place.name.removeprefix("held-")) for place in self._folder.glob("held-*")]

    def open(self) -> None:
        (self._folder / "open").touch()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
