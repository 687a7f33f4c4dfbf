"""Rows of a report, filtered and limited by Spark: the number of collected rows does not grow with the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.comparison.tasks.finishing import PAIR_TOP_ITEMS
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import exact_col, format_utc, has_column, require_column
from ndcg_spark.core.labels import metric_at
from ndcg_spark.core.workers import collect
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import MIXED, RULES, format_difference, read_rules
from ndcg_spark.jobs.outputs import SOURCE_TIME
from ndcg_spark.reports.contents import ComparisonRow, Mean, RunResult, list_columns
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.wording import format_day

MAX_DATASETS = 100
MAX_MEANS = 20_000
"""Maximum of runs times metrics times cutoffs of a night."""
_SPARK_TYPES = {
    "str": "string",
    "str | None": "string",
    "int": "bigint",
    "int | None": "bigint",
    "float | None": "double",
}
_NEEDED = ("run", "segment_by", "segment", "metric", "k", "value")
_NIGHT_TYPES = {
    **dict.fromkeys(("dataset", "convention", "config_hash", RULES, "input", "package_version", "note"), "string"),
    "run_date": "date", "computed_at": "timestamp", "flagged": "boolean",
}  # fmt: skip
_NEEDED_BY_COMPARISONS = ("run", "baseline", "segment_by", "segment", "metric", "k", "difference")
_COMPARISON_TYPES = {
    **dict.fromkeys((RULES, "dataset", "period"), "string"),
    **dict.fromkeys(("run_date", "period_start", "period_end"), "date"),
    SOURCE_TIME: "bigint",  # in seconds
    PAIR_TOP_ITEMS: "array<bigint>",
}
_FLAG_TYPES = {
    **dict.fromkeys(("metric", "status", "dataset", "run", "segment_by", "segment", "weekday"), "string"),
    **dict.fromkeys(("z", "limit", "spread", "std_error", "value", "median"), "double"),
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
    """The latest earlier night with a result."""
    baseline: str | None = None
    """The run that losses of queries are against; None: the night before."""
    computed: int | None = None
    """When the means of the night were computed, in seconds since 1970."""

    @property
    def night(self) -> Column:
        return F.lit(self.run_date).cast("date")

    def rank_run(self, row: Mapping[str, Any]) -> int:
        """Return the place of the run of a row among the runs of the report."""
        return self.runs.index(row["run"])

    def find_older(self, table: str, source: int | None, command: str) -> list[str]:
        """Warn of a table that was computed from older means than those of the night."""
        if source is None or self.computed is None or source >= self.computed:
            return []
        return [f"{table} of {format_day(self.run_date)} is older than its means: run {command} again."]

    def matches_dataset(self) -> Column:
        """Build the condition on the data set, which is null in tables that lack it."""
        return F.coalesce("dataset", F.lit(self.dataset)) == self.dataset

    def matches_runs(self) -> Column:
        return F.col("run").isin(*self.runs)

    def matches_metric(self) -> Column:
        """Build the condition on the metric and its cutoff."""
        return self.matches_k() & (F.col("metric") == self.metric)

    def __str__(self) -> str:
        night = "" if self.run_date is None else f" on {self.run_date.isoformat()}"
        runs = ", ".join(map(repr, self.runs))
        return f"{metric_at(self.metric, self.k)}, data set {self.dataset!r}, run {runs}{night}"

    def matches_k(self) -> Column:
        return F.col("k").eqNullSafe(F.lit(self.k).cast("int"))


def select_metrics(frame: DataFrame) -> DataFrame:
    """Select the columns that reports read, lazily; columns that the table lacks are null, `dataset` is empty."""
    shaped = _select_columns(frame, "metric table", _NEEDED, _list_types(Mean) | _NIGHT_TYPES)
    return shaped.withColumn("dataset", F.coalesce("dataset", F.lit("")))


def select_comparisons(frame: DataFrame) -> DataFrame:
    return _select_columns(
        frame, "comparison table", _NEEDED_BY_COMPARISONS, _list_types(ComparisonRow) | _COMPARISON_TYPES
    )


def select_flags(frame: DataFrame) -> DataFrame:
    """Like `select_metrics`, for the table of `flag_changes`; in stored tables the night is `run_date`."""
    if not has_column(frame, "night") and has_column(frame, "run_date"):
        frame = frame.withColumnRenamed("run_date", "night")
    shaped = _select_columns(frame, "table of flags", ("night", "metric", "k", "status"), _FLAG_TYPES)
    return shaped.withColumn("segment_by", F.coalesce("segment_by", F.lit("")))


def _list_types(content: type) -> dict[str, str]:
    return {name: _SPARK_TYPES[kind] for name, kind in list_columns(content).items()}


def _select_columns(frame: DataFrame, table: str, needed: Sequence[str], kinds: Mapping[str, str]) -> DataFrame:
    for name in needed:
        require_column(frame, name, f"a {table} has it", table)
    return frame.select(
        *[
            (exact_col(name) if has_column(frame, name) else F.lit(None)).cast(kind).alias(name)
            for name, kind in {**kinds, "k": "int"}.items()
        ],
        *([REFUSAL] if REFUSAL in frame.columns else []),
    )


def list_datasets(metrics: DataFrame) -> Rows:
    """List the name, newest night and number of nights of each data set. Runs an action."""
    newest = [F.max("run_date").alias("newest"), F.count_distinct("run_date").alias("n_nights")]
    newest += [F.min(REFUSAL).alias(REFUSAL)] if REFUSAL in metrics.columns else []
    return collect_rows(metrics.groupBy("dataset").agg(*newest).orderBy("dataset").limit(MAX_DATASETS + 1))


def read_means(metrics: DataFrame, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
    """Read the means over all queries of a night, of `runs` or of all runs. Runs an action."""
    means = metrics.where(matches_night(dataset, night) & (F.col("segment_by") == ""))
    if runs:
        means = means.where(F.col("run").isin(*runs))
    times = {"computed": F.col("computed_at").cast("bigint"), "computed_at": format_utc(F.col("computed_at"))}
    rows = collect_rows(means.withColumns(times).limit(MAX_MEANS + 1))
    if len(rows) > MAX_MEANS:
        raise InputRefusedError(
            f"the night has more than {MAX_MEANS:,} means over all queries; name the runs of the report."
        )
    return rows


def matches_night(dataset: str, night: date | None) -> Column:
    return (F.col("dataset") == dataset) & F.col("run_date").eqNullSafe(F.lit(night).cast("date"))


def find_last_nights(metrics: DataFrame, dataset: str, night: date | None, runs: Sequence[str]) -> dict[str, date]:
    """Find the last earlier night of each run that has one. Runs an action unless `runs` is empty."""
    if not runs or night is None:
        return {}
    earlier = (F.col("dataset") == dataset) & (F.col("run_date") < F.lit(night)) & F.col("run").isin(*runs)
    newest = metrics.where(earlier).groupBy("run").agg(F.max("run_date").alias("last"))
    return {row["run"]: row["last"] for row in collect_rows(newest)}


def collect_rows(rows: DataFrame) -> Rows:
    return [row.asDict() for row in collect(rows)]


def require_rules(results: Iterable[RunResult], run: str, texts: Iterable[str | None], table: str) -> None:
    """Refuse a table with rows of a run that were computed by other rules than the means of that run."""
    means = [result.rules for result in results if result.mean.run == run]
    known = [text for text in texts if MIXED not in read_rules(text).values()]  # MIXED: combined on purpose
    difference = format_difference([*means, *known])
    if difference:
        raise InputRefusedError(
            f"the {table} has rows of run {run!r} by other rules than its means ({difference}); evaluate both by "
            "the same rules, or leave the table out."
        )
