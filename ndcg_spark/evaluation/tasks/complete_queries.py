"""Score and add up complete queries of sorted files in the task that reads them; rows of other queries are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import concat_batches, make_message, to_bytes
from ndcg_spark.core.ragged import IntArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.plan_columns import TablePlan
from ndcg_spark.evaluation.tasks.columns import convert_batch, sample_batch
from ndcg_spark.evaluation.tasks.exchange import SUMS, SendBuffer, check_chunk, rank_stretches, send_chunk, send_rows
from ndcg_spark.evaluation.tasks.partial_ranking import (
    N_REJECTED,
    PartialRankings,
    build_rankings,
    concat_partials,
    merge_by_query,
)
from ndcg_spark.evaluation.tasks.partial_sums import SummingTask, score_and_add_up
from ndcg_spark.evaluation.tasks.query_rows import BAD_ROW, RankingTask, find_stretches
from ndcg_spark.evaluation.tasks.scoring import ScoringTask
from ndcg_spark.evaluation.tasks.valid_rows import add_marks

Bound: TypeAlias = Any
"""A value of the query column, or None for no bound."""
QUERY = "query_0"


class Part(Protocol):
    """A part of a table that workers read themselves."""

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns with the types of the schema, in batches of about `rows` rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesTask:
    """Task for workers that read a table. `schema` has the source columns to read, with their types."""

    parts: tuple[Part, ...]
    plan: TablePlan
    schema: pa.Schema
    bounds: tuple[tuple[Bound, Bound], ...] | None = None
    """Per part, the limits between which its queries are in no other part. None: unknown."""
    batch_rows: int = 131_072

    def read_part(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read the canonical columns of a part."""
        return (convert_batch(batch, self.plan) for batch in self.read_source(number))

    def read_source(self, number: int) -> Iterator[pa.RecordBatch]:
        """Read the source columns of a part, for sampled queries only."""
        for batch in self.parts[number].read(self.schema.names, self.schema, self.batch_rows):
            yield sample_batch(batch, self.plan)


class _OutOfOrderError(Exception):
    """A part is not sorted by query, or one of its queries is too long to be held in memory."""


def send_files(batches: Iterator[pa.RecordBatch], files: FilesTask, task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Read the parts whose numbers arrive, and send their rows."""
    return send_rows((rows for number in _read_part_numbers(batches) for rows in files.read_part(number)), task)


def send_complete(
    batches: Iterator[pa.RecordBatch], files: FilesTask, task: RankingTask, scoring: ScoringTask, summing: SummingTask
) -> Iterator[pa.RecordBatch]:
    """Read the parts whose numbers arrive, add up complete queries, and send the rows of other queries."""
    for number in _read_part_numbers(batches):
        yield from _PartSender(number, files, task).send(scoring, summing)


def _read_part_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    return (number for batch in batches for number in batch.column(0).to_pylist())


class _PartSender:
    def __init__(self, number: int, files: FilesTask, task: RankingTask) -> None:
        self._number, self._files, self._task = number, files, task
        self._buffer = SendBuffer(task)

    def send(self, scoring: ScoringTask, summing: SummingTask) -> Iterator[pa.RecordBatch]:
        try:
            # Sums are collected first, so that nothing was sent if the part turns out not to be sorted.
            sums = list(score_and_add_up(self._rank_complete(), scoring, summing))
        except (_OutOfOrderError, InputRefusedError):  # an unsorted part may be refused for half of a query
            self._buffer = SendBuffer(self._task)
            for batch in self._files.read_part(self._number):
                send_chunk(check_chunk(batch, self._buffer), self._buffer)
                yield from self._buffer.flush(at_end=False)
            sums = []
        yield from self._buffer.flush(at_end=True)
        if sums:
            yield make_message([self._number % self._task.n_partitions], SUMS, [to_bytes(*sums)])

    def _rank_complete(self) -> Iterator[pa.RecordBatch]:
        """Yield rankings of complete queries, and buffer the rows of other queries."""
        waiting: list[PartialRankings] = []
        n_waiting = 0
        for rows, offsets in self._group_by_query():
            queries = rows.column(QUERY).take(pa.array(offsets[:-1]))
            low, high = self._files.bounds[self._number] if self._files.bounds else (None, None)
            first = 0 if low is None else pc.less_equal(queries, pa.scalar(low, queries.type)).true_count
            end = len(queries) if high is None else pc.less(queries, pa.scalar(high, queries.type)).true_count
            end = max(first, end)
            for start, stop in ((0, first), (end, len(queries))):
                if start < stop:
                    send_chunk(_slice_queries(rows, offsets, start, stop), self._buffer)
            if first < end:
                complete = _slice_queries(rows, offsets, first, end)
                waiting += rank_stretches(complete, offsets[first : end + 1] - offsets[first], self._task)
                n_waiting += end - first
            # The fixed cost of a batch in the kernels equals that of some hundred queries.
            if n_waiting >= self._task.queries_at_once:
                yield from self._build_rankings(waiting)
                waiting, n_waiting = [], 0
        if waiting:
            yield from self._build_rankings(waiting)

    def _build_rankings(self, waiting: list[PartialRankings]) -> Iterator[pa.RecordBatch]:
        partials = concat_partials(waiting)
        for complete in merge_by_query([partials], self._task) if N_REJECTED in partials.queries else [partials]:
            yield from build_rankings(complete, self._task)

    def _group_by_query(self) -> Iterator[tuple[pa.RecordBatch, IntArray]]:
        """Yield checked rows of the part with the offsets of their queries. No query is split between batches."""
        last_query: pa.RecordBatch | None = None
        for batch in self._files.read_part(self._number):
            rows = check_chunk(batch, self._buffer)
            if not rows.num_rows:
                continue
            if last_query is not None:
                if last_query.num_rows > 4 * self._files.batch_rows:
                    raise _OutOfOrderError
                if BAD_ROW in {*last_query.schema.names, *rows.schema.names}:
                    last_query, rows = add_marks(last_query), add_marks(rows)
                rows = concat_batches([last_query, rows])
            offsets = find_stretches(rows, (QUERY,))
            queries = rows.column(QUERY).take(pa.array(offsets[:-1]))
            if pc.any(pc.less(queries.slice(1), queries.slice(0, len(queries) - 1))).as_py():
                raise _OutOfOrderError
            if len(offsets) > 2:
                yield rows.slice(0, offsets[-2]), offsets[:-1]
            last_query = rows.slice(offsets[-2])
        if last_query is not None:
            yield last_query, np.array([0, last_query.num_rows])


def _slice_queries(rows: pa.RecordBatch, offsets: IntArray, start: int, stop: int) -> pa.RecordBatch:
    return rows.slice(offsets[start], offsets[stop] - offsets[start])
