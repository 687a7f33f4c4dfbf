"""Rankings to metrics of queries, and their means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.evaluation.api import evaluate as evaluate
    from ndcg_spark.evaluation.api import evaluation_settings as evaluation_settings
    from ndcg_spark.evaluation.difference import LocalExplanation as LocalExplanation
    from ndcg_spark.evaluation.difference import explain_difference as explain_difference
    from ndcg_spark.evaluation.explanation import Explanation as Explanation
    from ndcg_spark.evaluation.explanation import explain_ranks as explain_ranks
    from ndcg_spark.evaluation.frames.ranking import rank_queries as rank_queries
    from ndcg_spark.evaluation.frames.summary import score_queries as score_queries
    from ndcg_spark.evaluation.frames.summary import summarize as summarize
    from ndcg_spark.evaluation.frames.summary import summarize_rankings as summarize_rankings
    from ndcg_spark.evaluation.merging import merge_summaries as merge_summaries
    from ndcg_spark.evaluation.results import LocalEvaluation as LocalEvaluation
    from ndcg_spark.evaluation.settings import Columns as Columns
    from ndcg_spark.evaluation.settings import EvaluationSettings as EvaluationSettings
    from ndcg_spark.evaluation.settings import ItemColumns as ItemColumns
    from ndcg_spark.evaluation.spark_results import Evaluation as Evaluation
else:
    __getattr__, __dir__ = export_names(
        __name__,
        api="evaluate evaluation_settings",
        difference="LocalExplanation explain_difference",
        explanation="Explanation explain_ranks",
        frames__ranking="rank_queries",
        frames__summary="score_queries summarize summarize_rankings",
        merging="merge_summaries",
        spark_results="Evaluation",
        results="LocalEvaluation",
        settings="Columns EvaluationSettings ItemColumns",
    )
    __all__ = __dir__()
