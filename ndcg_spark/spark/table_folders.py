"""Folders of tables that keep a log of their files: Delta, Iceberg, Hudi. Such files are more than the rows."""

from __future__ import annotations

import os
import re
import uuid
from dataclasses import dataclass
from glob import escape, glob
from itertools import product

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.spark.failures import SPARK_ERRORS, condition_of
from ndcg_spark.worker.files.listing import MARKS

DATA_FORMATS = ("parquet", "orc", "avro")
"""Formats of the files of such tables."""
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
    """Find the table whose files a path leads to. Looks for files, runs no action.

    Parameters
    ----------
    spark : SparkSession
    path : str
        Of files or folders; may hold a pattern.

    Returns
    -------
    TableFolder or None
        None where the path belongs to no such table, as far as can be seen: of a place that only Spark reaches, the
        folders above are looked into only where the path has folders of partitions or of data files.
    """
    scheme, rest = _split(path)
    fixed = _GLOB.split(rest)[0]
    base = (fixed if fixed == rest else fixed.rpartition("/")[0]).rstrip("/")
    base = base or ("/" if rest.startswith("/") else ".")
    for root, kind in [] if scheme else product(_folders_above(base), MARKS):
        if glob(os.path.join(escape(root), MARKS[kind])):
            return TableFolder(kind, root, whole=root == rest.rstrip("/"))
    for root, kind in product(_likely_roots(base), MARKS) if scheme or not os.path.exists(base) else []:
        if _has(spark, f"{scheme}{root}", MARKS[kind]):
            return TableFolder(kind, f"{scheme}{root}", whole=root == rest.rstrip("/"))
    return None


def refuse_table_files(spark: SparkSession, path: str) -> None:
    """Raise `InputRefusedError` where a path of Parquet files leads to those of a table that keeps a log of them."""
    found = table_folder_of(spark, path)
    if found is not None:
        raise InputRefusedError(found.refusal(path))


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


def _has(spark: SparkSession, root: str, mark: str) -> bool:
    try:
        # Some engines find whatever they are asked for, so that a find says nothing.
        return is_there(spark, f"{root}/{mark}") and not is_there(spark, f"{root}/{mark}-{uuid.uuid4().hex}")
    except SPARK_ERRORS:
        return False  # it cannot be reached: reading it will say why


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
