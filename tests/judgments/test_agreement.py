"""Krippendorff's ordinal alpha: published tables, the krippendorff package, and merged parts."""

from __future__ import annotations

import numpy as np
import pytest

from ndcg_spark.judgments.kernels import PairCounts, count_rating_pairs, ordinal_alpha

NONE = float("nan")
# Krippendorff's table of four observers and twelve units, in Hayes and Krippendorff 2007 and his textbook.
FOUR_BY_TWELVE = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NONE, NONE, NONE],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NONE, 3],
    [NONE, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NONE],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NONE],
]
FIVE_ITEMS = [[3, 3, 2], [0, 1, 0], [-1, -1], [2], [1, 2, 2]]


def concatenate(items):
    lengths = [len(ratings) for ratings in items]
    values = np.array([rating for ratings in items for rating in ratings], dtype=np.float64)
    return values, np.cumsum([0, *lengths])


def compute_alpha(items):
    return ordinal_alpha(count_rating_pairs(*concatenate(items)))


def transpose(table):
    return [[value for value in unit if value == value] for unit in zip(*table, strict=True)]


def test_five_items():
    """Expected: krippendorff 0.9.0 gives .858490566038."""
    actual = compute_alpha(FIVE_ITEMS)
    assert actual.alpha == pytest.approx(0.858490566038, abs=1e-12)
    assert actual[1:] == (None, 4, 11)


def test_four_observers_and_twelve_units():
    """Expected: krippendorff 0.9.0 gives .815387503755; the textbook 0.815."""
    actual = compute_alpha(transpose(FOUR_BY_TWELVE))
    assert actual.alpha == pytest.approx(0.815387503755, abs=1e-12)
    assert actual[1:] == (None, 11, 40)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], (None, "no_pairs", 0, 0)),
        ([[1], [2], []], (None, "no_pairs", 0, 0)),
        ([[1, 1], [1, 1, 1]], (None, "single_grade", 2, 5)),
        ([[0.0, -0.0]], (None, "single_grade", 1, 2)),
        ([[1, 1], [2, 2]], (1.0, None, 2, 4)),
    ],
)
def test_undefined_alpha_has_a_reason(items, expected):
    assert compute_alpha(items) == expected


def random_items(seed):
    generator = np.random.default_rng(seed)
    grades = generator.permutation([-1.0, 0.0, 0.5, 1.0, 2.0, 7.0])[: generator.integers(2, 7)]
    return [generator.choice(grades, generator.integers(0, 6)).tolist() for _ in range(generator.integers(2, 30))]


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(30))
def test_the_same_as_krippendorff(seed):
    peer = pytest.importorskip("krippendorff")
    items = random_items(seed)
    widest = max(map(len, items))
    table = np.array([[*ratings, *[NONE] * (widest - len(ratings))] for ratings in items]).T
    actual = compute_alpha(items)
    try:
        expected = peer.alpha(reliability_data=table, level_of_measurement="ordinal")
    except ValueError:  # it raises if alpha is undefined
        assert actual.alpha is None
    else:
        assert actual.alpha == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_pairs_are_those_of_two_loops(seed):
    items = random_items(seed)
    expected: dict[tuple[int, float, float], int] = {}
    for ratings in items:
        for i, first in enumerate(ratings):
            for j, second in enumerate(ratings):
                if i != j:
                    key = (len(ratings), first, second)
                    expected[key] = expected.get(key, 0) + 1
    actual = zip(*(column.tolist() for column in count_rating_pairs(*concatenate(items))), strict=True)
    assert {row[:3]: row[3] for row in actual} == expected


@pytest.mark.parametrize("seed", range(10))
def test_parts_in_any_order_give_the_same_bits(seed):
    items, generator = random_items(seed), np.random.default_rng(seed)
    shuffled = [generator.permutation(items[at]).tolist() for at in generator.permutation(len(items))]
    parts = [count_rating_pairs(*concatenate(part)) for part in (shuffled[:3], shuffled[3:4], shuffled[4:])]
    together = PairCounts(*map(np.concatenate, zip(*parts, strict=True)))
    order = generator.permutation(len(together.n))
    assert ordinal_alpha(PairCounts(*[column[order] for column in together])) == compute_alpha(items)
