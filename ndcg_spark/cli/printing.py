"""Standard output that a job outlives: its tables are written before, and its exit code tells of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class _Lasting:
    """A stream that escapes what its encoding lacks, and goes on when nobody reads it, or its disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lasting_output(prog: str) -> Iterator[None]:
    """Let what cannot be printed to standard output be a warning of the block, and no error.

    Parameters
    ----------
    prog : str
        What the program is called in messages.

    Yields
    ------
    None
    """
    stream = sys.stdout
    lasting = _Lasting(stream)
    sys.stdout = lasting
    try:
        yield
        lasting.flush()
    finally:
        sys.stdout = stream
        if lasting.lost is not None:
            with suppress(OSError):
                why = lasting.lost.strerror or lasting.lost
                print(f"{prog}: warning: standard output ended early: {why}", file=sys.stderr)
            with suppress(OSError, ValueError):  # Python flushes it again on its way out
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
