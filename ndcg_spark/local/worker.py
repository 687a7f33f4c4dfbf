"""A worker process: functions with arguments come in on standard input, results go out. It ends with its parent."""

from __future__ import annotations

import os
import pickle
import queue
import shutil
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import IO

from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.local.pandas_later import leave_pandas_out
from ndcg_spark.local.pool import read_message, write_message


def main(folder: str, imports: Sequence[str]) -> None:
    """Answer messages one after the other. If the parent is gone, remove the folder of both and end at once."""
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output that a user's metric prints is not a result
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, jobs, folder), daemon=True).start()
    leave_pandas_out()
    for name in imports:
        import_module(name)
    while True:
        answer = _answer(jobs.get())
        try:
            write_message(results, answer)
        except BrokenPipeError:
            _end(folder)


def _receive(stream: IO[bytes], jobs: queue.SimpleQueue[bytes], folder: str) -> None:
    while (content := read_message(stream)) is not None:
        jobs.put(content)
    _end(folder)


def _end(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _answer(content: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(content)
        return pickle.dumps((function(*arguments), None))
    except NdcgSparkError as error:
        return pickle.dumps((None, error))
    except BaseException as error:
        try:
            content = pickle.dumps((None, error))
            pickle.loads(content)
        except Exception:
            content = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return content


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
