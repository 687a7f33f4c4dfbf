"""Ctrl-C and SIGTERM as one `KeyboardInterrupt`, without the tracebacks of py4j and pyspark."""

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
"""Signals that end a job: Ctrl-C, and the signal that schedulers, Kubernetes and systemd send before they kill."""
_NOISY_LOGGERS = ("py4j", "pyspark")
_SECONDS_BETWEEN = 0.05
_NEVER = logging.CRITICAL + 1
_PY4J_FILE = re.compile(r"[\\/]py4j[\\/]\w+\.py$")
"""Source files of py4j: it logs interrupted calls with the root logger, so its own logger's level does not help."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM ended the job."""


class InterruptHandlers:
    """Handlers of Ctrl-C and SIGTERM: the first signal waits until Spark has started, later signals raise at once.

    If Java is interrupted while it starts, its process is orphaned. A `KeyboardInterrupt` inside a finalizer, such as
    those of py4j, is printed and lost, so the signal is sent again. The loggers of py4j are silenced after a signal:
    pyspark's own handler calls Java in the middle of another call, and that failure would be logged.
    """

    def __init__(self) -> None:
        self.seen: KeyboardInterrupt | None = None
        self._starting = True
        # Python allows signal handlers in the main thread only.
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before = {signal_number: signal.getsignal(signal_number) for signal_number in SIGNALS}
        self._levels = {name: logging.getLogger(name).level for name in _NOISY_LOGGERS}
        self._again: threading.Timer | None = None
        self._hook_before = sys.unraisablehook
        if self._is_main:
            sys.unraisablehook = self._send_again
        self._install()
        self._silence_loggers()  # pyspark installs its own handler before Spark has started

    def finish_start(self) -> None:
        """Replace the handler that pyspark has installed; raise if a signal arrived during the start."""
        self._install()
        self._starting = False
        if self.seen:
            raise self.seen
        self._restore_loggers()

    def restore(self) -> None:
        """Restore the previous handlers and the levels of the loggers."""
        if self._is_main:
            sys.unraisablehook = self._hook_before
            if self._again is not None:
                self._again.cancel()
            for signal_number, before in self._before.items():
                default = signal.default_int_handler if signal_number == signal.SIGINT else signal.SIG_DFL
                signal.signal(signal_number, default if before is None else before)
        self._restore_loggers()

    def _install(self) -> None:
        if self._is_main:
            for signal_number, before in self._before.items():  # a background job of a shell keeps ignoring Ctrl-C
                signal.signal(signal_number, signal.SIG_IGN if before is signal.SIG_IGN else self._interrupt)

    def _interrupt(self, number: int, _: object) -> None:
        first = self.seen is None
        self.seen = TerminatedError() if number == signal.SIGTERM else KeyboardInterrupt()
        self._silence_loggers()
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

    def _silence_loggers(self) -> None:
        for name in _NOISY_LOGGERS:
            logging.getLogger(name).setLevel(_NEVER)
        # Filters of other loggers do not see their children's records.
        logging.getLogger().addFilter(_is_not_from_py4j)

    def _restore_loggers(self) -> None:
        logging.getLogger().removeFilter(_is_not_from_py4j)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return _PY4J_FILE.search(record.pathname) is None


def _terminate(_: int, frame: object) -> None:
    raise TerminatedError


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Raise `TerminatedError` in the block on SIGTERM, for the time before a job installs its own handlers."""
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
def handle_interrupts() -> Iterator[InterruptHandlers]:
    """Raise `KeyboardInterrupt` or `TerminatedError` for a signal; call `finish_start` when the session is open."""
    interrupts = InterruptHandlers()
    try:
        yield interrupts
    except PartlyWrittenError:  # the user must know more than that the job was interrupted
        raise
    except Exception:
        if interrupts.seen:  # errors of cleanup, such as stopping a session whose Java has ended, are not reported
            raise interrupts.seen from None
        raise
    finally:
        interrupts.restore()
