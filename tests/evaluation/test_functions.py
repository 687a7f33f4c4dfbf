"""Columns for notebooks, the view of single rows, and what an evaluation costs."""

from __future__ import annotations

import math

import pytest
from chispa import assert_column_equality
from pyspark.sql import functions as F
from support.oracle import Choices, Row, evaluate, gain_function
from support.random_rankings import random_rows
from support.refusals import refusal
from support.small_rankings import only, ranked
from support.spark_rankings import array_table, close, convention_of, scored_table

from ndcg_spark import dcg, ndcg
from ndcg_spark import evaluate as evaluate_frame
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.frames.inspection import ranked_rows
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

LISTS: list[list[float | None] | None] = [
    [3.0, 2.0, 3.0, 0.0, 1.0, 2.0],
    [0.0, 0.0],
    [None, 1.0, None],
    [None],
    [-1.0, 2.0],
    [0.25],
    [],
    None,
]


# --- Columns


@pytest.mark.parametrize("kind", ["double", "float", "int", "bigint", "decimal(4,2)"])
def test_columns_of_arrays(spark, kind):
    """Against the oracle, list by list; the same lists with a cutoff, and with one beyond every list."""
    whole = kind in ("int", "bigint")
    lists = [one for one in LISTS if not (whole and one == [0.25])]
    table = spark.createDataFrame([(n, one) for n, one in enumerate(lists)], "n int, rels array<double>")
    table = table.selectExpr("n", f"cast(rels as array<{kind}>) as rels")
    cutoffs = (1, 2, 100, None)
    pairs = list(zip(cutoffs, ("zero", "one", "skip", "skip"), strict=True))
    columns = [ndcg("rels", k=k, gain="linear", no_relevant=policy).alias(f"ndcg {k}") for k, policy in pairs]
    columns += [dcg(table["rels"], k=k).alias(f"dcg {k}") for k in cutoffs]
    for row in table.select("n", *columns).collect():
        for k, policy in pairs:
            rows = ranked(lists[row["n"]] or [])
            exponential = expected_of(rows, Choices(ties="item_asc"), k)[0]
            assert close(row[f"dcg {k}"], exponential), (lists[row["n"]], k)
            choices = Choices(gain="linear", ties="item_asc", no_relevant=policy)
            assert close(row[f"ndcg {k}"], expected_of(rows, choices, k)[1]), (lists[row["n"]], k)


def expected_of(rows: list[Row], choices: Choices, k: int | None) -> tuple[float | None, float | None]:
    """DCG and NDCG of a list; one in which nothing is judged has nothing relevant either."""
    nothing = {"zero": 0.0, "one": 1.0, "skip": None}[choices.no_relevant]
    if not any(row.relevance is not None for row in rows):
        return 0.0, nothing
    result = only(rows, choices, k)
    return result.dcg, result.ndcg


def test_a_column_with_an_ideal_of_its_own(spark):
    """From the specification: with two more judged items 3 and 2, NDCG@6 is 0.785002 and 0.751083."""
    row = ([3.0, 2.0, 3.0, 0.0, 1.0, 2.0], [0.0, 2.0, 3.0, 1.0, 3.0, 2.0, 2.0, 3.0], 0.785002, 0.751083)
    schema = "ranked array<double>, ideal array<double>, linear double, exponential double"
    table = spark.createDataFrame([row], schema).select(
        "linear",
        "exponential",
        ndcg("ranked", "ideal", k=6, gain="linear").alias("got_linear"),
        ndcg("ranked", "ideal", k=6).alias("got_exponential"),
    )
    rounded = table.selectExpr(*[f"round({name}, 6) as {name}" for name in table.columns])
    assert_column_equality(rounded, "linear", "got_linear")
    assert_column_equality(rounded, "exponential", "got_exponential")


@pytest.mark.parametrize("value", [math.inf, -math.inf, 2000.0, 63.5], ids=str)
def test_a_relevance_whose_gain_is_no_number_is_refused(spark, value):
    """As `evaluate` refuses it. The largest gain there is is 2^63 - 1."""
    table = spark.createDataFrame([([3.0, value, None, 1.0], [63.0])], "rels array<double>, good array<double>")
    for column in (ndcg("rels"), dcg("rels"), ndcg("good", "rels")):
        message = refusal(table.select(column))
        assert message == (
            f"relevance {value:g} in an array has a gain that is not finite, or above 2^63; "
            "take the item out, or choose another gain."
        )
    assert table.select(dcg("good", gain="linear"), dcg("good")).collect()[0] == (63.0, 2.0**63 - 1)


