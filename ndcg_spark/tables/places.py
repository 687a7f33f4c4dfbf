"""Where references lead: a folder that this process shares with Spark, or a place that only Spark reaches."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from ndcg_spark.core.failures import condition_of, first_line, no_file_system, parameter_of, spark_errors
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.sources.stores import SCHEMES, refuse_secrets
from ndcg_spark.tables.claims import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def spark_path(spark: SparkSession | None, reference: str) -> str:
    """Resolve a path as Spark does: an absolute path without links if local, else a URI. Runs no action.

    Without a session, the path is taken for one of this machine unless it names a scheme.
    """
    refuse_secrets(reference)
    if spark is None:
        return _absolute(reference)
    from pyspark.errors import PySparkException

    probe = f"{HIDDEN}-{uuid.uuid4().hex}"
    missing = f"{reference.rstrip('/')}/{probe}"
    resolved = reference
    try:
        # Twice, as Spark logs a stack trace when a single path is not there.
        spark.read.format("text").load([missing, missing]).schema  # noqa: B018  # analysis is lazy on Connect
    except spark_errors() as error:
        if not isinstance(error, PySparkException) or "PATH_NOT_FOUND" not in condition_of(error):
            why = no_file_system(error, reference) or first_line(error).rstrip(".")
            raise OutputRefusedError(f"cannot reach {reference!r}: {why}.") from error
        named = parameter_of(error, "path") or missing
        resolved = named.removesuffix(f"/{probe}")
    return _absolute(resolved)


def canonical(uri: str) -> str:
    """One spelling of a place, to compare it with others: a real path, or a URI with one scheme for each store."""
    place = _absolute(uri)
    if is_local(place):
        return place
    place = re.sub(r"(?i)^wasbs?(://[^/]*)\.blob\.", r"abfss\1.dfs.", place)
    scheme, colon, rest = place.partition(":")
    return f"{SCHEMES.get(scheme.lower(), scheme.lower())}{colon}{rest}"


def _absolute(uri: str) -> str:
    """A real path for local files, else a URI with single slashes in its path."""
    scheme = _SCHEME.match(uri)
    if scheme is None or scheme[1].lower() == "file":
        path = os.path.realpath(re.sub(r"(?i)^file:(//[^/]*(?=/))?", "", uri))  # with a host, or without
        return _mounted(path) if "DATABRICKS_RUNTIME_VERSION" in os.environ else path
    host = re.match(r"(?://[^/]+)?", uri[scheme.end() :])[0]  # type: ignore[index]  # matches anything
    path = uri[scheme.end() + len(host) :]
    return f"{scheme[0]}{host}{re.sub('/+', '/', path)}".rstrip("/")


def _mounted(path: str) -> str:
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
        raise OutputRefusedError(f"{reference!r} is not a folder of this machine, and only Spark writes elsewhere.")


def shared_folder(spark: SparkSession | None, place: str, reference: str) -> Path | None:
    """Return a canonical place if this process and Spark share it, found out by a trial folder there; else None.

    Files cannot be renamed from here where only Spark reaches them. A local folder that cannot be written is refused.
    Without a session, every local folder is one of this process alone.
    """
    if not is_local(place):
        return None
    folder = Path(place)
    # Path.exists raises where a folder is closed to us; that the trial says, too.
    nearest = next(above for above in (folder, *folder.parents) if os.path.exists(above))
    if not nearest.is_dir():
        raise OutputRefusedError(f"{reference!r} is, or lies below, a file; outputs are folders.")
    trial = nearest / f"{HIDDEN}-{uuid.uuid4().hex}"
    try:
        trial.mkdir()
    except OSError as error:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            return None  # the server may be another machine, which has the folder
        raise OutputRefusedError(f"cannot write {reference!r}: {error.strerror} ({str(nearest)!r}).") from error
    try:
        if spark is None:
            return folder
        from ndcg_spark.sources.folders import path_exists

        return folder if path_exists(spark, f"file:{trial}") else None
    finally:
        with contextlib.suppress(OSError):
            trial.rmdir()
