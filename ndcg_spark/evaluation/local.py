"""A plan carried out without Spark: parts of tables are read, ranked and summed in processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import BatchFunction
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.evaluation.plan import ARRAYS, ENGINE, RankingPlan, fit_settings, plan_ranking
from ndcg_spark.evaluation.plan_columns import TablePlan
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings, ItemColumns
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.complete_queries import FilesTask, send_complete
from ndcg_spark.evaluation.tasks.exchange import merge_and_add_up, merge_rankings, send_judgments, send_rows
from ndcg_spark.evaluation.tasks.list_rankings import rank_arrays, rank_lists
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.partial_sums import (
    PARTIAL_SCHEMA,
    SummingTask,
    add_up,
    finish_means,
    merge_partials,
    score_and_add_up,
    summing_task,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, score_rankings, scoring_task
from ndcg_spark.local.messages import collect, merge, rows_in, send, shares
from ndcg_spark.local.pool import Job, Pool
from ndcg_spark.sources.local import LocalTable
from ndcg_spark.sources.parquet import PartSizes, bounds_between, parts_of, read_footers

BYTES_OF_A_PARTITION = 2**21
"""Bytes of files for each partition id: what is merged at once then fits a cache."""
BYTES_OF_A_PROCESS = 2**22
"""Bytes of files below which another process costs more than it brings."""
MOST_PARTITIONS = 2**12
BYTES_OF_A_SHARE = 2**26
"""Of messages, which a process merges at once."""
PARTS_OF_A_PROCESS, LARGEST_PART = 4, 2**28
_WORKERS_IMPORT = ("ndcg_spark.evaluation.local",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Processes at once, and bytes of memory for what they exchange; more goes to files."""

    processes: int
    memory: int

    @classmethod
    def of_machine(cls, processes: int | None = None, memory: int | None = None) -> Resources:
        """Take what is given, else all cores and a quarter of the memory."""
        if memory is None:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
        return cls(processes=processes or len(os.sched_getaffinity(0)), memory=memory)


def rank_locally(
    tables: Mapping[str, LocalTable],
    settings: EvaluationSettings,
    *,
    processes: int | None = None,
    memory: int | None = None,
) -> LocalRanking | str:
    """Decide how tables are ranked without Spark; or say in a clause why Spark has to do it.

    `tables` are `input` and perhaps `judgments`. Reads footers of Parquet files.
    """
    data, judgments = tables["input"], tables.get("judgments")
    settings = fitted = fit_settings(data.info, settings)
    if settings.columns.ranked and judgments is not None:
        return "lists beside a table of judgments become long tables in Spark"
    plan = plan_ranking(data.info, None if judgments is None else judgments.info, settings, fitted=True)
    obstacle = _obstacle(plan)
    if obstacle is not None:
        return obstacle
    resources = Resources.of_machine(processes, memory)
    rows = _task_of(data, plan.rows, resources, sorted_by=_sorted_by(plan))
    judged = None if plan.judgments is None or judgments is None else _task_of(judgments, plan.judgments, resources)
    for one in (rows, judged):
        if isinstance(one, str):
            return one
    assert isinstance(rows, FilesTask)
    assert not isinstance(judged, str)
    return LocalRanking(fitted=fitted, plan=plan, tables=tables, rows=rows, judged=judged, resources=resources)


def _obstacle(plan: RankingPlan) -> str | None:
    """Say in a clause why a plan needs Spark."""
    settings = plan.settings
    if plan.needs_spark is not None:
        return plan.needs_spark
    if plan.strategy not in (ARRAYS, ENGINE):
        return "strategy=window ranks in Spark"
    if settings.needs or settings.item_columns != ItemColumns():
        return "metrics of items are joined in Spark"
    if plan.strategy == ARRAYS and settings.check_duplicates == "all" and settings.columns.query:
        return "queries that come twice are looked for in Spark"
    if settings.source == "spark":
        return "source=spark was asked for"
    return None


def _sorted_by(plan: RankingPlan) -> str | None:
    """Name the column by which files may be sorted such that queries in them are complete."""
    columns = plan.settings.columns
    if plan.strategy == ENGINE and plan.judgments is None and len(columns.query) == 1 and columns.run is None:
        return plan.rows.columns["query_0"].source[0]
    return None


