"""Writers in processes of their own, which can be killed. Run as a program, this is such a writer."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from faults_formats import FORMATS
from faults_rows import Task, as_json, broken_calls, from_json, write
from pyspark.sql import SparkSession
from support.cluster import children_of

Process: TypeAlias = "subprocess.Popen[str]"
WAYS = ("python", "java", "both")


def session(scratch: Path, more: Mapping[str, str] = {}) -> SparkSession:
    """Two cores, everything below the scratch folder, no log; `more` settings win."""
    options = {
        "spark.master": "local[2]",
        "spark.app.name": "faults",
        # Most plans run once: Java spends more on its second compiler than that would save.
        "spark.driver.extraJavaOptions": f'"-Dderby.system.home={scratch}/derby" -XX:TieredStopAtLevel=1 '
        "-XX:ReservedCodeCacheSize=1g "  # else 48 MB, and what comes after these is interpreted
        "-XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **more,
    }
    return SparkSession.builder.config(map=options).getOrCreate()


def end(process: Process, how: str) -> None:
    """Kill Python, its Java, or both at once, as when the machine is gone."""
    pids = [process.pid] if how != "java" else []
    if how != "python":
        pids += [pid for pid, line in children_of([process.pid]).items() if "java" in line.split(" ")[0]]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Writers:
    """Processes that wait for tasks. One that was killed is replaced in the background."""

    def __init__(self, count: int, kind: str, place: str, scratch: Path, settings: Mapping[str, str] = {}) -> None:
        self._arguments = [kind, place, str(scratch), json.dumps(dict(settings))]
        self._pool, self._tasks = ThreadPoolExecutor(count), ThreadPoolExecutor(count)
        self._started: list[Process] = []
        self._ready: list[Future[Process]] = [self._pool.submit(self._start) for _ in range(count)]

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *error: object) -> None:
        self._tasks.shutdown()
        self._pool.shutdown()
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Python, and the Java it has started
            process.communicate()

    def _start(self) -> Process:
        process = subprocess.Popen(
            [sys.executable, __file__, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("a writer did not start")
        return process

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """Run tasks at the same time; with random numbers one of the processes is killed in every other call."""
        for ready in self._ready[: len(tasks)]:
            ready.result()  # so that all begin together
        kills: list[tuple[float, str] | None] = [None] * len(tasks)
        if rng is not None and rng.random() < 0.5:
            kills[rng.randrange(len(tasks))] = rng.uniform(0, 1.5), rng.choice(WAYS)
        return list(self._tasks.map(self._write, range(len(tasks)), tasks, kills))

    def _write(self, at: int, task: Task, kill: tuple[float, str] | None) -> str:
        process = self._ready[at].result()
        killed: list[bool] = []
        timer = None
        if kill is not None:
            after, how = kill
            timer = threading.Timer(after, lambda: (killed.append(True), end(process, how)))
            timer.start()
        try:
            process.stdin.write(json.dumps(as_json(task)) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if timer is not None:
            timer.cancel()
            timer.join()
        if answer and not killed:  # a process may still answer when it is being killed
            return answer
        if not killed:
            raise RuntimeError(f"a writer crashed with {task}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what is left of it
        process.wait()
        self._ready[at] = self._pool.submit(self._start)
        return answer or "killed"


def serve(kind: str, place: str, scratch: Path, settings: Mapping[str, str]) -> None:
    """Run tasks from standard input until it ends."""
    spark = session(scratch / f"writer-{os.getpid()}", settings)
    print("ready", flush=True)
    with broken_calls(FORMATS[kind]):
        for line in sys.stdin:
            print(write(spark, place, from_json(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
