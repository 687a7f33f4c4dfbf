"""Nights of a metric or comparison table added up to weeks, months and rolling weeks, from their states alone."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.comparison.tasks.totals import COUNTS as COUNTS_OF_PAIRS
from ndcg_spark.core.expressions import columns_of, has_column, raise_if, require_column
from ndcg_spark.core.student import require_scipy, t_quantile
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.summary import (
    CONFIG_HASH,
    CONVENTION,
    SUMMARY_SCHEMA,
    summed_counts,
    with_counts,
)
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import ASKED
from ndcg_spark.evaluation.tasks.partial_sums import COUNTS, make_finisher
from ndcg_spark.history.frames.nights import HELD, NIGHT, PERIOD, nights_to_add, series_rows
from ndcg_spark.history.settings import LONGEST_PERIOD, RollUpSettings
from ndcg_spark.history.tasks.nights import SERIES
from ndcg_spark.history.tasks.periods import FAMILY, PERIOD_SCHEMA, SERIES_OF_PAIRS, make_decider, make_roller

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
PERIODS_OF_PAIRS: T.StructType = from_arrow_schema(PERIOD_SCHEMA)
_STORED = (
    *COUNTS_OF_PAIRS[:-1],
    "seed",
    "n_replicates",
    "cluster_by",
    "unpaired",
    "note",
    "difference",
    "verdict",
    "state",
)


def rolled_up(metrics: DataFrame, settings: RollUpSettings) -> DataFrame:
    """Add nights up, as `roll_up` describes it. Lazy."""
    if is_comparison(metrics):
        return _roll_up_comparisons(metrics, settings)
    independence = settings.independence or "query_day"
    if independence == "query":
        raise InvalidParameterError(
            f"{option('independence', 'query')} needs replicates, which a metric table does not have; choose "
            "query_day or day."
        )
    quantiles = None
    if independence == "day":
        quantiles = [t_quantile((1 + settings.confidence) / 2, days - 1) for days in range(2, LONGEST_PERIOD + 1)]
    held = nights_to_add(series_rows(with_counts(metrics)), [*SERIES, ASKED, *COUNTS, "state"], settings)
    rows = held.withColumn(HELD, F.explode(HELD)).select(*columns_of(held.columns), f"{HELD}.*")
    keys = [*PERIOD, *SERIES]
    until = F.least("period_end", F.max("as_of"))
    days = F.sort_array(F.collect_set(NIGHT))
    aggregates = summed_counts()
    aggregates += [F.collect_list("state").alias("states"), F.count(F.lit(1)).alias("n_days")]
    aggregates += [days.alias("days"), F.sequence("period_start", until).alias("all_days")]
    for name in (CONVENTION, CONFIG_HASH):
        aggregates.append(F.when(F.min(name) == F.max(name), F.min(name)).alias(name))
    merged = rows.groupBy(*keys).agg(*aggregates, F.collect_set(RULES).alias(RULES))
    twice = (
        "a night comes twice in the ",
        _period_text(),
        " of ",
        F.col("metric"),
        "; keep the rows of one data set.",
    )
    n_days = raise_if(F.col("n_days"), F.col("n_days") != F.size("days"), *twice, kind="bigint")
    passed = [*columns_of(keys), n_days.alias("n_days"), F.array_except("all_days", "days").alias("missing_days")]
    passed += [F.col(CONVENTION), F.col(CONFIG_HASH), F.lit(independence).alias("independence")]
    finisher = make_finisher(settings.confidence, day_quantiles=quantiles, across_rules=settings.across_rules)
    schema = ", ".join(f"{name} {kind}" for name, kind in ROLL_UP_COLUMNS.items())
    return merged.select(*passed, *columns_of([ASKED, *COUNTS, "states", RULES])).mapInArrow(
        as_shipped(finisher), schema=schema
    )


def roll_up_columns(table: DataFrame) -> dict[str, str]:
    """Columns of `rolled_up` of a table, and their types in Spark's words."""
    if is_comparison(table):
        return {one.name: one.dataType.simpleString() for one in PERIODS_OF_PAIRS}
    return ROLL_UP_COLUMNS


def _text(name: str) -> Column:
    return F.col(name).cast(T.StringType())


def _period_text() -> Column:
    return F.concat("period", F.lit(" from "), _text("period_start"), F.lit(" to "), _text("period_end"))


def is_comparison(table: DataFrame) -> bool:
    """Whether a table has differences between runs, and not means."""
    return has_column(table, "baseline")


def _roll_up_comparisons(comparisons: DataFrame, settings: RollUpSettings) -> DataFrame:
    """Add the nights of a comparison table up to ISO weeks, months and rolling seven days. Lazy; see `roll_up`.

    Rows must be of one data set.

    Spark cost: a shuffle of the rows by series and a small one of results, two passes through Python workers, no
    action; without `as_of` the dates are read once more. Replicates are read only if they may be needed.
    """
    require_scipy()
    for name in ("baseline", *_STORED):
        require_column(comparisons, name, "column of a comparison table", "comparison table")
    kept = [*SERIES_OF_PAIRS, *_STORED, *(name for name in (ASKED,) if name in comparisons.columns)]
    if settings.independence in (None, "query") and "replicates" in comparisons.columns:
        kept.append("replicates")
    rows = nights_to_add(series_rows(comparisons), kept, settings)
    by_series = rows.repartition(*columns_of(SERIES_OF_PAIRS)).sortWithinPartitions(
        *columns_of([*SERIES_OF_PAIRS, NIGHT])
    )
    family = F.xxhash64(*columns_of([*PERIOD, "baseline"])).alias(FAMILY)
    rolled = by_series.mapInArrow(as_shipped(make_roller(settings)), schema=PERIODS_OF_PAIRS).select("*", family)
    ordered = rolled.repartition(FAMILY).sortWithinPartitions(FAMILY)
    return ordered.mapInArrow(as_shipped(make_decider(settings)), schema=PERIODS_OF_PAIRS)
