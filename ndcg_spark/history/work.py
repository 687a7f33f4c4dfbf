"""The commands `roll-up` and `flag-changes`. Methods named `run` run actions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core import labels
from ndcg_spark.core.columns import computed_micros, has_column, micros_to_datetime, require_column
from ndcg_spark.history import frames
from ndcg_spark.history.flagging import MAX_FLAGS, PROVENANCE, FlagChangesBase, Nights, choose_nights
from ndcg_spark.history.rolling_up import RollUpBase
from ndcg_spark.history.settings import (
    COMPARISON_TABLE,
    METRIC_TABLE,
    FlagJobSettings,
    FlagSettings,
    MetricRows,
    RollUpJobSettings,
    RollUpSettings,
)
from ndcg_spark.history.tasks.judging import (
    BEFORE,
    BEFORE_PAIRED,
    PRINTED,
)
from ndcg_spark.jobs.outputs import add_provenance
from ndcg_spark.jobs.runner import Job
from ndcg_spark.metrics import EVERY
from ndcg_spark.sources.formats import Table
from ndcg_spark.tables import SliceKey
from ndcg_spark.tables.slices import Frame


def select_rows(table: Table, requested: MetricRows, label: str = METRIC_TABLE) -> DataFrame:
    """Select the requested rows, of all data sets if none was named; lazy. `label` says in messages what it is."""
    frame = table.frame
    for name, value in {"dataset": requested.dataset, "config_hash": requested.config_hash}.items():
        if value is not None:
            require_column(frame, name, f"--{name.replace('_', '-')}", label)
            frame = frame.where(F.col(name) == value)
    require_column(frame, "metric", f"column of a {label}", label)
    if not requested.metrics:
        return frame.where(~F.col("metric").isin(*requested.WITHOUT)) if requested.WITHOUT else frame
    selected = F.lit(False)
    for metric in requested.metrics:
        k = F.lit(metric.k).cast("string")
        at_k = F.lit(True) if metric.k == EVERY else F.col("k").cast("string").eqNullSafe(k)
        selected = selected | ((F.col("metric") == str(metric.metric)) & at_k)
    return frame.where(selected)


def find_nights(table: Table, rows: DataFrame, requested: MetricRows, until: date | None) -> Nights:
    """Run an action: find the data set and the nights of rows from `select_rows`; refuse several data sets."""
    night = frames.night_column(rows, METRIC_TABLE)
    dataset = F.col("dataset") if has_column(rows, "dataset") else F.lit("")
    at, computed = F.expr(labels.METRIC_AT_SQL), computed_micros(rows)
    if until is not None:
        computed = F.when(night <= F.lit(until), computed)
    columns = (night.alias("night"), dataset.alias("dataset"), "metric", at.alias("at"), computed.alias("computed"))
    totals = rows.select(*columns).agg(
        F.max("computed").alias("computed"),
        *(F.min("night").alias("first"), F.max("night").alias("last"), F.collect_set("dataset").alias("datasets")),
        F.array_union(F.collect_set("metric"), F.collect_set("at")).alias("metrics"),
    )
    (facts,) = totals.collect()
    if facts["first"] is None or any(metric.label not in facts["metrics"] for metric in requested.metrics):
        _require_names(table.frame, requested)
    extent, computed_at = (facts["first"], facts["last"]), micros_to_datetime(facts["computed"])
    return choose_nights(table.name, requested, facts["datasets"], extent, computed_at)


def _require_names(frame: DataFrame, requested: MetricRows) -> None:
    """Run actions: raise for the first requested name that the table does not have."""
    names = (("dataset", "data set", requested.dataset), ("config_hash", "config_hash", requested.config_hash))
    for column, what, name in names:
        if name is not None:
            frames.require_present(frame, what, F.col(column).cast("string"), [name])
            frame = frame.where(F.col(column) == name)
    frames.require_present(frame, "metric", F.col("metric"), [str(metric.metric) for metric in requested.metrics])
    frames.require_present(
        frame,
        "metric",
        F.expr(labels.METRIC_AT_SQL),
        [metric.label for metric in requested.metrics if metric.k != EVERY],
    )


class RollUp(RollUpBase):
    """Add up nights on Spark."""

    def __init__(self, job: Job[RollUpJobSettings]) -> None:
        super().__init__(job)
        self.is_comparison = frames.is_comparison(self.tables["input"].frame)
        label = COMPARISON_TABLE if self.is_comparison else METRIC_TABLE
        self.rows = select_rows(self.tables["input"], self.settings.rows, label)
        frames.roll_up_table(self.rows, self.settings.roll_up)

    @property
    def input_name(self) -> str:
        return self.tables["input"].name

    def find_nights(self) -> Nights:
        """Run an action."""
        return find_nights(self.tables["input"], self.rows, self.settings.rows, self.settings.roll_up.as_of)

    def add_up(self, settings: RollUpSettings) -> None:
        """Lazy."""
        self._periods = frames.roll_up_table(self.rows, settings)
        self.job.persist(self._periods)

    def list_keys(self) -> list[SliceKey]:
        """Run an action."""
        return [SliceKey(*key) for key in self._periods.select("period_end", self.by, "period").distinct().collect()]

    def list_rows(self, newest: int | None = None) -> list[dict[str, Any]]:
        """Run an action."""
        rows = self._periods.drop("state")
        if newest is not None:
            kinds = F.array(*map(F.lit, self.settings.roll_up.periods))
            is_printed = F.lit(True) if self.settings.verbose else F.col("segment_by") == ""
            order: list[Column | str] = [F.desc("period_end"), F.array_position(kinds, F.col("period")), *self.series]
            rows = rows.where(is_printed & ~F.col("metric").isin(*self.hidden_metrics)).orderBy(*order).limit(newest)
        return [row.asDict() for row in rows.collect()]

    def period_table(self, facts: Mapping[str, Any]) -> Frame:
        return add_provenance(self._periods, facts, PROVENANCE).repartition("period", "period_end", self.by)


class FlagChanges(FlagChangesBase):
    """Judge nights on Spark."""

    def __init__(self, job: Job[FlagJobSettings]) -> None:
        super().__init__(job)
        self.rows = select_rows(self.tables["input"], self.settings.rows)
        frames.judge_nights(self.rows, self.settings.flags)

    @property
    def input_names(self) -> list[str]:
        return [table.name for table in self.tables.values()]

    def find_nights(self) -> Nights:
        """Run an action."""
        return find_nights(self.tables["input"], self.rows, self.settings.rows, self.settings.flags.end)

    def judge(self, settings: FlagSettings, dataset: str) -> None:
        """Lazy; run an action if there is a per-query table."""
        pairs = self.tables["per_query"].frame if "per_query" in self.tables else None
        if pairs is not None and "dataset" in pairs.columns:
            pairs = pairs.where(F.col("dataset") == dataset)
        query, keep = self.settings.query, self.job.persist
        self._judged = frames.judge_nights(self.rows, settings, per_query=pairs, query=query, keep=keep)
        self.job.persist(self._judged)

    def list_keys(self) -> list[SliceKey]:
        """Run an action."""
        keys = self._judged.select("night", "run").distinct().collect()
        return [SliceKey(row["night"], row["run"]) for row in keys]

    def count_statuses(self) -> list[dict[str, Any]]:
        """Run an action."""
        numbers = [F.count("*").alias("n"), F.count("z").alias("held"), F.max("n_nights").alias("nights")]
        numbers += [
            F.count_if(F.col("weekday").isin(*kinds)).alias(name)
            for name, kinds in (("before", (BEFORE, BEFORE_PAIRED)), ("paired", (BEFORE_PAIRED,)))
        ]
        counts = self._judged.groupBy("status").agg(*numbers).orderBy("status").collect()
        return [row.asDict() for row in counts]

    def list_flags(self) -> list[dict[str, Any]]:
        """Run an action."""
        kind = F.coalesce(*[F.when(F.col("status") == status, place) for status, place in PRINTED.items()])
        order = (kind, F.abs("z").desc_nulls_first(), "night", "run", "segment_by", "segment", "metric", "k")
        flagged = self._judged.where(kind.isNotNull()).orderBy(*order).limit(MAX_FLAGS)
        return [row.asDict() for row in flagged.collect()]

    def flag_table(self, facts: Mapping[str, Any]) -> Frame:
        return add_provenance(self._judged, facts, PROVENANCE).repartition("night", "run")
