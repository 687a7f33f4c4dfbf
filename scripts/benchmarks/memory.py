"""Peak memory of processes that a contender runs in."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil

from scripts.benchmarks.timing import Contender


class PeakMemory:
    """Samples what `measure` gives, in bytes, and keeps the largest."""

    def __init__(self, measure: Callable[[], int]) -> None:
        self.gigabytes = 0.0
        self._measure = measure

    def around(self, contender: Contender) -> Contender:
        """Wrap a contender so that its memory is measured while it runs."""

        def run() -> tuple[object, float]:
            with self:
                return contender()

        return run

    def __enter__(self) -> PeakMemory:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.gigabytes = max(self.gigabytes, self._measure() / 2**30)


def measure_spark() -> int:
    """Resident memory of the JVM and its workers; a JVM keeps what it once had, of the hungriest contender so far."""
    return _measure_children(jvm=True)


def measure_others() -> int:
    """Resident memory of all other children."""
    return _measure_children(jvm=False)


def _measure_children(*, jvm: bool) -> int:
    total = 0
    for child in psutil.Process().children():
        try:
            if (child.name() == "java") == jvm:
                total += sum(process.memory_info().rss for process in (child, *child.children(recursive=True)))
        except psutil.Error:  # it ended meanwhile
            continue
    return total


def measure_largest_worker() -> int:
    """Resident memory of the largest Python worker of a local session."""
    largest = 0
    for child in psutil.Process().children(recursive=True):
        try:
            if "python" in child.name():
                largest = max(largest, child.memory_info().rss)
        except psutil.Error:  # it ended meanwhile
            continue
    return largest
