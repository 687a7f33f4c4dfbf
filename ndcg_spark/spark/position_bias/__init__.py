"""Clicks corrected for the position at which items were shown."""

from ndcg_spark.spark.position_bias.estimates import inverse_propensity_estimates, merge_estimates
from ndcg_spark.spark.position_bias.labels import judgments_from_impressions
from ndcg_spark.spark.position_bias.propensities import fit_propensities, propensity_table

__all__ = [
    "fit_propensities",
    "inverse_propensity_estimates",
    "judgments_from_impressions",
    "merge_estimates",
    "propensity_table",
]
