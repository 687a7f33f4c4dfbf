"""The choices of the oracle one by one, the arithmetic shown; the closed form of ties against all orders."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.oracle import (
    Choices,
    Row,
    average_over_permutations,
    build_ranking,
    build_rows,
    evaluate,
    evaluate_every_order,
    evaluate_single,
    group_by_query,
    mean,
)
from support.random_rankings import SPECIAL_QUERIES, random_rows

LINEAR = Choices(gain="linear")
BY_HAND = Choices(gain="linear", discount="reciprocal")  # discounts 1, 1/2, 1/3, ...


@pytest.mark.parametrize(
    ("change", "dcg", "idcg"),
    [
        ({}, 3 - 1 / 3, 3 - 1 / 2),
        ({"negative": "clip"}, 3, 3),
        ({"unjudged": "condensed"}, 3 - 1 / 2, 3 - 1 / 2),
        ({"ideal": "k_ones"}, 3 - 1 / 3, 1 + 1 / 2 + 1 / 3 + 1 / 4),
        ({"pad_to_k": 1.0}, 3 - 1 / 3 + 1 / 4, 3 - 1 / 2),
        ({"gain": "exponential"}, 7 - 0.5 / 3, 7 - 0.5 / 2),
        ({"gain": "power:2"}, 9 - 1 / 3, 9 - 1 / 2),
        ({"gain": "table:-1=2,3=4"}, 4 + 2 / 3, 4 + 2 / 2),
        ({"gain": lambda relevance: relevance + 1}, 4, 4),
        ({"discount": "table:5,1,3,1"}, 15 - 3, 15 - 1),
        ({"discount": lambda rank: 1.0}, 2, 2),
        ({"discount": "ln"}, (3 - 1 / 2) / math.log(2), (3 - math.log(2, 3)) / math.log(2)),
        ({"discount": "log:10"}, (3 - 1 / 2) / math.log10(2), (3 - math.log(2, 3)) / math.log10(2)),
    ],
)
def test_one_choice_at_a_time(change, dcg, idcg):
    """Relevances 3, unjudged, -1 at a cutoff of 4."""
    got = evaluate_single(build_ranking([3, None, -1]), replace(BY_HAND, **change), 4)
    assert (got.dcg, got.idcg, got.ndcg) == pytest.approx((dcg, idcg, dcg / idcg), rel=1e-14)
    assert (got.n_items, got.n_judged, got.n_relevant) == (3, 2, 1)


@pytest.mark.parametrize(
    ("ties", "dcg"),
    [
        ("item_asc", 2 + 0 / 2 + 1 / 3),
        ("item_desc", 1 + 0 / 2 + 2 / 3),
        ("input_order", 0 + 1 / 2 + 2 / 3),
        ("expected", 1 + 1 / 2 + 1 / 3),
        ("best", 2 + 1 / 2 + 0 / 3),
        ("worst", 0 + 1 / 2 + 2 / 3),
    ],
)
@pytest.mark.parametrize("items", [(9, 10, 8), ("\uffee", "\U0001f600", "z")], ids=["numbers", "strings"])
def test_tie_rules(ties, dcg, items):
    """Numbers by value, strings by UTF-8 bytes (as UTF-16 the second would come before the first)."""
    rows = [
        Row(query="q", item=item, score=score, relevance=rel, position=n)
        for n, (item, rel, score) in enumerate(zip(items, [0, 1, 2], [0.0, -0.0, 0.0], strict=True))
    ]
    assert evaluate_single(rows[::-1], replace(BY_HAND, ties=ties), None).dcg == pytest.approx(dcg, rel=1e-14)


def test_single_precision_makes_ties_of_near_and_of_huge_scores():
    for scores in [(16777216.0, 16777217.0), (1e300, 1e301), (-1e301, -1e300), (0.0, 1e-60)]:
        rows = build_rows(scores, [1, 0])
        assert evaluate_single(rows, BY_HAND, None).dcg == 0.5
        assert evaluate_single(rows, replace(BY_HAND, score_precision="float32"), None).dcg == 0.75


@pytest.mark.parametrize("no_relevant", ["zero", "one", "skip"])
@pytest.mark.parametrize("missing", ["zero", "drop"])
@pytest.mark.parametrize("unjudged", ["zero", "drop"])
def test_policies_of_unusual_queries(no_relevant, missing, unjudged):
    rows = [
        *build_ranking([1, None], query="plain"),
        *build_ranking([0, 0], query="irrelevant"),
        *build_ranking([None], query="unjudged"),
        *build_ranking([], unretrieved=[1], query="missing"),
        *build_ranking([], unretrieved=[0], query="missing and irrelevant"),
    ]
    policies = {"no_relevant": no_relevant, "missing_query": missing, "unjudged_query": unjudged}
    results = evaluate(rows, replace(LINEAR, **policies), [1])
    got = {query: (r.dcg, r.idcg, r.ndcg, r.status) for (query, _), r in results.items()}
    assert got == {
        "plain": (1, 1, 1, "evaluated"),
        "irrelevant": (0, 0, {"zero": 0, "one": 1, "skip": None}[no_relevant], "no_relevant"),
        "unjudged": (*((0, 0, 0) if unjudged == "zero" else (None, None, None)), "unjudged"),
        "missing": (*((0, 1, 0) if missing == "zero" else (None, None, None)), "missing"),
        "missing and irrelevant": (*((0, 0, 0) if missing == "zero" else (None, None, None)), "missing"),
    }
    counted = [values[2] for values in got.values() if values[2] is not None]
    assert mean(results, 1) == sum(counted) / len(counted)


def test_the_mean_of_nothing_is_none_and_sums_are_exact():
    assert mean({}, 1) is None
    rows = [row for n in range(10) for row in build_ranking([None, 1], query=f"q{n}")]
    values = {key: replace(r, ndcg=0.1) for key, r in evaluate(rows, LINEAR, [2]).items()}
    assert sum([0.1] * 10) / 10 != 0.1
    assert mean(values, 2) == 0.1


@pytest.mark.parametrize(
    ("rows", "choices", "k", "error"),
    [
        (build_ranking([1, 1]), {"ties": "none"}, 1, ValueError),
        (build_ranking([1]) + build_ranking([1]), {}, 1, ValueError),
        (build_ranking([math.nan]), {}, 1, ValueError),
        (build_rows([math.inf], [1]), {}, 1, ValueError),
        (build_ranking([1]), {}, 0, ValueError),
        (build_ranking([5]), {"gain": "table:0=0,1=1"}, 1, KeyError),
        (build_ranking([1, 1]), {"discount": "table:1"}, 2, KeyError),
        ([Row(query="q", score=1, relevance=n) for n in (0, 1)], {"ties": "item_asc"}, 1, ValueError),
    ],
)
def test_what_has_no_value_is_an_error(rows, choices, k, error):
    with pytest.raises(error):
        evaluate(rows, replace(LINEAR, **choices), [k])


@pytest.mark.parametrize("k", [1, 2, 3, 5, None])
@pytest.mark.parametrize("seed", range(12))
def test_expected_ties_are_the_mean_over_all_orders(seed, k):
    rows = random_rows(seed, n_queries=5, max_items=6, negatives=True, fractional=True, special=False)
    choices = [Choices(), Choices(unjudged="condensed", discount="reciprocal", pad_to_k=0.5)]
    for its_rows in group_by_query(rows).values():
        for its_choices in choices:
            got, expected = (
                evaluate_single(its_rows, its_choices, k),
                average_over_permutations(its_rows, its_choices, k),
            )
            assert replace(got, dcg=None, ndcg=None) == replace(expected, dcg=None, ndcg=None)
            for value, its_mean in ((got.dcg, expected.dcg), (got.ndcg, expected.ndcg)):
                assert value == (None if its_mean is None else pytest.approx(its_mean, rel=1e-12, abs=1e-14))


@pytest.mark.parametrize("seed", range(12))
def test_best_and_worst_are_the_extremes_of_all_orders(seed):
    rows = random_rows(seed, n_queries=5, max_items=6, negatives=True, special=False)
    for its_rows in group_by_query(rows).values():
        every = [result.dcg for result in evaluate_every_order(its_rows, LINEAR, 3)]
        for ties, extreme in (("best", max), ("worst", min)):
            if every[0] is not None:
                got = evaluate_single(its_rows, replace(LINEAR, ties=ties), 3).dcg
                assert got == pytest.approx(extreme(every), rel=1e-12, abs=1e-14)


def test_the_special_queries_are_what_their_names_say():
    for seed in range(50):
        rows = random_rows(seed, negatives=seed % 2 == 0)
        results = evaluate(rows, LINEAR, [3])
        got = {name: results[name, 3] for name in SPECIAL_QUERIES}
        assert [got[name].status for name in SPECIAL_QUERIES[:3]] == ["unjudged", "missing", "no_relevant"]
        assert got["nothing relevant"].n_relevant == 0
        assert 2 * len(group_by_query(rows)["giant"]) == len(rows)
