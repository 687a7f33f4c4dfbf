"""Gains and discounts of single rows, metrics of arrays in pandas, and the way from Arrow to NumPy and back."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.oracle import Choices
from support.random_rankings import random_rows
from support.small_rankings import only, ranked

from ndcg_spark.conventions import Convention
from ndcg_spark.core.batches import batch_function, float_column, float_values, int_values, list_offsets
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, find_refusal
from ndcg_spark.evaluation.tasks.array_metrics import dcg_series, ndcg_series
from ndcg_spark.evaluation.tasks.row_view import make_row_viewer

# --- Arrow columns

LISTS = pa.array([[1.0], None, [], [2.0, None, 3.0]], pa.list_(pa.float64()))


def test_offsets_of_lists_start_at_zero_even_in_a_slice():
    assert list_offsets(LISTS).tolist() == [0, 1, 1, 1, 4]
    assert list_offsets(LISTS.slice(2)).tolist() == [0, 0, 3]
    assert list_offsets(LISTS.slice(3, 0)).tolist() == [0]


@pytest.mark.parametrize("relevance", [math.inf, 1024.0])
def test_a_relevance_without_a_finite_gain_in_an_array_is_refused(relevance):
    """2^1024 is no double, and the largest gain is 2^63."""
    with pytest.raises(InputRefusedError, match=r"in an array has a gain that is not finite, or above 2\^63"):
        dcg_series(pd.Series([[1.0, relevance]]), gain="exponential", discount="log2", k=None, best_first=False)


def test_values_and_which_of_them_are_there():
    for column in (LISTS.slice(3).flatten(), LISTS.flatten().slice(1)):
        values, known = float_values(column)
        assert values.tolist() == [2, 0, 3]
        assert known.tolist() == [True, False, True]
    assert float_values(pa.array([1, None], pa.int32()))[0].dtype == np.float64
    assert int_values(pa.array([0, 7, 8], pa.int32()).slice(1)).tolist() == [7, 8]


def test_what_is_not_known_is_null():
    column = float_column(np.array([1.0, 2.0]), np.array([False, True]))
    assert (column.to_pylist(), column.type) == ([None, 2.0], pa.float64())


def test_only_our_own_errors_are_marked():
    def failing(errors):
        for error in errors:
            yield 1
            raise error

    run = batch_function(failing)

    with pytest.raises(InvalidParameterError) as caught:
        list(run([InvalidParameterError("query 7 is bad.")]))
    assert find_refusal(f"at Foo.java: {caught.value}\n at Bar.java") == "query 7 is bad."
    with pytest.raises(ZeroDivisionError, match=r"^crash$"):
        list(run([ZeroDivisionError("crash")]))


# --- Single rows


def viewed(convention: Convention, k: int | None = None, **columns) -> list[dict]:
    """Rows of one query; alone on their ranks unless `tied` says otherwise."""
    n = len(columns["rank"])
    columns = {"tied": [1] * n, "n_ranked": [n] * n, **columns}
    types = {"relevance": pa.float64(), "rank": pa.int32(), "ideal_rank": pa.int64(), "item": pa.string()}
    types |= {"tied": pa.int32(), "n_ranked": pa.int32()}
    arrays = {name: pa.array([None, *values, None], types[name]) for name, values in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays).slice(1, len(columns["rank"]))
    return [row for result in make_row_viewer(convention, k)(iter([batch])) for row in result.to_pylist()]


def test_rows_with_their_gain_and_discounts():
    rows = viewed(
        Convention(discount="reciprocal"),
        item=["a", "b", "c"],
        relevance=[3.0, None, -1.0],
        rank=[1, 4, None],
        ideal_rank=[2, None, 5],
    )
    assert [row["item"] for row in rows] == ["a", "b", "c"]
    assert [row["gain"] for row in rows] == [7, 0, -0.5]
    assert [row["discount"] for row in rows] == [1, 1 / 4, None]
    assert [row["ideal_discount"] for row in rows] == [1 / 2, None, 1 / 5]


def test_the_gain_of_a_row_is_clipped_and_an_unjudged_row_gains_nothing():
    convention = Convention(gain=lambda relevance: relevance + 1, negative="clip", discount="log2")
    rows = viewed(convention, relevance=[-4.0, None, 2.0], rank=[1, 2, 3], ideal_rank=[None] * 3)
    assert [row["gain"] for row in rows] == [1, 0, 3]
    assert [row["discount"] for row in rows] == pytest.approx([1, 1 / math.log2(3), 1 / 2])


def test_gain_times_discount_of_the_rows_adds_up_to_the_dcg():
    relevances = [3.0, None, 2.0, 0.0, 1.0]
    judged = sorted((rel for rel in relevances if rel is not None), reverse=True)
    rows = viewed(Convention(), relevance=relevances, rank=[1, 2, 3, 4, 5], ideal_rank=[1, None, 2, 4, 3])
    expected = only(ranked(relevances), Choices(), None)
    assert math.fsum(row["gain"] * row["discount"] for row in rows) == pytest.approx(expected.dcg, rel=1e-14)
    in_ideal = math.fsum(row["gain"] * row["ideal_discount"] for row in rows if row["ideal_discount"])
    assert in_ideal == pytest.approx(expected.idcg, rel=1e-14)
    assert len(judged) == 4


def test_tied_rows_share_the_discounts_of_their_ranks_up_to_the_cutoff():
    """By hand, with 1/rank: ranks 1 and 2 weigh 3/4 each; of ranks 3 to 5, the cutoff 4 leaves (1/3 + 1/4) / 3."""
    rows = viewed(
        Convention(discount="reciprocal"),
        4,
        relevance=[1.0] * 5,
        rank=[1, 1, 3, 3, 3],
        tied=[2, 2, 3, 3, 3],
        ideal_rank=[1, 2, 3, 4, 5],
    )
    assert [row["discount"] for row in rows] == pytest.approx([0.75, 0.75, *[(1 / 3 + 1 / 4) / 3] * 3])
    assert [row["ideal_discount"] for row in rows] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 0])


def test_a_view_of_no_rows():
    assert viewed(Convention(), relevance=[], rank=[], ideal_rank=[]) == []


def test_a_refusal_of_the_view_is_marked():
    with pytest.raises(InvalidParameterError) as caught:
        viewed(Convention(gain="table:0=0"), relevance=[5.0], rank=[1], ideal_rank=[1])
    assert "relevance 5 has no gain" in (find_refusal(str(caught.value)) or "")


# --- Arrays in pandas


@pytest.mark.parametrize(
    ("relevances", "told"),
    [
        (["3", " NaN "], "nan_relevance in an array of text: NaN is a bad value; make it null"),
        ([1.0, 64.0], "relevance 64 in an array has a gain that is not finite, or above 2^63"),
    ],
)
def test_arrays_that_have_no_gain_are_refused(relevances, told):
    lists = pd.Series([np.array(relevances, dtype=object)])
    with pytest.raises(InputRefusedError) as refused:
        dcg_series(lists, gain="exponential", discount="log2", k=3, best_first=False)
    assert told in str(refused.value)


def lists_of(seed: int) -> list[list[float | None] | None]:
    """Lists with null relevances or with negative ones, not with both."""
    with_nulls = seed % 2 == 0
    rows = random_rows(seed, fractional=seed % 3 == 0, negatives=not with_nulls, nulls=with_nulls, special=False)
    names = sorted({row.query for row in rows})
    return [None, [], *([row.relevance for row in rows if row.query == name] for name in names)]


@pytest.mark.parametrize("k", [1, 3, 30, None])
@pytest.mark.parametrize("gain", ["exponential", "linear"])
@pytest.mark.parametrize("seed", range(6))
def test_series_score_what_the_oracle_says(seed, gain, k):
    lists = lists_of(seed)
    assert any(None in one for one in lists if one) == (seed % 2 == 0)
    series = pd.Series([None if one is None else np.array(one, dtype=object) for one in lists])
    choices = Choices(gain=gain, discount="reciprocal", unjudged_query="zero")
    expected = [only(ranked(one), choices, k) if one else None for one in lists]
    spec = {"gain": gain, "discount": "reciprocal", "k": k}
    found = {
        "dcg": dcg_series(series, best_first=False, **spec),
        "idcg": dcg_series(series, best_first=True, **spec),
        "ndcg": ndcg_series(series, series, no_relevant=0.0, **spec),
    }
    for metric, got in found.items():
        assert got == pytest.approx([getattr(one, metric) if one else 0 for one in expected], rel=1e-12, abs=1e-12)


def test_a_null_relevance_takes_no_rank_in_the_ideal_list():
    """Judged are 3 and -1, so the ideal list is 3, -1: 3 - 1/2, with no unjudged item between them."""
    best = dcg_series(pd.Series([[3, None, -1]]), gain="linear", discount="reciprocal", k=None, best_first=True)
    assert best.tolist() == [only(ranked([3, None, -1]), Choices(gain="linear", discount="reciprocal"), None).idcg]


def test_series_without_rows_and_the_worked_example():
    spec = {"gain": "linear", "discount": "log2", "k": 6}
    assert dcg_series(pd.Series([], dtype=object), best_first=False, **spec).tolist() == []
    got = ndcg_series(
        pd.Series([[3, 2, 3, 0, 1, 2], [0]]), pd.Series([[0, 1, 2, 2, 2, 3, 3, 3], [0]]), no_relevant=1.0, **spec
    )
    assert got.tolist() == pytest.approx([0.785002, 1.0], abs=5e-7)
