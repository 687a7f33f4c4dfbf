"""The rows of a report: filtered and cut by Spark, so that what is collected does not grow with the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import columns_of, has_column, named, require_column, utc_text
from ndcg_spark.core.labels import metric_at
from ndcg_spark.core.workers import collect
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.frames import missing_series
from ndcg_spark.history.tasks import HIGH, LOW
from ndcg_spark.metrics import direction_of, parse_metric
from ndcg_spark.reports.contents import Distribution, QueryRow, is_within_1, plain_key, read
from ndcg_spark.reports.settings import ReportLimits

MOST_DATASETS = 100
MOST_MEANS = 20_000
"""Runs times metrics times cutoffs of a night."""
BINS = 20
MOST_EXACT = 1_000_000
"""Queries of a run up to which quartiles are exact; of more, they come from a sketch."""
_SKETCH = 10_000
"""Accuracy of the sketch: ranks are off by at most 1 / 10,000 of the queries."""
_NEEDED = {"run": "string", "segment_by": "string", "segment": "string", "metric": "string", "k": "int",
           "value": "double"}  # fmt: skip
_OPTIONAL = {
    **dict.fromkeys(("n_queries", "n_no_relevant", "n_missing", "n_unjudged", "n_rows", "n_left_out"), "bigint"),
    **dict.fromkeys(("n_rejected", "n_lost_queries", "n_unjudged_items", "n_top_items"), "bigint"),
    **dict.fromkeys(("weight_sum", "std_error", "ci_low", "ci_high"), "double"),
    **dict.fromkeys(("dataset", "convention", "config_hash", "rules", "input", "package_version"), "string"),
    "run_date": "date",
    "computed_at": "timestamp",
    "flagged": "boolean",
    "note": "string",
}
_COMPARED = {"run": "string", "baseline": "string", "segment_by": "string", "segment": "string",
             "metric": "string", "k": "int", "difference": "double"}  # fmt: skip
_COMPARED_OPTIONAL = {
    RULES: "string",
    **dict.fromkeys(("n_queries", "n_wins", "n_ties", "n_losses"), "bigint"),
    **dict.fromkeys(("value", "baseline_value", "ci_low", "ci_high", "lift", "p_value", "p_holm"), "double"),
    **dict.fromkeys(("verdict", "note", "dataset", "period"), "string"),
    **dict.fromkeys(("run_date", "period_start", "period_end"), "date"),
    TOP_ITEMS: "array<bigint>",
}
_FLAGGED = {"night": "date", "metric": "string", "k": "int", "status": "string"}
_FLAGGED_OPTIONAL = {"dataset": "string", "run": "string", "segment_by": "string", "segment": "string",
                     "z": "double", "limit": "double", "spread": "double", "std_error": "double",
                     "weekday": "string"}  # fmt: skip

OF_CHANGES = ("change", "place", "run", "baseline", "metric", "k", "baseline_value", "value", "difference", "weight",
              "baseline_list", "list")  # fmt: skip
"""Columns of `changed_queries` beside those that name a query."""

_VALUE, _BEFORE, _PLACE = "__value", "__before", "__place"
"""Columns beside those of queries; users may have any other name."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The data set, night, runs and metric of a report."""

    dataset: str
    run_date: date | None
    runs: tuple[str, ...]
    metric: str
    k: int | None
    limits: ReportLimits = field(default_factory=ReportLimits)

    @property
    def night(self) -> Column:
        return F.lit(self.run_date).cast("date")

    def place(self, row: Mapping[str, Any]) -> int:
        """Place of the run of a row."""
        return self.runs.index(row["run"])

    def of_dataset(self) -> Column:
        """Condition on the data set; a table may lack it."""
        return F.coalesce("dataset", F.lit(self.dataset)) == self.dataset

    def of_runs(self) -> Column:
        return F.col("run").isin(*self.runs)

    def of_metric(self) -> Column:
        """Condition on the metric and its cutoff."""
        return self.at_k() & (F.col("metric") == self.metric)

    def at_k(self) -> Column:
        return F.col("k").eqNullSafe(F.lit(self.k).cast("int"))


