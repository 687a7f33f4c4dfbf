"""Execute a ranking plan without Spark: parts of tables are read, ranked and summed in local processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.core.batches import WorkerFunction, cast_large_types
from ndcg_spark.core.row_counts import RowCount
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.matching import Match, TopItems, check_top_items
from ndcg_spark.evaluation.plan import (
    ARRAYS,
    ENGINE,
    NO_FILES,
    RankingPlan,
    fit_settings,
    plan_ranking,
    require_spark_allowed,
)
from ndcg_spark.evaluation.plan_columns import TablePlan, read_keys
from ndcg_spark.evaluation.plan_lists import (
    ONE_LIST_PER_QUERY,
    LongRows,
    LongTables,
    plan_long_tables,
    read_empty_lists,
)
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings, ItemColumns
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.complete_queries import FilesTask, send_complete
from ndcg_spark.evaluation.tasks.exchange import (
    merge_and_add_up,
    merge_rankings,
    send_empty_lists,
    send_judgments,
    send_rows,
)
from ndcg_spark.evaluation.tasks.list_rankings import rank_lists
from ndcg_spark.evaluation.tasks.long_lists import EmptyListsPart, LongPart
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.partial_sums import (
    PARTIAL_SCHEMA,
    SUM_ONLY_COUNTS,
    SummingTask,
    add_up,
    build_summing_task,
    compute_means,
    merge_partials,
    score_and_add_up,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask, canonical_names
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, build_scoring_task, list_dropped_statuses, score_rankings
from ndcg_spark.evaluation.tasks.stored import build_scored_schema
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck, find_bad_rows, select_valid, split_runs
from ndcg_spark.local.messages import HELD_BYTES, collect, merge, rows_in, send, shares
from ndcg_spark.local.pool import Job, Pool
from ndcg_spark.sources.local import LocalTable
from ndcg_spark.sources.parquet import PartSizes, check_footers, find_part_bounds, split_files

PARTITION_BYTES = 2**21
"""Bytes of files per partition id, such that the rows merged at once fit into the cache."""
MIN_PROCESS_BYTES = 2**25
"""Bytes of files per process; below this, another process costs more than it saves."""
MAX_PARTITIONS = 2**12
MAX_SHARE_BYTES = 2**26
"""Bytes of messages that a process merges at once; less if memory is short."""
MAX_SHARE_COPIES = 8
"""Number of copies of a share that may be in memory while it is merged."""
PARTS_PER_PROCESS, MIN_PART_BYTES, MAX_PART_BYTES = 4, 2**22, 2**28
_WORKERS_IMPORT = ("ndcg_spark.evaluation.local",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Number of processes, and bytes of memory for the messages between them; larger messages go to files."""

    processes: int
    memory: int

    @classmethod
    def from_machine(cls, processes: int | None = None, memory: int | None = None) -> Resources:
        """Use the arguments, or by default all cores and a quarter of the memory."""
        if memory is None:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
        affinity = getattr(os, "sched_getaffinity", None)  # Linux only
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        return cls(processes=processes or cores, memory=memory)

    def limit_processes(self, n_bytes: int) -> Resources:
        """Reduce the processes for small tables: starting one costs as much as reading some million rows."""
        return replace(self, processes=max(1, min(self.processes, n_bytes // MIN_PROCESS_BYTES)))


def rank_locally(
    tables: Mapping[str, LocalTable],
    settings: EvaluationSettings,
    *,
    processes: int | None = None,
    memory: int | None = None,
) -> LocalRanking | str:
    """Plan how tables are ranked without Spark; or return in a clause why Spark has to rank.

    `tables` are `input` and optionally `judgments`.
    """
    data, judgments = tables["input"], tables.get("judgments")
    settings = fitted = fit_settings(data.info, settings)
    long = None
    if settings.columns.ranked and judgments is not None:
        lists, long = data, plan_long_tables(data.info, judgments.info, settings)
        data = _to_long_table(data, long.rows)
        if long.judgments is not None:
            if settings.check_duplicates != "none":
                _refuse_repeated_queries(judgments, settings)
            judgments = _to_long_table(judgments, long.judgments)
        tables, settings = {"input": data, "judgments": judgments}, long.settings
    plan = plan_ranking(data.info, None if judgments is None else judgments.info, settings, fitted=True)
    obstacle = _find_obstacle(plan)
    if obstacle is not None:
        return obstacle
    if plan.why_spark_reads is not None or not data.footers:
        require_spark_allowed(settings, plan.why_spark_reads or NO_FILES)
    resources = Resources.from_machine(processes, memory).limit_processes(
        sum(table.n_bytes for table in tables.values())
    )
    n_processes = resources.processes
    rows = _plan_parts(data, plan.rows, n_processes, sorted_by=_find_sort_column(plan))
    judged = (
        None if plan.judgments is None or judgments is None else _plan_parts(judgments, plan.judgments, n_processes)
    )
    if isinstance(rows, str) or isinstance(judged, str):
        return rows if isinstance(rows, str) else str(judged)
    empty = None if long is None else _plan_empty_lists(lists, long, plan, fitted, rows)
    planned = {name: replace(table, footers=()) for name, table in tables.items()}  # footers may be large
    return LocalRanking(
        fitted=fitted, plan=plan, tables=planned, rows=rows, judged=judged, empty=empty, resources=resources
    )


def _to_long_table(table: LocalTable, long: LongRows) -> LocalTable:
    """Convert a table with lists to its long table."""
    source = pa.schema(
        {column: table.info.type_of(column) for column in (*long.kept_columns, *(lists.name for lists in long.lists))}
    )

    def divide(n_parts: int) -> list[LongPart]:
        return [LongPart(part, source, long) for part in table.parts(n_parts)]

    info = replace(table.info, schema=long.schema(table.info))
    return replace(table, info=info, divide=divide, footers=())


def _plan_empty_lists(
    table: LocalTable, long: LongTables, plan: RankingPlan, settings: EvaluationSettings, rows: FilesTask
) -> FilesTask | None:
    """Plan reading the rows with empty lists, which name runs and segments; None if they have no information."""
    columns = list(read_empty_lists(table.info, settings))
    run, keys = long.rows.run, tuple(read.source[0] for read in read_keys(table.info, settings).values())
    if run is not None:
        columns = [col.RUN, *columns]
    if not columns:
        return None
    reads = {column: plan.rows.columns[column] for column in columns}
    schema = pa.schema({read.source[0]: rows.schema.field(read.source[0]).type for read in reads.values()})
    lists = tuple(read.name for read in long.rows.lists)
    source = {column: table.info.type_of(column) for column in (*schema.names, *keys, *lists) if column != run}
    parts = [EmptyListsPart(part, pa.schema(source), lists, run, keys) for part in table.parts(len(rows.parts))]
    return FilesTask(parts=tuple(parts), plan=TablePlan(columns=reads), schema=schema)


def _refuse_repeated_queries(judgments: LocalTable, settings: EvaluationSettings) -> None:
    """Raise if a query has two lists of relevant items. Reads the query columns."""
    columns = list(settings.columns.query)
    schema = pa.schema({column: judgments.info.require_key(column, option("query")) for column in columns})
    batches = (batch for part in judgments.parts(1) for batch in part.read(columns, schema, 2**20))
    queries = pa.Table.from_batches(batches, schema)
    for column in columns:
        queries = queries.filter(queries.column(column).is_valid())
    counted = queries.append_column("n", pa.repeat(1, len(queries))).group_by(columns).aggregate([("n", "sum")])
    repeated = sorted((row for row in counted.to_pylist() if row["n_sum"] > 1), key=repr)
    if repeated:
        n = repeated[0].pop("n_sum")
        raise InputRefusedError(f"query {labels.key(repeated[0])} comes in {n} rows; {ONE_LIST_PER_QUERY}")


def _find_obstacle(plan: RankingPlan) -> str | None:
    """Return in a clause why a plan needs Spark, or None."""
    settings = plan.settings
    if plan.why_spark_only is not None:
        return plan.why_spark_only
    if settings.needs or settings.item_columns != ItemColumns():
        return "metrics of items are joined in Spark"
    if plan.strategy == ARRAYS and settings.check_duplicates == "all" and settings.columns.query:
        return "duplicate queries are found in Spark"
    if settings.source == "spark":
        return "source=spark was requested"
    return None


def _find_sort_column(plan: RankingPlan) -> str | None:
    """Return the query column that files may be sorted by, so that their queries are complete; or None."""
    columns = plan.settings.columns
    if plan.strategy == ENGINE and plan.judgments is None and len(columns.query) == 1 and columns.run is None:
        return plan.rows.columns["query_0"].source[0]
    return None


def _plan_parts(
    table: LocalTable, plan: TablePlan, n_processes: int, *, sorted_by: str | None = None
) -> FilesTask | str:
    """Divide a table into parts; or return in a clause why this machine cannot read its files."""
    reads = [*plan.columns.values(), *(read for run_columns in plan.runs.values() for read in run_columns.values())]
    columns = dict.fromkeys([*([] if sorted_by is None else [sorted_by]), *(read.source[0] for read in reads)])
    fields = {
        column: table.info.type_of(column) for column in [*columns, *([MALFORMED] if plan.has_malformed else [])]
    }
    schema, n_parts = pa.schema(fields), PARTS_PER_PROCESS * n_processes if n_processes > 1 else 1
    if not table.footers:
        return FilesTask(parts=table.parts(n_parts), plan=plan, schema=schema)
    footers = check_footers(table.footers, {column: column for column in schema.names}, schema)
    if isinstance(footers, str):
        return footers
    sizes = PartSizes(n_parts=n_parts, smallest=MIN_PART_BYTES, largest=MAX_PART_BYTES)
    parts = split_files([read.identity for read in footers], sizes)
    bounds = None if sorted_by is None else find_part_bounds(footers, parts)
    return FilesTask(parts=parts, plan=plan, schema=schema, bounds=bounds)


# ---------------------------------------------------------------------------------- what worker processes run


def _send_part(
    files: FilesTask, send_batches: WorkerFunction, task: RankingTask, *summing_tasks: ScoringTask | SummingTask
) -> Iterator[pa.RecordBatch]:
    """Send the rows of the only part. With tasks for means, complete queries are summed before they are sent."""
    if summing_tasks and files.bounds is not None:
        first = pa.RecordBatch.from_pydict({"number": [0]})
        return send_complete(iter([first]), files, task, *summing_tasks)  # type: ignore[arg-type]
    return send_batches(files.read_part(0), task)


def _rank_part(files: FilesTask, task: RankingTask) -> Iterator[pa.RecordBatch]:
    return rank_lists(files.read_part(0), task)


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


def _count_reasons(files: FilesTask, check: RowCheck) -> dict[str | None, tuple[int, str | None]]:
    """Count rows by reason, with the lowest key of each reason; the reason of valid rows is None."""
    counts: dict[str | None, tuple[int, str | None]] = {}
    for batch in find_bad_rows(files.read_part(0), check):
        columns = [batch.column(column).to_pylist() for column in ("reason", "n", "key")]
        for reason, n, key in zip(*columns, strict=True):
            n_before, first = counts.get(reason, (0, key))
            counts[reason] = (
                n_before + n,
                min((example for example in (first, key) if example is not None), default=None),
            )
    return counts


def _sum_row_counts(parts: Iterable[Mapping[str | None, tuple[int, str | None]]]) -> RowCount:
    rejected: dict[str, int] = {}
    examples: dict[str, str] = {}
    read = 0
    for counts in parts:
        for reason, (n, key) in counts.items():
            read += n
            if reason is not None:
                rejected[reason] = rejected.get(reason, 0) + n
                examples[reason] = min(examples.get(reason, str(key)), str(key))
    return RowCount(read=read, rejected=dict(sorted(rejected.items())), examples=examples)


def _read_keys(files: FilesTask, check: RowCheck, keys: Sequence[str], value: str) -> pa.Table:
    """Read the keys of valid rows with a value. Without a run column all rows belong to one run."""
    tables = []
    names = canonical_names(check.settings)
    for index in range(len(files.parts)):
        for batch in files.read_part(index):
            for run in (
                split_runs(cast_large_types(batch), names) if value == col.SCORE else (cast_large_types(batch),)
            ):
                rows = select_valid(run, check)
                rows = rows.filter(rows.column(value).is_valid())
                columns = {column: rows.column(column) for column in keys if column in rows.schema.names}
                if col.RUN in keys and col.RUN not in columns:
                    columns[col.RUN] = pa.repeat(pa.scalar(""), rows.num_rows)
                tables.append(pa.table(columns))
    return pa.concat_tables(tables) if tables else pa.table({column: pa.array([]) for column in keys})


def _list_unique(batch: pa.RecordBatch) -> list[Any]:
    return list(pc.unique(batch.column(0)).to_pylist())


def _iterate_tuples(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(column).to_pylist() for column in columns), strict=True)


# ---------------------------------------------------------------------------------------------------- the steps


@dataclass(frozen=True, kw_only=True)
class LocalRanking:
    """A plan and the parts of tables to execute it on this machine. `fitted` are the user's settings."""

    fitted: EvaluationSettings
    plan: RankingPlan
    tables: Mapping[str, LocalTable]
    rows: FilesTask
    judged: FilesTask | None
    empty: FilesTask | None
    resources: Resources

    @property
    def settings(self) -> EvaluationSettings:
        return self.plan.settings

    @property
    def strategy(self) -> str:
        return self.plan.strategy

    source: ClassVar[str] = "local"

    @property
    def reason(self) -> str:
        """Parts and processes, in a clause for `--explain`."""
        if self.plan.strategy == ARRAYS:
            return self.plan.reason
        in_order = ", sorted by query" if self.rows.bounds else ""
        n = len(self.rows.parts)
        return f"{n:,} part{'s' * (n > 1)}{in_order}, {self.n_processes} process{'es' * (self.n_processes > 1)}"

    @property
    def n_bytes(self) -> int:
        return sum(table.n_bytes for table in self.tables.values())

    @property
    def n_processes(self) -> int:
        return self.resources.processes

    def summary(self) -> pa.Table:
        """Compute the means of all metrics; see `summarize`."""
        task = self._build_task(counts_relevant=False)
        columns = [name for name in self.plan.rankings_schema.names if name != "n_relevant"]  # means do not need it
        tasks = build_scoring_task(columns, self.settings), build_summing_task(self.settings)
        return self._compute_means(self._run(task, _sum_part, merge_and_add_up, tasks))

    @property
    def per_query_schema(self) -> pa.Schema:
        """Columns of `per_query`."""
        scored = build_scored_schema(self.plan.rankings_schema, self.settings)
        return pa.schema([*(field for field in scored if field.name != N_REJECTED), (RULES, pa.string())])

    def runs(self) -> list[str]:
        """List the runs of the run column, sorted. Reads it."""
        read = self.plan.rows.columns[col.RUN]
        schema = pa.schema([self.rows.schema.field(read.source[0])])
        rows = replace(self.rows, plan=TablePlan(columns={col.RUN: read}), schema=schema)
        names = {
            run for index in range(len(rows.parts)) for batch in rows.read_part(index) for run in _list_unique(batch)
        }
        return sorted(run for run in names if run is not None)

    def rankings(self, *, rejected: bool = False) -> pa.Table:
        """Rank: one row per query, as in `rank_queries`. `rejected` adds counts of rejected rows, as with Spark."""
        task = self._build_task(counts_relevant=True)
        query_rows = _to_table(self._run(task, _rank_part, merge_rankings, ()), self.plan.rankings_schema)
        return query_rows if rejected else _drop_rejected(query_rows)

    def per_query(self, *, rejected: bool = False) -> pa.Table:
        """Compute the metrics of every query; see `score_queries`."""
        task, schema = self._build_task(counts_relevant=True), self.plan.rankings_schema
        scoring, kinds = build_scoring_task(schema.names, self.settings), build_scored_schema(schema, self.settings)
        queries = _to_table(self._run(task, _score_part, _merge_and_score, (scoring,)), kinds)
        if not rejected:
            queries = _drop_rejected(queries)
        return queries.append_column(RULES, pa.repeat(pa.scalar(self.settings.rules, pa.string()), queries.num_rows))

    def evaluate(self, *, per_query: bool) -> tuple[pa.Table, pa.Table | None]:
        """Compute the summary and, if requested, metrics of every query with counts of rejected rows, in one run."""
        if not per_query:
            return self.summary(), None
        queries = self.per_query(rejected=True)
        task = build_summing_task(self.settings, queries.column_names)
        return self._compute_means(add_up(iter(queries.drop_columns([RULES]).to_batches()), task)), queries

    def count_bad_rows(self) -> dict[str, RowCount]:
        """Count the rows of each table, and the bad rows by reason. Reads the tables."""
        checks = {"input": RowCheck(self.settings), "judgments": RowCheck(self.settings, judgments=True)}
        tables = {"input": self.rows} | ({} if self.judged is None else {"judgments": self.judged})
        with Pool(self.n_processes, imports=_WORKERS_IMPORT) as pool:
            return {
                name: _sum_row_counts(
                    pool.run([(_count_reasons, (part, checks[name])) for part in _split_parts(files)])
                )
                for name, files in tables.items()
            }

    def check_matched(
        self, runs: Sequence[TopItems], *, other_runs: Sequence[TopItems] = (), allowed: bool = False
    ) -> list[str]:
        """Check a judgments table by `check_top_items`. Reads both tables if no item matches."""
        if self.judged is None:
            return []
        return check_top_items(runs, self.settings, self._find_matches, other_runs=other_runs, allowed=allowed)

    def _find_matches(self, runs: Sequence[TopItems]) -> dict[str, Match]:
        assert self.judged is not None
        settings, names = self.settings, canonical_names(self.settings)
        queries, run_names = list(names.query), {run.run for run in runs}
        judged = _read_keys(self.judged, RowCheck(settings, judgments=True), [*queries, col.ITEM], col.RELEVANCE)
        judged_items, judged_queries = set(judged.column(col.ITEM).to_pylist()), set(_iterate_tuples(judged, queries))
        judged_item, judged_query = min(judged_items, default=None), min(judged_queries, default=())
        value = col.RANK if col.RANK in self.plan.rows.columns else col.SCORE
        rows = _read_keys(self.rows, RowCheck(settings), [col.RUN, *queries, col.ITEM], value)
        if runs[0].is_table:
            rows = rows.drop_columns([col.RUN]).append_column(col.RUN, pa.repeat(runs[0].run, rows.num_rows))
        matches: dict[str, Match] = {}
        for run in run_names.intersection(pc.unique(rows.column(col.RUN)).to_pylist()):
            run_rows = rows.filter(pc.equal(rows.column(col.RUN), pa.scalar(run)))
            run_items, run_queries = (
                set(run_rows.column(col.ITEM).to_pylist()),
                set(_iterate_tuples(run_rows, queries)),
            )
            matches[run] = Match(
                query_judged=not run_queries.isdisjoint(judged_queries),
                item_judged=not run_items.isdisjoint(judged_items),
                item=min(run_items),
                query=min(run_queries),
                judged_item=judged_item,
                judged_query=judged_query,
            )
        return matches

    def _compute_means(self, partial: Iterable[pa.RecordBatch]) -> pa.Table:
        merged = merge_partials(_to_table(partial, PARTIAL_SCHEMA))
        means = pa.Table.from_batches(list(compute_means(iter([merged]), self.settings.confidence)))
        rules = pa.repeat(pa.scalar(self.settings.rules_of_means, pa.string()), means.num_rows)
        return means.append_column(RULES, rules)

    def _build_task(self, *, counts_relevant: bool) -> RankingTask:
        n = max(1, min(MAX_PARTITIONS, self.n_bytes // PARTITION_BYTES))
        return replace(self.plan.task, n_partitions=n, counts_relevant=counts_relevant)

    def _run(
        self, task: RankingTask, run_part: Callable[..., Any], run_messages: Callable[..., Any], tasks: Sequence[Any]
    ) -> Iterator[pa.RecordBatch]:
        """Run a function over parts if each row holds a query; otherwise send rows and merge the messages."""
        with Pool(self.n_processes, imports=_WORKERS_IMPORT) as pool:
            if pool.processes > 1:
                pool.start()
            limit = self.resources.memory if pool.processes < 2 else HELD_BYTES
            jobs: list[Job]
            if self.plan.strategy == ARRAYS:
                jobs = [
                    (collect, (run_part, (message, task, *tasks), pool.folder, limit))
                    for message in _split_parts(self.rows)
                ]
            else:
                sums = run_messages is merge_and_add_up
                sent = list(pool.run(self._list_send_jobs(task, tasks if sums else (), pool.folder, limit)))
                n_bytes = sum(int(message.sizes.sum()) for message in sent)
                share = min(MAX_SHARE_BYTES, max(1, self.resources.memory // (MAX_SHARE_COPIES * pool.processes)))
                n_shares = max(PARTS_PER_PROCESS * pool.processes, n_bytes // share)
                jobs = [
                    (merge, (run_messages, message_share, (task, *tasks), pool.folder, limit))
                    for message_share in shares(sent, n_shares)
                ]
            for output in pool.run(jobs):
                yield from rows_in(output)

    def _list_send_jobs(self, task: RankingTask, summing_tasks: Sequence[Any], folder: str, limit: int) -> list[Job]:
        tables = (
            (self.rows, (send_rows, task, *summing_tasks)),
            (self.judged, (send_judgments, task)),
            (self.empty, (send_empty_lists, task)),
        )
        return [
            (send, (_send_part, (part, *arguments), folder, limit))
            for files, arguments in tables
            if files is not None
            for part in _split_parts(files)
        ]


def _split_parts(files: FilesTask) -> Iterator[FilesTask]:
    """Yield each part as a task of its own."""
    for index, part in enumerate(files.parts):
        yield replace(files, parts=(part,), bounds=None if files.bounds is None else (files.bounds[index],))


def _to_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    tables = [batch.select(schema.names).cast(schema) for batch in batches]
    return pa.Table.from_batches(tables, schema)


def select_per_query_rows(queries: pa.Table, settings: EvaluationSettings) -> pa.Table:
    """Select the queries that count, without the columns that only sums need."""
    rows = queries.filter(
        pc.invert(pc.is_in(queries.column("status"), pa.array(list_dropped_statuses(settings.convention))))
    )
    return rows.drop_columns([column for column in SUM_ONLY_COUNTS if column in rows.column_names])


def _drop_rejected(rankings: pa.Table) -> pa.Table:
    """Drop the column of rejected rows, and queries that have only rejected rows."""
    if N_REJECTED not in rankings.column_names:
        return rankings
    is_ranked = pc.or_(pc.greater(rankings.column("n_rows"), 0), pc.greater(rankings.column("n_judged"), 0))
    return rankings.filter(is_ranked).drop_columns([N_REJECTED])
