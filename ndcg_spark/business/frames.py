"""Nights of a metric table beside clicks and conversions of the same nights and segments."""

from __future__ import annotations

from datetime import date
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.business.settings import LinkSettings
from ndcg_spark.business.tasks import LINK_COLUMNS, link_rates
from ndcg_spark.core.columns import exact_cols, format_query_key, has_column, number_column, raise_if, require_column
from ndcg_spark.core.flag import create_settings
from ndcg_spark.core.given import accepts_tables
from ndcg_spark.core.workers import in_workers
from ndcg_spark.evaluation.frames.summary import read_rules
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.frames import (
    METRIC_TABLE,
    NIGHT,
    between,
    config_hash,
    day_of,
    night_column,
    segment_column,
    series_rows,
)
from ndcg_spark.history.tasks import SERIES

CLICKS = "clicks"
COUNTS = ("impressions", "clicks", "conversions")
_PLACE = ("segment_by", "segment")
_LARGEST = 2.0**53


def linked_rates(metrics: DataFrame, clicks: DataFrame, settings: LinkSettings) -> DataFrame:
    """Hold a metric against clicks, as `business_link` describes it. Lazy."""
    nights, counts = _metric_nights(metrics, settings), _click_nights(clicks, settings)
    rows = _join(nights, counts, "left").select(*SERIES, "nights", "clicks")
    schema = ", ".join(f"{name} {kind}" for name, kind in LINK_COLUMNS.items())
    return in_workers(rows, link_rates, settings, schema=schema)


def unmatched_clicks(metrics: DataFrame, clicks: DataFrame, settings: LinkSettings) -> DataFrame:
    """Find the segments of the clicks, and runs if they have any, that no series of the metric table has; lazy."""
    counts = _click_nights(clicks, settings).drop("clicks")
    return _join(counts, _metric_nights(metrics, settings).select(*counts.columns), "left_anti")


def _join(rows: DataFrame, others: DataFrame, how: str) -> DataFrame:
    """Join by the keys that both have, where null equals null; those of the others get other names."""
    keys = [name for name in others.columns if name != "clicks"]
    renamed = others.withColumnsRenamed({name: f"its_{name}" for name in keys})
    return rows.join(renamed, reduce(and_, (F.col(name).eqNullSafe(F.col(f"its_{name}")) for name in keys)), how)


def _metric_nights(metrics: DataFrame, settings: LinkSettings) -> DataFrame:
    """One row per series, with the list of its nights."""
    rows = series_rows(metrics)
    value = number_column(rows, "value", "column of a metric table", METRIC_TABLE)
    config = config_hash(rows).alias("config_hash")
    rules = read_rules(rows).alias(RULES)
    night = F.struct(day_of(F.col(NIGHT)).alias("day"), value.alias("value"), config, rules)
    inside = rows.where(between(F.col(NIGHT), settings.start, settings.as_of))
    return inside.groupBy(*SERIES).agg(F.collect_list(night).alias("nights"))


def _click_nights(clicks: DataFrame, settings: LinkSettings) -> DataFrame:
    """One row per segment, with the list of its nights and their counts."""
    for name in _PLACE:
        require_column(clicks, name, "column of the clicks", CLICKS)
    by = F.coalesce(F.col("segment_by").cast("string"), F.lit(""))
    keys = {"segment_by": by, "segment": segment_column(by)}
    if has_column(clicks, "run"):
        keys["run"] = F.coalesce(F.col("run").cast("string"), F.lit(""))
    night = night_column(clicks, CLICKS)
    counts = [_count(clicks, name).alias(name) for name in COUNTS]
    given = [
        night.alias(NIGHT),
        *[column.alias(name) for name, column in keys.items()],
        *exact_cols(["run_date", *COUNTS]),
    ]
    rows = clicks.select(*given).where(
        between(F.col(NIGHT), settings.start, settings.as_of)
    )  # bad rows elsewhere do no harm
    counted = rows.select(*exact_cols([*keys, NIGHT]), *counts)
    nightly = counted.groupBy(*keys, NIGHT).agg(*[F.sum(name).alias(name) for name in COUNTS])
    one = F.struct(day_of(F.col(NIGHT)).alias("day"), *COUNTS)
    return nightly.groupBy(*keys).agg(F.collect_list(one).alias("clicks"))


