"""Values that tools print in their own tests and documents, computed by the presets of their names."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import pytest
from support.engines import run_refused, table
from support.oracle import Row, build_ranking, build_rows, group_by_query
from support.printed_values import DCG_OF_SKLEARN, EXAMPLES, OF_TOOLS, build_prediction_rows

from ndcg_spark import evaluate
from ndcg_spark.conventions import PRESETS, Convention
from ndcg_spark.errors import InvalidParameterError
from scripts.checks.peers.data import load_shared, per_query, score

Cutoff = int | None


def score_queries(rows: Sequence[Row], convention: str, k: Cutoff) -> list[float]:
    """Return the NDCG of each query that has a value."""
    return [*score(group_by_query(rows), Convention.parse(convention), (k,)).values()]


def compute_mean(rows: Sequence[Row], convention: str, k: Cutoff) -> float:
    values = score_queries(rows, convention, k)
    return sum(values) / len(values)


@pytest.mark.parametrize("printed", OF_TOOLS, ids=str)
def test_values_that_tools_print(printed):
    for preset in printed.presets:
        actual = compute_mean(printed.rows, preset, printed.k)
        assert actual == pytest.approx(printed.ndcg, abs=printed.tolerance), preset


def test_mllib_uses_the_order_of_labels_as_ideal():
    """Labels [1, 2] of relevance [0, 3], the second predicted first: a perfect list scores 0 or 1.585."""
    trap = build_prediction_rows([[2, 1]], [[1, 2]], [[0, 3]])
    assert score_queries(trap, "mllib", 1) == [0.0]
    assert score_queries(trap, "mllib", 2) == [pytest.approx(log2(3), abs=1e-12)]


def test_output_of_trec_eval(shared_data):
    """Expected: test/out.test.a of usnistgov/trec_eval, four decimals, for the three topics of data/results.test."""
    rows = [
        row
        for query_rows in load_shared(shared_data, "trec_eval").runs["results.test"].values()
        for row in query_rows
    ]
    for k, ndcg in {5: 0.2768, 10: 0.3016, 20: 0.3525, 100: 0.3916, None: 0.4021}.items():
        for preset in ("trec_eval", "trec_eval_9"):
            assert compute_mean(rows, preset, k) == pytest.approx(ndcg, abs=5e-5), (preset, k)


def test_gains_of_ir_measures_that_fall_are_refused():
    """Its tests use gains {0: 1, 1: 4}; label 2 keeps its value, so it gains less than label 1."""
    with pytest.raises(InvalidParameterError, match="gain table falls from 4 at relevance 1 to 2 at 2"):
        compute_mean(build_rows([0.8], [1]), "ir_measures;negative=keep;gain=table:-1=0,0=1,1=4,2=2", None)


def test_dcg_of_scikit_learn():
    rows, dcg = DCG_OF_SKLEARN
    (actual,) = per_query(group_by_query(rows), PRESETS["sklearn"], k=[None])
    assert actual["dcg"] == pytest.approx(dcg, abs=1e-6)


def test_sklearn_refuses_labels_below_zero(engine):
    """scikit-learn: `ndcg_score should not be used on negative y_true values.` Here rows are checked first."""
    data = table([("q", "a", 1.0, -1.0)], "query_id string, item_id string, score double, relevance double")
    assert "negative_relevance" in run_refused(evaluate(data, convention="sklearn", **engine))


def test_recommenders():
    """The list of Wikipedia's article on DCG, with two relevant items not retrieved."""
    example = EXAMPLES["six of eight"]
    rows = build_ranking(example.relevances, unretrieved=example.unretrieved)
    assert compute_mean(rows, "recommenders_pandas", 6) == pytest.approx(0.785002, abs=1e-6)
