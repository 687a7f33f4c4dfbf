"""Runs held against each other over the same queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.comparison.api import compare as compare
    from ndcg_spark.comparison.results import LocalComparison as LocalComparison
    from ndcg_spark.comparison.settings import ComparisonSettings as ComparisonSettings
    from ndcg_spark.comparison.spark_results import Comparison as Comparison
else:
    __getattr__, __dir__ = export_names(
        __name__,
        api="compare",
        results="LocalComparison",
        spark_results="Comparison",
        settings="ComparisonSettings",
    )
    __all__ = __dir__()
