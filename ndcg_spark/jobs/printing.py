"""Standard streams that a job outlives: its tables are written before, and its exit code tells of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class _Lasting:
    """A stream that escapes what its encoding lacks, and goes on when nobody reads it, or its disk is full.

    None stands for one that was closed when Python started.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._is_open = stream is not None
        # Whoever writes to a descriptor that is open for reading is told the same as of a closed one.
        self._stream = stream or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text, or nothing once something was lost."""
        if self.lost is None:
            try:
                try:
                    self._stream.write(text)
                except UnicodeEncodeError:
                    encoding = self._stream.encoding
                    self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            except OSError as error:
                self.lost = error
        return len(text)

    def flush(self) -> None:
        """Flush, unless something was lost."""
        if self.lost is None:
            try:
                self._stream.flush()
            except OSError as error:
                self.lost = error

    def end(self) -> None:
        """Flush for the last time; what is left of a lost stream goes nowhere, as Python will flush it again."""
        self.flush()
        with suppress(OSError, ValueError):
            if self.lost is not None:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
            if not self._is_open:
                self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lasting_streams(prog: str) -> Iterator[None]:
    """Let what cannot be printed be a warning of the block at most, and no error.

    Standard output that is lost is a warning on standard error. Nobody is told that standard error is lost.
    """
    before = sys.stdout, sys.stderr
    _fill_descriptors()
    out, err = _Lasting(before[0]), _Lasting(before[1])
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        out.end()
        if out.lost is not None:
            print(f"{prog}: warning: standard output ended early: {out.lost.strerror or out.lost}", file=err)
        err.end()


def _fill_descriptors() -> None:
    """Open closed standard descriptors to nowhere: else the next file or socket would get what Java prints."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
