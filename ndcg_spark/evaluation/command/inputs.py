"""The tables a job reads, and the columns they turn out to have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames.canonical import array_rows, judgment_rows, run_rows
from ndcg_spark.evaluation.frames.checks import checked_rows
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.query_rows import canonical_names
from ndcg_spark.evaluation.tasks.valid_rows import RowRules
from ndcg_spark.jobs.config import Source
from ndcg_spark.metrics.normalized_gain import GAINS
from ndcg_spark.sources.formats import Table, read_table


class Asked(Protocol):
    """What a job is asked to rank."""

    @property
    def source(self) -> Source:
        """The main table."""

    @property
    def judgments(self) -> Source | None:
        """Relevances, if they are a table of their own."""

    @property
    def plan(self) -> EvaluationPlan:
        """How it is evaluated."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was read, the plan that fits it, and how it is ranked."""

    table: Table
    judgments: Table | None
    items: Table | None
    interactions: Table | None
    plan: EvaluationPlan

    @property
    def name(self) -> str:
        """Identity of the input, for the metric table."""
        judged = f" judged by {self.judgments.name}" if self.judgments else ""
        share = f", {self.plan.sample:g} of the queries" if self.plan.sample < 1 else ""
        return f"{self.table.name}{judged}{share}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are read."""
        found = (self.table, self.judgments, self.items, self.interactions)
        return tuple(table for table in found if table is not None)

    @cached_property
    def ranking(self) -> Ranking:
        """Strategy and source; found once."""
        judgments = self.judgments
        return choose_ranking(
            self.table.frame,
            self.plan,
            judgments=judgments.frame if judgments else None,
            items=self.items.frame if self.items else None,
            interactions=self.interactions.frame if self.interactions else None,
            path=self.table.path,
            parse_text=self.table.parse_text,
            parse_judgment_text=judgments.parse_text if judgments else False,
        )

    @cached_property
    def rankings(self) -> DataFrame:
        """Lazy rankings of every query; Spark takes a while to analyse them."""
        return self.ranking.rankings()

    def count(self) -> int:
        """Run an action: count the rows of the main table; those with several scores once for each."""
        plan, table = self.plan, self.table
        if self.ranking.strategy == "arrays":
            return array_rows(table.frame, plan).count()
        rows = run_rows(table.frame, plan, judged=self.judgments is None, parse_text=table.parse_text)
        return rows.count() * max(1, len(canonical_names(plan).scores))

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad, by the name of their table; lazy. See `checked_rows`."""
        table, plan = self.table, self.plan
        if self.ranking.strategy == "arrays":
            return {"input": checked_rows(array_rows(table.frame, plan, original=originals), RowRules(plan))}
        rows = run_rows(
            table.frame, plan, judged=self.judgments is None, parse_text=table.parse_text, original=originals
        )
        found = {"input": checked_rows(rows, RowRules(plan))}
        if self.judgments is not None:
            judged = judgment_rows(
                self.judgments.frame, plan, parse_text=self.judgments.parse_text, original=originals
            )
            found["judgments"] = checked_rows(judged, RowRules(plan, judgments=True))
        return found


def read_inputs(
    spark: SparkSession, config: Asked, *, items: Source | None = None, interactions: Source | None = None
) -> Inputs:
    """Open the tables of a job. Reads schemas, runs no action.

    A `rank` column is used when no rank column was named, there is one, and there is no score.
    """
    table = _read(spark, config.source)
    others = {"judgments": config.judgments, "items": items, "interactions": interactions}
    found = {name: _read(spark, source) if source else None for name, source in others.items()}
    plan = config.plan
    names = table.frame.columns
    has_score = any(name in names for name in plan.columns.score)
    if (
        not has_score
        and plan.columns.rank not in names
        and {"k", *(one.column for one in GAINS), "status"} <= set(names)
    ):
        raise InputRefusedError(
            f"--input {config.source.reference!r} is a per-query table (metrics of queries), not rankings; "
            "compare-runs reads it by --per-query."
        )
    if plan.columns.rank is None and "rank" in names and not has_score:
        plan = replace(plan, columns=replace(plan.columns, rank="rank"))
    return Inputs(table=table, plan=plan, **found)


def _read(spark: SparkSession, source: Source) -> Table:
    return read_table(spark, source.reference, source.kind, source.options)
