"""Count how often files and folders are opened, by any process and also by C++."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_IN_ACCESS, _IN_CLOSE, _IN_OPEN, _IN_ISDIR, _IN_NONBLOCK = 0x1, 0x18, 0x20, 0x40000000, 0x800
_HEADER = struct.Struct("iIII")


@contextmanager
def count_opened(*roots: Path) -> Iterator[Counter[str]]:
    """Count the opened files and folders at and below each root, by their paths; skips where inotify is missing.

    The counter is filled when the block ends. Folders that are made within the block are not watched.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("inotify is a part of Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_IN_NONBLOCK)
    folders = [folder for root in roots for folder in (root, *root.rglob("*")) if folder.is_dir()]
    # Linux merges events that are equal and follow each other: two opens of a file do so without what is in between.
    mask = _IN_OPEN | _IN_ACCESS | _IN_CLOSE
    watched = {libc.inotify_add_watch(descriptor, os.fsencode(folder), mask): folder for folder in folders}
    counts: Counter[str] = Counter()
    try:
        yield counts
        counts.update(str(watched[watch] / name) for watch, name in _read_events(descriptor))
    finally:
        os.close(descriptor)


def _read_events(descriptor: int) -> Iterator[tuple[int, str]]:
    while True:
        try:
            data = os.read(descriptor, 2**16)
        except BlockingIOError:
            return
        while data:
            watch, mask, _, length = _HEADER.unpack_from(data)
            end = _HEADER.size + length
            name = os.fsdecode(data[_HEADER.size : end].rstrip(b"\0"))
            if mask & _IN_OPEN and not (mask & _IN_ISDIR and name):  # a folder tells of itself
                yield watch, name
            data = data[end:]
