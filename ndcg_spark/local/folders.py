"""Folders of a process for temporary files; those of killed processes are removed by the next one."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

with suppress(ImportError):  # not on Windows
    import fcntl

PREFIX = "ndcg-spark-exchange-"


class OwnFolder:
    """A temporary folder. It goes with `remove`, or with this object, or with the next folder if all were killed."""

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            _remove_left(left)
        self.path, lock = _create_folder()
        self.remove = weakref.finalize(self, _remove, self.path, lock)


def _create_folder() -> tuple[str, int | None]:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        try:
            lock = _lock_folder(path)
        except (BlockingIOError, FileNotFoundError):  # another process has just taken it for one that is left
            continue
        except OSError:  # there are no locks: nobody else removes it
            return path, None
        if os.path.isdir(path):
            return path, lock
        os.close(lock)


def _lock_folder(path: str | Path) -> int:
    """Open a folder, and lock it until this process ends."""
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _remove_left(path: Path) -> None:
    """Remove a folder that no process holds."""
    with suppress(OSError):
        _remove(str(path), _lock_folder(path))


def _remove(path: str, lock: int | None) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)
