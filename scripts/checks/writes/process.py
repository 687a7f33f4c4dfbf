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
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import SparkSession

from scripts.checks.writes.rows import WAYS, Task, as_json, broken_calls, end, from_json, plan_kill, write
from scripts.checks.writes.sessions import session, start_sail
from scripts.checks.writes.tables import FORMATS

Process: TypeAlias = "subprocess.Popen[str]"


@dataclass(frozen=True)
class Target:
    """Tables of a leg; of Delta also where they lie, as each server of Sail has a catalog of its own."""

    kind: str
    places: tuple[str, ...]
    roots: tuple[str, ...] = ()


class Writers:
    """Processes that wait for tasks, of any leg. One that was killed is replaced in the background."""

    def __init__(self, count: int, scratch: Path, settings: Mapping[str, str] = {}, *, sail: bool = False) -> None:
        self._arguments = [str(scratch), json.dumps(dict(settings)), "sail" if sail else "spark"]
        scratch.mkdir(exist_ok=True)
        self._told = scratch / f"writers-{os.getpid()}.log"
        self._ways = ("python",) if sail else WAYS  # there is no Java
        self._pool, self._tasks = ThreadPoolExecutor(count), ThreadPoolExecutor(count)
        self._started: list[Process] = []
        self._ready: list[Future[Process]] = [self._pool.submit(self._start) for _ in range(count)]
        self._longest = 1.5

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
        with self._told.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError("a writer did not start")
        return process

    def run(self, target: Target, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """Run tasks at the same time; with random numbers one of the processes is killed in every other call.

        Half of these are killed by the clock, somewhere in as long as such a write takes; the others when they are
        about to take a step, as the time between two renames or commits is too short to be met by chance.
        """
        for ready in self._ready[: len(tasks)]:
            ready.result()  # so that all begin together
        tasks = list(tasks)
        kills: list[tuple[float, str] | None] = [None] * len(tasks)
        if rng is not None and rng.random() < 0.5:
            index, kill_method = rng.randrange(len(tasks)), rng.choice(self._ways)
            if rng.random() < 0.5:
                kills[index] = rng.uniform(0, self._longest), kill_method
            else:
                tasks[index] = replace(tasks[index], fault=plan_kill(rng, FORMATS[target.kind], kill_method))
        began = time.monotonic()
        ended = list(self._tasks.map(self._write, range(len(tasks)), tasks, kills, [target] * len(tasks)))
        if set(ended) == {"done"}:
            self._longest = time.monotonic() - began
        return ended

    def _write(self, index: int, task: Task, kill: tuple[float, str] | None, target: Target) -> str:
        process = self._ready[index].result()
        killed: list[bool] = []
        timer = None
        if kill is not None:
            after, how = kill
            timer = threading.Timer(after, lambda: (killed.append(True), end(process.pid, how)))
            timer.start()
        try:
            process.stdin.write(json.dumps([vars(target), as_json(task)]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if timer is not None:
            timer.cancel()
            timer.join()
        # A process may still answer when it is being killed, or when all that its task still had to do needs no Java.
        killing = bool(killed or (task.fault and task.fault.kill))
        if answer and not killing:
            return answer
        if not killing:
            log = self._told.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"a writer crashed with {task}: {log}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what is left of it
        process.wait()
        self._ready[index] = self._pool.submit(self._start)
        return answer or "killed"


def serve(spark: SparkSession) -> None:
    """Run tasks from standard input until it ends."""
    known: set[str] = set()
    print("ready", flush=True)
    for line in sys.stdin:
        parts, task = json.loads(line)
        for place, root in zip(parts["places"], parts["roots"], strict=False):
            if place not in known:
                spark.sql(f"CREATE TABLE {place} USING {parts['kind']} LOCATION '{root}'")
                known.add(place)
        with broken_calls(FORMATS[parts["kind"]]):
            print(write(spark, parts["places"], from_json(task)), flush=True)


def main() -> None:
    """Be a writer."""
    scratch, settings = Path(sys.argv[1]) / f"writer-{os.getpid()}", json.loads(sys.argv[2])
    # A server that nobody holds ends.
    spark, server = start_sail(scratch) if sys.argv[3] == "sail" else (session(scratch, settings), None)
    serve(spark)
    if server is not None:
        server.stop()


if __name__ == "__main__":
    main()
