"""The oracle against values that others print: worked examples, and what other tools test and document.

`test_oracle_choices.py` checks choice by choice, `test_oracle_differential.py` runs the other tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.oracle import (
    Choices,
    Row,
    evaluate,
    mean,
)
from support.shared_rankings import CHOICES_OF_TOOL
from support.small_rankings import only, ranked, scored

LINEAR = Choices(gain="linear")
EXPONENTIAL = Choices(gain="exponential")
TREC_EVAL = CHOICES_OF_TOOL["pytrec_eval"]
SKLEARN = CHOICES_OF_TOOL["sklearn_avg_ties_rows_ideal"]
MLLIB = replace(EXPONENTIAL, unjudged_query="zero")


# --- Worked examples, at the digits printed


@pytest.mark.parametrize(
    ("gain", "dcg", "idcg", "ndcg"),
    [("linear", 6.861127, 7.140995, 0.960808), ("exponential", 13.848264, 14.595390, 0.948811)],
)
def test_the_classic_example(gain, dcg, idcg, ndcg):
    got = only(ranked([3, 2, 3, 0, 1, 2]), Choices(gain=gain), 6)
    assert (got.dcg, got.idcg, got.ndcg) == pytest.approx((dcg, idcg, ndcg), abs=1e-6)  # 14.5953908 was cut
    assert got == only(ranked([3, 2, 3, 0, 1, 2]), Choices(gain=gain), None)


@pytest.mark.parametrize(
    ("gain", "idcg", "ndcg"), [("linear", 8.740262, 0.785002), ("exponential", 18.437718, 0.751083)]
)
def test_the_classic_example_with_two_judged_items_not_retrieved(gain, idcg, ndcg):
    rows = ranked([3, 2, 3, 0, 1, 2], unretrieved=[3, 2])
    got = only(rows, Choices(gain=gain), 6)
    assert (got.idcg, got.ndcg) == pytest.approx((idcg, ndcg), abs=5e-7)
    assert (got.n_items, got.n_judged, got.n_relevant, got.status) == (6, 8, 7, "evaluated")


def test_cumulative_gain_is_dcg_with_a_discount_of_one():
    assert only(ranked([3, 2, 3, 0, 1, 2]), Choices(gain="linear", discount="table:1,1,1,1,1,1"), 6).dcg == 11


@pytest.mark.parametrize(
    ("relevances", "choices", "k", "expected"),
    [
        ([3, 2, 3, 1, 2], EXPONENTIAL, 5, {"ndcg": 0.958112}),
        ([0, 1, 0, 0, 1], EXPONENTIAL, 5, {"ndcg": 0.624051}),
        ([2, 3, 1, 0, 0], LINEAR, 5, {"dcg": 4.392789, "idcg": 4.761860, "ndcg": 0.922495}),
        ([2, 3, 1, 0, 0], EXPONENTIAL, 5, {"ndcg": 0.842828}),
        ([3, 2, 1, 0, 3], LINEAR, 5, {"dcg": 5.922418, "idcg": 6.323466, "ndcg": 0.936578}),
        ([2, 3, 1, 0], LINEAR, 4, {"ndcg": 0.922495}),
        ([3, 0, 3, 0], LINEAR, 4, {"ndcg": 0.919721}),
    ],
)
def test_worked_examples(relevances, choices, k, expected):
    got = only(ranked(relevances), choices, k)
    assert {name: getattr(got, name) for name in expected} == pytest.approx(expected, abs=5e-7)


def test_a_boosted_first_slot():
    slots = ",".join(str(1 / 0.8 if rank == 1 else 1 / math.log2(rank + 1)) for rank in range(1, 6))
    got = only(ranked([3, 2, 1, 0, 3]), Choices(gain="linear", discount=f"table:{slots}"), 5)
    assert (got.dcg, got.ndcg) == pytest.approx((6.672418, 0.943302), abs=5e-7)


def test_a_short_list_padded_with_irrelevant_items():
    got = only(ranked([1, 1, 1], unretrieved=[1, 1]), Choices(gain="linear", pad_to_k=0.0), 5)
    assert got.ndcg == pytest.approx(0.722727, abs=5e-7)


# --- Values that other tools' tests and documents print


def rank_given(lists: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], grades=None) -> list[Row]:
    """Predicted items in rank order and the true items of each query, with their relevances (or 1)."""
    rows = []
    for query, (items, truth) in enumerate(zip(lists, labels, strict=True)):
        relevance = dict(zip(truth, grades[query] if grades else [1] * len(truth), strict=True))
        rows += [Row(query=query, item=i, score=-n, relevance=relevance.get(i)) for n, i in enumerate(items)]
        rows += [Row(query=query, item=i, relevance=rel) for i, rel in relevance.items() if i not in items]
    return rows


MLLIB_LISTS = [[1, 6, 2, 7, 8, 3, 9, 10, 4, 5], [4, 1, 5, 6, 2, 7, 3, 8, 9, 10], [1, 2, 3, 4, 5]]
MLLIB_LABELS = [[1, 2, 3, 4, 5], [1, 2, 3], []]


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        (None, {3: 0.333333, 5: 0.328788, 10: 0.487913, 15: 0.487913}),
        ([[3, 2, 1, 1, 1], [2, 0, 0], []], {3: 0.511960, 5: 0.487807, 10: 0.518701}),
    ],
)
def test_spark_ranking_metrics_suite(grades, expected):
    results = evaluate(rank_given(MLLIB_LISTS, MLLIB_LABELS, grades), MLLIB, list(expected))
    assert {k: mean(results, k) for k in expected} == pytest.approx(expected, abs=5e-7)
    assert results[2, 3].status == "unjudged"


def test_spark_ranking_metrics_suite_with_an_empty_list():
    results = evaluate(rank_given([[1, 6, 2], []], MLLIB_LABELS[:2]), MLLIB, [1, 2])
    assert (mean(results, 1), mean(results, 2)) == pytest.approx((0.5, 0.306574), abs=5e-7)
    assert results[1, 1].status == "missing"


@pytest.mark.parametrize("k", [1, 2])
def test_mllib_trap_with_a_sorted_ideal(k):
    assert only(rank_given([[2, 1]], [[1, 2]], [[0, 3]]), MLLIB, k).ndcg == 1.0


@pytest.mark.parametrize(("scores", "ndcg"), [((1, 0, 1.5), 0.5), ((4, 2, 1.5), 0.6309297535714575)])
def test_pytrec_eval_readme(scores, ndcg):
    assert only(scored(scores, [None, 1, None]), TREC_EVAL, None).ndcg == pytest.approx(ndcg, abs=1e-15)


@pytest.mark.parametrize(("retrieved", "ndcg"), [("ba", 1.0), ("bc", 0.6309)])
def test_trec_eval_issue_22(retrieved, ndcg):
    judged = {"a": 0, "b": 1, "c": 0}
    rows = [Row(query="q", item=i, score=1 if i in retrieved else None, relevance=r) for i, r in judged.items()]
    assert only(rows, TREC_EVAL, None).ndcg == pytest.approx(ndcg, abs=5e-5)


@pytest.mark.parametrize(
    ("gain", "ndcg"), [("linear", 0.76018), ("table:-1=0,0=1,1=4,2=2", 0.97177)], ids=["default", "gains"]
)
def test_ir_measures_documentation(gain, ndcg):
    rows = scored([0.8, 0.3, 0.7, 0.4, 0.1], [1, -1, 0, 2, 0])
    choices = replace(TREC_EVAL, gain=gain, negative="clip" if gain == "linear" else "keep")
    assert only(rows, choices, None).ndcg == pytest.approx(ndcg, abs=1e-5)  # digits cut off, not rounded


@pytest.mark.parametrize(
    ("scores", "k", "ndcg"),
    [
        ([0.1, 0.2, 0.3, 4, 70], None, 0.695694),
        ([0.05, 1.1, 1.0, 0.5, 0.0], None, 0.493680),
        ([0.05, 1.1, 1.0, 0.5, 0.0], 4, 0.352024),
        ([1, 0, 0, 0, 1], 1, 0.75),
        ([1, 1, 1, 1, 1], None, 0.690979),
        ([1, 1, 1, 0.5, 0.5], None, 0.699812),
    ],
)
def test_scikit_learn_documentation(scores, k, ndcg):
    assert only(scored(scores, [10, 0, 0, 1, 5]), SKLEARN, k).ndcg == pytest.approx(ndcg, abs=5e-7)


def test_scikit_learn_documentation_of_dcg():
    got = only(scored([0.1, 0.2, 0.3, 4, 70], [10, 0, 0, 1, 5]), SKLEARN, None)
    assert got.dcg == pytest.approx(9.499458, abs=5e-7)


@pytest.mark.parametrize(("tool", "ndcg"), [("xgboost_metric_exp", 0.409738), ("xgboost_metric_linear", 0.695694)])
def test_xgboost_gains(tool, ndcg):
    got = only(scored([0.1, 0.2, 0.3, 4, 70], [10, 0, 0, 1, 5]), CHOICES_OF_TOOL[tool], 32)
    assert got.ndcg == pytest.approx(ndcg, abs=5e-7)


@pytest.mark.parametrize(("k", "ndcg"), [(32, 0.6509), (2, 0.3868)])
def test_xgboost_ties(k, ndcg):
    rows = scored([0.1, 0.9, 0.1, 0.9], [0, 0, 1, 1])
    assert only(rows, CHOICES_OF_TOOL["xgboost_metric_exp"], k).ndcg == pytest.approx(ndcg, abs=1e-4)


@pytest.mark.parametrize(("tool", "ndcg"), [("xgboost_metric_exp", 1.0), ("xgboost_metric_exp_minus", 0.0)])
def test_xgboost_without_a_relevant_item(tool, ndcg):
    got = only(scored([0.1, 0.9], [0, 0]), CHOICES_OF_TOOL[tool], 32)
    assert (got.ndcg, got.status) == (ndcg, "no_relevant")