def _task_of(
    table: LocalTable, plan: TablePlan, resources: Resources, *, sorted_by: str | None = None
) -> FilesTask | str:
    """Divide a table into parts; or say in a clause why its files cannot be read here."""
    reads = [*plan.columns.values(), *(one for its in plan.runs.values() for one in its.values())]
    names = dict.fromkeys([*([] if sorted_by is None else [sorted_by]), *(one.source[0] for one in reads)])
    fields = {name: table.info.type_of(name) for name in [*names, *([MALFORMED] if plan.has_malformed else [])]}
    schema, wanted = pa.schema(fields), PARTS_OF_A_PROCESS * resources.processes
    if not table.files:
        return FilesTask(parts=table.parts(wanted), plan=plan, schema=schema)
    footers = read_footers(table.files, {name: name for name in schema.names}, schema)
    if isinstance(footers, str):
        return footers
    sizes = PartSizes(wanted=wanted, smallest=BYTES_OF_A_PROCESS, largest=LARGEST_PART)
    parts = parts_of([one.identity for one in footers], sizes)
    bounds = None if sorted_by is None else bounds_between(footers, parts)
    return FilesTask(parts=parts, plan=plan, schema=schema, bounds=bounds)


# ---------------------------------------------------------------------------------- what worker processes run


def _send_part(files: FilesTask, task: RankingTask, *of_means: ScoringTask | SummingTask) -> Iterator[pa.RecordBatch]:
    """Send the rows of the only part; with the tasks of means, complete queries are summed here."""
    if of_means and files.bounds is not None:
        return send_complete(iter([_FIRST]), files, task, *of_means)  # type: ignore[arg-type]
    return send_rows(files.read_part(0), task)


_FIRST = pa.RecordBatch.from_pydict({"number": [0]})


def _send_judged_part(files: FilesTask, task: RankingTask) -> Iterator[pa.RecordBatch]:
    return send_judgments(files.read_part(0), task)