@pytest.mark.parametrize("kind", ["double", "float"])
def test_nan_is_a_bad_value_and_null_an_unjudged_item(spark, kind):
    cells = [(1, [1.0, math.nan], [1.0]), (2, [None, 1.0], [None, 1.0])]
    table = spark.createDataFrame(cells, f"n int, rels array<{kind}>, good array<{kind}>")
    for column in (ndcg("rels"), dcg(table["rels"], k=1), ndcg("good", "rels")):
        message = refusal(table.select("n", column)) or ""
        assert message.startswith("nan_relevance in the array rels: NaN is a bad value; make it null")
    found = table.where("n = 2").select(ndcg("rels"), dcg("rels", gain="linear")).collect()[0]
    assert found == pytest.approx((1 / math.log2(3), 1 / math.log2(3)), abs=1e-15)


def test_an_array_of_structs_is_refused_with_the_way_to_a_field(spark):
    cells = [([("a", 3.0), ("b", 1.0)], [3.0, 1.0])]
    table = spark.createDataFrame(cells, "judged array<struct<item:string,relevance:double>>, rels array<double>")
    told = (
        "the array judged is array<struct<item:string,relevance:double>>; it must be one of numbers: pass one field, "
        "such as transform(judged, x -> x.relevance)."
    )
    for column in (ndcg("judged"), dcg(table["judged"], k=1), ndcg("rels", "judged")):
        assert refusal(table.select(column)) == told
    (found,) = table.select(ndcg(F.expr("transform(judged, x -> x.relevance)")), ndcg("rels")).collect()
    assert found[0] == found[1] == 1.0


def test_all_is_the_whole_list(spark):
    table = spark.createDataFrame([([0.0, 1.0, 3.0], [3.0, 1.0])], "rels array<double>, best array<double>")
    columns = [column for k in ("all", None) for column in (ndcg("rels", "best", k=k), dcg("rels", k=k))]
    (found,) = table.select(columns).collect()
    gained = 1 / math.log2(3) + 7 / 2
    assert found[:2] == found[2:] == pytest.approx((gained / (7 + 1 / math.log2(3)), gained), abs=1e-15)


@pytest.mark.parametrize("text", ["NaN", " nan"])
def test_nan_that_is_text_is_a_bad_value_too(spark, text):
    table = spark.createDataFrame([([text, "2"],)], "rels array<string>")
    assert (refusal(table.select(dcg("rels"))) or "").startswith("nan_relevance in ")


def test_a_level_that_a_gain_table_lacks_is_refused(spark):
    table = spark.createDataFrame([([3.0, 1.0],)], "rels array<double>")
    message = refusal(table.select(ndcg("rels", gain="table:0=0,1=1"))) or ""
    assert message.startswith("relevance 3 has no gain in the table")


def test_columns_are_named_after_their_arguments(spark):
    table = spark.createDataFrame([([3.0, 1.0], [3.0])], "rels array<double>, best array<double>")
    named = table.select(ndcg("rels"), ndcg(table["rels"], "best", k=1), dcg("rels"), ndcg("rels").alias("x"))
    assert named.columns == ["ndcg(rels)", "ndcg(rels, best)", "dcg(rels)", "x"]


@pytest.mark.parametrize("k", [0, -1, 2.5, "ten", True])
def test_a_cutoff_that_is_none_is_refused_where_it_is_written(spark, k):
    for column in (ndcg, dcg):
        with pytest.raises(InvalidParameterError, match="k must be a whole number from 1 on, or all; got "):
            column("rels", k=k)


@pytest.mark.parametrize("change", [{"gain": "cubic"}, {"discount": "log1"}, {"no_relevant": "error"}], ids=str)
def test_columns_refuse_what_they_do_not_know(spark, change):
    with pytest.raises(InvalidParameterError):
        ndcg("rels", **change)
    with pytest.raises(InvalidParameterError):
        dcg("rels", k=3, discount="table:1,0.5")


# --- Single rows


@pytest.mark.parametrize("name", ["default", "condensed", "negatives"])
def test_rows_add_up_to_dcg_and_idcg(spark, name):
    """Of whole lists: DCG@k is the sum of gain * discount over rank <= k, IDCG@k that over ideal_rank <= k."""
    choices = {
        "default": Choices(ties="item_asc"),
        "condensed": Choices(gain="linear", ties="item_desc", unjudged="condensed", discount="reciprocal"),
        "negatives": Choices(ties="item_asc", negative="clip", ideal="retrieved"),
    }[name]
    rows = random_rows(80, negatives=name == "negatives")
    settings = EvaluationSettings(convention=convention_of(choices), cutoffs=(None,), null_score="unretrieved")
    viewed = ranked_rows(scored_table(spark, rows), settings).collect()
    by_query: dict[str, list] = {}
    for row in viewed:
        by_query.setdefault(row["query_id"], []).append(row)
    for (query, k), result in evaluate(rows, choices, [1, 3, 10, None]).items():
        if result.status != "evaluated":
            continue
        its, end = by_query[query], float("inf") if k is None else k
        for rank, discount, expected in (
            ("rank", "discount", result.dcg),
            ("ideal_rank", "ideal_discount", result.idcg),
        ):
            counted = [row for row in its if row[rank] is not None and row[rank] <= end]
            assert close(sum(row["gain"] * row[discount] for row in counted), expected), (query, k, rank)


