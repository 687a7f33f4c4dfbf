"""A standalone cluster on this machine that loses an executor now and then."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from support.cluster import Cluster, kill

SETTINGS = {
    "spark.cores.max": "2",
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "8",
}


@contextmanager
def cluster_below(scratch: Path, writers: int) -> Iterator[Cluster]:
    """Start a cluster of two workers, with an executor for each writer."""
    home = str(Path(pyspark.__file__).resolve().parent)
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    with Cluster(scratch / "cluster", environment, scratch, cores=writers) as cluster:
        yield cluster


@contextmanager
def losing_executors(cluster: Cluster, rng: random.Random) -> Iterator[list[int]]:
    """Kill an executor at some moment of the block, in every other block; yields those that were killed."""
    killed: list[int] = []

    def strike() -> None:
        executors = list(cluster.executors())
        if executors:
            with suppress(ProcessLookupError):
                kill(rng.choice(executors))
                killed.append(1)

    timer = threading.Timer(rng.uniform(0, 1.5), strike) if rng.random() < 0.5 else None
    if timer is not None:
        timer.start()
    try:
        yield killed
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()
