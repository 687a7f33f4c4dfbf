"""What `retrieve` does with its tables. What is called `run` runs actions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.labels import row_order
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames.summary import METRIC_SCHEMA, score_queries, select_per_query_rows, summarize
from ndcg_spark.evaluation.printed import format_query_counts, select_overall_rows, show_summary
from ndcg_spark.evaluation.tasks.scoring import list_uncounted_statuses
from ndcg_spark.evaluation.tasks.stored import HIDDEN
from ndcg_spark.evaluation.work import build_metric_table
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.retrieval.frames import labelled_items, ranked_corpus, retrieved_items
from ndcg_spark.retrieval.settings import RetrievalJobSettings
from ndcg_spark.tables import Rows


class Retrieve(Work[RetrievalJobSettings]):
    """Retrieve items, and evaluate them if there are labels."""

    def __init__(self, job: Job[RetrievalJobSettings]) -> None:
        super().__init__(job)
        settings, evaluation = self.settings.retrieval, self.settings.evaluation
        queries, corpus = self.tables["queries"].frame, self.tables["corpus"].frame
        found = {}
        if job.is_requested("rankings_output"):
            found["rankings_output"] = retrieved_items(queries, corpus, settings, k=evaluation.max_k or 0)
        if job.is_requested("judgments_output"):
            found["judgments_output"] = labelled_items(queries, corpus, settings)
        self.frames = {name: frame.withColumn("run", F.lit(settings.run)) for name, frame in found.items()}
        self.per_query: DataFrame | None = None
        if self.settings.evaluates:
            self.per_query = score_queries(ranked_corpus(queries, corpus, settings, evaluation), evaluation)

    def schemas(self) -> Mapping[str, T.StructType]:
        found = {name: frame.schema for name, frame in self.frames.items()} | {"output": METRIC_SCHEMA}
        if self.per_query is not None and self.job.is_requested("per_query_output"):
            found["per_query_output"] = select_per_query_rows(self.per_query, self.settings.evaluation).schema
        return found

    def run(self) -> Outcome:
        """Search and score, if there are labels: run an action. Named outputs are searched again when written."""
        runs, summary = [self.settings.retrieval.run], []
        if self.per_query is not None:
            if self.job.is_requested("per_query_output"):
                self.job.persist(self.per_query)
            with self.job.step("searching and scoring"):
                rows = [row.asDict() for row in summarize(self.per_query, self.settings.evaluation).collect()]
            summary = sorted(rows, key=row_order)
        facts = self._facts(summary)
        tables = {
            name: Rows(
                frame=frame, slices=self.job.build_slices(runs, empty=runs if name == "judgments_output" else [])
            )
            for name, frame in self.frames.items()
        }
        if self.per_query is not None:
            slices = self.job.build_slices(runs)
            tables["output"] = Rows(
                frame=build_metric_table(self.job.spark, summary, facts, self.job.now), slices=slices
            )
            queries = select_per_query_rows(self.per_query, self.settings.evaluation)
            tables["per_query_output"] = Rows(frame=queries, slices=slices)
        return Outcome(facts=facts, tables=tables, lines=self._lines(facts))

    def _facts(self, summary: list[dict[str, Any]]) -> dict[str, Any]:
        """Means, counts of queries, and gates; none if nothing was evaluated."""
        settings, evaluation = self.settings.retrieval, self.settings.evaluation
        queries: dict[str, int] = {}
        if self.settings.evaluates:
            overall = select_overall_rows(summary)
            names = ("no_relevant", "missing", "unjudged")
            counted = {name: sum(int(row[f"n_{name}"]) for row in overall) for name in names}
            queries = {"in_mean": sum(int(row["n_queries"]) for row in overall), **counted}
            if not queries["in_mean"]:
                why = ", ".join(f"{n} {name}" for name, n in counted.items())
                raise InputRefusedError(f"no query counts in the mean ({why}); nothing was written.")
        tables = self.tables
        return {
            "metrics": [{name: value for name, value in row.items() if name not in HIDDEN} for row in summary],
            "queries": queries,
            "gates": [result for gate in self.request.gates for result in gate.results(summary)],
            **self.stamp(
                metric=settings.metric,
                convention=str(evaluation.convention),
                config_hash=hashlib.sha256(f"{evaluation.digest} {settings.digest}".encode()).hexdigest()[:16],
                rules=evaluation.rules_of_means,
                input=f"{tables['queries'].name} by {settings.metric} in {tables['corpus'].name}",
            ),
        }

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        if self.settings.evaluates:
            yield lambda: show_summary(facts["metrics"])
            evaluation = self.settings.evaluation
            yield format_query_counts(facts["queries"], evaluation, list_uncounted_statuses(evaluation.convention))
