"""Diagnosis: where and why means differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.diagnosis.api import changed_queries as changed_queries
    from ndcg_spark.diagnosis.frames import score_losses as score_losses
    from ndcg_spark.diagnosis.frames import shift_of_means as shift_of_means
    from ndcg_spark.diagnosis.frames import summarize_losses as summarize_losses
else:
    __getattr__, __dir__ = export_names(
        __name__,
        api="changed_queries",
        frames="score_losses shift_of_means summarize_losses",
    )
    __all__ = __dir__()
