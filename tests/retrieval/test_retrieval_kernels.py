"""Screens keep their margin, exact scores do not depend on blocks, bits are counted."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import ndcg_spark.core.distances
from ndcg_spark.core.distances import (
    HAS_BIT_COUNT,
    count_bits,
    make_vectors,
    pack_bits,
    pack_bytes,
    scale_to_one,
    score_pairs,
    sum_squares,
    unpack_signs,
)
from ndcg_spark.retrieval.kernels import build_screen, count_ties, find_candidates, find_kth_values, select_best_items

REAL = ("cosine", "inner", "euclidean")


def generate_vectors(rng, n, width, shape):
    """Generate vectors that are easy, far from the origin, of very different lengths, or nearly equal."""
    generated = rng.normal(size=(n, width))
    if shape == "far":
        return generated + 1e6
    if shape == "lengths":
        return generated * 10.0 ** rng.integers(-9, 9, size=(n, 1))
    return 1 + generated * 1e-9 if shape == "near" else generated


def score_all(metric, left, right):
    rows, columns = np.divmod(np.arange(len(left) * len(right)), len(right))
    return score_pairs(metric, left, right, rows, columns).reshape(len(left), len(right))


@pytest.mark.parametrize("shape", ["easy", "far", "lengths", "near"])
@pytest.mark.parametrize("width", [1, 3, 64, 300])
@pytest.mark.parametrize("metric", REAL)
def test_a_screen_keeps_its_margin(metric, width, shape):
    rng = np.random.default_rng(width)
    left, right = (make_vectors(generate_vectors(rng, n, width, shape)) for n in (40, 500))
    screen, scores = build_screen(metric, left, right), score_all(metric, left, right)
    values = np.stack([screen.convert_scores(column) for column in scores.T], axis=1)
    off = np.abs(screen.compute_tile(slice(0, 40), slice(0, 500)) - values)
    assert (off <= screen.margin[:, None]).all()
    assert off.max() > 0 or width == 1  # float32 does round, but not a cosine of one entry


@pytest.mark.parametrize("metric", [*REAL, "hamming"])
@pytest.mark.parametrize("shape", ["easy", "far", "lengths", "near"])
def test_candidates_hold_the_best_and_all_that_tie_with_the_last(metric, shape):
    rng = np.random.default_rng(5)
    if metric == "hamming":
        left, right = (make_vectors(pack_bits(rng.random((n, 20)) < 0.5)) for n in (30, 9000))
    else:
        left, right = (make_vectors(generate_vectors(rng, n, 8, shape)) for n in (30, 9000))
    scores = score_all(metric, left, right)
    kth = np.sort(scores, axis=1)[:, -6]
    screen = build_screen(metric, left, right)
    actual = {pair for pairs in find_candidates(screen, 6, np.full(30, -np.inf), max_pairs=500)
             for pair in zip(*(pair.tolist() for pair in pairs), strict=True)}  # fmt: skip
    assert set(zip(*(indices.tolist() for indices in np.nonzero(scores >= kth[:, None])), strict=True)) <= actual


def test_vectors_far_from_the_origin_have_few_candidates():
    """Screens are around the mean: around the origin float32 products are equal, and every pair a candidate."""
    rng = np.random.default_rng(5)
    left, right = (make_vectors(generate_vectors(rng, n, 8, "far")) for n in (30, 9000))
    pairs = list(find_candidates(build_screen("euclidean", left, right), 6, np.full(30, -np.inf)))
    assert 30 * 6 <= sum(len(queries) for queries, _ in pairs) <= 30 * 12


@pytest.mark.parametrize("metric", REAL)
def test_a_pair_has_one_score_in_every_block(metric):
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(20, 131)), rng.normal(size=(700, 131))
    whole = score_all(metric, make_vectors(x), make_vectors(y))
    for rows, columns in ((slice(3, 4), slice(0, 700)), (slice(0, 20), slice(5, 6)), (slice(2, 9), slice(300, 650))):
        assert (score_all(metric, make_vectors(x[rows]), make_vectors(y[columns])) == whole[rows, columns]).all()
    exact = [
        [math.fsum(a * b for a, b in zip(entry, other, strict=True)) for other in y[:9].tolist()]
        for entry in x.tolist()
    ]
    if metric == "inner":
        assert whole[:, :9] == pytest.approx(np.array(exact), abs=1e-12)


def test_sums_of_squares_and_scaling():
    values = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1e300, 0.0, 1e300]])
    scaled = scale_to_one(values)
    assert sum_squares(values[:2]).tolist() == [25.0, 0.0]
    assert scaled[0].tolist() == [3 / 8, 4 / 8, 0]
    assert np.isfinite(sum_squares(scaled)).all()


@pytest.mark.parametrize("has_bit_count", sorted({HAS_BIT_COUNT, False}))
def test_bits_are_counted_and_unpacked(has_bit_count, monkeypatch):
    monkeypatch.setattr(ndcg_spark.core.distances, "HAS_BIT_COUNT", has_bit_count)
    numbers = [0, 1, 255, 2**63, 2**64 - 1, 0x0123456789ABCDEF]
    words = np.array(numbers, dtype=np.uint64).reshape(2, 3)
    assert count_bits(words).tolist() == [[cell.bit_count() for cell in row] for row in (numbers[:3], numbers[3:])]
    assert (unpack_signs(words) > 0).sum() == sum(number.bit_count() for number in numbers)


def test_the_last_word_is_filled_with_zeros():
    bits = np.ones((2, 70), dtype=bool)
    assert count_bits(pack_bits(bits)).sum(axis=1).tolist() == [70, 70]
    assert pack_bytes(np.full((1, 9), 255, dtype=np.uint8)).shape == (1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_kth_values_are_those_of_a_sort(seed):
    rng = np.random.default_rng(seed)
    query = rng.integers(0, 9, 60).astype(np.int32)
    value = np.concatenate([rng.normal(size=50) * 1e3, [0.0, -0.0, 1.0, 1.0, -1.0] * 2]).astype(np.float32)
    for k in (1, 3, 8):
        wanted = [sorted(value[query == query_id].tolist(), reverse=True) for query_id in range(10)]
        got = find_kth_values(query, value, 10, k).tolist()
        assert got == [sorted_values[k - 1] if len(sorted_values) >= k else -math.inf for sorted_values in wanted]


@pytest.mark.parametrize("seed", range(5))
def test_first_items_and_tie_groups_are_those_of_loops(seed):
    rng = np.random.default_rng(seed)
    query, score, item = rng.integers(0, 4, 50), rng.integers(0, 5, 50).astype(float), rng.permutation(50)
    relevance, k = rng.integers(0, 3, 50).astype(float), 7
    rows = sorted(range(50), key=lambda at: (query[at], -score[at], item[at]))
    expected = [at for at in rows if sum(query[other] == query[at] for other in rows[: rows.index(at)]) < k]
    assert select_best_items(query, score, item, k, 4).tolist() == expected
    actual = list(zip(*count_ties(query, score, relevance, np.ones(50, dtype=np.int64), k, 4), strict=True))
    for query_id, _, _, count in actual:
        assert count > 0
        nearer = {(q, s) for q, s, *_ in actual if q == query_id}
        lowest = min(s for _, s in nearer)
        assert sum(n for q, s, _, n in actual if q == query_id and s > lowest) < k
        assert sum(n for q, *_, n in actual if q == query_id) >= min(k, (query == query_id).sum())
    for q, s, r, count in actual:
        assert count == ((query == q) & (score == s) & (relevance == r)).sum()
    assert all((a[0], -a[1], a[2]) < (b[0], -b[1], b[2]) for a, b in pairwise(actual))
