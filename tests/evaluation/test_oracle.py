"""The oracle against values that others print: worked examples, and what other tools test and document.

`test_oracle_choices.py` checks choice by choice, `test_oracle_differential.py` runs the other tools.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.oracle import Choices, build_ranking, build_rows, evaluate, evaluate_single, mean
from support.printed_values import (
    CASES,
    DCG_OF_SKLEARN,
    EXAMPLES,
    LABELS,
    LISTS,
    OF_TOOLS,
    PRINTED,
    build_prediction_rows,
)
from support.random_rankings import CHOICES_OF_TOOL


@pytest.mark.parametrize(("example", "gain", "discount", "values"), CASES)
def test_worked_examples(example, gain, discount, values):
    rows = build_ranking(example.relevances, unretrieved=example.unretrieved)
    got = evaluate_single(rows, Choices(gain=gain, discount=discount), example.k)
    for value, printed in zip((got.dcg, got.idcg, got.ndcg), values, strict=True):
        assert printed is None or value == pytest.approx(printed, abs=PRINTED)


def test_counts_and_the_whole_list_of_an_example():
    example = EXAMPLES["six of eight"]
    rows = build_ranking(example.relevances, unretrieved=example.unretrieved)
    got = evaluate_single(rows, Choices(), 6)
    assert (got.n_items, got.n_judged, got.n_relevant, got.status) == (6, 8, 7, "evaluated")
    assert evaluate_single(build_ranking(example.relevances), Choices(), None) == evaluate_single(
        build_ranking(example.relevances), Choices(), 6
    )


def test_a_short_list_padded_with_irrelevant_items():
    got = evaluate_single(build_ranking([1, 1, 1], unretrieved=[1, 1]), Choices(gain="linear", pad_to_k=0.0), 5)
    assert got.ndcg == pytest.approx(0.722727, abs=5e-7)


@pytest.mark.parametrize("printed", OF_TOOLS, ids=str)
def test_values_that_tools_print(printed):
    results = evaluate(printed.rows, printed.choices, [printed.k])
    assert mean(results, printed.k) == pytest.approx(printed.ndcg, abs=printed.tolerance)


def test_dcg_of_scikit_learn():
    rows, dcg = DCG_OF_SKLEARN
    assert evaluate_single(rows, CHOICES_OF_TOOL["sklearn_avg_ties_rows_ideal"], None).dcg == pytest.approx(
        dcg, abs=5e-7
    )


def test_gains_that_fall_in_the_documentation_of_ir_measures():
    """Which the package refuses. It prints the digits cut off, not rounded."""
    rows = build_rows([0.8, 0.3, 0.7, 0.4, 0.1], [1, -1, 0, 2, 0])
    choices = replace(CHOICES_OF_TOOL["pytrec_eval"], gain="table:-1=0,0=1,1=4,2=2", negative="keep")
    assert evaluate_single(rows, choices, None).ndcg == pytest.approx(0.97177, abs=1e-5)


def test_statuses_of_queries_without_labels_and_without_a_list():
    assert evaluate(build_prediction_rows(LISTS, LABELS), Choices(), [3])["2", 3].status == "unjudged"
    assert evaluate(build_prediction_rows([[1, 6, 2], []], LABELS), Choices(), [1])["1", 1].status == "missing"
    assert evaluate_single(build_rows([0.1, 0.9], [0, 0]), Choices(), 32).status == "no_relevant"
