"""Sums of the segments of two nights in, what each adds to the change of the mean out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function
from ndcg_spark.core.exact import from_limbs
from ndcg_spark.core.moments import N_MOMENTS
from ndcg_spark.diagnosis.kernels.mix import SegmentSums, mix_and_within
from ndcg_spark.evaluation.rules import RULES, combine_rules
from ndcg_spark.metrics import named_at

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


def make_shifter(*, across_rules: bool = False) -> BatchFunction:
    """Build the function from rows of summaries, all segments of a mean in one worker, to `SHIFT_SCHEMA`."""

    def shift(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups: dict[tuple[Any, ...], Group] = {}
        rules: dict[tuple[Any, ...], dict[bool, set[str]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                key = tuple(row[name] for name in SHIFT_KEYS)
                rules.setdefault(key, {False: set(), True: set()})[row[AFTER]].add(row[RULES])
                held = groups.setdefault(key, {})
                place = row["segment"], row[AFTER]
                before = held.get(place, SegmentSums(*2 * [from_limbs([])]))
                sums = _sums(row["state"])
                held[place] = SegmentSums(before.weight + sums.weight, before.total + sums.total)
        for key, held in groups.items():
            about = dict(zip(SHIFT_KEYS, key, strict=True))
            texts = [text for night in rules[key].values() for text in sorted(night)]
            what = f"the change of {named_at(about['metric'], about['k'])} by {about['segment_by']}"
            about[RULES] = combine_rules(texts, what, across=across_rules)
            rows = list(_rows(about, held))
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=SHIFT_SCHEMA)

    return batch_function(shift)


def _sums(state: list[int]) -> SegmentSums:
    limbs = np.array(state, dtype=np.int64).reshape(N_MOMENTS, -1)
    return SegmentSums(from_limbs(limbs[0].tolist()), from_limbs(limbs[1].tolist()))


def _rows(about: dict[str, Any], held: Group) -> Iterator[dict[str, Any]]:
    names = sorted({segment for segment, _ in held}, key=lambda one: (one is None, one or ""))
    nights = [[held.get((name, after)) for name in names] for after in (False, True)]
    totals = [
        SegmentSums(
            *(sum((getattr(one, part) for one in night if one), from_limbs([])) for part in ("weight", "total"))
        )
        for night in nights
    ]
    if not all(one.weight for one in totals):
        return  # a night without queries has no mean that could have changed
    shifts = mix_and_within(*nights)
    parts = [(name, False, *sums, *shift) for name, *sums, shift in zip(names, *nights, shifts, strict=True)]
    whole = [sum((shift[at] for shift in shifts), from_limbs([])) for at in (0, 1)]
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
