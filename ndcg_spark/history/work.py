"""The commands `roll-up` and `flag-changes`. Methods named `run` run actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any, NamedTuple

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
from ndcg_spark.history.causes import group_by_cause
from ndcg_spark.history.settings import (
    COMPANIONS,
    METRIC_TABLE,
    FlagJobSettings,
    FlagSettings,
    MetricRows,
    RollUpJobSettings,
    is_behind,
    missing_nights,
)
from ndcg_spark.history.tasks import (
    BEFORE,
    BEFORE_PAIRED,
    FLAG_COLUMNS,
    FLAGGED,
    ONGOING,
    RECOVERED,
    SHORT,
    USUAL,
    format_series,
)
from ndcg_spark.jobs.outputs import SOURCE_TIME, add_provenance
from ndcg_spark.jobs.printing import print_rows
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.metrics import EVERY
from ndcg_spark.sources.formats import Table
from ndcg_spark.tables import Rows, SliceKey, Slices

PROVENANCE = ("limits", "input", "package_version")


class Nights(NamedTuple):
    """The data set of the rows, and their first and last night."""

    dataset: str
    first: date
    last: date
    computed_at: datetime | None
    """Newest time of the rows up to the requested night."""


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
    datasets = sorted(facts["datasets"])
    if facts["first"] is None or any(metric.label not in facts["metrics"] for metric in requested.metrics):
        _require_names(table.frame, requested)
    if facts["first"] is None:
        raise InputRefusedError(f"{table.name} has no rows{_format_request(requested)}.")
    if len(datasets) > 1:
        raise InputRefusedError(
            f"{table.name} has rows of several data sets ({', '.join(datasets[:5])}); name one with --dataset."
        )
    return Nights((datasets or [""])[0], facts["first"], facts["last"], micros_to_datetime(facts["computed"]))


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


def _format_request(requested: MetricRows) -> str:
    parts = []
    if requested.dataset is not None:
        parts.append(f"data set {requested.dataset!r}")
    if requested.metrics:
        parts.append(f"metrics {', '.join(metric.label for metric in requested.metrics)}")
    if requested.config_hash is not None:
        parts.append(f"config_hash {requested.config_hash!r}")
    return f" of {' and '.join(parts)}" if parts else ""


def result_schema(spark: SparkSession, columns: Mapping[str, str]) -> T.StructType:
    """Build the schema of a result from names of Spark types, with its provenance."""
    stamps = {**dict.fromkeys(PROVENANCE, "string"), **dict.fromkeys((SOURCE_TIME, "computed_at"), "timestamp")}
    ddl = ", ".join(f"{name} {kind}" for name, kind in {**columns, **stamps}.items())
    return spark.createDataFrame([], ddl).schema  # StructType.fromDDL came with Spark 4


MAX_PERIODS, MAX_FLAGS = 40, 100
"""Limits for printed rows; for flags, also for the JSON."""
_STATUS_TEXTS = {SHORT: "with a short history"}
"""Texts for statuses that are unclear as counts."""


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
            all_rows = [row.asDict() for row in plain.collect()] if self.job.is_requested("json") else []
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


class FlagChanges(Work[FlagJobSettings]):
    """Judge nights by the nights before them."""

    def __init__(self, job: Job[FlagJobSettings]) -> None:
        super().__init__(job)
        self.rows = select_rows(self.tables["input"], self.settings.rows)
        self.per_query = self.tables.get("per_query")
        frames.judge_nights(self.rows, self.settings.flags)

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": result_schema(self.job.spark, FLAG_COLUMNS)}

    def run(self) -> Outcome:
        """Find the nights and judge them: four actions."""
        table = self.tables["input"]
        with self.job.step("looking for nights"):
            nights = find_nights(table, self.rows, self.settings.rows, self.settings.flags.end)
        end = self.settings.flags.end or nights.last
        self.job.record(night=end, dataset=nights.dataset)
        settings = replace(self.settings.flags, start=self.settings.flags.start or end, end=end)
        pairs = None if self.per_query is None else self.per_query.frame
        if pairs is not None and "dataset" in pairs.columns:
            pairs = pairs.where(F.col("dataset") == nights.dataset)
        judged = frames.judge_nights(self.rows, settings, per_query=pairs, query=self.settings.query)
        self.job.persist(judged)
        with self.job.step("judging nights"):
            keys = tuple(
                SliceKey(row["night"], row["run"]) for row in judged.select("night", "run").distinct().collect()
            )
            if not keys:
                existing = f"{nights.first} to {nights.last}{_format_delay(nights.last, settings.start)}"
                raise InputRefusedError(
                    f"{table.name} has no night from {settings.start} to {settings.end}; its nights are from "
                    f"{existing}."
                )
            name = table.name if self.per_query is None else f"{table.name} with {self.per_query.name}"
            facts = {
                **_collect_flags(judged),
                "missing_nights": [str(night) for night in missing_nights(sorted({key.night for key in keys}))],
                "from": str(settings.start),
                "to": str(settings.end),
                "dataset": nights.dataset,
                "limits": settings.text,
                "input": name,
                "package_version": __version__,
                SOURCE_TIME: nights.computed_at,
            }
        slices = Slices(dataset=nights.dataset, keys=keys, columns={"night": "night", "run": "run"})
        stored = add_provenance(judged, facts, PROVENANCE).repartition("night", "run")
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=stored, slices=slices)},
            lines=self._lines(facts, settings, end),
            met=not (facts["flags"] and self.settings.fail_on_flag),
        )

    def _lines(self, facts: Mapping[str, Any], settings: FlagSettings, last: date) -> Iterator[Line]:
        today = datetime.now(timezone.utc).date()
        if self.settings.flags.end is None and is_behind(last, today):
            yield f"the last night in the table is {last}{_format_delay(last, today)}; this night is judged"
        nights = "night" if facts["from"] == facts["to"] else f"nights {facts['from']} to"
        counts = ", ".join(f"{n:,} {_STATUS_TEXTS.get(status, status)}" for status, n in facts["by_status"].items())
        n_rows = sum(facts["by_status"].values())
        unit = "series" if facts["from"] == facts["to"] else "values"
        yield f"{nights} {facts['to']}, {n_rows:,} {unit}: {counts}"
        if facts["missing_nights"]:
            yield f"nights without a row: {labels.join_names(facts['missing_nights'])}"
        for cause in group_by_cause([*facts["flags"], *facts["ongoing"], *facts["recovered"]]):
            yield cause.line
            if self.settings.verbose:
                yield from (f"  {row['status']}: {row['rule']}" for row in (cause.first, *cause.others))
        n = sum(facts["by_status"].get(status, 0) for status in FLAGGED)
        if n > len(facts["flags"]):
            yield f"... and {n - len(facts['flags'])} more; --output has all of them."
        if not n:
            yield _format_no_flag(facts, settings)
        if self.per_query is not None:
            counts = facts["night_before"]
            paired = f", {counts['paired']:,} of them query by query" if counts["paired"] else ""
            yield f"compared with the night before only: {counts['held']:,} series{paired}"


def _format_delay(last: date, night: date | None) -> str:
    """Format by how many nights the last one precedes the expected `night`; empty if it does not."""
    if night is None or last >= night:
        return ""
    n = (night - last).days
    return f", {n:,} {'night' if n == 1 else 'nights'} before {night}"


def _collect_flags(judged: DataFrame) -> dict[str, Any]:
    """Run two actions: count statuses and collect the flags, the farthest first, for the JSON."""
    numbers = [F.count("*").alias("n"), F.count("z").alias("held"), F.max("n_nights").alias("nights")]
    numbers += [
        F.count_if(F.col("weekday").isin(*kinds)).alias(name)
        for name, kinds in (("before", (BEFORE, BEFORE_PAIRED)), ("paired", (BEFORE_PAIRED,)))
    ]
    counts = judged.groupBy("status").agg(*numbers).orderBy("status").collect()
    short = {row["status"]: row for row in counts}.get(SHORT)
    kind = F.when(F.col("status").isin(*FLAGGED), 0).when(F.col("status") == ONGOING, 1)
    kind = kind.when(F.col("status") == RECOVERED, 2)
    flagged = judged.where(kind.isNotNull())
    order = (kind, F.abs("z").desc_nulls_first(), "night", "run", "segment_by", "segment", "metric", "k")
    flags = [row.asDict() for row in flagged.orderBy(*order).limit(MAX_FLAGS).collect()]
    history = {"held_against_the_night_before": short["held"], "nights": short["nights"]} if short else None
    return {
        "by_status": {row["status"]: row["n"] for row in counts},
        "short_history": history,
        "night_before": {
            "held": sum(row["before"] for row in counts),
            "paired": sum(row["paired"] for row in counts),
        },
        "flags": [row for row in flags if row["status"] in FLAGGED],
        "ongoing": [row for row in flags if row["status"] == ONGOING],
        "recovered": [row for row in flags if row["status"] == RECOVERED],
    }


def _format_no_flag(facts: Mapping[str, Any], settings: FlagSettings) -> str:
    """Format that there is no flag, and what could not be judged."""
    short_history, usual = facts["short_history"], facts["by_status"].get(USUAL, 0)
    if short_history is None:
        return "no flag" if usual else "nothing could be judged: no night has a value"
    lacks = f"{short_history['nights']:,} earlier nights, {settings.fewest_any_day} needed"
    if usual:
        return f"no flag; some could not be judged by history: {lacks}"
    if short_history["held_against_the_night_before"]:
        return f"nothing could be judged by history: {lacks}; no flag against the night before"
    return f"nothing could be judged: {lacks}"
