"""Folders of tables that keep a log of their files: Delta, Iceberg, Hudi. Such files are more than the rows."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS, condition_of, first_line
from ndcg_spark.core.redaction import redacted
from ndcg_spark.sources.listing import MARKS, is_pattern

_log = logging.getLogger(__name__)
DATA_FORMATS = ("parquet", "orc", "avro")
"""Formats of the files of such tables."""
_FAILURES: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
"""Of a file system, here or where only Spark reaches it."""
_GLOB = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table of the format `kind` has its files below `root`; a path that leads there may be `whole`, or a part."""

    kind: str
    root: str
    whole: bool

    def __str__(self) -> str:
        """Name it for a person: "the Delta table 's3://lake/runs'"."""
        return f"the {self.kind.capitalize()} table {self.root!r}"

    def refusal(self, path: str) -> str:
        """Say that its files are not to be read for its rows."""
        return (
            f"{path!r} leads to files of {self}, which hold rows that were deleted or replaced, too; name the table "
            f"in the catalog, or read {self.root!r} with format {self.kind}."
        )


def table_folder_of(spark: SparkSession, path: str) -> TableFolder | None:
    """Find the table whose files a path, maybe with a pattern, leads to. Looks for files, runs no action.

    None where the path belongs to no such table, as far as can be seen: of a place that only Spark reaches, the
    folders above are looked into only where the path has folders of partitions or of data files.
    """
    scheme, rest = _split(path)
    fixed = _GLOB.split(rest)[0] if is_pattern(path) else rest
    base = (fixed if fixed == rest else fixed.rpartition("/")[0]).rstrip("/")
    base = base or ("/" if rest.startswith("/") else ".")
    roots: list[tuple[str, Callable[[str, str], bool]]] = []
    if not scheme:
        roots += [(root, _is_marked) for root in _folders_above(base)]
    if scheme or not os.path.exists(base):
        roots += [(f"{scheme}{root}", partial(_has, spark)) for root in _likely_roots(base)]
    for root, has in roots:
        try:
            kind = next((kind for kind in MARKS if has(root, MARKS[kind])), None)
        except _FAILURES as error:
            if not isinstance(error, OSError) and not _is_reached(spark, f"{scheme}{base}"):
                return None  # whoever reads it says so
            _tell_unknown(root, error)
            continue
        if kind is not None:
            return TableFolder(kind, root, whole=root == f"{scheme}{rest.rstrip('/')}")
    return None


def _split(path: str) -> tuple[str, str]:
    """Scheme and host of a URI, empty for files of this machine; and the path."""
    match = re.match(r"(?i)(file:(?://[^/]*(?=/))?)", path)
    if match:
        return "", path[match.end() :]
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*)?", path)
    return (match[0], path[match.end() :]) if match else ("", path)


def _folders_above(base: str) -> list[str]:
    """A path and the folders above it."""
    above = [base]
    while (parent := os.path.dirname(os.path.abspath(above[-1]))) != os.path.abspath(above[-1]):
        above.append(parent)
    return above


def _likely_roots(base: str) -> list[str]:
    parts = base.split("/")
    cuts = [len(parts), *(at for at, part in enumerate(parts) if "=" in part or part == "data")]
    return list(dict.fromkeys("/".join(parts[:cut]) for cut in cuts if cut))


def _tell_unknown(root: str, error: Exception) -> None:
    """Warn that a folder may be a table for all that is known, and what follows for its files."""
    _log.warning(
        "whether %s is a Delta, Iceberg or Hudi table is unknown (%s): files below it are read as they are, and "
        "deleted rows would be read, too",
        redacted(root),
        error.strerror if isinstance(error, OSError) else first_line(error).rstrip("."),
    )


def _is_marked(root: str, mark: str) -> bool:
    """Whether a folder of this machine has a mark. An OSError says that its metadata cannot be listed."""
    folder, _, pattern = mark.rpartition("/")
    if not folder:
        return os.path.lexists(os.path.join(root, mark))  # also a link that leads nowhere now
    try:
        return any(fnmatchcase(name, pattern) for name in os.listdir(os.path.join(root, folder)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_reached(spark: SparkSession, uri: str) -> bool:
    """Whether Spark can say if a path is there."""
    try:
        is_there(spark, uri)
    except SPARK_ERRORS:
        return False
    return True


def _has(spark: SparkSession, root: str, mark: str) -> bool:
    # Some engines find whatever they are asked for, so that a find says nothing.
    return is_there(spark, f"{root}/{mark}") and not is_there(spark, f"{root}/{mark}-{uuid.uuid4().hex}")


def is_there(spark: SparkSession, uri: str) -> bool:
    """Whether Spark finds a path. Runs no action."""
    try:
        # Twice, as Spark logs a stack trace when a single path is not there.
        spark.read.format("text").load([uri, uri]).schema  # noqa: B018  # analysis is lazy on Connect
    except PySparkException as error:
        if "PATH_NOT_FOUND" in condition_of(error):
            return False
        raise
    return True
