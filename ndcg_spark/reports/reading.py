"""The rows of a report: filtered and cut by Spark, so that what is collected does not grow with the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import exact_col, format_utc, has_column, require_column
from ndcg_spark.core.labels import metric_at
from ndcg_spark.core.workers import collect
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import MIXED, RULES, format_difference, read_rules
from ndcg_spark.jobs.outputs import SOURCE_TIME
from ndcg_spark.reports.contents import Comparison, Mean, Standing, columns
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.wording import day

MOST_DATASETS = 100
MOST_MEANS = 20_000
"""Runs times metrics times cutoffs of a night."""
_KINDS = {"str": "string", "str | None": "string", "int": "bigint", "int | None": "bigint", "float | None": "double"}
_NEEDED = ("run", "segment_by", "segment", "metric", "k", "value")
_OF_NIGHT = {
    **dict.fromkeys(("dataset", "convention", "config_hash", RULES, "input", "package_version", "note"), "string"),
    "run_date": "date", "computed_at": "timestamp", "flagged": "boolean",
}  # fmt: skip
_COMPARED = ("run", "baseline", "segment_by", "segment", "metric", "k", "difference")
_OF_COMPARISON = {
    **dict.fromkeys((RULES, "dataset", "period"), "string"),
    **dict.fromkeys(("run_date", "period_start", "period_end"), "date"),
    SOURCE_TIME: "bigint",  # in seconds
    TOP_ITEMS: "array<bigint>",
}
_FLAGGED = {
    **dict.fromkeys(("metric", "status", "dataset", "run", "segment_by", "segment", "weekday"), "string"),
    **dict.fromkeys(("z", "limit", "spread", "std_error"), "double"),
    "night": "date",
    SOURCE_TIME: "bigint",
}

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Scope:
    """The data set, night, runs and metric of a report."""

    dataset: str
    run_date: date | None
    runs: tuple[str, ...]
    metric: str
    k: int | None
    limits: ReportLimits = field(default_factory=ReportLimits)
    before: date | None = None
    """The night before that has a result."""
    baseline: str | None = None
    """The run against which queries lose; None: the night before."""
    computed: int | None = None
    """When the means of the night were computed, in seconds since 1970."""

    @property
    def night(self) -> Column:
        return F.lit(self.run_date).cast("date")

    def place(self, row: Mapping[str, Any]) -> int:
        """Place of the run of a row."""
        return self.runs.index(row["run"])

    def older(self, what: str, source: int | None, command: str) -> list[str]:
        """Say that results are older than the means of the night that they should have been made of."""
        if source is None or self.computed is None or source >= self.computed:
            return []
        return [f"{what} of {day(self.run_date)} is older than its means: run {command} again."]

    def of_dataset(self) -> Column:
        """Condition on the data set; a table may lack it."""
        return F.coalesce("dataset", F.lit(self.dataset)) == self.dataset

    def of_runs(self) -> Column:
        return F.col("run").isin(*self.runs)

    def of_metric(self) -> Column:
        """Condition on the metric and its cutoff."""
        return self.at_k() & (F.col("metric") == self.metric)

    def __str__(self) -> str:
        night = "" if self.run_date is None else f" on {self.run_date.isoformat()}"
        runs = ", ".join(map(repr, self.runs))
        return f"{metric_at(self.metric, self.k)}, data set {self.dataset!r}, run {runs}{night}"

    def at_k(self) -> Column:
        return F.col("k").eqNullSafe(F.lit(self.k).cast("int"))


def metric_table(frame: DataFrame) -> DataFrame:
    """Select the columns that reports read, lazily; those that the table lacks are null, `dataset` is then empty."""
    shaped = _shaped(frame, "metric table", _NEEDED, _kinds(Mean) | _OF_NIGHT)
    return shaped.withColumn("dataset", F.coalesce("dataset", F.lit("")))


def comparison_table(frame: DataFrame) -> DataFrame:
    return _shaped(frame, "comparison table", _COMPARED, _kinds(Comparison) | _OF_COMPARISON)


def flag_table(frame: DataFrame) -> DataFrame:
    """Like `metric_table`, for the table of `flag_changes`; where it is stored, its night may be the run_date."""
    if not has_column(frame, "night") and has_column(frame, "run_date"):
        frame = frame.withColumnRenamed("run_date", "night")
    shaped = _shaped(frame, "table of flags", ("night", "metric", "k", "status"), _FLAGGED)
    return shaped.withColumn("segment_by", F.coalesce("segment_by", F.lit("")))


def _kinds(content: type) -> dict[str, str]:
    return {name: _KINDS[kind] for name, kind in columns(content).items()}


def _shaped(frame: DataFrame, table: str, needed: Sequence[str], kinds: Mapping[str, str]) -> DataFrame:
    for name in needed:
        require_column(frame, name, f"a {table} has it", table)
    return frame.select(
        *[
            (exact_col(name) if has_column(frame, name) else F.lit(None)).cast(kind).alias(name)
            for name, kind in {**kinds, "k": "int"}.items()
        ],
        *([REFUSAL] if REFUSAL in frame.columns else []),
    )


def datasets_of(metrics: DataFrame) -> Rows:
    """Run an action: name, newest night and number of nights of each data set."""
    newest = [F.max("run_date").alias("newest"), F.count_distinct("run_date").alias("n_nights")]
    newest += [F.min(REFUSAL).alias(REFUSAL)] if REFUSAL in metrics.columns else []
    return collected(metrics.groupBy("dataset").agg(*newest).orderBy("dataset").limit(MOST_DATASETS + 1))


def means_of_night(metrics: DataFrame, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
    """Run an action: the means over all queries of a night, of `runs` or, if that is empty, of all."""
    its = metrics.where(of_night(dataset, night) & (F.col("segment_by") == ""))
    if runs:
        its = its.where(F.col("run").isin(*runs))
    times = {"computed": F.col("computed_at").cast("bigint"), "computed_at": format_utc(F.col("computed_at"))}
    found = collected(its.withColumns(times).limit(MOST_MEANS + 1))
    if len(found) > MOST_MEANS:
        raise InputRefusedError(
            f"the night has more than {MOST_MEANS:,} means over all queries; name the runs of the report."
        )
    return found


def of_night(dataset: str, night: date | None) -> Column:
    return (F.col("dataset") == dataset) & F.col("run_date").eqNullSafe(F.lit(night).cast("date"))


def last_seen(metrics: DataFrame, dataset: str, night: date | None, runs: Sequence[str]) -> dict[str, date]:
    """Run an action if there are `runs`: the last night before a night of each; left out if there is none."""
    if not runs or night is None:
        return {}
    earlier = (F.col("dataset") == dataset) & (F.col("run_date") < F.lit(night)) & F.col("run").isin(*runs)
    found = metrics.where(earlier).groupBy("run").agg(F.max("run_date").alias("last"))
    return {row["run"]: row["last"] for row in collected(found)}


def collected(rows: DataFrame) -> Rows:
    return [row.asDict() for row in collect(rows)]


def require_rules(standings: Iterable[Standing], run: str, texts: Iterable[str | None], table: str) -> None:
    """Refuse a table whose rows of a run were computed by other rules than the means of that run."""
    means = [one.rules for one in standings if one.mean.run == run]
    known = [text for text in texts if MIXED not in read_rules(text).values()]  # else combined on purpose
    difference = format_difference([*means, *known])
    if difference:
        raise InputRefusedError(
            f"the {table} has rows of run {run!r} by other rules than its means ({difference}); evaluate both by "
            "the same rules, or leave the table out."
        )
