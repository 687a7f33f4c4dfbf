"""What arrives in a partition: merged, judged, ranked, and scored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function, joined
from ndcg_spark.core.exchange import from_bytes
from ndcg_spark.evaluation.tasks.exchange import (
    JUDGMENTS,
    NAMELESS,
    PARTIALS,
    ROWS,
    RUNS,
    SUMS,
    partials_in,
    partials_of,
)
from ndcg_spark.evaluation.tasks.judging import judged_partials
from ndcg_spark.evaluation.tasks.partial_ranking import (
    N_REJECTED,
    PartialRankings,
    merged,
    n_entries,
    without_entries,
)
from ndcg_spark.evaluation.tasks.partial_sums import SummingTask, make_partial_summer
from ndcg_spark.evaluation.tasks.query_rows import RUN, RankingTask, grouped_rows
from ndcg_spark.evaluation.tasks.rankings import rankings_batches
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, make_scorer
from ndcg_spark.evaluation.tasks.valid_rows import runs_of


def make_merger(task: RankingTask) -> BatchFunction:
    """Build the function from what arrives in a partition to rankings, under the user's names."""
    return batch_function(lambda batches: _rankings(batches, task, []))


def make_merging_summer(task: RankingTask, scoring: ScoringTask, summing: SummingTask) -> BatchFunction:
    """Build the function from what arrives in a partition to partial summaries."""
    score, add_up = make_scorer(scoring), make_partial_summer(summing)

    def summarize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: list[pa.RecordBatch] = []
        yield from add_up(score(_rankings(batches, task, sums)))
        yield from sums

    return batch_function(summarize)


def _rankings(
    batches: Iterator[pa.RecordBatch], task: RankingTask, sums: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    held = _Held(task)
    for batch in batches:
        ids, kinds = batch.column("partition_id").to_pylist(), batch.column("kind").to_pylist()
        for number, kind, payload in zip(ids, kinds, batch.column("payload"), strict=True):
            buffer = payload.as_buffer()
            found = from_bytes(buffer)
            if kind == SUMS:
                sums += found
            else:
                held.add(number, kind, found, buffer.size)
    for complete in held.complete():
        yield from rankings_batches(complete, task)
    for nameless in held.nameless():
        yield from rankings_batches(nameless, task)


@dataclass(slots=True)
class _Arrived:
    """What has arrived for one partition id, or for several."""

    batches: defaultdict[int, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    """As they were sent, by kind: to read many partial rankings at once costs less than each by itself."""
    partials: list[PartialRankings] = field(default_factory=list)
    n_bytes: int = 0

    def add(self, other: _Arrived) -> None:
        for kind, batches in other.batches.items():
            self.batches[kind] += batches
        self.partials += other.partials
        self.n_bytes += other.n_bytes

    def merge(self, task: RankingTask) -> list[PartialRankings]:
        """Make one partial ranking of each query of a run."""
        packed, rows = self.batches.pop(PARTIALS, []), self.batches.pop(ROWS, [])
        for counted in (False, True):  # of rejected rows, in which batches have further columns
            if alike := [batch for batch in packed if (N_REJECTED in batch.schema.names) is counted]:
                self.partials.append(partials_in(joined(alike)))
        if rows:
            self.partials += partials_of(*grouped_rows(joined(rows), task.names, completely=True), task)
        self.partials = merged(self.partials, task)
        return self.partials


class _Held:
    """What has arrived in a task, which Spark may give many partition ids."""

    def __init__(self, task: RankingTask) -> None:
        self._task = task
        self._by_id: dict[int, _Arrived] = {}
        self._runs: set[str] = set()
        self._nameless = Counter[str | None]()
        self._n_rows = self._n_bytes = 0

    def add(self, number: int, kind: int, batches: list[pa.RecordBatch], n_bytes: int) -> None:
        if kind == RUNS:
            self._runs.update(name for batch in batches for name in batch.column(RUN).to_pylist())
            return
        if kind == NAMELESS:
            for batch in batches:
                counts = batch.column(N_REJECTED).to_pylist()
                self._nameless.update(dict(zip(batch.column(RUN).to_pylist(), counts, strict=True)))
            return
        arrived = self._by_id.setdefault(number, _Arrived())
        arrived.n_bytes += n_bytes
        arrived.batches[kind] += batches
        if kind == ROWS:
            self._n_rows += sum(rows.num_rows for rows in batches)
            self._n_bytes += n_bytes
            self._cut_if_many()

    def _cut_if_many(self) -> None:
        """Rows are cut as they come, so that memory is bounded by what is kept of them."""
        task = self._task
        many = self._n_rows > 8 * task.held_rows or self._n_bytes > 2 * task.held_bytes
        if many and n_entries(task) is not None:
            for arrived in self._by_id.values():
                if ROWS in arrived.batches:
                    arrived.merge(task)
            self._n_rows = self._n_bytes = 0

    def complete(self) -> Iterator[PartialRankings]:
        """Yield the rankings of complete queries: all of their parts have arrived.

        A few megabytes at once: arrays that do not fit into the processor's cache take several times as long.
        """
        block = _Arrived()
        for number in sorted(self._by_id):
            block.add(self._by_id.pop(number))
            if block.n_bytes >= self._task.block_bytes:
                yield from self._finished(block)
                block = _Arrived()
        yield from self._finished(block)

    def nameless(self) -> list[PartialRankings]:
        """Count rejected rows without a query: one ranking a run, whose query is null."""
        if not self._nameless:
            return []
        task, runs = self._task, pa.array(list(self._nameless), pa.string())
        nothing = next(runs_of(pa.RecordBatch.from_pylist([], schema=task.rows), task.names))
        keys = {name: pa.nulls(len(runs), task.rows.field(name).type) for name in task.names.query}
        found = without_entries({RUN: runs} | keys, nothing, task)
        found.head[N_REJECTED] = pa.array(list(self._nameless.values()), pa.int64())
        return self._judged([found], [])

    def _finished(self, block: _Arrived) -> list[PartialRankings]:
        return self._judged(block.merge(self._task), block.batches[JUDGMENTS])

    def _judged(self, found: list[PartialRankings], judgments: list[pa.RecordBatch]) -> list[PartialRankings]:
        if self._task.judgments is None:
            return found
        nothing = pa.RecordBatch.from_pylist([], schema=self._task.judgments)
        return judged_partials(found, joined(judgments or [nothing]), self._runs, self._task)
