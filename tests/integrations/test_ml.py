"""`NdcgEvaluator`: values by definition, saving and copying of params, model selection."""

from __future__ import annotations

import math

import pytest
from pyspark.ml.evaluation import RankingEvaluator
from support.oracle import Choices, Row, evaluate, mean
from support.random_rankings import random_rows
from support.spark_rankings import create_scored_table

from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.ml import NdcgEvaluator, with_query_folds

ROWS = [
    Row(query=query, item=f"i{n}", score=score, relevance=float(relevance))
    for query, its in {
        "a": [(3.0, 1), (2.0, 3), (2.0, 0), (1.0, 2)],
        "b": [(0.5, 0), (0.25, 1), (0.125, 1)],
        "c": [(9.0, 0), (8.0, 0)],
    }.items()
    for n, (score, relevance) in enumerate(its)
]
NAMES = {"predictionCol": "score", "labelCol": "relevance"}


@pytest.fixture(scope="module")
def predictions(spark):
    return create_scored_table(spark, ROWS).cache()


def test_the_mean_is_that_of_the_definition(predictions):
    for params, choices, k in [
        ({}, Choices(), 10),
        ({"itemCol": None, "gain": None}, Choices(), 10),
        ({"k": 2, "gain": "linear", "ties": "item_desc"}, Choices(gain="linear", ties="item_desc"), 2),
        ({"metricName": "ndcg@3", "k": 1, "discount": "reciprocal"}, Choices(discount="reciprocal"), 3),
        ({"k": "all", "convention": "linear;no_relevant=skip"}, Choices(gain="linear", no_relevant="skip"), None),
    ]:
        got = NdcgEvaluator(**NAMES, **params).evaluate(predictions)
        assert got == pytest.approx(mean(evaluate(ROWS, choices, [k]), k), abs=1e-12), params


def test_none_is_the_default_of_a_param():
    nothing = {"itemCol": None, "gain": None, "discount": None, "ties": None, "predictionCol": None}
    evaluator = NdcgEvaluator(**nothing, labelCol="relevance")
    assert evaluator.getPredictionCol() == "prediction"
    assert [name for name in ("itemCol", "gain", "discount", "ties") if evaluator.isDefined(name)] == []
    evaluator.setParams(itemCol="item_id", gain="linear", k=3)
    assert evaluator.setParams(itemCol=None) is evaluator
    assert not evaluator.isDefined("itemCol")
    assert (evaluator.getOrDefault("gain"), evaluator.getK(), evaluator.getLabelCol()) == ("linear", "3", "relevance")


def test_other_metrics(predictions):
    """By hand: relevant items are at ranks 1, 2 or 3, 4 of a; 2, 3 of b; c has none."""
    for name, expected in (("p@1", 1 / 3), ("rr", (1 + 1 / 2 + 0) / 3), ("success(rel=2)@1", 0.0)):
        evaluator = NdcgEvaluator(**NAMES, metricName=name, ties="item_asc")
        assert evaluator.evaluate(predictions) == pytest.approx(expected, abs=1e-12), name


def test_a_residual_chooses_no_model(predictions):
    """It is what unjudged items could add: it bounds the error of RBP and does not rank lists."""
    evaluator = NdcgEvaluator(**NAMES, metricName="rbp_residual(p=0.8)")
    for call in (evaluator.isLargerBetter, lambda: evaluator.evaluate(predictions)):
        with pytest.raises(
            InvalidParameterError, match="neither more nor less of rbp_residual is better; choose another"
        ):
            call()
    assert NdcgEvaluator(**NAMES, metricName="rbp(p=0.8)").isLargerBetter()


def test_evaluator_is_copied_saved_and_loaded(predictions, tmp_path):
    evaluator = NdcgEvaluator(**NAMES, queryCol=["query_id"], k="all", ties="worst", itemCol="item_id")
    evaluator.save(str(tmp_path / "evaluator"))
    loaded = NdcgEvaluator.load(str(tmp_path / "evaluator"))
    assert loaded.extractParamMap() == evaluator.extractParamMap()
    assert (loaded.uid, loaded.isLargerBetter()) == (evaluator.uid, True)
    changed = evaluator.evaluate(predictions, {evaluator.k: 1, evaluator.queryCol: "query_id"})
    assert changed == pytest.approx(mean(evaluate(ROWS, Choices(ties="worst"), [1]), 1), abs=1e-12)
    assert (evaluator.getK(), evaluator.setParams(k=2).getK(), evaluator.copy().getOrDefault("ties")) == (
        "all",
        "2",
        "worst",
    )


def test_missing_predictions_count_by_policy(spark):
    for absent in (math.nan, None):
        cells = [("q", 3, 0.5), ("q", 2, absent)]
        rows = spark.createDataFrame(cells, "query_id string, label int, prediction float")
        for missing, expected in (("unretrieved", 3 / (3 + 2 / math.log2(3))), ("drop", 1.0)):
            evaluator = NdcgEvaluator(gain="linear", missingPrediction=missing)
            assert evaluator.evaluate(rows) == pytest.approx(expected, abs=1e-12)
        with pytest.raises(InputRefusedError, match="_score at query_id=q"):
            evaluator.setMissingPrediction("error").evaluate(rows)


