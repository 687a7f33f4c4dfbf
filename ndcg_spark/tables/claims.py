"""Claim slices of a folder for one writer, and remove the leftovers of killed writers.

A table's folder contains a hidden folder while it is written. In it, each writer has its own folder with its new rows
and a file that names the writer and its slices. The writer holds a lock (`flock`) on that file while it runs; the
kernel releases the lock whenever the process ends. A writer's folder without a lock is a leftover.

`flock` excludes threads, processes, and other hosts if the file system shares locks between hosts (NFS 4, CephFS,
Lustre with `-o flock`). Otherwise two hosts can write the same slice at once: the slice is that of one of them, as a
whole, and no error is reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ndcg_spark.errors import OutputRefusedError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # checked before use

LOCK_FOLDER = ".ndcg-spark"
_MUTEX, _CLAIM, _PREFIX, _REPLACED = "mutex", "claim.json", "write-", "replaced"
_MAX_ATTEMPTS = 1000
"""Attempts to lock a hidden folder that others remove at the same moment; two or three are enough in practice."""

Reporter = Callable[[str], None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_claimed: set[tuple[str, str]] = set()
_claim_lock = threading.Lock()


class Claim:
    """Slices of a folder that only this writer may replace.

    `replaced_folder` holds old rows that cannot be exchanged atomically.
    """

    def __init__(self, root: Path, hidden: Path, slices: Sequence[str], created: Sequence[Path]) -> None:
        self.root, self.created = root, created
        self.folder = hidden / f"{_PREFIX}{uuid.uuid4().hex}"
        self.rows_folder, self.replaced_folder = self.folder / "rows", self.folder / _REPLACED
        began = datetime.now(timezone.utc).isoformat(timespec="seconds")
        holder = {"host": socket.gethostname(), "process": os.getpid(), "began": began, "slices": list(slices)}
        with contextlib.ExitStack() as unless_complete:  # a full disk can raise at any line
            unless_complete.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.mkdir()
            self.descriptor = os.open(self.folder / _CLAIM, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            _lock(self.descriptor, root, wait=False)  # closes the descriptor on failure
            unless_complete.callback(os.close, self.descriptor)
            os.write(self.descriptor, json.dumps(holder).encode())
            unless_complete.pop_all()

    def release(self) -> None:
        try:
            _restore_replaced(self.folder, self.root)
            shutil.rmtree(self.rows_folder, ignore_errors=True)
            shutil.rmtree(self.replaced_folder, ignore_errors=True)
            with _hold_mutex(self.root) as hidden:
                shutil.rmtree(self.folder, ignore_errors=True)
                for folder in hidden.glob(f"{_PREFIX}*"):
                    if _read_holder(folder) is None:  # tasks of a killed writer may still write
                        _clear_leftover(folder, self.root)
        finally:
            os.close(self.descriptor)
        _remove_empty(self.created)


@contextlib.contextmanager
def delay_signals() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until a block of cleanup has ended; a second signal is handled at once."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    received: list[int] = []

    def delay(number: int, frame: object) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number in delayed:
            signal.signal(number, handlers[number])

    is_main = threading.current_thread() is threading.main_thread()  # only the main thread can set handlers
    delayed = [number for number, handler in handlers.items() if is_main and callable(handler)]
    for number in delayed:
        signal.signal(number, delay)
    try:
        yield
    finally:
        restore()
        if received:
            signal.raise_signal(received[0])


def claim_slices(root: Path, slices: Sequence[str], report: Reporter) -> Claim:
    """Claim slices of a folder, which is created if missing, and remove leftovers of killed writers.

    `report` gets a line about each leftover. Refuse if another writer holds a slice, or the file system has no locks.
    """
    if fcntl is None:
        raise OutputRefusedError(f"cannot write {str(root)!r}: this system has no flock; write to a remote path.")
    created = tuple(place for place in (root, *root.parents) if not place.exists())
    claim: Claim | None = None
    try:
        with delay_signals(), _hold_mutex(root) as hidden:  # a signal in between would leave the folder
            for folder in sorted(hidden.glob(f"{_PREFIX}*")):
                holder = _read_holder(folder)
                if holder is None:
                    report(_clear_leftover(folder, root))
                elif not set(slices).isdisjoint(holder["slices"]):
                    claimed = min(set(slices) & set(holder["slices"]))
                    writer = f"process {holder['process']} on {holder['host']} since {holder['began']}"
                    raise OutputRefusedError(
                        f"{claimed} of {str(root)!r} is being written by {writer}; wait for it to end, or stop it."
                    )
            claim = Claim(root, hidden, slices, created)
    except BaseException:
        if claim is not None:
            claim.release()
        _remove_empty(created)
        raise
    return claim


@contextlib.contextmanager
def lock_out_writers(root: Path) -> Iterator[bool]:
    """Lock new writers out of a folder for a moment; yields True if no writer is active."""
    with _hold_mutex(root) as hidden:
        yield os.listdir(hidden) == [_MUTEX]


@contextlib.contextmanager
def _hold_mutex(root: Path) -> Iterator[Path]:
    """Hold the lock of a table's hidden folder. The last holder removes the folder."""
    hidden = root / LOCK_FOLDER
    descriptor = _open_mutex(hidden)
    try:
        yield hidden
    finally:
        with contextlib.suppress(OSError):  # another writer may enter before the folder is removed
            if os.listdir(hidden) == [_MUTEX]:
                os.unlink(hidden / _MUTEX)
                hidden.rmdir()
        os.close(descriptor)


