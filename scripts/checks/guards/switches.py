"""Which mutant is on; broken.py puts this module into its copy of the package, where each guard asks it.

Driver, Python workers and jobs of their own read one small file of shared memory, so a mutant is turned on while
Spark goes on running. It also records which tests come by which guard.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

FOLDER = ""  # filled in where the module is copied to
STATE = struct.Struct("ii")
"""Number of the mutant that is on, and of what is being run."""
RECORD = -1
"""In place of a mutant: none is on, and what is passed is recorded."""

_seen: set[tuple[int, int, bool]] = set()


def _open() -> mmap.mmap | bytes:
    if not FOLDER:
        return bytes(STATE.size)
    with open(os.path.join(FOLDER, "switch"), "rb") as file:
        return mmap.mmap(file.fileno(), STATE.size, access=mmap.ACCESS_READ)


_switch = _open()


def _is_on(number: int) -> bool:
    return STATE.unpack_from(_switch)[0] == number


def _record(number: int, outcome: bool) -> None:
    state, running = STATE.unpack_from(_switch)
    what = (running, number, outcome)
    if state != RECORD or what in _seen:
        return
    _seen.add(what)
    file = os.open(os.path.join(FOLDER, "passed"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, f"{running} {number} {int(outcome)}\n".encode())  # one call, so that lines stay whole
    finally:
        os.close(file)


def condition(number: int, never: int, settled: bool, value: Any) -> Any:
    """Return the condition; mutant `number` negates it, and `never` fixes it so that nothing is refused."""
    state = STATE.unpack_from(_switch)[0]
    if state == RECORD:
        _record(number, bool(value))
    elif state == number:
        return not value
    elif never and state == never:
        return settled
    return value


def off(number: int) -> bool:
    """Check whether an operand is left out."""
    return _is_on(number)


def dropped(number: int) -> bool:
    """Check whether a statement is left out."""
    _record(number, True)
    return _is_on(number)


def kept(number: int, element: Any) -> tuple[Any, ...]:
    """Return an element of a list, unless it is left out."""
    return () if dropped(number) else (element,)


def column(number: int, bad: Any) -> Any:
    """Return a Spark condition, or a condition that is false for every row."""
    return bad & False if dropped(number) else bad
