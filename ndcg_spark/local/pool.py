"""Worker processes of our own: they get functions with arguments, and give back results or the error of one."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from ndcg_spark.errors import InputRefusedError, NdcgSparkError, get_message
from ndcg_spark.local.folders import OwnFolder

Job = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments, which are pickled."""
_LENGTH = 8


def write_message(stream: IO[bytes], content: bytes) -> None:
    stream.write(len(content).to_bytes(_LENGTH, "little") + content)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """Read a message; None where the other side has ended."""
    length = stream.read(_LENGTH)
    if len(length) < _LENGTH:
        return None
    content = stream.read(size := int.from_bytes(length, "little"))
    return content if len(content) == size else None


class Pool:
    """Processes that work: this one and `processes` - 1 workers; and a folder for what is too large for memory.

    Arguments that another process cannot load stay in this one. Use it in a `with` block, which ends the workers and
    removes the folder.
    """

    def __init__(self, processes: int, *, imports: Sequence[str] = ()) -> None:
        self.processes, self._imports = processes, tuple(imports)
        self._own = OwnFolder()
        self.folder = self._own.path
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            with suppress(OSError):
                worker.kill()
        for worker in self._workers:
            worker.wait()
            for stream in (worker.stdin, worker.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
        self._own.remove()

    def start(self) -> None:
        """Start the workers, which import modules; this process works meanwhile. Without this `run` starts them.

        Ctrl-C and SIGTERM are blocked in them, as those may go to all processes at once: this one ends its workers.
        """
        here = [path or os.getcwd() for path in sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
        command = [sys.executable, "-m", "ndcg_spark.local.worker", self.folder, *self._imports]
        while len(self._workers) < self.processes - 1:
            with _block_signals():
                self._workers.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
                )

    def run(self, jobs: Iterable[Job]) -> Iterator[Any]:
        """Run jobs; yield their results in the order of the jobs.

        After a refusal no further job begins. Of several refusals the first in order of text is raised, so that it
        does not depend on which worker was faster.
        """
        listed = list(jobs)
        if self.processes < 2 or len(listed) < 2 or not _is_portable(listed[0]):
            for function, arguments in listed:
                yield function(*arguments)
            return
        self.start()
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        for index in range(len(listed)):
            waiting.put(index)
        threads = [
            threading.Thread(target=_serve, args=(worker, listed, waiting, done), daemon=True)
            for worker in self._workers
        ]
        for thread in threads:
            thread.start()
        while (number := _next(waiting)) is not None:
            function, arguments = listed[number]
            try:
                done.put((number, function(*arguments), None))
            except Exception as error:
                done.put((number, None, error))
                _stop(waiting, done)
        yield from self._in_order(done, len(listed))

    def _in_order(self, done: queue.SimpleQueue[tuple[int, Any, BaseException | None]], n: int) -> Iterator[Any]:
        arrived: dict[int, Any] = {}
        expected, errors = 0, list[BaseException]()
        for _ in range(n):
            number, result, error = done.get()
            if error is None:
                arrived[number] = result
            else:
                errors.append(error)
            while not errors and expected in arrived:
                yield arrived.pop(expected)
                expected += 1
        if errors:
            refusals = [error for error in errors if isinstance(error, InputRefusedError)]
            raise min(refusals, key=get_message) if len(refusals) == len(errors) else errors[0]


@contextmanager
def _block_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM for a moment; a process started meanwhile keeps them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _next(waiting: queue.SimpleQueue[int]) -> int | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def _is_portable(job: Job) -> bool:
    """Check that another process can load a job; only this one knows, say, a metric that a script defines."""
    try:
        return b"__main__" not in pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


def _serve(
    worker: subprocess.Popen[bytes],
    jobs: Sequence[Job],
    waiting: queue.SimpleQueue[int],
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]],
) -> None:
    """Hand jobs to one worker until none is left."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    while (number := _next(waiting)) is not None:
        answer, result = None, None
        error: BaseException | None = None
        try:
            with suppress(OSError, ValueError):  # the latter if the pool has closed its end
                write_message(worker.stdin, pickle.dumps(jobs[number]))
                answer = read_message(worker.stdout)
            if answer is None:
                error = _lost_worker_error(worker)
            else:
                result, error = pickle.loads(answer)
        except Exception as unreadable:
            error = unreadable
        done.put((number, result, error))
        if error is not None:
            _stop(waiting, done)


def _stop(waiting: queue.SimpleQueue[int], done: queue.SimpleQueue[tuple[int, Any, BaseException | None]]) -> None:
    """Cancel the waiting jobs."""
    while (number := _next(waiting)) is not None:
        done.put((number, None, None))


def _lost_worker_error(worker: subprocess.Popen[bytes]) -> NdcgSparkError:
    code = worker.wait()
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    cause = "; memory may be short: fewer processes need less" if code == -signal.SIGKILL else ""
    return NdcgSparkError(f"a worker process {how}{cause}. Run again.")