def _open_mutex(hidden: Path) -> int:
    for _ in range(_MAX_ATTEMPTS):
        try:
            hidden.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(hidden / _MUTEX, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the last holder has just removed it
            continue
        except OSError:
            with contextlib.suppress(OSError):
                hidden.rmdir()
            raise
        try:
            _lock(descriptor, hidden.parent, wait=True)
        except OutputRefusedError:  # without locks, no other writer can hold it
            with contextlib.suppress(OSError):
                os.unlink(hidden / _MUTEX)
                hidden.rmdir()
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(hidden / _MUTEX)):
                return descriptor
        os.close(descriptor)  # the file was removed meanwhile, so its lock excludes nobody
    raise FileNotFoundError(2, "cannot be created", str(hidden))


def _lock(descriptor: int, root: Path, *, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError as error:
        os.close(descriptor)
        raise OutputRefusedError(
            f"cannot write {str(root)!r}: its file system has no locks (flock: {error.strerror}); write elsewhere."
        ) from error


def _read_holder(folder: Path) -> dict[str, Any] | None:
    """Return the claim of a writer's folder; None if its writer is dead. Call this inside the mutex."""
    try:
        descriptor = os.open(folder / _CLAIM, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        _lock(descriptor, folder, wait=False)
    except BlockingIOError:
        holder: dict[str, Any] = json.loads((folder / _CLAIM).read_text())
        return holder
    os.close(descriptor)
    return None


def _clear_leftover(folder: Path, root: Path) -> str:
    _restore_replaced(folder, root)
    try:
        holder = json.loads((folder / _CLAIM).read_text())
        writer = f"process {holder['process']} on {holder['host']}, started {holder['began']}"
    except (OSError, ValueError, KeyError):
        writer = "an unknown process"
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        return f"could not remove files of a killed writer in {folder}, which are not part of the table: {writer}"
    return f"removed files of a killed writer in {root}: {writer}"


def _restore_replaced(folder: Path, root: Path) -> None:
    for night in _list_entries(folder / _REPLACED):
        for old in _list_entries(night):
            target = root / night.name / old.name
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                old.rename(target)


def _list_entries(folder: Path) -> list[Path]:
    """List the paths in a folder; none if it does not exist. Raise an OSError if it cannot be listed."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except FileNotFoundError:
        return []


def _remove_empty(created: Sequence[Path]) -> None:
    with contextlib.suppress(OSError):
        for folder in created:
            folder.rmdir()


class InProcessClaim:
    """Slices of a place that one thread of this process writes. Other processes are not excluded."""

    def __init__(self, place: str, folders: Sequence[str], reference: str) -> None:
        self._mine = {(place, folder) for folder in folders}
        with _claim_lock:
            claimed = sorted(self._mine & _claimed)
            if claimed:
                raise OutputRefusedError(
                    f"{claimed[0][1]} of {reference!r} is being written by another thread of this process; "
                    "wait for it to end."
                )
            _claimed.update(self._mine)

    def release(self) -> None:
        with _claim_lock:
            _claimed.difference_update(self._mine)
