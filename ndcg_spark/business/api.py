"""Metrics beside clicks and conversions."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame

from ndcg_spark.business.frames import linked_rates
from ndcg_spark.business.settings import LinkSettings
from ndcg_spark.core.flag import settings_from
from ndcg_spark.core.given import takes_tables


@takes_tables
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
    start, as_of, min_impressions, max_lag, confidence, window, window_days, min_change, noise_limit, max_flat, \
    across_rules
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
    return linked_rates(metrics, clicks, settings_from(LinkSettings, dict(locals())))
