"""Nights of a metric table held against the history of the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.kernels.student import require_scipy
from ndcg_spark.nightly_plans import FlagPlan
from ndcg_spark.spark.expressions import number
from ndcg_spark.spark.nights import METRIC_TABLE, NIGHT, between, config_hash, day_of, series_rows
from ndcg_spark.spark.paired_nights import with_pairs
from ndcg_spark.spark.streams import refuses_streams
from ndcg_spark.spark.workers import as_shipped
from ndcg_spark.worker.history.night_flags import FLAG_COLUMNS, TO_PAIR_COLUMNS, make_flagger, make_pairer
from ndcg_spark.worker.history.nights import SERIES


@refuses_streams
def flag_changes(
    metrics: DataFrame,
    plan: FlagPlan | None = None,
    *,
    per_query: DataFrame | None = None,
    query: str | Sequence[str] = "query_id",
    parse_text: bool = False,
) -> DataFrame:
    """Flag nights whose value is far from what was usual on earlier nights of the same weekday.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set: `run_date`, `run`, `segment_by`, `segment`, `metric`, `k`, `value`,
        and `std_error` and `config_hash`, if they are there. Nights of another `config_hash` are no history.
    plan : FlagPlan or None
        None is `FlagPlan()`: all nights are judged, each by the nights before it.
    per_query : DataFrame or None
        Metrics of every query of the same data set, with `run_date`, as `--per-query-output` of `mean-ndcg` stores
        them. A night that is held against the night before it is then compared query by query, where the table has
        both nights of the run and `config_hash`.
    query : str or sequence of str
        Columns of `per_query` that identify a query.
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
    Spark cost: one shuffle of rows per night, no action, one pass through Python workers. A worker holds the nights
    of the series in its batch. With `per_query` also an action that lists segment sets, metrics and cutoffs, and one
    shuffle of the queries of the nights that are paired, two where they have weights or segments.
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
    if per_query is None:
        return series.mapInArrow(as_shipped(make_flagger(plan)), schema=_ddl(FLAG_COLUMNS))
    require_scipy()
    judged = series.mapInArrow(as_shipped(make_flagger(plan, TO_PAIR_COLUMNS)), schema=_ddl(TO_PAIR_COLUMNS))
    paired = with_pairs(judged, per_query, inside, [query] if isinstance(query, str) else list(query))
    return paired.mapInArrow(as_shipped(make_pairer(plan)), schema=_ddl(FLAG_COLUMNS))


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _number(rows: DataFrame, name: str, *, parse_text: bool) -> Column:
    if name == "std_error" and name not in rows.columns:
        return F.lit(None).cast("double")
    return number(rows, name, "column of a metric table", METRIC_TABLE, parse_text=parse_text)
