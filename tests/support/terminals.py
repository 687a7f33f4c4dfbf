"""Terminals that nobody sits at: what a program prints there, as the terminal gets it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE = 60  # seconds; a spinner shows a new text within a tenth of one
_END = "\0end of what was printed\0"


@contextmanager
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A terminal to print to, and a function that says what has been printed there so far."""
    leader, follower = os.openpty()
    shown: list[bytes] = []

    def take() -> None:
        """Read at once: a terminal holds some kilobytes, and whoever prints more waits."""
        try:
            while some := os.read(leader, 2**16):
                shown.append(some)
        except OSError:  # the other end is closed
            pass

    def read() -> str:
        return b"".join(shown).decode("utf-8", "replace").replace("\r\n", "\n").replace(_END, "")

    def read_all() -> str:
        n_before = b"".join(shown).count(_END.encode())
        print(end=_END, file=stream, flush=True)
        end = time.monotonic() + PATIENCE
        while b"".join(shown).count(_END.encode()) == n_before:
            assert time.monotonic() < end, "the terminal does not show what was printed"
            time.sleep(0.01)
        return read()

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    try:
        with os.fdopen(follower, "w", encoding="utf-8") as stream:
            yield stream, read_all
    finally:
        taking.join(PATIENCE)
        os.close(leader)


def wait_for(text: str, read: Callable[[], str]) -> None:
    """Wait until a text is shown."""
    end = time.monotonic() + PATIENCE
    while text not in read():
        assert time.monotonic() < end, f"{text!r} is not in {read()!r}"
        time.sleep(0.02)
