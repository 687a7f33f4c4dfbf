"""Clicks corrected for the position at which items were shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.clicks.frames import fit_propensities as fit_propensities
    from ndcg_spark.clicks.frames import inverse_propensity_estimates as inverse_propensity_estimates
    from ndcg_spark.clicks.frames import judgments_from_impressions as judgments_from_impressions
    from ndcg_spark.clicks.frames import merge_estimates as merge_estimates
    from ndcg_spark.clicks.settings import ImpressionColumns as ImpressionColumns
    from ndcg_spark.clicks.settings import PropensitySettings as PropensitySettings
    from ndcg_spark.clicks.settings import WeightSettings as WeightSettings
else:
    __getattr__, __dir__ = export_names(
        __name__,
        frames="fit_propensities inverse_propensity_estimates judgments_from_impressions merge_estimates",
        settings="ImpressionColumns PropensitySettings WeightSettings",
    )
    __all__ = __dir__()
