"""The same item twice in a query; and that every row is accounted for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pyspark.sql import functions as F
from support.oracle import Choices, Row, evaluate
from support.random_rankings import random_rows
from support.refusals import refusal
from support.spark_rankings import Case, assert_same_results, collect_cases, scored_table, session_settings, shuffled

from ndcg_spark import evaluate as evaluate_frame
from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import rank_queries, score_queries, summarize, summarize_rankings
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

CHOICES = Choices()
LONG_SCHEMA = "query_id string, item_id string, score double, relevance double, position int, rank int"
ORDERED = Columns(order="position")
LOG3 = 0.6309297535714575
"""1 / log2(3)."""


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


def scored(spark, cells: list[tuple], settings: EvaluationSettings):
    return score_queries(rank_queries(spark.createDataFrame(cells, LONG_SCHEMA), settings), settings)


AMONG_THE_FIRST = [("q9", "x", 3.0, None, 1, 1), ("q9", "y", 2.0, 1.0, 2, 2), ("q9", "x", 1.0, None, 3, 3)]
IN_THE_IDEAL = [("q9", "y", 3.0, 0.0, 1, 1), ("q9", "x", 2.0, 2.0, 2, 2), ("q9", "x", 1.0, 2.0, 3, 3)]
ELSEWHERE = [
    ("q9", "a", 5.0, 3.0, 1, 1),
    ("q9", "b", 4.0, 2.0, 2, 2),
    ("q9", "x", 2.0, 0.0, 3, 3),
    ("q9", "x", 1.0, 0.0, 4, 4),
]


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("rows", [AMONG_THE_FIRST, IN_THE_IDEAL], ids=["first k", "ideal"])
def test_duplicates_that_matter_are_an_error(spark, rows, strategy):
    """k=3 sees both copies of x among the first three; the ideal list has both at k=2, the ranking only one."""
    k = 3 if rows is AMONG_THE_FIRST else 2
    message = refusal(scored(spark, rows, EvaluationSettings(cutoffs=(k,), strategy=strategy)))
    assert message is not None
    assert "an item comes twice" in message
    assert "query_id=q9" in message


@pytest.mark.parametrize("options", [{}, {"strategy": "window"}, {"check_duplicates": "all"}], ids=str)
def test_the_refusal_asks_for_several_rankers_first(spark, options):
    """To keep one row of two rankers would mix their lists. Columns that are not used may name the ranker."""
    rows = [("q", "x", score, 1.0, ranker, 7, [1]) for score, ranker in ((2.0, "bm25"), (1.0, "dense"))]
    schema = (
        "query_id string, item_id string, score double, relevance double, ranker string, day int, tags array<int>"
    )
    table = spark.createDataFrame(rows, schema)
    message = refusal(rank_queries(table, EvaluationSettings(cutoffs=(3,), **options)))
    assert message.endswith(
        "query query_id=q. Does the table hold several rankers? Then name the column that tells them apart: run=... "
        "(columns that are not used: ranker, day). Else remove it, or say which counts "
        "(convention='default;duplicates=best', or first with order=)."
    )
    twice = table.unionAll(table).where("ranker = 'bm25'")
    named = refusal(rank_queries(twice, EvaluationSettings(columns=Columns(run="ranker"), cutoffs=(3,), **options)))
    assert named.endswith(
        "run=bm25, query_id=q. Remove it, or say which counts (convention='default;duplicates=best', or first with "
        "order=)."
    )


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("judged", [False, True], ids=["long", "judgments"])
@pytest.mark.parametrize(("items", "refused"), [("xxy", True), ("xyy", False)])
def test_rows_of_one_score_and_order_are_told_apart_by_item_whatever_their_order(
    spark, items, refused, judged, strategy
):
    """At k=1 two entries are looked at, the lowest items first: x and x in one table, x and y in the other."""
    cells = [("q9", item, 1.0, 0.0, 1, 1) for item in items] + [("q9", "z", 0.5, 1.0, 2, 2)]
    settings = EvaluationSettings(
        columns=ORDERED, cutoffs=(1,), convention=Convention(ties="input_order"), strategy=strategy
    )
    judgments = None
    if judged:
        judgments = spark.createDataFrame(
            [(*row[:2], row[3]) for row in {row[1]: row for row in cells}.values()],
            "query_id string, item_id string, relevance double",
        )
    for order in {tuple(cells), tuple(reversed(cells)), tuple(cells[1:] + cells[:1])}:
        data = spark.createDataFrame(list(order), LONG_SCHEMA).coalesce(1)
        message = refusal(rank_queries(data.drop("relevance") if judged else data, settings, judgments=judgments))
        assert (message is not None) == refused, (order, message)


def test_duplicates_that_do_not_matter_are_looked_for_on_request(spark):
    assert refusal(scored(spark, ELSEWHERE, EvaluationSettings(cutoffs=(2,)))) is None
    message = refusal(scored(spark, ELSEWHERE, EvaluationSettings(cutoffs=(2,), check_duplicates="all")))
    assert message.startswith("item x comes 2 times in query query_id=q9. Does the table hold several rankers? ")


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("columns", [Columns(), Columns(rank="rank")], ids=["scores", "ranks"])
def test_duplicates_are_rows_like_any_other_where_they_are_not_checked(spark, columns, strategy):
    """Ranks 1 to 3 have x, y, x with relevance 2, 1, 2; by hand: (3 + 1/log2(3) + 3/2) / (3 + 3/log2(3) + 1/2)."""
    rows = [("q9", "x", 3.0, 2.0, 1, 1), ("q9", "y", 2.0, 1.0, 2, 2), ("q9", "x", 1.0, 2.0, 3, 3)]
    settings = EvaluationSettings(cutoffs=(3,), check_duplicates="none", strategy=strategy, columns=columns)
    assert scored(spark, rows, settings).collect()[0]["ndcg"] == pytest.approx(0.951443, abs=5e-7)
    assert refusal(scored(spark, rows, replace(settings, check_duplicates="top"))) is not None


@pytest.mark.parametrize("duplicated", ["run", "judgments"])
@pytest.mark.parametrize("check", ["top", "all"])
def test_duplicates_of_a_run_or_of_judgments_are_an_error(spark, duplicated, check):
    run = [("q9", "x", 2.0), ("q9", "y", 1.0)] + [("q9", "x", 0.5)] * (duplicated == "run")
    judgments = [("q9", "x", 1.0), ("q9", "y", 2.0)] + [("q9", "x", 0.0)] * (duplicated == "judgments")
    frames = (
        spark.createDataFrame(run, "query_id string, item_id string, score double"),
        spark.createDataFrame(judgments, "query_id string, item_id string, relevance double"),
    )
    settings = EvaluationSettings(cutoffs=(3,), check_duplicates=check)
    message = refusal(score_queries(rank_queries(frames[0], settings, judgments=frames[1]), settings))
    assert message is not None
    assert "query_id=q9" in message


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("ids", ["string", "bigint"])
def test_a_relevant_item_is_not_judged_twice_wherever_it_is_ranked(spark, strategy, ids):
    """Seven relevant items, six of them twice: more than the first k + 1 tie. What gains nothing may come twice."""
    run = spark.createDataFrame([("q9", 0, 2.0), ("q9", 50, 1.0)], "query_id string, item_id int, score double")
    cells = [("q9", 0, 1)] + [("q9", at, 1) for at in range(1, 7)] + [("q9", 20, 0)] * 2
    once = spark.createDataFrame(cells, "query_id string, item_id int, relevance int")
    twice = once.unionAll(once.where("item_id > 0 and relevance > 0"))
    run, once, twice = (one.withColumn("item_id", F.col("item_id").cast(ids)) for one in (run, once, twice))
    settings = EvaluationSettings(cutoffs=(5,), strategy=strategy)
    (row,) = score_queries(rank_queries(run, settings, judgments=once), settings).collect()
    assert row["ndcg"] == pytest.approx(1 / sum(1 / math.log2(rank + 1) for rank in range(1, 6)), abs=1e-12)
    message = refusal(score_queries(rank_queries(run, settings, judgments=twice), settings))
    assert message is not None
    assert "an item comes twice in the judgments of query query_id=q9" in message
    best = EvaluationSettings(cutoffs=(5,), strategy=strategy, convention=Convention(duplicates="best"))
    (again,) = score_queries(rank_queries(run, best, judgments=twice), best).collect()
    assert again["ndcg"] == row["ndcg"]


def test_an_item_twice_in_an_array_of_structs_is_an_error(spark):
    table = spark.createDataFrame(
        [("q9", [("x", 1.0), ("x", 0.0)])], "query_id string, relevance array<struct<item:string, relevance:double>>"
    )
    settings = EvaluationSettings(cutoffs=(3,))
    message = refusal(score_queries(rank_queries(table, settings), settings))
    assert message == "an item comes twice in the list of query query_id=q9. Remove it."
    unseen = replace(settings, check_duplicates="none")
    assert [row["ndcg"] for row in score_queries(rank_queries(table, unseen), unseen).collect()] == [1.0]


@pytest.mark.parametrize("more", [{}, {"items": True}], ids=["numbers", "items"])
def test_a_query_that_comes_twice_in_a_table_of_arrays_is_looked_for_on_request(spark, more):
    """NDCG of [1, 0] is 1 and of [0, 1] 1/log2(3); the same query counts twice, unless all rows are looked at."""
    kind = "array<struct<item:string, relevance:double>>" if more else "array<double>"
    lists = [[("a", 1.0), ("b", 0.0)], [("a", 0.0), ("b", 1.0)]]
    first, second = lists if more else [[relevance for _, relevance in one] for one in lists]
    schema = f"ranker string, session bigint, query_id string, relevance {kind}"
    cells = [("A", 1, "q", first), ("B", 1, "q", second), ("A", 2, "q", second), ("A", 1, "p", first)]
    table = spark.createDataFrame(cells, schema)
    counted = evaluate_frame(table, k=2).summary.where("metric = 'ndcg'").collect()
    assert [row["n_queries"] for row in counted] == [4]

    options = {"k": 2, "check_duplicates": "all"}
    advice = "a table of arrays or lists has one row for each query of a run. Name what tells the rows apart (run=, "
    advice += "query=), or remove all but one."
    for keys, named in [
        ({}, "query_id=q comes in 3 rows"),
        ({"run": "ranker"}, "ranker=A, query_id=q comes in 2 rows"),
        ({"query": ["session", "query_id"]}, "session=1, query_id=q comes in 2 rows"),
    ]:
        found = evaluate_frame(table, **options, **keys)
        assert refusal(found.summary if more else found.per_query) == f"query {named}; {advice}"
    alone = {"run": "ranker", "query": ["session", "query_id"]}
    for checked in (evaluate_frame(table, **options, **alone), evaluate_frame(table, k=2, **alone)):
        means = checked.summary.where("metric = 'ndcg'").orderBy("run").collect()
        assert [(row["run"], row["n_queries"]) for row in means] == [("A", 3), ("B", 1)]
        assert [row["value"] for row in means] == pytest.approx([(2 + LOG3) / 3, LOG3], abs=1e-15)


# --- best and first


def with_copies(rows: list[Row], policy: str) -> list[Row]:
    """A second copy of every third retrieved row, which the policy must not choose."""
    copies = []
    for row in rows[::3]:
        worse = -10.0 if row.score is None else row.score - 3.0
        if policy == "best" and row.score is not None:
            copies.append(replace(row, score=worse, relevance=0.0, position=row.position - 1000))
        elif policy == "first":
            copies.append(replace(row, score=worse + 20.0, relevance=4.0, position=row.position + 1000))
    assert copies
    return shuffled(rows + copies, seed=1)


@pytest.mark.parametrize("policy", ["best", "first"])
def test_the_copy_that_counts(spark, policy):
    """In a long table by both ways, and in a run: the result is that without the other copies."""
    rows = [row for row in random_rows(70, special=False) if row.score is not None]
    doubled = with_copies(rows, policy)
    convention = Convention(duplicates=policy)
    table = scored_table(spark, doubled)
    judgments = scored_table(spark, [row for row in rows if row.relevance is not None])
    judgments = judgments.select("query_id", "item_id", "relevance", "position")
    settings = EvaluationSettings(columns=ORDERED, convention=convention, cutoffs=(1, 3))
    cases = {
        "engine": Case(data=table, settings=settings),
        "window": Case(data=table, settings=replace(settings, strategy="window")),
        "judgments": Case(data=table.drop("relevance"), judgments=judgments, settings=settings),
    }
    for got in collect_cases(cases).values():
        assert_same_results(got, evaluate(rows, CHOICES, [1, 3]))


def test_copies_that_do_not_count_are_left_out_by_rule(spark):
    doubled = with_copies([row for row in random_rows(70, special=False) if row.score is not None], "first")
    settings = EvaluationSettings(columns=ORDERED, convention=Convention(duplicates="first"), cutoffs=(1,))
    rankings = rank_queries(scored_table(spark, doubled), settings)
    summary = summarize_rankings(rankings, settings).where("metric = 'ndcg'").collect()
    assert summary[0]["n_left_out"] > 0
    assert summary[0]["n_rows"] + summary[0]["n_left_out"] == len(doubled)


@pytest.mark.parametrize(("policy", "relevance"), [("best", 3.0), ("first", 1.0)])
def test_the_judgment_that_counts(spark, policy, relevance):
    """The highest relevance, or the first by the order column; DCG@1 = 2^rel - 1 shows which."""
    run = spark.createDataFrame([("q", "x", 1.0, 1)], "query_id string, item_id string, score double, position int")
    cells = [("q", "x", 3.0, 7), ("q", "x", 1.0, 5), ("q", "x", None, 9)]
    judgments = spark.createDataFrame(cells, "query_id string, item_id string, relevance double, position int")
    settings = EvaluationSettings(columns=ORDERED, convention=Convention(duplicates=policy), cutoffs=(1,))
    found = collect_cases({"one": Case(data=run, judgments=judgments, settings=settings)})
    assert found["one"]["q", 1].dcg == 2**relevance - 1


def test_the_best_of_given_ranks_is_the_smallest(spark):
    cells = [("q", "x", None, 1.0, 1, 4), ("q", "x", None, 1.0, 2, 1), ("q", "y", None, 0.0, 3, 2)]
    settings = EvaluationSettings(
        columns=Columns(rank="rank"), convention=Convention(duplicates="best"), cutoffs=(1, 10)
    )
    found = {row["k"]: row for row in scored(spark, cells, settings).collect()}
    assert (found[1]["dcg"], found[10]["dcg"], found[10]["n_items"]) == (1.0, 1.0, 2)
    assert (found[1]["n_rows"], found[1]["n_left_out"]) == (3, 1)


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("kind", ["int", "timestamp", "date", "string", "double", "decimal(20,1)"])
def test_first_by_an_order_column_of_any_type(spark, kind, strategy):
    """The value of the second copy comes first in the order of its type; DCG@1 shows that it was kept."""
    order = {"timestamp": ("2026-01-31 10:00:01", "2026-01-31 10:00:00"), "date": ("2026-02-01", "2026-01-31")}
    late, early = order.get(kind, ("9", "2"))
    cells = [("q", "x", 1.0, 3.0, late), ("q", "x", 1.0, 1.0, early)]
    schema = "query_id string, item_id string, score double, relevance double, position string"
    table = spark.createDataFrame(cells, schema).withColumn("position", F.col("position").cast(kind))
    for rows in (table, table.orderBy(F.desc("relevance"))):
        settings = EvaluationSettings(
            columns=ORDERED, convention=Convention(duplicates="first"), cutoffs=(1,), strategy=strategy
        )
        assert collect_cases({"one": Case(data=rows, settings=settings)})["one"]["q", 1].dcg == 1.0


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_first_of_a_run_and_of_judgments_where_the_order_column_orders_ties_too(spark, strategy):
    """Of a the second copy comes first, in both tables; b precedes a among equal scores: DCG@1 is that of b, 1."""
    schema = "query_id string, item_id string, {} double, position int"
    run = [("q", "a", 3.0, 9), ("q", "a", 1.0, 3), ("q", "b", 1.0, 2)]
    judgments = [("q", "a", 0.0, 5), ("q", "a", 2.0, 4), ("q", "b", 1.0, 1)]
    convention = Convention(duplicates="first", ties="input_order")
    settings = EvaluationSettings(columns=ORDERED, convention=convention, cutoffs=(1,), strategy=strategy)
    ranked = rank_queries(
        spark.createDataFrame(run, schema.format("score")),
        settings,
        judgments=spark.createDataFrame(judgments, schema.format("relevance")),
    )
    (row,) = score_queries(ranked, settings).collect()
    assert (row["dcg"], row["idcg"]) == (1.0, 3.0)


@pytest.mark.parametrize("policy", ["first", "best"])
def test_equal_copies_are_told_apart_by_all_that_matters(spark, policy):
    """Copies of equal order and relevance by their score, those of equal score and relevance by their order."""
    cells = [("q", "x", 2.0, 1.0, 2), ("q", "y", 2.0, 0.0, 3)]
    cells += [("q", "x", 1.0, 1.0, 2)] if policy == "first" else [("q", "x", 2.0, 1.0, 4)]
    convention = Convention(duplicates=policy, ties="input_order")
    settings = EvaluationSettings(columns=ORDERED, convention=convention, cutoffs=(1,))
    schema = "query_id string, item_id string, score double, relevance double, position int"
    for rows in (cells, cells[::-1]):
        table = spark.createDataFrame(rows, schema).coalesce(1)
        assert collect_cases({"one": Case(data=table, settings=settings)})["one"]["q", 1].dcg == 1.0


@pytest.mark.parametrize("policy", ["first", "best"])
def test_the_lowest_whole_numbers_are_the_worst(spark, policy):
    """Their negatives overflow. Of copies alike in all else the lighter one counts, in any row order."""
    lowest = -(2**31)
    cells = [("q", "x", lowest, 3, 1, 5.0), ("q", "x", 1, lowest + 1, 1, 2.0), ("q", "x", 1, lowest + 1, 1, 3.0)]
    cells += [("p", "x", 1, 0, 1, 1.0)]
    if policy == "first":
        cells[0] = ("q", "x", lowest, lowest, 1, 5.0)
    columns = replace(ORDERED, weight="w")
    convention = Convention(duplicates=policy, gain="linear", negative="clip")
    settings = EvaluationSettings(columns=columns, convention=convention, cutoffs=(1,))
    schema = "query_id string, item_id string, score int, relevance int, position int, w double"
    for rows in (cells, cells[::-1]):
        found = rank_queries(spark.createDataFrame(rows, schema).coalesce(1), settings).collect()
        kept = {row["query_id"]: (row["ranked"], row["weight"]) for row in found}
        assert kept == {"q": ([float(lowest + 1)], 2.0), "p": ([0.0], 1.0)}


def test_first_needs_the_order_column(spark):
    with pytest.raises(InvalidParameterError, match="duplicates=first needs order=,"):
        EvaluationSettings(convention=Convention(duplicates="first"))
    run = spark.createDataFrame([("q", "x", 1.0, 1)], "query_id string, item_id string, score double, position int")
    judgments = spark.createDataFrame([("q", "x", 1.0)], "query_id string, item_id string, relevance double")
    settings = EvaluationSettings(columns=ORDERED, convention=Convention(duplicates="first"))
    with pytest.raises(InvalidParameterError, match="in the judgments too"):
        rank_queries(run, settings, judgments=judgments)


# --- Accounts


@pytest.mark.parametrize("unjudged", ["zero", "condensed"])
def test_rows_add_up(spark, unjudged):
    """Rows read = rows behind evaluated queries + rows left out by a rule; condensed leaves unjudged items out."""
    rows = random_rows(71)
    table = scored_table(spark, rows)
    run, judged = table.where("score is not null").drop("relevance"), table.where("relevance is not null")
    convention = Convention(unjudged=unjudged)
    settings = EvaluationSettings(cutoffs=(1, 10), convention=convention)
    retrieved = [row for row in rows if row.score is not None]
    left_out = [row for row in retrieved if row.relevance is None and (unjudged == "condensed")]
    for data, judgments, its_settings, n_read in (
        (table, None, replace(settings, null_score="unretrieved"), len(rows)),
        (run, judged.select("query_id", "item_id", "relevance"), settings, len(retrieved)),
    ):
        per_query = score_queries(rank_queries(data, its_settings, judgments=judgments), its_settings)
        collected, schema = per_query.collect(), per_query.schema
        queries = [row for row in collected if row["k"] == 10]
        assert sum(row["n_rows"] for row in queries) == n_read
        assert sum(row["n_left_out"] for row in queries) == len(left_out)
        dropped = sum(row["n_rows"] - row["n_left_out"] for row in queries if row["dcg"] is None)
        means = summarize(spark.createDataFrame(collected, schema), its_settings)
        summary = means.where("metric = 'ndcg' and k = 10").collect()[0]
        assert summary["n_rows"] + summary["n_left_out"] == n_read
        assert summary["n_left_out"] == len(left_out) + dropped
        expected = evaluate(rows, replace(CHOICES, unjudged=unjudged), [10])
        statuses = [result.status for result in expected.values()]
        for status in ("no_relevant", "missing", "unjudged"):
            assert summary[f"n_{status}"] == statuses.count(status), status
