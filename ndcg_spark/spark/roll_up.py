"""Nights of a metric table added up to weeks, months and rolling weeks, from their states alone."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.kernels.student import t_quantile
from ndcg_spark.nightly_plans import LONGEST_PERIOD, RollUpPlan
from ndcg_spark.spark.expressions import columns_of, raise_if, require_column
from ndcg_spark.spark.nights import METRIC_TABLE, NIGHT, between, series_rows
from ndcg_spark.spark.summary import (
    CONFIG_HASH,
    CONVENTION,
    SUMMARY_SCHEMA,
    configurations,
    of_one_configuration,
)
from ndcg_spark.worker.history.nights import SERIES
from ndcg_spark.worker.partial_sums import COUNTS, make_finisher

PERIOD = ("period", "period_start", "period_end")
ROLL_UP_COLUMNS = {
    "period": "string",
    "period_start": "date",
    "period_end": "date",
    **{one.name: one.dataType.simpleString() for one in SUMMARY_SCHEMA if one.name in SERIES},
    "n_days": "bigint",
    "missing_days": "array<date>",
    CONVENTION: "string",
    CONFIG_HASH: "string",
    "independence": "string",
    **{one.name: one.dataType.simpleString() for one in SUMMARY_SCHEMA if one.name not in SERIES},
}
"""Columns of the result and their types."""


def roll_up(metrics: DataFrame, plan: RollUpPlan | None = None) -> DataFrame:
    """Add the nights of a metric table up to ISO weeks, months and rolling seven days.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set, with their `state`.
    plan : RollUpPlan or None
        None is `RollUpPlan()`: all periods of all nights.

    Returns
    -------
    DataFrame
        One row per period, run, segment, metric and k, lazy and unsorted:

        - `period` (`week`, `month`, `rolling_7`), `period_start`, `period_end` (date; both in the period),
        - the keys, counts, means and `state` of a summary (see `summarize`), the same bits as of one evaluation of
          all queries of these days,
        - `n_days` (bigint): days of the period that have a row,
        - `missing_days` (array of date): days up to the last night of the table that have none,
        - `convention`, `config_hash` (string) of all these nights; null if the table lacks them,
        - `independence` (string): what the interval assumes.

    Raises
    ------
    MissingColumnError, MissingPackageError
        The latter where `independence=day` and there is no SciPy. The action raises for nights of two `config_hash`
        in one period, and names both; and for a night that a period has twice.

    Notes
    -----
    Queries weigh, not days. Spark cost: one small shuffle (nine rows per row of the table), no action, one pass
    through Python workers; without `as_of` the dates are read once more.
    """
    plan = RollUpPlan() if plan is None else plan
    quantiles = None
    if plan.independence == "day":
        quantiles = [t_quantile((1 + plan.confidence) / 2, days - 1) for days in range(2, LONGEST_PERIOD + 1)]
    for name in (*COUNTS, "state"):
        require_column(metrics, name, "column of a metric table", METRIC_TABLE)
    rows = _in_periods(_known(series_rows(metrics), plan), plan)
    keys = [*PERIOD, *SERIES]
    until = F.least("period_end", F.max("as_of"))
    days = F.sort_array(F.collect_set(NIGHT))
    aggregates = [F.sum(name).alias(name) for name in COUNTS]
    aggregates += [F.collect_list("state").alias("states"), F.count(F.lit(1)).alias("n_days")]
    aggregates += [days.alias("days"), F.sequence("period_start", until).alias("all_days")]
    aggregates += [F.min(name).alias(name) for name in (CONVENTION, CONFIG_HASH)]
    merged = rows.groupBy(*keys).agg(*aggregates, *configurations(rows, F.concat(F.lit(" on "), _text(NIGHT))))
    checked = of_one_configuration(merged, F.concat("metric", F.lit(" of the "), _period_text()))
    twice = (
        "a night comes twice in the ",
        _period_text(),
        " of ",
        F.col("metric"),
        "; keep the rows of one data set.",
    )
    n_days = raise_if(F.col("n_days"), F.col("n_days") != F.size("days"), *twice, kind="bigint")
    passed = [*columns_of(keys), n_days.alias("n_days"), F.array_except("all_days", "days").alias("missing_days")]
    passed += [F.col(CONVENTION), F.col(CONFIG_HASH), F.lit(plan.independence).alias("independence")]
    finisher = make_finisher(plan.confidence, day_quantiles=quantiles)
    schema = ", ".join(f"{name} {kind}" for name, kind in ROLL_UP_COLUMNS.items())
    return checked.select(*passed, *columns_of([*COUNTS, "states"])).mapInArrow(finisher, schema=schema)


def _known(rows: DataFrame, plan: RollUpPlan) -> DataFrame:
    """Nights that the periods need, with the last night that is known."""
    named = [name for name in (CONVENTION, CONFIG_HASH) if name in rows.columns]
    missing = [F.lit(None).cast("string").alias(name) for name in (CONVENTION, CONFIG_HASH) if name not in named]
    kept = rows.select(NIGHT, *SERIES, *COUNTS, "state", *[F.col(name).cast("string").alias(name) for name in named])
    kept = kept.select("*", *missing)
    if plan.as_of is None:
        last = rows.agg(F.max(NIGHT).alias("as_of"))
        kept = kept.crossJoin(F.broadcast(last))
    else:
        kept = kept.withColumn("as_of", F.lit(plan.as_of)).where(F.col(NIGHT) <= F.col("as_of"))
    return kept.where(between(F.col(NIGHT), *plan.read))


def _in_periods(rows: DataFrame, plan: RollUpPlan) -> DataFrame:
    """A row for each night and period that holds it."""
    night = F.col(NIGHT)
    month = F.trunc(night, "month")
    periods: dict[str, list[tuple[Column, Column]]] = {
        "week": [(F.trunc(night, "week"), F.date_add(F.trunc(night, "week"), 6))],
        "month": [(month, F.last_day(month))],
        "rolling_7": [(F.date_add(night, ahead - 6), F.date_add(night, ahead)) for ahead in range(7)],
    }
    held = [
        F.struct(F.lit(name).alias("period"), start.alias("period_start"), end.alias("period_end"))
        for name in dict.fromkeys(plan.periods)
        for start, end in periods[name]
    ]
    one = F.explode(F.array(*held)).alias("held")
    exploded = rows.select("*", one).select(*columns_of(rows.columns), "held.*")
    over = (F.col("period") != "rolling_7") | (F.col("period_end") <= F.col("as_of"))
    changed = F.lit(True)
    if plan.start is not None:
        changed = changed & (F.col("period_end") >= F.lit(plan.start))
    if plan.end is not None:
        changed = changed & (F.col("period_start") <= F.lit(plan.end))
    return exploded.where(over & changed)


def _text(name: str) -> Column:
    return F.col(name).cast(T.StringType())


def _period_text() -> Column:
    return F.concat("period", F.lit(" from "), _text("period_start"), F.lit(" to "), _text("period_end"))
