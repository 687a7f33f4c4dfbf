"""Log lines, for people or as JSON (`--log-format`), and the progress of a job."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from ndcg_spark.core.redaction import redact, redact_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.status import Status


LOG_FORMATS = ("text", "json")
LOGGER = "ndcg_spark"


def log_format_option() -> click.Option:
    return click.Option(["--log-format"], type=click.Choice(LOG_FORMATS), default="text", show_default=True,
                        envvar="NDCG_SPARK_LOG_FORMAT", is_eager=True, callback=_set_log_format, help="Form of "
                        "the log lines on standard error: for people, or one JSON object a line.")  # fmt: skip


def find_log_format(arguments: Sequence[str]) -> str:
    """Find `--log-format` before options are parsed, so that option errors are logged in that format."""
    formats = [*[argument.partition("=")[2] for argument in arguments if argument.startswith("--log-format=")],
             *[after for argument, after in itertools.pairwise(arguments) if argument == "--log-format"]]  # fmt: skip
    log_format = formats[-1] if formats else os.environ.get("NDCG_SPARK_LOG_FORMAT", "")
    return log_format if log_format in LOG_FORMATS else LOG_FORMATS[0]


def _set_log_format(context: click.Context, _: click.Parameter, log_format: str) -> str:
    if isinstance(context.obj, CommandLog):
        context.obj.set_format(log_format)
    return log_format


class JsonFormatter(logging.Formatter):
    """Format records as `{"ts", "level", "logger", "msg", "context", "exception"}`; credentials are hidden.

    `spark.read.schema(pyspark.logger.SPARK_LOG_SCHEMA).json(path)` reads these lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        now = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "ts": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
            "context": getattr(record, "context", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            error, frames = record.exc_info[1], traceback.extract_tb(record.exc_info[2])
            stack = [
                {"class": None, "method": frame.name, "file": frame.filename, "line": str(frame.lineno)}
                for frame in frames
            ]
            line["exception"] = {"class": type(error).__name__, "msg": str(error), "stacktrace": stack}
        return json.dumps(redact_values(line), ensure_ascii=False, default=str)


class CommandLog:
    """Log of a command in this process. `close` removes its handler."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(LOGGER)
        self._handler: logging.Handler | None = None
        self._before = (self._logger.level, self._logger.propagate)

    @property
    def is_json(self) -> bool:
        return self._handler is not None

    def set_format(self, log_format: str) -> None:
        self.close()
        if log_format == "json":
            self._handler = logging.StreamHandler(sys.stderr)
            self._handler.setFormatter(JsonFormatter())
            self._logger.addHandler(self._handler)
            self._logger.setLevel(logging.INFO)
            self._logger.propagate = False

    def error(self, message: str, context: Mapping[str, Any], error: BaseException | None = None) -> None:
        self._logger.error(message, extra={"context": dict(context)}, exc_info=error)

    def close(self) -> None:
        if self._handler is not None:
            self._logger.removeHandler(self._handler)
            self._logger.setLevel(self._before[0])
            self._logger.propagate = self._before[1]
            self._handler = None


class Progress:
    """Report progress on standard error: a spinner on a terminal, otherwise a line for each step.

    The times of steps and the facts of `record` go to the run log. `context` is part of every JSON line.
    """

    def __init__(self, log_format: str = "text", context: Mapping[str, Any] | None = None) -> None:
        from rich.console import Console  # not imported for --help, which must be fast

        self.steps: list[tuple[str, float]] = []
        self.facts: dict[str, Any] = {}
        self._log = logging.getLogger(f"{LOGGER}.jobs") if log_format == "json" else None
        self._context = dict(context or {})
        self._console = Console(stderr=True)
        self._live = self._log is None and sys.stderr.isatty()
        self._status: Status | None = None
        self._step = ""

    @contextmanager
    def step(self, label: str) -> Iterator[None]:
        began = time.monotonic()
        self._step = redact(label)
        try:
            if self._live:
                with self._console.status(self._step) as self._status:
                    yield
            else:
                yield
        finally:
            self._status = None
            seconds = time.monotonic() - began
            self.steps.append((label, seconds))  # the last step of a failed run is the one that failed
        self.log(f"{label}: {seconds:.1f} s", step=label, seconds=round(seconds, 3))

    def record(self, **facts: Any) -> None:
        self.facts.update(facts)

    def log(self, text: str, **context: Any) -> None:
        """Print a line, or log it with `context` as JSON."""
        text = "\\n".join(redact(text).splitlines())  # paths may contain any character, line breaks too
        if self._log is not None:
            level = logging.WARNING if text.startswith("warning: ") else logging.INFO
            self._log.log(level, text.removeprefix("warning: "), extra={"context": {**self._context, **context}})
        elif self._live:
            self._console.print(text, style="dim", highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    @contextmanager
    def show_tasks(self, spark: SparkSession) -> Iterator[None]:
        """Show the number of finished tasks on a terminal with Spark Connect; classic sessions have their own bar."""
        if not self._live:
            yield
            return
        with suppress(Exception):  # classic sessions and Spark 3.5 lack this; their errors differ
            spark.registerProgressHandler(self.update_tasks)  # type: ignore[arg-type]  # any function will do
        try:
            yield
        finally:
            with suppress(Exception):  # as above; or the session has ended
                spark.removeProgressHandler(self.update_tasks)  # type: ignore[arg-type]  # as above

    def update_tasks(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Show the progress of an operation; the progress handler of Spark Connect."""
        known_stages = list(stages or ())
        total = sum(stage.num_tasks for stage in known_stages)
        if self._status is not None and total and not done:
            ready = sum(stage.num_completed_tasks for stage in known_stages)
            self._status.update(f"{self._step}: {ready} of {total} tasks, {inflight_tasks} running")
