"""The Parquet files of a table, where they lie on a file system of this machine.

Nothing may be lost by reading them past Spark: they must be all there is to the table, each row as it lies there.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from ndcg_spark.worker.files import FilePart, parts_of

WANTED_PARTS, SMALLEST_PART, LARGEST_PART = 8, 2**22, 2**28
"""Of all files, and bytes of one: a part is a task, which takes some hundredths of a second to start."""
_OTHERS = ("_delta_log", ".hoodie")
"""What lies beside files of which not every row counts."""
_NAMES_ONLY = r"\w+#\d+L?(?:, \w+#\d+L?)*"
_PLAIN_READ = re.compile(
    rf"(?:Project \[{_NAMES_ONLY}\], Statistics[^\n]*\n\+- )?Relation [^\n]*\] parquet, Statistics"
)
"""Of the plan that Spark prints: a read of files without filters, at most of some of their columns."""
_LOCATION = re.compile(r"Location: InMemoryFileIndex\((\d+) paths\)\[([^\]\n]*)")


def file_sizes(frame: DataFrame) -> dict[str, int]:
    """Sizes of the Parquet files of a table, by their paths; empty unless all are on a file system of this machine.

    Parameters
    ----------
    frame : DataFrame

    Returns
    -------
    dict from path to bytes
    """
    sizes: dict[str, int] = {}
    if "connect" in type(frame).__module__:
        return sizes  # the server's files: those of this machine may be others
    for uri in frame.inputFiles():
        address = urlsplit(uri)
        path = unquote(address.path)
        if address.scheme != "file" or not path.endswith(".parquet") or not os.path.isfile(path):
            return {}
        sizes[path] = os.path.getsize(path)
    folders = {parent for path in sizes for parent in _parents(path)}
    beside = any(os.path.exists(os.path.join(folder, name)) for folder in folders for name in _OTHERS)
    return {} if beside else sizes


def largest_file(sizes: dict[str, int]) -> str:
    """Say which file to look at: some of a table may be empty.

    Parameters
    ----------
    sizes : dict from path to bytes
        At least one; of several of one size the first by name.

    Returns
    -------
    str
    """
    return min(sizes, key=lambda path: (-sizes[path], path))


def table_parts(frame: DataFrame) -> tuple[FilePart, ...]:
    """Cut the files of a table into parts, of which each is a task. Lists files, runs no action.

    Parameters
    ----------
    frame : DataFrame

    Returns
    -------
    tuple of FilePart
    """
    return tuple(parts_of(file_sizes(frame), WANTED_PARTS, SMALLEST_PART, LARGEST_PART))


def _parents(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def is_plain_read(frame: DataFrame) -> bool:
    """Whether a frame is all rows of its files, by what Spark prints of its plan. Runs no action.

    Parameters
    ----------
    frame : DataFrame

    Returns
    -------
    bool
    """
    printed = io.StringIO()
    with redirect_stdout(printed):
        frame.explain(mode="cost")
    logical, _, physical = printed.getvalue().partition("== Physical Plan ==")
    if _PLAIN_READ.match(logical.partition("== Optimized Logical Plan ==\n")[2]) is None:
        return False
    location = _LOCATION.search(physical)
    return location is not None and _each_once(location[2].split(", "), int(location[1]))


def _each_once(paths: list[str], n_paths: int) -> bool:
    """Whether no file is below two of the paths that were read, as Spark then reads it twice; long lists are cut."""
    if n_paths == 1:
        return True
    apart = not any(path != other and path.startswith(f"{other}/") for path in paths for other in paths)
    return len(set(paths)) == n_paths and apart
