"""The front door: options of `evaluate`, and refusals that name the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ndcg_spark import Convention, EvaluationPlan, evaluate, evaluation_plan
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InvalidParameterError, find_refusal
from ndcg_spark.evaluation.api import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_options_become_a_plan() -> None:
    plan = evaluation_plan(
        k=["all", 5, 1],
        convention="trec_eval;gain=exponential",
        query=["session", "query"],
        score=["a", "b"],
        segments=["country", "country+device"],
        ideal="judged",
        strategy="window",
        confidence=0.9,
        null_score="unretrieved",
    )
    columns = plan.columns
    assert (columns.query, columns.score, columns.ideal) == (("session", "query"), ("a", "b"), "judged")
    assert plan.cutoffs == (1, 5, None)
    assert plan.convention == Convention.parse("trec_eval;gain=exponential")
    assert plan.segment_sets == (("country",), ("country", "device"))
    assert (plan.strategy, plan.confidence, plan.null_score) == ("window", 0.9, "unretrieved")


def test_no_options_are_the_defaults_of_a_plan() -> None:
    assert evaluation_plan() == EvaluationPlan()


def test_every_field_of_a_plan_can_be_chosen() -> None:
    renamed = {"cutoffs": "k", "segment_sets": "segments"}
    fields = {renamed.get(name, name) for name in EvaluationPlan.__dataclass_fields__}
    plan = EvaluationPlan()
    columns = {name for its in (plan.columns, plan.item_columns) for name in its.__dataclass_fields__}
    assert (fields - {"columns", "item_columns"}) | columns == set(OPTIONS)


def test_a_result_says_in_three_lines_what_it_computes(spark: SparkSession) -> None:
    run, judgments = run_and_judgments(spark)
    result = evaluate(run, judgments=judgments, k=[5, 1], segments=["query_id"], convention="trec_eval;ties=expected")
    assert repr(result).splitlines() == [
        "Evaluation: ndcg@1, ndcg@5, by query_id; convention trec_eval;ties=expected",
        f"ranked by: engine, read by spark ({result.ranking.reason})",
        "lazy: summary (means), per_query, rankings; each action on one of them ranks anew",
    ]
    assert "ap@3, rr" in repr(evaluate(run, judgments=judgments, metrics="ap@3,rr"))


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidParameterError, match=r"no option 'segment'\. Did you mean 'segments'\?"):
        evaluation_plan(segment=["country"])


def run_and_judgments(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    run = spark.createDataFrame([("q1", "a", 1.0, 2.0)], "query_id string, item_id string, score double, w double")
    judgments = [("q1", "a", 1.0), ("q2", "b", 1.0)]
    return run, spark.createDataFrame(judgments, "query_id string, item_id string, relevance double")


def test_a_missing_query_without_a_weight_is_refused_by_name(spark: SparkSession) -> None:
    run, judgments = run_and_judgments(spark)
    found = evaluate(run, judgments=judgments, weight="w")
    with pytest.raises(SPARK_ERRORS) as raised:
        found.summary.collect()
    message = find_refusal(str(raised.value)) or ""
    assert message.startswith("query query_id=q2 is judged but not in the run")
    assert "missing_query=drop" in message


def test_a_missing_query_that_is_dropped_needs_no_weight(spark: SparkSession) -> None:
    run, judgments = run_and_judgments(spark)
    found = evaluate(run, judgments=judgments, weight="w", convention="default;missing_query=drop")
    row = found.summary.where("metric = 'ndcg'").collect()[0]
    assert (row["value"], row["weight_sum"], row["n_queries"], row["n_missing"]) == (1.0, 2.0, 1, 1)


def test_a_gain_that_a_function_makes_infinite_is_refused_by_query(spark: SparkSession) -> None:
    data = spark.createDataFrame(
        [("q1", 1, 0.5, 1.0), ("q7", 1, 0.5, 3.0)], "query_id string, item_id int, score double, relevance double"
    )
    found = evaluate(data, convention=Convention(gain=lambda level: 1.0 / (3.0 - level)))
    with pytest.raises(SPARK_ERRORS) as raised:
        found.per_query.collect()
    message = find_refusal(str(raised.value)) or ""
    assert message.startswith("query query_id=q7 has relevance 3, whose gain is not finite")
