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
from ndcg_spark.core.expressions import columns_of, named
from ndcg_spark.core.given import takes_tables
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


@takes_tables
def inverse_propensity_estimates(
    impressions: DataFrame,
    settings: WeightSettings,
    propensities: DataFrame | None = None,
    *,
    parse_text: bool = False,
) -> DataFrame:
    """Estimate clicks per query, or a gain, as if every impression had been examined.

    Parameters
    ----------
    impressions, settings, propensities, parse_text
        As for `judgments_from_impressions`. With propensities of *showing* an item, as a randomised policy logs them
        (`settings.propensity_of="action"`), the estimate is that of showing every item alike.

    Returns
    -------
    DataFrame
        One row per (run, segment), lazy, with the columns

        - `run` (empty without a run column); `segment_by`, the columns of the segment set joined by `+` (empty: all
          impressions); `segment`, the value as text, a JSON list for several columns, null for null. A segment holds
          the impressions that have its value,
        - `n_queries`, `n_impressions` (bigint),
        - `ips`, the mean over queries of A, and `snips`, sum A / sum B, where A is the sum of weight times click and
          B the sum of weights of a query; `ips_std_error`, `ips_ci_low`, `ips_ci_high` and the same of `snips`
          (double; null where there is no such number, as the errors of a single query). Intervals are Student's,
        - `n_eff`: effective sample size, (sum w)^2 / sum w^2,
        - `propensity_of` (string): `position` or `action`, as in the settings,
        - `snips_reason` (string): why `snips` is null: `propensities_of_positions`, as the sum of their inverses does
          not estimate the number of impressions,
        - `state`: the exact sums, for `merge_estimates`.

    Raises
    ------
    InvalidParameterError, MissingColumnError, InputRefusedError, MissingPackageError
        The action raises for a bad row under `on_invalid=fail`. SciPy is needed, here and on workers.

    Notes
    -----
    Spark cost: one shuffle of sums by query and partition, with segments one more; a small one of groups; no action;
    two passes of queries and groups through Python workers. Sums are exact, so bits do not depend on partitions.

    References
    ----------
    Swaminathan and Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015.
    """
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


@takes_tables
def merge_estimates(estimates: DataFrame, *, confidence: float = 0.95, propensity_of: str = "position") -> DataFrame:
    """Merge estimates of disjoint sets of queries, such as nights, exactly and without reading impressions again.

    Parameters
    ----------
    estimates : DataFrame
        Rows of one or more tables from `inverse_propensity_estimates`, with the same clip.
    confidence : float
        Level of the new intervals.
    propensity_of : str
        What the propensities of rows that do not say were of: tables of earlier versions lack the column, or have
        null there.

    Returns
    -------
    DataFrame
        As for `inverse_propensity_estimates`: the same bits as if all queries had been estimated together. Lazy.
        Where estimates with propensities of positions meet others with those of actions, `propensity_of` is `mixed`,
        and `snips` is null (`propensities_of_both_kinds`).

    Raises
    ------
    InvalidParameterError, MissingPackageError

    Notes
    -----
    Spark cost: one small shuffle, no action, one pass through Python workers.
    """
    one_of("propensity_of", propensity_of, PROPENSITIES_OF)
    require_scipy()
    unsaid = F.lit(propensity_of)
    kind = F.coalesce(F.col(OF), unsaid) if OF in estimates.columns else unsaid
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
