"""Counts of summaries, added up: what one night did not count is not known of all of them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.evaluation.tasks.partial_sums import COUNTS, OF_REJECTED


def with_counts(summaries: DataFrame) -> DataFrame:
    """Add counts of rejected rows and lost queries, null, to rows of a version that did not count them. Lazy."""
    missing = [name for name in OF_REJECTED if name not in summaries.columns]
    return summaries.withColumns({name: F.lit(None).cast("bigint") for name in missing}) if missing else summaries


def summed_counts() -> list[Column]:
    """Aggregates that add up the counts of a group; of rejected rows and lost queries, null if one of them is."""
    found = {name: F.sum(name) for name in COUNTS}
    for name in OF_REJECTED:
        found[name] = F.when(F.count(name) == F.count(F.lit(1)), found[name])
    return [column.alias(name) for name, column in found.items()]
