"""Folders of nightly tables, whose nights may differ in their columns."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

FORMATS = ("parquet", "orc")
"""Formats of which Spark reads the columns of one file only, unless it is told to merge those of all."""
_MERGE = "mergeSchema"


def read_folder(spark: SparkSession, path: str, kind: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """Read files; of a nightly table, with the columns of all nights, which are null where a night lacks them. Lazy.

    Spark cost: that of Spark's reader. For a nightly table it runs a job that reads the footers of all files.

    Parameters
    ----------
    spark : SparkSession
    path : str
    kind : str
        Of `FORMATS`.
    options : mapping or None
        Options of the reader, which go first.

    Returns
    -------
    DataFrame
    """
    reader = spark.read.format(kind).options(**(options or {}))
    frame = reader.load(path)
    if any(name.lower() == _MERGE.lower() for name in options or ()) or not _is_nightly(frame.schema):
        return frame
    return reader.option(_MERGE, "true").load(path)


def _is_nightly(schema: T.StructType) -> bool:
    """Whether rows lie in folders of slices, as `ndcg_spark.tables` stores them; or those of one night do."""
    names = schema.fieldNames()
    return names[-1:] == ["slice"] and "dataset" in names
