"""The replicates of units: what is multiplied with random numbers, and units that travel until it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndcg_spark.comparison.kernels.replicates import DRAWN
from ndcg_spark.comparison.kernels.resampling import WordArray, drawn_sums, flipped_sums
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.totals import Totals, add_sums
from ndcg_spark.core.exact import N_LIMBS, to_limbs
from ndcg_spark.core.ragged import BoolArray, FloatArray

Columns = list[tuple[int, FloatArray]]
"""Whole numbers below 2^32 of every unit, by their place in the sums."""


class Units(NamedTuple):
    """Weights A and differences D of units, 0 where a unit is not used; without weights A is 1."""

    used: BoolArray
    a: FloatArray | None
    d: FloatArray


def limb_columns(values: FloatArray) -> Columns:
    """Limbs of numbers as doubles, those that are not all zero."""
    return [(place, limb.astype(np.float64)) for place, limb in to_limbs(values).items() if limb.any()]


def drawn_columns(units: Units) -> Columns:
    """Columns of a bootstrap: the numbers of `DRAWN` in limbs; without weights three of them say all."""
    d, used = units.d, units.used.astype(np.float64)
    numbers = {"m": used, "d": d, "dd": d * d}
    if units.a is not None:
        numbers |= {"a": units.a, "aa": units.a * units.a, "ad": units.a * d}
    return [
        (DRAWN.index(name) * N_LIMBS + place, limb)
        for name, values in numbers.items()
        for place, limb in limb_columns(values)
    ]


def units_to_bytes(hashes: WordArray, units: Units) -> bytes:
    """Pack the units that are used: whether they have weights, then hashes, differences and weights."""
    numbers = [units.d] if units.a is None else [units.d, units.a]
    words = [np.array([units.a is not None], dtype=np.int64), hashes[units.used].view(np.int64)]
    words += [number[units.used].view(np.int64) for number in numbers]
    return np.concatenate(words).astype("<i8").tobytes()


def units_from_bytes(payload: bytes) -> tuple[WordArray, Units]:
    """Unpack `units_to_bytes`."""
    words = np.frombuffer(payload, dtype="<i8").astype(np.int64)
    hashes, d, *a = words[1:].reshape(3 if words[0] else 2, -1)
    weights = a[0].view(np.float64) if a else None
    return hashes.view(np.uint64), Units(np.ones(len(d), dtype=np.bool_), weights, d.view(np.float64))


def add_replicates(totals: Totals, payloads: list[bytes], settings: ComparisonSettings) -> None:
    """Add the replicates of units that travelled as they are."""
    found = [units_from_bytes(payload) for payload in payloads]
    if not found:
        return
    hashes = np.concatenate([its for its, _ in found])
    weights = [units.a for _, units in found if units.a is not None]
    d = np.concatenate([units.d for _, units in found])
    units = Units(np.ones(len(d), dtype=np.bool_), np.concatenate(weights) if weights else None, d)
    if settings.replicates:
        columns = drawn_columns(units)
        sums = drawn_sums(hashes, _stacked(columns, len(d)), seed=settings.seed, n_replicates=settings.replicates)
        add_sums(totals.drawn, {place: its for (place, _), its in zip(columns, sums, strict=True)})
    if settings.flips:
        columns = limb_columns(d)
        sums = flipped_sums(hashes, _stacked(columns, len(d)), seed=settings.seed, n_flips=settings.flips)
        add_sums(totals.flipped, {place: its for (place, _), its in zip(columns, sums, strict=True)})


def _stacked(columns: Columns, n: int) -> FloatArray:
    return np.array([column for _, column in columns]).reshape(len(columns), n)
