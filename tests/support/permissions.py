"""Folders that are closed to this process: permissions bind no root, so the process is somebody else for a moment."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


def closed(folder: Path) -> Path:
    """Make a folder that nobody may list or enter."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0)
    return folder
