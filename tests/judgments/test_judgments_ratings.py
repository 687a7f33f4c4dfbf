"""Judgments from ratings on Spark: worked values, agreement, bad rows, equal bits in any order."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from support.expectations import collect_refusal

from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.judgments import from_ratings, rating_agreement
from ndcg_spark.judgments.frames import (
    check_ratings,
    collect_ratings,
    compute_agreement,
    count_item_pairs,
    judge_ratings,
)
from ndcg_spark.judgments.settings import RatingColumns, RatingSettings

SCHEMA = "query_id string, item_id string, annotator string, relevance double, weight double"
WEIGHTED = RatingColumns(weight="weight")
FOUR = [
    ("q", "i", who, *rating)
    for who, rating in {"a": (3.0, 1.0), "b": (1.0, 0.5), "c": (2.0, 1.0), "d": (-1.0, 0.25)}.items()
]
FIVE_ITEMS = [
    ("q", f"i{item}", f"a{who}", float(value), 1.0)
    for item, values in enumerate([[3, 3, 2], [0, 1, 0], [-1, -1], [2], [1, 2, 2]])
    for who, value in enumerate(values)
]


def test_the_agreement_of_five_items(spark):
    """Expected: krippendorff 0.9.0 gives .858490566038; nights with other items add up to it."""
    tables = [spark.createDataFrame(rows, SCHEMA) for rows in (FIVE_ITEMS[:6], FIVE_ITEMS[6:])]
    nights = [count_item_pairs(collect_ratings(table, RatingSettings()), RatingSettings()) for table in tables]
    whole = rating_agreement(spark.createDataFrame(FIVE_ITEMS, SCHEMA)).collect()
    assert compute_agreement(nights[0].union(nights[1])).collect() == whole
    assert whole[0]["alpha"] == pytest.approx(0.858490566038, abs=1e-12)
    assert whole[0][1:] == (None, 4, 11)
    nothing = spark.createDataFrame([], SCHEMA)
    assert rating_agreement(nothing).collect() == [(None, "no_pairs", 0, 0)]


def test_nulls_are_not_ratings_and_minus_one_is(spark):
    rows = [("q", "i", "a", -1.0, 1.0), ("q", "i", "b", None, 1.0), ("q", "j", "a", None, 1.0)]
    actual = {row["item_id"]: row for row in from_ratings(spark.createDataFrame(rows, SCHEMA)).collect()}
    assert (actual["i"]["relevance"], actual["i"]["n_ratings"], actual["i"]["rule"]) == (-1.0, 1, "mean")
    assert (actual["j"]["relevance"], actual["j"]["rule"]) == (None, "no_ratings")


def test_disputed_items_come_with_their_ratings(spark):
    rows = from_ratings(spark.createDataFrame(FOUR + FIVE_ITEMS, SCHEMA)).where("disputed").collect()
    assert [row["item_id"] for row in rows] == ["i"]
    assert [tuple(rating) for rating in rows[0]["ratings"]] == [
        (-1.0, "d", 1.0),
        (1.0, "b", 1.0),
        (2.0, "c", 1.0),
        (3.0, "a", 1.0),
    ]


@pytest.mark.parametrize(
    ("rule", "expected"), [("mean", pytest.approx(1.909090909091, abs=1e-12)), ("majority", 2.0)]
)
def test_order_and_partitions_do_not_change_a_bit(spark, rule, expected):
    generator = np.random.default_rng(7)
    rows = [
        (f"q{at % 9}", f"i{at % 11}", f"a{at}", float(generator.choice([0.1, 0.7, 3.0])), float(generator.random()))
        for at in range(500)
    ]
    settings = RatingSettings(columns=WEIGHTED, rule=rule)
    results = []
    for n_partitions in (1, 5):
        shuffled = random.Random(n_partitions).sample([*rows, *FOUR], len(rows) + 4)
        frame = spark.createDataFrame(shuffled, SCHEMA).repartition(n_partitions)
        results.append(sorted(judge_ratings(frame, settings).collect()))
    assert results[0] == results[1]
    assert [row["relevance"] for row in results[0] if row["query_id"] == "q"] == [expected]
    doubles = [weight for query, item, *_, weight in rows if (query, item) == ("q0", "i0")]
    orders = {sum(random.Random(seed).sample(doubles, len(doubles))) for seed in range(50)}
    assert len(orders) > 1  # sums of doubles would differ


BAD = [
    ((None, "i", "a", 1.0, 1.0), "null_query"),
    (("q", None, "a", 1.0, 1.0), "null_item"),
    (("q", "i", None, 1.0, 1.0), "null_annotator"),
    (("q", "i", "a", math.nan, 1.0), "nan_relevance"),
    (("q", "i", "a", -math.inf, 1.0), "infinite_relevance"),
    (("q", "i", "a", 1.0, -0.5), "bad_weight"),
    (("q", "i", "a", 1.0, None), "bad_weight"),
    (("q", "i", "a", 1.0, math.nan), "bad_weight"),
    (("q", "i", "a", 1.0, math.inf), "bad_weight"),
]


def test_bad_rows(spark):
    frame = spark.createDataFrame([("q", "i", "good", 2.0, 1.0), *(row for row, _ in BAD)], SCHEMA).coalesce(1)
    rejecting = RatingSettings(columns=WEIGHTED, on_invalid="reject")
    reasons = [row["reason"] for row in check_ratings(frame, rejecting).collect()]
    assert reasons == [None, *(reason for _, reason in BAD)]
    (judgment,) = judge_ratings(frame, rejecting).collect()
    assert (judgment["relevance"], judgment["n_ratings"]) == (2.0, 1)
    first = frame.where("query_id is null")
    message = collect_refusal(judge_ratings(first, RatingSettings(columns=WEIGHTED)))
    assert message.startswith("bad row: null_query at query_id=")


def test_text_is_read_as_numbers_on_request(spark):
    frame = spark.createDataFrame(
        [("q", "i", "a", "2"), ("q", "i", "b", "two")],
        "query_id string, item_id string, annotator string, relevance string",
    )
    settings = RatingSettings(on_invalid="reject")
    (row,) = judge_ratings(mark_text_table(frame), settings).collect()
    assert row["relevance"] == 2.0
    reasons = [row["reason"] for row in check_ratings(mark_text_table(frame), settings).collect()]
    assert reasons == [None, "relevance_not_a_number"]
    with pytest.raises(InputRefusedError, match="not a number"):
        judge_ratings(frame, settings)


def test_an_annotator_who_rated_twice(spark):
    frame = spark.createDataFrame([FOUR[0], FOUR[0]], SCHEMA)
    assert "annotator 'a' rated query_id=q, item_id=i twice" in collect_refusal(from_ratings(frame))


def test_missing_columns_are_refused(spark):
    for columns in (RatingColumns(annotator="who"), RatingColumns(weight="w"), RatingColumns(relevance="label")):
        with pytest.raises(MissingColumnError):
            judge_ratings(spark.createDataFrame(FOUR, SCHEMA), RatingSettings(columns=columns))


@pytest.mark.parametrize(
    "options",
    [{"rule": "mode"}, {"tie": "first"}, {"dispute_range": 0.0}, {"dispute_range": math.nan}, {"on_invalid": "x"}],
)
def test_bad_option_is_refused(options):
    with pytest.raises(InvalidParameterError):
        RatingSettings(**options)
