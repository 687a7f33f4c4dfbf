"""Which rows are bad, and why: every reason, in the one place that decides it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from support.arrow_rankings import BAD_ROWS, BY_RANK, GOOD, INF, NAN, SCORED

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.query_rows import canonical_names
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck, find_bad_rows, find_reasons, select_valid, split_runs

NAMES = {"run": "run", "query_id": "query_0", "item_id": "item", "relevance": "relevance", "w": "weight"}


def batch_of(columns: Columns, *rows: dict[str, object]) -> pa.RecordBatch:
    """Canonical rows, each good except for the cells that are given."""
    value = "score" if columns.rank is None else "rank"
    kinds = {name: pa.string() if isinstance(cell, str) else pa.float64() for name, cell in GOOD.items()}
    return pa.RecordBatch.from_pydict(
        {
            canonical: pa.array([({**GOOD, **row})[name] for row in rows], kinds[name], from_pandas=False)
            for name, canonical in {**NAMES, value: value}.items()
        }
    )


def reasons(batch: pa.RecordBatch, settings: EvaluationSettings, *, judgments: bool = False) -> dict[str, list[bool]]:
    return {reason: at.tolist() for reason, at in find_reasons(batch, RowCheck(settings, judgments))}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_refused_or_left_out_with_its_reason(name: str) -> None:
    bad = BAD_ROWS[name]
    batch = batch_of(bad.columns, {}, {"item_id": "y"}, {"query_id": "q9", **bad.cells})
    run, query = bad.cells.get("run", "a"), bad.cells.get("query_id", "q9")
    with pytest.raises(InputRefusedError) as caught:
        select_valid(batch, RowCheck(bad.settings))
    assert str(caught.value) == f"bad row: {bad.reason} at run={run or 'null'}, query_id={query or 'null'}"
    kept = select_valid(batch, RowCheck(replace(bad.settings, on_invalid="reject")))
    assert kept.column("item").to_pylist() == ["x", "y"]


def test_good_rows_are_handed_on_as_they_are() -> None:
    batch = batch_of(SCORED, {}, {"relevance": None}, {"relevance": -100.0}, {"relevance": 63.0}, {"w": 0.0})
    settings = BAD_ROWS["NaN score"].settings
    assert select_valid(batch, RowCheck(settings)) is batch
    for columns, cells in ((SCORED, {"score": None}), (BY_RANK, {"rank": None})):
        unretrieved = batch_of(columns, cells)
        kept = select_valid(unretrieved, RowCheck(replace(settings, columns=columns, null_score="unretrieved")))
        assert kept is unretrieved


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64()])
def test_ranks_of_any_type_are_checked(kind: pa.DataType) -> None:
    """Also where nulls lie among them, whose bytes say nothing."""
    settings = EvaluationSettings(columns=Columns(rank="rank"))
    ranks = pa.array([1, None, 0, -1, 100], kind)
    batch = pa.RecordBatch.from_pydict({"query_0": ["q"] * 5, "rank": ranks})
    assert reasons(batch, settings) == {
        "null_rank": [False, True, False, False, False],
        "rank_below_1": [False, False, True, True, False],
    }
    assert list(reasons(batch, replace(settings, null_score="unretrieved"))) == ["rank_below_1"]


@pytest.mark.parametrize("rank", [10_000_001, 10_000_001.0, 2**40, 1e15, 1e19, INF])
def test_a_rank_may_be_too_large(rank: float) -> None:
    settings = EvaluationSettings(columns=Columns(rank="rank"))
    batch = pa.RecordBatch.from_pydict({"query_0": ["q", "q"], "rank": [type(rank)(10_000_000), rank]})
    assert reasons(batch, settings) == {"rank_too_large": [False, True]}


@pytest.mark.parametrize(
    ("convention", "relevance", "reason"),
    [
        (Convention(), -100.0, None),  # 2^-100 - 1 is next to -1
        (Convention(gain="power:10"), -100.0, "gain_overflow"),  # 1e20 is beyond 2^63
        (Convention(gain="power:10", negative="clip"), -100.0, None),
        (Convention(negative="error"), -0.5, "negative_relevance"),
        (Convention(negative="error"), -0.0, None),
        (Convention(gain="table:1=1,2=3"), None, None),  # an unjudged item has no level
        (Convention(gain="table:1=1,2=3", negative="clip"), None, None),
        (Convention(gain="table:0=0,1=1", negative="clip"), -5.0, None),
        (Convention(gain="table:0=0,1=1"), -5.0, "level_without_gain"),
        (Convention(gain="linear"), 2.0**63, None),
        (Convention(gain="linear"), 2.0**64, "gain_overflow"),
    ],
)
def test_a_relevance_is_bad_where_its_gain_is(convention: Convention, relevance, reason) -> None:
    batch = pa.RecordBatch.from_pydict({"query_0": ["q"], "relevance": pa.array([relevance], pa.float64())})
    assert list(reasons(batch, EvaluationSettings(convention=convention))) == ([] if reason is None else [reason])


def test_the_reason_that_spark_found_comes_first() -> None:
    """Text that is no number is null to workers; the line it stood in has no other reason."""
    batch = pa.RecordBatch.from_pydict(
        {"query_0": ["a", "b", "c"], "score": [1.0, None, None], "bad_row": [None, "score_not_a_number", None]}
    )
    settings = EvaluationSettings()
    with pytest.raises(InputRefusedError, match="bad row: score_not_a_number at query_id=b"):
        select_valid(batch, RowCheck(settings))
    kept = select_valid(batch, RowCheck(replace(settings, on_invalid="reject")))
    assert (kept.schema.names, kept.num_rows) == (["query_0", "score"], 1)
    unretrieved = replace(settings, on_invalid="reject", null_score="unretrieved")
    assert select_valid(batch, RowCheck(unretrieved)).column("query_0").to_pylist() == ["a", "c"]


def test_an_order_is_needed_of_rows_and_not_of_judgments() -> None:
    settings = EvaluationSettings(columns=Columns(order="at"), convention=Convention(ties="input_order"))
    batch = pa.RecordBatch.from_pydict({"query_0": ["q"], "order": pa.array([None], pa.int32())})
    assert list(reasons(batch, settings)) == ["null_order"]
    assert reasons(batch, settings, judgments=True) == {}


def test_a_query_that_is_not_a_number_is_none() -> None:
    batch = pa.RecordBatch.from_pydict({"query_0": [1.0, NAN], "score": [1.0, 1.0]})
    assert reasons(batch, EvaluationSettings()) == {"null_query": [False, True]}


def test_a_list_is_bad_where_one_of_its_relevances_is() -> None:
    lists = pa.array([[1.0], None, [], [0.0, NAN], [None], [INF, NAN], [2000.0]], pa.list_(pa.float64()))
    batch = pa.RecordBatch.from_pydict({"query_0": list("abcdefg"), "ranked_list": lists})
    actual = {
        reason: [n for n, bad in enumerate(at) if bad] for reason, at in reasons(batch, EvaluationSettings()).items()
    }
    assert actual == {
        "null_list": [1],
        "nan_relevance": [3, 5],
        "infinite_relevance": [5],
        "gain_overflow": [5, 6],
    }
    sliced = batch.slice(3, 2)
    assert reasons(sliced, EvaluationSettings()) == {"nan_relevance": [True, False]}


def test_each_bad_row_is_told_its_first_reason_and_its_key() -> None:
    """Valid ones are only counted; a row with several scores comes once for each."""
    settings = EvaluationSettings(columns=Columns(score=("bm25", "dense")))
    batch = pa.RecordBatch.from_pydict(
        {"query_0": ["a", None], "item": ["x", "y"], "score_0": [1.0, None], "score_1": [NAN, 2.0], "row": ["1", "2"]}
    )
    actual = [row for element in find_bad_rows(iter([batch]), RowCheck(settings)) for row in element.to_pylist()]
    assert actual == [
        {"reason": "null_query", "key": "run=bm25, query_id=null, item=y", "n": 1, "row": "2"},
        {"reason": None, "key": None, "n": 1, "row": None},
        {"reason": "nan_score", "key": "run=dense, query_id=a, item=x", "n": 1, "row": "1"},
        {"reason": "null_query", "key": "run=dense, query_id=null, item=y", "n": 1, "row": "2"},
        {"reason": None, "key": None, "n": 0, "row": None},
    ]


def test_a_batch_of_several_score_columns_is_split_once() -> None:
    settings = EvaluationSettings(columns=Columns(score=("bm25", "dense")))
    batch = pa.RecordBatch.from_pydict({"query_0": ["q"], "score_0": [1.0], "score_1": [2.0]})
    split = list(split_runs(batch, canonical_names(settings)))
    expected = [{"run": "bm25", "score": 1.0, "query_0": "q"}, {"run": "dense", "score": 2.0, "query_0": "q"}]
    assert [row for element in split for row in element.to_pylist()] == expected
    assert [list(split_runs(element, canonical_names(settings))) for element in split] == [
        [element] for element in split
    ]
