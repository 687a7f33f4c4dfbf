"""The files of an input, listed once, and their state as the run log stores it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any

from ndcg_spark.sources.stores import parse_address


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of an input when it was opened, and their state then."""

    files: tuple[str, ...]
    state: Mapping[str, Any]

    @classmethod
    def from_files(cls, files: Sequence[str]) -> Listing:
        is_remote = bool(files) and parse_address(files[0]) is not None
        return cls(tuple(files), hash_names(files) if is_remote else describe_files(files))


NOTHING_LISTED = Listing((), {})


def describe_files(files: Iterable[str | os.PathLike[str]]) -> dict[str, Any]:
    """Return number, bytes and newest time of files of this machine; empty if there are none."""
    statuses = [os.stat(file) for file in files]
    if not statuses:
        return {}
    newest = datetime.fromtimestamp(max(status.st_mtime for status in statuses), timezone.utc)
    stamp = newest.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"files": len(statuses), "bytes": sum(status.st_size for status in statuses), "newest": stamp}


def hash_names(files: Sequence[str]) -> dict[str, Any]:
    """Return number and digest of file names; empty if there are none."""
    names = "\n".join(sorted(files))
    return {"files": len(files), "digest": sha256(names.encode()).hexdigest()[:16]} if files else {}
