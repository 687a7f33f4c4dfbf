"""Scoring of Arrow batches by hand-worked rankings, policies and refusals; the oracle has a file of its own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrow_rankings import LISTS, build_batch, build_task, score_batches, slice_batch
from support.printed_values import CASES, PRINTED

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InputRefusedError

ALL_FIVE = "table:1,0.5,0.25,0.125,0.0625"
HALVING = Convention(gain="linear", discount=ALL_FIVE)  # weights 1, 1/2, 1/4, ...: every sum below is exact


def one(ranked, ideal, cutoffs=(5,), convention=HALVING, **columns):
    """dcg, idcg, ndcg of a single query at each cutoff."""
    actual = score_batches(
        [build_batch([{"ranked": ranked, "ideal": ideal, **columns}])], build_task(convention, cutoffs)
    )
    rows = [actual["q0", k] for k in cutoffs]
    return [(row["dcg"], row["idcg"], row["ndcg"]) for row in rows]


def changed(**choices):
    return Convention(**{"gain": "linear", "discount": ALL_FIVE, **choices})


# --- Worked examples of the field, at the digits printed


@pytest.mark.parametrize(("example", "gain", "discount", "values"), CASES)
def test_worked_examples(example, gain, discount, values):
    ranked, ideal = [*example.relevances], [*example.unretrieved, *example.relevances]
    (actual,) = one(ranked, ideal, (example.k,), Convention(gain=gain, discount=discount, pad_to_k=0.0))
    for value, printed in zip(actual, values, strict=True):
        assert printed is None or value == pytest.approx(printed, abs=PRINTED)


# --- One choice at a time, arithmetic shown


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, (4 + 0 / 2 - 2 / 4, 4 + 1 / 2 - 2 / 4)),
        ({"negative": "clip"}, (4, 4 + 1 / 2)),
        ({"ideal": "k_ones"}, (4 - 2 / 4, 1 + 1 / 2 + 1 / 4 + 1 / 8)),
        ({"pad_to_k": 8.0}, (4 - 2 / 4 + 8 / 8, 4 + 1 / 2 - 2 / 4)),
        ({"pad_to_k": -1.0}, (4 - 2 / 4 - 1 / 8, 4 + 1 / 2 - 2 / 4)),
        ({"pad_to_k": -1.0, "negative": "clip"}, (4, 4 + 1 / 2)),
        ({"gain": "exponential"}, (15 - 0.75 / 4, 15 + 1 / 2 - 0.75 / 4)),
        ({"gain": "table:-2=1,1=2,4=4"}, (4 + 1 / 4, 4 + 2 / 2 + 1 / 4)),
        ({"gain": lambda relevance: relevance + 10}, (14 + 8 / 4, 14 + 11 / 2 + 8 / 4)),
    ],
)
def test_one_choice_at_a_time(choices, expected):
    """Ranked 4, unjudged, -2; judged besides: 1. At a cutoff of 4."""
    dcg, idcg = expected
    assert one([4, None, -2], [1, -2, 4], (4,), changed(**choices)) == [(dcg, idcg, dcg / idcg)]


def test_many_cutoffs_in_one_pass():
    got = one([1, 0, 2], [0, 1, 2], (1, 2, 5))
    assert got == [(1, 2, 1 / 2), (1, 2.5, 1 / 2.5), (1.5, 2.5, 1.5 / 2.5)]


def test_the_whole_list():
    convention = changed(discount="reciprocal")
    assert one([1] * 3, [1] * 4, (2, None), convention)[1][:2] == pytest.approx((1 + 1 / 2 + 1 / 3, 25 / 12))


@given(st.permutations([3.0, 1.0, 2.0, 0.0, None]))
def test_the_ideal_list_may_come_in_any_order(ideal):
    assert one([1], ideal)[0][1] == 3 + 2 / 2 + 1 / 4


def test_lists_longer_than_the_largest_cutoff_are_cut():
    assert one([1] * 9, [1] * 9, (2,)) == [(1.5, 1.5, 1.0)]


# --- Given ranks


def test_given_ranks_with_gaps_and_beyond_the_cutoff():
    """Ranks 1, 3, 4 and 40: 2 + 4/4 + 8/8."""
    ranks = [1, 3, 4, 40]
    assert one([2, 4, 8, 9], [1], ranks=ranks) == [(4, 1, 4)]
    assert one([2, 4, 8, 9], [1], (1, 3), ranks=ranks) == [(2, 1, 2), (3, 1, 3)]
    whole = changed(discount="reciprocal")
    assert one([2, 4, 8, 9], [1], (None,), whole, ranks=ranks)[0][0] == pytest.approx(2 + 4 / 3 + 8 / 4 + 9 / 40)


def test_given_ranks_are_padded_after_the_last():
    assert one([2, 4], [1], (4,), changed(pad_to_k=8.0), ranks=[1, 2])[0][0] == 2 + 4 / 2 + 8 / 4 + 8 / 8
    assert one([2, 4], [1], (2,), changed(pad_to_k=8.0), ranks=[1, 2])[0][0] == 2 + 4 / 2
    assert one([], [1], (2,), changed(pad_to_k=8.0), ranks=[], n_items=1)[0][0] == 8 + 8 / 2


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 40), st.sampled_from(["log2", "reciprocal"]))
def test_padding_has_the_same_bits_whether_ranks_are_given_or_not(relevances, k, discount):
    convention = Convention(discount=discount, pad_to_k=0.3)
    ranks = list(range(1, len(relevances) + 1))
    with_ranks = one(relevances, [4], (k,), convention, ranks=ranks, n_items=1)
    assert with_ranks == one(relevances, [4], (k,), convention, n_items=1)


def test_gaps_between_given_ranks_are_padded():
    """Ranks 2, 5 and 7 of 8: five missing items on ranks 1, 3, 4, 6 and 8."""
    convention = changed(discount="reciprocal", pad_to_k=3.0)
    expected = 1 / 2 + 1 / 5 + 1 / 7 + 3 * (1 + 1 / 3 + 1 / 4 + 1 / 6 + 1 / 8)
    assert one([1, 1, 1], [1], (8,), convention, ranks=[2, 5, 7])[0][0] == pytest.approx(expected, rel=1e-15)


def test_a_rank_given_twice_is_refused_within_a_query_only():
    queries = [{"ranked": [1, 1], "ideal": [1], "ranks": [1, 2]}, {"ranked": [1], "ideal": [1], "ranks": [2]}]
    queries.insert(1, {"ranked": None, "ideal": [1], "ranks": None})
    assert len(score_batches([build_batch(queries)], build_task(HALVING, (5,)))) == 3
    queries[0]["ranks"] = [2, 2]
    with pytest.raises(InputRefusedError, match="query query_id=q0 has two items on one rank"):
        score_batches([build_batch(queries)], build_task(HALVING, (5,)))


# --- Cutoffs below and beyond the lists, beside the whole list


def test_padding_at_a_cutoff_beside_the_whole_list():
    convention = changed(discount="reciprocal", pad_to_k=1.0)
    alone = one([1], [1], (2,), convention)
    assert alone[0][0] == 1 + 1 / 2
    assert one([1], [1], (2, None), convention) == [*alone, (1, 1, 1)]


def test_k_ones_at_a_cutoff_beside_the_whole_list():
    convention = changed(discount="reciprocal", ideal="k_ones")
    alone = one([1], [1], (2,), convention)
    assert alone[0][1] == 1 + 1 / 2
    assert one([1], [1], (2, None), convention) == [*alone, (1, 1, 1)]


def test_a_gap_before_a_far_rank_is_padded_the_same_whatever_other_cutoffs_there_are():
    """The first item is on rank 1, the second on rank 4, so that ranks 2 and 3 are empty up to k = 2."""
    convention = changed(pad_to_k=1.0)
    shorter = one([1], [1], (2,), convention, ranks=[1])  # the rank beyond k is not handed on
    assert one([1, 1], [1], (2, 4), convention, ranks=[1, 4])[0] == shorter[0]


# --- Policies


@pytest.mark.parametrize("no_relevant", ["zero", "one", "skip"])
@pytest.mark.parametrize("missing", ["zero", "drop"])
@pytest.mark.parametrize("unjudged", ["zero", "drop"])
def test_policies_of_unusual_queries(no_relevant, missing, unjudged):
    queries = [
        {"ranked": [1, None], "ideal": [1]},
        {"ranked": [0, -1], "ideal": [-1, 0]},
        {"ranked": [None], "ideal": None},
        {"ranked": None, "ideal": [1]},
        {"ranked": None, "ideal": [0]},
    ]
    choices = {"no_relevant": no_relevant, "missing_query": missing, "unjudged_query": unjudged}
    actual = score_batches([build_batch(queries)], build_task(changed(**choices), (2,)))
    got = [(row["dcg"], row["idcg"], row["ndcg"], row["status"]) for row in actual.values()]
    dropped = (None, None, None)
    assert got == [
        (1, 1, 1, "evaluated"),
        (-0.5, -0.5, {"zero": 0, "one": 1, "skip": None}[no_relevant], "no_relevant"),
        (*((0, 0, 0) if unjudged == "zero" else dropped), "unjudged"),
        (*((0, 1, 0) if missing == "zero" else dropped), "missing"),
        (*((0, 0, 0) if missing == "zero" else dropped), "missing"),
    ]


@pytest.mark.parametrize(
    ("convention", "bad", "text"),
    [
        (changed(no_relevant="error"), {"ranked": [0], "ideal": [0]}, "query query_id=q1 has nothing relevant"),
        (changed(unjudged="error"), {"ranked": [1, None], "ideal": [1]}, "query query_id=q1 has an unjudged item"),
        (
            changed(),
            {"ranked": [1e30], "ideal": [1]},
            r"query query_id=q1 has relevance 1e\+30, whose gain is not finite, or above 2\^63",
        ),
        (changed(gain="exponential"), {"ranked": [1], "ideal": [64]}, "query query_id=q1 has relevance 64, "),
        (changed(gain=lambda relevance: relevance[:0]), {"ranked": [1], "ideal": [1]}, "returned shape"),
        (
            changed(gain="exponential", pad_to_k=64.0),
            {"ranked": [1], "ideal": [1]},
            r"the gain of relevance 64 is not finite, or above 2\^63",
        ),
    ],
)
def test_refusals_name_the_query_or_the_value(convention, bad, text):
    batch = build_batch([{"ranked": [1], "ideal": [1]}, bad])
    with pytest.raises(InputRefusedError, match=text):
        score_batches([batch], build_task(convention, (2,)))


def test_an_error_names_the_run_where_it_has_a_name():
    batch = build_batch([{"run": "bm25", "ranked": [0], "ideal": [0]}])
    with pytest.raises(InputRefusedError, match="query run=bm25, query_id=q0 has nothing relevant"):
        score_batches([batch], build_task(changed(no_relevant="error"), (2,)))


# --- Shapes of batches

SHAPES = [
    {"ranked": [1, None, 3], "ideal": [1, 3]},
    {"ranked": None, "ideal": [2]},
    {"ranked": [], "ideal": []},
    {"ranked": [0, 2], "ideal": [2, 2, 0]},
    {"ranked": [None], "ideal": None},
]


@pytest.mark.parametrize("rows_per_batch", [1, 2, 1000])
def test_scores_do_not_depend_on_batch_size(rows_per_batch):
    batch, task = build_batch(SHAPES), build_task(Convention(), (1, 3))
    expected = score_batches([build_batch([{"query_id": f"q{n}", **query}]) for n, query in enumerate(SHAPES)], task)
    assert score_batches(slice_batch(batch, rows_per_batch), task) == expected


def test_what_hides_behind_a_null_list_is_not_read():
    """Arrow allows a null list to own values."""
    validity = pa.py_buffer(bytes([0b101]))
    offsets = pa.py_buffer(pa.array([0, 1, 3, 4], pa.int32()).buffers()[1])
    values = pa.array([1.0, 50.0, 60.0, 2.0])
    lists = pa.Array.from_buffers(LISTS, 3, [validity, offsets], children=[values])
    assert lists.to_pylist() == [[1], None, [2]]
    batch = build_batch([{"ranked": [1], "ideal": [1]}] * 3)
    batch = batch.set_column(batch.schema.get_field_index("ranked"), "ranked", lists)
    batch = batch.set_column(1, "query_id", pa.array(["a", "b", "c"]))
    for slices in ([batch], slice_batch(batch, 1)):
        assert [row["dcg"] for row in score_batches(slices, build_task(HALVING, (5,))).values()] == [1, 0, 2]


def test_columns_are_handed_through_and_no_rows_give_no_rows():
    batch = build_batch([{"ranked": [1], "ideal": [1], "country": "DE", "weight": 2.5}])
    task = build_task(HALVING, (1, 2), carried=("country", "weight"))
    rows = list(score_batches([batch], task).values())
    assert [(row["k"], row["country"], row["weight"], row["n_judged"]) for row in rows] == [
        (1, "DE", 2.5, 1),
        (2, "DE", 2.5, 1),
    ]
    assert score_batches([batch.slice(1)], task) == {}
    assert score_batches([], task) == {}
