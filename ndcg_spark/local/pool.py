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

from ndcg_spark.errors import InputRefusedError, NdcgSparkError, text_of
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
    """Up to `processes` workers, started with the first jobs, and a folder for what is too large for memory.

    With one process, or for arguments that another process cannot load, functions run in this one. Use it in a `with`
    block, which ends the workers and removes the folder.
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
        """Start the workers, which import modules meanwhile; without this `run` starts them.

        Ctrl-C and SIGTERM are kept from them, as those may go to all processes at once: this one ends its workers.
        """
        here = [path or os.getcwd() for path in sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
        command = [sys.executable, "-m", "ndcg_spark.local.worker", self.folder, *self._imports]
        while len(self._workers) < self.processes:
            with _signals_kept_back():
                self._workers.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
                )

    def run(self, jobs: Iterable[Job]) -> Iterator[Any]:
        """Run jobs; yield their results in the order of the jobs.

        After a refusal no further job begins. Of several refusals the first in order of text is raised, so that it
        does not depend on which worker was faster.
        """
        listed = list(jobs)
        packed = [_packed(job) for job in listed]
        if self.processes < 2 or len(listed) < 2 or None in packed:
            for function, arguments in listed:
                yield function(*arguments)
            return
        self.start()
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        for number in range(len(packed)):
            waiting.put(number)
        threads = [
            threading.Thread(target=_serve, args=(worker, packed, waiting, done), daemon=True)
            for worker in self._workers
        ]
        for thread in threads:
            thread.start()
        yield from self._in_order(done, waiting, len(packed))

    def _in_order(
        self,
        done: queue.SimpleQueue[tuple[int, Any, BaseException | None]],
        waiting: queue.SimpleQueue[int],
        n: int,
    ) -> Iterator[Any]:
        arrived: dict[int, Any] = {}
        expected, n_done, errors = 0, 0, list[BaseException]()
        while n_done < n:
            number, result, error = done.get()
            n_done += 1
            if error is None:
                arrived[number] = result
            else:
                errors.append(error)
                with suppress(queue.Empty):
                    while True:
                        waiting.get_nowait()
                        n -= 1
            while not errors and expected in arrived:
                yield arrived.pop(expected)
                expected += 1
        if errors:
            refusals = [error for error in errors if isinstance(error, InputRefusedError)]
            raise min(refusals, key=text_of) if len(refusals) == len(errors) else errors[0]


@contextmanager
def _signals_kept_back() -> Iterator[None]:
    """Keep signals back for a moment; a process that is started meanwhile does so for good."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _packed(job: Job) -> bytes | None:
    """Pickle a job; None where it has what only this process knows, such as a metric that a script defines."""
    try:
        content = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in content else content


def _serve(
    worker: subprocess.Popen[bytes],
    packed: Sequence[bytes | None],
    waiting: queue.SimpleQueue[int],
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]],
) -> None:
    """Hand jobs to one worker until none is left."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    while True:
        try:
            number = waiting.get_nowait()
        except queue.Empty:
            return
        answer = None
        with suppress(OSError, ValueError):  # the latter if the pool has closed its end
            write_message(worker.stdin, packed[number] or b"")
            answer = read_message(worker.stdout)
        try:
            result, error = (None, _lost(worker)) if answer is None else pickle.loads(answer)
        except Exception as unreadable:
            result, error = None, unreadable
        done.put((number, result, error))
        if answer is None:
            return


def _lost(worker: subprocess.Popen[bytes]) -> NdcgSparkError:
    code = worker.wait()
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    cause = "; memory may be short: fewer processes need less" if code == -signal.SIGKILL else ""
    return NdcgSparkError(f"a worker process {how}{cause}. Run again.")
