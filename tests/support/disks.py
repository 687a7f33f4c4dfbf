"""Full disks, inaccessible folders, and a file system that only Spark reaches."""

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


def _mount(options: str, folder: Path) -> None:
    """Mount a file system in memory, or skip the test."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a disk")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip(f"no disk can be mounted here: {process.stderr.strip()}")


class Disk:
    """A disk of some kilobytes in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, left: int = 0) -> None:
        """Leave this many bytes; a file takes at least a page of 4 KiB."""
        free = os.statvfs(self.folder)
        size = free.f_bavail * free.f_frsize - left
        (self.folder / BALLAST).write_bytes(b"\0" * max(0, size))

    def free(self) -> None:
        """Free the space."""
        (self.folder / BALLAST).unlink(missing_ok=True)


@contextmanager
def mount_small_disk(folder: Path, kilobytes: int) -> Iterator[Disk]:
    """Mount a disk that a test may fill; skip the test if that is impossible."""
    folder.mkdir()
    _mount(f"size={kilobytes}k", folder)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def deny_access(folder: Path) -> Iterator[None]:
    """Deny access to a folder; root becomes nobody for the block."""
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
def deny_writes(folder: Path) -> Iterator[None]:
    """Deny writes to a folder; for root by a read-only mount."""
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
        process = subprocess.run(["mount", *options, str(folder), str(folder)], capture_output=True, text=True)
        if process.returncode:
            subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)
            pytest.skip(f"root may write everywhere, and nothing can be mounted here: {process.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


NAME = "viewfs://elsewhere"
_ROOT = os.path.realpath(tempfile.gettempdir())
SETTINGS = {f"spark.hadoop.fs.viewfs.mounttable.elsewhere.link.{_ROOT}": f"file://{_ROOT}"}
"""Of a session that is yet to start; a catalog in memory does not heed those that come later."""


def to_viewfs(path: str | os.PathLike[str]) -> str:
    """Return the viewfs URL of a temporary file or folder of this machine."""
    return f"{NAME}{os.path.abspath(path)}"


NOBODY = 65534


@contextmanager
def drop_root() -> Iterator[None]:
    """Run a block as an unprivileged user. Java, a separate process, keeps its user."""
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
    """A folder that everybody may list; `tmp_path` belongs to the user who runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="ndcg-spark-tests-"))
    folder.chmod(0o755)
    yield folder
    for place, _, _ in os.walk(folder):
        os.chmod(place, 0o755)
    shutil.rmtree(folder)


def make_closed_folder(folder: Path) -> Path:
    """Make a folder that nobody may list or enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0)
    return folder
