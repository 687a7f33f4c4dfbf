"""The view of single rows, and what an evaluation costs."""

from __future__ import annotations

from functools import reduce
from itertools import product

import pytest
from pyspark.sql import functions as F
from support.engines import table
from support.expectations import collect_refusal
from support.oracle import Choices, build_ranking, evaluate, parse_gain
from support.random_rankings import random_rows
from support.spark_rankings import build_convention, create_array_table, create_scored_table, is_close

from ndcg_spark import Convention
from ndcg_spark import evaluate as evaluate_tables
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.explanation import rank_rows
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

# --- Single rows


@pytest.mark.parametrize("name", ["condensed", "negatives"])
def test_rows_add_up_to_dcg_and_idcg(spark, name):
    """Of whole lists: DCG@k is the sum of gain * discount over rank <= k, IDCG@k that over ideal_rank <= k."""
    choices = {
        "condensed": Choices(gain="linear", ties="item_desc", unjudged="condensed", discount="reciprocal"),
        "negatives": Choices(ties="item_asc", negative="clip", ideal="retrieved"),
    }[name]
    rows = random_rows(80, negatives=name == "negatives")
    settings = EvaluationSettings(convention=build_convention(choices), cutoffs=(None,), null_score="unretrieved")
    viewed = rank_rows(create_scored_table(spark, rows), settings).collect()
    by_query: dict[str, list] = {}
    for row in viewed:
        by_query.setdefault(row["query_id"], []).append(row)
    for (query, k), result in evaluate(rows, choices, [1, 3, 10, None]).items():
        if result.status != "evaluated":
            continue
        group, end = by_query[query], float("inf") if k is None else k
        for rank, discount, expected in (
            ("rank", "discount", result.dcg),
            ("ideal_rank", "ideal_discount", result.idcg),
        ):
            counted = [row for row in group if row[rank] is not None and row[rank] <= end]
            assert is_close(sum(row["gain"] * row[discount] for row in counted), expected), (query, k, rank)


def test_the_view_of_a_query(spark):
    """Rank, ideal rank, gain and discount of each item, an unretrieved and an unjudged one among them."""
    rows = build_ranking((1.0, None), unretrieved=(2.0,))
    viewed = rank_rows(create_scored_table(spark, rows), EvaluationSettings(null_score="unretrieved")).collect()
    gain = parse_gain("exponential")
    third = 1 / 1.584962500721156
    assert {row["item"]: (row["rank"], row["ideal_rank"], row["gain"]) for row in viewed} == {
        "0": (1, 2, gain(1.0)),
        "1": (2, None, 0.0),
        "u0": (None, 1, gain(2.0)),
    }
    discounts = {row["item"]: (row["discount"], row["ideal_discount"]) for row in viewed}
    assert discounts["0"] == pytest.approx((1.0, third), abs=1e-15)
    assert discounts["1"] == (pytest.approx(third, abs=1e-15), None)
    assert discounts["u0"] == (None, 1.0)


def test_the_view_ranks_by_score_and_shows_items(spark):
    frame = create_scored_table(spark, build_ranking((1.0,)))
    with pytest.raises(InvalidParameterError, match="remove rank="):
        rank_rows(frame, EvaluationSettings(columns=Columns(rank="rank")))
    with pytest.raises(InvalidParameterError, match="explain_ranks needs the item column"):
        rank_rows(frame, EvaluationSettings(columns=Columns(item=None)))
    with pytest.raises(
        InvalidParameterError, match="no rule of these settings reads them; use convention='default;ties=item_asc'"
    ):
        rank_rows(frame, EvaluationSettings(check_duplicates="none"))
    for name in ("gain", "Item"):  # whatever its case
        with pytest.raises(InvalidParameterError, match=f"'{name}' has the name of a result column"):
            rank_rows(frame.withColumnRenamed("query_id", name), EvaluationSettings(columns=Columns(query=(name,))))


