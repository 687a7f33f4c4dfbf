"""The work of compare-runs on Spark. It runs actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from ndcg_spark.comparison.differences import STAMPS, CompareRunsBase, Row
from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
from ndcg_spark.comparison.settings import ComparisonJobSettings, ComparisonSettings
from ndcg_spark.comparison.spark_results import SparkQueries, compare_tables
from ndcg_spark.comparison.tables import QueryTable, Tables
from ndcg_spark.core.workers import collect, raise_refusals
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.evaluation.work import RankingWork
from ndcg_spark.jobs.outputs import add_provenance
from ndcg_spark.jobs.runner import Job
from ndcg_spark.tables.slices import Frame


class CompareRuns(RankingWork[ComparisonJobSettings], CompareRunsBase):
    """Compares runs on Spark."""

    def __init__(self, job: Job[ComparisonJobSettings]) -> None:
        super().__init__(job)
        self._replicated: DataFrame | None = None
        if self.settings.rankings is not None:
            self.open(self.settings.rankings)

    def input_names(self) -> tuple[str, str]:
        if self.ranked:
            return self.input_name, self.input_name
        name = self.tables["per_query"].name
        return name, self.tables.get("baseline_per_query", self.tables["per_query"]).name

    def query_tables(self) -> list[QueryTable]:
        if self.ranked:
            return [SparkQueries(Evaluation(settings=self.fitted, ranking=self.ranking))]
        sources = ("per_query", "baseline_per_query")
        return [SparkQueries(self.tables[source].frame) for source in sources if source in self.tables]

    def compare(self, tables: Tables, settings: ComparisonSettings) -> list[Row]:
        """Run an action. Replicates are large, so they are written by the workers and never collected."""
        frame = compare_tables(tables, settings)
        if settings.keep_replicates and self.job.is_requested("output"):
            self.job.persist(frame)
            self._replicated = raise_refusals(frame).select(*COMPARISON_SCHEMA.names)
        return [row.asDict() for row in collect(frame.drop("replicates"))]

    def comparison_table(self, rows: list[Row], facts: Mapping[str, Any]) -> Frame:
        frame = self._replicated
        if frame is None:
            values = [tuple(map(row.get, COMPARISON_SCHEMA.names)) for row in rows]
            frame = self.job.spark.createDataFrame(values, COMPARISON_SCHEMA)
        return add_provenance(frame, facts, STAMPS).coalesce(1)

    def strategy(self) -> str:
        return self.describe_strategy()

    def cost(self, settings: ComparisonSettings) -> str:
        shuffles = "two shuffles" if settings.cluster else "one shuffle"
        return f"{shuffles} of the metrics of queries, three small ones of sums"

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        return super().check_rows(originals=originals) if self.ranked else {}

    def add_hint(self, message: str) -> str:
        return super().add_hint(message) if self.ranked else message
