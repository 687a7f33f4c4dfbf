"""Given ranks by levels of relevance: the numbers of the definition, without a list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from oracle import Choices, evaluate
from pyspark.sql import functions as F
from random_rankings import random_rows
from spark_rankings import RANKED, Case, collect_cases, convention_of, differences, scored_table, session_settings
from test_duplicates import refusal

from ndcg_spark import rank_queries, score_queries
from ndcg_spark.plan import Columns, EvaluationPlan
from ndcg_spark.spark.ranking.choose import choose_way
from ndcg_spark.worker.levels import LONGEST, repeated_rank, with_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

LEVELS = pa.list_(
    pa.struct([("relevance", pa.float64()), ("n_ideal", pa.int64()), ("n_within", pa.int64()), ("ranks", pa.int64())])
)
CHOICES = {
    "default": Choices(ties="item_asc"),
    "clip, drop": Choices(gain="linear", ties="item_desc", negative="clip", missing_query="drop"),
    "table, retrieved": Choices(gain="table:0=0.5,1=3,2=1,3=2,4=0.25", ties="item_asc", ideal="retrieved"),
    "k_ones, padded": Choices(ties="item_asc", ideal="k_ones", pad_to_k=0.5, unjudged_query="zero"),
}
WITHOUT_LOOK = {"check_duplicates": "none", "columns": RANKED}


@pytest.fixture(scope="module", autouse=True)
def _few_partitions(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, spark__sql__shuffle__partitions=2):
        yield


def test_levels_become_lists() -> None:
    """By hand: relevance 2 on ranks 1 and 4 of three such items, unjudged on rank 2, 0 on none of a hundred."""
    first = [
        {"relevance": 0.0, "n_ideal": 100, "n_within": 0, "ranks": 0},
        {"relevance": 2.0, "n_ideal": 3, "n_within": 2, "ranks": 0b1001},
        {"relevance": None, "n_ideal": 7, "n_within": 1, "ranks": 0b0010},
    ]
    second = [{"relevance": -1.0, "n_ideal": 1, "n_within": 1, "ranks": 1 << (LONGEST - 1)}]
    batch = pa.record_batch({"query": ["a", "b", "c"], "levels": pa.array([first, [], second], type=LEVELS)})
    assert with_lists(batch, 4).to_pylist() == [
        {"query": "a", "ranked": [2.0, None, 2.0], "ranks": [1, 2, 4], "ideal": [2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]},
        {"query": "b", "ranked": [], "ranks": [], "ideal": []},
        {"query": "c", "ranked": [-1.0], "ranks": [LONGEST], "ideal": [-1.0]},
    ]
    assert repeated_rank(batch) is None


def test_one_level_twice_on_a_rank_is_seen() -> None:
    levels = [{"relevance": 1.0, "n_ideal": 2, "n_within": 2, "ranks": 0b1}]
    assert repeated_rank(pa.record_batch({"levels": pa.array([[], levels], type=LEVELS)})) == 1


@pytest.mark.parametrize("name", CHOICES)
def test_levels_equal_the_oracle(spark: SparkSession, name: str) -> None:
    """Unjudged, unretrieved and negative items among them; every value of the definition, to the last digits."""
    choices = CHOICES[name]
    rows = random_rows(50 + list(CHOICES).index(name), negatives="table" not in name)
    table = scored_table(spark, rows, choices).withColumn("relevance", F.col("relevance").cast("int"))
    plan = EvaluationPlan(
        cutoffs=(1, 3, 10), convention=convention_of(choices), null_score="unretrieved", **WITHOUT_LOOK
    )
    assert choose_way(table, plan).ideal == "levels"
    cases = {"levels": Case(data=table, plan=plan), "moved": Case(data=table, plan=replace(plan, layout="scattered"))}
    expected = evaluate(rows, choices, (1, 3, 10))
    for way, got in collect_cases(cases).items():
        assert not differences(got, expected), (way, differences(got, expected))


@pytest.mark.parametrize("relevances", [(1, 1), (1, 2), (None, None)], ids=["one level", "two levels", "unjudged"])
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
    ("change", "by_levels"),
    [
        ({}, True),
        ({"cutoffs": (62,)}, True),
        ({"cutoffs": (63,)}, False),
        ({"cutoffs": (None,)}, False),
        ({"check_duplicates": "top"}, False),
        ({"check_duplicates": "top", "columns": Columns(rank="rank", item=None)}, True),
        ({"check_duplicates": "top", "columns": Columns(rank="rank", item="no such column")}, True),
        ({"check_duplicates": "all"}, True),
        ({"way": "top_k"}, False),
        ({"columns": Columns(rank="rank", relevance="fraction")}, False),
    ],
)
def test_when_levels_are_all_it_takes(spark: SparkSession, change: dict[str, object], by_levels: bool) -> None:
    schema = "query_id string, item_id string, rank int, relevance int, fraction double"
    plan = EvaluationPlan(**{"cutoffs": (3,), **WITHOUT_LOOK, **change})
    table = spark.createDataFrame([], schema)
    assert (choose_way(table, plan).ideal == "levels") == by_levels
    assert choose_way(table, plan, judged=False).ideal != "levels"
