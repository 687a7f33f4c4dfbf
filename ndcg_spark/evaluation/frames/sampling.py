"""A sample of queries that is the same on every night and every cluster."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import comparable, same_names
from ndcg_spark.evaluation.settings import EvaluationPlan


def sampled(frame: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Take the rows of the queries that are in the sample; lazy, and the table itself where all is taken.

    Keys are hashed as text, so that an int and a bigint agree.
    """
    names = plan.columns.query
    if plan.sample == 1 or any(name not in frame.columns or len(same_names(frame, name)) > 1 for name in names):
        return frame  # what is missing, or there twice, is said where it is looked for
    key = F.xxhash64(F.lit("sample"), *[comparable(frame, name).cast("string") for name in names])
    return frame.where(F.shiftrightunsigned(key, 11) * F.lit(2.0**-53) < plan.sample)
