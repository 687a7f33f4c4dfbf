"""Ranking metrics compared with clicks and conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.business.frames import business_link as business_link
    from ndcg_spark.business.settings import LinkSettings as LinkSettings
else:
    __getattr__, __dir__ = export_names(
        __name__,
        frames="business_link",
        settings="LinkSettings",
    )
    __all__ = __dir__()
