"""Ctrl-C and SIGTERM as one `KeyboardInterrupt`, without the tracebacks of the libraries between."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ndcg_spark.errors import PartlyWrittenError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Those that end a job: Ctrl-C, and what schedulers, Kubernetes and systemd send before they kill."""
_LOUD = ("py4j", "pyspark")
"""Loggers that get the traceback of every call that fails or is interrupted."""
_SECONDS_BETWEEN = 0.05
_NEVER = logging.CRITICAL + 1
_PY4J = re.compile(r"[\\/]py4j[\\/]\w+\.py$")
"""Files of py4j, which logs interrupted calls by the root logger, past its own."""


class TerminatedError(KeyboardInterrupt):
    """A job was told to end by SIGTERM."""


class Interrupts:
    """What Ctrl-C and SIGTERM do to a job.

    While Spark starts, the first one is remembered: Java that is interrupted before it has answered stays behind.
    Afterwards one raises `KeyboardInterrupt`. Where that is raised within a finalizer, such as those of py4j for
    objects of Java, Python prints and forgets it: such a signal is sent again a moment later.

    The handler that pyspark installs calls Java in the middle of another call, which fails, and py4j logs that: so it
    logs nothing from then on.
    """

    def __init__(self) -> None:
        self.seen: KeyboardInterrupt | None = None
        self._starting = True
        self._is_main = threading.current_thread() is threading.main_thread()  # no other thread may have handlers
        self._before = {one: signal.getsignal(one) for one in SIGNALS}
        self._levels = {name: logging.getLogger(name).level for name in _LOUD}
        self._again: threading.Timer | None = None
        self._hook_before = sys.unraisablehook
        if self._is_main:
            sys.unraisablehook = self._send_again
        self._install()
        self._hush()  # pyspark installs its handler before it has started

    def started(self) -> None:
        """Take the place of the handler that pyspark has installed; raise if there was a signal meanwhile."""
        self._install()
        self._starting = False
        if self.seen:
            raise self.seen
        self._be_loud()

    def end(self) -> None:
        """Put everything back as it was."""
        if self._is_main:
            sys.unraisablehook = self._hook_before
            if self._again is not None:
                self._again.cancel()
            for one, before in self._before.items():
                signal.signal(one, _default(one) if before is None else before)
        self._be_loud()

    def _install(self) -> None:
        if self._is_main:
            for one, before in self._before.items():  # a job in the background of a shell goes on ignoring Ctrl-C
                signal.signal(one, signal.SIG_IGN if before is signal.SIG_IGN else self._interrupt)

    def _interrupt(self, number: int, _: object) -> None:
        first = self.seen is None
        self.seen = TerminatedError() if number == signal.SIGTERM else KeyboardInterrupt()
        self._hush()
        if not (self._starting and first):
            raise self.seen

    def _send_again(self, ignored: sys.UnraisableHookArgs) -> None:
        if self.seen is None or ignored.exc_value is not self.seen:
            self._hook_before(ignored)
            return
        number = signal.SIGTERM if isinstance(self.seen, TerminatedError) else signal.SIGINT
        self._again = threading.Timer(_SECONDS_BETWEEN, os.kill, (os.getpid(), number))
        self._again.daemon = True
        self._again.start()

    def _hush(self) -> None:
        for name in _LOUD:
            logging.getLogger(name).setLevel(_NEVER)
        logging.getLogger().addFilter(_not_of_py4j)  # of a logger, it sees no records of loggers below

    def _be_loud(self) -> None:
        logging.getLogger().removeFilter(_not_of_py4j)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return _PY4J.search(record.pathname) is None


def _default(number: int) -> Callable[..., Any] | signal.Handlers:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


@contextmanager
def quiet_interrupts() -> Iterator[Interrupts]:
    """Let Ctrl-C and SIGTERM end the block with `KeyboardInterrupt` alone, the latter with `TerminatedError`.

    `started` of what is yielded is to be called once there is a session.
    """
    interrupts = Interrupts()
    try:
        yield interrupts
    except PartlyWrittenError:  # more to be known than that it was interrupted
        raise
    except Exception:
        if interrupts.seen:  # what fails on the way out, as to stop a session whose Java has ended, is no news
            raise interrupts.seen from None
        raise
    finally:
        interrupts.end()
