"""Many nights of one table: added up, and judged by their history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame

from ndcg_spark.core.flag import settings_from
from ndcg_spark.core.given import takes_tables
from ndcg_spark.history.frames import flagged_nights, rolled_up
from ndcg_spark.history.settings import LIMITS, PERIODS, FlagSettings, Independence, Period, RollUpSettings


@takes_tables
def roll_up(
    metrics: DataFrame,
    *,
    periods: Period | Sequence[Period] = PERIODS,
    start: date | None = None,
    end: date | None = None,
    as_of: date | None = None,
    independence: Independence | None = None,
    confidence: float = 0.95,
    margin: float = 0.0,
    across_rules: bool = False,
) -> DataFrame:
    """Add the nights of a metric table or comparison table up to ISO weeks, months and rolling seven days.

    Parameters
    ----------
    metrics : DataFrame
        Rows of one data set with their `state`: of a metric table, or, with a column `baseline`, of a comparison
        table.
    periods : str or sequence of str
        `week`, `month`, `rolling_7`; default: all three.
    start, end, as_of, independence, confidence, margin, across_rules
        As in `RollUpSettings`; default: all nights.

    Returns
    -------
    DataFrame
        One row per period, run, segment, metric and k, lazy and unsorted:

        - `period` (`week`, `month`, `rolling_7`), `period_start`, `period_end` (date; both in the period),
        - the keys, counts, means and `state` of a summary (see `summarize`), the same bits as of one evaluation of
          all queries of these days,
        - `n_days` (bigint): days of the period that have a row,
        - `missing_days` (array of date): days up to the last night of the table that have none,
        - `convention`, `config_hash` (string) of all these nights; null if the table lacks them or nights differ,
        - `rules` (string) of all these nights; null if those of one are not known,
        - `independence` (string): what the interval assumes.

        Of comparisons: the columns of `compare` without `replicates`; `docs/history.md` says which are null under
        which `independence`. P-values are adjusted within each period and baseline.

    Raises
    ------
    InvalidParameterError
        For `independence=query` of a metric table.
    MissingColumnError, MissingPackageError
        The latter for comparisons or `independence=day` where there is no SciPy. The action raises for nights of
        different `rules` in one period, and names what differs; and for a night that a period has twice.

    Notes
    -----
    Queries weigh, not days. Spark cost: one small shuffle (nine rows per row of the table), no action, one pass
    through Python workers; without `as_of` the dates are read once more. Comparisons: two shuffles, the first of the
    stored replicates (once per night), and two passes.
    """
    given = dict(locals())
    return rolled_up(given.pop("metrics"), settings_from(RollUpSettings, given))


@takes_tables
def flag_changes(
    metrics: DataFrame,
    *,
    per_query: DataFrame | None = None,
    query: str | Sequence[str] = "query_id",
    start: date | None = None,
    end: date | None = None,
    lookback: int | None = None,
    limits: Sequence[tuple[int, float]] = LIMITS,
    fewest_any_day: int = 28,
) -> DataFrame:
    """Flag nights whose value is far from what was usual on earlier nights of the same weekday.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set: `run_date`, `run`, `segment_by`, `segment`, `metric`, `k`, `value`,
        and `std_error`, `rules` and `config_hash`, if they are there. Nights of other `rules` are no history; where
        these are not known, nights of another `config_hash`.
    per_query : DataFrame or None
        Metrics of every query of the same data set, with `run_date`, as `--per-query-output` of `mean-ndcg` stores
        them. A night that is held against the night before it is then compared query by query, where the table has
        both nights of the run, by the same `rules`.
    query : str or sequence of str
        Columns of `per_query` that identify a query.
    start, end, lookback, limits, fewest_any_day
        As in `FlagSettings`; default: all nights are judged, each by the nights before it.

    Returns
    -------
    DataFrame
        One row per night that is judged and series, lazy and unsorted: `night`, the keys, `config_hash`, `value`,
        `std_error`, and

        - `status` (string): `low`, `high`, `missing`: flagged; `usual`; `short_history`: too few earlier nights, and
          no clear difference from the night before; `no_value`,
        - `median`, `spread` (double): of the earlier nights; spread is 1.482602218505602 times their median absolute
          deviation,
        - `z` (double): (value - median) / max(spread, std_error); null where that is 0,
        - `limit` (double): the value is flagged if z is farther from 0,
        - `n_nights` (bigint), `weekday` (string): how many nights, and of which day: `Monday`, ..., or `any`;
          `before`: too few, so that the night was held against the one before it (its value is `median`, the standard
          error of the difference is `spread`); `before_paired`: likewise, by the mean difference of the queries that
          both nights have and its standard error,
        - `rule` (string): all that in words.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a night that a series has twice, and for a query that a night of `per_query` has twice.
    MissingPackageError
        With `per_query` and without SciPy; workers need it, too.

    Notes
    -----
    With at least 8 earlier nights of the weekday these are the history; else all earlier nights are, if there are 28;
    else the night is held against the one before it at level 0.001: as of independent nights, or, by `per_query`, by
    a paired t-test. A query that one of the two nights lacks is left out then, and counted in `rule`. Where weight or
    segments of a query differ, those of the later night count.
    A series is `missing` on a night that the table has: its run has no row, or it has no value there, although it had
    one on the latest seven nights (within 31 days) or on some of them. A segment is missing only if its run was
    computed by the same `config_hash` on these nights, and if their `n_queries` make a night without any query
    improbable (at most 1 %). `median` is then the last value. Segments of a run that has no row are not listed.
    Spark cost: one shuffle of rows per night and two small ones, no action, three scans of the table, one pass
    through Python workers. A worker holds the nights of the series in its batch. With `per_query` also an action that
    lists segment sets, metrics and cutoffs, and one shuffle of the queries of the nights that are paired, two where
    they have weights or segments.
    """
    settings = settings_from(FlagSettings, dict(locals()))
    return flagged_nights(metrics, settings, per_query=per_query, query=query)
