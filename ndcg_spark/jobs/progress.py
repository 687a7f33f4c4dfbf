"""Steps of a job, as a person at a terminal sees them and as a log file keeps them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.status import Status

from ndcg_spark.core.redaction import redacted
from ndcg_spark.jobs.logs import LOGGER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress:
    """Says on standard error what is going on: a spinner at a terminal, a line for each step in a log.

    It also keeps what the run log says of the run: how long steps took, and what `note` was told. `context` is what
    every line of JSON says beside its own.
    """

    def __init__(self, log_format: str = "text", context: Mapping[str, Any] | None = None) -> None:
        self.steps: list[tuple[str, float]] = []
        self.facts: dict[str, Any] = {}
        self._log = logging.getLogger(f"{LOGGER}.jobs") if log_format == "json" else None
        self._context = dict(context or {})
        self._console = Console(stderr=True)
        self._live = self._log is None and sys.stderr.isatty()
        self._status: Status | None = None
        self._step = ""

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show a step while it runs, and how long it took."""
        began = time.monotonic()
        self._step = redacted(what)
        try:
            if self._live:
                with self._console.status(self._step) as self._status:
                    yield
            else:
                yield
        finally:
            self._status = None
            seconds = time.monotonic() - began
            self.steps.append((what, seconds))  # of a run that fails, the last one is where
        self.line(f"{what}: {seconds:.1f} s", step=what, seconds=round(seconds, 3))

    def note(self, **facts: Any) -> None:
        """Keep what the run log is to say of the run."""
        self.facts.update(facts)

    def line(self, text: str, **context: Any) -> None:
        """Print a line; `context` is what JSON says beside it."""
        text = "\\n".join(redacted(text).splitlines())  # names of paths may hold any character
        if self._log is not None:
            level = logging.WARNING if text.startswith("warning: ") else logging.INFO
            self._log.log(level, text.removeprefix("warning: "), extra={"context": {**self._context, **context}})
        elif self._live:
            self._console.print(text, style="dim", highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Show how many tasks are done at a terminal on Spark Connect; a classic session has a bar of its own."""
        if not self._live:
            yield
            return
        with suppress(Exception):  # a classic session or Spark 3.5; each says so in its own way
            spark.registerProgressHandler(self.tasks)  # type: ignore[arg-type]  # any function will do
        try:
            yield
        finally:
            with suppress(Exception):  # as above; or the session has ended
                spark.removeProgressHandler(self.tasks)  # type: ignore[arg-type]  # as above

    def tasks(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Show how far an operation is; the progress handler of Spark Connect."""
        known = list(stages or ())
        total = sum(one.num_tasks for one in known)
        if self._status is not None and total and not done:
            ready = sum(one.num_completed_tasks for one in known)
            self._status.update(f"{self._step}: {ready} of {total} tasks, {inflight_tasks} running")