def _count(clicks: DataFrame, name: str) -> Column:
    """A count as bigint; the action raises where it is none."""
    value = number_column(clicks, name, "column of the clicks", CLICKS)
    good = (value >= 0) & (value <= _LARGEST) & (value == F.rint(value))
    text = F.coalesce(F.col(name).cast("string"), F.lit("null"))
    where = format_query_key(["run_date", *_PLACE], {})
    message = (f"bad row of the clicks: {name} must be a whole number of at least 0; got ", text, " at ", where, ".")
    whole = F.when(good, value).cast("bigint")
    return raise_if(whole, ~F.coalesce(good, F.lit(False)), *message, kind="bigint")


@accepts_tables
def business_link(
    metrics: DataFrame,
    clicks: DataFrame,
    *,
    start: date | None = None,
    as_of: date | None = None,
    min_impressions: int = 1000,
    max_lag: int = 7,
    confidence: float = 0.95,
    window: int = 7,
    window_days: int = 28,
    min_change: float = 0.01,
    noise_limit: float = 2.447,
    max_flat: float = 0.02,
    across_rules: bool = False,
) -> DataFrame:
    """Hold a metric against click-through and conversion: night by night, for each segment.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set: `run_date`, `run`, `segment_by`, `segment`, `metric`, `k`, `value`,
        and `rules` and `config_hash`, if they are there.
    clicks : DataFrame
        `run_date`, `segment_by`, `segment` as in the metric table, and the counts `impressions`, `clicks` and
        `conversions`, in any number of rows per night and segment, which are added up. With a column `run` the rows
        count for that run only.
    start, as_of, min_impressions, max_lag, confidence, window, window_days
        As in `LinkSettings`.
    min_change, noise_limit, max_flat, across_rules
        As in `LinkSettings`.

    Returns
    -------
    DataFrame
        One row per run, segment, metric, k and `rate`, lazy and unsorted. `rate` is `ctr` (clicks / impressions) or
        `cvr` (conversions / clicks). The other columns:

        - `config_hash` of the metric, null if its nights differ in it; `rules` of its nights, null if not known,
        - `n_nights`: nights that both tables have and that count; `first_night`, `last_night`,
        - nights left out, each counted once: `n_no_clicks`, `n_no_metric` (the other table lacks them), `n_no_value`
          (the mean of no query), `n_few_impressions`, `n_zero` (the rate would divide by 0),
        - `pearson`, `spearman`, each with `_low` and `_high`: correlation and interval; null for a constant series,
          the interval also for fewer than 4 nights,
        - `n_changes`, `change_pearson`, `change_spearman`, with `_low` and `_high`: the same of changes from one
          night to the next,
        - `lags`: array of struct<lag, n, pearson, low, high>: the metric of night t and the rate of night t + lag,
        - `metric_change`, `rate_change`, each with `_error`: relative change from the window `before_from` ..
          `before_to` to the window `window_from` .. `window_to`, and its standard error,
        - `alarm`: `metric_up_ctr_down` in rows of `ctr`, or `metric_down_ctr_down` for a metric of which smaller is
          better; `metric_flat_cvr_up` in rows of `cvr`; null for none,
        - `note`: why there can be no alarm: `not_enough_nights`, `mean_of_zero` (the windows cannot be compared), or,
          in rows of `ctr`, `no_direction` (neither more nor less of the metric is better, or its name is unknown).

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a night that a series has twice, for a series of different `rules`, and for counts that
        are null, negative or no whole numbers.

    Notes
    -----
    Spark cost: two shuffles of rows per night and a join of rows per segment; no action; one pass through Python
    workers. A worker holds the nights of the series in its batch.

    References
    ----------
    Intervals: Fisher 1921; Bonett and Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.
    """
    return linked_rates(metrics, clicks, create_settings(LinkSettings, dict(locals())))
