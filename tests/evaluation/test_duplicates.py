"""The same item twice in a query; and that every row is accounted for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.engines import collect_rows, parametrize_engine, run_refused, table
from support.oracle import Choices, Row
from support.oracle import evaluate as evaluate_by_loops
from support.random_rankings import random_rows
from support.spark_rankings import (
    Case,
    assert_same_results,
    collect_cases,
    create_scored_table,
    session_settings,
    shuffle_rows,
)

from ndcg_spark import evaluate
from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import rank_queries, score_queries, summarize_rankings
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

CHOICES = Choices()
LONG_SCHEMA = "query_id string, item_id string, score double, relevance double, position int, rank int"
ORDERED = Columns(order="position")
LOG3 = 0.6309297535714575
"""1 / log2(3)."""
AMONG_THE_FIRST = [("q9", "x", 3.0, None, 1, 1), ("q9", "y", 2.0, 1.0, 2, 2), ("q9", "x", 1.0, None, 3, 3)]
IN_THE_IDEAL = [("q9", "y", 3.0, 0.0, 1, 1), ("q9", "x", 2.0, 2.0, 2, 2), ("q9", "x", 1.0, 2.0, 3, 3)]
ELSEWHERE = [
    ("q9", "a", 5.0, 3.0, 1, 1),
    ("q9", "b", 4.0, 2.0, 2, 2),
    ("q9", "x", 2.0, 0.0, 3, 3),
    ("q9", "x", 1.0, 0.0, 4, 4),
]


@pytest.fixture(autouse=True)
def _one_shuffle_partition(request):
    if request.node.get_closest_marker("spark"):
        with session_settings(request.getfixturevalue("spark"), spark__sql__shuffle__partitions=1):
            yield
    else:
        yield


@parametrize_engine(
    "rows, k",
    local=[(AMONG_THE_FIRST, 3), (IN_THE_IDEAL, 2)],
    spark=[(IN_THE_IDEAL, 2)],
    window=[(AMONG_THE_FIRST, 3)],
)
def test_duplicates_that_matter_are_an_error(engine, rows, k):
    """k=3 sees both copies of x among the first three; the ideal list has both at k=2, the ranking only one."""
    message = run_refused(evaluate(table(rows, LONG_SCHEMA), k=k, **engine))
    assert "an item appears twice" in message
    assert "query_id=q9" in message


@parametrize_engine("options", local=[{}], spark=[{"check_duplicates": "all"}])
def test_the_refusal_asks_for_several_rankers_first(engine, options):
    """To keep one row of two rankers would mix their lists. Columns that are not used may name the ranker."""
    rows = [("q", "x", score, 1.0, ranker, 7, [1]) for score, ranker in ((2.0, "bm25"), (1.0, "dense"))]
    schema = (
        "query_id string, item_id string, score double, relevance double, ranker string, day int, tags array<int>"
    )
    assert run_refused(evaluate(table(rows, schema), k=3, **options, **engine)).endswith(
        "query query_id=q. Does the table hold several rankers? Then name the column that tells them apart: run=... "
        "(columns that are not used: ranker, day). Else remove it, or choose which one counts "
        "(convention='default;duplicates=best', or first with order=)."
    )
    assert run_refused(evaluate(table(rows[:1] * 2, schema), run="ranker", k=3, **options, **engine)).endswith(
        "run=bm25, query_id=q. Remove it, or choose which one counts (convention='default;duplicates=best', or first "
        "with order=)."
    )


@parametrize_engine(
    "items, judged",
    local=[(items, judged) for items in ("xxy", "xyy") for judged in (False, True)],
    spark=[("xxy", True)],
    window=[("xyy", True)],
)
def test_rows_of_one_score_and_order_are_told_apart_by_item_whatever_their_order(engine, items, judged):
    """At k=1 two entries are looked at, the lowest items first: x and x in one table, x and y in the other."""
    cells = [("q9", item, 1.0, 0.0, 1, 1) for item in items] + [("q9", "z", 0.5, 1.0, 2, 2)]
    once = [(*row[:2], row[3]) for row in {row[1]: row for row in cells}.values()]
    judgments = table(once, "query_id string, item_id string, relevance double") if judged else None
    for order in (cells, cells[::-1], cells[1:] + cells[:1]):
        data = table(order, LONG_SCHEMA)
        data = data.drop_columns(["relevance"]) if judged else data
        evaluation = evaluate(data, judgments, k=1, order="position", convention="default;ties=input_order", **engine)
        assert bool(run_refused(evaluation)) == (items == "xxy"), order


@pytest.mark.parametrize("engine", ["local", "window"], indirect=True)
def test_equal_order_values_do_not_leave_a_number_to_row_order(engine):
    """Score and order value tie, so the lowest relevance comes first: DCG@1 is 0, whatever the order of rows."""
    rows = [("q", item, 0.5, grade, 1, 1) for item, grade in (("a", 0.0), ("b", 1.0), ("c", 1.0), ("d", 0.0))]
    options = {"k": 1, "order": "position", "convention": "default;ties=input_order", **engine}
    for group in (rows, rows[::-1]):
        (row,) = collect_rows(evaluate(table(group, LONG_SCHEMA), **options).summary, "ndcg")
        assert row["value"] == 0.0


def test_duplicates_that_do_not_matter_are_looked_for_on_request(spark):
    data = table(ELSEWHERE, LONG_SCHEMA)
    assert run_refused(evaluate(data, k=2)) == ""
    message = run_refused(evaluate(data, k=2, check_duplicates="all"))
    assert message.startswith("item x appears 2 times in query query_id=q9. Does the table hold several rankers? ")


@parametrize_engine("rank", local=[None, "rank"], window=["rank"])
def test_duplicates_are_rows_like_any_other_where_they_are_not_checked(engine, rank):
    """Ranks 1 to 3 have x, y, x with relevance 2, 1, 2; by hand: (3 + 1/log2(3) + 3/2) / (3 + 3/log2(3) + 1/2)."""
    rows = [("q9", "x", 3.0, 2.0, 1, 1), ("q9", "y", 2.0, 1.0, 2, 2), ("q9", "x", 1.0, 2.0, 3, 3)]
    data, options = table(rows, LONG_SCHEMA), {"k": 3, "rank": rank, **engine}
    (row,) = collect_rows(evaluate(data, check_duplicates="none", **options).per_query)
    assert row["ndcg"] == pytest.approx(0.951443, abs=5e-7)
    assert run_refused(evaluate(data, **options))


@parametrize_engine("ties", local=["item_asc", "item_desc"], window=["item_asc"])
def test_an_item_twice_with_the_check_off_counts_its_lowest_relevance_first(engine, ties):
    rows = [("q", "a", 0.5, 0.0, 1, 1), ("q", "a", 0.5, 1.0, 1, 1)]
    options = {"k": 1, "check_duplicates": "none", "convention": f"default;ties={ties}", **engine}
    for group in (rows, rows[::-1]):
        (row,) = collect_rows(evaluate(table(group, LONG_SCHEMA), **options).summary, "ndcg")
        assert row["value"] == 0.0


@parametrize_engine("duplicated", local=["run", "judgments"], spark=["judgments"])
def test_duplicates_of_a_run_or_of_judgments_are_an_error(engine, duplicated):
    check = "top" if engine["engine"] == "local" else "all"
    run = [("q9", "x", 2.0), ("q9", "y", 1.0)] + [("q9", "x", 0.5)] * (duplicated == "run")
    judgments = [("q9", "x", 1.0), ("q9", "y", 2.0)] + [("q9", "x", 0.0)] * (duplicated == "judgments")
    tables = (
        table(run, "query_id string, item_id string, score double"),
        table(judgments, "query_id string, item_id string, relevance double"),
    )
    assert "query_id=q9" in run_refused(evaluate(*tables, k=3, check_duplicates=check, **engine))


@parametrize_engine("ids", local=["string", "bigint"], spark=["string"])
def test_a_relevant_item_is_not_judged_twice_wherever_it_is_ranked(engine, ids):
    """Seven relevant items, six of them twice: more than the first k + 1 tie. What gains nothing may appear twice."""

    def named(rows: list[tuple[int, float]], kind: str) -> object:
        cells = [("q9", str(item) if ids == "string" else item, value) for item, value in rows]
        return table(cells, f"query_id string, item_id {ids}, {kind}")

    run = named([(0, 2.0), (50, 1.0)], "score double")
    cells = [(0, 1)] + [(at, 1) for at in range(1, 7)] + [(20, 0)] * 2
    once, twice = (named(rows, "relevance int") for rows in (cells, cells + cells[1:7]))
    (row,) = collect_rows(evaluate(run, once, k=5, **engine).per_query)
    assert row["ndcg"] == pytest.approx(1 / sum(1 / math.log2(rank + 1) for rank in range(1, 6)), abs=1e-12)
    message = run_refused(evaluate(run, twice, k=5, **engine))
    assert "an item appears twice in the judgments of query query_id=q9" in message
    if engine["engine"] == "spark":
        (again,) = collect_rows(evaluate(run, twice, k=5, convention="default;duplicates=best", **engine).per_query)
        assert again["ndcg"] == row["ndcg"]


def test_an_item_twice_in_an_array_of_structs_is_an_error(engine):
    cells = [("q9", [("x", 1.0), ("x", 0.0)])]
    data = table(cells, "query_id string, relevance array<struct<item: string, relevance: double>>")
    message = run_refused(evaluate(data, k=3, **engine))
    assert message == "an item appears twice in the list of query query_id=q9. Remove it."
    unseen = evaluate(data, k=3, check_duplicates="none", **engine)
    assert [row["ndcg"] for row in collect_rows(unseen.per_query)] == [1.0]


def test_a_query_that_comes_twice_in_a_table_of_arrays_is_looked_for_on_request(spark):
    """NDCG of [1, 0] is 1 and of [0, 1] 1/log2(3); the same query counts twice, unless all rows are looked at."""
    first, second = [("a", 1.0), ("b", 0.0)], [("a", 0.0), ("b", 1.0)]
    schema = (
        "ranker string, session bigint, query_id string, relevance array<struct<item: string, relevance: double>>"
    )
    data = table([("A", 1, "q", first), ("B", 1, "q", second), ("A", 2, "q", second), ("A", 1, "p", first)], schema)
    assert [row["n_queries"] for row in collect_rows(evaluate(data, k=2).summary, "ndcg")] == [4]

    options = {"k": 2, "check_duplicates": "all"}
    advice = "a table of arrays or lists has one row for each query of a run. Name the columns that tell the rows "
    advice += "apart (run=, query=), or remove all but one."
    for keys, named in [
        ({}, "query_id=q comes in 3 rows"),
        ({"run": "ranker"}, "ranker=A, query_id=q comes in 2 rows"),
        ({"query": ["session", "query_id"]}, "session=1, query_id=q comes in 2 rows"),
    ]:
        assert run_refused(evaluate(data, **options, **keys)) == f"query {named}; {advice}"
    alone = {"run": "ranker", "query": ["session", "query_id"]}
    for checked in (evaluate(data, **options, **alone), evaluate(data, k=2, **alone)):
        means = sorted(collect_rows(checked.summary, "ndcg"), key=lambda row: row["run"])
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
    return shuffle_rows(rows + copies, seed=1)


@pytest.mark.parametrize("policy", ["best", "first"])
def test_the_copy_that_counts(spark, policy):
    """In a long table by both ways, and in a run: the result is that without the other copies."""
    rows = [row for row in random_rows(70, special=False) if row.score is not None]
    doubled = with_copies(rows, policy)
    convention = Convention(duplicates=policy)
    table = create_scored_table(spark, doubled)
    judgments = create_scored_table(spark, [row for row in rows if row.relevance is not None])
    judgments = judgments.select("query_id", "item_id", "relevance", "position")
    settings = EvaluationSettings(columns=ORDERED, convention=convention, cutoffs=(1, 3))
    cases = {
        "engine": Case(data=table, settings=settings),
        "window": Case(data=table, settings=replace(settings, strategy="window")),
        "judgments": Case(data=table.drop("relevance"), judgments=judgments, settings=settings),
    }
    for got in collect_cases(cases).values():
        assert_same_results(got, evaluate_by_loops(rows, CHOICES, [1, 3]))


def test_copies_that_do_not_count_are_left_out_by_rule(spark):
    doubled = with_copies([row for row in random_rows(70, special=False) if row.score is not None], "first")
    settings = EvaluationSettings(columns=ORDERED, convention=Convention(duplicates="first"), cutoffs=(1,))
    rankings = rank_queries(create_scored_table(spark, doubled), settings)
    summary = summarize_rankings(rankings, settings).where("metric = 'ndcg'").collect()
    assert summary[0]["n_left_out"] > 0
    assert summary[0]["n_rows"] + summary[0]["n_left_out"] == len(doubled)


def settings_for(policy: str, **changes: str) -> EvaluationSettings:
    return EvaluationSettings(columns=ORDERED, convention=Convention(duplicates=policy, **changes), cutoffs=(1,))


def test_the_judgment_that_counts(spark):
    """The highest relevance, or the first by the order column; DCG@1 = 2^rel - 1 shows which."""
    run = spark.createDataFrame([("q", "x", 1.0, 1)], "query_id string, item_id string, score double, position int")
    cells = [("q", "x", 3.0, 7), ("q", "x", 1.0, 5), ("q", "x", None, 9)]
    judgments = spark.createDataFrame(cells, "query_id string, item_id string, relevance double, position int")
    cases = {
        policy: Case(data=run, judgments=judgments, settings=settings_for(policy)) for policy in ("best", "first")
    }
    actual = collect_cases(cases)
    assert (actual["best"]["q", 1].dcg, actual["first"]["q", 1].dcg) == (7.0, 1.0)


def test_the_best_of_given_ranks_is_the_smallest(spark):
    cells = [("q", "x", None, 1.0, 1, 4), ("q", "x", None, 1.0, 2, 1), ("q", "y", None, 0.0, 3, 2)]
    settings = EvaluationSettings(
        columns=Columns(rank="rank"), convention=Convention(duplicates="best"), cutoffs=(1, 10)
    )
    (frame,) = convert_tables({"data": table(cells, LONG_SCHEMA)}).values()
    actual = {row["k"]: row for row in score_queries(rank_queries(frame, settings), settings).collect()}
    assert (actual[1]["dcg"], actual[10]["dcg"], actual[10]["n_items"]) == (1.0, 1.0, 2)
    assert (actual[1]["n_rows"], actual[1]["n_left_out"]) == (3, 1)


ORDERS = {"timestamp": ("2026-01-31 10:00:01", "2026-01-31 10:00:00"), "date": ("2026-02-01", "2026-01-31")}


def test_first_by_an_order_column_of_any_type(spark):
    """The value of the second copy comes first in the order of its type; DCG@1 shows that it was kept."""
    cases = {}
    settings = settings_for("first")
    for kind in ("int", "timestamp", "date", "string", "double", "decimal(20,1)"):
        late, early = ORDERS.get(kind, ("9", "2"))
        cells = [("q", "x", 1.0, 3.0, late), ("q", "x", 1.0, 1.0, early)]
        cells += [("p", *row[1:]) for row in cells[::-1]]
        rows = spark.createDataFrame(
            cells, "query_id string, item_id string, score double, relevance double, position string"
        )
        cases[kind] = Case(
            data=rows.withColumn("position", rows["position"].cast(kind)).coalesce(1), settings=settings
        )
    for kind, actual in collect_cases(cases).items():
        assert (actual["q", 1].dcg, actual["p", 1].dcg) == (1.0, 1.0), kind


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


def test_equal_copies_are_told_apart_by_all_that_matters(spark):
    """Copies of equal order and relevance by their score, those of equal score and relevance by their order."""
    cells, cases = [("q", "x", 2.0, 1.0, 2), ("q", "y", 2.0, 0.0, 3)], {}
    schema = "query_id string, item_id string, score double, relevance double, position int"
    for policy, copy in {"first": ("q", "x", 1.0, 1.0, 2), "best": ("q", "x", 2.0, 1.0, 4)}.items():
        for turned in (1, -1):
            frame = spark.createDataFrame([*cells, copy][::turned], schema).coalesce(1)
            cases[f"{policy} {turned}"] = Case(data=frame, settings=settings_for(policy, ties="input_order"))
    assert {name: actual["q", 1].dcg for name, actual in collect_cases(cases).items()} == dict.fromkeys(cases, 1.0)


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
        actual = rank_queries(spark.createDataFrame(rows, schema).coalesce(1), settings).collect()
        kept = {row["query_id"]: (row["ranked"], row["weight"]) for row in actual}
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


@parametrize_engine("unjudged", local=["zero", "condensed"], spark=["condensed"])
def test_rows_add_up(engine, unjudged):
    """Rows read = rows behind evaluated queries + rows left out by a rule; condensed leaves unjudged items out."""
    rows = random_rows(71)
    retrieved, judged = ([row for row in rows if getattr(row, name) is not None] for name in ("score", "relevance"))
    ids, score, grade = "query_id string, item_id string", ", score double", ", relevance double"
    data = table([(row.query, row.item, row.score, row.relevance) for row in rows], ids + score + grade)
    run = table([(row.query, row.item, row.score) for row in retrieved], ids + score)
    judgments = table([(row.query, row.item, row.relevance) for row in judged], ids + grade)
    options = {"k": [1, 10], "convention": f"default;unjudged={unjudged}", **engine}
    left_out = [row for row in retrieved if row.relevance is None and unjudged == "condensed"]
    for actual, n_read in (
        (evaluate(data, null_score="unretrieved", **options), len(rows)),
        (evaluate(run, judgments, **options), len(retrieved)),
    ):
        queries = [row for row in collect_rows(actual.per_query) if row["k"] == 10]
        assert sum(row["n_rows"] for row in queries) == n_read
        assert sum(row["n_left_out"] for row in queries) == len(left_out)
        dropped = sum(row["n_rows"] - row["n_left_out"] for row in queries if row["dcg"] is None)
        (summary,) = (row for row in collect_rows(actual.summary, "ndcg") if row["k"] == 10)
        assert summary["n_rows"] + summary["n_left_out"] == n_read
        assert summary["n_left_out"] == len(left_out) + dropped
        expected = evaluate_by_loops(rows, replace(CHOICES, unjudged=unjudged), [10])
        statuses = [result.status for result in expected.values()]
        for status in ("no_relevant", "missing", "unjudged"):
            assert summary[f"n_{status}"] == statuses.count(status), status
