"""Values that tools print in their own tests and documents, given by the preset of their name."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import pytest
from support.arrow_rankings import scores, task_of

from ndcg_spark.conventions import PRESETS, Convention
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InvalidParameterError, find_refusal
from scripts.checks.peers.data import Row, load_shared, rankings, score

Cutoff = int | None


def listed(query: str, relevances: Sequence[float | None], scored: Sequence[float | None]) -> list[Any]:
    """Items d0, d1, ... in input order."""
    pairs = enumerate(zip(relevances, scored, strict=True))
    return [
        Row(query=query, item=f"d{at}", relevance=relevance, score=one, position=at) for at, (relevance, one) in pairs
    ]


def predicted(query: str, prediction: Sequence[int], labels: dict[int, float]) -> list[Any]:
    """Rank given, as in MLlib: the labels in their order, each with its place; then what else was predicted."""
    items = [*labels, *(item for item in prediction if item not in labels)]
    places = {item: -float(place) for place, item in enumerate(prediction)}
    return [
        Row(query=query, item=str(item), relevance=labels.get(item), score=places.get(item), position=at)
        for at, item in enumerate(items)
    ]


def values(queries: Sequence[list[Any]], convention: str, cutoffs: Sequence[Cutoff]) -> list[list[float]]:
    """NDCG of each query that has one, by cutoff."""
    found = score({rows[0].query: rows for rows in queries}, Convention.parse(convention), cutoffs)
    return [[value for (_, its), value in found.items() if its == k] for k in cutoffs]


def means(queries: Sequence[list[Any]], convention: str, cutoffs: Sequence[Cutoff]) -> list[float]:
    return [sum(its) / len(its) for its in values(queries, convention, cutoffs)]


def one(relevances, scored, convention: str, k: Cutoff = None) -> float:
    """NDCG of a single list."""
    return values([listed("q", relevances, scored)], convention, (k,))[0][0]


# --- Spark MLlib: RankingMetricsSuite.scala

PREDICTIONS = ([1, 6, 2, 7, 8, 3, 9, 10, 4, 5], [4, 1, 5, 6, 2, 7, 3, 8, 9, 10], [1, 2, 3, 4, 5])
LABELS = ([1, 2, 3, 4, 5], [1, 2, 3], [])
RELEVANCES = ([3, 2, 1, 1, 1], [2, 0, 0], [])


def suite(relevances: Sequence[Sequence[float]]) -> list[list[Any]]:
    triples = zip(PREDICTIONS, LABELS, relevances, strict=True)
    return [
        predicted(str(at), prediction, dict(zip(labels, its, strict=True)))
        for at, (prediction, labels, its) in enumerate(triples)
    ]


def test_mllib_ranking_metrics_without_relevances():
    """The third query has no label: it counts 0, in a mean over three."""
    ones = [[1.0] * len(labels) for labels in LABELS]
    got = means(suite(ones), "mllib_binary", (3, 5, 10, 15))
    assert got == pytest.approx([1 / 3, 0.328788, 0.487913, 0.487913], abs=1e-6)


def test_mllib_ranking_metrics_with_relevances():
    """Its labels come best first, so that their order does no harm."""
    for preset in ("mllib", "mllib_sorted"):
        got = means(suite(RELEVANCES), preset, (3, 5, 10))
        assert got == pytest.approx([0.511960, 0.487807, 0.518701], abs=1e-6), preset


def test_mllib_with_few_predictions():
    """Three predictions, and none."""
    queries = [
        predicted("0", [1, 6, 2], dict.fromkeys(range(1, 6), 1.0)),
        predicted("1", [], dict.fromkeys((1, 2, 3), 1)),
    ]
    assert means(queries, "mllib_binary", (1, 2)) == pytest.approx([0.5, 0.306574], abs=1e-6)


def test_mllib_takes_labels_as_they_come_for_ideal():
    """A trap: labels [1, 2] of relevance [0, 3], the second predicted first. A perfect list, and 0 or 1.585."""
    trap = [predicted("q", [2, 1], {1: 0.0, 2: 3.0})]
    assert values(trap, "mllib", (1, 2)) == [[0.0], [pytest.approx(log2(3), abs=1e-12)]]
    assert values(trap, "mllib_sorted", (1, 2)) == [[1.0], [1.0]]


# --- trec_eval and its kin


@pytest.mark.parametrize(
    ("scored", "expected"),
    [
        ((1.0, 0.0, 1.5), 0.5),
        ((4.0, 2.0, 1.5), 0.6309297535714575),
    ],
)
def test_pytrec_eval(scored, expected):
    """From its tests: d2 alone is judged, and relevant."""
    rows = [
        Row(query="q", item=f"d{at}", score=its, relevance=1.0 if at == 2 else None)
        for at, its in enumerate(scored, start=1)
    ]
    for preset in ("trec_eval_9", "trec_eval", "ir_measures"):
        assert values([rows], preset, (None,)) == [[expected]], preset


@pytest.mark.parametrize(("tied", "expected"), [("ab", 1.0), ("bc", 0.6309297535714575)])
def test_trec_eval_orders_tied_items_by_name_the_last_first(tied, expected):
    """usnistgov/trec_eval issue 22: of a and b it puts b first, which is relevant; of b and c it puts c first."""
    rows = [
        Row(query="q", item=item, score=float(item in tied), relevance=float(item == "b")) for item in ("a", "b", "c")
    ]
    for preset in ("trec_eval", "trec_eval_9"):
        assert values([rows], preset, (None,)) == [[expected]], preset


def test_the_output_kept_with_trec_eval(shared_data):
    """test/out.test.a of usnistgov/trec_eval, four decimals, over the three topics of data/results.test."""
    queries = load_shared(shared_data, "trec_eval").runs["results.test"]
    cutoffs = (5, 10, 20, 100, None)
    for preset in ("trec_eval", "trec_eval_9"):
        got = means(list(queries.values()), preset, cutoffs)
        assert got == pytest.approx([0.2768, 0.3016, 0.3525, 0.3916, 0.4021], abs=5e-5), preset


IR_MEASURES = ((1, -1, 0, 2, 0), (0.8, 0.3, 0.7, 0.4, 0.1))


def test_ir_measures():
    """From its tests: one label is below 0. It prints 0.76018, with the digits after that cut off, not rounded."""
    assert one(*IR_MEASURES, "ir_measures") == pytest.approx(0.7601875, abs=5e-8)


def test_ir_measures_with_gains():
    """Its tests have gains {0: 1, 1: 4}, where the label 2 keeps its value: it gains less than the label 1."""
    with pytest.raises(InvalidParameterError, match="gain table falls from 4 at relevance 1 to 2 at 2"):
        one(*IR_MEASURES, "ir_measures;negative=keep;gain=table:-1=0,0=1,1=4,2=2")


# --- scikit-learn: the examples of dcg_score and ndcg_score, and its tests of ties

LABELS_OF_SKLEARN = (10, 0, 0, 1, 5)


@pytest.mark.parametrize(
    ("scored", "k", "expected"),
    [
        ((0.1, 0.2, 0.3, 4, 70), None, 0.695694),
        ((0.05, 1.1, 1.0, 0.5, 0.0), None, 0.493680),
        ((0.05, 1.1, 1.0, 0.5, 0.0), 4, 0.352024),
        ((1, 0, 0, 0, 1), 1, 0.75),
        ((1, 1, 1, 1, 1), None, 0.690979),
        ((1, 1, 1, 0.5, 0.5), None, 0.699812),
    ],
)
def test_sklearn(scored, k, expected):
    assert one(LABELS_OF_SKLEARN, scored, "sklearn", k) == pytest.approx(expected, abs=1e-6)


def test_sklearn_dcg():
    convention = PRESETS["sklearn"]
    batch = rankings({"q": listed("q", LABELS_OF_SKLEARN, (0.1, 0.2, 0.3, 4, 70))}, convention)
    found = scores([batch], task_of(convention, (None,)))["q", None]
    assert found["dcg"] == pytest.approx(9.499458, abs=1e-6)


def test_sklearn_refuses_labels_below_zero(spark):
    """`ndcg_score should not be used on negative y_true values.` Here rows are looked at before they are ranked."""
    import ndcg_spark

    data = spark.createDataFrame(
        [("q", "a", 1.0, -1.0)], "query_id string, item_id string, score double, relevance double"
    )
    with pytest.raises(SPARK_ERRORS) as caught:
        ndcg_spark.evaluate(data, convention="sklearn").per_query.collect()
    assert "negative" in (find_refusal(str(caught.value)) or "")


# --- XGBoost: its tests of ranking metrics


def test_xgboost():
    scored = (0.1, 0.2, 0.3, 4, 70)
    assert one(LABELS_OF_SKLEARN, scored, "xgboost") == pytest.approx(0.409738, abs=1e-6)
    assert one(LABELS_OF_SKLEARN, scored, "xgboost;gain=linear") == pytest.approx(0.695694, abs=1e-6)


@pytest.mark.parametrize("preset", ["xgboost", "xgboost_minus"])
def test_xgboost_takes_tied_items_in_input_order(preset):
    labels, scored = (0, 0, 1, 1), (0.1, 0.9, 0.1, 0.9)
    assert one(labels, scored, preset) == pytest.approx(0.6509, abs=5e-5)
    assert one(labels, scored, preset, 2) == pytest.approx(0.3868, abs=1e-4)  # 0.386853


def test_xgboost_with_nothing_relevant():
    for k in (2, None):
        assert one((0, 0), (0.1, 0.9), "xgboost", k) == 1.0
        assert one((0, 0), (0.1, 0.9), "xgboost_minus", k) == 0.0


# --- Microsoft recommenders: the list of Wikipedia's article on DCG, with two relevant items missed


def test_recommenders():
    """Ranked 3, 2, 3, 0, 1, 2; judged besides and not recommended: 3 and 2."""
    relevances = (3, 2, 3, 0, 1, 2, 3, 2)
    scored = (6, 5, 4, 3, 2, 1, None, None)
    assert one(relevances, scored, "recommenders_pandas", 6) == pytest.approx(0.785002, abs=1e-6)
