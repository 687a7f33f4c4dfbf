"""The oracle against other tools: what they said about real rankings, and what they say about random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import dcg_score, ndcg_score
from support.oracle import Choices, Cutoff, Results, Row, evaluate, group_by_query, mean, to_float32
from support.random_rankings import (
    CHOICES_OF_TOOL,
    CUTOFFS,
    DATA_SETS,
    PRINTED_DECIMALS,
    TIES_UNSPECIFIED,
    choose_for_mean,
    find_queries_without_ties,
    load,
    random_rows,
)

pytestmark = pytest.mark.peers
EXACT = 1e-12
TREC_EVAL = CHOICES_OF_TOOL["pytrec_eval"]
SKLEARN = CHOICES_OF_TOOL["sklearn_avg_ties_rows_ideal"]


def tolerance_of(tool: str) -> float:
    """Half of the last digit that the tool prints."""
    return 0.5001 * 10.0 ** -PRINTED_DECIMALS[tool] if tool in PRINTED_DECIMALS else EXACT


# --- Real rankings with the values that were computed on them


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_query_of_the_shared_rankings(shared_data: Path, name: str):
    shared = load(shared_data, name)
    compared: dict[str, int] = {}
    for tool, run in sorted({key[:2] for key in shared.per_query}):
        rows = shared.rows[run]
        results = evaluate(rows, CHOICES_OF_TOOL[tool], CUTOFFS)
        untied = {k: find_queries_without_ties(rows, k) for k in CUTOFFS}
        got = {key: result.ndcg for key, result in results.items() if result.ndcg is not None}
        expected = {key[2:]: value for key, value in shared.per_query.items() if key[:2] == (tool, run)}
        assert got.keys() == expected.keys(), (tool, run)
        if tool in TIES_UNSPECIFIED:
            expected = {(query, k): value for (query, k), value in expected.items() if query in untied[k]}
        compared_here = {key: got[key] for key in expected}
        assert compared_here == pytest.approx(expected, abs=tolerance_of(tool)), (tool, run)
        compared[tool] = compared.get(tool, 0) + len(expected)
    assert all(compared.values()), compared


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_mean_of_the_shared_rankings(shared_data: Path, name: str):
    shared = load(shared_data, name)
    results: dict[tuple[str, Choices], Results] = {}
    for (tool, run, mean_over, k), (n_queries, value) in shared.means.items():
        if tool in TIES_UNSPECIFIED:
            continue
        key = (run, choose_for_mean(tool, mean_over))
        if key not in results:
            results[key] = evaluate(shared.rows[run], key[1], CUTOFFS)
        counted = [r for (_, its_k), r in results[key].items() if its_k == k and r.ndcg is not None]
        where = (tool, run, mean_over, k)
        assert len(counted) == n_queries, where
        assert mean(results[key], k) == pytest.approx(value, abs=tolerance_of(tool)), where


def test_the_output_that_trec_eval_keeps_with_its_own_run(shared_data: Path):
    """`test/out.test.a` of trec_eval."""
    expected = {None: 0.4021, 5: 0.2768, 10: 0.3016, 20: 0.3525, 100: 0.3916}
    results = evaluate(load(shared_data, "trec_eval").rows["results.test"], TREC_EVAL, list(expected))
    assert {k: mean(results, k) for k in expected} == pytest.approx(expected, abs=5e-5)


# --- Random rankings with the tool at work


def by_pytrec_eval(rows: Sequence[Row], cutoffs: Sequence[int]) -> dict[tuple[str, Cutoff], float]:
    run: dict[str, dict[str, float]] = {}
    judgments: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.score is not None:
            run.setdefault(row.query, {})[row.item] = row.score
        if row.relevance is not None:
            # Negative labels gain 0 alike, but a query with nothing above -2 corrupts the memory of 0.5.11.
            judgments.setdefault(row.query, {})[row.item] = max(-1, int(row.relevance))
    measures = {"ndcg", "ndcg_cut." + ",".join(str(k) for k in cutoffs)}
    values = pytrec_eval.RelevanceEvaluator(judgments, measures).evaluate(run)
    got: dict[tuple[str, Cutoff], float] = {}
    for query, group in values.items():
        got[query, None] = group["ndcg"]
        got.update({(query, k): group[f"ndcg_cut_{k}"] for k in cutoffs})
    return got


@pytest.mark.parametrize("shape", [{}, {"ties": False}, {"extreme_scores": True}], ids=str)
@pytest.mark.parametrize("seed", range(20))
def test_pytrec_eval(seed, shape):
    """Missing, unjudged and irrelevant queries, ties, negative labels, awkward ids, single precision."""
    cutoffs = [1, 2, 3, 5, 10, 100]
    rows = random_rows(seed, max_items=20, negatives=seed % 2 == 1, **shape)
    results = evaluate(rows, TREC_EVAL, [*cutoffs, None])
    got = {key: result.ndcg for key, result in results.items() if result.ndcg is not None}
    assert got == pytest.approx(by_pytrec_eval(rows, cutoffs), abs=EXACT)


def listed_arrays(rows: Sequence[Row], exponential: bool) -> tuple[np.ndarray, np.ndarray]:
    """Gains (0 where unjudged) and scores of one query, as scikit-learn wants them."""
    listed = [row for row in rows if row.score is not None]
    relevances = np.array([[row.relevance or 0.0 for row in listed]])
    return 2.0**relevances - 1.0 if exponential else relevances, np.array([[row.score for row in listed]])


@pytest.mark.parametrize("gain", ["linear", "exponential"])
@pytest.mark.parametrize("shape", [{}, {"ties": False}, {"extreme_scores": True}], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_scikit_learn_ndcg(seed, shape, gain):
    rows = random_rows(seed, max_items=20, fractional=True, **shape)
    results = evaluate(rows, replace(SKLEARN, gain=gain), [1, 2, 5, 100, None])
    its_rows = group_by_query(rows)
    compared = 0
    for (query, k), result in results.items():
        if result.dcg is None or result.n_items < 2:  # scikit-learn refuses a single item
            continue
        gains, scores = listed_arrays(its_rows[query], gain == "exponential")
        assert result.ndcg == pytest.approx(ndcg_score(gains, scores, k=k), abs=EXACT), (query, k)
        compared += 1
    assert compared >= 40


@pytest.mark.parametrize(("discount", "log_base"), [("log2", 2), ("log:10", 10), ("log:1.5", 1.5), ("ln", np.e)])
@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_scikit_learn_dcg(seed, ties, discount, log_base):
    """Of negative labels scikit-learn has a DCG, though no NDCG. Without ties any tie rule is as good."""
    rows = random_rows(seed, max_items=20, fractional=True, negatives=True, ties=ties)
    rule = "expected" if ties else ("item_asc", "item_desc", "input_order", "best", "worst")[seed % 5]
    results = evaluate(rows, Choices(gain="linear", discount=discount, ties=rule), [1, 5, None])
    its_rows = group_by_query(rows)
    for (query, k), result in results.items():
        if result.dcg is not None and result.n_items > 1:  # scikit-learn refuses a single item
            gains, scores = listed_arrays(its_rows[query], exponential=False)
            expected = dcg_score(gains, scores, k=k, log_base=log_base, ignore_ties=not ties)
            assert result.dcg == pytest.approx(expected, rel=EXACT, abs=EXACT), (query, k)


@pytest.mark.parametrize("seed", range(5))
def test_single_precision_is_that_of_numpy(seed):
    scores = [row.score for row in random_rows(seed, extreme_scores=True) if row.score is not None]
    scores += [score / 3 for score in scores]
    with np.errstate(over="ignore", under="ignore"):
        assert [to_float32(score) for score in scores] == [float(np.float32(score)) for score in scores]