def _rank_part(files: FilesTask, task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Rank rows that are a query each."""
    rank = rank_arrays if col.RANKED_LIST in files.plan.schema.names else rank_lists
    return rank(files.read_part(0), task)


def _score_part(files: FilesTask, task: RankingTask, scoring: ScoringTask) -> Iterator[pa.RecordBatch]:
    return score_rankings(_rank_part(files, task), scoring)


def _sum_part(
    files: FilesTask, task: RankingTask, scoring: ScoringTask, summing: SummingTask
) -> Iterator[pa.RecordBatch]:
    return score_and_add_up(_rank_part(files, task), scoring, summing)


def _merge_and_score(
    batches: Iterator[pa.RecordBatch], task: RankingTask, scoring: ScoringTask
) -> Iterator[pa.RecordBatch]:
    return score_rankings(merge_rankings(batches, task), scoring)


# ---------------------------------------------------------------------------------------------------- the steps


@dataclass(frozen=True, kw_only=True)
class LocalRanking:
    """How this machine carries a plan out; nothing has run. `fitted` are the settings that were asked for."""

    fitted: EvaluationSettings
    plan: RankingPlan
    tables: Mapping[str, LocalTable]
    rows: FilesTask
    judged: FilesTask | None
    resources: Resources

    @property
    def settings(self) -> EvaluationSettings:
        return self.plan.settings

    @property
    def strategy(self) -> str:
        return self.plan.strategy

    source = "local"

    @property
    def reason(self) -> str:
        """Why it is read so, in a clause for `--explain`."""
        if self.plan.strategy == ARRAYS:
            return self.plan.reason
        in_order = ", sorted by query" if self.rows.bounds else ""
        n = len(self.rows.parts)
        return f"{n:,} part{'s' * (n > 1)}{in_order}, {self.n_processes} process{'es' * (self.n_processes > 1)}"

    @property
    def n_bytes(self) -> int:
        return sum(table.n_bytes for table in self.tables.values())

    @cached_property
    def n_processes(self) -> int:
        return max(1, min(self.resources.processes, self.n_bytes // BYTES_OF_A_PROCESS))

    def summary(self) -> pa.Table:
        """Means of all metrics; see `summarize`. Runs."""
        task = self._task(counts_relevant=False)
        columns = [name for name in self.plan.rankings.names if name != "n_relevant"]  # of no use to means
        tasks = scoring_task(columns, self.settings), summing_task(self.settings)
        return self._finished(self._run(task, _sum_part, merge_and_add_up, tasks))

    def rankings(self, *, rejected: bool = False) -> pa.Table:
        """One row per query; see `rank_queries`. Runs. `rejected` adds counts of rejected rows, as for Spark."""
        task = self._task(counts_relevant=True)
        found = _table(self._run(task, _rank_part, merge_rankings, ()), self.plan.rankings)
        return found if rejected else _without_rejected(found)

    def per_query(self, *, rejected: bool = False) -> pa.Table:
        """Metrics of every query; see `score_queries`. Runs."""
        task, schema = self._task(counts_relevant=True), self.plan.rankings
        scoring = scoring_task(schema.names, self.settings)
        nothing = pa.RecordBatch.from_pylist([], schema=schema)
        kinds = next(score_rankings(iter([nothing]), scoring)).schema
        found = _table(self._run(task, _score_part, _merge_and_score, (scoring,)), kinds)
        if not rejected:
            found = _without_rejected(found)
        return found.append_column(RULES, pa.repeat(pa.scalar(self.settings.rules, pa.string()), found.num_rows))

    def evaluate(self, *, per_query: bool) -> tuple[pa.Table, pa.Table | None]:
        """Run once: the summary and, if wanted, metrics of every query with counts of rejected rows."""
        if not per_query:
            return self.summary(), None
        queries = self.per_query(rejected=True)
        task = summing_task(self.settings, queries.column_names)
        return self._finished(add_up(iter(queries.drop_columns([RULES]).to_batches()), task)), queries

    def _finished(self, partial: Iterable[pa.RecordBatch]) -> pa.Table:
        merged = merge_partials(_table(partial, PARTIAL_SCHEMA))
        means = pa.Table.from_batches(list(finish_means(iter([merged]), self.settings.confidence)))
        rules = pa.repeat(pa.scalar(self.settings.rules_of_means, pa.string()), means.num_rows)
        return means.append_column(RULES, rules)

    def _task(self, *, counts_relevant: bool) -> RankingTask:
        n = max(1, min(MOST_PARTITIONS, self.n_bytes // BYTES_OF_A_PARTITION))
        return replace(self.plan.task, n_partitions=n, counts_relevant=counts_relevant)

    def _run(
        self, task: RankingTask, of_part: BatchFunction, of_messages: BatchFunction, tasks: Sequence[Any]
    ) -> Iterator[pa.RecordBatch]:
        """Run a function over parts of rows that are a query each; else send rows, and merge what arrives."""
        with Pool(self.n_processes, imports=_WORKERS_IMPORT) as pool:
            limit = self.resources.memory if pool.processes < 2 else HELD
            if self.plan.strategy == ARRAYS:
                jobs = [(collect, (of_part, (one, task, *tasks), pool.folder, limit)) for one in _each(self.rows)]
            else:
                sums = of_messages is merge_and_add_up
                sent = list(pool.run(self._sending(task, tasks if sums else (), pool.folder, limit)))
                n_bytes = sum(int(one.sizes.sum()) for one in sent)
                n = max(PARTS_OF_A_PROCESS * pool.processes, n_bytes // BYTES_OF_A_SHARE)
                jobs = [(merge, (of_messages, its, (task, *tasks), pool.folder, limit)) for its in shares(sent, n)]
            for found in pool.run(jobs):
                yield from rows_in(found)

    def _sending(self, task: RankingTask, of_means: Sequence[Any], folder: str, limit: int) -> list[Job]:
        jobs: list[Job] = [(send, (_send_part, (one, task, *of_means), folder, limit)) for one in _each(self.rows)]
        if self.judged is not None:
            jobs += [(send, (_send_judged_part, (one, task), folder, limit)) for one in _each(self.judged)]
        return jobs


HELD = 2**20
"""Bytes that a worker process hands over through its pipe; more goes to a file."""


def _each(files: FilesTask) -> Iterator[FilesTask]:
    """Each part by itself."""
    for at, part in enumerate(files.parts):
        yield replace(files, parts=(part,), bounds=None if files.bounds is None else (files.bounds[at],))


def _table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    found = [batch.select(schema.names).cast(schema) for batch in batches]
    return pa.Table.from_batches(found, schema)


def _without_rejected(found: pa.Table) -> pa.Table:
    """Leave out what only counts rejected rows."""
    if N_REJECTED not in found.column_names:
        return found
    ranked = pc.or_(pc.greater(found.column("n_rows"), 0), pc.greater(found.column("n_judged"), 0))
    return found.filter(ranked).drop_columns([N_REJECTED])
