"""Exact retrieval by vectors and binary codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.retrieval.frames import judgments_from_labels as judgments_from_labels
    from ndcg_spark.retrieval.frames import rank_by_retrieval as rank_by_retrieval
    from ndcg_spark.retrieval.frames import retrieve as retrieve
    from ndcg_spark.retrieval.settings import RetrievalSettings as RetrievalSettings
else:
    __getattr__, __dir__ = export_names(
        __name__,
        frames="judgments_from_labels rank_by_retrieval retrieve",
        settings="RetrievalSettings",
    )
    __all__ = __dir__()
