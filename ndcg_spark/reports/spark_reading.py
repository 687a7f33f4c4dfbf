"""Reading of reports by Spark, which filters and limits the rows. Methods run actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.comparison.results import check_matched
from ndcg_spark.comparison.spark_results import Comparison
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import describe_table, exact_col, exact_cols, format_utc, has_column
from ndcg_spark.core.workers import collect, raise_refusals
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.frames import find_missing_series
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import reading
from ndcg_spark.reports.contents import Distribution, Mean, is_within_1, list_columns, read
from ndcg_spark.reports.queries import CHANGE_COLUMNS
from ndcg_spark.reports.reading import BEFORE, BINS, SEPARATOR, VALUE, Columns, Rows, Scope

MAX_EXACT = 1_000_000
"""Number of queries of a run up to which quartiles are exact; beyond it they are from a sketch."""
_SKETCH = 10_000
"""Accuracy of the sketch: ranks are off by at most 1 / 10,000 of the queries."""
_PLACE = "__place"


def select_columns(frame: DataFrame, columns: Columns) -> DataFrame:
    """Select the columns that a report reads, lazily; columns that the table lacks are null."""
    columns.require(describe_table(frame, columns.table))
    return frame.select(
        *[
            (exact_col(name) if has_column(frame, name) else F.lit(None))
            .cast("bigint" if kind == reading.SECONDS else kind)
            .alias(name)
            for name, kind in columns.types.items()
        ],
        *([REFUSAL] if REFUSAL in frame.columns else []),
    )


def collect_rows(rows: DataFrame) -> Rows:
    return [row.asDict() for row in collect(rows)]


def _lit_date(night: date | None) -> Column:
    return F.lit(night).cast("date")


def _matches_k(scope: Scope) -> Column:
    return F.col("k").eqNullSafe(F.lit(scope.k).cast("int"))


def _matches_metric(scope: Scope) -> Column:
    """Build the condition on the metric and its cutoff."""
    return _matches_k(scope) & (F.col("metric") == scope.metric)


def _matches_runs(scope: Scope) -> Column:
    return F.col("run").isin(*scope.runs)


def _matches_dataset(scope: Scope) -> Column:
    """Build the condition on the data set, which is null in tables that lack it."""
    return F.coalesce("dataset", F.lit(scope.dataset)) == scope.dataset


def _matches_night(dataset: str, night: date | None) -> Column:
    return (F.col("dataset") == dataset) & F.col("run_date").eqNullSafe(_lit_date(night))


class SparkMetrics(reading.MetricTable):
    """Means; refusals in a summary are raised when the data sets are listed."""

    def __init__(self, frame: DataFrame) -> None:
        table = select_columns(frame, reading.METRICS)
        self._unchecked = table.withColumn("dataset", F.coalesce("dataset", F.lit("")))
        self._table = raise_refusals(self._unchecked)

    def list_datasets(self) -> Rows:
        newest = [F.max("run_date").alias("newest"), F.count_distinct("run_date").alias("n_nights")]
        newest += [F.min(REFUSAL).alias(REFUSAL)] if REFUSAL in self._unchecked.columns else []
        datasets = self._unchecked.groupBy("dataset").agg(*newest).orderBy("dataset")
        return collect_rows(datasets.limit(reading.MAX_DATASETS + 1))

    def _read_means(self, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
        means = self._table.where(_matches_night(dataset, night) & (F.col("segment_by") == ""))
        if runs:
            means = means.where(F.col("run").isin(*runs))
        times = {"computed": F.col("computed_at").cast("bigint"), "computed_at": format_utc(F.col("computed_at"))}
        return collect_rows(means.withColumns(times).limit(reading.MAX_MEANS + 1))

    def find_last_nights(self, dataset: str, night: date, runs: Sequence[str]) -> dict[str, date]:
        earlier = (F.col("dataset") == dataset) & (F.col("run_date") < F.lit(night)) & F.col("run").isin(*runs)
        newest = self._table.where(earlier).groupBy("run").agg(F.max("run_date").alias("last"))
        return {row["run"]: row["last"] for row in collect_rows(newest)}

    def _select_metric(self, scope: Scope) -> DataFrame:
        return self._table.where(_matches_dataset(scope) & _matches_metric(scope))

    def read_trend(self, scope: Scope) -> Rows:
        run_date = F.col("run_date")
        until = run_date.isNull() if scope.run_date is None else run_date <= _lit_date(scope.run_date)
        series = self._select_metric(scope).where((F.col("segment_by") == "") & _matches_runs(scope) & until)
        newest = series.orderBy(F.desc("run_date"), "run").limit(scope.limits.nights * len(scope.runs))
        names = (*list_columns(Mean), "config_hash", RULES, "run_date", "flagged", "note")
        return collect_rows(newest.select(*names))

    def find_missing(self, scope: Scope, runs: Sequence[str]) -> tuple[Rows, int]:
        assert scope.run_date is not None
        limit, is_shown, is_run = scope.limits.segments, _matches_runs(scope), F.col("segment_by") == ""
        missing = find_missing_series(self._select_metric(scope), scope.run_date)
        is_missing_run = is_run & ~is_shown & (F.col("run").isin(*runs) if runs else F.lit(True))
        missing = missing.where(is_missing_run | (~is_run & is_shown))
        order = (is_run.desc(), F.desc_nulls_last("last_queries"), "run", "segment_by", "segment")
        rows = collect_rows(missing.orderBy(*order).limit(limit + 1))
        n_segments = sum(row["segment_by"] != "" for row in rows)
        return rows, n_segments if len(rows) <= limit else missing.where(~is_run).count()

    def read_segments(self, scope: Scope) -> tuple[Rows, int]:
        now, limit = _matches_night(scope.dataset, scope.run_date), scope.limits.segments
        earlier = [
            (F.col("run") == run) & _matches_night(scope.dataset, night) for run, night in scope.earlier.items()
        ]
        either = reduce(Column.__or__, earlier, now)
        segments = self._select_metric(scope).where(either & (F.col("segment_by") != "") & _matches_runs(scope))
        aggregates = [F.max(now).alias("is_there")]
        for name in reading.SEGMENT_COLUMNS:
            aggregates.append(F.max(F.when(now, F.col(name))).alias(name))
            aggregates.append(F.max(F.when(~now, F.col(name))).alias(f"before_{name}"))
        grouped = segments.groupBy("run", "segment_by", "segment", "metric", "k").agg(*aggregates).where("is_there")
        rows = collect_rows(grouped.orderBy(F.desc("n_queries"), "run", "segment_by", "segment").limit(limit + 1))
        return rows[:limit], grouped.count() if len(rows) > limit else len(rows)


class SparkFlags(reading.FlagTable):
    """A table of flags as a DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        if not has_column(frame, "night") and has_column(frame, "run_date"):
            frame = frame.withColumnRenamed("run_date", "night")
        table = select_columns(frame, reading.FLAGS)
        self._table = table.withColumn("segment_by", F.coalesce("segment_by", F.lit("")))

    def _select(self, scope: Scope) -> DataFrame:
        is_shown_run = F.col("run").isNull() | _matches_runs(scope)
        return self._table.where(_matches_metric(scope) & _matches_dataset(scope) & is_shown_run)

    def _count(self, scope: Scope) -> dict[str, Any]:
        night = _lit_date(scope.run_date)
        is_tonight = F.col("night").eqNullSafe(night)
        is_segment_flag = F.col("status").isin(*reading.BY_DISTANCE) & (F.col("segment_by") != "")
        (counts,) = collect_rows(
            self._select(scope).agg(
                F.count_if(is_segment_flag & is_tonight).alias("n_segments"),
                F.count_if(is_segment_flag & (F.col("night") < night)).alias("n_earlier"),
                F.count_if(is_tonight).alias("n_judged"),
                F.max(F.when(F.col("night") <= night, F.col("night"))).alias("last"),
                F.max(F.when(is_tonight, F.col("source_computed_at"))).alias("source"),
            )
        )
        return counts

    def _read_notable(self, scope: Scope) -> Rows:
        night, status = _lit_date(scope.run_date), F.col("status")
        until = F.lit(True) if scope.run_date is None else F.col("night") <= night
        is_related = status.isin(*reading.BY_EARLIER_FLAG) & F.col("night").eqNullSafe(night)
        notable = self._select(scope).where((status.isin(*reading.BY_DISTANCE) & until) | is_related)
        newest = notable.orderBy(F.col("segment_by") == "", "night", F.abs("z"), ascending=False)
        return collect_rows(newest.limit(reading.MAX_FLAGS))


