"""The work of the command `retrieve`. Only `run` runs actions."""

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
from ndcg_spark.retrieval.frames import list_labelled_items, rank_corpus, retrieve_items
from ndcg_spark.retrieval.settings import RetrievalJobSettings
from ndcg_spark.tables import Rows


class Retrieve(Work[RetrievalJobSettings]):
    """Retrieve items, and evaluate them if there are labels."""

    def __init__(self, job: Job[RetrievalJobSettings]) -> None:
        super().__init__(job)
        settings, evaluation = self.settings.retrieval, self.settings.evaluation
        queries, corpus = self.tables["queries"].frame, self.tables["corpus"].frame
        frames = {}
        if job.is_requested("rankings_output"):
            frames["rankings_output"] = retrieve_items(queries, corpus, settings, k=evaluation.max_k or 0)
        if job.is_requested("judgments_output"):
            frames["judgments_output"] = list_labelled_items(queries, corpus, settings)
        self.frames = {name: frame.withColumn("run", F.lit(settings.run)) for name, frame in frames.items()}
        self.per_query: DataFrame | None = None
        if self.settings.evaluates:
            self.per_query = score_queries(rank_corpus(queries, corpus, settings, evaluation), evaluation)

    def schemas(self) -> Mapping[str, T.StructType]:
        columns_by_output = {output: frame.schema for output, frame in self.frames.items()} | {
            "output": METRIC_SCHEMA
        }
        if self.per_query is not None and self.job.is_requested("per_query_output"):
            columns_by_output["per_query_output"] = select_per_query_rows(
                self.per_query, self.settings.evaluation
            ).schema
        return columns_by_output

    def run(self) -> Outcome:
        """Run an action if there are labels: search and score. Outputs are searched again when they are written."""
        runs, summary = [self.settings.retrieval.run], []
        if self.per_query is not None:
            if self.job.is_requested("per_query_output"):
                self.job.persist(self.per_query)
            with self.job.step("searching and scoring"):
                rows = [row.asDict() for row in summarize(self.per_query, self.settings.evaluation).collect()]
            summary = sorted(rows, key=row_order)
        facts = self._facts(summary)
        tables = {
            output: Rows(
                frame=frame,
                slices=self.job.build_slices(runs, may_be_empty=runs if output == "judgments_output" else []),
            )
            for output, frame in self.frames.items()
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
        """Return means, counts of queries, and gates; empty if nothing was evaluated."""
        settings, evaluation = self.settings.retrieval, self.settings.evaluation
        queries: dict[str, int] = {}
        if self.settings.evaluates:
            overall = select_overall_rows(summary)
            statuses = ("no_relevant", "missing", "unjudged")
            uncounted = {name: sum(int(row[f"n_{name}"]) for row in overall) for name in statuses}
            queries = {"in_mean": sum(int(row["n_queries"]) for row in overall), **uncounted}
            if not queries["in_mean"]:
                reason = ", ".join(f"{n} {name}" for name, n in uncounted.items())
                raise InputRefusedError(f"no query counts in the mean ({reason}); nothing was written.")
        tables = self.tables
        return {
            "metrics": [{name: value for name, value in row.items() if name not in HIDDEN} for row in summary],
            "queries": queries,
            "gates": [result for gate in self.request.gates for result in gate.results(summary)],
            **self.build_provenance(
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
