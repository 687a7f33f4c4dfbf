"""Losses of queries against their ideal lists, and changes of means between two nights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.core import labels
from ndcg_spark.core.batches import float_column, float_values
from ndcg_spark.core.exact import MOMENTS
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.diagnosis.kernels import SegmentSums, best_swap, gain_by_rank, mix_and_within, retrieved_ideal
from ndcg_spark.evaluation.rules import RULES, combine_rules
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, read_lists, score_batch
from ndcg_spark.metrics import EVERY, MetricAt, NamedMetric
from ndcg_spark.metrics.kernels import TieGroups, expected_weights, extreme_groups
from ndcg_spark.metrics.lists import GainLists

LOSSES = ("not_retrieved", "ranked_low", "lost_not_retrieved", "lost_ranked_low", "swap_gain")
"""What is lost in DCG, then the same over IDCG, and what the best swap adds to DCG."""
SWAPPED = ("swap_rank", "swap_with")


def rank_column(rank: int) -> str:
    """Name the column of a rank's share of NDCG; ranks start from 1."""
    return f"ndcg_rank_{rank}"


@dataclass(frozen=True)
class Loss(NamedMetric):
    """A column of `score_losses`, of which means are taken."""

    title: str

    def __str__(self) -> str:
        return self.title


def loss_metrics(max_k: int) -> tuple[MetricAt, ...]:
    names = ("ndcg", "dcg", "idcg", *LOSSES, *(rank_column(rank) for rank in range(1, max_k + 1)))
    return tuple(MetricAt(Loss(name), EVERY) for name in names)


def score_losses(batches: Iterator[pa.RecordBatch], task: ScoringTask, max_k: int) -> Iterator[pa.RecordBatch]:
    """Score rankings: metrics of queries and what they lose, one batch a cutoff.

    All losses are null for a query without a relevant item, also under rules that define an NDCG for it.
    """
    for batch in batches:
        lists = read_lists(batch, task.convention, task.keys, task.cutoffs, task.discount)
        for scores in score_batch(batch, task):
            yield _with_losses(scores.to_batch(task), lists, task, scores.k, max_k)


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


AFTER = "after"
SHIFT_KEYS = ("run", "segment_by", "metric", "k")
SHIFT_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "segment_by", "segment")),
        ("is_total", pa.bool_()),
        ("metric", pa.string()),
        ("k", pa.int32()),
        *((name, pa.float64()) for name in ("weight_before", "weight_after", "value_before", "value_after")),
        *((name, pa.float64()) for name in ("mix", "within", "change")),
        (RULES, pa.string()),
    ]
)
Group = dict[tuple[str | None, bool], SegmentSums]


def divide_changes(batches: Iterator[pa.RecordBatch], across_rules: bool) -> Iterator[pa.RecordBatch]:
    """Divide changes of means into mix and within: rows of summaries, all segments of a mean in one worker."""
    groups: dict[tuple[Any, ...], dict[tuple[str | None, bool], IntArray]] = {}
    rules: dict[tuple[Any, ...], dict[bool, set[str]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            key = tuple(row[name] for name in SHIFT_KEYS)
            rules.setdefault(key, {False: set(), True: set()})[row[AFTER]].add(row[RULES])
            held = groups.setdefault(key, {})
            place = row["segment"], row[AFTER]
            state = np.array(row["state"], dtype=np.int64)
            held[place] = held[place] + state if place in held else state
    for key, held in groups.items():
        about = dict(zip(SHIFT_KEYS, key, strict=True))
        texts = [text for night in rules[key].values() for text in sorted(night)]
        what = f"the change of {labels.metric_at(about['metric'], about['k'])} by {about['segment_by']}"
        about[RULES] = combine_rules(texts, what, across=across_rules)
        sums = {place: SegmentSums(*MOMENTS.fractions(state, "w", "wv").values()) for place, state in held.items()}
        rows = list(_rows(about, sums))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=SHIFT_SCHEMA)


def _rows(about: dict[str, Any], held: Group) -> Iterator[dict[str, Any]]:
    names = sorted({segment for segment, _ in held}, key=lambda one: (one is None, one or ""))
    nights = [[held.get((name, after)) for name in names] for after in (False, True)]
    totals = [
        SegmentSums(*(sum((getattr(one, part) for one in night if one), Fraction(0)) for part in ("weight", "total")))
        for night in nights
    ]
    if not all(one.weight for one in totals):
        return  # a night without queries has no mean that could have changed
    shifts = mix_and_within(*nights)
    parts = [(name, False, *sums, *shift) for name, *sums, shift in zip(names, *nights, shifts, strict=True)]
    whole = [sum((shift[at] for shift in shifts), Fraction(0)) for at in (0, 1)]
    for segment, is_total, before, after, mix, within in [*parts, ("", True, *totals, *whole)]:
        yield {
            **about, "segment": segment, "is_total": is_total, "weight_before": _weight(before),
            "weight_after": _weight(after), "value_before": _mean(before), "value_after": _mean(after),
            "mix": float(mix), "within": float(within), "change": float(mix + within),
        }  # fmt: skip


def _weight(sums: SegmentSums | None) -> float:
    return 0.0 if sums is None else float(sums.weight)


def _mean(sums: SegmentSums | None) -> float | None:
    return None if sums is None or not sums.weight else float(sums.total / sums.weight)
