"""The work of compare-runs without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndcg_spark.comparison.differences import STAMPS, CompareRunsBase, Row
from ndcg_spark.comparison.local import EvaluatedQueries, StoredQueries, compare_locally
from ndcg_spark.comparison.plan import find_local_obstacle
from ndcg_spark.comparison.settings import ComparisonJobSettings, ComparisonSettings
from ndcg_spark.comparison.tables import QueryTable, Tables
from ndcg_spark.comparison.tasks.finishing import RESULT_SCHEMA
from ndcg_spark.comparison.tasks.pairing import RUN
from ndcg_spark.core.row_counts import RowCount
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.evaluation.local import LocalRanking
from ndcg_spark.evaluation.local_work import LocalRankingWork, open_rankings, open_sources
from ndcg_spark.evaluation.results import LocalEvaluation
from ndcg_spark.evaluation.settings import parse_segment_sets
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.outputs import add_provenance_to_table
from ndcg_spark.jobs.runner import Job
from ndcg_spark.sources.local import LocalTable
from ndcg_spark.sources.slices import DATASET, RUN_DATE
from ndcg_spark.tables.slices import Frame


class LocalCompareRuns(LocalRankingWork[ComparisonJobSettings], CompareRunsBase):
    """Compares runs in this process; rankings are evaluated by processes of this machine."""

    def __init__(self, job: Job[ComparisonJobSettings]) -> None:
        super().__init__(job)
        self._opened: dict[str, LocalTable] = {}
        if self.ranked:
            self.ranking = job.engine.opened
        else:
            self._opened = job.engine.opened

    @staticmethod
    def open_tables(request: Request[ComparisonJobSettings]) -> LocalRanking | dict[str, LocalTable] | str:
        """Open rankings or per-query tables, or return the reason why Spark has to read them."""
        settings = request.settings
        if settings.rankings is not None:
            ranking = open_rankings(request, settings.rankings)
            if isinstance(ranking, str):
                return ranking
            info, query = TableInfo(schema=ranking.per_query_schema), ranking.fitted.columns.query
            return find_local_obstacle([info], query, settings.chosen.cluster, ()) or ranking
        tables = open_sources(request)
        if isinstance(tables, str):
            return tables
        run_column = settings.run_column
        if run_column != RUN and (len(tables) > 1 or tables["per_query"].info.has(run_column)):
            return f"the run column of --per-query is not {RUN!r}"
        infos, options = [table.info for table in tables.values()], settings.of_queries
        segments = [column for columns in parse_segment_sets(options["segments"]) for column in columns]
        return (
            find_local_obstacle(infos, (*options["query"], RUN_DATE, DATASET), settings.chosen.cluster, segments)
            or tables
        )

    def input_names(self) -> tuple[str, str]:
        if self.ranked:
            return self.input_name, self.input_name
        first, *others = (table.name for table in self._opened.values())
        return first, others[0] if others else first

    def query_tables(self) -> list[QueryTable]:
        if self.ranked:
            return [EvaluatedQueries(LocalEvaluation(settings=self.fitted, ranking=self.ranking, inputs={}))]
        return [StoredQueries(table) for table in self._opened.values()]

    def compare(self, tables: Tables, settings: ComparisonSettings) -> list[Row]:
        self._table = compare_locally(tables, settings)
        rows: list[Row] = self._table.drop_columns(["replicates"]).to_pylist()
        return rows

    def comparison_table(self, rows: list[Row], facts: Mapping[str, Any]) -> Frame:
        return add_provenance_to_table(self._table.select(RESULT_SCHEMA.names), facts, STAMPS)

    def strategy(self) -> str:
        return f"{self.ranking.strategy}, {self.sources()[0]}"

    def cost(self, settings: ComparisonSettings) -> str:
        return "one pass over the metrics of queries by this process"

    def count_rows(self, all_valid: int | None = None) -> dict[str, RowCount]:
        return super().count_rows(all_valid) if self.ranked else {}

    def add_hint(self, message: str) -> str:
        return super().add_hint(message) if self.ranked else message
