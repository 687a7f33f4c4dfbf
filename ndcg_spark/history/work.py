"""What `roll-up` and `flag-changes` do with metric tables. Everything that is called `run` runs actions."""

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
    RECOVERED,
    SHORT,
    USUAL,
    series_name,
)
from ndcg_spark.jobs.outputs import SOURCE_TIME, add_provenance
from ndcg_spark.jobs.printing import print_rows
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.metrics import EVERY
from ndcg_spark.sources.formats import Table
from ndcg_spark.tables import Rows, SliceKey, Slices

PROVENANCE = ("limits", "input", "package_version")


class Nights(NamedTuple):
    """The data set of rows, and their first and last night."""

    dataset: str
    first: date
    last: date
    computed_at: datetime | None
    """The newest of the rows up to the night that was asked for."""


def taken_rows(table: Table, asked: MetricRows) -> DataFrame:
    """Select the requested rows, of all data sets if none was named; lazy."""
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
        at = F.lit(True) if one.k == EVERY else F.col("k").cast("string").eqNullSafe(F.lit(one.k).cast("string"))
        wanted = wanted | ((F.col("metric") == str(one.metric)) & at)
    return frame.where(wanted)


def found_nights(table: Table, rows: DataFrame, asked: MetricRows, until: date | None) -> Nights:
    """Run an action: find the one data set and the nights of rows from `taken_rows`, or refuse them."""
    night = frames.night_column(rows, frames.METRIC_TABLE)
    dataset = F.col("dataset") if has_column(rows, "dataset") else F.lit("")
    at, computed = F.expr(labels.METRIC_AT_SQL), computed_micros(rows)
    if until is not None:
        computed = F.when(night <= F.lit(until), computed)
    columns = (night.alias("night"), dataset.alias("dataset"), "metric", at.alias("at"), computed.alias("computed"))
    found = rows.select(*columns).agg(
        F.max("computed").alias("computed"),
        *(F.min("night").alias("first"), F.max("night").alias("last"), F.collect_set("dataset").alias("datasets")),
        F.array_union(F.collect_set("metric"), F.collect_set("at")).alias("metrics"),
    )
    (facts,) = found.collect()
    datasets = sorted(facts["datasets"])
    if facts["first"] is None or any(one.label not in facts["metrics"] for one in asked.metrics):
        _require_names(table.frame, asked)
    if facts["first"] is None:
        raise InputRefusedError(f"{table.name} has no rows{_described(asked)}.")
    if len(datasets) > 1:
        raise InputRefusedError(
            f"{table.name} has rows of several data sets ({', '.join(datasets[:5])}); name one with --dataset."
        )
    return Nights((datasets or [""])[0], facts["first"], facts["last"], micros_to_datetime(facts["computed"]))


def _require_names(frame: DataFrame, asked: MetricRows) -> None:
    """Run actions: raise for the first requested name that the table does not have."""
    wanted = (("dataset", "data set", asked.dataset), ("config_hash", "config_hash", asked.config_hash))
    for column, what, name in wanted:
        if name is not None:
            frames.require_present(frame, what, F.col(column).cast("string"), [name])
            frame = frame.where(F.col(column) == name)
    frames.require_present(frame, "metric", F.col("metric"), [str(one.metric) for one in asked.metrics])
    frames.require_present(
        frame, "metric", F.expr(labels.METRIC_AT_SQL), [one.label for one in asked.metrics if one.k != EVERY]
    )


def _described(asked: MetricRows) -> str:
    parts = []
    if asked.dataset is not None:
        parts.append(f"data set {asked.dataset!r}")
    if asked.metrics:
        parts.append(f"metrics {', '.join(one.label for one in asked.metrics)}")
    if asked.config_hash is not None:
        parts.append(f"config_hash {asked.config_hash!r}")
    return f" of {' and '.join(parts)}" if parts else ""


def result_schema(spark: SparkSession, columns: Mapping[str, str]) -> T.StructType:
    """Schema of columns with the types of Spark, and of their provenance."""
    stamps = {**dict.fromkeys(PROVENANCE, "string"), **dict.fromkeys((SOURCE_TIME, "computed_at"), "timestamp")}
    ddl = ", ".join(f"{name} {kind}" for name, kind in {**columns, **stamps}.items())
    return spark.createDataFrame([], ddl).schema  # StructType.fromDDL came with Spark 4


MOST_PERIODS, MOST_FLAGS = 40, 100
"""Rows that are printed; flags are cut in the JSON, too."""
_STATUS_TEXTS = {SHORT: "with a short history"}
"""Statuses whose name alone does not say what they count."""


