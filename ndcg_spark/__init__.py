"""NDCG and its means on Apache Spark, and the judgments they need.

What most users need is here; each feature has a package with the rest: `evaluation`, `comparison`, `diagnosis`,
`history`, `business`, `retrieval`, `judgments`, `clicks`, `functions`, `reports`, `nights`, `ml` and `mlflow`.

Every worker imports this module, so it is kept light: public names are looked up when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark._version import __version__
from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.comparison.api import compare
    from ndcg_spark.conventions import PRESETS, Convention
    from ndcg_spark.core.failures import readable_errors
    from ndcg_spark.core.workers import add_package_to_workers
    from ndcg_spark.evaluation.api import evaluate
    from ndcg_spark.evaluation.difference import explain_difference
    from ndcg_spark.evaluation.merging import merge_summaries
    from ndcg_spark.functions.arrays import dcg, ndcg
    from ndcg_spark.nights.api import nightly
    from ndcg_spark.reports.api import report
    from ndcg_spark.retrieval.frames import retrieve
    from ndcg_spark.sources.api import read_table
    from ndcg_spark.tables.nights import write_night
else:
    __getattr__, _listed = export_names(
        __name__,
        rooms="business clicks comparison diagnosis errors evaluation functions history judgments ml mlflow nights "
        "reports retrieval",
        comparison__api="compare",
        conventions="Convention PRESETS",
        core__failures="readable_errors",
        core__workers="add_package_to_workers",
        evaluation__api="evaluate",
        evaluation__difference="explain_difference",
        evaluation__merging="merge_summaries",
        functions__arrays="dcg ndcg",
        nights__api="nightly",
        reports__api="report",
        retrieval__frames="retrieve",
        sources__api="read_table",
        tables__nights="write_night",
    )

    def __dir__() -> list[str]:
        return sorted([*_listed(), "__version__"])


__all__ = [
    "PRESETS",
    "Convention",
    "__version__",
    "add_package_to_workers",
    "compare",
    "dcg",
    "evaluate",
    "explain_difference",
    "merge_summaries",
    "ndcg",
    "nightly",
    "read_table",
    "readable_errors",
    "report",
    "retrieve",
    "write_night",
]