class SparkComparisons(reading.ComparisonTable):
    """A comparison table, or the result of `compare`."""

    def __init__(self, comparison: DataFrame | Comparison) -> None:
        self._compared = comparison if isinstance(comparison, Comparison) else None
        frame = raise_refusals(comparison.counted) if isinstance(comparison, Comparison) else comparison
        self._table = select_columns(frame, reading.COMPARISONS)

    def _select_all_runs(self, scope: Scope) -> DataFrame:
        return self._table.where(_matches_metric(scope) & _matches_dataset(scope))

    def read(self, scope: Scope) -> Rows:
        comparisons, night = self._select_all_runs(scope).where(_matches_runs(scope)), _lit_date(scope.run_date)
        if scope.run_date is not None:
            ends = F.when(F.col("period") == "rolling_7", F.col("period_end") == night)
            contains = ends.otherwise((F.col("period_start") <= night) & (F.col("period_end") >= night))
            comparisons = comparisons.where(
                F.when(F.col("period").isNotNull(), contains).otherwise(F.coalesce("run_date", night) == night)
            )
        overall_first = F.when(F.col("segment_by") == "", 0).otherwise(1)
        ordered = comparisons.orderBy(overall_first, F.desc("n_queries"), "run", "baseline", "segment_by", "segment")
        return collect_rows(ordered.limit(scope.limits.comparisons + 1))

    def find_last_night(self, scope: Scope) -> date | None:
        is_earlier = F.col("period").isNull() & (F.col("run_date") <= _lit_date(scope.run_date))
        (row,) = collect_rows(self._select_all_runs(scope).where(is_earlier).agg(F.max("run_date").alias("last")))
        last: date | None = row["last"]
        return last

    def check(self, rows: Rows) -> None:
        if self._compared is not None:
            check_matched(rows, self._compared.evaluations, allowed=self._compared.allow_unmatched)