def test_params_that_do_not_fit_are_refused(predictions):
    for params, message in [
        ({"metricName": "ndgc"}, "did you mean 'ndcg'"),
        ({"metricName": "ndcg@5,ap"}, "one metric"),
        ({"metricName": "ndcg@5,dcg@5"}, "one metric"),
        ({"metricName": "coverage@5"}, "ndcg_spark.evaluate"),
        ({"k": 0}, "k must be"),
        ({"k": [1, 2]}, "k must be"),
        ({"gain": "cubic"}, "cubic"),
        ({"convention": "trek_eval"}, "unknown convention 'trek_eval'"),
        ({"missingPrediction": "ignore"}, "error, drop, unretrieved"),
    ]:
        with pytest.raises(InvalidParameterError, match=message):
            NdcgEvaluator(**NAMES, **params).evaluate(predictions)


def test_unusable_predictions_are_refused(predictions):
    with pytest.raises(MissingColumnError, match=r"'user' \(queryCol=\)"):
        NdcgEvaluator(**NAMES, queryCol="user").evaluate(predictions)
    with pytest.raises(InputRefusedError, match="no query counts"):
        NdcgEvaluator(**NAMES).evaluate(predictions.limit(0))


def test_folds_keep_queries_together(spark):
    rows = [(f"q{n}", shop, item) for n in range(40) for shop in (1, 2) for item in range(3)]
    table = spark.createDataFrame(rows, "query string, shop int, item int")
    folds = with_query_folds(table, ["query", "shop"], num_folds=4)
    actual = folds.groupBy("query", "shop").agg({"fold": "collect_set"}).collect()
    assert {len(row[2]) for row in actual} == {1}
    assert {row[2][0] for row in actual} == {0, 1, 2, 3}
    as_long = with_query_folds(table.withColumn("shop", table.shop.cast("bigint")), ["query", "shop"], num_folds=4)
    assert sorted(as_long.collect()) == sorted(folds.collect())
    assert sorted(with_query_folds(table, "query", num_folds=4, seed=1).collect()) != sorted(folds.collect())
    with pytest.raises(InvalidParameterError, match="num_folds"):
        with_query_folds(table, "query", num_folds=1)
    with pytest.raises(InvalidParameterError, match="'ITEM'"):
        with_query_folds(table, "query", fold_col="ITEM")
    with pytest.raises(MissingColumnError):
        with_query_folds(table, "user")


def test_a_cross_validator_takes_the_better_model(spark, tmp_path):
    """One feature is the relevance, so it ranks perfectly; another is noise. Each fold has whole queries."""
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression
    from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder

    rows = random_rows(3, special=False, nulls=False, unretrieved=False)
    table = spark.createDataFrame(
        [(row.query, str(row.item), float(row.relevance), float(row.score)) for row in rows],
        "query_id string, item_id string, label double, score double",
    )
    for name, of in (("good", "label"), ("noise", "score")):
        table = VectorAssembler(inputCols=[of], outputCol=name).transform(table)
    model = LinearRegression(solver="normal")
    tuning = CrossValidator(
        estimator=model,
        estimatorParamMaps=ParamGridBuilder().addGrid(model.featuresCol, ["noise", "good"]).build(),
        evaluator=NdcgEvaluator(k=5, convention="default;no_relevant=skip"),
        numFolds=2,
        foldCol="fold",
    )
    fitted = tuning.fit(with_query_folds(table, num_folds=2).coalesce(1))
    assert fitted.avgMetrics[1] == pytest.approx(1.0, abs=1e-12)
    assert fitted.avgMetrics[0] < 0.99
    assert fitted.bestModel.getFeaturesCol() == "good"
    fitted.save(str(tmp_path / "tuned"))
    loaded = CrossValidatorModel.load(str(tmp_path / "tuned"))
    assert loaded.getEvaluator().getK() == "5"


# --- Columns of arrays, as RankingEvaluator has them

LISTS = [
    ([1.0, 6.0, 2.0, 7.0, 8.0, 3.0, 9.0, 10.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]),
    ([4.0, 1.0, 5.0, 6.0, 2.0, 7.0, 3.0, 8.0, 9.0, 10.0], [1.0, 2.0, 3.0]),
    ([1.0, 2.0, 3.0, 4.0, 5.0], []),
    ([], [7.0]),
]


@pytest.fixture(scope="module")
def recommended(spark):
    return spark.createDataFrame(LISTS, "prediction array<double>, label array<double>")


@pytest.mark.classic("RankingEvaluator takes the RDD of a table")
def test_lists_have_the_value_of_ranking_evaluator(recommended):
    """A pipeline needs only another import: columns have the same names."""
    names = {"ndcg": "ndcgAtK", "p": "precisionAtK", "r": "recallAtK", "ap@all": "meanAveragePrecision"}
    for metric, theirs in names.items():
        for k in (1, 3, 10) if metric != "ap@all" else (10,):
            expected = RankingEvaluator(metricName=theirs, k=k).evaluate(recommended)
            evaluation = NdcgEvaluator(metricName=metric, k=k, convention="mllib_binary").evaluate(recommended)
            assert evaluation == pytest.approx(expected, abs=1e-15), (metric, k)


def test_options_that_need_scores_are_refused_for_lists(recommended):
    for params, message in (
        ({"missingPrediction": "drop"}, "predictionCol has lists"),
        ({"labelCol": "prediction_"}, "'prediction_' (labelCol=) is not in the input"),
        ({"queryCol": "user"}, "'user' (queryCol=) is not in the input"),
    ):
        with pytest.raises((InvalidParameterError, MissingColumnError)) as raised:
            NdcgEvaluator(**params).evaluate(recommended)
        assert message in str(raised.value)
