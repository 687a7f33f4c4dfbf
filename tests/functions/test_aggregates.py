"""Aggregates, compared with the oracle, with definitions over every order of tied items, and with `evaluate`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
from pyspark.sql import functions as F
from support import metric_definitions
from support.expectations import collect_refusal
from support.metric_definitions import average_over_orders
from support.oracle import Choices
from support.oracle import evaluate as evaluate_rows
from support.random_rankings import random_rows
from support.spark_rankings import create_scored_table, is_close

from ndcg_spark import functions as f
from ndcg_spark.errors import InvalidParameterError

CUTOFFS = (1, 3, 10, None)
BINARY = {
    "p": f.precision_at,
    "r": f.recall_at,
    "ap": f.average_precision_at,
    "rr": f.reciprocal_rank_at,
}
GROUPS = [[0.0], [3.0, None, 2.0, 0.0], [1.0, 3.0, 0.0]]
UNRETRIEVED = [2.0, 0.0]
JUDGED = [relevance for group in GROUPS for relevance in group if relevance is not None] + UNRETRIEVED


@pytest.mark.parametrize(
    ("gain", "ties", "discount"),
    [
        ("exponential", "expected", "ln"),
        ("linear", "best", "log:3"),
        ("linear", "worst", "reciprocal"),
        ("binary:2", "worst", "table:1.25,1,0.5,0.25"),
        ("power:0.5", "best", "log2"),
    ],
)
def test_dcg_and_ndcg_are_those_of_the_oracle(spark, gain, ties, discount):
    """Lists with ties, nulls and negative grades; queries that are missing, unjudged or without relevance."""
    cutoffs = (1, 3, 4) if discount.startswith("table") else CUTOFFS
    choices = Choices(gain=_parse_gain(gain), ties=ties, discount=_parse_discount(discount), no_relevant="one")
    rows = [
        replace(row, query=f"{seed} {row.query}", item=str(row.item))
        for seed in range(3)
        for row in random_rows(
            seed, negatives=seed == 1 and gain != "power:0.5", fractional=seed == 2, nulls=seed != 1
        )
    ]
    spec = {"gain": gain, "ties": ties, "discount": discount}
    columns = [f.ndcg_at("score", "relevance", k=k, no_relevant="one", **spec).alias(f"ndcg {k}") for k in cutoffs]
    columns += [f.dcg_at(F.col("score"), F.col("relevance"), k=k, **spec).alias(f"dcg {k}") for k in cutoffs]
    actual = {
        row["query_id"]: row for row in create_scored_table(spark, rows).groupBy("query_id").agg(*columns).collect()
    }
    for (query, k), result in evaluate_rows(rows, choices, list(cutoffs)).items():
        assert is_close(actual[query][f"ndcg {k}"], result.ndcg), (query, k)
        assert is_close(actual[query][f"dcg {k}"], result.dcg), (query, k)


def _parse_gain(gain: str):
    """Return a function for gains that the oracle cannot parse."""
    return {
        "binary:2": lambda relevance: float(relevance >= 2),
        "power:0.5": lambda relevance: relevance**0.5,
    }.get(gain, gain)


def _parse_discount(discount: str):
    return {
        "ln": lambda rank: 1 / math.log(rank + 1),
        "log:3": lambda rank: 1 / math.log(rank + 1, 3),
    }.get(discount, discount)


def create_groups(spark, groups, unretrieved):
    """Create a table of scores and relevances from tied groups, best first."""
    cells = [(-float(place), relevance) for place, group in enumerate(groups) for relevance in group]
    return spark.createDataFrame(
        cells + [(None, relevance) for relevance in unretrieved], "score double, relevance double"
    )


def test_the_expected_value_is_the_mean_over_all_orders(spark):
    """By hand: precision@3 is 1/3, reciprocal rank .361111111111 and average precision .094444444444."""
    table = create_groups(spark, GROUPS, UNRETRIEVED)
    for k in (1, 3, 4, 10):
        functions = {(name, (("rel", rel),)): function for name, function in BINARY.items() for rel in (1, 2)}
        functions |= {("ap", (("denominator", by),)): f.average_precision_at for by in ("achievable", "k")}
        columns = [function("score", "relevance", k=k, **dict(more)) for (_, more), function in functions.items()]
        row = table.agg(*columns).first()
        for (metric, more), actual in zip(functions, row, strict=True):
            definition = partial(getattr(metric_definitions, metric), **dict(more))
            expected = average_over_orders(lambda ranked: definition(ranked, JUDGED, k), GROUPS)  # noqa: B023
            assert actual == pytest.approx(expected, abs=1e-14), (metric, more, k)
        if k == 3:
            by_function = dict(zip(functions, row, strict=True))
            named = [by_function[name, (("rel", 1),)] for name in ("p", "rr", "ap")]
            assert named == pytest.approx([1 / 3, 0.361111111111, 0.094444444444], abs=1e-12)


def test_the_best_and_the_worst_order(spark):
    table = create_groups(spark, GROUPS, UNRETRIEVED)
    for ties, order in {"best": [0, 3, 2, 0, None, 3, 1, 0], "worst": [0, 0, None, 2, 3, 0, 1, 3]}.items():
        row = table.agg(
            *[function("score", "relevance", k=3, ties=ties).alias(name) for name, function in BINARY.items()],
            f.precision_at("score", "relevance", ties=ties).alias("p of all"),
        ).first()
        for name in BINARY:
            expected = getattr(metric_definitions, name)(order, JUDGED, 3)
            assert row[name] == pytest.approx(expected, abs=1e-14), (name, ties)
        assert row["p of all"] == pytest.approx(4 / 8, abs=1e-14)


def test_the_mean_is_that_of_evaluate(spark):
    """`avg` leaves out queries without any judgment, as `evaluate` does."""
    from ndcg_spark import evaluate

    rows = random_rows(7, n_queries=30)
    table = create_scored_table(spark, rows)
    metrics = {"ndcg": f.ndcg_at, "p": f.precision_at, "r": f.recall_at, "ap": f.average_precision_at}
    metrics |= {"rr": f.reciprocal_rank_at, "dcg": f.dcg_at}
    result = evaluate(table, k=[3, "all"], metrics=[*metrics], null_score="unretrieved").summary.collect()
    expected = {(row["metric"], row["k"]): row["value"] for row in result}
    columns = [
        function("score", "relevance", k=k).alias(f"{name} {k}")
        for name, function in metrics.items()
        for k in (3, None)
    ]
    per_query = table.groupBy("query_id").agg(*columns)
    (means,) = per_query.agg(*[F.avg(name).alias(name) for name in per_query.columns[1:]]).collect()
    compared = 0
    for name in metrics:
        for k in (3, None):
            assert is_close(means[f"{name} {k}"], expected[name, k]), (name, k)
            compared += 1
    assert compared == 12


def test_every_kind_of_number(spark):
    kinds = ("float", "int", "bigint", "decimal(4,1)", "boolean")
    table = spark.createDataFrame([(2.0, 0.0), (1.0, 1.0), (0.0, 1.0)], "score double, relevance double")
    casts = [f"cast(relevance as {kind}) r{at}" for at, kind in enumerate(kinds)]
    table = table.selectExpr("cast(score as decimal(4,1)) score", *casts)
    expected = ((1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3)), 0.5)
    columns = [
        column for at in range(5) for column in (f.ndcg_at("score", f"r{at}"), f.recall_at("score", f"r{at}", k=2))
    ]
    row = table.agg(*columns).first()
    assert [row[at : at + 2] for at in range(0, 10, 2)] == [pytest.approx(expected, abs=1e-15)] * 5


def test_a_group_without_rows_judgments_or_retrieved_items(spark):
    cells = [("unjudged", 1.0, None), ("missing", None, 2.0), ("neither", None, None), ("nothing", 1.0, 0.0)]
    table = spark.createDataFrame(cells, "query_id string, score double, relevance double")
    functions = [f.ndcg_at, f.dcg_at, f.precision_at, f.recall_at, f.average_precision_at, f.reciprocal_rank_at]
    actual = {
        row[0]: row[1:]
        for row in table.groupBy("query_id")
        .agg(*[function("score", "relevance") for function in functions])
        .collect()
    }
    assert actual == {
        "unjudged": (None,) * 6,
        "neither": (None,) * 6,
        "missing": (0.0,) * 6,
        "nothing": (0.0,) * 6,
    }
    (empty,) = table.where("false").agg(*[function("score", "relevance") for function in functions]).collect()
    assert tuple(empty) == (None,) * 6
    skipped = [f.ndcg_at("score", "relevance", no_relevant=policy).alias(policy) for policy in ("one", "skip")]
    by_policy = {row[0]: row[1:] for row in table.groupBy("query_id").agg(*skipped).collect()}
    assert (by_policy["nothing"], by_policy["missing"]) == ((1.0, None), (0.0, 0.0))


BAD = [
    (math.nan, 1.0, "nan_score in column score: NaN is a bad value; it has no rank: set it to null"),
    (-math.inf, 1.0, "infinite_score in column score: -Infinity is a bad value; it has no rank"),
    (1.0, math.nan, "nan_relevance in column relevance: NaN is a bad value; set it to null (an unjudged item)"),
    (1.0, math.inf, "relevance Infinity in column relevance has a gain that is infinite or above 2^63"),
]


def test_bad_values_are_refused(spark):
    for score, relevance, message in BAD:
        table = spark.createDataFrame([(3.0, 1.0), (score, relevance)], "score double, relevance double")
        for function in (f.ndcg_at, f.reciprocal_rank_at):
            assert (collect_refusal(table.agg(function("score", "relevance", k=1))) or "").startswith(message)
    table = spark.createDataFrame([(3.0, 64.0)], "score double, relevance double")
    assert (collect_refusal(table.agg(f.ndcg_at("score", "relevance"))) or "").startswith(
        "relevance 64 in column relevance"
    )
    assert table.agg(f.dcg_at("score", "relevance", gain="linear")).collect()[0][0] == 64.0
    message = collect_refusal(table.agg(f.ndcg_at("score", "relevance", gain="table:0=0,1=1"))) or ""
    assert message.startswith("relevance 64 has no gain in the table [0.0, 1.0]")
    # Text that Spark cannot read as a number would count as an unretrieved or unjudged item.
    for name in ("score", "relevance"):
        message = collect_refusal(table.withColumn(name, F.lit("3")).agg(f.ndcg_at("score", "relevance")))
        assert message == f"column {name} ({name}) is string, not a number; cast it first."


def test_bad_arguments_are_refused_at_the_call(spark):
    of_gains = [{"k": 0}, {"k": 2.5}, {"ties": "item_asc"}, {"gain": "cubic"}, {"gain": "table:0=1,1=0"},
                {"discount": "table:1"}, {"discount": "table:1,2,1"}, {"discount": "table:1,-1,-1"},
                {"no_relevant": "error"}]  # fmt: skip
    of_hits = [{"rel": math.inf}, {"rel": True}, {"rel": "1"}, {"denominator": "hits"}]
    for function, changes in ((f.ndcg_at, of_gains), (f.average_precision_at, of_hits)):
        for change in changes:
            with pytest.raises(InvalidParameterError):
                function("score", "relevance", **{"k": 3, **change})


def test_columns_are_named_after_their_arguments(spark):
    table = spark.createDataFrame([(3.0, 1.0)], "score double, relevance double")
    columns = [f.ndcg_at("score", "relevance"), f.recall_at(table["score"], "relevance", k=3)]
    assert table.agg(*columns).columns == ["ndcg_at(score, relevance)", "recall_at(score, relevance, k=3)"]


def test_a_pivot_has_the_values_of_its_groups(spark):
    """Next to a text column, pivots of Spark 4 copy expressions together with their cached state."""
    cells = [("a", 3.0, 0.0), ("a", 2.0, 1.0), ("b", 5.0, 3.0), ("b", 4.0, 1.0), ("b", None, 3.0)]
    table = spark.createDataFrame(cells, "version string, score double, relevance double").withColumn(
        "text", F.lit("x")
    )
    functions = [f.ndcg_at, f.dcg_at, f.precision_at, f.recall_at, f.average_precision_at, f.reciprocal_rank_at]
    columns = [function("score", "relevance", k=2).alias(function.__name__) for function in functions]
    alone = {row["version"]: row for row in table.groupBy("version").agg(*columns).collect()}
    (beside,) = (
        table.groupBy("text").pivot("version", ["a", "b"]).agg(*columns, F.first("text").alias("one")).collect()
    )
    for version in "ab":
        for function in functions:
            assert is_close(beside[f"{version}_{function.__name__}"], alone[version][function.__name__]), (
                version,
                function.__name__,
            )
    assert alone["b"]["recall_at"] == pytest.approx(2 / 3)


def test_gain_table_with_a_negative_gain(spark):
    """By hand, levels 0, 1, 2 gain -1, 1, 4: listed -1, then 4 / log2(3) + 1 / 2; ideal 4 + 1 / log2(3) - 1 / 2."""
    table = spark.createDataFrame([(3.0, 0.0), (2.0, 2.0), (1.0, 1.0)], "score double, relevance double")
    gain, second = "table:0=-1,1=1,2=4", 1 / math.log2(3)
    columns = [f.ndcg_at("score", "relevance", gain=gain), f.dcg_at("score", "relevance", gain=gain)]
    assert table.agg(*columns).collect()[0] == pytest.approx(
        ((4 * second - 0.5) / (3.5 + second), 4 * second - 0.5), abs=1e-14
    )
    tied = table.withColumn("score", F.lit(1.0))
    bounds = [f.dcg_at("score", "relevance", gain=gain, ties=ties) for ties in ("best", "worst")]
    assert tied.agg(*bounds).collect()[0] == pytest.approx((3.5 + second, 1 + second), abs=1e-14)