class SparkQueries(reading.QueryTable):
    """A per-query table as a DataFrame."""

    def __init__(self, frame: DataFrame, scope: Scope) -> None:
        super().__init__(describe_table(frame, "per-query table"), scope)
        self._frame = frame

    def _select(self, night: date | None, runs: Iterable[str]) -> DataFrame:
        """Select queries of a night and of some runs at the cutoff, lazily."""
        rows = self._frame.where(_matches_k(self.scope) & F.col("run").isin(*runs))
        if has_column(self._frame, "dataset"):
            rows = rows.where(F.col("dataset") == self.scope.dataset)
        if self.has_nights:
            rows = rows.where(F.col("run_date").eqNullSafe(_lit_date(night)))
        counts = [name for name in ("n_items", "n_relevant", RULES) if has_column(self._frame, name)]
        return rows.select("run", *exact_cols(self.keys), exact_col(self.value).cast("double").alias(VALUE), *counts)

    def list_rules(self, night: date | None) -> dict[str, list[str]]:
        if not has_column(self._frame, RULES):
            return {}
        rows = self._select(night, self.scope.runs).groupBy("run").agg(F.collect_set(RULES).alias(RULES))
        return {row["run"]: row[RULES] for row in collect_rows(rows)}

    def count_distributions(self, *, max_exact: int = MAX_EXACT) -> tuple[Distribution, ...]:
        """Count queries; quartiles are exact up to `max_exact` queries of a run.

        Runs two actions, three if the range of the metric is unknown.
        """
        queries = self._select(self.scope.run_date, self.scope.runs)
        low, high = 0.0, 1.0
        if not is_within_1(self.scope.metric):
            low, high = reading.choose_range(*queries.agg(F.min(VALUE), F.max(VALUE)).collect()[0])
        value = F.col(VALUE)
        index = F.least(F.floor((value - low) / (high - low) * BINS), F.lit(BINS - 1))
        inside = (value >= low) & (value <= high)
        counted = queries.groupBy("run").agg(
            F.array(*[F.count_if(inside & (index == at)) for at in range(BINS)]).alias("bins"),
            F.count_if(value < low).alias("n_below"),
            F.count_if(value > high).alias("n_above"),
            F.count_if(value.isNull()).alias("n_undefined"),
            F.count_if(value == low).alias("n_lowest"),
            F.count_if(value == high).alias("n_highest"),
            F.percentile_approx(VALUE, [0.25, 0.5, 0.75], _SKETCH).alias("estimated"),
        )
        rows = sorted(collect_rows(counted), key=self.scope.rank_run)
        n_values = {row["run"]: sum(row["bins"]) + row["n_below"] + row["n_above"] for row in rows}
        exact = _compute_quartiles(queries, {run: n for run, n in n_values.items() if 0 < n <= max_exact})
        return tuple(
            read(
                Distribution,
                row,
                low=low,
                high=high,
                counts=tuple(row["bins"]),
                quartiles=exact.get(row["run"], tuple(row["estimated"] or (None, None, None))),
                quartile_error=1 / _SKETCH if n_values[row["run"]] > max_exact else 0.0,
            )
            for row in rows
        )

    def find_lowest(self) -> Rows:
        rows = self._select(self.scope.run_date, self.scope.runs).where(F.col(VALUE).isNotNull())
        relevant = []
        if "n_relevant" in rows.columns:
            rows, relevant = rows.where(F.coalesce("n_relevant", F.lit(1)) > 0), [F.desc("n_relevant")]
        worst = F.desc(VALUE) if direction_of(self.scope.metric) is False else F.asc(VALUE)
        lists_first = [F.coalesce(F.col("n_items") == 0, F.lit(False))] if "n_items" in rows.columns else []
        return self._take_first_of_each_run(rows, [*lists_first, worst, *relevant])

    def find_losses(self, *, before: date | None, baseline: str | None) -> Rows:
        """Run an action that shuffles the queries of both sides."""
        queries = self._select(self.scope.run_date, [run for run in self.scope.runs if run != baseline])
        if baseline is None:
            other = self._select(before, self.scope.runs)
            on = ["run", *self.keys]
        else:
            other = self._select(self.scope.run_date, [baseline])
            on = list(self.keys)
        joined = queries.join(other.select(*exact_cols(on), F.col(VALUE).alias(BEFORE)), on)
        fall, larger_is_better = F.col(BEFORE) - F.col(VALUE), direction_of(self.scope.metric)
        loss = F.abs(fall) if larger_is_better is None else fall if larger_is_better else -fall
        return self._take_first_of_each_run(joined.where(loss > 0), [loss.desc()])

    def _take_first_of_each_run(self, rows: DataFrame, order: list[Column]) -> Rows:
        place = F.row_number().over(Window.partitionBy("run").orderBy(*order, *exact_cols(self.keys)))
        first = rows.withColumn(_PLACE, place).where(F.col(_PLACE) <= self.scope.limits.queries)
        return sorted(collect_rows(first.orderBy("run", _PLACE)), key=self.scope.rank_run)


