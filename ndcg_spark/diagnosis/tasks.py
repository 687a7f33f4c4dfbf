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
from ndcg_spark.diagnosis.kernels import (
    SegmentSums,
    compute_gain_by_rank,
    compute_retrieved_ideal,
    find_best_swap,
    split_shifts,
)
from ndcg_spark.evaluation.rules import RULES, combine_rules
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, read_lists, score_batch
from ndcg_spark.metrics import EVERY, MetricAt, NamedMetric
from ndcg_spark.metrics.kernels import TieGroups, expected_weights, extreme_groups
from ndcg_spark.metrics.lists import GainLists

LOSSES = ("not_retrieved", "ranked_low", "lost_not_retrieved", "lost_ranked_low", "swap_gain")
"""Losses in DCG, the same losses divided by IDCG, and the DCG that the best swap adds."""
SWAPPED = ("swap_rank", "swap_with")


def rank_column(rank: int) -> str:
    """Name the column of a rank's share of NDCG; ranks start from 1."""
    return f"ndcg_rank_{rank}"


@dataclass(frozen=True)
class Loss(NamedMetric):
    """A column of `score_losses` that is averaged like a metric."""

    title: str

    def __str__(self) -> str:
        return self.title


def list_loss_metrics(max_k: int) -> tuple[MetricAt, ...]:
    names = ("ndcg", "dcg", "idcg", *LOSSES, *(rank_column(rank) for rank in range(1, max_k + 1)))
    return tuple(MetricAt(Loss(name), EVERY) for name in names)


def score_losses(batches: Iterator[pa.RecordBatch], task: ScoringTask, max_k: int) -> Iterator[pa.RecordBatch]:
    """Score rankings: metrics and losses of queries, one batch per cutoff.

    All losses are null for a query without a relevant item, also under rules that define an NDCG for it.
    """
    for batch in batches:
        lists = read_lists(batch, task)
        for scores in score_batch(batch, task):
            yield _add_losses(scores.to_batch(task), lists, task, scores.k, max_k)


def _add_losses(
    scored: pa.RecordBatch, lists: GainLists, task: ScoringTask, k: int | None, max_k: int
) -> pa.RecordBatch:
    assert k is not None
    assert task.discount is not None
    discount, groups = task.discount, _build_groups(lists, task.convention.ties)
    weights = expected_weights(groups, discount, k=k)
    dcg, _ = float_values(scored.column("dcg"))
    idcg, known = float_values(scored.column("idcg"))
    known = known & (idcg > 0)
    best = compute_retrieved_ideal(lists.ranked, groups.count, lists.offsets, discount, k=k)
    swap = find_best_swap(lists.ranked, weights / groups.count, lists.offsets)
    safe = np.where(known, idcg, 1.0)
    columns = {column: scored.column(column) for column in scored.schema.names}
    columns["ndcg"] = float_column(np.where(known, dcg / safe, 0.0), known)
    values = (idcg - best, best - dcg, (idcg - best) / safe, (best - dcg) / safe, swap.gain)
    columns |= {column: float_column(value, known) for column, value in zip(LOSSES, values, strict=True)}
    for column, entry in zip(SWAPPED, (swap.first, swap.second), strict=True):
        swaps = known & (entry >= 0)
        positions = np.where(swaps, lists.offsets[:-1] + entry, 0)
        ranks = groups.start[positions] + 1 if len(groups.start) else positions
        columns[column] = pa.array(ranks.astype(np.int32), mask=~swaps)
    shares = compute_gain_by_rank(lists.ranked, groups, lists.offsets, discount, k=k) / safe[:, None]
    columns |= _split_by_rank(shares, known, max_k)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _split_by_rank(shares: FloatArray, known: BoolArray, max_k: int) -> dict[str, pa.Array]:
    """Return a column for each rank; null beyond the cutoff."""
    n, k = shares.shape
    nothing = pa.nulls(n, pa.float64())
    return {
        rank_column(rank): float_column(np.ascontiguousarray(shares[:, rank - 1]), known) if rank <= k else nothing
        for rank in range(1, max_k + 1)
    }


def _build_groups(lists: GainLists, ties: str) -> TieGroups:
    """Return the ranks that the items of each entry may have: one rank if untied, else those of the tie group."""
    if lists.groups is None:
        ones = np.ones(len(lists.ranked), dtype=np.int64)
        return TieGroups(lists.rank, ones, ones, np.arange(len(ones)))
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


def split_changes(batches: Iterator[pa.RecordBatch], across_rules: bool) -> Iterator[pa.RecordBatch]:
    """Split changes of means into mix and within; all segments of a mean must be on one worker."""
    groups: dict[tuple[Any, ...], dict[tuple[str | None, bool], IntArray]] = {}
    rules: dict[tuple[Any, ...], dict[bool, set[str]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            key = tuple(row[column] for column in SHIFT_KEYS)
            rules.setdefault(key, {False: set(), True: set()})[row[AFTER]].add(row[RULES])
            states = groups.setdefault(key, {})
            place = row["segment"], row[AFTER]
            state = np.array(row["state"], dtype=np.int64)
            states[place] = states[place] + state if place in states else state
    for key, states in groups.items():
        fields = dict(zip(SHIFT_KEYS, key, strict=True))
        texts = [text for night in rules[key].values() for text in sorted(night)]
        subject = f"the change of {labels.metric_at(fields['metric'], fields['k'])} by {fields['segment_by']}"
        fields[RULES] = combine_rules(texts, subject, across=across_rules)
        sums = {place: SegmentSums(*MOMENTS.fractions(state, "w", "wv").values()) for place, state in states.items()}
        rows = list(_build_rows(fields, sums))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=SHIFT_SCHEMA)


def _build_rows(fields: dict[str, Any], sums_by_segment: Group) -> Iterator[dict[str, Any]]:
    segments = sorted({segment for segment, _ in sums_by_segment}, key=lambda text: (text is None, text or ""))
    nights = [[sums_by_segment.get((segment, after)) for segment in segments] for after in (False, True)]
    totals = [
        SegmentSums(
            sum((sums.weight for sums in night if sums), Fraction(0)),
            sum((sums.total for sums in night if sums), Fraction(0)),
        )
        for night in nights
    ]
    if not all(total.weight for total in totals):
        return  # a night without queries has no mean that could have changed
    shifts = split_shifts(*nights)
    parts = [(text, False, *sums, *shift) for text, *sums, shift in zip(segments, *nights, shifts, strict=True)]
    whole = [sum((shift[component] for shift in shifts), Fraction(0)) for component in (0, 1)]
    for segment, is_total, before, after, mix, within in [*parts, ("", True, *totals, *whole)]:
        yield {
            **fields, "segment": segment, "is_total": is_total, "weight_before": _read_weight(before),
            "weight_after": _read_weight(after), "value_before": _read_mean(before), "value_after": _read_mean(after),
            "mix": float(mix), "within": float(within), "change": float(mix + within),
        }  # fmt: skip


def _read_weight(sums: SegmentSums | None) -> float:
    return 0.0 if sums is None else float(sums.weight)


def _read_mean(sums: SegmentSums | None) -> float | None:
    return None if sums is None or not sums.weight else float(sums.total / sums.weight)
