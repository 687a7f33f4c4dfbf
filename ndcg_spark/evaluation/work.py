"""Work of mean-ndcg and explain-difference with Spark. Methods named `run` start actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import describe_table
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.core.workers import collect, raise_refusals
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation import printed
from ndcg_spark.evaluation.difference import list_steps
from ndcg_spark.evaluation.explanation import explain_on_spark
from ndcg_spark.evaluation.frames.duplicates import find_differing_columns
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking
from ndcg_spark.evaluation.frames.summary import (
    METRIC_SCHEMA,
    SUMMARY_SCHEMA,
    build_per_query_schema,
    select_per_query_rows,
)
from ndcg_spark.evaluation.matching import read_top_items
from ndcg_spark.evaluation.means import Means, Row, add_option_advice, format_input_name, refuse_per_query_table
from ndcg_spark.evaluation.plan import RankingPlan, fit_settings, require_query
from ndcg_spark.evaluation.settings import DifferenceJobSettings, EvaluationSettings
from ndcg_spark.evaluation.tasks.stored import PROVENANCE
from ndcg_spark.jobs.outputs import add_provenance
from ndcg_spark.jobs.runner import Job, Outcome, Work
from ndcg_spark.tables.slices import Frame


def build_metric_table(
    spark: SparkSession, summary: list[dict[str, Any]], facts: Mapping[str, Any], now: datetime
) -> DataFrame:
    """Build the metric table; lazy."""
    values = [tuple(row[column] for column in SUMMARY_SCHEMA.fieldNames()) for row in summary]
    return add_provenance(spark.createDataFrame(values, SUMMARY_SCHEMA), facts, PROVENANCE, now).coalesce(1)


S = TypeVar("S")
MAX_LISTED_QUERIES = 10


class RankingWork(Work[S]):
    """Base of commands that rank with Spark."""

    by_query = True
    """True if a query column is required, which rows of lists may lack."""
    _fitted: EvaluationSettings

    def open(self, settings: EvaluationSettings) -> None:
        """Fit settings to the opened tables, from their schemas."""
        info = describe_table(self.tables["input"].frame)
        refuse_per_query_table(info, settings, self.request.sources["input"].reference)
        self._fitted = fit_settings(info, settings)
        if self.by_query:
            require_query(self._fitted)

    @property
    def fitted(self) -> EvaluationSettings:
        return self._fitted

    @property
    def input_name(self) -> str:
        return format_input_name(self.tables["input"], self.tables.get("judgments"), self.fitted)

    @cached_property
    def ranking(self) -> Ranking:
        """Strategy and source; planned once."""
        frames = {name: table.frame for name, table in self.tables.items()}
        return choose_ranking(
            frames["input"],
            self.fitted,
            judgments=frames.get("judgments"),
            items=frames.get("items"),
            interactions=frames.get("interactions"),
            path=self.tables["input"].path,
        )

    @property
    def plan(self) -> RankingPlan:
        return self.ranking.plan

    @cached_property
    def rankings(self) -> DataFrame:
        """Lazy rankings of every query; Spark takes a while to analyse them."""
        return self.ranking.rankings()

    def describe_strategy(self) -> str:
        """Describe the strategy and the reader, for `--explain`."""
        return f"{self.ranking.strategy}, read by {self.ranking.source}: {self.ranking.reason}"

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        """Return the reasons why rows are bad, by the name of their table; lazy."""
        return self.ranking.report_bad_rows(originals=originals)

    def add_hint(self, message: str) -> str:
        return add_option_advice(message, self.plan.others, self._try_find_differing)

    def _try_find_differing(self, query: str) -> Sequence[str] | None:
        """Find columns in which rows of a query differ, by a scan; None without rows, or if the scan fails."""
        with suppress(*SPARK_ERRORS):
            return find_differing_columns(self.tables["input"].frame, self.fitted, query)
        return None


class MeanNdcg(RankingWork[EvaluationSettings], Means):
    """Means per run and segment, by Spark."""

    by_query = False

    def __init__(self, job: Job[EvaluationSettings]) -> None:
        super().__init__(job)
        self.open(self.settings)

    def schemas(self) -> Mapping[str, T.StructType]:
        """Return the schemas of the metric table and, if requested, of the per-query table (slow to analyse)."""
        schemas_by_output = {"output": METRIC_SCHEMA}
        if self.job.is_requested("per_query_output"):
            queries = build_per_query_schema(self.rankings, self.fitted)
            schemas_by_output["per_query_output"] = queries.add("computed_at", "timestamp")
        return schemas_by_output

    def sources(self) -> tuple[str, str]:
        settings, ranking = self.fitted, self.ranking
        n_outputs = sum(name in self.request.targets for name in ("output", "per_query_output", "rejects"))
        # More actions may count bad rows by reason and rows of catalog tables, and write the run log.
        n_counts = 0 if settings.on_invalid != "reject" else 2 if "judgments" in self.tables else 1
        # If a per-query table is written, means are computed from it.
        costs = ranking.costs(means_only=not self.job.is_requested("per_query_output"))
        actions = 1 + n_outputs + n_counts
        cost = f"{'; '.join(costs)}; at least {actions} action{'s' if actions > 1 else ''}"
        return "; ".join([f"{ranking.source}: {ranking.reason}", *filter(None, [ranking.advice])]), cost

    def evaluate(self, *, per_query: bool) -> tuple[list[Row], Frame | None]:
        """Run an action. Per-query metrics are persisted, and their table is lazy."""
        queries = self.ranking.per_query(rejected=True, keep_refusals=True) if per_query else None
        if queries is not None:
            self.job.persist(queries)
        rows = [row.asDict() for row in collect(self.ranking.summary(queries, keep_refusals=True))]
        if queries is None:
            return rows, None
        return rows, add_provenance(select_per_query_rows(raise_refusals(queries), self.fitted), {}, (), self.job.now)

    def run(self) -> Outcome:
        """Rank, score and sum by one action, and one more to count bad rows if any."""
        if self.ranking.fell_back:
            self.job.log(f"read by Spark: {self.ranking.reason}")
        return super().run()

    def check_matched(self, rows: list[Row]) -> list[str]:
        return check_matched(read_top_items(rows), self.ranking)

    def count_all(self) -> int | None:
        return self.ranking.count()

    def metric_table(self, summary: list[Row], facts: Mapping[str, Any]) -> Frame:
        return build_metric_table(self.job.spark, summary, facts, self.job.now)


class ExplainDifference(RankingWork[DifferenceJobSettings]):
    """Explain why another convention gives another mean."""

    def __init__(self, job: Job[DifferenceJobSettings]) -> None:
        super().__init__(job)
        self.open(self.settings.evaluation)

    def run(self) -> Outcome:
        """Evaluate each step, and find the queries with the largest contributions. Runs two actions."""
        judgments = self.tables.get("judgments")
        steps = list_steps(self.fitted, self.settings.to)
        explanation = explain_on_spark(
            self.tables["input"].frame, steps, judgments=judgments.frame if judgments else None
        )
        with self.job.step("evaluating each step"):
            rows = [row.asDict() for row in explanation.steps.orderBy("run", "step").collect()]
            largest = explanation.queries.orderBy(F.abs("contribution").desc(), *self.fitted.columns.query)
            queries = [row.asDict() for row in largest.limit(MAX_LISTED_QUERIES).collect()]
        if not any(row["n_queries"] for row in rows):
            raise InputRefusedError("no query has a mean that could be explained.")
        return Outcome(
            facts={"steps": rows, "queries": queries}, lines=(lambda: printed.show_difference(rows, queries),)
        )
