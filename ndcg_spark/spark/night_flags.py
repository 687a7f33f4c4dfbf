"""Nights of a metric table held against the history of the same table."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.nightly_plans import FlagPlan
from ndcg_spark.spark.expressions import number
from ndcg_spark.spark.nights import METRIC_TABLE, NIGHT, between, config_hash, day_of, series_rows
from ndcg_spark.spark.streams import refuses_streams
from ndcg_spark.worker.history.night_flags import FLAG_COLUMNS, make_flagger
from ndcg_spark.worker.history.nights import SERIES


@refuses_streams
def flag_changes(metrics: DataFrame, plan: FlagPlan | None = None, *, parse_text: bool = False) -> DataFrame:
    """Flag nights whose value is far from what was usual on earlier nights of the same weekday.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set: `run_date`, `run`, `segment_by`, `segment`, `metric`, `k`, `value`,
        and `std_error` and `config_hash`, if they are there. Nights of another `config_hash` are no history.
    plan : FlagPlan or None
        None is `FlagPlan()`: all nights are judged, each by the nights before it.
    parse_text : bool
        Whether numbers may be text.

    Returns
    -------
    DataFrame
        One row per night that is judged and series, lazy and unsorted: `night`, the keys, `config_hash`, `value`,
        `std_error`, and

        - `status` (string): `low`, `high`: flagged; `usual`; `short_history`: too few earlier nights, and no clear
          difference from the night before; `no_value`,
        - `median`, `spread` (double): of the earlier nights; spread is 1.482602218505602 times their median absolute
          deviation,
        - `z` (double): (value - median) / max(spread, std_error); null where that is 0,
        - `limit` (double): the value is flagged if z is farther from 0,
        - `n_nights` (bigint), `weekday` (string): how many nights, and of which day: `Monday`, ..., or `any`;
          `before`: too few, so that the night was held against the one before it (its value is `median`, the standard
          error of the difference is `spread`),
        - `rule` (string): all that in words.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a night that a series has twice.

    Notes
    -----
    With at least 8 earlier nights of the weekday these are the history; else all earlier nights are, if there are 28;
    else the night is held against the one before it, as of independent nights, at level 0.001.
    Spark cost: one shuffle of rows per night, no action, one pass through Python workers. A worker holds the nights
    of the series in its batch.
    """
    plan = FlagPlan() if plan is None else plan
    rows = series_rows(metrics, parse_text=parse_text)
    night = F.struct(
        day_of(F.col(NIGHT)).alias("day"),
        *[_number(rows, name, parse_text=parse_text).alias(name) for name in ("value", "std_error")],
        config_hash(rows).alias("config_hash"),
    )
    first = None
    if plan.start is not None and plan.lookback is not None:
        first = plan.start - timedelta(days=plan.lookback)
    inside = rows.where(between(F.col(NIGHT), first, plan.end))
    series = inside.groupBy(*SERIES).agg(F.collect_list(night).alias("nights"))
    schema = ", ".join(f"{name} {kind}" for name, kind in FLAG_COLUMNS.items())
    return series.mapInArrow(make_flagger(plan), schema=schema)


def _number(rows: DataFrame, name: str, *, parse_text: bool) -> Column:
    if name == "std_error" and name not in rows.columns:
        return F.lit(None).cast("double")
    return number(rows, name, "column of a metric table", METRIC_TABLE, parse_text=parse_text)
