"""The one shuffle of the engine: rows of (partition id, kind, payload), where a payload is an Arrow batch as bytes.

A partition gets everything about a query: its partial rankings, rows that were sent uncut, and judgments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import (
    assign_partitions,
    cast_large_types,
    concat_batches,
    entries_from_columns,
    entries_to_columns,
    from_bytes,
    int_values,
    make_message,
    sort_by_hash,
    take_rows,
    to_bytes,
)
from ndcg_spark.core.ragged import IntArray, rows_of_queries, to_lengths, to_offsets
from ndcg_spark.evaluation.tasks import partial_ranking
from ndcg_spark.evaluation.tasks.judging import attach_judgments, drop_empty_lists
from ndcg_spark.evaluation.tasks.partial_ranking import PartialRankings, build_rankings
from ndcg_spark.evaluation.tasks.partial_sums import SummingTask, score_and_add_up
from ndcg_spark.evaluation.tasks.query_rows import (
    BAD_ROW,
    COPIES,
    RUN,
    RankingTask,
    find_stretches,
    group_rows,
    hash_rows,
    list_keys,
    read_query_rows,
)
from ndcg_spark.evaluation.tasks.scoring import ScoringTask
from ndcg_spark.evaluation.tasks.valid_rows import (
    RowCheck,
    has_keys,
    has_several_scores,
    mark_rejected,
    select_valid,
    split_rejected,
    split_runs,
)

ROWS, PARTIALS, JUDGMENTS, RUNS, SUMS, WITHOUT_QUERY = range(6)


def send_empty_lists(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Send names of runs to all partitions, and the segments of queries whose list is empty."""
    buffer, runs = SendBuffer(task), set[str]()
    for rows in combine_batches(batches, task):
        if RUN in rows.schema.names:
            runs.update(pc.unique(rows.column(RUN)).to_pylist())
        if set(task.names.query) <= set(rows.schema.names):
            rows = rows.filter(pa.array(has_keys(rows, task.names)))
            buffer.partials += [_describe_empty_lists(rows, task)] if rows.num_rows else []
            yield from buffer.flush(at_end=False)
    yield from buffer.flush(at_end=True)
    yield from _send_run_names(runs, task)


