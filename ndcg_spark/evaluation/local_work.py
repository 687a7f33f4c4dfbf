"""Work of mean-ndcg without Spark, and the base of commands that rank without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa

from ndcg_spark.core.row_counts import RowCount
from ndcg_spark.evaluation.local import LocalRanking, rank_locally, select_per_query_rows
from ndcg_spark.evaluation.local_rows import find_differing_columns, find_rejects
from ndcg_spark.evaluation.matching import read_top_items
from ndcg_spark.evaluation.means import Means, Row, add_option_advice, format_input_name, refuse_per_query_table
from ndcg_spark.evaluation.plan import RankingPlan
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.stored import METRIC_SCHEMA, PROVENANCE, SUMMARY_SCHEMA, build_per_query_schema
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.options import format_flag
from ndcg_spark.jobs.outputs import REJECT_SCHEMA, InputCounts, add_provenance_to_table
from ndcg_spark.jobs.runner import Job, Work
from ndcg_spark.sources.local import LocalTable, open_local
from ndcg_spark.tables.slices import Frame

S = TypeVar("S")


def open_sources(request: Request[Any]) -> dict[str, LocalTable] | str:
    """Open all tables that a job reads; or return in a clause why Spark has to read one."""
    tables: dict[str, LocalTable] = {}
    for label, source in request.sources.items():
        table = open_local(source.reference, source.kind, source.options, label=label)
        if isinstance(table, str):
            return table
        tables[label] = table
    return tables


def open_rankings(request: Request[Any], settings: EvaluationSettings) -> LocalRanking | str:
    """Open the tables and plan the ranking; or return in a clause why Spark has to rank."""
    joined = [format_flag(name) for name in request.sources if name not in ("input", "judgments")]
    if joined:
        return f"the table of {joined[0]} is joined in Spark"
    tables = open_sources(request)
    if isinstance(tables, str):
        return tables
    if "rejects" in request.targets:
        unread = [name for table in tables.values() for name in (*table.info.refused, *table.info.spellings)]
        if unread:
            return f"column {unread[0]!r} of bad rows can only be stored by Spark"
    refuse_per_query_table(tables["input"].info, settings, request.sources["input"].reference)
    shared = request.shared
    return rank_locally(tables, settings, processes=shared.processes, memory=shared.memory)


class LocalRankingWork(Work[S]):
    """Base of commands that rank with processes of this machine."""

    ranking: LocalRanking

    @property
    def input_name(self) -> str:
        return format_input_name(self.ranking.tables["input"], self.ranking.tables.get("judgments"), self.fitted)

    @property
    def fitted(self) -> EvaluationSettings:
        return self.ranking.fitted

    @property
    def plan(self) -> RankingPlan:
        return self.ranking.plan

    def sources(self) -> tuple[str, str]:
        n, counts = self.ranking.n_processes, self.fitted.on_invalid == "reject"
        who = f"{n} processes" if n > 1 else "this process"
        passes = "two passes" if counts else "one pass"
        why = ", the second one to count bad rows" if counts else ""
        return f"{self.ranking.source}: {self.ranking.reason}", f"{passes} over the files by {who}{why}"

    def count_rows(self, all_valid: int | None = None) -> dict[str, RowCount]:
        """Count the rows of each table, and the bad ones. Reads the tables."""
        return self.ranking.count_bad_rows()

    def check_originals(self) -> None:
        """Rows are kept as JSON, whatever they have."""

    def build_rejects(self, input_counts: InputCounts | None) -> pa.Table:
        """Return the bad rows. Reads the tables that have some."""
        rows = find_rejects(self.ranking, self.ranking.tables if input_counts is None else input_counts.with_rejects)
        return rows.append_column("run", pa.repeat("", rows.num_rows)).cast(REJECT_SCHEMA)

    def add_hint(self, message: str) -> str:
        return add_option_advice(message, self.plan.others, lambda query: find_differing_columns(self.ranking, query))


class LocalMeanNdcg(LocalRankingWork[EvaluationSettings], Means):
    """Means per run and segment, by processes of this machine."""

    def __init__(self, job: Job[EvaluationSettings]) -> None:
        super().__init__(job)
        self.ranking = job.engine.opened

    @staticmethod
    def open_tables(request: Request[EvaluationSettings]) -> LocalRanking | str:
        return open_rankings(request, request.settings)

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Return the schemas of the metric table and, if requested, of the per-query table."""
        table_schemas = {"output": METRIC_SCHEMA}
        if self.job.is_requested("per_query_output"):
            table_schemas["per_query_output"] = build_per_query_schema(
                self.plan.rankings_schema, self.ranking.settings
            ).append(METRIC_SCHEMA.field("computed_at"))
        return table_schemas

    def evaluate(self, *, per_query: bool) -> tuple[list[Row], Frame | None]:
        """Rank, score and sum. Reads the files once."""
        summary, queries = self.ranking.evaluate(per_query=per_query)
        rows: list[Row] = summary.select(SUMMARY_SCHEMA.names).to_pylist()
        if queries is None:
            return rows, None
        stored = select_per_query_rows(queries, self.ranking.settings)
        return rows, add_provenance_to_table(stored, {}, (), self.job.now)

    def check_matched(self, rows: list[Row]) -> list[str]:
        return self.ranking.check_matched(read_top_items(rows))

    def metric_table(self, summary: list[Row], facts: Mapping[str, Any]) -> Frame:
        return add_provenance_to_table(pa.Table.from_pylist(summary, SUMMARY_SCHEMA), facts, PROVENANCE, self.job.now)
