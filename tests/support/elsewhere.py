"""A file system that only Spark reaches: one of Hadoop's own, behind which lie temporary files of this machine."""

from __future__ import annotations

import os
import tempfile

NAME = "viewfs://elsewhere"
_ROOT = os.path.realpath(tempfile.gettempdir())
SETTINGS = {f"spark.hadoop.fs.viewfs.mounttable.elsewhere.link.{_ROOT}": f"file://{_ROOT}"}
"""Of a session that is yet to start; a catalog in memory does not heed those that come later."""


def elsewhere(path: str | os.PathLike[str]) -> str:
    """The address there of a temporary file or folder of this machine."""
    return f"{NAME}{os.path.abspath(path)}"
