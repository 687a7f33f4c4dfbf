"""Estimates of clicks per query, weighted by inverse propensities."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.clicks.frames.impressions import weighted_impressions
from ndcg_spark.clicks.frames.labels import (
    N_LIMBS,
    SQUARED,
    WEIGHT,
    WEIGHTED,
    limb_name,
    summed,
    total,
    weighted_rows,
)
from ndcg_spark.clicks.settings import PROPENSITIES_OF, WeightSettings
from ndcg_spark.clicks.tasks.propensity_estimates import (
    ESTIMATES,
    GROUP_KEYS,
    MIXED,
    OF,
    REASON,
    make_estimator,
    make_partial_summer,
)
from ndcg_spark.core.expressions import columns_of, has_column, named
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import one_of

_KEYS = [T.StructField(name, T.StringType()) for name in GROUP_KEYS]
_COUNTS = [T.StructField(name, T.LongType()) for name in ("n_queries", "n_impressions")]
_STATE = T.StructField("state", T.ArrayType(T.LongType()))
_PARTIAL = T.StructType([*_KEYS, *_COUNTS, _STATE])
_VALUES = [T.StructField(name, T.DoubleType()) for name in ESTIMATES]
_KIND = [T.StructField(name, T.StringType()) for name in (OF, REASON)]
_ESTIMATES = T.StructType([*_KEYS, *_COUNTS, *_VALUES, *_KIND, _STATE])
_N, _QUERY = "number of impressions", "the query"
"""Columns on the way; they have spaces, so that no key is likely to share the name."""
_SUMS = {"a": WEIGHTED, "b": WEIGHT, "ww": SQUARED}


def propensity_estimates(
    impressions: DataFrame,
    settings: WeightSettings,
    propensities: DataFrame | None = None,
    *,
    parse_text: bool = False,
) -> DataFrame:
    """Estimate clicks, as `inverse_propensity_estimates` describes it; with `parse_text`, numbers may be text."""
    require_scipy()
    found = weighted_impressions(impressions, settings, propensities, parse_text=parse_text)
    segments = list(dict.fromkeys(name for its in settings.segment_sets for name in its))
    runs = [settings.run] if settings.run is not None else []
    keys = list(dict.fromkeys([*runs, *segments, *settings.columns.query]))
    rows = weighted_rows(found, settings, keys).withColumn(SQUARED, named(WEIGHT) * named(WEIGHT))
    aggregates = [F.count(F.lit(1)).alias(_N)]
    aggregates += [limb for name, column in _SUMS.items() for limb in summed(named(column), name)]
    queries = rows.groupBy(*columns_of(keys)).agg(*aggregates)
    sums = [total(name).alias(name) for name in _SUMS]
    grouped = _by_segment(queries, settings) if segments else queries.select(*_overall(settings), *_limbs())
    values = grouped.select(*GROUP_KEYS, named(_N).alias("n_impressions"), *sums)
    partial = values.mapInArrow(as_shipped(make_partial_summer()), schema=_PARTIAL)
    return _finished(partial.withColumn(OF, F.lit(settings.propensity_of)), settings.confidence)


def merged_estimates(estimates: DataFrame, *, confidence: float, propensity_of: str) -> DataFrame:
    """Merge estimates, as `merge_estimates` describes it. Lazy."""
    one_of("propensity_of", propensity_of, PROPENSITIES_OF)
    require_scipy()
    unsaid = F.lit(propensity_of)
    kind = F.coalesce(F.col(OF), unsaid) if has_column(estimates, OF) else unsaid
    return _finished(estimates.select(*[one.name for one in _PARTIAL], kind.alias(OF)), confidence)


def _finished(partial: DataFrame, confidence: float) -> DataFrame:
    aggregates = [F.sum(one.name).alias(one.name) for one in _COUNTS]
    aggregates.append(F.collect_list("state").alias("states"))
    aggregates.append(F.when(F.min(OF) == F.max(OF), F.min(OF)).otherwise(MIXED).alias(OF))
    return (
        partial.groupBy(*GROUP_KEYS)
        .agg(*aggregates)
        .mapInArrow(as_shipped(make_estimator(confidence)), schema=_ESTIMATES)
    )


def _overall(settings: WeightSettings) -> list[Column]:
    run = named(settings.run).cast("string") if settings.run is not None else F.lit("")
    return [run.alias("run"), F.lit("").alias("segment_by"), F.lit("").alias("segment")]


def _limbs() -> list[Column]:
    names = [limb_name(name, at) for name in _SUMS for at in range(N_LIMBS)]
    return columns_of([_N, *names])


def _by_segment(queries: DataFrame, settings: WeightSettings) -> DataFrame:
    """Add up the parts of each query for all impressions, and for each segment set."""
    groups = F.array(*[_segment(names) for names in ((), *settings.segment_sets)])
    # Queries as a struct under a name of our own: one of their columns may be called `segment`.
    query = F.struct(*columns_of(settings.columns.query)).alias(_QUERY)
    run = _overall(settings)[0]
    parts = queries.select(run, query, F.explode(groups).alias("group"), *_limbs())
    keys = [F.col("run"), F.col("group.segment_by"), F.col("group.segment"), named(_QUERY)]
    added = [F.sum(named(name)).alias(name) for name in parts.columns[3:]]
    return parts.groupBy(*keys).agg(*added)


def _segment(names: tuple[str, ...]) -> Column:
    texts = [named(name).cast("string") for name in names] or [F.lit("")]
    text = texts[0] if len(texts) == 1 else F.to_json(F.array(*texts))
    return F.struct(F.lit("+".join(names)).alias("segment_by"), text.alias("segment"))
