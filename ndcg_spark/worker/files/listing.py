"""Which files a path of Parquet files stands for: those that Spark would read below it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from pyarrow import fs

from ndcg_spark.worker.files.stores import StoreAddress, address_of, file_system

MAX_FILES = 2_000
"""Whose footers are read before anything else is done, about a millisecond each."""
MARKS = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata/*.metadata.json"}
"""What lies in the folder of a table of each format that keeps a log of its files, and in no other."""
_MARKED = re.compile("|".join(rf"(?:^|/){re.escape(mark)}(?:/|$)".replace(r"\*", "[^/]*") for mark in MARKS.values()))
_NOT_ALL = "not every file below the path belongs to the table"


def list_files(path: str) -> list[str] | str:
    """List the files below a path of this machine or of an object store; or say in a clause why workers cannot.

    An object store is asked once for each thousand objects. Raises an OSError where it refuses to answer.
    """
    address = address_of(path)
    return _below_folder(path) if address is None else _below_prefix(path, address)


def fitting(found: list[str]) -> list[str] | str:
    """Return files if workers can read all of them."""
    others = [name for name in found if not name.endswith(".parquet")]
    if len(found) > MAX_FILES:
        return f"there are more than {MAX_FILES:,} files"
    return f"{others[0]} has another ending" if others else found or "there are no files"


def column_of_folders(path: str, files: Sequence[str], columns: Iterable[str]) -> str | None:
    """Find a column that Spark takes from the names of folders below a path, whatever is in the files."""
    root = path.rstrip("/") + "/"
    below = {one.removeprefix(root).rpartition("/")[0].lower() for one in files}
    return next((one for one in columns if any(f"/{one.lower()}=" in f"/{folder}" for folder in below)), None)


def _below_folder(path: str) -> list[str] | str:
    if os.path.isfile(path):
        return fitting([path])
    if not os.path.isdir(path):
        return "the path is not a file or folder of this machine"
    found: list[str] = []
    for folder, folders, files in os.walk(path, followlinks=True):
        if any(map(_MARKED.search, folders)):
            return _NOT_ALL
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        found += [os.path.join(folder, name) for name in sorted(files) if not is_hidden(name)]
        if len(found) > MAX_FILES:
            break
    return fitting(found)


def _below_prefix(path: str, address: StoreAddress) -> list[str] | str:
    store, inside = file_system(path)
    if address.key.endswith(".parquet") and store.get_file_info(inside).type == fs.FileType.File:
        return fitting([path.rstrip("/")])
    entries = store.get_file_info(fs.FileSelector(inside, recursive=True))
    keys = sorted(entry.path[len(inside) + 1 :] for entry in entries if entry.type == fs.FileType.File)
    if any(map(_MARKED.search, keys)):
        return _NOT_ALL
    root = path.rstrip("/")
    return fitting([f"{root}/{key}" for key in keys if not any(map(is_hidden, key.split("/")))])


def is_hidden(name: str) -> bool:
    """Whether Spark passes over a file or folder."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
