"""Reports of metric tables: one HTML page, and its figures.

`sections` and `queries` read a bounded number of rows through `reading`, by Spark or without; `contents.read` turns
them into values; `sentences` describes them; `figures` and `page` draw them. Texts in tables are not trusted:
`contents.read` removes control characters, and every output escapes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.reports.api import report as report
    from ndcg_spark.reports.assembly import Report as Report
    from ndcg_spark.reports.settings import ReportLimits as ReportLimits
else:
    __getattr__, __dir__ = export_names(
        __name__,
        api="report",
        assembly="Report",
        settings="ReportLimits",
    )
    __all__ = __dir__()