class RollUp(Work[RollUpJobSettings]):
    """Add nights up."""

    def __init__(self, job: Job[RollUpJobSettings]) -> None:
        super().__init__(job)
        self.rows = taken_rows(self.tables["input"], self.settings.rows)
        frames.rolled_up(self.rows, self.settings.roll_up)

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": result_schema(self.job.spark, frames.roll_up_columns(self.tables["input"].frame))}

    def run(self) -> Outcome:
        """Find the nights and add them up: three actions, one more for the JSON."""
        table, settings = self.tables["input"], self.settings.roll_up
        with self.job.step("looking for nights"):
            nights = found_nights(table, self.rows, self.settings.rows, settings.as_of)
        settings = replace(settings, as_of=settings.as_of or nights.last)
        self.job.record(night=settings.end or settings.as_of, dataset=nights.dataset)
        periods = frames.rolled_up(self.rows, settings)
        # Holm ties the rows of a baseline together: they are one slice of a period.
        by = "baseline" if "baseline" in periods.columns else "run"
        self.job.persist(periods)
        with self.job.step("adding nights up"):
            keys = [
                SliceKey(row["period_end"], row[by], row["period"])
                for row in periods.select("period_end", by, "period").distinct().collect()
            ]
            if not keys:
                raise InputRefusedError("no night of the table is in a period that was asked for")
            plain = periods.drop("state")
            wanted = F.lit(True) if self.settings.verbose else F.col("segment_by") == ""
            if not self.settings.rows.metrics:
                wanted = wanted & ~F.col("metric").isin(*COMPANIONS)
            listed = F.array_position(F.array(*map(F.lit, settings.periods)), F.col("period"))
            series: list[Column | str] = [*dict.fromkeys((by, "run")), "segment_by", "segment", "metric", "k"]
            newest = plain.where(wanted).orderBy(F.desc("period_end"), listed, *series).limit(MOST_PERIODS + 1)
            rows = newest.orderBy(listed, "period_end", *series).collect()
            shown = [row.asDict() for row in rows]
            every = [row.asDict() for row in plain.collect()] if self.job.is_requested("json") else []
        facts = {
            "periods": every,  # empty unless JSON was requested
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
        assumed = dict.fromkeys(row["independence"] for row in shown)
        compared = any("baseline" in row for row in shown)
        more = f"; the newest {MOST_PERIODS} rows are shown, --output has all" if len(shown) > MOST_PERIODS else ""
        title = "differences of periods" if compared else "means of periods (± half of the interval)"
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=stored, slices=slices)},
            lines=(
                lambda: print_rows(title, [_cells(row, nights.first) for row in shown[-MOST_PERIODS:]]),
                f"periods: {len(keys):,}, with nights up to {settings.as_of}{more}",
                f"intervals: independence={', '.join(assumed) or settings.independence}",
                *format_rules_notes(row[RULES] for row in shown),
            ),
        )


def _cells(row: dict[str, Any], first: date) -> dict[str, str]:
    """Texts of a row; days before the `first` night of the table are not missing."""
    missing = ", ".join(str(day) for day in row["missing_days"] if day >= first)
    found = {"value": labels.mean(row)}
    if "baseline" in row:
        found = {"difference": labels.estimate(row, "difference", form="+.4f"), "verdict": format_verdict(row)}
    return {
        "period": f"{row['period']} {row['period_start']}..{row['period_end']}",
        "series": series_name(row),
        **found,
        "queries": f"{row['n_queries']:,}",
        "days": str(row["n_days"]) + (f" (missing: {missing})" if missing else ""),
    }


