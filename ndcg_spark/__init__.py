"""NDCG and its means on Apache Spark, and the judgments they need.

Every worker imports this module, so it is kept light: public names are looked up when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__

if TYPE_CHECKING:
    from ndcg_spark.business.frames import business_link
    from ndcg_spark.business.settings import LinkSettings
    from ndcg_spark.clicks.frames.estimates import inverse_propensity_estimates, merge_estimates
    from ndcg_spark.clicks.frames.labels import judgments_from_impressions
    from ndcg_spark.clicks.frames.propensities import fit_propensities, propensity_table
    from ndcg_spark.clicks.settings import ImpressionColumns, PropensitySettings, WeightSettings
    from ndcg_spark.comparison.api import compare
    from ndcg_spark.comparison.settings import ComparisonSettings
    from ndcg_spark.conventions import PRESETS, Convention
    from ndcg_spark.core.failures import readable_errors
    from ndcg_spark.core.shipping import add_package_to_workers
    from ndcg_spark.diagnosis.api import changed_queries
    from ndcg_spark.diagnosis.frames import score_losses, shift_of_means, summarize_losses
    from ndcg_spark.evaluation.api import Evaluation, evaluate
    from ndcg_spark.evaluation.frames.functions import dcg, ndcg
    from ndcg_spark.evaluation.frames.inspection import rank_rows
    from ndcg_spark.evaluation.frames.ranking import rank_queries
    from ndcg_spark.evaluation.frames.scoring import score_queries
    from ndcg_spark.evaluation.frames.summary import merge_summaries, summarize, summarize_rankings
    from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
    from ndcg_spark.history.frames.night_flags import flag_changes
    from ndcg_spark.history.frames.roll_up import roll_up
    from ndcg_spark.history.settings import FlagSettings, RollUpSettings
    from ndcg_spark.judgments.frames.agreement import rating_agreement, rating_pairs
    from ndcg_spark.judgments.frames.events import judgments_from_events
    from ndcg_spark.judgments.frames.ratings import disputed_items, judgments_from_ratings
    from ndcg_spark.judgments.settings import EventColumns, EventSettings, RatingColumns, RatingSettings
    from ndcg_spark.ml import NdcgEvaluator, with_query_folds
    from ndcg_spark.reports.assembly import Report, report
    from ndcg_spark.reports.settings import ReportLimits
    from ndcg_spark.retrieval.frames import judge_by_labels, rank_by_retrieval, retrieve
    from ndcg_spark.retrieval.settings import RetrievalSettings
    from ndcg_spark.tables.nights import write_night

_HOMES = {
    "Columns": "evaluation.settings",
    "ComparisonSettings": "comparison.settings",
    "Convention": "conventions",
    "Evaluation": "evaluation.api",
    "EvaluationSettings": "evaluation.settings",
    "EventColumns": "judgments.settings",
    "EventSettings": "judgments.settings",
    "ImpressionColumns": "clicks.settings",
    "FlagSettings": "history.settings",
    "LinkSettings": "business.settings",
    "NdcgEvaluator": "ml",
    "PRESETS": "conventions",
    "PropensitySettings": "clicks.settings",
    "RatingColumns": "judgments.settings",
    "RatingSettings": "judgments.settings",
    "Report": "reports.assembly",
    "ReportLimits": "reports.settings",
    "RetrievalSettings": "retrieval.settings",
    "WeightSettings": "clicks.settings",
    "RollUpSettings": "history.settings",
    "business_link": "business.frames",
    "changed_queries": "diagnosis.api",
    "compare": "comparison.api",
    "dcg": "evaluation.frames.functions",
    "disputed_items": "judgments.frames.ratings",
    "evaluate": "evaluation.api",
    "evaluation_settings": "evaluation.api",
    "explain_difference": "evaluation.explanation",
    "fit_propensities": "clicks.frames.propensities",
    "inverse_propensity_estimates": "clicks.frames.estimates",
    "flag_changes": "history.frames.night_flags",
    "judge_by_labels": "retrieval.frames",
    "judgments_from_events": "judgments.frames.events",
    "judgments_from_impressions": "clicks.frames.labels",
    "judgments_from_ratings": "judgments.frames.ratings",
    "merge_estimates": "clicks.frames.estimates",
    "merge_summaries": "evaluation.frames.summary",
    "ndcg": "evaluation.frames.functions",
    "readable_errors": "core.failures",
    "propensity_table": "clicks.frames.propensities",
    "rank_by_retrieval": "retrieval.frames",
    "rank_queries": "evaluation.frames.ranking",
    "rank_rows": "evaluation.frames.inspection",
    "rating_agreement": "judgments.frames.agreement",
    "rating_pairs": "judgments.frames.agreement",
    "report": "reports.assembly",
    "retrieve": "retrieval.frames",
    "roll_up": "history.frames.roll_up",
    "score_losses": "diagnosis.frames",
    "score_queries": "evaluation.frames.scoring",
    "shift_of_means": "diagnosis.frames",
    "add_package_to_workers": "core.shipping",
    "summarize": "evaluation.frames.summary",
    "summarize_losses": "diagnosis.frames",
    "summarize_rankings": "evaluation.frames.summary",
    "with_query_folds": "ml",
    "write_night": "tables.nights",
}

__all__ = [
    "PRESETS",
    "Columns",
    "ComparisonSettings",
    "Convention",
    "Evaluation",
    "EvaluationSettings",
    "EventColumns",
    "EventSettings",
    "FlagSettings",
    "ImpressionColumns",
    "LinkSettings",
    "NdcgEvaluator",
    "PropensitySettings",
    "RatingColumns",
    "RatingSettings",
    "Report",
    "ReportLimits",
    "RetrievalSettings",
    "RollUpSettings",
    "WeightSettings",
    "__version__",
    "add_package_to_workers",
    "business_link",
    "changed_queries",
    "compare",
    "dcg",
    "disputed_items",
    "evaluate",
    "evaluation_settings",
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
    "propensity_table",
    "rank_by_retrieval",
    "rank_queries",
    "rank_rows",
    "rating_agreement",
    "rating_pairs",
    "readable_errors",
    "report",
    "retrieve",
    "roll_up",
    "score_losses",
    "score_queries",
    "shift_of_means",
    "summarize",
    "summarize_losses",
    "summarize_rankings",
    "with_query_folds",
    "write_night",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
