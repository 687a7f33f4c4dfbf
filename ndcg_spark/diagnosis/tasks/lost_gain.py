"""Rankings in, what each query loses against its ideal list out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function, float_column, float_values
from ndcg_spark.core.ragged import BoolArray, FloatArray
from ndcg_spark.diagnosis.kernels.lost_gain import best_swap, gain_by_rank, retrieved_ideal
from ndcg_spark.evaluation.settings import SummedMetric
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, read_lists, score_batch
from ndcg_spark.metrics.kernels.lists import GainLists
from ndcg_spark.metrics.kernels.ties import TieGroups, expected_weights, extreme_groups

LOSSES = ("not_retrieved", "ranked_low", "lost_not_retrieved", "lost_ranked_low", "swap_gain")
"""What is lost in DCG, then the same over IDCG, and what the best swap adds to DCG."""
SWAPPED = ("swap_rank", "swap_with")


def rank_column(rank: int) -> str:
    """Name of the column with what a rank, from 1 on, adds to NDCG."""
    return f"ndcg_rank_{rank}"


def loss_metrics(max_k: int) -> tuple[SummedMetric, ...]:
    """The columns whose means are taken, for cutoffs up to `max_k`."""
    names = ("ndcg", "dcg", "idcg", *LOSSES, *(rank_column(rank) for rank in range(1, max_k + 1)))
    return tuple(SummedMetric(name, name) for name in names)


def make_loss_scorer(task: ScoringTask, max_k: int) -> BatchFunction:
    """Build the function from rankings to metrics of queries and what they lose, one batch a cutoff.

    All of it is null for a query without a relevant item, also under rules that give it an NDCG.
    """

    def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lists = read_lists(batch, task.convention, task.keys, task.cutoffs, task.discount)
            for k, scored in zip(task.cutoffs, score_batch(batch, task), strict=True):
                yield _with_losses(scored, lists, task, k, max_k)

    return batch_function(score)


def _with_losses(
    scored: pa.RecordBatch, lists: GainLists, task: ScoringTask, k: int | None, max_k: int
) -> pa.RecordBatch:
    assert k is not None
    assert task.discount is not None
    discount, groups = task.discount, _groups(lists, task.convention.ties)
    weights = expected_weights(groups, discount, k=k)
    dcg, _ = float_values(scored.column("dcg"))
    idcg, known = float_values(scored.column("idcg"))
    known = known & (idcg > 0)
    best = retrieved_ideal(lists.ranked, groups.count, lists.offsets, discount, k=k)
    swap = best_swap(lists.ranked, weights / groups.count, lists.offsets)
    safe = np.where(known, idcg, 1.0)
    columns = {name: scored.column(name) for name in scored.schema.names}
    columns["ndcg"] = float_column(np.where(known, dcg / safe, 0.0), known)
    values = (idcg - best, best - dcg, (idcg - best) / safe, (best - dcg) / safe, swap.gain)
    columns |= {name: float_column(value, known) for name, value in zip(LOSSES, values, strict=True)}
    for name, entry in zip(SWAPPED, (swap.first, swap.second), strict=True):
        swaps = known & (entry >= 0)
        at = np.where(swaps, lists.offsets[:-1] + entry, 0)
        ranks = groups.start[at] + 1 if len(groups.start) else at
        columns[name] = pa.array(ranks.astype(np.int32), mask=~swaps)
    shares = gain_by_rank(lists.ranked, groups, lists.offsets, discount, k=k) / safe[:, None]
    columns |= _by_rank(shares, known, max_k)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _by_rank(shares: FloatArray, known: BoolArray, max_k: int) -> dict[str, pa.Array]:
    """A column for each rank; null beyond the cutoff."""
    n, k = shares.shape
    nothing = pa.nulls(n, pa.float64())
    return {
        rank_column(rank): float_column(np.ascontiguousarray(shares[:, rank - 1]), known) if rank <= k else nothing
        for rank in range(1, max_k + 1)
    }


def _groups(lists: GainLists, ties: str) -> TieGroups:
    """Ranks that the items of each entry may take: one by itself, or those of its tie group."""
    if lists.groups is None:
        one = np.ones(len(lists.ranked), dtype=np.int64)
        return TieGroups(lists.rank, one, one, np.arange(len(one)))
    if ties == "expected":
        return lists.groups
    return extreme_groups(lists.groups, lists.ranked, best=ties == "best")
