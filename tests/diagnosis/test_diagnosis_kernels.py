"""Mix and within, lost gain, swaps and gain by rank, against worked values and plain loops."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from support.expectations import near

from ndcg_spark.diagnosis.kernels import (
    SegmentSums,
    compute_gain_by_rank,
    compute_retrieved_ideal,
    find_best_swap,
    split_shifts,
)
from ndcg_spark.metrics.kernels import tie_groups

DISCOUNT = 1 / np.log2(np.arange(2, 22))
NIGHT_A = {"DE": (700, "0.52"), "US": (250, "0.44"), "JP": (50, "0.31")}
NIGHT_B = {"DE": (600, "0.51"), "US": (380, "0.45"), "FR": (120, "0.30")}


def build_sums(night, names):
    return [SegmentSums(Fraction(night[n][0]), night[n][0] * Fraction(night[n][1])) if n in night else None
            for n in names]  # fmt: skip


def test_the_worked_nights():
    names = ("DE", "US", "FR", "JP")
    actual = split_shifts(build_sums(NIGHT_A, names), build_sums(NIGHT_B, names))
    assert [float(effect.mix) for effect in actual] == [
        near(-0.005728719008), near(-0.003143491736), near(-0.019410743802), near(0.008396590909),
    ]  # fmt: skip
    assert [float(effect.within) for effect in actual] == [near(-0.006227272727), near(0.002977272727), 0, 0]
    assert float(sum(effect.mix for effect in actual)) == near(-0.019886363636)
    assert float(sum(effect.within for effect in actual)) == near(-0.00325)


@pytest.mark.parametrize("seed", range(20))
def test_mix_and_within_add_up_exactly(seed):
    rng = np.random.default_rng(seed)
    nights = [
        [
            SegmentSums(Fraction(float(w)), Fraction(float(w)) * Fraction(float(u))) if w else None
            for w, u in zip(np.where(rng.random(6) < 0.3, 0, rng.random(6)), rng.random(6), strict=True)
        ]
        for _ in range(2)
    ]
    if any(all(sums is None for sums in night) for night in nights):
        pytest.skip("a night without queries")
    means = [
        sum(sums.total for sums in night if sums) / sum(sums.weight for sums in night if sums) for night in nights
    ]
    assert sum(shift.mix + shift.within for shift in split_shifts(*nights)) == means[1] - means[0]


def dcg(gains, k):
    return sum(g * d for g, d in zip(gains[:k], DISCOUNT, strict=False))


def test_the_worked_list():
    ranked = [3.0, 2, 3, 0, 1, 2]
    gains, offsets, ones = np.array(ranked), np.array([0, 6]), np.ones(6, dtype=np.int64)
    ideal = dcg(sorted([*ranked, 3, 2], reverse=True), 6)
    retrieved = compute_retrieved_ideal(gains, ones, offsets, DISCOUNT, k=6)[0]
    assert (ideal, dcg(ranked, 6)) == (near(8.740262365546), near(6.861126688594))
    assert (ideal - retrieved, retrieved - dcg(ranked, 6)) == (near(1.599267181451), near(0.279868495502))
    assert (ideal - retrieved) / ideal == near(0.182977022264)
    assert (retrieved - dcg(ranked, 6)) / ideal == near(0.032020605766)
    swap = find_best_swap(gains, DISCOUNT[:6], offsets)
    assert (swap.gain[0], swap.first[0] + 1, swap.second[0] + 1) == (near(0.148938741931), 4, 6)
    groups = tie_groups(-np.arange(6.0), ones, offsets)
    profile = compute_gain_by_rank(gains, groups, offsets, DISCOUNT, k=6)[0] / ideal
    assert profile.tolist() == [
        near(0.343239124243), near(0.144373184050), near(0.171619562121), 0, near(0.044261006255),
        near(0.081509495301),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_against_plain_loops(seed):
    rng = np.random.default_rng(seed)
    lists = [rng.integers(-1, 4, rng.integers(0, 8)).astype(float) for _ in range(12)]
    offsets = np.cumsum([0, *map(len, lists)])
    gains = np.concatenate(lists)
    k = int(rng.integers(1, 6))
    weights = np.where(np.arange(20) < k, DISCOUNT, 0)
    swap = find_best_swap(gains, np.concatenate([weights[: len(ranked_list)] for ranked_list in lists]), offsets)
    best = compute_retrieved_ideal(gains, np.ones(len(gains), dtype=np.int64), offsets, DISCOUNT, k=k)
    for at, listed in enumerate(lists):
        assert best[at] == pytest.approx(dcg(sorted(listed, reverse=True), k), abs=1e-12)
        actual = {
            (i, j): (listed[j] - listed[i]) * (weights[i] - weights[j]) for j in range(len(listed)) for i in range(j)
        }
        highest = max([0.0, *actual.values()])
        assert swap.gain[at] == pytest.approx(highest, abs=1e-15)
        first = min([pair for pair, value in actual.items() if value == highest > 0], default=(-1, -1))
        assert (swap.first[at], swap.second[at]) == first


def test_gain_by_rank_of_ties_is_the_mean_over_their_orders():
    gains, counts = np.array([3.0, 1.0, 0.0, 2.0]), np.array([1, 2, 1, 1])
    groups = tie_groups(np.array([9.0, 5.0, 5.0, 1.0]), counts, np.array([0, 4]))
    orders = [[3.0, *order, 2.0] for order in permutations([1.0, 1.0, 0.0])]
    for k in (1, 2, 3, 5):
        expected = np.mean([[g * d for g, d in zip(order, DISCOUNT, strict=False)][:k] for order in orders], axis=0)
        assert compute_gain_by_rank(gains, groups, np.array([0, 4]), DISCOUNT, k=k)[0] == pytest.approx(
            expected, abs=1e-15
        )
