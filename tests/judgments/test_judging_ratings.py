"""Ratings in Arrow batches: deciding annotators, reasons for no relevance, disputed items."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.judgments.settings import RatingSettings
from ndcg_spark.judgments.tasks import count_pairs, judge_items, measure_agreement

RATING = pa.struct([("relevance", pa.float64()), ("annotator", pa.string()), ("weight", pa.float64())])


def build_batch(*items):
    """Build a batch of items, each {annotator: relevance or (relevance, weight)}."""
    lists = []
    for at, ratings in enumerate(items):
        rows = [(rating if isinstance(rating, tuple) else (rating, 1.0), name) for name, rating in ratings.items()]
        lists.append((f"i{at}", sorted((float(value), name, float(weight)) for (value, weight), name in rows)))
    ids, ratings = zip(*lists, strict=True)
    structs = [
        [dict(zip(("relevance", "annotator", "weight"), rating, strict=True)) for rating in item_ratings]
        for item_ratings in ratings
    ]
    columns = [pa.array(["q"] * len(ids)), pa.array(ids), pa.array(structs, pa.list_(RATING))]
    return pa.RecordBatch.from_arrays(columns, names=["query_id", "item_id", "ratings"])


def judge(*items, **options):
    (judgments,) = judge_items(iter([build_batch(*items)]), RatingSettings(**options))
    return judgments.to_pylist()


FOUR = {"ann": (3, 1), "bob": (1, 0.5), "cy": (2, 1), "di": (-1, 0.25)}


@pytest.mark.parametrize(
    ("options", "relevance", "decided_by"),
    [
        ({"rule": "mean"}, pytest.approx(1.909090909091, abs=1e-12), ["ann", "bob", "cy", "di"]),
        ({"rule": "median"}, 2.0, ["cy"]),
        ({"rule": "majority"}, 2.0, ["cy"]),
        ({"rule": "majority", "tie": "higher"}, 3.0, ["ann"]),
        ({"rule": "majority", "tie": "null"}, None, []),
    ],
)
def test_the_worked_values(options, relevance, decided_by):
    (row,) = judge(FOUR, **options)
    assert (row["relevance"], row["decided_by"]) == (relevance, decided_by)
    assert row["rule"] == ("tie" if relevance is None else options["rule"])
    assert (row["n_ratings"], row["weight_sum"], row["lowest"], row["highest"]) == (4, 2.75, -1.0, 3.0)
    assert row["disputed"]
    assert [cell["annotator"] for cell in row["ratings"]] == ["di", "bob", "cy", "ann"]


@pytest.mark.parametrize("rule", ["mean", "median", "majority"])
def test_no_relevance_has_a_reason(rule):
    nothing, weightless, single = judge({}, {"ann": (3, 0), "bob": (0, 0)}, {"ann": 2}, rule=rule)
    assert (nothing["relevance"], nothing["rule"], nothing["n_ratings"]) == (None, "no_ratings", 0)
    assert (weightless["relevance"], weightless["rule"], weightless["weight_sum"]) == (None, "no_weight", 0.0)
    assert (single["relevance"], single["rule"], single["decided_by"]) == (2.0, rule, ["ann"])
    assert [row["disputed"] for row in (nothing, weightless, single)] == [False, False, False]
    assert weightless["lowest"] is None


@pytest.mark.parametrize(
    ("item", "disputed"),
    [
        ({"ann": 1, "bob": 2}, True),  # no majority
        ({"ann": 1, "bob": 2, "cy": 2}, False),
        ({"ann": 0, "bob": 2, "cy": 2}, True),  # range
        ({"ann": (0, 0), "bob": 2, "cy": 2}, False),  # a rating without weight does not count
        ({"ann": 1, "bob": 1}, False),
        ({"ann": (1, 0.4), "bob": (2, 0.6)}, False),
        ({"ann": 1, "bob": 1.5, "cy": 2}, True),
    ],
)
def test_in_dispute(item, disputed):
    (row,) = judge(item)
    assert row["disputed"] is disputed


def test_the_median_between_two():
    (row,) = judge({"ann": 0, "bob": 3, "cy": 1, "di": 2}, rule="median")
    assert (row["relevance"], row["decided_by"]) == (1.5, ["cy", "di"])


def test_ratings_of_weight_zero_have_their_own_count():
    """The ratings 0 and 9 have no weight; the others are 2 and 3."""
    row, weightless = judge({"ann": 2, "bob": 3, "cy": (0, 0), "di": (9, 0)}, {"ann": (3, 0), "bob": (0, 0)})
    assert (row["n_ratings"], row["n_zero_weight"], row["weight_sum"]) == (2, 2, 2.0)
    assert (row["lowest"], row["highest"], row["relevance"]) == (2.0, 3.0, 2.5)
    assert [cell["annotator"] for cell in row["ratings"]] == ["cy", "ann", "bob", "di"]
    assert (weightless["rule"], weightless["n_ratings"], weightless["n_zero_weight"]) == ("no_weight", 0, 2)


def test_agreement_ignores_ratings_without_weight():
    items = [dict(enumerate_names(values)) for values in ([3, 3, 2], [0, 1, 0], [-1, -1], [2], [1, 2, 2])]
    more = [{**ratings, "zero": (at, 0)} for at, ratings in enumerate(items)]
    plain, weighted = (
        next(count_pairs(iter([build_batch(*batch_items)]), RatingSettings())).to_pylist()
        for batch_items in (items, more)
    )
    assert weighted == plain
    (batch,) = count_pairs(iter([build_batch({"ann": 1, "bob": (2, 0)})]), RatingSettings())
    assert batch.num_rows == 0


@pytest.mark.parametrize("function", [judge_items, count_pairs])
def test_an_annotator_who_rated_twice(function):
    rating = {"relevance": 1.0, "annotator": "ann", "weight": 1.0}
    lists = pa.array([[rating], [rating, {**rating, "relevance": 2.0}]], pa.list_(RATING))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["q", "q"]), pa.array(["i0", "i1"]), lists], names=["query_id", "item_id", "ratings"]
    )
    with pytest.raises(InputRefusedError, match="'ann' rated query_id=q, item_id=i1 twice"):
        list(function(iter([batch]), RatingSettings()))


def test_pairs_of_two_batches_come_to_the_alpha_of_one():
    items = [dict(enumerate_names(values)) for values in ([3, 3, 2], [0, 1, 0], [-1, -1], [2], [1, 2, 2])]
    counted = count_pairs(iter([build_batch(*items[:2]), build_batch(*items[2:])]), RatingSettings())
    pairs = [row for batch in counted for row in batch.to_pylist()]
    batch = pa.RecordBatch.from_arrays([pa.array([pairs, []])], names=["pairs"])
    (actual,) = measure_agreement(iter([batch]))
    whole, nothing = actual.to_pylist()
    assert whole["alpha"] == pytest.approx(0.858490566038, abs=1e-12)
    assert (whole["reason"], whole["n_items"], whole["n_ratings"]) == (None, 4, 11)
    assert nothing == {"alpha": None, "reason": "no_pairs", "n_items": 0, "n_ratings": 0}


def enumerate_names(values):
    return [(f"a{at}", value) for at, value in enumerate(values)]


def test_batches_without_rows():
    empty = build_batch({"ann": 1}).slice(0, 0)
    for function in (judge_items, count_pairs):
        (actual,) = function(iter([empty]), RatingSettings())
        assert actual.num_rows == 0