def metric_table(frame: DataFrame) -> DataFrame:
    """Select the columns that reports read, lazily; those that the table lacks are null, `dataset` is then empty."""
    shaped = _shaped(frame, _NEEDED, _OPTIONAL, "metric table")
    return shaped.withColumn("dataset", F.coalesce("dataset", F.lit("")))


def comparison_table(frame: DataFrame) -> DataFrame:
    return _shaped(frame, _COMPARED, _COMPARED_OPTIONAL, "comparison table")


def flag_table(frame: DataFrame) -> DataFrame:
    """Like `metric_table`, for the table of `flag_changes`; where it is stored, its night may be the run_date."""
    if not has_column(frame, "night") and has_column(frame, "run_date"):
        frame = frame.withColumnRenamed("run_date", "night")
    shaped = _shaped(frame, _FLAGGED, _FLAGGED_OPTIONAL, "table of flags")
    return shaped.withColumn("segment_by", F.coalesce("segment_by", F.lit("")))


def _shaped(frame: DataFrame, needed: dict[str, str], optional: dict[str, str], table: str) -> DataFrame:
    for name in needed:
        require_column(frame, name, f"a {table} has it", table)
    return frame.select(
        *[named(name).cast(kind).alias(name) for name, kind in needed.items()],
        *[
            (named(name) if has_column(frame, name) else F.lit(None)).cast(kind).alias(name)
            for name, kind in optional.items()
            if name not in needed
        ],
        *([REFUSAL] if REFUSAL in frame.columns else []),
    )


def datasets_of(metrics: DataFrame) -> Rows:
    """Run an action: name, newest night and number of nights of each data set."""
    newest = [F.max("run_date").alias("newest"), F.count_distinct("run_date").alias("n_nights")]
    newest += [F.min(REFUSAL).alias(REFUSAL)] if REFUSAL in metrics.columns else []
    return _collected(metrics.groupBy("dataset").agg(*newest).orderBy("dataset").limit(MOST_DATASETS + 1))


