"""Summaries with metrics of all lists together: how often each item is listed, counted in the same pass."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.workers import as_shipped
from ndcg_spark.evaluation.frames.counts import summed_counts
from ndcg_spark.evaluation.items.catalogue_task import make_catalogue_finisher
from ndcg_spark.evaluation.items.listed_items import ITEM, LISTED
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_KEYS


def partial_schema(sums: T.StructType, item: T.DataType) -> T.StructType:
    """Schema of partial sums and counts of items, each row one or the other."""
    return T.StructType([*sums.fields, T.StructField(ITEM, item), T.StructField(LISTED, T.LongType())])


def finished_with_catalogue(
    partial: DataFrame, catalogue: DataFrame, plan: EvaluationPlan, schema: T.StructType
) -> DataFrame:
    """Merge partial sums and counts of items, and turn them into a summary of this schema. Lazy.

    `partial` is of `partial_schema`; `catalogue` has `item` and `copies`, see
    `ndcg_spark.evaluation.items.items.catalogue_of`.

    Spark cost: no action. A shuffle of a row per group, item and input partition, a join with the items of the
    catalogue, and two small shuffles; one pass through Python workers over histograms.
    """
    states = F.flatten(F.collect_list("states")).alias("states")
    by_item = partial.groupBy(*GROUP_KEYS, ITEM).agg(
        *summed_counts(), F.collect_list("state").alias("states"), F.sum(LISTED).alias(LISTED)
    )
    known = catalogue.select(ITEM, F.lit(True).alias("known"))
    histogram = (
        by_item.join(known, ITEM, "left")
        .groupBy(*GROUP_KEYS, LISTED, "known")
        .agg(*summed_counts(), states, F.count(ITEM).alias("n"))
    )
    level = F.when(F.col(LISTED).isNotNull(), F.struct(LISTED, F.coalesce("known", F.lit(False)).alias("known"), "n"))
    merged = histogram.groupBy(*GROUP_KEYS).agg(*summed_counts(), states, F.collect_list(level).alias("levels"))
    twice = F.max(F.when(F.col("copies") > 1, F.col(ITEM).cast("string"))).alias("twice")
    size = catalogue.agg(F.count(F.lit(1)).alias("n_items"), twice)
    finish = make_catalogue_finisher(plan.confidence, plan.catalogue_metrics, str(plan.columns.item))
    return merged.crossJoin(F.broadcast(size)).mapInArrow(as_shipped(finish), schema=schema)
