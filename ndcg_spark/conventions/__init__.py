"""Conventions: every choice that changes an NDCG value, and the named sets that reproduce other tools."""

from ndcg_spark.conventions.convention import ABOUT, CHOICES, PRESETS, TIE_GROUP_RULES, Convention

__all__ = ["ABOUT", "CHOICES", "PRESETS", "TIE_GROUP_RULES", "Convention"]
