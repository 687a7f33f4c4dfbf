"""Metric tables as inputs: which of their rows a command takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ndcg_spark.errors import InputRefusedError, text_of
from ndcg_spark.evaluation.settings import cutoffs_of, split_metrics
from ndcg_spark.jobs.config import Source, Target, source_of
from ndcg_spark.jobs.options import table_to_read
from ndcg_spark.metrics import parse_metric
from ndcg_spark.metrics.normalized_gain import NDCG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.jobs.progress import Progress
    from ndcg_spark.sources.formats import Table

COMPANIONS = tuple(one.name for one in NDCG.comes_with)
"""Metrics that every evaluation has beside NDCG; they are asked for by name."""

_PROVENANCE = {"limits": "string", "input": "string", "package_version": "string", "computed_at": "timestamp"}


class WantedMetric(NamedTuple):
    """A metric by its name in the table; at one cutoff, or at all of them."""

    name: str
    every_cutoff: bool
    k: int | None

    @property
    def text(self) -> str:
        """As a user names it: `ndcg@10`, or `ndcg` at all cutoffs."""
        return self.name if self.every_cutoff else f"{self.name}@{'all' if self.k is None else self.k}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRows:
    """Rows of a metric table that a command was asked to take.

    Without `dataset` there must be one only. Without `metrics` they are all but those of `without`.
    """

    source: Source
    dataset: str | None
    metrics: tuple[WantedMetric, ...]
    without: tuple[str, ...]
    config_hash: str | None


def metric_table_options() -> list[click.Option]:
    """Build the options of a metric table that is read."""
    return table_to_read("--input", "Metric table, as mean-ndcg --output writes it: a path or a catalog table.")


def row_options(default: str) -> list[click.Option]:
    """Build the options that choose rows of a metric table; `default` says which metrics are taken otherwise."""
    return [
        click.Option(["--dataset"], metavar="NAME", help="Data set whose rows are taken.  "
                     "[default: the one there is]"),
        click.Option(["--metrics"], metavar="ndcg@10,ap,...", help="Metrics whose rows are taken, as ndcg@10, or "
                     f"ndcg at every cutoff.  [default: {default}]"),
        click.Option(["--config-hash"], metavar="HASH", help="Take the rows of one configuration.  [default: all]"),
    ]  # fmt: skip


def metric_rows_of(options: dict[str, Any], *, without: tuple[str, ...] = ()) -> MetricRows:
    """Read what `metric_table_options` and `row_options` were given; `without` are metrics not taken unless named."""
    return MetricRows(
        source=source_of(options, "input"),
        dataset=options["dataset"],
        metrics=_wanted(options["metrics"]),
        without=without,
        config_hash=options["config_hash"],
    )


def _wanted(text: str | None) -> tuple[WantedMetric, ...]:
    found = []
    for one in split_metrics(text or ""):
        metric, k = parse_metric(one)
        found.append(WantedMetric(str(metric), k is None, cutoffs_of(k)[0]))
    return tuple(found)


class Nights(NamedTuple):
    """The data set that rows are of, and their first and last night."""

    dataset: str
    first: date
    last: date


def taken_rows(table: Table, asked: MetricRows) -> DataFrame:
    """Rows that were asked for, of all data sets if none was named; lazy."""
    from pyspark.sql import functions as F

    from ndcg_spark.core.expressions import require_column

    frame = table.frame
    named = {"dataset": asked.dataset, "config_hash": asked.config_hash}
    for name, value in named.items():
        if value is not None:
            require_column(frame, name, f"--{name.replace('_', '-')}", "metric table")
            frame = frame.where(F.col(name) == value)
    require_column(frame, "metric", "column of a metric table", "metric table")
    if not asked.metrics:
        return frame.where(~F.col("metric").isin(*asked.without)) if asked.without else frame
    wanted = F.lit(False)
    for one in asked.metrics:
        at = F.lit(True) if one.every_cutoff else F.col("k").cast("string").eqNullSafe(F.lit(one.k).cast("string"))
        wanted = wanted | ((F.col("metric") == one.name) & at)
    return frame.where(wanted)


def found_nights(table: Table, rows: DataFrame, asked: MetricRows) -> Nights:
    """Run an action: find the one data set and the nights of rows from `taken_rows`, or refuse them."""
    from pyspark.sql import functions as F

    from ndcg_spark.history.frames.nights import METRIC_TABLE, metric_at, night_column

    night = night_column(rows, METRIC_TABLE)
    dataset = F.col("dataset") if "dataset" in rows.columns else F.lit("")
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
    from pyspark.sql import functions as F

    from ndcg_spark.history.frames.nights import metric_at, require_present

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


def check_output(
    spark: SparkSession,
    asked: MetricRows,
    table: Table,
    output: Target | None,
    columns: Mapping[str, str],
    json_path: str | None,
    progress: Progress,
    also: Sequence[tuple[str, Source, Table]] = (),
) -> None:
    """Raise when the output could not be written, or would overwrite what is not ours. Runs no action.

    `columns` are those of the results and their types in Spark's words, without what `stamped_results` adds; `also`
    is what is read beside the metric table.
    """
    from ndcg_spark.jobs.outputs import refuse_outputs
    from ndcg_spark.tables import reading_of

    if output is None and json_path in (None, "-"):
        return
    ddl = ", ".join(f"{name} {kind}" for name, kind in {**columns, **_PROVENANCE}.items())
    schema = spark.createDataFrame([], ddl).schema  # StructType.fromDDL came with Spark 4
    readings = [
        reading_of(spark, f"{flag} {source.reference!r}", source.reference, source.kind, its.frame)
        for flag, source, its in [("--input", asked.source, table), *also]
    ]
    refuse_outputs(spark, [("--output", output, schema)], readings, json_path, progress)


def stamped_results(frame: DataFrame, outcome: Mapping[str, Any]) -> DataFrame:
    """Add what results were computed from; lazy."""
    from pyspark.sql import functions as F

    now = datetime.now(timezone.utc).replace(microsecond=0)
    more = [F.lit(outcome[name]).alias(name) for name in _PROVENANCE if name in outcome]
    return frame.select("*", *more, F.lit(now).cast("timestamp").alias("computed_at"))


@contextmanager
def refusals() -> Iterator[None]:
    """Say of what is refused in here that nothing was written."""
    from ndcg_spark.core.failures import plain_refusals

    try:
        with plain_refusals():
            yield
    except InputRefusedError as error:
        raise InputRefusedError(f"{text_of(error).rstrip('.')}. Nothing was written.") from error
