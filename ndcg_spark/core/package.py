"""The package as a zip; needs nothing but Python, as scripts/package does."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PACKAGE = "ndcg_spark"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""


def package_zip() -> bytes:
    """Return the files of this package, wherever it came from, as a zip; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(_read_files(files(PACKAGE), PACKAGE)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3  # Unix, on whatever system this runs
            archive.writestr(entry, content)
    return buffer.getvalue()


def _read_files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for child in folder.iterdir():
        if child.name == "__pycache__" or child.name.startswith("."):
            continue
        path = f"{name}/{child.name}"
        if child.is_dir():
            yield from _read_files(child, path)
        else:
            yield path, child.read_bytes()
