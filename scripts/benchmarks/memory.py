"""Peak memory of processes that a contender runs in."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil


class PeakMemory:
    """Samples the resident memory of child processes: of the JVM and its Python workers, or of all others.

    A JVM keeps what it once had, so a number of the JVM is that of the hungriest contender so far.
    """

    def __init__(self, *, jvm: bool) -> None:
        self.jvm = jvm
        self.gigabytes = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.gigabytes = max(self.gigabytes, self._now() / 2**30)

    def _now(self) -> int:
        total = 0
        for child in psutil.Process().children():
            try:
                if (child.name() == "java") == self.jvm:
                    family = [child, *child.children(recursive=True)]
                    total += sum(one.memory_info().rss for one in family)
            except psutil.Error:  # it ended meanwhile
                continue
        return total
