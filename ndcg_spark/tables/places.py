"""Resolve references to places: a folder that this process shares with Spark, or a place that only Spark reaches."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ndcg_spark.core.failures import (
    explain_missing_file_system,
    first_line,
    get_condition,
    get_parameter,
    spark_errors,
)
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.sources.stores import SCHEMES, refuse_secrets
from ndcg_spark.tables.claims import LOCK_FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def resolve_spark_path(spark: SparkSession | None, reference: str) -> str:
    """Resolve a path as Spark does: to an absolute path without links if local, else to a URI. Runs no action.

    Without a session, a path without a scheme is local.
    """
    refuse_secrets(reference)
    if spark is None:
        return _resolve_path(reference)
    from pyspark.errors import PySparkException

    probe = f"{LOCK_FOLDER}-{uuid.uuid4().hex}"
    missing = f"{reference.rstrip('/')}/{probe}"
    resolved = reference
    try:
        # Spark logs a stack trace for a single missing path, but not for two.
        spark.read.format("text").load([missing, missing]).schema  # noqa: B018  # analysis is lazy on Connect
    except spark_errors() as error:
        if not isinstance(error, PySparkException) or "PATH_NOT_FOUND" not in get_condition(error):
            reason = explain_missing_file_system(error, reference) or first_line(error).rstrip(".")
            raise OutputRefusedError(f"cannot reach {reference!r}: {reason}.") from error
        missing_path = get_parameter(error, "path") or missing
        resolved = missing_path.removesuffix(f"/{probe}")
    return _resolve_path(resolved)


def canonicalize(uri: str) -> str:
    """Normalize a place for comparisons: to a real path, or a URI with one scheme for each store."""
    place = _resolve_path(uri)
    if is_local(place):
        return place
    place = re.sub(r"(?i)^wasbs?(://[^/]*)\.blob\.", r"abfss\1.dfs.", place)
    scheme, colon, rest = place.partition(":")
    return f"{SCHEMES.get(scheme.lower(), scheme.lower())}{colon}{rest}"


def _resolve_path(uri: str) -> str:
    """Return a real path for local files, else a URI with single slashes in its path."""
    scheme = _SCHEME.match(uri)
    if scheme is None or scheme[1].lower() == "file":
        path = os.path.realpath(re.sub(r"(?i)^file:(//[^/]*(?=/))?", "", uri))  # with a host, or without
        return _map_mounts(path) if "DATABRICKS_RUNTIME_VERSION" in os.environ else path
    host = re.match(r"(?://[^/]+)?", uri[scheme.end() :])[0]  # type: ignore[index]  # matches anything
    path = uri[scheme.end() + len(host) :]
    return f"{scheme[0]}{host}{re.sub('/+', '/', path)}".rstrip("/")


def _map_mounts(path: str) -> str:
    """Map `/dbfs` and `/Volumes`, under which Databricks shows object stores as local files."""
    if is_within(path, "/dbfs"):
        return f"dbfs:{path.removeprefix('/dbfs')}"
    return f"dbfs:{path}" if is_within(path, "/Volumes") else path


def is_local(place: str) -> bool:
    return place.startswith("/")


def is_within(place: str, other: str) -> bool:
    return place == other or place.startswith(other.rstrip("/") + "/")


def require_folder(kind: str, place: str, reference: str) -> None:
    """Refuse an output that this process cannot write without Spark."""
    if kind != "parquet" or not is_local(place):
        raise OutputRefusedError(f"{reference!r} is not a local folder, and only Spark can write to it.")


def find_shared_folder(spark: SparkSession | None, place: str, reference: str) -> Path | None:
    """Return a canonical place as a folder if this process and Spark share it; else None.

    The check creates a trial folder. If only Spark reaches the place, this process cannot rename its files. A local
    folder that cannot be written is refused. Without a session, every local folder is returned.
    """
    if not is_local(place):
        return None
    folder = Path(place)
    # Path.exists would raise for a folder without permission, which the trial reports below.
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    if not nearest.is_dir():
        raise OutputRefusedError(f"{reference!r} is a file, or is below a file; outputs are folders.")
    trial = nearest / f"{LOCK_FOLDER}-{uuid.uuid4().hex}"
    try:
        trial.mkdir()
    except OSError as error:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            return None  # the folder may exist on the server
        raise OutputRefusedError(f"cannot write {reference!r}: {error.strerror} ({str(nearest)!r}).") from error
    try:
        if spark is None:
            return folder
        from ndcg_spark.sources.folders import path_exists

        return folder if path_exists(spark, f"file:{trial}") else None
    finally:
        with contextlib.suppress(OSError):
            trial.rmdir()
