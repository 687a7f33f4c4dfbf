"""Writers in processes of their own, which can be killed. Run as a program, this is such a writer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from faults_rows import Task, as_json, broken_calls, from_json, write


class Writers:
    """Processes that wait for tasks. One that was killed is replaced in the background."""

    def __init__(self, count: int, place: str, scratch: Path) -> None:
        self._place, self._scratch, self._pool = place, scratch, ThreadPoolExecutor(count)
        self._started: list[subprocess.Popen[str]] = []
        self._ready: list[Future[subprocess.Popen[str]]] = [self._pool.submit(self._start) for _ in range(count)]

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # Python, and the Java it has started
            process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, __file__, self._place, str(self._scratch)],
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

    def write(self, at: int, task: Task, kill_after: float | None) -> str:
        """Run a task in one of the processes, and kill that after some seconds if asked to."""
        process = self._ready[at].result()
        killed: list[bool] = []
        timer = None
        if kill_after is not None:
            timer = threading.Timer(kill_after, lambda: (killed.append(True), process.kill()))
        if timer is not None:
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
        process.wait()
        if timer is None:
            raise RuntimeError("a writer crashed")
        self._ready[at] = self._pool.submit(self._start)
        return answer or "killed"


def serve(place: str, scratch: Path) -> None:
    """Run tasks from standard input until it ends."""
    from faults import session

    spark = session(scratch / f"writer-{os.getpid()}")
    print("ready", flush=True)
    with broken_calls():
        for line in sys.stdin:
            print(write(spark, place, from_json(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
