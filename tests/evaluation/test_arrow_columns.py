"""Gains and discounts of single rows, and the way from Arrow to NumPy and back."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from support.oracle import Choices, build_ranking, evaluate_single

from ndcg_spark.conventions import Convention
from ndcg_spark.core.batches import WorkerTask, float_column, float_values, int_values, list_offsets
from ndcg_spark.errors import InvalidParameterError, find_refusal
from ndcg_spark.evaluation.tasks.valid_rows import add_gains

# --- Arrow columns

LISTS = pa.array([[1.0], None, [], [2.0, None, 3.0]], pa.list_(pa.float64()))


def test_offsets_of_lists_start_at_zero_even_in_a_slice():
    assert list_offsets(LISTS).tolist() == [0, 1, 1, 1, 4]
    assert list_offsets(LISTS.slice(2)).tolist() == [0, 0, 3]
    assert list_offsets(LISTS.slice(3, 0)).tolist() == [0]


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
    def failing(batches, error):
        yield from batches
        raise error

    with pytest.raises(InvalidParameterError) as caught:
        list(WorkerTask(failing, (InvalidParameterError("query 7 is bad."),))(iter([])))
    assert find_refusal(f"at Foo.java: {caught.value}\n at Bar.java") == "query 7 is bad."
    with pytest.raises(ZeroDivisionError, match=r"^crash$"):
        list(WorkerTask(failing, (ZeroDivisionError("crash"),))(iter([])))


# --- Single rows


def viewed(convention: Convention, k: int | None = None, **columns) -> list[dict]:
    """Rows of one query; alone on their ranks unless `tied` says otherwise."""
    n = len(columns["rank"])
    columns = {"tied": [1] * n, "n_ranked": [n] * n, **columns}
    types = {"relevance": pa.float64(), "rank": pa.int32(), "ideal_rank": pa.int64(), "item": pa.string()}
    types |= {"tied": pa.int32(), "n_ranked": pa.int32()}
    arrays = {name: pa.array([None, *values, None], types[name]) for name, values in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays).slice(1, len(columns["rank"]))
    return [row for result in add_gains(iter([batch]), convention, k) for row in result.to_pylist()]


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
    expected = evaluate_single(build_ranking(relevances), Choices(), None)
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


def test_a_view_of_a_relevance_without_gain_is_refused():
    with pytest.raises(InvalidParameterError, match="relevance 5 has no gain"):
        viewed(Convention(gain="table:0=0"), relevance=[5.0], rank=[1], ideal_rank=[1])
