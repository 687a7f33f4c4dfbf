"""How far annotators agree: Krippendorff's alpha."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import columns_of
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.judgments.settings import RatingSettings
from ndcg_spark.judgments.tasks import RATINGS, make_agreement, make_pair_counter

_PAIRS = "raters bigint, first double, second double, n bigint"
_AGREEMENT = "alpha double, reason string, n_items bigint, n_ratings bigint"


def item_pairs(items: DataFrame, settings: RatingSettings) -> DataFrame:
    """Count ordered pairs of ratings of one item: `raters`, `first`, `second`, `n`. Lazy; one small shuffle.

    Rows have the keys and `ratings` of each item, as `rated_items` and `judged_ratings` have them. Pairs of tables of
    different items may be put together with `union`.
    """
    kept = items.select(*columns_of([*settings.columns.query, settings.columns.item, RATINGS]))
    pairs = kept.mapInArrow(as_shipped(make_pair_counter(settings)), schema=_PAIRS)
    return pairs.groupBy("raters", "first", "second").agg(F.sum("n").alias("n"))


def agreement_of(pairs: DataFrame) -> DataFrame:
    """Krippendorff's alpha of pairs from `item_pairs`, as `rating_agreement` describes it. Lazy."""
    listed = F.collect_list(F.struct("raters", "first", "second", "n")).alias("pairs")
    return pairs.agg(listed).mapInArrow(as_shipped(make_agreement()), schema=_AGREEMENT)
