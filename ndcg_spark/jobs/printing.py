"""What a person reads, whatever the job: tables, intervals, gates; JSON; streams that a job outlives."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from ndcg_spark.core import labels
from ndcg_spark.errors import json_printable, printable

if TYPE_CHECKING:
    from rich.text import Text

MOST_SEGMENTS = 30


def cell(text: str, style: str = "") -> Text:
    """Make a cell in which brackets and colons are neither markup nor emoji."""
    from rich.text import Text  # help does without it

    return Text(printable(text), style=style)


def show_cells(title: str, rows: list[dict[str, str]]) -> None:
    """Print rows of named texts: a table at a terminal, else a line each, in which the first two have no names."""
    if not sys.stdout.isatty():
        for row in rows:
            first, second, *others = row.items()
            print(printable("  ".join([first[1], second[1], *(f"{name} {text}" for name, text in others)])))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=cell(title))
    for name in rows[0] if rows else ():
        table.add_column(cell(name))
    for row in rows:
        table.add_row(*map(cell, row.values()))
    Console().print(table)


def gate_line(gate: Mapping[str, Any]) -> str:
    """Say whether a gate is met, by which run (empty: one ranker without a name) and with what value."""
    value = labels.number(gate["value"], ".6f")
    who = f"{gate['run']} against {gate['baseline']}" if "baseline" in gate else gate["run"]
    about = f"{who}: {value}" if who else value
    return printable(f"gate {gate['gate']}: {'met' if gate['met'] else 'NOT MET'} ({about})")


def to_json(facts: Mapping[str, Any]) -> str:
    return json_printable(json.dumps(facts, ensure_ascii=False, allow_nan=False, default=str))


class _Lasting:
    """A stream that escapes what its encoding lacks and outlives its reader or disk; None: a closed one."""

    def __init__(self, stream: TextIO | None) -> None:
        self._is_open = stream is not None
        # Whoever writes to a descriptor that is open for reading is told the same as of a closed one.
        self._stream = stream or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
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
    """Let the block go on where nothing can be printed; lost standard output is a warning on standard error."""
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
