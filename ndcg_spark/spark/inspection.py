"""Ranks, gains and discounts of every row: how a person looks at one query."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.ideal import ideal_order
from ndcg_spark.spark.ranking.window import ranked_rows
from ndcg_spark.spark.rows import keys_of, run_rows, usable
from ndcg_spark.worker.viewing import make_row_viewer


def rank_rows(frame: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Rank every row of a long table and show what it adds to DCG and to the ideal.

    Parameters
    ----------
    frame : DataFrame
        A long table with scores and relevances.
    plan : EvaluationPlan
        Its cutoffs are not applied: all ranks are shown.

    Returns
    -------
    DataFrame
        `run` where rankers are named, the query columns, `item`, `score`, `relevance`, `rank` (1-based; null for
        an item that was not retrieved), `ideal_rank` (null for an unjudged item), `gain`, `discount`,
        `ideal_discount`. DCG@k is the sum of gain * discount over rank <= k. Lazy, in no order: sort it by rank.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError

    Notes
    -----
    Spark cost: whole queries are shuffled and sorted twice, and every row passes through Python. Meant for a few
    queries: filter first.
    """
    if plan.columns.rank is not None:
        raise InvalidParameterError("rank_rows ranks by score: leave the rank column out.")
    if plan.columns.item is None:
        raise InvalidParameterError("rank_rows shows items: name the item column.")
    rows = usable(run_rows(frame, plan, judged=True), plan, "score")
    rows = rows.withColumn("relevance", F.col("relevance").cast("double"))
    keys = keys_of(plan)
    ranked = ranked_rows(rows, plan, keys, None)
    if plan.null_score == "unretrieved":
        others = rows.where(F.col("score").isNull()).withColumn("rank", F.lit(None).cast("int"))
        ranked = ranked.unionByName(others)
    order = ideal_order(ranked, plan)
    within = Window.partitionBy(*columns_of(keys)).orderBy(order.desc_nulls_last(), F.col("item"))
    ideal_rank = F.when(order.isNotNull(), F.row_number().over(within))
    shown = [*keys, *(name for name in ("item", "score", "relevance", "rank") if name in ranked.columns)]
    viewed = ranked.withColumn("ideal_rank", ideal_rank).select(*columns_of(shown), "ideal_rank")
    added = [T.StructField(name, T.DoubleType()) for name in ("gain", "discount", "ideal_discount")]
    return viewed.mapInArrow(make_row_viewer(plan.convention), schema=T.StructType([*viewed.schema.fields, *added]))