def means_of_night(metrics: DataFrame, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
    """Run an action: the means over all queries of a night, of `runs` or, if that is empty, of all."""
    its = metrics.where(_of(dataset, night) & (F.col("segment_by") == ""))
    if runs:
        its = its.where(F.col("run").isin(*runs))
    found = _collected(its.withColumn("computed_at", utc_text(F.col("computed_at"))).limit(MOST_MEANS + 1))
    if len(found) > MOST_MEANS:
        raise InputRefusedError(
            f"the night has more than {MOST_MEANS:,} means over all queries; name the runs of the report."
        )
    return found


def _of(dataset: str, night: date | None) -> Column:
    return (F.col("dataset") == dataset) & F.col("run_date").eqNullSafe(F.lit(night).cast("date"))


def nights_of(metrics: DataFrame, scope: Scope) -> Rows:
    """Run an action: the metric over all queries, of a night and of earlier ones, the newest."""
    its = metrics.where(scope.of_dataset() & (F.col("segment_by") == "") & scope.of_metric() & scope.of_runs())
    until = F.col("run_date").isNull() if scope.run_date is None else F.col("run_date") <= scope.night
    newest = its.where(until).orderBy(F.desc("run_date"), "run").limit(scope.limits.nights * len(scope.runs))
    kept = [*_NEEDED, "n_queries", "std_error", "ci_low", "ci_high", "config_hash", "convention", "rules", "run_date"]
    kept += ["n_rows", "n_left_out", "n_rejected"]
    return _collected(newest.select(*kept, "flagged", "note"))


def segments_of(metrics: DataFrame, scope: Scope, before: date | None) -> tuple[Rows, int]:
    """Run one or two actions: the segments with the most queries of a night, and the number of all segments.

    Columns of the night `before` are `before_...`. Spark cost: one shuffle of the segments of two nights.
    """
    most, now = scope.limits.segments, _of(scope.dataset, scope.run_date)
    either = now if before is None else now | _of(scope.dataset, before)
    its = metrics.where(either & (F.col("segment_by") != "") & scope.of_metric() & scope.of_runs())
    aggregates = []
    for name in ("value", "std_error", "ci_low", "ci_high", "n_queries", "weight_sum"):
        aggregates.append(F.max(F.when(now, F.col(name))).alias(name))
        aggregates.append(F.max(F.when(~now, F.col(name))).alias(f"before_{name}"))
    aggregates.append(F.max(now).alias("is_there"))
    grouped = its.groupBy("run", "segment_by", "segment", "metric", "k").agg(*aggregates).where("is_there")
    found = _collected(grouped.orderBy(F.desc("n_queries"), "run", "segment_by", "segment").limit(most + 1))
    return found[:most], (grouped.count() if len(found) > most else len(found))


def absent_of(metrics: DataFrame, scope: Scope, runs: Sequence[str]) -> tuple[Rows, Rows, int]:
    """Run one or two actions: runs, and segments of the runs of the report, that only have values on earlier nights.

    Rows are those of `missing_series`, the most queries first; the number is of all such segments. Only `runs`, if
    there are any, are looked for.
    """
    if scope.run_date is None:
        return [], [], 0
    most = scope.limits.segments
    found = missing_series(metrics.where(scope.of_dataset() & scope.of_metric()), scope.run_date)
    here, is_run = scope.of_runs(), F.col("segment_by") == ""
    other = is_run & ~here & (F.col("run").isin(*runs) if runs else F.lit(True))
    kept = found.where(other | (~is_run & here))
    ordered = kept.orderBy(is_run.desc(), F.desc_nulls_last("last_queries"), "run", "segment_by", "segment")
    rows = _collected(ordered.limit(most + 1))
    segments = [row for row in rows if row["segment_by"]]
    n_segments = len(segments) if len(rows) <= most else kept.where(~is_run).count()
    return [row for row in rows if not row["segment_by"]], segments[:most], n_segments


def last_seen(metrics: DataFrame, dataset: str, night: date | None, runs: Sequence[str]) -> dict[str, date]:
    """Run an action if there are `runs`: the last night before a night of each; left out if there is none."""
    if not runs or night is None:
        return {}
    earlier = (F.col("dataset") == dataset) & (F.col("run_date") < F.lit(night)) & F.col("run").isin(*runs)
    found = metrics.where(earlier).groupBy("run").agg(F.max("run_date").alias("last"))
    return {row["run"]: row["last"] for row in _collected(found)}


def flags_of(flags: DataFrame, scope: Scope) -> Rows:
    """Run an action: the flagged nights of a metric over all queries."""
    its = _of_report(flags, scope).where(_is_flag() & (F.col("segment_by") == ""))
    return _collected(its.orderBy(F.desc("night"), "run").limit(scope.limits.nights * len(scope.runs)))


def _is_flag() -> Column:
    return F.col("status").isin(LOW, HIGH)


def _of_report(flags: DataFrame, scope: Scope) -> DataFrame:
    return flags.where(scope.of_metric() & scope.of_dataset() & (F.col("run").isNull() | scope.of_runs()))


def segment_flags_of(flags: DataFrame, scope: Scope) -> tuple[Rows, dict[str, Any]]:
    """Run two actions: the segments that are flagged on the night, the farthest from usual first, and counts.

    Counts: `now` and `before`, flags of the night and of earlier ones; `judged`, series of the night; `last`, a
    night.
    """
    its, night = _of_report(flags, scope), scope.night
    tonight, flagged = F.col("night").eqNullSafe(night), _is_flag() & (F.col("segment_by") != "")
    counts = its.agg(
        F.count_if(flagged & tonight).alias("now"),
        F.count_if(flagged & (F.col("night") < night)).alias("before"),
        F.count_if(tonight).alias("judged"),
        F.max(F.when(F.col("night") <= night, F.col("night"))).alias("last"),
    ).collect()[0]
    farthest = its.where(flagged & tonight).orderBy(F.desc_nulls_last(F.abs("z")), "run", "segment_by", "segment")
    return (_collected(farthest.limit(scope.limits.segments)) if counts["now"] else []), counts.asDict()


def comparisons_of(comparison: DataFrame, scope: Scope) -> tuple[Rows, bool, date | None]:
    """Run an action, two if there are none: comparisons of the metric, overall ones first, then by queries.

    Returns rows, whether there are more, and, without rows, the last night before that has some. Several periods, or
    no rows of this and earlier nights, are refused.
    """
    its = comparison.where(scope.of_metric() & scope.of_runs() & scope.of_dataset())
    of_metric, night, most = its, scope.night, scope.limits.comparisons
    if scope.run_date is not None:
        ends = F.when(F.col("period") == "rolling_7", F.col("period_end") == night)
        holds = ends.otherwise((F.col("period_start") <= night) & (F.col("period_end") >= night))
        of_night = F.coalesce("run_date", night) == night
        its = its.where(F.when(F.col("period").isNotNull(), holds).otherwise(of_night))
    overall_first = F.when(F.col("segment_by") == "", 0).otherwise(1)
    ordered = its.orderBy(overall_first, F.desc("n_queries"), "run", "baseline", "segment_by", "segment")
    found = _collected(ordered.limit(most + 1))
    if not found:
        earlier = of_metric.where(F.col("period").isNull() & (F.col("run_date") < night))
        last: date | None = earlier.agg(F.max("run_date")).collect()[0][0]
        if last is None:
            raise InputRefusedError(f"the comparison table has no rows of {_described(scope)}.")
        return [], False, last
    periods = sorted({str(row["period"]) for row in found})
    if len(periods) > 1:
        raise InputRefusedError(
            f"the comparison table has several periods ({', '.join(periods)}); choose one by a query, such as "
            f"SELECT * FROM ... WHERE period = '{periods[0]}'."
        )
    return found[:most], len(found) > most, None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTable:
    """A per-query table, its key columns, and the column of the metric."""

    frame: DataFrame
    keys: tuple[str, ...]
    value: str

    @property
    def has_nights(self) -> bool:
        return has_column(self.frame, "run_date")

    def rows(self, scope: Scope, night: date | None, runs: Iterable[str]) -> DataFrame:
        """Queries of a night and of some runs at the cutoff; lazy."""
        its = self.frame.where(scope.at_k() & F.col("run").isin(*runs))
        if has_column(self.frame, "dataset"):
            its = its.where(F.col("dataset") == scope.dataset)
        if self.has_nights:
            its = its.where(F.col("run_date").eqNullSafe(F.lit(night).cast("date")))
        kept = [name for name in ("status", "n_items", "n_relevant", RULES) if has_column(self.frame, name)]
        return its.select("run", *columns_of(self.keys), named(self.value).cast("double").alias(_VALUE), *kept)


def query_table(frame: DataFrame, metric: str) -> QueryTable:
    """Find the metric and the query columns, between `run` and `k`, by the schema of a per-query table."""
    names = frame.columns
    for name in ("run", "k"):
        require_column(frame, name, "a per-query table has it", "per-query table")
    column = parse_metric(metric)[0].column
    keys = tuple(names[names.index("run") + 1 : names.index("k")])
    if not keys:
        raise MissingColumnError(
            "the per-query table has no columns between 'run' and 'k' that name a query; Spark sorts the columns of "
            f"json. A query puts them there: SELECT run, query_id, k, {column}, ... FROM json.`...`."
        )
    require_column(frame, column, f"metric {metric}", "per-query table")
    return QueryTable(frame=frame, keys=keys, value=column)


def rules_of_queries(table: QueryTable, scope: Scope, night: date | None) -> dict[str, list[str]]:
    """Run an action: the rules by which queries of each run were computed; empty for a table that does not say."""
    if not has_column(table.frame, RULES):
        return {}
    rows = table.rows(scope, night, scope.runs).groupBy("run").agg(F.collect_set(RULES).alias(RULES))
    return {row["run"]: row[RULES] for row in _collected(rows)}


def distributions_of(table: QueryTable, scope: Scope, *, most_exact: int = MOST_EXACT) -> list[Distribution]:
    """Run two actions, three if the metric has no known range: count the queries of each run in `BINS`.

    Quartiles are exact up to `most_exact` queries of a run.
    """
    its = table.rows(scope, scope.run_date, scope.runs)
    low, high = 0.0, 1.0
    if not is_within_1(scope.metric):
        ((low, high),) = its.agg(F.min(_VALUE), F.max(_VALUE)).collect()
        low, high = (low or 0.0), (high or 0.0)
        high = high if high > low else low + 1.0
    value = F.col(_VALUE)
    at = F.least(F.floor((value - low) / (high - low) * BINS), F.lit(BINS - 1))
    inside = (value >= low) & (value <= high)
    counted = its.groupBy("run").agg(
        F.array(*[F.count_if(inside & (at == one)) for one in range(BINS)]).alias("bins"),
        F.count_if(value < low).alias("n_below"),
        F.count_if(value > high).alias("n_above"),
        F.count_if(value.isNull()).alias("n_undefined"),
        F.count_if(value == low).alias("n_lowest"),
        F.count_if(value == high).alias("n_highest"),
        F.percentile_approx(_VALUE, [0.25, 0.5, 0.75], _SKETCH).alias("estimated"),
    )
    found = sorted(_collected(counted), key=scope.place)
    if not found:
        raise InputRefusedError(f"the per-query table has no rows of {_described(scope)}.")
    n_values = {row["run"]: sum(row["bins"]) + row["n_below"] + row["n_above"] for row in found}
    exact = _quartiles(its, {run: n for run, n in n_values.items() if 0 < n <= most_exact})
    return [
        read(
            Distribution,
            row,
            low=low,
            high=high,
            counts=tuple(row["bins"]),
            quartiles=exact.get(row["run"], tuple(row["estimated"] or (None, None, None))),
            quartile_error=1 / _SKETCH if n_values[row["run"]] > most_exact else 0.0,
        )
        for row in found
    ]


def _quartiles(rows: DataFrame, n_values: Mapping[str, int]) -> dict[str, tuple[float | None, ...]]:
    """Run an action: the quartiles of runs whose numbers of values are known, interpolated as by NumPy.

    A sort spills where Spark's `percentile` would hold all values of all runs in memory.
    """
    ends = {run: [divmod(quarter * (n - 1), 4) for quarter in (1, 2, 3)] for run, n in n_values.items()}
    wanted = F.lit(False)
    for run, its in ends.items():
        places = sorted({at + beyond + 1 for at, rest in its for beyond in (0, min(rest, 1))})
        wanted = wanted | ((F.col("run") == run) & F.col(_PLACE).isin(places))
    if not ends:
        return {}
    by_value = Window.partitionBy("run").orderBy(_VALUE)
    placed = rows.where(F.col(_VALUE).isNotNull()).select("run", _VALUE, F.row_number().over(by_value).alias(_PLACE))
    values = {(row["run"], row[_PLACE]): float(row[_VALUE]) for row in _collected(placed.where(wanted))}

    def between(run: str, at: int, rest: int) -> float | None:
        low, high = values.get((run, at + 1)), values.get((run, at + 1 + min(rest, 1)))
        return None if low is None or high is None else low + (high - low) * rest / 4

    return {run: tuple(between(run, *one) for one in its) for run, its in ends.items()}


def lowest_queries(table: QueryTable, scope: Scope) -> tuple[QueryRow, ...]:
    """Run an action: the worst queries of each run; of equal ones those with most relevant items first.

    Queries without a relevant item are left out where the table has their number: no ranking can do better.
    """
    its = table.rows(scope, scope.run_date, scope.runs).where(F.col(_VALUE).isNotNull())
    relevant = []
    if "n_relevant" in its.columns:
        its, relevant = its.where(F.coalesce("n_relevant", F.lit(1)) > 0), [F.desc("n_relevant")]
    worst = F.desc(_VALUE) if direction_of(scope.metric) is False else F.asc(_VALUE)
    return _first_of_each_run(table, scope, its, [worst, *relevant])


def largest_losses(
    table: QueryTable, scope: Scope, *, before: date | None, baseline: str | None
) -> tuple[QueryRow, ...]:
    """Run an action: the queries whose value got worse the most, since the night `before` or against a baseline.

    Where neither direction is better, those that changed the most. Spark cost: one shuffle of the queries, twice
    over.
    """
    its = table.rows(scope, scope.run_date, [run for run in scope.runs if run != baseline])
    if baseline is None:
        other = table.rows(scope, before, scope.runs)
        on = ["run", *table.keys]
    else:
        other = table.rows(scope, scope.run_date, [baseline])
        on = list(table.keys)
    joined = its.join(other.select(*columns_of(on), F.col(_VALUE).alias(_BEFORE)), on)
    fall, larger_is_better = F.col(_BEFORE) - F.col(_VALUE), direction_of(scope.metric)
    loss = F.abs(fall) if larger_is_better is None else fall if larger_is_better else -fall
    return _first_of_each_run(table, scope, joined.where(loss > 0), [loss.desc()])


def _first_of_each_run(table: QueryTable, scope: Scope, rows: DataFrame, order: list[Column]) -> tuple[QueryRow, ...]:
    place = F.row_number().over(Window.partitionBy("run").orderBy(*order, *columns_of(table.keys)))
    first = rows.withColumn(_PLACE, place).where(F.col(_PLACE) <= scope.limits.queries).orderBy("run", _PLACE)
    return tuple(
        read(
            QueryRow, row, query=plain_key(row[key] for key in table.keys), value=row[_VALUE], before=row.get(_BEFORE)
        )
        for row in sorted(_collected(first), key=scope.place)
    )


def changes_of(changed: DataFrame | Iterable[Mapping[str, Any]], most: int) -> Rows:
    """Choose up to `most` rows of `changed_queries` of each kind, the largest first; an action for a DataFrame."""
    if isinstance(changed, DataFrame):
        for name in OF_CHANGES:
            require_column(changed, name, "changed_queries has it", "table of changed queries")
        rows = [row.asDict(recursive=True) for row in changed.orderBy("place", "change").limit(2 * most).collect()]
    else:
        rows = [dict(row) for row in changed]
    missing = sorted({name for row in rows for name in OF_CHANGES if name not in row})
    if missing:
        raise InvalidParameterError(
            f"the changed queries are no rows of changed_queries: they lack {', '.join(missing)}."
        )
    found = []
    for change in ("lost", "gained", "lower", "higher"):
        found += sorted((row for row in rows if row["change"] == change), key=lambda row: int(row["place"]))[:most]
    return found


def _described(scope: Scope) -> str:
    night = "" if scope.run_date is None else f" on {scope.run_date.isoformat()}"
    runs = ", ".join(repr(run) for run in scope.runs)
    return f"{metric_at(scope.metric, scope.k)}, data set {scope.dataset!r}, run {runs}{night}"


def _collected(rows: DataFrame) -> Rows:
    return [row.asDict() for row in collect(rows)]