def _compute_quartiles(rows: DataFrame, n_values: Mapping[str, int]) -> dict[str, tuple[float | None, ...]]:
    """Compute quartiles of runs from sorted values, interpolated as by NumPy; `n_values` by run. Runs an action.

    The sort spills to disk; Spark's `percentile` would hold all values of all runs in memory.
    """
    places = {run: [divmod(quarter * (n - 1), 4) for quarter in (1, 2, 3)] for run, n in n_values.items()}
    is_needed = F.lit(False)
    for run, quartiles in places.items():
        needed = sorted({at + step + 1 for at, rest in quartiles for step in (0, min(rest, 1))})
        is_needed = is_needed | ((F.col("run") == run) & F.col(_PLACE).isin(needed))
    if not places:
        return {}
    by_value = Window.partitionBy("run").orderBy(VALUE)
    placed = rows.where(F.col(VALUE).isNotNull()).select("run", VALUE, F.row_number().over(by_value).alias(_PLACE))
    values: dict[str, dict[int, float]] = {run: {} for run in n_values}
    for row in collect_rows(placed.where(is_needed)):
        values[row["run"]][row[_PLACE] - 1] = float(row[VALUE])
    return {run: reading.interpolate_quartiles(n, values[run].get) for run, n in n_values.items()}


class SparkTexts(reading.TextTable):
    """Texts of queries as a DataFrame."""

    def __init__(self, frame: DataFrame, column: str) -> None:
        super().__init__(describe_table(frame, "table of query texts"), column)
        self._frame = frame

    def _find_texts(self, keys: Sequence[str], queries: Sequence[str]) -> dict[str, str | None]:
        query = F.concat_ws(SEPARATOR, *[F.coalesce(key.cast("string"), F.lit("null")) for key in exact_cols(keys)])
        texts = self._frame.select(query.alias("query"), exact_col(self.column).cast("string").alias("text"))
        first = texts.where(F.col("query").isin(*queries)).groupBy("query").agg(F.min("text").alias("text"))
        return {row["query"]: row["text"] for row in collect_rows(first)}


def collect_changed_queries(changed: DataFrame, limit: int) -> Rows:
    """Collect the rows of `changed_queries` with the largest changes. Runs an action."""
    info = describe_table(changed, "table of changed queries")
    for name in CHANGE_COLUMNS:
        info.require(name, "changed_queries has it")
    return [row.asDict(recursive=True) for row in changed.orderBy("place", "change").limit(2 * limit).collect()]
