"""Propensities of positions from a log of impressions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.clicks.frames.impressions import counted_impressions
from ndcg_spark.clicks.settings import PropensitySettings
from ndcg_spark.clicks.tasks.click_cells import (
    FIT_SCHEMA,
    HASH,
    PAIRS,
    PATTERN,
    make_fitter,
)
from ndcg_spark.core.bad_rows import without_bad_rows
from ndcg_spark.core.expressions import columns_of, named
from ndcg_spark.core.workers import as_shipped

FIT: T.StructType = from_arrow_schema(FIT_SCHEMA)
_SHOWN_AT, _CLICKED, _TIMES, _CLICKS = "shown at", "was clicked", "times shown", "times clicked"
"""Columns on the way; they have spaces, so that no key is likely to share the name."""


def fitted_propensities(
    impressions: DataFrame, settings: PropensitySettings, *, parse_text: bool = False
) -> DataFrame:
    """Fit propensities, as `fit_propensities` describes it; with `parse_text`, numbers may be text. Lazy."""
    patterns = click_patterns(impressions, settings, parse_text=parse_text)
    return patterns.repartition(1).mapInArrow(as_shipped(make_fitter(settings)), schema=FIT)


def propensity_table(fitted: DataFrame) -> DataFrame:
    """List the propensities of a fit, one row a position, with its method. Lazy."""
    return fitted.select(F.explode("positions").alias("one"), "method").select("one.*", "method")


def click_patterns(impressions: DataFrame, settings: PropensitySettings, *, parse_text: bool) -> DataFrame:
    """Count the (query, item) with the same impressions and clicks at the same positions. Lazy.

    Gives `cells`, `pairs` and `hash`, see `clicks/tasks/click_cells.py`. With `method=randomized` all pairs are one,
    as it needs nothing but counts by position.
    """
    found = counted_impressions(impressions, settings, parse_text=parse_text)
    keys = [*settings.columns.query, settings.columns.item]
    valid = without_bad_rows(found.frame, found.reasons, keys, settings.on_invalid)
    if settings.method == "randomized":
        keys = []
    rows = valid.select(
        *columns_of(keys), found.position.cast("bigint").alias(_SHOWN_AT), found.click.cast("bigint").alias(_CLICKED)
    )
    counted = [F.count(F.lit(1)).alias(_TIMES), F.sum(named(_CLICKED)).alias(_CLICKS)]
    counts = rows.groupBy(*columns_of([*keys, _SHOWN_AT])).agg(*counted)
    one = F.struct(named(_SHOWN_AT).alias("position"), named(_TIMES).alias("shown"), named(_CLICKS).alias("clicked"))
    pairs = counts.groupBy(*columns_of(keys)).agg(F.sort_array(F.collect_list(one)).alias(PATTERN))
    return pairs.groupBy(PATTERN).agg(F.count(F.lit(1)).alias(PAIRS)).withColumn(HASH, F.xxhash64(PATTERN))
