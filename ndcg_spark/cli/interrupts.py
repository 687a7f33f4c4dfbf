"""Ctrl-C as one `KeyboardInterrupt`, without the tracebacks of the libraries between."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ndcg_spark.errors import PartlyWrittenError


class Interrupts:
    """What Ctrl-C does to a job.

    While Spark starts, the first one is remembered: Java that is interrupted before it has answered stays behind.
    Afterwards one raises `KeyboardInterrupt`. The handler that pyspark installs calls Java in the middle of another
    call, which fails, and py4j logs the traceback of every call that fails or is interrupted: so nothing is logged
    from then on.
    """

    def __init__(self) -> None:
        self.seen = False
        self._starting = True
        self._is_main = threading.current_thread() is threading.main_thread()  # no other thread may have handlers
        self._before = signal.getsignal(signal.SIGINT)
        self._disabled = logging.root.manager.disable
        self._install()
        logging.disable(logging.CRITICAL)  # pyspark installs its handler before it has started

    def started(self) -> None:
        """Take the place of the handler that pyspark has installed; raise if there was a Ctrl-C meanwhile."""
        self._install()
        self._starting = False
        if self.seen:
            raise KeyboardInterrupt
        logging.disable(self._disabled)

    def end(self) -> None:
        """Put everything back as it was."""
        if self._is_main:
            signal.signal(signal.SIGINT, signal.default_int_handler if self._before is None else self._before)
        logging.disable(self._disabled)

    def _install(self) -> None:
        if self._is_main:  # a job in the background of a shell goes on ignoring it
            signal.signal(signal.SIGINT, signal.SIG_IGN if self._before is signal.SIG_IGN else self._interrupt)

    def _interrupt(self, *_: object) -> None:
        first, self.seen = not self.seen, True
        logging.disable(logging.CRITICAL)
        if not (self._starting and first):
            raise KeyboardInterrupt


@contextmanager
def quiet_interrupts() -> Iterator[Interrupts]:
    """Let Ctrl-C end the block with `KeyboardInterrupt` alone.

    Yields
    ------
    Interrupts
        Its `started` is to be called once there is a session.
    """
    interrupts = Interrupts()
    try:
        yield interrupts
    except PartlyWrittenError:  # more to be known than that it was interrupted
        raise
    except Exception:
        if interrupts.seen:  # what fails on the way out, as to stop a session whose Java has ended, is no news
            raise KeyboardInterrupt from None
        raise
    finally:
        interrupts.end()
