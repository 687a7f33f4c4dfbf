"""`--log-format`: log lines for people, or as JSON in the shape in which Spark 4 writes its own.

Results go to standard output and log lines to standard error, in both formats.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

import click

from ndcg_spark.core.redaction import redacted_values

LOG_FORMATS = ("text", "json")
LOGGER = "ndcg_spark"
"""All loggers of this package are below it."""


def log_format_option() -> click.Option:
    """Build `--log-format`."""
    return click.Option(["--log-format"], type=click.Choice(LOG_FORMATS), default="text", show_default=True,
                        envvar="NDCG_SPARK_LOG_FORMAT", is_eager=True, callback=_use, help="Form of the log lines on "
                        "standard error: for people, or one JSON object a line.")  # fmt: skip


def form_asked_for(arguments: Sequence[str]) -> str:
    """Find `--log-format` before options are parsed, so that what is wrong with them is logged in that form."""
    asked = [*[one.partition("=")[2] for one in arguments if one.startswith("--log-format=")],
             *[after for one, after in itertools.pairwise(arguments) if one == "--log-format"]]  # fmt: skip
    found = asked[-1] if asked else os.environ.get("NDCG_SPARK_LOG_FORMAT", "")
    return found if found in LOG_FORMATS else LOG_FORMATS[0]


def _use(context: click.Context, _: click.Parameter, form: str) -> str:
    if isinstance(context.obj, Logs):
        context.obj.use(form)
    return form


class JsonFormatter(logging.Formatter):
    """Formats records as `{"ts", "level", "logger", "msg", "context"}`, with `exception` where there is one.

    `spark.read.schema(pyspark.logger.SPARK_LOG_SCHEMA).json(path)` reads these lines. Credentials are hidden.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line."""
        now = datetime.fromtimestamp(record.created, timezone.utc)
        entry: dict[str, Any] = {
            "ts": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "msg": record.getMessage(),
            "context": getattr(record, "context", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            entry["exception"] = _exception(record.exc_info[1], record.exc_info[2])
        return json.dumps(redacted_values(entry), ensure_ascii=False, default=str)


def _exception(error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
    frames = traceback.extract_tb(trace)
    stack = [{"class": None, "method": one.name, "file": one.filename, "line": str(one.lineno)} for one in frames]
    return {"class": type(error).__name__, "msg": str(error), "stacktrace": stack}


class Logs:
    """Where log lines go while a command runs in this process. Close it afterwards: it leaves no handler behind."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(LOGGER)
        self._handler: logging.Handler | None = None
        self._before = (self._logger.level, self._logger.propagate)

    @property
    def is_json(self) -> bool:
        """Whether lines are JSON."""
        return self._handler is not None

    def use(self, form: str) -> None:
        """Choose the form of log lines, one of `LOG_FORMATS`."""
        self.close()
        if form == "json":
            self._handler = logging.StreamHandler(sys.stderr)
            self._handler.setFormatter(JsonFormatter())
            self._logger.addHandler(self._handler)
            self._logger.setLevel(logging.INFO)
            self._logger.propagate = False

    def error(self, message: str, context: Mapping[str, Any], error: BaseException | None = None) -> None:
        """Log why a command ends."""
        self._logger.error(message, extra={"context": dict(context)}, exc_info=error)

    def close(self) -> None:
        """Put logging back as it was."""
        if self._handler is not None:
            self._logger.removeHandler(self._handler)
            self._logger.setLevel(self._before[0])
            self._logger.propagate = self._before[1]
            self._handler = None
