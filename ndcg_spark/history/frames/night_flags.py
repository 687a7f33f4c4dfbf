"""Nights of a metric table held against the history of the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import number
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.evaluation.frames.summary import rules_column
from ndcg_spark.evaluation.rules import RULES
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


def flagged_nights(
    metrics: DataFrame,
    settings: FlagSettings,
    *,
    per_query: DataFrame | None = None,
    query: str | Sequence[str] = "query_id",
    parse_text: bool = False,
) -> DataFrame:
    """Judge nights by those before them, as `flag_changes` describes it; with `parse_text`, numbers may be text."""
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
    """Series that `flagged_nights` finds missing on a night: columns of `MISSING_COLUMNS`; lazy."""
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
    night = F.struct(day, by_hash, rules_column(rows).alias(RULES), *numbers)
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
