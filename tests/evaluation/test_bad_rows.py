"""Rows that cannot be used: each reason, under both policies; duplicates; and the accounts of all rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import functions as F
from support.bad_rows import BAD_ROWS, BY_RANK, GOOD, INF, NAN, SCHEMA, SCORED, Bad
from support.canonical_rows import judgment_rows, run_rows
from support.oracle import Choices, Row, evaluate
from support.refusals import refusal
from support.spark_rankings import Case, assert_same_results, collect_cases, session_settings

from ndcg_spark.conventions import Convention
from ndcg_spark.core.bad_rows import RowCount, count_rows, describe_bad_rows, rejects_table
from ndcg_spark.evaluation import rank_queries, score_queries
from ndcg_spark.evaluation.frames.columns import checked_rows
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.valid_rows import RowRules

CHOICES = Choices(ties="item_asc")
ONE_OF_EACH = ("null_query", "null_item", "nan_score", "rank_not_whole", "level_without_gain", "bad_weight")
"""Every reason is tested where it is decided (`worker/test_valid_rows.py`); here, that it reaches the user."""
OF_JUDGMENTS = ("null_query", "null_item", "nan_relevance", "infinite_relevance", "gain_overflow", "bad_weight")


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


def table_of(spark, *rows: dict[str, object]):
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    return spark.createDataFrame([tuple({**GOOD, **row}.get(name) for name in names) for row in rows], SCHEMA)


GOOD_ROWS = ({}, {"item_id": "y", "score": 0.5, "rank": 2.0, "relevance": 0.0}, {"query_id": "q2", "relevance": None})
GOOD_RANKING = [
    Row(query=("a", "q1"), item="x", score=1.0, relevance=2.0),
    Row(query=("a", "q1"), item="y", score=0.5, relevance=0.0),
    Row(query=("a", "q2"), item="x", score=1.0),
]


# --- Every reason


@pytest.mark.parametrize("reason", ONE_OF_EACH)
def test_fail_stops_with_the_reason_and_the_key(spark, reason):
    """The bad row is the only one of query q9."""
    bad = next(one for one in BAD_ROWS.values() if one.reason == reason)
    table = table_of(spark, *GOOD_ROWS, {"query_id": "q9", **bad.cells})
    message = refusal(rank_queries(table, bad.settings))
    query = "null" if "query_id" in bad.cells else "q9"
    assert message.startswith(f"bad row: {bad.reason} at ")
    assert f"query_id={query}" in message


FORMS = {
    "long": EvaluationSettings(columns=SCORED, cutoffs=(1,)),
    "whole lists": EvaluationSettings(columns=SCORED, cutoffs=(None,)),
    "no ideal": EvaluationSettings(columns=SCORED, cutoffs=(1,), convention=Convention(ideal="k_ones")),
    "ranks": EvaluationSettings(columns=BY_RANK, cutoffs=(1,)),
    "best copy": EvaluationSettings(columns=SCORED, cutoffs=(1,), convention=Convention(duplicates="best")),
    "judgments": EvaluationSettings(columns=SCORED, cutoffs=(1,)),
}


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize(("name", "key"), [*((name, "query_id") for name in FORMS), ("long", "run")])
def test_a_row_without_a_key_is_refused_by_every_strategy(spark, name, key, strategy):
    """Windows and joins by key would leave it away, or make a group of it."""
    table, judgments = table_of(spark, *GOOD_ROWS, {key: None}), None
    if name == "judgments":
        judgments = table_of(spark, *GOOD_ROWS).drop("run", "score", "rank", "place")
        table = table.drop("relevance")
    message = refusal(rank_queries(table, replace(FORMS[name], strategy=strategy), judgments=judgments))
    assert message is not None
    assert message.startswith(f"bad row: null_{key.removesuffix('_id')} at ")


@pytest.mark.parametrize("columns", [SCORED, BY_RANK], ids=["score", "rank"])
def test_counts_per_reason(spark, columns):
    """All reasons of one run in one table, and good rows: nothing is counted twice or not at all."""
    found, chosen = counts_of(spark, columns)
    expected: dict[str, int] = {}
    for bad in chosen:
        expected[bad.reason] = expected.get(bad.reason, 0) + 1
    assert found.read == len(GOOD_ROWS) + len(chosen)
    assert found.rejected == expected
    if columns is SCORED:
        assert_described(found, len(chosen))


def counted(table, settings: EvaluationSettings) -> RowCount:
    return count_rows(checked_rows(run_rows(table, settings, judged=True), RowRules(settings)))


def counts_of(spark, columns: Columns) -> tuple[RowCount, list[Bad]]:
    chosen = [bad for bad in BAD_ROWS.values() if bad.columns is columns and bad.convention == Convention()]
    rows = [{"query_id": f"b{n}", **bad.cells} for n, bad in enumerate(chosen)]
    table = table_of(spark, *GOOD_ROWS, *rows)
    return counted(table, chosen[0].settings), chosen


def assert_described(counted: RowCount, n_bad: int) -> None:
    """With an example of each reason."""
    assert counted.examples["null_query"] == "run=a, query_id=null, item=x"
    assert counted.examples["infinite_score"] == "run=a, query_id=b5, item=x"
    described = describe_bad_rows(counted, "input")
    assert described.startswith(f"{n_bad} bad rows of {counted.read} in the input: ")
    assert "null_query 1 (e.g. run=a, query_id=null, item=x)" in described


def test_reject_evaluates_as_if_the_rows_were_not_there(spark):
    cases = {}
    for name, columns in {"score": SCORED, "rank": BY_RANK}.items():
        chosen = [bad for bad in BAD_ROWS.values() if bad.columns is columns and bad.convention == Convention()]
        chosen = [bad for bad in chosen if bad.reason != "rank_too_large"]
        table = table_of(spark, *[{"item_id": f"b{n}", **bad.cells} for n, bad in enumerate(chosen)], *GOOD_ROWS)
        for strategy in ("engine", "window"):
            settings = EvaluationSettings(columns=columns, cutoffs=(1, 3), on_invalid="reject", strategy=strategy)
            cases[f"{name} {strategy}"] = Case(data=table, settings=settings)
    for found in collect_cases(cases).values():
        assert_same_results(found, evaluate(GOOD_RANKING, CHOICES, [1, 3]))


def test_ranks_that_are_too_large_are_rejected(spark):
    """Of doubles from 2^63 on there is no whole number in Spark; such a rank is bad, not an overflow."""
    settings = EvaluationSettings(columns=BY_RANK, on_invalid="reject")
    table = table_of(spark, *[{"rank": rank} for rank in (10_000_001.0, 1e15, 1e19, INF)], {})
    found = counted(table, settings)
    assert (found.read, found.rejected) == (5, {"rank_too_large": 4})


def test_whole_ranks_are_checked_in_their_own_type(spark):
    """Also those that no int holds, before they are made one."""
    bad = [{"item_id": f"b{n}", "rank": rank} for n, rank in enumerate((None, 0.0, -1.0, 10_000_001.0, 2.0**40))]
    table = table_of(spark, *bad, *GOOD_ROWS).withColumn("rank", F.col("rank").cast("bigint"))
    settings = EvaluationSettings(columns=BY_RANK, cutoffs=(1, 3), on_invalid="reject")
    assert counted(table, settings).rejected == {"null_rank": 1, "rank_below_1": 2, "rank_too_large": 2}
    too_large = table.where("rank > 1e12")
    assert refusal(rank_queries(too_large, replace(settings, on_invalid="fail"))).startswith(
        "bad row: rank_too_large"
    )
    found = collect_cases({"one": Case(data=table, settings=settings)})["one"]
    assert_same_results(found, evaluate(GOOD_RANKING, CHOICES, [1, 3]))


def test_rejects_carry_the_row_and_its_reason(spark):
    table = table_of(spark, *GOOD_ROWS, {"query_id": "q9", "score": NAN})
    settings = BAD_ROWS["NaN score"].settings
    checked = checked_rows(run_rows(table, settings, judged=True, original=True), RowRules(settings))
    rejected = rejects_table(checked, "input").collect()
    assert [(row["source"], row["reason"]) for row in rejected] == [("input", "nan_score")]
    assert '"query_id":"q9"' in rejected[0]["row"]
    assert '"place":null' in rejected[0]["row"]


@pytest.mark.parametrize("policy", ["fail", "reject"])
def test_bad_rows_of_judgments(spark, policy):
    chosen = [bad for bad in BAD_ROWS.values() if bad.reason in OF_JUDGMENTS]
    columns = Columns(weight="w")
    judgments = table_of(
        spark, *[{"query_id": "q9", "item_id": f"b{n}", **b.cells} for n, b in enumerate(chosen)], {}
    )
    judgments = judgments.select("query_id", "item_id", "relevance", "w")
    run = table_of(spark, {}, {"item_id": "y", "score": 2.0}).select("query_id", "item_id", "score")
    settings = EvaluationSettings(columns=columns, cutoffs=(1, 3), on_invalid=policy)
    if policy == "fail":
        assert refusal(score_queries(rank_queries(run, settings, judgments=judgments), settings)).startswith(
            "bad row: "
        )
        return
    rejected = count_rows(checked_rows(judgment_rows(judgments, settings), RowRules(settings, True))).rejected
    assert (sum(rejected.values()), set(rejected)) == (len(chosen), set(OF_JUDGMENTS))
    found = collect_cases({"all": Case(data=run, judgments=judgments, settings=settings)})["all"]
    rows = [Row(query="q1", item="x", score=1.0, relevance=2.0), Row(query="q1", item="y", score=2.0)]
    assert_same_results(found, evaluate(rows, CHOICES, [1, 3]))


BAD_ARRAYS = [("q9", [1.0, NAN]), ("q9", [INF]), ("q9", [64.5]), ("q9", None), (None, [1.0])]
GOOD_ARRAY = ("q", [1.0, None])
OF_ARRAYS = "query_id string, relevance array<double>"


@pytest.mark.parametrize("bad", BAD_ARRAYS, ids=str)
def test_a_bad_row_of_arrays_is_refused(spark, bad):
    settings = EvaluationSettings(cutoffs=(1,))
    table = spark.createDataFrame([GOOD_ARRAY, bad], OF_ARRAYS)
    assert refusal(score_queries(rank_queries(table, settings), settings)).startswith("bad row: ")


def test_bad_rows_of_arrays_are_rejected(spark):
    table = spark.createDataFrame([*BAD_ARRAYS[:3], GOOD_ARRAY, *BAD_ARRAYS[3:]], OF_ARRAYS)
    settings = EvaluationSettings(cutoffs=(1,), on_invalid="reject")
    found = collect_cases({"one": Case(data=table, settings=settings)})["one"]
    rows = [Row(query="q", item="0", score=2.0, relevance=1.0), Row(query="q", item="1", score=1.0)]
    assert_same_results(found, evaluate(rows, CHOICES, [1]))


def test_a_query_that_a_policy_does_not_allow_is_named(spark):
    """Nothing relevant, and an unjudged item in the first k, as errors; two items on one rank always."""
    table = table_of(spark, {}, {"query_id": "q9", "relevance": 0.0}, {"query_id": "q8", "relevance": None})
    for choice, query in {"no_relevant": "q9", "unjudged": "q8"}.items():
        settings = EvaluationSettings(convention=replace(Convention(), **{choice: "error"}), cutoffs=(1,))
        assert f"query_id={query}" in refusal(score_queries(rank_queries(table, settings), settings))
    twice = table_of(spark, {}, {"item_id": "y"})
    settings = EvaluationSettings(columns=Columns(rank="rank"), cutoffs=(3,))
    assert "query_id=q1 has two items on one rank" in refusal(score_queries(rank_queries(twice, settings), settings))
