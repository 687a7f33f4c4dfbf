"""Many nights: weeks, months, and nights far from what was usual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.history.frames import flag_changes as flag_changes
    from ndcg_spark.history.frames import roll_up as roll_up
    from ndcg_spark.history.settings import FlagSettings as FlagSettings
    from ndcg_spark.history.settings import RollUpSettings as RollUpSettings
else:
    __getattr__, __dir__ = export_names(
        __name__,
        frames="flag_changes roll_up",
        settings="FlagSettings RollUpSettings",
    )
    __all__ = __dir__()
