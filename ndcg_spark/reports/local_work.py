"""The work of the `report` job without Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

from ndcg_spark.evaluation.local_work import open_sources
from ndcg_spark.jobs.command import Request
from ndcg_spark.reports import local_reading, reading
from ndcg_spark.reports.assembly import Report, build_report
from ndcg_spark.reports.reading import NightTables
from ndcg_spark.reports.settings import QUERY_TEXT, ReportJobSettings
from ndcg_spark.reports.work import DrawReport
from ndcg_spark.sources.local import LocalTable

_COLUMNS = {"metrics": reading.METRICS, "comparison": reading.COMPARISONS, "flags": reading.FLAGS}


class LocalDrawReport(DrawReport):
    """Draw the page of a night from tables that this process reads."""

    @staticmethod
    def open_tables(request: Request[ReportJobSettings]) -> dict[str, LocalTable] | str:
        """Open the tables; or return in a clause why Spark has to read one."""
        tables = open_sources(request)
        if isinstance(tables, str):
            return tables
        obstacles = [local_reading.find_obstacle(tables[name], _COLUMNS[name]) for name in _COLUMNS if name in tables]
        if "per_query" in tables:
            obstacles.append(local_reading.find_queries_obstacle(tables["per_query"]))
        if "query_texts" in tables:
            obstacles.append(local_reading.find_texts_obstacle(tables["query_texts"]))
        return next(filter(None, obstacles), tables)

    def build_report(self, **options: Any) -> Report:
        tables: dict[str, LocalTable] = self.job.engine.opened
        comparison, flags = tables.get("comparison"), tables.get("flags")
        per_query, texts = tables.get("per_query"), tables.get("query_texts")
        column = self.settings.query_text_col or QUERY_TEXT
        night_tables = NightTables(
            metrics=local_reading.LocalMetrics(tables["metrics"]),
            queries=None if per_query is None else partial(local_reading.LocalQueries, per_query),
            comparison=None if comparison is None else local_reading.LocalComparisons(comparison),
            flags=None if flags is None else local_reading.LocalFlags(flags),
            texts=None if texts is None else local_reading.LocalTexts(texts, column),
        )
        return build_report(night_tables, **options)
