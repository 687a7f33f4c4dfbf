"""Start the Python workers of a local session from the installed pyspark.

Spark puts a zip of its own Python code first on their path. Python compiles modules from a zip anew in every process,
which takes more than a second at each start of a session; installed modules are compiled once.

Spark talks to workers over TCP, and the end of a small input is sent when its beginning is acknowledged, 40 ms later.
Unix domain sockets do not wait, but then workers that Spark ends because they are idle print a traceback.

Workers collect garbage after each task, which takes 50 ms if the modules of pandas and Arrow are scanned.
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
"""Spark settings that start workers with this module. The workers must run the driver's Python."""
if hasattr(socket, "AF_UNIX"):
    SETTINGS["spark.python.unix.domain.socket.enabled"] = "true"
_SHUTDOWN_ERRORS = (ConnectionError, EOFError, KeyboardInterrupt)
"""Errors in a worker and in the daemon when Spark closes the connection, and at Ctrl-C."""
ZIP_ENDINGS = ("pyspark.zip", "-src.zip")
"""Endings of the paths that Spark adds: its own code, and py4j."""


def move_zips_last(path: list[str]) -> list[str]:
    """Move Spark's zips to the end of `sys.path`; they are needed only if pyspark is not installed."""
    return sorted(path, key=lambda entry: entry.endswith(ZIP_ENDINGS))


def suppress_shutdown_errors(worker: Callable[Socket, int | None]) -> Callable[Socket, int]:
    """Wrap a worker or the daemon so that it ends without a traceback at Ctrl-C and when Spark closes its connection.

    Spark closes the socket of a worker after a minute without work, and all sockets when a job fails. A worker
    process ends unless its exit code is 0.
    """

    def serve(*args: Socket.args, **kwargs: Socket.kwargs) -> int:
        try:
            return worker(*args, **kwargs) or 0
        except _SHUTDOWN_ERRORS:
            return 1

    return serve


def freeze_survivors(worker: Callable[Socket, int]) -> Callable[Socket, int]:
    """Wrap a worker so that objects that outlive a task, mostly modules, are not scanned by later collections."""

    def serve(*args: Socket.args, **kwargs: Socket.kwargs) -> int:
        code = worker(*args, **kwargs)
        gc.collect()
        gc.freeze()
        return code

    return serve


class QuietTraceback:
    """Replacement of the daemon's `traceback` module that does not print shutdown errors of idle workers."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], _SHUTDOWN_ERRORS):
            self._module.print_exc()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


if __name__ == "__main__":
    sys.path[:] = move_zips_last(sys.path)
    from pyspark import daemon

    daemon.worker = suppress_shutdown_errors(freeze_survivors(daemon.worker))
    vars(daemon)["traceback"] = QuietTraceback(traceback)
    sys.exit(suppress_shutdown_errors(daemon.manager)())
