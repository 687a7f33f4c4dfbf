"""Judgments from events and from the ratings of annotators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.judgments.frames import from_events as from_events
    from ndcg_spark.judgments.frames import from_ratings as from_ratings
    from ndcg_spark.judgments.frames import rating_agreement as rating_agreement
    from ndcg_spark.judgments.settings import EventColumns as EventColumns
    from ndcg_spark.judgments.settings import EventSettings as EventSettings
    from ndcg_spark.judgments.settings import RatingColumns as RatingColumns
    from ndcg_spark.judgments.settings import RatingSettings as RatingSettings
else:
    __getattr__, __dir__ = export_names(
        __name__,
        frames="from_events from_ratings rating_agreement",
        settings="EventColumns EventSettings RatingColumns RatingSettings",
    )
    __all__ = __dir__()