def _describe_empty_lists(rows: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Return partial rankings without entries that hold the segments of queries with empty lists."""
    rows, offsets = group_rows(rows, task.names, completely=True)
    starts = pa.array(offsets[:-1])
    keys = {key: rows.column(key).take(starts) for key in list_keys(rows, task.names)}
    partials = partial_ranking.build_empty_partials(keys, task)
    for segment in (segment for segment in task.names.segments if segment in rows.schema.names):
        partials.queries |= partial_ranking.find_column_range(rows.column(segment), segment, offsets)
    return partials


def _send_run_names(runs: set[str], task: RankingTask) -> Iterator[pa.RecordBatch]:
    if runs:  # every partition must know all runs, to find judged queries that a run lacks
        names = pa.RecordBatch.from_pydict({RUN: pa.array(sorted(runs), pa.string())})
        yield make_message(range(task.n_partitions), RUNS, [to_bytes(names)] * task.n_partitions)


def send_rows(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Send rows, or partial rankings where those are smaller."""
    buffer, runs = SendBuffer(task), set[str]()
    for chunk in combine_batches(batches, task):
        rows = check_chunk(chunk, buffer)
        if not rows.num_rows:
            continue
        if RUN in rows.schema.names and task.judgments is not None:
            runs.update(pc.unique(rows.column(RUN)).to_pylist())
        send_chunk(rows, buffer)
        yield from buffer.flush(at_end=False)
    yield from buffer.flush(at_end=True)
    if task.names.has_runs and task.judgments is not None:
        runs.update(run for run in buffer.n_without_query if run is not None)
    yield from _send_run_names(runs, task)


def send_judgments(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    buffer, check = SendBuffer(task, kind=JUDGMENTS), RowCheck(task.settings, judgments=True)
    for chunk in combine_batches(batches, task):
        buffer.rows.append(select_valid(chunk, check))
        yield from buffer.flush(at_end=False)
    yield from buffer.flush(at_end=True)


def combine_batches(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Combine batches into chunks of at least `chunk_rows` rows, each of which is worth a call."""
    waiting: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        waiting.append(cast_large_types(batch))
        n_rows += batch.num_rows
        if n_rows >= task.chunk_rows:
            yield concat_batches(waiting)
            waiting, n_rows = [], 0
    if n_rows:
        yield concat_batches(waiting)


def check_chunk(chunk: pa.RecordBatch, buffer: SendBuffer) -> pa.RecordBatch:
    """Mark rejected rows, and count those without a query in the buffer.

    Rows with several scores are not marked here but in `rank_stretches`, once for each score.
    """
    names, check = buffer.task.names, RowCheck(buffer.task.settings)
    if has_several_scores(chunk, names):
        if not buffer.task.counts_rejected:
            for run in split_runs(chunk, names):
                select_valid(run, check)  # raises for a bad row under on_invalid=fail
    else:
        chunk = mark_rejected(chunk, check)
        if BAD_ROW not in chunk.schema.names:
            return chunk
    known = has_keys(chunk, names)
    if known.all():
        return chunk
    buffer.count_without_query(chunk.filter(pa.array(~known)))
    return chunk.filter(pa.array(known))


def send_chunk(rows: pa.RecordBatch, buffer: SendBuffer) -> None:
    """Buffer checked rows: long stretches of a query are ranked and cut, rejected rows counted, other rows kept."""
    task = buffer.task
    limit = partial_ranking.get_ranked_limit(task)
    rows, rejected = (rows, None) if has_several_scores(rows, task.names) else split_rejected(rows)
    if rejected is not None:
        buffer.partials.append(partial_ranking.count_rejected(rejected, task))
        if not rows.num_rows:
            return
    if limit is None:
        buffer.rows.append(rows)
        return
    rows, offsets = group_rows(rows, task.names, completely=False)
    lengths = to_lengths(offsets)
    is_long = lengths > 2 * limit  # a partial ranking has up to K entries in each of two lists
    if is_long.all():
        buffer.partials += rank_stretches(rows, offsets, task)
        return
    if not is_long.any():
        buffer.rows.append(rows)
        return
    at_long = np.repeat(is_long, lengths)
    buffer.rows.append(rows.filter(pa.array(~at_long)))
    buffer.partials += rank_stretches(rows.filter(pa.array(at_long)), to_offsets(lengths[is_long]), task)


def rank_stretches(rows: pa.RecordBatch, offsets: IntArray, task: RankingTask) -> list[PartialRankings]:
    """Rank stretches of checked rows, run by run, and count rejected rows by query."""
    partials: list[PartialRankings] = []
    settings, shared = task.settings, None
    for run in split_runs(rows, task.names):
        valid, rejected = split_rejected(
            mark_rejected(run, RowCheck(settings)) if has_several_scores(rows, task.names) else run
        )
        if rejected is not None:
            partials.append(partial_ranking.count_rejected(rejected, task))
        if not valid.num_rows:
            continue
        all_valid = valid.num_rows == rows.num_rows
        query_rows = read_query_rows(
            valid, offsets if all_valid else find_stretches(valid, tuple(task.names.query)), settings
        )
        shares = all_valid and settings.convention.ideal != "retrieved"  # then all runs have the same ideal lists
        partials.append(partial_ranking.rank_partially(query_rows, task, ideal=shared if shares else None))
        shared = partials[-1].ideal if shares else shared
    return partials


@dataclass(slots=True)
class SendBuffer:
    """Rows (of one kind) and partial rankings to send.

    `n_without_query` counts the rejected rows without a query, by run.
    """

    task: RankingTask
    kind: int = ROWS
    rows: list[pa.RecordBatch] = field(default_factory=list)
    partials: list[PartialRankings] = field(default_factory=list)
    n_without_query: Counter[str | None] = field(default_factory=Counter)

    def count_without_query(self, rows: pa.RecordBatch) -> None:
        copies = int_values(rows.column(COPIES)) if COPIES in rows.schema.names else np.ones(rows.num_rows)
        if RUN not in rows.schema.names:
            for run in self.task.names.scores.values() if has_several_scores(rows, self.task.names) else ("",):
                self.n_without_query[run] += int(copies.sum())
            return
        for run, n in zip(rows.column(RUN).to_pylist(), copies.tolist(), strict=True):
            self.n_without_query[run] += int(n)

    def flush(self, *, at_end: bool) -> Iterator[pa.RecordBatch]:
        """Yield the buffered rows as rows of the exchange if the buffer is full or at the end."""
        n_rows = sum(rows.num_rows for rows in self.rows)
        n_bytes = sum(rows.nbytes for rows in self.rows) if n_rows else 0
        if n_rows and (at_end or n_rows >= self.task.held_rows or n_bytes >= self.task.held_bytes):
            yield from self._pack(concat_batches(self.rows), self.kind)
            self.rows = []
        lists = [partial.ranked for partial in self.partials if partial.ranked is not None]
        n_entries = sum(max(int(ranked.offsets[-1]), len(ranked.offsets)) for ranked in lists)
        if self.partials and (at_end or n_entries >= self.task.held_rows):
            yield from self._pack(write_partials(self.partials), PARTIALS)
            self.partials = []
        if self.n_without_query and at_end:
            runs, counts = zip(*self.n_without_query.items(), strict=True)
            rows_by_run = pa.RecordBatch.from_pydict(
                {RUN: pa.array(runs, pa.string()), partial_ranking.N_REJECTED: pa.array(counts)}
            )
            yield make_message([0], WITHOUT_QUERY, [to_bytes(rows_by_run)])

    def _pack(self, batch: pa.RecordBatch, kind: int) -> Iterator[pa.RecordBatch]:
        names = self.task.names
        offsets = find_stretches(batch, list_keys(batch, names))
        keys = batch.select(list(list_keys(batch, names))).take(pa.array(offsets[:-1]))
        hashes, stretches = sort_by_hash(hash_rows(keys, names))
        ids, first = np.unique(assign_partitions(hashes, self.task.n_partitions), return_index=True)
        bounds = np.append(to_offsets(to_lengths(offsets)[stretches])[first], batch.num_rows)
        batch = take_rows(batch, rows_of_queries(stretches, offsets))
        payloads = [to_bytes(batch.slice(start, stop - start)) for start, stop in pairwise(bounds.tolist())]
        yield make_message(ids, kind, payloads)


def write_partials(partials: list[PartialRankings]) -> pa.RecordBatch:
    """Write partial rankings as one batch: the columns of `queries`, and a list column for each column of entries."""
    combined = partial_ranking.concat_partials(partials)
    columns = dict(combined.queries)
    for prefix, entries in (("ranked", combined.ranked), ("ideal", combined.ideal)):
        columns |= {} if entries is None else entries_to_columns(entries, prefix)
    return pa.RecordBatch.from_pydict(columns)


def read_partials(batch: pa.RecordBatch) -> PartialRankings:
    queries = {
        column: batch.column(column) for column in batch.schema.names if not column.startswith(("ranked.", "ideal."))
    }
    return PartialRankings(queries, entries_from_columns(batch, "ranked"), entries_from_columns(batch, "ideal"))


def merge_and_add_up(
    batches: Iterator[pa.RecordBatch], task: RankingTask, scoring: ScoringTask, summing: SummingTask
) -> Iterator[pa.RecordBatch]:
    """Merge the rows that arrive in a partition, score them, and yield partial summaries."""
    sums: list[pa.RecordBatch] = []
    yield from score_and_add_up(merge_rankings(batches, task, sums), scoring, summing)
    yield from sums


def merge_rankings(
    batches: Iterator[pa.RecordBatch], task: RankingTask, sums: list[pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """Merge the rows that arrive in a partition into rankings with the user's column names.

    `sums` collects the sums of complete queries, which senders have scored already.
    """
    arrived = _TaskInput(task)
    for batch in batches:
        ids, kinds = batch.column("partition_id").to_pylist(), batch.column("kind").to_pylist()
        for number, kind, payload in zip(ids, kinds, batch.column("payload"), strict=True):
            packed = payload.as_buffer()
            unpacked = from_bytes(packed)
            if sums is not None and kind == SUMS:
                sums += unpacked
            else:
                arrived.add(number, kind, unpacked, packed.size)
    for complete in arrived.merge_complete():
        yield from build_rankings(complete, task)
    for counts in arrived.count_without_query():
        yield from build_rankings(counts, task)


@dataclass(slots=True)
class _PartitionInput:
    """Batches and partial rankings that have arrived for one or more partition ids."""

    batches: defaultdict[int, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    """Batches as they were sent, by kind. They are read together, which is cheaper than one by one."""
    partials: list[PartialRankings] = field(default_factory=list)
    n_bytes: int = 0

    def add(self, other: _PartitionInput) -> None:
        for kind, batches in other.batches.items():
            self.batches[kind] += batches
        self.partials += other.partials
        self.n_bytes += other.n_bytes

    def merge(self, task: RankingTask) -> list[PartialRankings]:
        packed, rows = self.batches.pop(PARTIALS, []), self.batches.pop(ROWS, [])
        for has_rejected in (False, True):  # batches with counts of rejected rows have more columns
            if alike := [
                batch for batch in packed if (partial_ranking.N_REJECTED in batch.schema.names) is has_rejected
            ]:
                self.partials.append(read_partials(concat_batches(alike)))
        if rows:
            self.partials += rank_stretches(*group_rows(concat_batches(rows), task.names, completely=True), task)
        self.partials = partial_ranking.merge_by_query(self.partials, task)
        return self.partials


class _TaskInput:
    """Batches that have arrived in a task, by partition id. Spark may assign many ids to a task."""

    def __init__(self, task: RankingTask) -> None:
        self._task = task
        self._by_id: dict[int, _PartitionInput] = {}
        self._runs: set[str] = set()
        self._n_without_query = Counter[str | None]()
        self._n_rows = self._n_bytes = 0

    def add(self, number: int, kind: int, batches: list[pa.RecordBatch], n_bytes: int) -> None:
        if kind == RUNS:
            self._runs.update(run for batch in batches for run in batch.column(RUN).to_pylist())
            return
        if kind == WITHOUT_QUERY:
            for batch in batches:
                counts = batch.column(partial_ranking.N_REJECTED).to_pylist()
                self._n_without_query.update(dict(zip(batch.column(RUN).to_pylist(), counts, strict=True)))
            return
        arrived = self._by_id.setdefault(number, _PartitionInput())
        arrived.n_bytes += n_bytes
        arrived.batches[kind] += batches
        if kind == ROWS:
            self._n_rows += sum(rows.num_rows for rows in batches)
            self._n_bytes += n_bytes
            self._cut_rows_if_full()

    def _cut_rows_if_full(self) -> None:
        """Cut rows to partial rankings as they arrive, to bound memory by the best items of each query."""
        task = self._task
        is_full = self._n_rows > 8 * task.held_rows or self._n_bytes > 2 * task.held_bytes
        if is_full and partial_ranking.get_ranked_limit(task) is not None:
            for arrived in self._by_id.values():
                if ROWS in arrived.batches:
                    arrived.merge(task)
            self._n_rows = self._n_bytes = 0

    def merge_complete(self) -> Iterator[PartialRankings]:
        """Yield complete rankings, a few megabytes at a time: arrays beyond the CPU cache are much slower."""
        block = _PartitionInput()
        for number in sorted(self._by_id):
            block.add(self._by_id.pop(number))
            if block.n_bytes >= self._task.block_bytes:
                yield from self._merge_block(block)
                block = _PartitionInput()
        yield from self._merge_block(block)

    def count_without_query(self) -> list[PartialRankings]:
        """Return counts of rejected rows without a query: one ranking per run, whose query is null."""
        if not self._n_without_query:
            return []
        task, runs = self._task, pa.array(list(self._n_without_query), pa.string())
        keys = {key: pa.nulls(len(runs), task.rows.field(key).type) for key in task.names.query}
        partials = partial_ranking.build_empty_partials({RUN: runs} | keys, task)
        partials.queries[partial_ranking.N_REJECTED] = pa.array(list(self._n_without_query.values()), pa.int64())
        return self._attach_judgments([partials], [])

    def _merge_block(self, block: _PartitionInput) -> list[PartialRankings]:
        return self._attach_judgments(block.merge(self._task), block.batches[JUDGMENTS])

    def _attach_judgments(
        self, partials: list[PartialRankings], judgments: list[pa.RecordBatch]
    ) -> list[PartialRankings]:
        if self._task.judgments is None:
            return partials
        empty_batch = pa.RecordBatch.from_pylist([], schema=self._task.judgments)
        complete = attach_judgments(partials, concat_batches(judgments or [empty_batch]), self._runs, self._task)
        return [drop_empty_lists(partial) for partial in complete]