LONG = "query_id string, item_id string, score double, relevance int"
TWICE = [("q", "a", 0.5, 0), ("q", "a", 0.5, 1)]


def test_rows_add_up_whatever_the_ties_the_ideal_and_the_cutoff(spark):
    """Scores of three rows tie across the cutoff, beyond which rows weigh nothing.

    DCG and IDCG are those of evaluations of this machine.
    """
    rows = [("q", "a", 0.5, 2), ("q", "b", 0.5, 0), ("q", "c", 0.5, 3), ("q", "d", 0.1, None), ("q", "e", None, 1)]
    frame, views, expected = spark.createDataFrame(rows, LONG), [], {}
    for ties, ideal, k in product(
        ("item_asc", "item_desc", "expected", "best", "worst"), ("judged", "retrieved", "as_many"), (2, 10)
    ):
        convention = Convention(ties=ties, ideal=ideal)
        options = {"null_score": "unretrieved", "convention": convention}
        (result,) = evaluate_tables(table(rows, LONG), k=k, **options).per_query.to_pylist()
        expected[f"{convention} {k}"] = (result["dcg"], result["idcg"])
        view = rank_rows(frame, EvaluationSettings(cutoffs=(k,), check_duplicates="all", **options))
        sums = (F.sum(F.col("gain") * F.coalesce(name, F.lit(0.0))) for name in ("discount", "ideal_discount"))
        views.append(view.agg(F.lit(f"{convention} {k}"), *sums))
    actual = {
        row[0]: (row[1], row[2]) for row in reduce(lambda element, other: element.union(other), views).collect()
    }
    assert len(actual) == 30
    assert actual == {name: pytest.approx(group, abs=1e-12) for name, group in expected.items()}


def test_the_view_refuses_or_resolves_duplicates_as_evaluate_does(spark):
    frame = spark.createDataFrame(TWICE, LONG)
    assert "appears twice" in collect_refusal(rank_rows(frame, EvaluationSettings()))
    best = EvaluationSettings(convention=Convention(duplicates="best"))
    assert [row["relevance"] for row in rank_rows(frame, best).collect()] == [1.0]


def test_the_view_has_no_ideal_ranks_where_the_ideal_is_not_made_of_rows(spark):
    frame = spark.createDataFrame([("q", "a", 0.5, 1), ("q", "b", 0.4, 0)], LONG)
    shown = rank_rows(frame, EvaluationSettings(convention=Convention(ideal="k_ones"))).collect()
    assert {row["ideal_rank"] for row in shown} == {None}


# --- What it costs


def jobs_of(spark, work) -> int:
    """How many Spark jobs a call starts."""
    context = spark.sparkContext
    context.setJobGroup("counted", "jobs of one call")
    try:
        work()
        return len(context.statusTracker().getJobIdsForGroup("counted"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


@pytest.mark.classic("jobs are counted through sparkContext")
def test_evaluate_starts_no_job(spark):
    """For every form of input; the action on the last one shows that jobs would have been counted."""
    rows = random_rows(81, special=False, unretrieved=False)
    choices = Choices(ties="item_asc")
    long, arrays = create_scored_table(spark, rows, choices), create_array_table(spark, rows, choices)
    judgments = long.where("relevance is not null").select("query_id", "item_id", "relevance")
    actual = []

    def describe() -> None:
        actual.append(evaluate_tables(long, k=[1, "all"], segments=["query_id"]))
        actual.append(evaluate_tables(long.drop("relevance"), judgments=judgments))
        actual.append(evaluate_tables(long.drop("relevance"), judgments=judgments, strategy="window"))
        actual.append(evaluate_tables(long, rank="rank"))
        actual.append(evaluate_tables(arrays, relevance="ranked", k=3))
        rank_rows(long, EvaluationSettings()).schema  # noqa: B018  # laziness is what is tested
        assert all(element.summary.schema and element.per_query.schema for element in actual)

    assert jobs_of(spark, describe) == 0
    assert jobs_of(spark, actual[-1].per_query.collect) >= 1
