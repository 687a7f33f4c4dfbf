"""Steps of a job, as a person at a terminal sees them and as a log file keeps them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Progress:
    """Says on standard error what is going on: a spinner at a terminal, a line a step in a log."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = sys.stderr.isatty()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show a step while it runs, and how long it took.

        Parameters
        ----------
        what : str

        Yields
        ------
        None
        """
        began = time.monotonic()
        if self._live:
            with self._console.status(what):
                yield
        else:
            yield
        self.line(f"{what}: {time.monotonic() - began:.1f} s")

    def line(self, text: str) -> None:
        """Print a line.

        Parameters
        ----------
        text : str
        """
        text = "\\n".join(text.splitlines())  # names of paths may hold any character
        if self._live:
            self._console.print(text, style="dim", highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)
