"""Who writes which slices of a folder now, and what killed writers left behind.

A table's folder has a hidden folder while it is written. Each writer has a folder of its own in there: its new rows,
and a file that names the writer and its slices. The writer holds a lock (`flock`) on that file as long as it lives;
the kernel drops the lock when the process ends, however it ends. A writer's folder without a lock is a leftover.

`flock` excludes threads, processes, and hosts on file systems that carry locks between hosts (NFS 4, CephFS,
Lustre with `-o flock`). On one that does not, two hosts can write one slice at once: one of them wins whole, and
neither is told.
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
    fcntl = None  # type: ignore[assignment]  # asked for where it is used

HIDDEN = ".ndcg-spark"
_MUTEX, _CLAIM, _PREFIX, _REPLACED = "mutex", "claim.json", "write-", "replaced"
_ATTEMPTS = 1000
"""To enter a hidden folder that others remove at the same moment; two or three are enough in practice."""

Tell = Callable[[str], None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_claimed: set[tuple[str, str]] = set()
_claiming = threading.Lock()


class Claim:
    """Slices of a folder that only this writer may replace.

    `rows` is a folder for new rows, `replaced` for old ones that cannot be exchanged for new ones in one step.
    """

    def __init__(self, root: Path, hidden: Path, slices: Sequence[str], created: Sequence[Path]) -> None:
        self.root, self.created = root, created
        self.folder = hidden / f"{_PREFIX}{uuid.uuid4().hex}"
        self.rows, self.replaced = self.folder / "rows", self.folder / _REPLACED
        began = datetime.now(timezone.utc).isoformat(timespec="seconds")
        holder = {"host": socket.gethostname(), "process": os.getpid(), "began": began, "slices": list(slices)}
        with contextlib.ExitStack() as unless_complete:  # a full disk may end this anywhere
            unless_complete.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.mkdir()
            self.descriptor = os.open(self.folder / _CLAIM, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            _lock(self.descriptor, root, wait=False)  # closes it if that fails
            unless_complete.callback(os.close, self.descriptor)
            os.write(self.descriptor, json.dumps(holder).encode())
            unless_complete.pop_all()

    def release(self) -> None:
        try:
            _put_back(self.folder, self.root)
            shutil.rmtree(self.rows, ignore_errors=True)
            shutil.rmtree(self.replaced, ignore_errors=True)
            with _mutex(self.root) as hidden:
                shutil.rmtree(self.folder, ignore_errors=True)
                for entry in hidden.glob(f"{_PREFIX}*"):
                    if _holder(entry) is None:  # tasks of a killed writer go on for a moment after it was cleared
                        _clear(entry, self.root)
        finally:
            os.close(self.descriptor)
        _remove_empty(self.created)


@contextlib.contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until a block of cleanup has ended; a second signal is handled at once."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    received: list[int] = []

    def delay(number: int, frame: object) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number in delayed:
            signal.signal(number, handlers[number])

    is_main = threading.current_thread() is threading.main_thread()  # no other thread has handlers
    delayed = [number for number, handler in handlers.items() if is_main and callable(handler)]
    for number in delayed:
        signal.signal(number, delay)
    try:
        yield
    finally:
        restore()
        if received:
            signal.raise_signal(received[0])


def claim_slices(root: Path, slices: Sequence[str], tell: Tell) -> Claim:
    """Claim slices of a folder, made if it does not exist, and remove what killed writers left there.

    `tell` reports each leftover. Refused when somebody else writes one of the slices, or the file system has no
    locks.
    """
    if fcntl is None:
        raise OutputRefusedError(f"cannot write {str(root)!r}: this system has no flock; write to a remote path.")
    created = tuple(place for place in (root, *root.parents) if not place.exists())
    try:
        with _mutex(root) as hidden:
            for entry in sorted(hidden.glob(f"{_PREFIX}*")):
                holder = _holder(entry)
                if holder is None:
                    tell(_clear(entry, root))
                elif not set(slices).isdisjoint(holder["slices"]):
                    taken = min(set(slices) & set(holder["slices"]))
                    who = f"process {holder['process']} on {holder['host']} since {holder['began']}"
                    raise OutputRefusedError(
                        f"{taken} of {str(root)!r} is being written by {who}; wait for it to end, or stop it."
                    )
            return Claim(root, hidden, slices, created)
    except BaseException:
        _remove_empty(created)
        raise


@contextlib.contextmanager
def lock_out_writers(root: Path) -> Iterator[bool]:
    """Lock new writers out of a folder for a moment; yields True if no writer is active."""
    with _mutex(root) as hidden:
        yield os.listdir(hidden) == [_MUTEX]


@contextlib.contextmanager
def _mutex(root: Path) -> Iterator[Path]:
    """Hold the hidden folder of a table for a moment; the last one to leave it removes it."""
    hidden = root / HIDDEN
    descriptor = _enter(hidden)
    try:
        yield hidden
    finally:
        with contextlib.suppress(OSError):  # somebody may come in before the folder is removed
            if os.listdir(hidden) == [_MUTEX]:
                os.unlink(hidden / _MUTEX)
                hidden.rmdir()
        os.close(descriptor)


def _enter(hidden: Path) -> int:
    for _ in range(_ATTEMPTS):
        try:
            hidden.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(hidden / _MUTEX, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the last one to leave has just removed it
            continue
        except OSError:
            with contextlib.suppress(OSError):
                hidden.rmdir()
            raise
        try:
            _lock(descriptor, hidden.parent, wait=True)
        except OutputRefusedError:  # no file system on which anybody else could hold it
            with contextlib.suppress(OSError):
                os.unlink(hidden / _MUTEX)
                hidden.rmdir()
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(hidden / _MUTEX)):
                return descriptor
        os.close(descriptor)  # a file that was removed while we waited excludes nobody
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


def _holder(entry: Path) -> dict[str, Any] | None:
    """Return who holds a writer's folder; None if its writer is dead. Call this inside the mutex."""
    try:
        descriptor = os.open(entry / _CLAIM, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        _lock(descriptor, entry, wait=False)
    except BlockingIOError:
        holder: dict[str, Any] = json.loads((entry / _CLAIM).read_text())
        return holder
    os.close(descriptor)
    return None


def _clear(entry: Path, root: Path) -> str:
    _put_back(entry, root)
    try:
        holder = json.loads((entry / _CLAIM).read_text())
        who = f"process {holder['process']} on {holder['host']}, begun {holder['began']}"
    except (OSError, ValueError, KeyError):
        who = "an unknown process"
    shutil.rmtree(entry, ignore_errors=True)
    if os.path.lexists(entry):
        return f"could not remove what a killed writer left in {entry}, which holds no row of the table: {who}"
    return f"removed what a killed writer left in {root}: {who}"


def _put_back(entry: Path, root: Path) -> None:
    for night in _entries(entry / _REPLACED):
        for old in _entries(night):
            place = root / night.name / old.name
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                old.rename(place)


def _entries(folder: Path) -> list[Path]:
    """Entries of a folder; none if it does not exist. An OSError says that it cannot be listed."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except FileNotFoundError:
        return []


def _remove_empty(created: Sequence[Path]) -> None:
    with contextlib.suppress(OSError):
        for folder in created:
            folder.rmdir()


class ThreadClaim:
    """Slices of a place that one thread of this process writes; other processes are not seen."""

    def __init__(self, place: str, folders: Sequence[str], reference: str) -> None:
        self._mine = {(place, folder) for folder in folders}
        with _claiming:
            taken = sorted(self._mine & _claimed)
            if taken:
                raise OutputRefusedError(
                    f"{taken[0][1]} of {reference!r} is being written by another thread of this process; "
                    "wait for it to end."
                )
            _claimed.update(self._mine)

    def release(self) -> None:
        with _claiming:
            _claimed.difference_update(self._mine)
