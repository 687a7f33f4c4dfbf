"""Metric tables as inputs: which of their rows a job takes, and how what comes of them is stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import has_column, require_column
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.history.frames.nights import METRIC_TABLE, metric_at, night_column, require_present
from ndcg_spark.history.settings import MetricRows
from ndcg_spark.sources.formats import Table

_PROVENANCE = {"limits": "string", "input": "string", "package_version": "string", "computed_at": "timestamp"}


class Nights(NamedTuple):
    """The data set that rows are of, and their first and last night."""

    dataset: str
    first: date
    last: date


def taken_rows(table: Table, asked: MetricRows) -> DataFrame:
    """Rows that were asked for, of all data sets if none was named; lazy."""
    frame = table.frame
    named = {"dataset": asked.dataset, "config_hash": asked.config_hash}
    for name, value in named.items():
        if value is not None:
            require_column(frame, name, f"--{name.replace('_', '-')}", "metric table")
            frame = frame.where(F.col(name) == value)
    require_column(frame, "metric", "column of a metric table", "metric table")
    if not asked.metrics:
        return frame.where(~F.col("metric").isin(*asked.WITHOUT)) if asked.WITHOUT else frame
    wanted = F.lit(False)
    for one in asked.metrics:
        at = F.lit(True) if one.every_cutoff else F.col("k").cast("string").eqNullSafe(F.lit(one.k).cast("string"))
        wanted = wanted | ((F.col("metric") == one.name) & at)
    return frame.where(wanted)


def found_nights(table: Table, rows: DataFrame, asked: MetricRows) -> Nights:
    """Run an action: find the one data set and the nights of rows from `taken_rows`, or refuse them."""
    night = night_column(rows, METRIC_TABLE)
    dataset = F.col("dataset") if has_column(rows, "dataset") else F.lit("")
    found = rows.select(night.alias("night"), dataset.alias("dataset"), "metric", metric_at().alias("at")).agg(
        *(F.min("night").alias("first"), F.max("night").alias("last"), F.collect_set("dataset").alias("datasets")),
        F.array_union(F.collect_set("metric"), F.collect_set("at")).alias("metrics"),
    )
    (facts,) = found.collect()
    datasets = sorted(facts["datasets"])
    if facts["first"] is None or any(one.text not in facts["metrics"] for one in asked.metrics):
        _require_names(table.frame, asked)
    if facts["first"] is None:
        raise InputRefusedError(f"{table.name} has no rows{_described(asked)}.")
    if len(datasets) > 1:
        raise InputRefusedError(
            f"{table.name} has rows of several data sets ({', '.join(datasets[:5])}); name one with --dataset."
        )
    return Nights((datasets or [""])[0], facts["first"], facts["last"])


def _require_names(frame: DataFrame, asked: MetricRows) -> None:
    """Run an action: raise for the first name of a data set, configuration or metric that the table does not have."""
    for column, what, name in (
        ("dataset", "data set", asked.dataset),
        ("config_hash", "config_hash", asked.config_hash),
    ):
        if name is not None:
            require_present(frame, what, F.col(column).cast("string"), [name])
            frame = frame.where(F.col(column) == name)
    require_present(frame, "metric", F.col("metric"), [one.name for one in asked.metrics])
    require_present(frame, "metric", metric_at(), [one.text for one in asked.metrics if not one.every_cutoff])


def _described(asked: MetricRows) -> str:
    parts = []
    if asked.dataset is not None:
        parts.append(f"data set {asked.dataset!r}")
    if asked.metrics:
        parts.append(f"metrics {', '.join(one.text for one in asked.metrics)}")
    if asked.config_hash is not None:
        parts.append(f"config_hash {asked.config_hash!r}")
    return f" of {' and '.join(parts)}" if parts else ""


def result_schema(spark: SparkSession, columns: Mapping[str, str]) -> T.StructType:
    """Schema of results with what `stamped_results` adds, of columns and their types in Spark's words."""
    ddl = ", ".join(f"{name} {kind}" for name, kind in {**columns, **_PROVENANCE}.items())
    return spark.createDataFrame([], ddl).schema  # StructType.fromDDL came with Spark 4


def stamped_results(frame: DataFrame, facts: Any) -> DataFrame:
    """Add what results were computed from, which facts have under the same names; lazy."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    more = [F.lit(getattr(facts, name)).alias(name) for name in _PROVENANCE if name != "computed_at"]
    return frame.select("*", *more, F.lit(now).cast("timestamp").alias("computed_at"))
