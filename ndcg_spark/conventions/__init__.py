"""Conventions: every choice that changes an NDCG value, and the named sets that reproduce other tools."""

from ndcg_spark.conventions.convention import CHOICES, TIE_GROUP_RULES, Convention
from ndcg_spark.conventions.presets import ABOUT, PRESETS

__all__ = ["ABOUT", "CHOICES", "PRESETS", "TIE_GROUP_RULES", "Convention"]
