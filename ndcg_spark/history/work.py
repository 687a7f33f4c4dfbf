"""The commands `roll-up` and `flag-changes`. Methods named `run` run actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark._version import __version__
from ndcg_spark.comparison.printed import format_verdict
from ndcg_spark.core import labels
from ndcg_spark.core.columns import computed_micros, has_column, micros_to_datetime, require_column
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import RULES, format_rules_notes
from ndcg_spark.history import frames
from ndcg_spark.history.flagging import MAX_FLAGS, PROVENANCE, FlagChangesBase, Nights, choose_nights
from ndcg_spark.history.settings import (
    COMPANIONS,
    METRIC_TABLE,
    FlagJobSettings,
    FlagSettings,
    MetricRows,
    RollUpJobSettings,
)
from ndcg_spark.history.tasks import (
    BEFORE,
    BEFORE_PAIRED,
    PRINTED,
    format_series,
)
from ndcg_spark.jobs.outputs import SOURCE_TIME, add_provenance
from ndcg_spark.jobs.printing import print_rows
from ndcg_spark.jobs.runner import Job, Outcome, Work
from ndcg_spark.metrics import EVERY
from ndcg_spark.sources.formats import Table
from ndcg_spark.tables import Rows, SliceKey, Slices
from ndcg_spark.tables.slices import Frame


def select_rows(table: Table, requested: MetricRows) -> DataFrame:
    """Select the requested rows, of all data sets if none was named; lazy."""
    frame = table.frame
    for name, value in {"dataset": requested.dataset, "config_hash": requested.config_hash}.items():
        if value is not None:
            require_column(frame, name, f"--{name.replace('_', '-')}", "metric table")
            frame = frame.where(F.col(name) == value)
    require_column(frame, "metric", "column of a metric table", "metric table")
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


def result_schema(spark: SparkSession, columns: Mapping[str, str]) -> T.StructType:
    """Build the schema of a result from names of Spark types, with its provenance."""
    stamps = {**dict.fromkeys(PROVENANCE, "string"), **dict.fromkeys((SOURCE_TIME, "computed_at"), "timestamp")}
    ddl = ", ".join(f"{name} {kind}" for name, kind in {**columns, **stamps}.items())
    return spark.createDataFrame([], ddl).schema  # StructType.fromDDL came with Spark 4


MAX_PERIODS = 40
"""Limit for printed rows."""


class RollUp(Work[RollUpJobSettings]):
    """Add up nights."""

    def __init__(self, job: Job[RollUpJobSettings]) -> None:
        super().__init__(job)
        self.rows = select_rows(self.tables["input"], self.settings.rows)
        frames.roll_up_table(self.rows, self.settings.roll_up)

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": result_schema(self.job.spark, frames.list_roll_up_columns(self.tables["input"].frame))}

    def run(self) -> Outcome:
        """Find the nights and add them up: three actions, and one for the JSON."""
        table, settings = self.tables["input"], self.settings.roll_up
        with self.job.step("looking for nights"):
            nights = find_nights(table, self.rows, self.settings.rows, settings.as_of)
        settings = replace(settings, as_of=settings.as_of or nights.last)
        self.job.record(night=settings.end or settings.as_of, dataset=nights.dataset)
        periods = frames.roll_up_table(self.rows, settings)
        # Holm corrects all rows of a baseline together: they are one slice of a period.
        by = "baseline" if "baseline" in periods.columns else "run"
        self.job.persist(periods)
        with self.job.step("adding nights up"):
            keys = [
                SliceKey(row["period_end"], row[by], row["period"])
                for row in periods.select("period_end", by, "period").distinct().collect()
            ]
            if not keys:
                raise InputRefusedError("no night of the table is in a requested period")
            plain = periods.drop("state")
            printed = F.lit(True) if self.settings.verbose else F.col("segment_by") == ""
            if not self.settings.rows.metrics:
                printed = printed & ~F.col("metric").isin(*COMPANIONS)
            position = F.array_position(F.array(*map(F.lit, settings.periods)), F.col("period"))
            series: list[Column | str] = [*dict.fromkeys((by, "run")), "segment_by", "segment", "metric", "k"]
            newest = plain.where(printed).orderBy(F.desc("period_end"), position, *series).limit(MAX_PERIODS + 1)
            rows = newest.orderBy(position, "period_end", *series).collect()
            shown = [row.asDict() for row in rows]
            in_order = plain.orderBy(position, "period_end", *series)
            all_rows = [row.asDict() for row in in_order.collect()] if self.job.is_requested("json") else []
        facts = {
            "periods": all_rows,  # empty unless JSON was requested
            "as_of": str(settings.as_of),
            "dataset": nights.dataset,
            "limits": settings.text,
            "input": table.name,
            "package_version": __version__,
            SOURCE_TIME: nights.computed_at,
        }
        columns = {"night": "period_end", "part": "period", "run": by}
        slices = Slices(dataset=nights.dataset, keys=tuple(keys), columns=columns)
        stored = add_provenance(periods, facts, PROVENANCE).repartition("period", "period_end", by)
        assumptions = dict.fromkeys(row["independence"] for row in shown)
        is_comparison = any("baseline" in row for row in shown)
        more = f"; the newest {MAX_PERIODS} rows are shown, --output has all" if len(shown) > MAX_PERIODS else ""
        title = "differences of periods" if is_comparison else "means of periods (± half of the interval)"
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=stored, slices=slices)},
            lines=(
                lambda: print_rows(title, [_format_cells(row, nights.first) for row in shown[-MAX_PERIODS:]]),
                f"periods: {len(keys):,}, with nights up to {settings.as_of}{more}",
                f"intervals: independence={', '.join(assumptions) or settings.independence}",
                *format_rules_notes(row[RULES] for row in shown),
            ),
        )


def _format_cells(row: dict[str, Any], first: date) -> dict[str, str]:
    """Format a row for printing. Days before `first`, the first night of the table, are not missing."""
    missing = ", ".join(str(day) for day in row["missing_days"] if day >= first)
    values = {"value": labels.mean(row)}
    if "baseline" in row:
        values = {"difference": labels.estimate(row, "difference", form="+.4f"), "verdict": format_verdict(row)}
    return {
        "period": f"{row['period']} {row['period_start']}..{row['period_end']}",
        "series": format_series(row),
        **values,
        "queries": f"{row['n_queries']:,}",
        "days": str(row["n_days"]) + (f" (missing: {missing})" if missing else ""),
    }


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
