"""Functions on their way to Python workers, which may not have what the functions need."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import cloudpickle

from ndcg_spark.core.batches import BatchFunction
from ndcg_spark.core.failures import HOW_TO_INSTALL, HOW_TO_SHIP, WORKERS_RUN


def as_shipped(function: BatchFunction) -> BatchFunction:
    """Pack a function for Python workers such that those that lack this package say which Python they run.

    Otherwise they fail before they have read anything of it, with no word of ours. What is packed has the annotations
    that Spark reads, and uses nothing of this package, so that any worker can load it.
    """
    content, here, host = _pickled(function), sys.executable, socket.gethostname()
    on_connect = "SPARK_CONNECT_MODE_ENABLED" in os.environ or "SPARK_REMOTE" in os.environ
    workers_run, ship, install = WORKERS_RUN, HOW_TO_SHIP, HOW_TO_INSTALL

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import socket
        import sys

        try:
            work: BatchFunction = pickle.loads(content)
        except ModuleNotFoundError as error:
            lacks = str(error.name).partition(".")[0]
            if on_connect or socket.gethostname() != host:
                cure = ship if lacks == "ndcg_spark" else install
            elif sys.executable == here:
                cure = "install it there, or set PYTHONPATH, before the session is made."
            else:
                cure = f"export PYSPARK_PYTHON={here} before the session is made."
            line = f"{workers_run} {sys.executable}, which has no {lacks}, and this program runs {here}: {cure}"
            # The text of a cause comes first, here without a stack; Spark would set it to None before it prints.
            cause = ModuleNotFoundError(line)
            kept = property(lambda _: cause, lambda _, new: None)
            kind = type("ModuleNotFoundError", (ModuleNotFoundError,), {"__cause__": kept, "__module__": "builtins"})
            raise kind(line) from None
        return work(batches)

    return run


def _pickled(function: BatchFunction) -> bytes:
    content: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    return content
