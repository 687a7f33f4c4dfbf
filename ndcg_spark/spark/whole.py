"""Means of files of which a worker gets all rows of a query: it hands nothing but sums on."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.ranking.files import by_part, cut_task, gathered, piece_schema
from ndcg_spark.spark.ranking.moving import by_query
from ndcg_spark.spark.ranking.order import adds_up_whole_queries, whole_between
from ndcg_spark.spark.ranking.stored import is_scattered
from ndcg_spark.spark.scoring import scoring_task
from ndcg_spark.spark.summary import PARTIAL_SCHEMA, finished, summarize_rankings, summing_task
from ndcg_spark.worker.in_order import make_whole_summer
from ndcg_spark.worker.moving import make_moved_summer
from ndcg_spark.worker.whole import SUMS, WholeTask, make_rest_summer


def summarize_table(frame: DataFrame, rankings: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Give `summarize_rankings`, by a shorter way where there is one. May read footers of files, runs no action.

    Parameters
    ----------
    frame : DataFrame
        The main table, as it came.
    rankings : DataFrame
        Its rankings, from `rank_queries` with the same plan.
    plan : EvaluationPlan

    Returns
    -------
    DataFrame
        As for `summarize`; the same to the last bit by any way. Lazy.

    Notes
    -----
    Spark cost: of `summarize_rankings`. Where workers read files themselves, and by the statistics of these the
    queries of a part of them are in no other, but for those at its ends: two passes through Python workers and two
    small shuffles, of a row a part and of the queries at the ends. Where rows are moved to their query: three passes,
    a shuffle of all rows in packed batches, and two small ones.
    """
    if "pieces" not in rankings.columns:
        return summarize_rankings(rankings, plan)
    cut = cut_task(frame, plan)
    bounds = whole_between(cut.parts, plan.columns.query[0]) if adds_up_whole_queries(plan) else None
    scattered = bounds is None and is_scattered(frame, plan)
    if bounds is None and not scattered:
        return summarize_rankings(rankings, plan)
    score = scoring_task(rankings.drop("n_relevant"), plan)
    task = WholeTask(cut=cut, score=score, add_up=summing_task(plan), bounds=bounds or ())
    if scattered:
        schema = piece_schema(frame, cut, **{SUMS: T.BinaryType()})
        pieces = by_query(frame, cut, make_moved_summer(task), schema)
    else:
        pieces = by_part(frame, cut, make_whole_summer(task), **{SUMS: T.BinaryType()})
    rest = gathered(pieces, cut, F.collect_list(SUMS).alias(SUMS))
    return finished(rest.mapInArrow(make_rest_summer(task), schema=PARTIAL_SCHEMA), plan.confidence)