class FlagChanges(Work[FlagJobSettings]):
    """Judge nights by those before."""

    def __init__(self, job: Job[FlagJobSettings]) -> None:
        super().__init__(job)
        self.rows = taken_rows(self.tables["input"], self.settings.rows)
        self.per_query = self.tables.get("per_query")
        frames.flagged_nights(self.rows, self.settings.flags)

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": result_schema(self.job.spark, FLAG_COLUMNS)}

    def run(self) -> Outcome:
        """Find the nights and judge them: four actions."""
        table = self.tables["input"]
        with self.job.step("looking for nights"):
            nights = found_nights(table, self.rows, self.settings.rows, self.settings.flags.end)
        end = self.settings.flags.end or nights.last
        self.job.record(night=end, dataset=nights.dataset)
        settings = replace(self.settings.flags, start=self.settings.flags.start or end, end=end)
        pairs = None if self.per_query is None else self.per_query.frame
        if pairs is not None and "dataset" in pairs.columns:
            pairs = pairs.where(F.col("dataset") == nights.dataset)
        judged = frames.flagged_nights(self.rows, settings, per_query=pairs, query=self.settings.query)
        self.job.persist(judged)
        with self.job.step("judging nights"):
            keys = tuple(
                SliceKey(row["night"], row["run"]) for row in judged.select("night", "run").distinct().collect()
            )
            if not keys:
                there = f"{nights.first} to {nights.last}{_nights_before(nights.last, settings.start)}"
                asked = f"{settings.start} to {settings.end}"
                raise InputRefusedError(f"{table.name} has no night from {asked}; its nights are from {there}.")
            name = table.name if self.per_query is None else f"{table.name} with {self.per_query.name}"
            facts = {
                **_judgment(judged),
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
            yield f"the last night in the table is {last}{_nights_before(last, today)}; it is the one that is judged"
        nights = "night" if facts["from"] == facts["to"] else f"nights {facts['from']} to"
        counts = ", ".join(f"{n:,} {_STATUS_TEXTS.get(status, status)}" for status, n in facts["by_status"].items())
        yield f"{nights} {facts['to']}: {counts}"
        if facts["missing_nights"]:
            yield f"nights without a row: {labels.join_names(facts['missing_nights'])}"
        for cause in group_by_cause([*facts["flags"], *facts["recovered"]]):
            yield cause.line
            if self.settings.verbose:
                yield from (f"  {row['status']}: {row['rule']}" for row in (cause.first, *cause.others))
        n = sum(facts["by_status"].get(status, 0) for status in FLAGGED)
        if n > len(facts["flags"]):
            yield f"... and {n - len(facts['flags'])} more; --output has all of them."
        if not n:
            yield _no_flag(facts, settings)
        if self.per_query is not None:
            counted = facts["night_before"]
            paired = f", {counted['paired']:,} of them query by query" if counted["paired"] else ""
            yield f"compared with the night before only: {counted['held']:,}{paired}"


def _nights_before(last: date, night: date | None) -> str:
    """Text for a last night before the one that is due; empty if it is not."""
    if night is None or last >= night:
        return ""
    n = (night - last).days
    return f", {n:,} {'night' if n == 1 else 'nights'} before {night}"


def _judgment(judged: DataFrame) -> dict[str, Any]:
    """Run two actions: counts by status, and the flags, the farthest first; as JSON has them."""
    numbers = [F.count("*").alias("n"), F.count("z").alias("held"), F.max("n_nights").alias("nights")]
    numbers += [
        F.count_if(F.col("weekday").isin(*kinds)).alias(name)
        for name, kinds in (("before", (BEFORE, BEFORE_PAIRED)), ("paired", (BEFORE_PAIRED,)))
    ]
    counted = judged.groupBy("status").agg(*numbers).orderBy("status").collect()
    short = {row["status"]: row for row in counted}.get(SHORT)
    is_back = F.col("status") == RECOVERED
    flagged = judged.where(F.col("status").isin(*FLAGGED) | is_back)
    order = (is_back, F.abs("z").desc_nulls_first(), "night", "run", "segment_by", "segment", "metric", "k")
    flags = [row.asDict() for row in flagged.orderBy(*order).limit(MOST_FLAGS).collect()]
    history = {"held_against_the_night_before": short["held"], "nights": short["nights"]} if short else None
    return {
        "by_status": {row["status"]: row["n"] for row in counted},
        "short_history": history,
        "night_before": {
            "held": sum(row["before"] for row in counted),
            "paired": sum(row["paired"] for row in counted),
        },
        "flags": [row for row in flags if row["status"] in FLAGGED],
        "recovered": [row for row in flags if row["status"] not in FLAGGED],
    }


def _no_flag(facts: Mapping[str, Any], settings: FlagSettings) -> str:
    """Report that there is no flag, and what was not judged."""
    short, usual = facts["short_history"], facts["by_status"].get(USUAL, 0)
    if short is None:
        return "no flag" if usual else "nothing could be judged: no night has a value"
    lacks = f"{short['nights']:,} earlier nights, {settings.fewest_any_day} needed"
    if usual:
        return f"no flag; some could not be judged by history: {lacks}"
    if short["held_against_the_night_before"]:
        return f"nothing could be judged by history: {lacks}; no flag against the night before"
    return f"nothing could be judged: {lacks}"
