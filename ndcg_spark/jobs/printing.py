"""Printed output of all jobs: tables, gates and JSON; standard streams that survive a closed pipe or a full disk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from ndcg_spark.core import labels
from ndcg_spark.errors import escape_json, escape_unprintable

if TYPE_CHECKING:
    from rich.text import Text

MAX_SEGMENTS = 30


def make_cell(text: str, style: str = "") -> Text:
    """Make a table cell; brackets and colons in it are not markup or emoji."""
    from rich.text import Text  # not imported for --help, which must be fast

    return Text(escape_unprintable(text), style=style)


def print_rows(title: str, rows: list[dict[str, str]]) -> None:
    """Print rows as a table on a terminal, else as one line each, where the first two columns have no names."""
    if not sys.stdout.isatty():
        for row in rows:
            first, second, *others = row.items()
            print(escape_unprintable("  ".join([first[1], second[1], *(f"{name} {text}" for name, text in others)])))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=make_cell(title))
    for name in rows[0] if rows else ():
        table.add_column(make_cell(name))
    for row in rows:
        table.add_row(*map(make_cell, row.values()))
    Console().print(table)


def format_gate(gate: Mapping[str, Any]) -> str:
    """Format the outcome of a gate: whether it is met, the run (if it has a name), and the value."""
    value = labels.number(gate["value"], ".6f")
    pair = f"{gate['run']} against {gate['baseline']}" if "baseline" in gate else gate["run"]
    detail = f"{pair}: {value}" if pair else value
    return escape_unprintable(f"gate {gate['gate']}: {'met' if gate['met'] else 'NOT MET'} ({detail})")


def format_json(facts: Mapping[str, Any]) -> str:
    return escape_json(json.dumps(facts, ensure_ascii=False, allow_nan=False, default=str))


class _TolerantStream:
    """Standard stream that survives a closed pipe or a full disk, and escapes what its encoding lacks.

    `stream` is None if the stream was closed when the process started.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._is_open = stream is not None
        # Writing to a descriptor that is open for reading fails with the same error as writing to a closed one.
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
        """Flush once more. Python flushes again at exit, so the rest of a lost stream goes to the null device."""
        self.flush()
        with suppress(OSError, ValueError):
            if self.lost is not None:
                null_device = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null_device, self._stream.fileno())
                os.close(null_device)
            if not self._is_open:
                self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def tolerate_lost_streams(prog: str) -> Iterator[None]:
    """Continue the block if its output cannot be printed; warn about lost standard output on standard error."""
    before = sys.stdout, sys.stderr
    _open_missing_descriptors()
    out, err = _TolerantStream(before[0]), _TolerantStream(before[1])
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        out.end()
        if out.lost is not None:
            print(f"{prog}: warning: standard output ended early: {out.lost.strerror or out.lost}", file=err)
        err.end()


def _open_missing_descriptors() -> None:
    """Open closed standard descriptors on the null device; else Java would print into the next file or socket."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
