"""What arrives in a partition: merged, judged, ranked, and scored."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ndcg_spark.worker.batches import BatchFunction, joined, marked
from ndcg_spark.worker.canonical import RUN
from ndcg_spark.worker.exchange import (
    JUDGMENTS,
    PARTIALS,
    ROWS,
    RUNS,
    SUMS,
    from_bytes,
    partials_in,
    partials_of,
)
from ndcg_spark.worker.judging import judged_partials
from ndcg_spark.worker.merging import merged
from ndcg_spark.worker.partial_ranking import (
    PartialRankings,
    n_entries,
)
from ndcg_spark.worker.partial_sums import SummingTask, make_partial_summer
from ndcg_spark.worker.query_rows import RankingTask
from ndcg_spark.worker.rankings import rankings_batches
from ndcg_spark.worker.scoring import ScoringTask, make_scorer


def make_merger(task: RankingTask) -> BatchFunction:
    """Build the function that makes rankings of what arrives in a partition.

    Parameters
    ----------
    task : RankingTask

    Returns
    -------
    callable
        From batches of `EXCHANGE_SCHEMA` to rankings, under the user's names.
    """

    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return marked(_rankings(batches, task, []))

    return merge


def make_merging_summer(task: RankingTask, scoring: ScoringTask, summing: SummingTask) -> BatchFunction:
    """Build the function that ranks, scores and adds up what arrives in a partition.

    Parameters
    ----------
    task : RankingTask
    scoring : ScoringTask
    summing : SummingTask

    Returns
    -------
    callable
        From batches of `EXCHANGE_SCHEMA` to partial summaries.
    """
    score, add_up = make_scorer(scoring), make_partial_summer(summing)

    def summarize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums: list[pa.RecordBatch] = []
        yield from add_up(score(marked(_rankings(batches, task, sums))))
        yield from sums

    return summarize


def _rankings(
    batches: Iterator[pa.RecordBatch], task: RankingTask, sums: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    held = _Held(task)
    for batch in batches:
        for kind, payload in zip(batch.column("kind").to_pylist(), batch.column("payload"), strict=True):
            found = from_bytes(payload)
            if kind == SUMS:
                sums += found
            else:
                held.add(kind, found)
    for complete in held.complete():
        yield from rankings_batches(complete, task)


class _Held:
    """What has arrived in a partition so far."""

    def __init__(self, task: RankingTask) -> None:
        self._task = task
        self._rows: list[pa.RecordBatch] = []
        self._partials: list[PartialRankings] = []
        self._packed: list[pa.RecordBatch] = []
        self._judgments: list[pa.RecordBatch] = []
        self._runs: set[str] = set()

    def add(self, kind: int, batches: list[pa.RecordBatch]) -> None:
        if kind == RUNS:
            self._runs.update(name for batch in batches for name in batch.column(RUN).to_pylist())
        elif kind == JUDGMENTS:
            self._judgments += batches
        elif kind == PARTIALS:
            self._packed += batches
        elif kind == ROWS:
            self._rows += batches
            self._cut_if_many()

    def _cut_if_many(self) -> None:
        """Rows are cut as they come, so that memory is bounded by what is kept of them."""
        task = self._task
        many = sum(rows.num_rows for rows in self._rows) > 8 * task.held_rows
        large = sum(rows.nbytes for rows in self._rows) > 2 * task.held_bytes
        if (many or large) and n_entries(task) is not None:
            self._cut()
            self._partials = merged(self._partials, task)

    def _cut(self) -> None:
        if self._packed:
            self._partials.append(partials_in(joined(self._packed)))  # to read each by itself costs more
            self._packed = []
        if self._rows:
            self._partials += partials_of(joined(self._rows), self._task, completely=True)
            self._rows = []

    def complete(self) -> list[PartialRankings]:
        """Rankings with all there is to know of their queries."""
        self._cut()
        complete = merged(self._partials, self._task)
        if self._task.judgments is None:
            return complete
        judgments = joined(self._judgments) if self._judgments else None
        return judged_partials(complete, judgments, self._runs, self._task)
