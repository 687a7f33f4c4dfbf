"""Judgments from clicks, weighted by inverse propensities."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.clicks.frames.impressions import Impressions, weighted_impressions
from ndcg_spark.clicks.settings import WeightSettings
from ndcg_spark.core.bad_rows import without_bad_rows
from ndcg_spark.core.exact_sums import from_limbs, limbs
from ndcg_spark.core.expressions import columns_of, named

N_LIMBS, HIGHEST = 4, 1
"""From 2^32 down to 2^-64: what `MAX_WEIGHT` and `MAX_CLICK` allow for, and all bits of a weight."""
CLICK, WEIGHT, WEIGHTED, SQUARED = "click value", "weight value", "weighted click", "squared weight"
"""Columns on the way; they have spaces, so that no key is likely to share the name."""
_CLIPPED = "was clipped"


def judged_impressions(
    impressions: DataFrame,
    settings: WeightSettings,
    propensities: DataFrame | None = None,
    *,
    parse_text: bool = False,
) -> DataFrame:
    """Judge items by clicks, as `judgments_from_impressions` describes it; with `parse_text`, numbers may be text."""
    found = weighted_impressions(impressions, settings, propensities, parse_text=parse_text)
    keys = [*settings.columns.query, settings.columns.item]
    sums = {WEIGHTED: "weighted", CLICK: "clicks", WEIGHT: "weights"}
    rows = weighted_rows(found, settings, keys)
    counted = [F.count(F.lit(1)).alias("n_impressions"), F.sum(_CLIPPED).alias("n_clipped")]
    counted.append(F.max(named(WEIGHT)).alias("largest_weight"))
    state = rows.groupBy(*columns_of(keys)).agg(*counted, *_summed(sums))
    n = F.col("n_impressions")
    return state.select(
        *columns_of(keys),
        (total("weighted") / n).alias("relevance"),
        F.lit("ips").alias("rule"),
        (total("clicks") / n).alias("uncorrected"),
        n,
        F.col("n_clipped"),
        total("weights").alias("weight_sum"),
        F.col("largest_weight"),
    )


def weighted_rows(found: Impressions, settings: WeightSettings, kept: list[str]) -> DataFrame:
    """Valid impressions with their click, weight, and the product; and whether the weight was clipped. Lazy."""
    keys = [*settings.columns.query, settings.columns.item]
    valid = without_bad_rows(found.frame, found.reasons, keys, settings.on_invalid)
    weight, clipped = found.weight, F.lit(0)
    if settings.clip is not None:
        limit = F.lit(float(settings.clip))
        weight, clipped = F.least(found.weight, limit), (found.weight > limit).cast("int")
    rows = valid.select(
        *columns_of(kept), found.click.alias(CLICK), weight.alias(WEIGHT), clipped.cast("bigint").alias(_CLIPPED)
    )
    return rows.withColumn(WEIGHTED, named(WEIGHT) * named(CLICK))


def _summed(sums: dict[str, str]) -> Iterable[Column]:
    for column, name in sums.items():
        yield from summed(named(column), name)


def summed(value: Column, name: str) -> Iterable[Column]:
    """Aggregate the limbs of a value, for `total`."""
    for at, limb in enumerate(limbs(value, N_LIMBS, highest=HIGHEST)):
        yield F.sum(limb).alias(limb_name(name, at))


def limb_name(name: str, at: int) -> str:
    """Name the column of the sum of a limb."""
    return f"{name} limb {at}"


def total(name: str) -> Column:
    """Put together the sum whose limbs `summed` aggregated."""
    return from_limbs([named(limb_name(name, at)) for at in range(N_LIMBS)], highest=HIGHEST)
