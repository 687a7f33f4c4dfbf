"""NDCG and its means on Apache Spark, and the judgments they need.

Every worker imports this module, so it is kept light: public names are looked up when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__

if TYPE_CHECKING:
    from ndcg_spark.comparison import compare
    from ndcg_spark.comparison_plan import ComparisonPlan
    from ndcg_spark.conventions import PRESETS, Convention
    from ndcg_spark.diagnosis import changed_queries
    from ndcg_spark.evaluation import Evaluation, evaluate
    from ndcg_spark.judgment_plans import EventColumns, EventPlan, RatingColumns, RatingPlan
    from ndcg_spark.ml import NdcgEvaluator, with_query_folds
    from ndcg_spark.nightly_plans import FlagPlan, LinkPlan, RollUpPlan
    from ndcg_spark.plan import Columns, EvaluationPlan
    from ndcg_spark.position_plan import ImpressionColumns, PropensityPlan, WeightPlan
    from ndcg_spark.reporting import Report, ReportLimits, report
    from ndcg_spark.retrieval_plan import RetrievalPlan
    from ndcg_spark.spark.business_link import business_link
    from ndcg_spark.spark.diagnosis import score_losses, shift_of_means, summarize_losses
    from ndcg_spark.spark.failures import plain_refusals
    from ndcg_spark.spark.functions import dcg, ndcg
    from ndcg_spark.spark.inspection import rank_rows
    from ndcg_spark.spark.judgments import (
        disputed_items,
        judgments_from_events,
        judgments_from_ratings,
        rating_agreement,
        rating_pairs,
    )
    from ndcg_spark.spark.night_flags import flag_changes
    from ndcg_spark.spark.position_bias import (
        fit_propensities,
        inverse_propensity_estimates,
        judgments_from_impressions,
        merge_estimates,
        propensity_table,
    )
    from ndcg_spark.spark.ranking import rank_queries
    from ndcg_spark.spark.retrieval import judge_by_labels, rank_by_retrieval, retrieve
    from ndcg_spark.spark.roll_up import roll_up
    from ndcg_spark.spark.scoring import score_queries
    from ndcg_spark.spark.shipping import ship
    from ndcg_spark.spark.summary import merge_summaries, summarize, summarize_rankings

_HOMES = {
    "Columns": "plan",
    "ComparisonPlan": "comparison_plan",
    "Convention": "conventions",
    "Evaluation": "evaluation",
    "EvaluationPlan": "plan",
    "EventColumns": "judgment_plans",
    "EventPlan": "judgment_plans",
    "ImpressionColumns": "position_plan",
    "FlagPlan": "nightly_plans",
    "LinkPlan": "nightly_plans",
    "NdcgEvaluator": "ml",
    "PRESETS": "conventions",
    "PropensityPlan": "position_plan",
    "RatingColumns": "judgment_plans",
    "RatingPlan": "judgment_plans",
    "Report": "reporting",
    "ReportLimits": "reporting",
    "RetrievalPlan": "retrieval_plan",
    "WeightPlan": "position_plan",
    "RollUpPlan": "nightly_plans",
    "business_link": "spark.business_link",
    "changed_queries": "diagnosis",
    "compare": "comparison",
    "dcg": "spark.functions",
    "disputed_items": "spark.judgments",
    "evaluate": "evaluation",
    "evaluation_plan": "evaluation",
    "explain_difference": "explanation",
    "fit_propensities": "spark.position_bias",
    "inverse_propensity_estimates": "spark.position_bias",
    "flag_changes": "spark.night_flags",
    "judge_by_labels": "spark.retrieval",
    "judgments_from_events": "spark.judgments",
    "judgments_from_impressions": "spark.position_bias",
    "judgments_from_ratings": "spark.judgments",
    "merge_estimates": "spark.position_bias",
    "merge_summaries": "spark.summary",
    "ndcg": "spark.functions",
    "plain_refusals": "spark.failures",
    "propensity_table": "spark.position_bias",
    "rank_by_retrieval": "spark.retrieval",
    "rank_queries": "spark.ranking",
    "rank_rows": "spark.inspection",
    "rating_agreement": "spark.judgments",
    "rating_pairs": "spark.judgments",
    "report": "reporting",
    "retrieve": "spark.retrieval",
    "roll_up": "spark.roll_up",
    "score_losses": "spark.diagnosis",
    "score_queries": "spark.scoring",
    "shift_of_means": "spark.diagnosis",
    "ship": "spark.shipping",
    "summarize": "spark.summary",
    "summarize_losses": "spark.diagnosis",
    "summarize_rankings": "spark.summary",
    "with_query_folds": "ml",
}

__all__ = [
    "PRESETS",
    "Columns",
    "ComparisonPlan",
    "Convention",
    "Evaluation",
    "EvaluationPlan",
    "EventColumns",
    "EventPlan",
    "FlagPlan",
    "ImpressionColumns",
    "LinkPlan",
    "NdcgEvaluator",
    "PropensityPlan",
    "RatingColumns",
    "RatingPlan",
    "Report",
    "ReportLimits",
    "RetrievalPlan",
    "RollUpPlan",
    "WeightPlan",
    "__version__",
    "business_link",
    "changed_queries",
    "compare",
    "dcg",
    "disputed_items",
    "evaluate",
    "evaluation_plan",
    "explain_difference",
    "fit_propensities",
    "flag_changes",
    "inverse_propensity_estimates",
    "judge_by_labels",
    "judgments_from_events",
    "judgments_from_impressions",
    "judgments_from_ratings",
    "merge_estimates",
    "merge_summaries",
    "ndcg",
    "plain_refusals",
    "propensity_table",
    "rank_by_retrieval",
    "rank_queries",
    "rank_rows",
    "rating_agreement",
    "rating_pairs",
    "report",
    "retrieve",
    "roll_up",
    "score_losses",
    "score_queries",
    "shift_of_means",
    "ship",
    "summarize",
    "summarize_losses",
    "summarize_rankings",
    "with_query_folds",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
