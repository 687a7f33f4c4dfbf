"""Start the Python workers of a local session from the installed pyspark.

Spark puts a zip of its own Python code first on their path. What comes from a zip Python compiles anew in every
process, which takes more than a second at each start of a session; of installed modules it keeps the compiled form.

Spark also speaks to them over TCP, and sends the last of a small input once the first is acknowledged, 40 ms later.
Over sockets of the file system it need not wait, but then workers that it ends for want of work print a traceback.

After each task it has them collect garbage: 50 ms, where the modules of pandas and Arrow are looked through.
"""

from __future__ import annotations

import gc
import socket
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, ParamSpec

Socket = ParamSpec("Socket")

SETTINGS = {"spark.python.daemon.module": "ndcg_spark.jobs.worker_daemon"}
"""Names the module that Spark starts workers with: this one, where workers run the Python of the driver."""
if hasattr(socket, "AF_UNIX"):
    SETTINGS["spark.python.unix.domain.socket.enabled"] = "true"
_GONE = (ConnectionError, EOFError, KeyboardInterrupt)
"""What is raised in a worker and in the daemon when Spark has closed the other end, and at Ctrl-C."""
ZIPS = ("pyspark.zip", "-src.zip")
"""Ends of the paths that Spark adds: its own code, and that of py4j."""


def zips_last(path: list[str]) -> list[str]:
    """Move Spark's zips to the end of a `sys.path`, where they help if nothing is installed."""
    return sorted(path, key=lambda entry: entry.endswith(ZIPS))


def ends_quietly(worker: Callable[Socket, int | None]) -> Callable[Socket, int]:
    """Make a worker, or the daemon, end without a traceback at Ctrl-C and when Spark has closed the other end.

    Spark closes the socket of a worker after a minute without work, and all sockets when a job fails. A worker
    process ends unless its exit code is 0.
    """

    def serve(*args: Socket.args, **kwargs: Socket.kwargs) -> int:
        try:
            return worker(*args, **kwargs) or 0
        except _GONE:
            return 1

    return serve


def freezes_survivors(worker: Callable[Socket, int]) -> Callable[Socket, int]:
    """Exclude what outlives a task, modules above all, from later collections of garbage."""

    def serve(*args: Socket.args, **kwargs: Socket.kwargs) -> int:
        code = worker(*args, **kwargs)
        gc.collect()
        gc.freeze()
        return code

    return serve


class QuietTraceback:
    """The module `traceback` as the daemon uses it, for workers that end before they work."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], _GONE):
            self._module.print_exc()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


if __name__ == "__main__":
    sys.path[:] = zips_last(sys.path)
    from pyspark import daemon

    daemon.worker = ends_quietly(freezes_survivors(daemon.worker))
    vars(daemon)["traceback"] = QuietTraceback(traceback)
    sys.exit(ends_quietly(daemon.manager)())
