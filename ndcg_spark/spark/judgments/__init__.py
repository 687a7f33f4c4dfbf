"""Judgments made from what users did, and from what annotators said."""

from ndcg_spark.spark.judgments.agreement import rating_agreement, rating_pairs
from ndcg_spark.spark.judgments.events import checked_events, judgments_from_events
from ndcg_spark.spark.judgments.ratings import checked_ratings, disputed_items, judgments_from_ratings

__all__ = [
    "checked_events",
    "checked_ratings",
    "disputed_items",
    "judgments_from_events",
    "judgments_from_ratings",
    "rating_agreement",
    "rating_pairs",
]
