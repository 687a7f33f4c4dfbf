"""Join nights of a metric table with clicks and conversions of the same nights and segments."""

from __future__ import annotations

from datetime import date
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.business.settings import LinkSettings
from ndcg_spark.business.tasks import LINK_COLUMNS, link_rates
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.columns import exact_cols, format_query_key, has_column, number_column, raise_if, require_column
from ndcg_spark.core.flag import create_settings
from ndcg_spark.core.workers import in_workers
from ndcg_spark.evaluation.frames.summary import read_rules
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.frames import (
    days_since_epoch,
    is_between,
    night_column,
    read_config_hash,
    segment_column,
    select_series_rows,
)
from ndcg_spark.history.settings import METRIC_TABLE, NIGHT
from ndcg_spark.history.tasks.judging import SERIES

CLICKS = "clicks"
COUNTS = ("impressions", "clicks", "conversions")
_PLACE = ("segment_by", "segment")
_MAX_COUNT = 2.0**53


def link_metric(metrics: DataFrame, clicks: DataFrame, settings: LinkSettings) -> DataFrame:
    """Link a metric with clicks as described in `business_link`. Lazy."""
    nights, counts = _collect_metric_nights(metrics, settings), _collect_click_nights(clicks, settings)
    rows = _join(nights, counts, "left").select(*SERIES, "nights", "clicks")
    schema = ", ".join(f"{column} {kind}" for column, kind in LINK_COLUMNS.items())
    return in_workers(rows, link_rates, settings, schema=schema)


def find_unmatched_clicks(metrics: DataFrame, clicks: DataFrame, settings: LinkSettings) -> DataFrame:
    """Find the segments (and runs, if the clicks have them) that no series of the metric table has; lazy."""
    counts = _collect_click_nights(clicks, settings).drop("clicks")
    return _join(counts, _collect_metric_nights(metrics, settings).select(*counts.columns), "left_anti")


def _join(rows: DataFrame, others: DataFrame, how: str) -> DataFrame:
    """Join by all keys of `others`, with null equal to null; its keys are renamed."""
    keys = [column for column in others.columns if column != "clicks"]
    renamed = others.withColumnsRenamed({column: f"its_{column}" for column in keys})
    return rows.join(
        renamed, reduce(and_, (F.col(column).eqNullSafe(F.col(f"its_{column}")) for column in keys)), how
    )


def _collect_metric_nights(metrics: DataFrame, settings: LinkSettings) -> DataFrame:
    """Collect the nights of each series in a list."""
    rows = select_series_rows(metrics)
    value = number_column(rows, "value", "column of a metric table", METRIC_TABLE)
    config = read_config_hash(rows).alias("config_hash")
    rules = read_rules(rows).alias(RULES)
    night = F.struct(days_since_epoch(F.col(NIGHT)).alias("day"), value.alias("value"), config, rules)
    inside = rows.where(is_between(F.col(NIGHT), settings.start, settings.as_of))
    return inside.groupBy(*SERIES).agg(F.collect_list(night).alias("nights"))


def _collect_click_nights(clicks: DataFrame, settings: LinkSettings) -> DataFrame:
    """Collect the nights of each segment, with their counts, in a list."""
    for column in _PLACE:
        require_column(clicks, column, "column of the clicks", CLICKS)
    by = F.coalesce(F.col("segment_by").cast("string"), F.lit(""))
    keys = {"segment_by": by, "segment": segment_column(by)}
    if has_column(clicks, "run"):
        keys["run"] = F.coalesce(F.col("run").cast("string"), F.lit(""))
    night = night_column(clicks, CLICKS)
    counts = [_read_count(clicks, count).alias(count) for count in COUNTS]
    selected = [
        night.alias(NIGHT),
        *[expression.alias(key) for key, expression in keys.items()],
        *exact_cols(["run_date", *COUNTS]),
    ]
    # Counts are read after this filter, so that bad rows of other nights are ignored.
    rows = clicks.select(*selected).where(is_between(F.col(NIGHT), settings.start, settings.as_of))
    counted = rows.select(*exact_cols([*keys, NIGHT]), *counts)
    nightly = counted.groupBy(*keys, NIGHT).agg(*[F.sum(count).alias(count) for count in COUNTS])
    night_counts = F.struct(days_since_epoch(F.col(NIGHT)).alias("day"), *COUNTS)
    return nightly.groupBy(*keys).agg(F.collect_list(night_counts).alias("clicks"))


def _read_count(clicks: DataFrame, column: str) -> Column:
    """Read a count as bigint; the action raises if it is not a whole number of at least 0."""
    value = number_column(clicks, column, "column of the clicks", CLICKS)
    good = (value >= 0) & (value <= _MAX_COUNT) & (value == F.rint(value))
    text = F.coalesce(F.col(column).cast("string"), F.lit("null"))
    location = format_query_key(["run_date", *_PLACE], {})
    rule = f"bad row of the clicks: {column} must be a whole number of at least 0; got "
    message = (rule, text, " at ", location, ".")
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
    """Compare a metric with click-through and conversion, night by night and for each segment.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set: `run_date`, `run`, `segment_by`, `segment`, `metric`, `k`, `value`,
        and `rules` and `config_hash` if they exist.
    clicks : DataFrame
        `run_date`, `segment_by`, `segment` as in the metric table, and the counts `impressions`, `clicks` and
        `conversions`. Several rows per night and segment are added up. With a column `run`, the rows count for that
        run only.
    start, as_of, min_impressions, max_lag, confidence, window, window_days
        As in `LinkSettings`.
    min_change, noise_limit, max_flat, across_rules
        As in `LinkSettings`.

    Returns
    -------
    DataFrame
        One row per run, segment, metric, k and `rate`, lazy and unsorted. `rate` is `ctr` (clicks / impressions) or
        `cvr` (conversions / clicks). The other columns:

        - `config_hash` of the metric, null if it differs between nights; `rules` of its nights, null if unknown,
        - `n_nights`: nights that are compared; `first_night`, `last_night`,
        - nights left out, each counted once: `n_no_clicks`, `n_no_metric` (the other table lacks them), `n_no_value`
          (no query has a value), `n_few_impressions`, `n_zero` (the rate would divide by 0),
        - `pearson`, `spearman`, each with `_low` and `_high`: correlation and interval; null for a constant series,
          the interval also for fewer than 4 nights,
        - `n_changes`, `change_pearson`, `change_spearman`, with `_low` and `_high`: the same of changes from one
          night to the next,
        - `lags`: array of struct<lag, n, pearson, low, high>: the metric of night t and the rate of night t + lag,
        - `metric_change`, `rate_change`, each with `_error`: relative change from the window `before_from` ..
          `before_to` to the window `window_from` .. `window_to`, and its standard error,
        - `alarm`: `metric_up_ctr_down` in rows of `ctr`, or `metric_down_ctr_down` for a metric where smaller is
          better; `metric_flat_cvr_up` in rows of `cvr`; null without an alarm,
        - `note`: why no alarm is possible: `not_enough_nights`, `mean_of_zero` (the windows cannot be compared), or,
          in rows of `ctr`, `no_direction` (neither larger nor smaller is better, or the metric is unknown).

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a night that a series has twice, for a series of different `rules`, and for counts that
        are null, negative or not whole numbers.

    Notes
    -----
    Spark cost: two shuffles of rows per night and a join of rows per segment; no action; one pass through Python
    workers. A worker holds the nights of the series in its batch.

    References
    ----------
    Intervals: Fisher 1921; Bonett and Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.
    """
    return link_metric(metrics, clicks, create_settings(LinkSettings, dict(locals())))
