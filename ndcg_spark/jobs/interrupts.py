"""Ctrl-C and SIGTERM as one `KeyboardInterrupt`, without the tracebacks of the libraries between."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ndcg_spark.errors import PartlyWrittenError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Those that end a job: Ctrl-C, and what schedulers, Kubernetes and systemd send before they kill."""
_LOUD = ("py4j", "pyspark")
_SECONDS_BETWEEN = 0.05
_NEVER = logging.CRITICAL + 1
_PY4J = re.compile(r"[\\/]py4j[\\/]\w+\.py$")
"""Files of py4j, which logs interrupted calls by the root logger, past its own."""


class TerminatedError(KeyboardInterrupt):
    """A job was told to end by SIGTERM."""


class Interrupts:
    """Handlers of Ctrl-C and SIGTERM: the first waits until Spark has started, later ones raise at once.

    Java that is interrupted while it starts stays behind. A `KeyboardInterrupt` within a finalizer, such as those of
    py4j, is printed and lost, so the signal is sent again. The loggers of py4j are silent after a signal: pyspark's
    own handler calls Java in the middle of another call, and that failure would be logged.
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
        if self._is_main:
            sys.unraisablehook = self._hook_before
            if self._again is not None:
                self._again.cancel()
            for one, before in self._before.items():
                default = signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL
                signal.signal(one, default if before is None else before)
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


def _terminate(number: int, frame: object) -> None:
    raise TerminatedError


@contextmanager
def terminable() -> Iterator[None]:
    """End the block with `TerminatedError` on SIGTERM, as before a job has handlers of its own."""
    is_main = threading.current_thread() is threading.main_thread()
    handles = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if handles:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def quiet_interrupts() -> Iterator[Interrupts]:
    """End the block with `KeyboardInterrupt` or `TerminatedError` alone; call `started` once there is a session."""
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
