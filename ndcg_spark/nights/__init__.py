"""Nights: the jobs listed in a file, run one after another.

`steps` reads the file into job requests, `work` runs them in one session, `results` holds how each ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.nights.api import nightly as nightly
    from ndcg_spark.nights.results import StepResult as StepResult
else:
    __getattr__, __dir__ = export_names(__name__, api="nightly", results="StepResult")
    __all__ = __dir__()
