"""Nights of a metric table held against the history of the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import number
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.history.frames.nights import METRIC_TABLE, NIGHT, between, config_hash, day_of, series_rows
from ndcg_spark.history.frames.paired_nights import with_pairs
from ndcg_spark.history.settings import FlagSettings
from ndcg_spark.history.tasks.night_flags import (
    FLAG_COLUMNS,
    LATEST_DAYS,
    MISSING,
    MISSING_COLUMNS,
    TO_PAIR_COLUMNS,
    make_flagger,
    make_pairer,
)
from ndcg_spark.history.tasks.nights import SERIES

_OF_RUN = ("run", "metric", "k")
"""What the series of a run have in common with its series over all queries."""


@takes_tables
def flag_changes(
    metrics: DataFrame,
    settings: FlagSettings | None = None,
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
    settings : FlagSettings or None
        None is `FlagSettings()`: all nights are judged, each by the nights before it.
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
    settings = FlagSettings() if settings is None else settings
    rows = series_rows(metrics, parse_text=parse_text)
    inside = rows.where(between(F.col(NIGHT), _first(settings), settings.end))
    series = _series(rows, settings, parse_text=parse_text)
    if per_query is None:
        return series.mapInArrow(as_shipped(make_flagger(settings)), schema=_ddl(FLAG_COLUMNS))
    require_scipy()
    judged = series.mapInArrow(as_shipped(make_flagger(settings, TO_PAIR_COLUMNS)), schema=_ddl(TO_PAIR_COLUMNS))
    paired = with_pairs(judged, per_query, inside, [query] if isinstance(query, str) else list(query))
    return paired.mapInArrow(as_shipped(make_pairer(settings)), schema=_ddl(FLAG_COLUMNS))


def missing_series(metrics: DataFrame, night: date) -> DataFrame:
    """Series that `flag_changes` finds missing on a night: columns of `MISSING_COLUMNS`; lazy."""
    settings = FlagSettings(start=night, end=night, lookback=LATEST_DAYS)
    series = _series(series_rows(metrics), settings, parse_text=False)
    judged = series.mapInArrow(as_shipped(make_flagger(settings, MISSING_COLUMNS)), schema=_ddl(MISSING_COLUMNS))
    return judged.where(F.col("status") == MISSING)


def _first(settings: FlagSettings) -> date | None:
    """First night that is needed; None: all are."""
    if settings.start is None or settings.lookback is None:
        return None
    return settings.start - timedelta(days=max(settings.lookback, LATEST_DAYS))


def _series(rows: DataFrame, settings: FlagSettings, *, parse_text: bool) -> DataFrame:
    """Nights of each series, with those of its run and of the table, from which it may be missing; lazy."""
    day, by_hash = day_of(F.col(NIGHT)).alias("day"), config_hash(rows).alias("config_hash")
    numbers = [_number(rows, name, parse_text=parse_text) for name in ("value", "std_error", "n_queries")]
    night = F.struct(day, by_hash, *numbers)
    series = rows.where(between(F.col(NIGHT), _first(settings), settings.end)).groupBy(*SERIES)
    first = None if settings.start is None else settings.start - timedelta(days=LATEST_DAYS)
    latest = rows.where(between(F.col(NIGHT), first, settings.end))
    overall = latest.where(F.col("segment_by") == "").withColumnsRenamed({name: f"__{name}" for name in _OF_RUN})
    runs = overall.groupBy(*[f"__{name}" for name in _OF_RUN]).agg(
        F.collect_list(F.struct(day, by_hash)).alias("run_nights")
    )
    table = latest.agg(F.collect_set(day).alias("__table"))
    on = reduce(and_, [F.col(name).eqNullSafe(F.col(f"__{name}")) for name in _OF_RUN])
    joined = series.agg(F.collect_list(night).alias("nights")).join(F.broadcast(runs), on, "left")
    of_table = F.when(F.col("segment_by") == "", F.col("__table")).alias("table_nights")
    return joined.crossJoin(F.broadcast(table)).select(*SERIES, "nights", "run_nights", of_table)


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _number(rows: DataFrame, name: str, *, parse_text: bool) -> Column:
    if name != "value" and name not in rows.columns:
        return F.lit(None).cast("double").alias(name)
    return number(rows, name, "column of a metric table", METRIC_TABLE, parse_text=parse_text).alias(name)
