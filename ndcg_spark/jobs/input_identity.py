"""Which state of its inputs a job has read, as far as that is known without reading them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ndcg_spark.core.failures import SPARK_ERRORS, first_line
from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import one_line
from ndcg_spark.jobs.places import Source, source_of, tables_read
from ndcg_spark.sources.formats import read_query
from ndcg_spark.sources.listing import is_hidden, walked
from ndcg_spark.sources.references import guess_format
from ndcg_spark.tables import canonical
from ndcg_spark.tables.catalog import described
from ndcg_spark.tables.iceberg import IcebergLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_FILES = 10_000
"""Asking a file system about more of them takes longer than a second on some."""
_FAILURES: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
_COMMIT = re.compile(r"(\d{20})\.json")


def input_identities(spark: SparkSession, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe the input tables among the options of a job. Asks file system and catalog; reads no rows.

    Input tables are options made by `table_to_read`, which have an option `NAME_option` beside them.

    Each has `option`, `reference` and `format`. For local files `files`, `bytes` and `newest`, the last change of one
    of them; for remote files and for queries `files` and `digest`, a hash of the sorted names that Spark lists, as
    those of files that it writes never come again; for Delta and Iceberg tables `version`. What such inputs do not
    have is left out; `unknown` says why the state of an input could not be found out.
    """
    return [_identity(spark, name, source_of(dict(options), name)) for name in tables_read(options)]


def _identity(spark: SparkSession, name: str, source: Source) -> dict[str, Any]:
    kind = source.kind or guess_format(source.reference)
    found: dict[str, Any] = {
        "option": name.replace("_", "-"),
        "reference": redacted(source.reference),
        "format": kind,
    }
    try:
        return found | _state(spark, source.reference, kind)
    except _FAILURES as error:  # a job that cannot read its input says so itself
        return found | {"unknown": one_line(redacted(first_line(error)))}


def _state(spark: SparkSession, reference: str, kind: str) -> dict[str, Any]:
    if kind == "sql":
        return _digest_of_names(read_query(spark, reference))
    if kind == "table":
        return _table_facts(spark, reference)
    here = file_facts(reference)
    remote = not here and "://" in reference and not reference.startswith("file:")
    # As text no file is opened to find out its columns.
    return _digest_of_names(spark.read.format("text").load(reference)) if remote else here


def _digest_of_names(frame: DataFrame) -> dict[str, Any]:
    names = sorted(frame.inputFiles())
    return {"files": len(names), "digest": sha256("\n".join(names).encode()).hexdigest()[:16]} if names else {}


def file_facts(reference: str) -> dict[str, Any]:
    """Count the files of a local path, and find the newest; nothing for a remote path, a glob, or too many files."""
    place = Path(canonical(reference))
    if not place.is_absolute() or not place.exists():
        return {}
    files, size, newest = 0, 0, 0.0
    for path in _files(place):
        facts = path.stat()
        files, size, newest = files + 1, size + facts.st_size, max(newest, facts.st_mtime)
        if files > MOST_FILES:
            return {}
    stamp = datetime.fromtimestamp(newest, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"files": files, "bytes": size, "newest": stamp, **_delta_version(place)} if files else {}


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for folder, inner, names in walked(place):
        inner[:] = [name for name in inner if not is_hidden(name)]
        yield from (Path(folder, name) for name in names if not is_hidden(name))


def _delta_version(place: Path) -> dict[str, Any]:
    log = place / "_delta_log"
    commits = (
        [int(found[1]) for name in os.listdir(log) if (found := _COMMIT.fullmatch(name))] if log.is_dir() else []
    )
    return {"version": max(commits)} if commits else {}


def _table_facts(spark: SparkSession, table: str) -> dict[str, Any]:
    """Version of a Delta or Iceberg table; the files of another one that lies on this machine."""
    facts = described(spark, table)
    provider = facts.get("provider", "").lower()
    if provider == "delta":
        latest = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("version").first()
        return {"version": latest[0]} if latest else {}
    if provider == "iceberg":
        current = IcebergLog(spark, table, ()).version()
        return {} if current is None else {"version": current}
    location = facts.get("location")
    return file_facts(location) if location else {}