def test_rows_beyond_the_largest_cutoff_weigh_nothing(spark):
    """The sum over all rows of a query is DCG@k, for the largest k."""
    rows = random_rows(80)
    choices = Choices(ties="item_asc")
    settings = EvaluationSettings(convention=convention_of(choices), cutoffs=(1, 3), null_score="unretrieved")
    viewed = ranked_rows(scored_table(spark, rows), settings).collect()
    assert max(row["rank"] or 0 for row in viewed) > 3
    for (query, _), result in evaluate(rows, choices, [3]).items():
        if result.status == "evaluated":
            its = [row for row in viewed if row["query_id"] == query]
            dcg_, idcg = (sum(row["gain"] * (row[d] or 0.0) for row in its) for d in ("discount", "ideal_discount"))
            assert close(dcg_, result.dcg), query
            assert close(idcg, result.idcg), query


def test_the_view_of_a_query(spark):
    """Rank, ideal rank, gain and discount of each item, an unretrieved and an unjudged one among them."""
    rows = ranked((1.0, None), unretrieved=(2.0,))
    viewed = ranked_rows(scored_table(spark, rows), EvaluationSettings(null_score="unretrieved")).collect()
    gain = gain_function("exponential")
    third = 1 / 1.584962500721156
    assert {row["item"]: (row["rank"], row["ideal_rank"], row["gain"]) for row in viewed} == {
        "0": (1, 2, gain(1.0)),
        "1": (2, None, 0.0),
        "u0": (None, 1, gain(2.0)),
    }
    discounts = {row["item"]: (row["discount"], row["ideal_discount"]) for row in viewed}
    assert discounts["0"] == pytest.approx((1.0, third), abs=1e-15)
    assert discounts["1"] == (pytest.approx(third, abs=1e-15), None)
    assert discounts["u0"] == (None, 1.0)


def test_the_view_ranks_by_score_and_shows_items(spark):
    table = scored_table(spark, ranked((1.0,)))
    with pytest.raises(InvalidParameterError, match="leave rank= out"):
        ranked_rows(table, EvaluationSettings(columns=Columns(rank="rank")))
    with pytest.raises(InvalidParameterError, match="name the item column"):
        ranked_rows(table, EvaluationSettings(columns=Columns(item=None)))
    with pytest.raises(InvalidParameterError, match="no rule of these settings needs; use ties=item_asc"):
        ranked_rows(table, EvaluationSettings(check_duplicates="none"))
    with pytest.raises(InvalidParameterError, match="query column 'gain' has the name of a column of the result"):
        ranked_rows(table.withColumnRenamed("query_id", "gain"), EvaluationSettings(columns=Columns(query=("gain",))))


# --- What it costs


def jobs_of(spark, work) -> int:
    """How many Spark jobs a call starts."""
    context = spark.sparkContext
    context.setJobGroup("counted", "jobs of one call")
    try:
        work()
        return len(context.statusTracker().getJobIdsForGroup("counted"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


@pytest.mark.classic("jobs are counted through sparkContext")
def test_evaluate_starts_no_job(spark):
    """For every form of input; the action on the last one shows that jobs would have been counted."""
    rows = random_rows(81, special=False, unretrieved=False)
    choices = Choices(ties="item_asc")
    table, arrays = scored_table(spark, rows, choices), array_table(spark, rows, choices)
    judgments = table.where("relevance is not null").select("query_id", "item_id", "relevance")
    found = []

    def describe() -> None:
        found.append(evaluate_frame(table, k=[1, "all"], segments=["query_id"]))
        found.append(evaluate_frame(table.drop("relevance"), judgments=judgments))
        found.append(evaluate_frame(table.drop("relevance"), judgments=judgments, strategy="window"))
        found.append(evaluate_frame(table, rank="rank"))
        found.append(evaluate_frame(arrays, relevance="ranked", k=3))
        ranked_rows(table, EvaluationSettings()).schema  # noqa: B018  # laziness is what is tested
        assert all(one.summary.schema and one.per_query.schema for one in found)

    assert jobs_of(spark, describe) == 0
    assert jobs_of(spark, found[-1].per_query.collect) >= 1
