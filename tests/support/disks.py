"""Disks that are full, folders that are closed to this process, and a file system that only Spark reaches."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BALLAST = "ballast"


def _mounted(options: str, folder: Path) -> None:
    """Mount a file system in memory, or skip the test."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a disk of its own can be mounted by root only")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")


class Disk:
    """A disk of some kilobytes in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, left: int = 0) -> None:
        """Leave this many bytes; a page of 4 KiB is the least that a file takes."""
        free = os.statvfs(self.folder)
        size = free.f_bavail * free.f_frsize - left
        (self.folder / BALLAST).write_bytes(b"\0" * max(0, size))

    def free(self) -> None:
        """Give the space back."""
        (self.folder / BALLAST).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Disk]:
    """A disk that a test may fill; skips where none can be mounted."""
    folder.mkdir()
    _mounted(f"size={kilobytes}k", folder)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Take the right to look into a folder away; as root by being nobody for a while."""
    mode, user = folder.stat().st_mode, os.geteuid()
    folder.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(mode)


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Take the right to write in a folder away; from root by mounting it again for reading only."""
    if os.geteuid() != 0:
        mode = folder.stat().st_mode
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(mode)
        return
    if shutil.which("mount") is None:
        pytest.skip("root may write everywhere, and there is no mount to change that")
    for options in (["--bind"], ["-o", "remount,bind,ro"]):
        done = subprocess.run(["mount", *options, str(folder), str(folder)], capture_output=True, text=True)
        if done.returncode:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)
            pytest.skip(f"root may write everywhere, and nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


NAME = "viewfs://elsewhere"
_ROOT = os.path.realpath(tempfile.gettempdir())
SETTINGS = {f"spark.hadoop.fs.viewfs.mounttable.elsewhere.link.{_ROOT}": f"file://{_ROOT}"}
"""Of a session that is yet to start; a catalog in memory does not heed those that come later."""


def elsewhere(path: str | os.PathLike[str]) -> str:
    """The address there of a temporary file or folder of this machine."""
    return f"{NAME}{os.path.abspath(path)}"


NOBODY = 65534


@contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Run a block as a user whom permissions bind. Java, a process of its own, stays who it is."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that everybody may look into; that of `tmp_path` belongs to the user who runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="ndcg-spark-tests-"))
    folder.chmod(0o755)
    yield folder
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o755)
    shutil.rmtree(folder)


def closed_folder(folder: Path) -> Path:
    """Make a folder that nobody may list or enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0)
    return folder
