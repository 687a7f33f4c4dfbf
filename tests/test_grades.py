"""Packed grades, of given ranks and of ideal lists: the numbers of the definition, without a list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from oracle import Choices, evaluate
from pyspark.sql import functions as F
from random_rankings import random_rows
from spark_rankings import (
    LONG,
    RANKED,
    Case,
    assert_same_results,
    collect_cases,
    convention_of,
    differences,
    needs_top_k,
    scored_table,
    session_settings,
)
from test_duplicates import refusal

from ndcg_spark import rank_queries, score_queries
from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.plan import Columns, EvaluationPlan
from ndcg_spark.spark.ranking.choose import choose_way
from ndcg_spark.worker.grades import with_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

COUNTS = pa.struct([("counts", pa.list_(pa.int64()))])
GRADES = pa.struct([*COUNTS, ("words", pa.list_(pa.int64())), ("n_within", pa.int64())])
LIST = pa.list_(pa.float64())
OTHERS = pa.struct([("ranked", LIST), ("ideal", LIST)])
NONE = {"ranked": None, "ideal": None}
CHOICES = {
    "default": Choices(ties="item_asc"),
    "clip, drop": Choices(gain="linear", ties="item_desc", negative="clip", missing_query="drop"),
    "table, retrieved": Choices(gain="table:0=0.5,1=3,2=1,3=2,4=0.25", ties="item_asc", ideal="retrieved"),
    "beyond grades": Choices(gain="linear", ties="item_asc"),
    "table, beyond grades": Choices(gain="table:0=0.5,9=3,10=1,11=2,31=0.25", ties="item_asc", no_relevant="skip"),
    "k_ones, padded": Choices(ties="item_asc", ideal="k_ones", pad_to_k=0.5, unjudged_query="zero"),
}
WHOLE = {"clip, drop": "tinyint", "beyond grades": "bigint"}
BEYOND = {1.0: 9.0, 2.0: 10.0, 3.0: 11.0, 4.0: 31.0}
WITHOUT_LOOK = {"check_duplicates": "none", "columns": RANKED}


@pytest.fixture(scope="module", autouse=True)
def _few_partitions(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, spark__sql__shuffle__partitions=2):
        yield


def packed(grades: list[dict], others: list[dict], kind: pa.StructType = GRADES, **columns: list) -> pa.RecordBatch:
    """Rankings in which each query has three judged items, unless said otherwise."""
    found = {"n_judged": pa.array([3] * len(grades), pa.int64())} | columns
    return pa.record_batch(found | {"grades": pa.array(grades, kind), "others": pa.array(others, OTHERS)})


def test_grades_become_lists() -> None:
    """By hand, from the right a hex digit a rank from 0 on: 0 no item, 1 unjudged, 2 no grade, else F less grade."""
    graded = {"words": [0xD01D0 - (1 << 60), 0], "n_within": 4, "counts": [101, 2 | 1 << 31, 0, 0, 0]}
    empty = {"words": [0, 0], "n_within": 0, "counts": [0] * 5}
    highest = {"words": [0x2 << 60, 0x6], "n_within": 2, "counts": [0, 0, 0, 0, 1 << 31]}
    below = {"ranked": [-1.0], "ideal": [-1.0, -2.0]}
    found = with_lists(packed([graded, empty, highest], [NONE, NONE, below], query=["a", "b", "c"]), 20, ("query",))
    assert found.drop_columns("n_judged").to_pylist() == [
        {
            "query": "a",
            "ranked": [2.0, None, 2.0, 0.0],
            "ranks": [1, 2, 4, 15],
            "ideal": [3.0, 2.0, 2.0, *[0.0] * 17],
        },
        {"query": "b", "ranked": [], "ranks": [], "ideal": []},
        {"query": "c", "ranked": [-1.0, 9.0], "ranks": [15, 16], "ideal": [9.0, -1.0, -2.0]},
    ]


def test_counts_of_grades_become_the_ideal_list_beside_a_ranked_one() -> None:
    """By hand: two of grade 2, one of 9, one of 0; and below them -2, above them 12."""
    graded = {"counts": [1, 2, 0, 0, 1 << 31]}
    others = {"ranked": None, "ideal": [12.0, -2.0]}
    (found,) = with_lists(packed([graded], [others], COUNTS, ranked=[[None, 2.0]]), 100, ()).to_pylist()
    assert found == {"n_judged": 3, "ranked": [None, 2.0], "ideal": [12.0, 9.0, 2.0, 2.0, 0.0, -2.0]}


def test_relevances_that_are_no_grades_take_their_place_in_the_ideal_list() -> None:
    """By hand: 64 before the grades, -3 after them; of each grade up to k where gains need not rise."""
    graded = {"words": [0x2020], "n_within": 2, "counts": [2 | 1 << 31, 0, 0, 0, 0]}
    batch = packed([graded], [{"ranked": [-3.0, 64.0], "ideal": [64.0, 64.0, -3.0]}])
    (found,) = with_lists(batch, 3, ()).to_pylist()
    assert found == {"n_judged": 3, "ranked": [-3.0, 64.0], "ranks": [1, 3], "ideal": [64.0, 64.0, 1.0]}
    (found,) = with_lists(batch, 3, (), any_order=True).to_pylist()
    assert found["ideal"] == [64.0, 64.0, 1.0, 0.0, 0.0, -3.0]


def test_a_batch_without_queries_is_none_to_refuse() -> None:
    found = with_lists(packed([], [], query=pa.array([], pa.string())), 20, ("query",))
    assert found.schema.names == ["n_judged", "query", "ranked", "ranks", "ideal"]
    assert found.num_rows == 0


@pytest.mark.parametrize(
    ("n_within", "n_judged", "message"),
    [(2, 1, "query=b has two items on one rank"), (1, 2**31, "query=b has more judged items")],
)
def test_what_cannot_be_told_from_grades_is_refused(n_within: int, n_judged: int, message: str) -> None:
    """Two items on one rank leave one digit; a count beyond 31 bits runs into that of the next grade."""
    right = {"words": [0xE0], "n_within": 1, "counts": [1 << 31, 0, 0, 0, 0]}
    grades = [right, right | {"n_within": n_within}]
    with pytest.raises(InputRefusedError, match=message):
        with_lists(packed(grades, [NONE] * 2, query=["a", "b"], n_judged=[2**31 - 1, n_judged]), 1, ("query",))


@pytest.mark.parametrize("name", CHOICES)
def test_grades_equal_the_oracle(spark: SparkSession, name: str) -> None:
    """Unjudged, unretrieved and negative items among them; every value of the definition, to the last digits."""
    choices = CHOICES[name]
    rows = random_rows(50 + list(CHOICES).index(name), max_items=70, negatives="table" not in name)
    if "beyond grades" in name:
        rows = [replace(row, relevance=BEYOND.get(row.relevance, row.relevance)) for row in rows]
    kind = WHOLE.get(name, "int")
    table = scored_table(spark, rows, choices).withColumn("relevance", F.col("relevance").cast(kind))
    cutoffs = (1, 3, 20, 63)  # 16 ranks to a number
    plan = EvaluationPlan(
        cutoffs=cutoffs, convention=convention_of(choices), null_score="unretrieved", **WITHOUT_LOOK
    )
    assert choose_way(table, plan).ideal == "grades"
    cases = {"grades": Case(data=table, plan=plan), "moved": Case(data=table, plan=replace(plan, layout="scattered"))}
    cases["window"] = Case(data=table, plan=replace(plan, columns=LONG, way="window"))
    expected = evaluate(rows, choices, cutoffs)
    for way, got in collect_cases(cases).items():
        assert not differences(got, expected), (way, differences(got, expected))


@pytest.mark.parametrize("ideal", ["judged", "retrieved"])
def test_ties_on_average_with_the_ideal_list_by_grades_equal_the_oracle(spark: SparkSession, ideal: str) -> None:
    choices = Choices(ties="expected", ideal=ideal)
    rows = random_rows(60, max_items=70, negatives=True)
    table = scored_table(spark, rows).withColumn("relevance", F.col("relevance").cast("smallint"))
    plan = EvaluationPlan(
        cutoffs=(1, 3, 20), convention=convention_of(choices), check_duplicates="none", null_score="unretrieved"
    )
    assert choose_way(table, plan).ideal == "grades"
    (got,) = collect_cases({"expected": Case(data=table, plan=plan)}).values()
    assert_same_results(got, evaluate(rows, choices, (1, 3, 20)))


@pytest.mark.parametrize("relevances", [(1, 1), (1, 2), (None, None)], ids=["one grade", "two grades", "unjudged"])
def test_two_items_on_one_rank_are_refused(spark: SparkSession, relevances: tuple[int | None, int | None]) -> None:
    cells = [("q1", "a", 1, 1), *(("q9", item, 2, r) for item, r in zip("ab", relevances, strict=True))]
    table = spark.createDataFrame(cells, "query_id string, item_id string, rank int, relevance int")
    plan = EvaluationPlan(cutoffs=(2,), **WITHOUT_LOOK)
    message = refusal(score_queries(rank_queries(table, plan), plan))
    assert message is not None
    assert "query_id=q9 has two items on one rank" in message
    beyond = replace(plan, cutoffs=(1,))
    assert refusal(score_queries(rank_queries(table, beyond), beyond)) is None


@pytest.mark.parametrize(
    ("change", "by_grades"),
    [
        ({}, True),
        ({"cutoffs": (63,)}, True),
        ({"cutoffs": (64,)}, False),
        ({"cutoffs": (None,)}, False),
        ({"check_duplicates": "top"}, False),
        ({"check_duplicates": "top", "columns": Columns(rank="rank", item=None)}, True),
        ({"check_duplicates": "top", "columns": Columns(rank="rank", item="no such column")}, True),
        ({"check_duplicates": "all"}, True),
        pytest.param({"way": "top_k"}, False, marks=needs_top_k),
        pytest.param({"columns": Columns()}, False, marks=needs_top_k),
        ({"columns": Columns(), "way": "window"}, True),
        ({"columns": Columns(), "way": "window", "cutoffs": (64,)}, True),
        ({"columns": Columns(), "way": "window", "cutoffs": (None,)}, False),
        ({"columns": Columns(), "way": "window", "check_duplicates": "top"}, False),
        ({"columns": Columns(), "way": "window", "convention": Convention(ideal="k_ones")}, False),
        ({"columns": Columns(), "convention": Convention(ties="best")}, True),
        ({"columns": Columns(rank="rank", relevance="fraction")}, False),
    ],
)
def test_when_grades_are_all_it_takes(spark: SparkSession, change: dict[str, object], by_grades: bool) -> None:
    schema = "query_id string, item_id string, score double, rank int, relevance int, fraction double"
    plan = EvaluationPlan(**{"cutoffs": (3,), **WITHOUT_LOOK, **change})
    table = spark.createDataFrame([], schema)
    assert (choose_way(table, plan).ideal == "grades") == by_grades
    assert choose_way(table, plan, judged=False).ideal != "grades"
