"""Lists of items, one row a query: the numbers of the long table of the same lists, to the last bit."""

from __future__ import annotations

import json
import math
import random

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F
from support.main_job import assert_refused, command, done
from support.spark_rankings import session_settings

from ndcg_spark import PRESETS, compare, evaluate, explain_difference, report
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, spelled
from ndcg_spark.evaluation import evaluation_settings, rank_queries, score_queries

METRICS = [
    "ndcg@1",
    "ndcg@3",
    "ndcg",
    "ap@3",
    "ap",
    "rr@3",
    "p@3",
    "p(rel=2)@3",
    "r@3",
    "success@1",
    "err(max_grade=3)@3",
    "rbp(p=0.5)",
    "rbp_residual(p=0.5)",
    "cg@3",
    "bpref",
    "rprec",
    "wap@3",
    "ap_r",
]
IDS = "query_id string, country string, ranked array<string>, relevant array<string>"
GRADES = "query_id string, ranked array<struct<item_id: string, rating: double>>, relevant map<string, int>"


def lists(seed: int, n_queries: int = 40, *, twice: bool = False) -> list[dict]:
    """Rows with ids, scores of which many are tied, and grades; none is empty throughout."""
    draw, found = random.Random(seed), []
    for number in range(n_queries):
        items = [f"i{at}" for at in draw.sample(range(12), draw.randint(0, 9))]
        judged = {f"i{at}": draw.randint(0, 3) for at in draw.sample(range(12), draw.randint(0 if items else 1, 6))}
        scores = [float(draw.randint(0, 3)) for _ in items]
        if twice and items:
            at = draw.randrange(len(items))
            items.insert(draw.randint(0, len(items)), items[at])
            scores.append(float(draw.randint(0, 3)))
        found.append({"query": f"q{number}", "items": items, "scores": scores, "judged": judged})
    return found


def long_tables(spark, rows: list[dict]):
    """The same lists as a run and judgments."""
    run = [
        (one["query"], item, at + 1, score)
        for one in rows
        for at, (item, score) in enumerate(zip(one["items"], one["scores"], strict=True))
    ]
    judged = [
        (one["query"], item, grade, at) for one in rows for at, (item, grade) in enumerate(one["judged"].items())
    ]
    return (
        spark.createDataFrame(run, "query_id string, item_id string, place int, score double"),
        spark.createDataFrame(judged, "query_id string, item_id string, relevance int, place int"),
    )


def graded(spark, rows: list[dict]):
    table = [
        (
            one["query"],
            [Row(item_id=item, rating=score) for item, score in zip(one["items"], one["scores"], strict=True)],
            one["judged"],
        )
        for one in rows
    ]
    return spark.createDataFrame(table, GRADES)


def in_order(spark, rows: list[dict]):
    return graded(spark, rows).withColumn("ranked", F.col("ranked.item_id"))


def refusal(kind, function, *args, **options) -> str:
    """What a refusal of a kind says."""
    with pytest.raises(kind) as raised:
        function(*args, **options)
    return spelled(str(raised.value))


def means(evaluation) -> set[tuple]:
    return {
        (row["run"], row["segment"], row["metric"], row["k"], row["n_queries"], row["value"], row["std_error"])
        for row in evaluation.summary.collect()
    }


def of_queries(evaluation) -> set[tuple]:
    left_out = {"n_rows", "n_left_out"}  # a row of lists is one row
    columns = sorted(set(evaluation.per_query.columns) - left_out)
    return {tuple(str(row[name]) for name in columns) for row in evaluation.per_query.collect()}


def test_means_by_hand(spark):
    """Two queries at k=3: q1 finds one of two relevant items on rank 2, q2 its only one on rank 1."""
    table = spark.createDataFrame([("q1", "DE", ["a", "b", "c"], ["b", "x"]), ("q2", "FR", ["d"], ["d"])], IDS)
    found = evaluate(table, ranked="ranked", relevant="relevant", k=3, metrics="ndcg,r,p", segments="country")
    ndcg = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    expected = {
        ("", "", "ndcg"): (ndcg + 1) / 2, ("country", "DE", "ndcg"): ndcg, ("country", "FR", "ndcg"): 1.0,
        ("", "", "r"): 0.75, ("country", "DE", "r"): 0.5, ("country", "FR", "r"): 1.0,
        ("", "", "p"): 1 / 3, ("country", "DE", "p"): 1 / 3, ("country", "FR", "p"): 1 / 3,
    }  # fmt: skip
    rows = found.summary.where("metric in ('ndcg', 'r', 'p')").collect()
    assert {(row["segment_by"], row["segment"].rpartition("=")[2], row["metric"]): row["value"] for row in rows} == (
        pytest.approx(expected, abs=1e-15)
    )


@pytest.mark.parametrize("convention", sorted({*PRESETS} - {"mllib"}))  # which sorts no ideal list
def test_ids_in_rank_order_are_a_long_table_with_ranks(spark, convention):
    rows = lists(1)
    run, judgments = long_tables(spark, rows)
    options = {"convention": convention, "metrics": METRICS}
    by_lists = evaluate(in_order(spark, rows), ranked="ranked", relevant="relevant", **options)
    by_rows = evaluate(run, judgments, rank="place", **options)
    assert means(by_lists) == means(by_rows)
    assert of_queries(by_lists) == of_queries(by_rows)


def test_an_unsorted_ideal_list_is_in_the_order_of_relevant_items(spark):
    """RankingMetricsSuite.scala of MLlib, with relevances: labels come best first there."""
    rows = [
        ("0", [1, 6, 2, 7, 8, 3, 9, 10, 4, 5], list(zip([1, 2, 3, 4, 5], [3, 2, 1, 1, 1], strict=True))),
        ("1", [4, 1, 5, 6, 2, 7, 3, 8, 9, 10], list(zip([1, 2, 3], [2, 0, 0], strict=True))),
        ("2", [1, 2, 3, 4, 5], []),
    ]
    table = spark.createDataFrame(
        rows, "query_id string, ranked array<int>, relevant array<struct<item_id: int, relevance: int>>"
    )
    found = evaluate(table, ranked="ranked", relevant="relevant", k=[3, 5, 10], convention="mllib").summary
    values = {row["k"]: row["value"] for row in found.where("metric = 'ndcg'").collect()}
    assert values == pytest.approx({3: 0.511960, 5: 0.487807, 10: 0.518701}, abs=1e-6)


@pytest.mark.parametrize(
    "convention",
    ["default", "default;ties=best", "default;ties=worst", "default;ties=item_asc", "default;ties=item_desc",
     "default;ties=input_order", "default;unjudged=condensed", "default;ideal=retrieved;missing_query=drop"],
)  # fmt: skip
def test_structs_with_scores_are_a_long_table_with_scores(spark, convention):
    rows = lists(2)
    run, judgments = long_tables(spark, rows)
    metrics = [one for one in METRICS if one.startswith(("ndcg", "p", "r@"))]
    options = {"convention": convention, "metrics": metrics}
    by_lists = evaluate(graded(spark, rows), ranked="ranked", relevant="relevant", **options)
    by_rows = evaluate(run, judgments, order="place" if "input_order" in convention else None, **options)
    assert means(by_lists) == means(by_rows)
    assert of_queries(by_lists) == of_queries(by_rows)


@pytest.mark.parametrize("scored", [False, True], ids=["ids", "scores"])
@pytest.mark.parametrize("duplicates", ["best", "first"])
def test_an_item_that_comes_twice_counts_as_the_convention_says(spark, duplicates, scored):
    rows = lists(3, twice=True)
    run, judgments = long_tables(spark, rows)
    options = {"convention": f"default;duplicates={duplicates};ties=item_asc", "metrics": ["ndcg@3", "r@3"]}
    run = run if scored else run.withColumn("score", -F.col("place"))  # places close up, as given ranks do not
    long = {"score": "score"}
    long |= {"order": "place"} if duplicates == "first" else {}
    table = graded(spark, rows) if scored else in_order(spark, rows)
    by_lists = evaluate(table, ranked="ranked", relevant="relevant", **options)
    assert means(by_lists) == means(evaluate(run, judgments, **long, **options))


def test_rows_without_a_key_are_queries(spark):
    """The numbers are those of rows with a key; what needs one is refused by name."""
    rows = lists(4)
    keyed = graded(spark, rows)
    options = {"ranked": "ranked", "relevant": "relevant", "metrics": "ndcg@3,ap"}
    found = evaluate(keyed.drop("query_id"), **options)
    assert means(found) == means(evaluate(keyed, **options))
    assert "query_id" not in found.per_query.columns
    settings = evaluation_settings(**options)
    by_steps = score_queries(rank_queries(keyed.drop("query_id"), settings), settings)
    assert by_steps.columns == found.per_query.columns
    assert by_steps.count() == found.per_query.count()
    assert "NDCG@3" in report(found, metric="ndcg@3").html
    both = evaluate(keyed.drop("query_id").withColumn("other", F.reverse("ranked")),
                    **options | {"ranked": ["ranked", "other"]})  # fmt: skip
    assert {one for one in means(both) if one[0] == "ranked"} == {("ranked", *one[1:]) for one in means(found)}
    assert found.per_query_table.count() > 0
    said = refusal(InvalidParameterError, compare, {"a": found, "b": found}, baseline="a", metrics="ndcg", k=3)
    assert "the lists have no query column" in said
    for name, more in (
        ("sample", {"sample": 0.5}),
        ("metric 'coverage@3'", {"metrics": "coverage@3", "items": keyed}),
    ):
        said = refusal(InvalidParameterError, evaluate, keyed.drop("query_id"), **options | more)
        assert said.startswith(f"{name} needs to know the query of a row")
    said = refusal(MissingColumnError, evaluate, keyed, query="q", **options)  # as it was named
    assert "'q'" in said


def test_a_long_table_without_its_query_column_is_none_of_lists(spark):
    run, judgments = long_tables(spark, lists(4, 3))
    assert "'query_id'" in refusal(MissingColumnError, evaluate, run.drop("query_id"), judgments)


def test_rows_with_nothing_in_both_lists_are_queries(spark):
    """As for RankingEvaluator, which counts 0 for them."""
    table = spark.createDataFrame([(["a"], ["a"]), ([], [])], "ranked array<string>, relevant array<string>")
    by = {
        convention: means(evaluate(table, ranked="ranked", relevant="relevant", k=3, convention=convention))
        for convention in ("default", "mllib_binary")
    }
    assert {(one[4], one[5]) for one in by["default"] if one[2] == "ndcg"} == {(1, 1.0)}
    assert {(one[4], one[5]) for one in by["mllib_binary"] if one[2] == "ndcg"} == {(2, 0.5)}


def test_metrics_of_items_are_those_of_the_long_table(spark):
    rows = lists(8)
    run, judgments = long_tables(spark, rows)
    items = spark.createDataFrame(
        [(f"i{at}", [float(at % 3), 1.0], [f"c{at % 4}"]) for at in range(12)],
        "item_id string, vector array<double>, categories array<string>",
    )
    options = {"metrics": ["ild@3", "coverage@3", "entropy@3", "ndcg@3"], "items": items}
    by_lists = evaluate(in_order(spark, rows), ranked="ranked", relevant="relevant", **options)
    assert means(by_lists) == means(evaluate(run, judgments, rank="place", **options))


def test_several_columns_are_runs(spark):
    """Each equal to its own evaluation; compare takes them."""
    rows = lists(5)
    table = in_order(spark, rows).withColumn("other", F.reverse("ranked"))
    options = {"relevant": "relevant", "metrics": "ndcg@3,ap"}
    both = evaluate(table, ranked=["ranked", "other"], **options)
    alone = {name: means(evaluate(table, ranked=name, **options)) for name in ("ranked", "other")}
    assert means(both) == {(name, *one[1:]) for name, its in alone.items() for one in its}
    assert [row["run"] for row in compare(both, baseline="ranked", metrics="ndcg", k=3).summary.collect()] == [
        "other"
    ]


def test_judgments_beside_lists(spark):
    rows = lists(6)
    run, judgments = long_tables(spark, rows)
    options = {"metrics": "ndcg@3,ap"}
    for table, long in ((graded(spark, rows), {}), (in_order(spark, rows), {"rank": "place"})):
        found = evaluate(table.drop("relevant"), judgments, ranked="ranked", **options)
        assert means(found) == means(evaluate(run, judgments, **long, **options))
    named_so = in_order(spark, rows).drop("relevant").withColumns({"rank": F.lit("r"), "score": F.lit(2.0)})
    found = evaluate(named_so, judgments, ranked="ranked", segments="rank", weight="score",
                     metrics="ndcg@3", convention="default;missing_query=drop").summary  # fmt: skip
    of_segment = found.where("segment_by = 'rank' and segment = 'r'").first()
    assert of_segment["weight_sum"] == 2.0 * of_segment["n_queries"] > 0


@pytest.mark.parametrize("strategy", ["auto", "window"])
def test_a_ranker_whose_lists_are_all_empty_is_told(spark, strategy):
    """Of two columns, beside judgments and with relevant items in the row; by a run column; it misses each query."""
    judgments = spark.createDataFrame(
        [("p", "a", 1), ("q", "b", 1)], "query_id string, item_id string, relevance int"
    )
    rows = [("p", ["a", "c"], [], ["a"]), ("q", ["c"], [], ["b"])]
    table = spark.createDataFrame(rows, "query_id string, x array<string>, y array<string>, own array<string>")
    options = {"ranked": ["x", "y"], "k": 2, "strategy": strategy}
    beside, within = {"judgments": judgments}, {"relevant": "own"}
    for given in (beside, within) if strategy == "auto" else (beside,):  # windows do not rank lists
        rows = evaluate(table, **given, **options).summary.where("metric = 'ndcg'").collect()
        assert {row["run"]: (row["value"], row["n_queries"]) for row in rows} == {"x": (0.5, 2), "y": (0.0, 2)}
    rows = [
        ("1", "p", ["a", "c"]),
        ("1", "q", ["c"]),
        ("2", "p", []),
        ("2", "q", []),
        (None, "q", []),
        ("3", None, []),
    ]
    table = spark.createDataFrame(rows, "ranker string, query_id string, x array<string>")
    named = evaluate(table, judgments, ranked="x", run="ranker", k=2, strategy=strategy)
    rows = named.summary.where("metric = 'ndcg'").collect()
    assert {row["run"]: (row["value"], row["n_missing"]) for row in rows} == {"1": (0.5, 0), "2": (0.0, 2)}
    values = {(row["run"], row["query_id"]): row["ndcg"] for row in named.per_query.collect()}
    assert values == {("1", "p"): 1.0, ("1", "q"): 0.0, ("2", "p"): 0.0, ("2", "q"): 0.0}


@pytest.mark.parametrize("other", ["trec_eval", "lightgbm", "default;duplicates=first"])
def test_a_difference_is_explained_of_lists(spark, other):
    """From one table and from two; the conventions need an order that lists have."""
    rows = lists(9)
    run, judgments = long_tables(spark, rows)
    expected = None
    for table, more in (
        (graded(spark, rows), {"relevant": "relevant"}),
        (graded(spark, rows).drop("relevant"), {"judgments": judgments}),
    ):
        if other.endswith("first") and "judgments" in more:
            more = {**more, "order": "place"}  # that of the judgments
        found = explain_difference(table, "default", other, ranked="ranked", k=3, **more).steps.collect()
        steps = [(row["part"], row["value"], row["n_queries"]) for row in found]
        expected = expected or steps
        assert steps == expected
    by_rows = explain_difference(run, "default", other, judgments=judgments.withColumn("place", F.col("place")), k=3,
                                 order="place").steps.collect()  # fmt: skip
    assert [(row["part"], row["value"], row["n_queries"]) for row in by_rows] == expected


def test_structs_with_ranks_are_in_their_order_wherever_they_stand(spark):
    table = spark.sql(
        "SELECT array(struct(2 AS rank, 'b' AS doc), struct(1 AS rank, 'a' AS doc)) AS ranked, array('b') AS relevant"
    )
    assert [
        row["value"] for row in evaluate(table, ranked="ranked", relevant="relevant", metrics="rr").summary.collect()
    ] == [0.5]
    more = table.selectExpr("*", "array(struct('b' AS id)) AS ids", "array(2L) AS long", "array(1, 2) AS ints")
    for options in (
        {"relevant": "ids"},
        {"relevant": "relevant", "relevance": "grade"},
        {"ranked": "ints", "relevant": "long"},
    ):
        found = evaluate(more, metrics="rr", **{"ranked": "ranked", **options}).summary.collect()
        assert [row["value"] for row in found] == [0.5]
    bad = table.withColumn("ranked", F.transform("ranked", lambda one: one.withField("rank", F.lit(0))))
    assert "rank_below_1 1" in refusal(
        InputRefusedError, evaluate(bad, ranked="ranked", relevant="relevant").to_pandas
    )


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("array<bigint>", [1, 2]), ("array<int>", [1, 2]), ("array<double>", [1.0, 2.0]), ("array<date>", None)],
)
def test_types_of_ids(spark, kind, shown):
    table = spark.createDataFrame([(["1", "2"],)], "ids array<string>")
    if shown is None:
        table = spark.sql("SELECT array(date'2026-01-01', date'2026-01-02') AS ids")
    table = table.select(
        F.col("ids").cast(kind).alias("ranked"), F.slice(F.col("ids").cast(kind), 2, 1).alias("relevant")
    )
    found = evaluate(table, ranked="ranked", relevant="relevant", metrics="rr@3").summary.collect()
    assert [row["value"] for row in found] == [0.5]


def test_lists_in_other_forms(spark):
    """Structs without a score are in rank order; ids are the first field; grades may be in structs."""
    table = spark.createDataFrame(
        [([Row(chunk="a", text="A"), Row(chunk="b", text="B")], [Row(id="b", relevance=2)], [Row(id="b", grade=2)])],
        "ranked array<struct<chunk: string, text: string>>, graded array<struct<id: string, relevance: int>>, "
        "other array<struct<id: string, grade: int>>",
    )
    expected = [3 / math.log2(3)]
    for options in ({"relevant": "graded"}, {"relevant": "other"}, {"relevant": "other", "relevance": "grade"}):
        found = evaluate(table, ranked="ranked", metrics="dcg@3", **options).summary
        assert [row["value"] for row in found.where("metric = 'dcg'").collect()] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "first"),
    [("item: string, Score: double", (0.1, 0.9)), ("Item: string, RATING: double", (0.1, 0.9)),
     ("ID: string, Rank: int", (2, 1)), ("Item_Id: string, sCORE: int", (1, 2))],
)  # fmt: skip
def test_fields_of_structs_are_found_whatever_their_case(spark, fields, first):
    """b is first by its score or rank; in the order of the list it is second. Its grade is 2, its gain 3."""
    score, grade = fields.partition(", ")[2], fields.partition(":")[0]
    schema = f"query_id string, p array<struct<{fields}>>, l array<struct<{grade}: string, GRADE: int>>"
    table = spark.createDataFrame([("q", list(zip("ab", first, strict=True)), [("b", 2)])], schema)
    judgments = table.select("query_id", "l")
    for data, more in ((table, {}), (table.drop("l"), {"judgments": judgments})):
        rows = evaluate(data, ranked="p", relevant="l", k=1, **more).summary.collect()
        assert {row["metric"]: row["value"] for row in rows} == {"ndcg": 1.0, "dcg": 3.0, "idcg": 3.0}
    named_so = evaluate(table, ranked="p", relevant="l", relevance="grade", item=grade.lower(), metrics="dcg@1")
    assert named_so.summary.first()["value"] == 3.0
    if "Rank" not in score:
        by = evaluate(table, ranked="p", relevant="l", score=score.partition(":")[0].upper(), metrics="dcg@1")
        assert by.summary.first()["value"] == 3.0


def test_fields_that_differ_in_case_alone(spark):
    """Refused, but where Spark tells them apart."""
    table = spark.sql("SELECT 'q' AS query_id, array('b') AS l, from_json('[]', 'array<struct<i: string>>') AS p")
    schema = "array<struct<i: string, Score: double, score: double>>"
    with session_settings(spark, spark__sql__caseSensitive="true"):
        table = table.withColumn("p", F.expr(f'from_json(\'[{{"i": "a", "Score": 1, "score": 2}}]\', \'{schema}\')'))
        assert evaluate(table, ranked="p", relevant="l", metrics="p@1").summary.first()["value"] == 0.0
    said = refusal(InputRefusedError, evaluate, table, ranked="p", relevant="l")
    assert said == "column 'p' has structs with fields Score and score, one name to Spark; rename one."


def test_arrays_of_structs_with_fields_in_another_case(spark):
    """Their items are looked at for duplicates, too."""
    schema = "query_id string, relevance array<struct<Item: string, Relevance: int>>"
    table = spark.createDataFrame([("q", [("a", 0), ("b", 1)])], schema)
    assert evaluate(table, metrics="rr").summary.first()["value"] == 0.5
    twice = spark.createDataFrame([("q", [("a", 0), ("a", 1)])], schema)
    assert "an item comes twice in the list" in refusal(InputRefusedError, evaluate(twice).to_pandas)


@pytest.mark.parametrize(
    ("renamed", "options"),
    [("item_id", {}), ("country", {"segments": "country"}), ("w", {"weight": "w"}),
     ("pos", {"order": "pos", "convention": "lightgbm"}), ("query_id", {}), ("score", {}), ("relevance", {})],
)  # fmt: skip
def test_columns_in_another_case_are_refused_by_name(spark, renamed, options):
    """Also those that a table may lack, which would be as if they were not there."""
    table = spark.createDataFrame(
        [("q", "a", 1.0, 1, "DE", 1.0, 1)],
        "query_id string, item_id string, score double, relevance int, country string, w double, pos int",
    )
    assert evaluate(table, **options).summary.count() > 0
    other = table.withColumnRenamed(renamed, renamed.upper())
    said = refusal((InputRefusedError, MissingColumnError), evaluate, other, **options)
    assert repr(renamed) in said
    assert repr(renamed.upper()) in said
    if renamed in ("country", "w"):  # each of two tables may have it
        run, judged = table.drop("relevance"), table.select("query_id", "item_id", "relevance", F.col(renamed))
        for tables in ((run.withColumnRenamed(renamed, renamed.upper()), judged),
                       (run, judged.withColumnRenamed(renamed, renamed.upper()))):  # fmt: skip
            said = refusal(InputRefusedError, evaluate, *tables, **options)
            assert f"column {renamed!r} is called {renamed.upper()!r}" in said


def test_a_rank_and_a_query_of_lists_in_another_case(spark):
    table = spark.sql("SELECT 'q' AS query_id, 'a' AS item_id, 2 AS RANK, 1 AS relevance")
    assert evaluate(table, metrics="rr").summary.first()["value"] == 0.5
    lists = spark.sql("SELECT 'q' AS QUERY_ID, array('a') AS p, array('a') AS l")  # which are not without a query
    assert "'QUERY_ID'" in refusal(MissingColumnError, evaluate, lists, ranked="p", relevant="l")


# --- In two tables


@pytest.mark.parametrize("form", ["ids", "structs", "map"])
@pytest.mark.parametrize("strategy", ["auto", "window"])
def test_lists_in_two_tables_by_hand(spark, form, strategy):
    """p finds b on rank 2, with grade 2; q is not recommended; r is not in the truth, s has an empty list there.

    DCG@2 of p is 3 / log2(3), IDCG is 3 + 1 / log2(3); with ids alone 1 / log2(3) and 1 + 1 / log2(3).
    """
    recommended = spark.createDataFrame(
        [("p", ["a", "b"]), ("r", ["a"]), ("s", ["b"])], "user string, recommendations array<string>"
    )
    grades = [("p", {"b": 2, "c": 1}), ("q", {"a": 1}), ("s", {})]
    kinds = {
        "ids": "array<string>",
        "structs": "array<struct<movie: string, rating: int>>",
        "map": "map<string, int>",
    }
    made = {"ids": list, "structs": lambda its: [*its.items()], "map": dict}[form]
    truth = spark.createDataFrame([(user, made(its)) for user, its in grades], f"user string, items {kinds[form]}")
    options = {"query": "user", "ranked": "recommendations", "relevant": "items", "k": 2, "strategy": strategy}
    found = evaluate(recommended, truth, **options)
    values = {row["user"]: (row["status"], row["ndcg"]) for row in found.per_query.collect()}
    gain = 1 if form == "ids" else 3
    expected = gain / math.log2(3) / (gain + 1 / math.log2(3))
    assert values == {"p": ("evaluated", pytest.approx(expected)), "q": ("missing", 0.0), "r": ("unjudged", None),
                      "s": ("unjudged", None)}  # fmt: skip
    row = found.summary.where("metric = 'ndcg'").first()
    assert (row["value"], row["n_queries"], row["n_missing"], row["n_unjudged"]) == (
        pytest.approx(expected / 2), 2, 1, 2,
    )  # fmt: skip
    other = evaluate(recommended, truth, convention="default;missing_query=drop;unjudged_query=zero", **options)
    row = other.summary.where("metric = 'ndcg'").first()
    assert (row["value"], row["n_queries"]) == (pytest.approx(expected / 3), 3)


def test_segments_weights_and_runs_of_lists_in_two_tables(spark):
    """As of the long tables, from either table; comparing and explaining, too."""
    rows = lists(10)
    run, judgments = long_tables(spark, rows)
    country = F.when(F.xxhash64("query_id") % 2 == 0, "DE").otherwise("FR")
    both = graded(spark, rows).withColumn("country", country)
    judgments = judgments.withColumn("country", country).withColumn("w", F.lit(2.0))
    truth = both.select("query_id", F.col("relevant").alias("truth"), "country", F.lit(2.0).alias("w"))
    recommended = both.where(F.size("ranked") > 0).select("query_id", "ranked")
    options = {"metrics": "ndcg@3,ap", "segments": "country", "weight": "w"}
    found = evaluate(recommended, truth, ranked="ranked", relevant="truth", **options)
    assert means(found) == means(evaluate(run, judgments, **options))
    several = recommended.select(
        "query_id", F.col("ranked.item_id").alias("x"), F.reverse("ranked.item_id").alias("y")
    )
    of_runs = evaluate(several, truth, ranked=["x", "y"], relevant="truth", metrics="ndcg@3")
    assert {row["run"] for row in compare(of_runs, baseline="x").summary.collect()} == {"y"}
    steps = [explain_difference(*tables, k=3, **more).steps.collect() for tables, more in (
        ((recommended, "default", "linear"), {"judgments": truth, "ranked": "ranked", "relevant": "truth"}),
        ((run, "default", "linear"), {"judgments": judgments}),
    )]  # fmt: skip
    assert steps[0] == steps[1]


@pytest.mark.parametrize("convention", ["default", "default;duplicates=best"])
def test_a_query_in_two_rows_of_the_truth_is_refused(spark, convention):
    """Whatever is in its lists; unless nothing is checked, which makes one list of them."""
    recommended = spark.createDataFrame([("q", ["a", "b"])], "query_id string, p array<string>")
    truth = spark.createDataFrame(
        [("q", ["a"]), ("q", ["b"]), (None, ["a"]), (None, ["a"])], "query_id string, l array<string>"
    )
    options = {"ranked": "p", "relevant": "l", "metrics": "r@2", "convention": convention}
    known = truth.where("query_id is not null")
    said = refusal(InputRefusedError, evaluate(recommended, known, **options).to_pandas)
    assert said.startswith("query query_id=q comes in 2 rows; a table of relevant items has one row for each query.")
    if "duplicates=best" not in convention:
        assert evaluate(recommended, known, **options, check_duplicates="none").summary.first()["value"] == 1.0
    nameless = truth.where("query_id is null or array_contains(l, 'a')")  # two rows without a query are not one query
    found = evaluate(recommended, nameless, on_invalid="reject", **options).summary
    assert found.first()["value"] == 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"relevant": "m"}, "column 'm' (relevant=) is not in the judgments, which has: query_id, l, numbers, text"),
        ({"relevant": "numbers"}, "items are string in column 'p' and bigint in column 'numbers'"),
        ({"relevant": "text"}, "must be an array of ids, an array of structs"),
        ({"relevant": "p"}, "and there is a table of judgments; leave one of them out, or drop the column"),
        ({"query": "user"}, "column 'user' (query=) is not in the input"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_two_tables_of_lists_lack(spark, change, said):
    recommended = spark.sql("SELECT 'q' AS query_id, array('a') AS p")
    truth = spark.sql("SELECT 'q' AS query_id, array('a') AS l, array(1L) AS numbers, 'a' AS text")
    options = {"ranked": "p", "relevant": "l"} | change
    kinds = (InputRefusedError, InvalidParameterError, MissingColumnError)
    assert said in refusal(kinds, evaluate, recommended, truth, **options)


EMPTY = {
    "no relevant items": ("array('a', 'b')", "array()", ("unjudged", None)),
    "no relevant items in a map": ("array('a', 'b')", "map()", ("unjudged", None)),
    "nothing recommended": ("array()", "array('a')", ("missing", 0.0)),
    "nothing recommended, numbers": ("array()", "array(7)", ("missing", 0.0)),
    "structs": ("array(struct('a' AS id, 1.5 AS score))", "array()", ("unjudged", None)),
}


@pytest.mark.parametrize(("ranked", "relevant", "expected"), EMPTY.values(), ids=EMPTY)
@pytest.mark.parametrize("apart", [False, True], ids=["one table", "two tables"])
def test_lists_that_are_all_empty_have_any_type(spark, ranked, relevant, expected, apart):
    table = spark.sql(f"SELECT 'q' AS query_id, {ranked} AS p, {relevant} AS l")
    tables = (table.drop("l"), table.drop("p")) if apart else (table,)
    found = evaluate(*tables, ranked="p", relevant="l", k=2).per_query.collect()
    assert [(row["status"], row["ndcg"]) for row in found] == [expected]


def test_empty_lists_beside_a_table_of_judgments_and_arrays_without_relevances(spark):
    recommended = spark.sql("SELECT 'q' AS query_id, array() AS p")
    judgments = spark.sql("SELECT 'q' AS query_id, 7 AS item_id, 1 AS relevance")
    assert evaluate(recommended, judgments, ranked="p").per_query.first()["status"] == "missing"
    both = spark.sql("SELECT 'q' AS query_id, array() AS p, array() AS l, array() AS relevance")
    assert evaluate(both, ranked="p", relevant="l").per_query.first()["status"] == "unjudged"
    assert evaluate(both).per_query.first()["status"] == "unjudged"


BAD = [
    ("null_item", ["a", None], ["a"]),
    ("null_item", ["a"], ["a", None]),
    ("null_list", None, ["a"]),
    ("null_list", ["a"], None),
]


@pytest.mark.parametrize(("reason", "ranked", "relevant"), BAD, ids=lambda one: str(one))
def test_bad_rows_of_lists(spark, reason, ranked, relevant):
    table = spark.createDataFrame([("p", "DE", ["a"], ["a"]), ("q", "DE", ranked, relevant)], IDS)
    options = {"ranked": "ranked", "relevant": "relevant", "metrics": "rr@3"}
    assert f"{reason} 1 (e.g. query_id=q)" in refusal(InputRefusedError, evaluate(table, **options).to_pandas)
    for frame in (table, table.drop("query_id")):
        row = evaluate(frame, on_invalid="reject", **options).summary.collect()[0]
        assert (row["value"], row["n_queries"], row["n_rejected"], row["n_lost_queries"]) == (1.0, 1, 1, 1)


@pytest.mark.parametrize("strategy", ["auto", "window"])
def test_a_bad_entry_of_a_list_beside_judgments_is_a_row_of_its_own(spark, strategy):
    """As of the long table: the others stay. Of p and q NDCG is 1; a null list leaves r without results."""
    judgments = spark.createDataFrame(
        [("p", "a", 1), ("q", "b", 1), ("r", "c", 1)], "query_id string, item_id string, relevance int"
    )
    rows = [("p", ["a"]), ("q", ["b", None]), ("r", None)]
    table = spark.createDataFrame(rows, "query_id string, ranked array<string>")
    found = evaluate(table, judgments, ranked="ranked", k=2, on_invalid="reject", strategy=strategy)
    row = found.summary.where("metric = 'ndcg'").first()
    assert (row["value"], row["n_missing"], row["n_rows"], row["n_rejected"]) == (2 / 3, 1, 2, 2)


def test_bad_scores_and_grades_of_lists(spark):
    for score, grade, reason in (
        (math.nan, 1, "nan_score"),
        (None, 1, "null_score"),
        (1.0, -1, "negative_relevance"),
    ):
        table = graded(spark, [{"query": "q", "items": ["a"], "scores": [score], "judged": {"a": grade}}])
        options = {"ranked": "ranked", "relevant": "relevant", "convention": "default;negative=error"}
        said = refusal(InputRefusedError, evaluate(table, **options).to_pandas)
        assert f"{reason} 1 (e.g. query_id=q)" in said


def test_an_item_twice_is_refused_unless_a_rule_says_which_counts(spark):
    for ranked, relevant, kind in ((["a", "a"], ["a"], "ranked list"), (["a"], ["b", "b"], "list of relevant items")):
        table = spark.createDataFrame([("q", "DE", ranked, relevant)], IDS)
        options = {"ranked": "ranked", "relevant": "relevant"}
        said = refusal(InputRefusedError, evaluate(table, **options).to_pandas)
        assert said.startswith(f"an item comes twice in the {kind} of query query_id=q. Remove it, or say which")
        said = refusal(InputRefusedError, evaluate(table.drop("query_id"), **options).to_pandas)
        assert f"of query [{', '.join(ranked)}] (there is no query column)" in said
        assert evaluate(table, check_duplicates="none", **options).summary.count() > 0


def test_a_query_in_two_rows_is_found_by_check_duplicates_all(spark):
    table = spark.createDataFrame([("q", "DE", ["a"], ["a"])] * 2, IDS)
    options = {"ranked": "ranked", "relevant": "relevant", "check_duplicates": "all"}
    said = refusal(InputRefusedError, evaluate(table, **options).to_pandas)
    assert said.startswith("query query_id=q comes in 2 rows")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranked": "ranked"}, "need the items that are relevant"),
        ({"ranked": "scored", "relevant": "relevant", "item": "doc"}, "none is 'doc' (item=)"),
        ({"ranked": "scored", "relevant": "relevant", "score": "sim"}, "none is 'sim' (score=)"),
        ({"ranked": "ranked", "relevant": "relevant", "score": "sim"}, "has ids alone, and no 'sim' (score=)"),
        ({"ranked": "pairs", "relevant": "relevant", "score": "rating"}, "none is 'rating' (score=)"),  # a usual name
        ({"ranked": "ranked", "relevant": "ids", "relevance": "grade"}, "none is 'grade' (relevance=)"),
        ({"ranked": "scores", "relevant": "relevant"}, "none is 'item_id' (item=)"),
        ({"ranked": "ranked", "relevant": "scores"}, "none is 'item_id' (item=)"),
        ({"ranked": "ranked", "relevant": "pairs"}, "none is called relevance or grade or rating"),
        ({"ranked": "ranked", "relevant": "struct"}, "a dict of pandas or json is no map"),
        ({"ranked": "ranked", "relevant": "relevant", "query": (), "rank": "place"}, "leave rank= out"),
        ({"ranked": 5, "relevant": "relevant"}, "must be one name or several"),
        ({"ranked": "ranked", "relevant": "relevant", "query": (), "sample": 0.5}, "sample needs to know the query"),
        (
            {"ranked": "nested", "relevant": "relevant"},
            "must be an array of ids, or of structs with an id; it is array<",
        ),
        ({"ranked": "ranked", "relevant": "relevant", "judged": True}, "and there is a table of judgments"),
        ({"ranked": "ranked", "judged": True, "item": None}, "joining judgments needs an item column (item=)"),
        ({"ranked": "ranked", "judged": True, "query": ()}, "joining judgments needs a query column (query=)"),
        ({"ranked": "ranked", "judged": True, "query": "queryid"}, "which has: query_id, country, ranked, relevant"),
        ({"relevant": "relevant"}, "name the column of these, too (ranked=), or leave it out"),
        (
            {"ranked": "country", "relevant": "relevant"},
            "must be an array of ids, or of structs with an id; it is string",
        ),
        ({"ranked": "ranked", "relevant": "country"}, "or a map from id to grade; it is string"),
        ({"ranked": "ranked", "relevant": "numbers"}, "cast one of them so that values compare"),
        ({"ranked": ["ranked", "ranked"], "relevant": "relevant"}, "names a column twice"),
        ({"ranked": ["ranked", "other"], "relevant": "relevant", "run": "country"}, "leave run= out"),
        ({"ranked": "ranked", "relevant": "relevant", "rank": "place"}, "leave rank= out"),
        ({"ranked": "ranked", "relevant": "relevant", "score": ["a", "b"]}, "leave score= out"),
        ({"ranked": ["ranked", "scored"], "relevant": "relevant"}, "some have scores, and others ranks or ids alone"),
        ({"ranked": "texts", "relevant": "relevant"}, "are string; cast them to numbers"),
        ({"ranked": "scored", "relevant": "relevant", "metrics": "bpref"}, "needs an order of tied items"),
        ({"ranked": "ranked", "relevant": "relevant", "metrics": "alpha_ndcg"}, "lists of relevant items have none"),
        ({"ranked": "ranked", "relevant": "relevant", "source": "parquet"}, "has lists"),
    ],
    ids=lambda one: str(one)[:60],
)
def test_what_cannot_be_evaluated_is_refused_at_once(spark, options, said):
    table = spark.createDataFrame([("q", "DE", ["a"], ["a"])], IDS).selectExpr(
        "*",
        "ranked AS other",
        "array(1) AS numbers",
        "1 AS place",
        "array(struct('a' AS id, 1D AS score)) AS scored",
        "array(struct('a' AS id, 'high' AS score)) AS texts",
        "array(struct(1D AS score, 1D AS rating)) AS scores",
        "array(struct('a' AS id, 1 AS position)) AS pairs",
        "struct(1 AS a) AS struct",
        "array(struct('a' AS id)) AS ids",
        "array(struct(struct(1 AS b) AS a)) AS nested",
    )
    kind = (InputRefusedError, InvalidParameterError, MissingColumnError)
    options = dict(options)
    if options.pop("judged", False):
        options["judgments"] = table.selectExpr("query_id", "'a' AS item_id", "1 AS relevance")
    assert said in refusal(kind, evaluate, table, **options)


# --- By a job


def test_a_job_takes_lists(spark, tmp_path):
    """Its means are those of the function; a bad row is counted and kept; comparing needs a query column."""
    rows = lists(7)
    table = graded(spark, rows)
    without_list = table.where("query_id = 'q0'").withColumn("ranked", F.when(F.lit(False), F.col("ranked")))
    table.unionAll(without_list).write.parquet(str(tmp_path / "lists.parquet"))
    expected = evaluate(table, ranked="ranked", relevant="relevant", k=[1, 3]).summary.collect()
    flags = ["--ranked-cols", "ranked", "--relevant-col", "relevant", "--k", "1,3"]
    rejects = tmp_path / "rejects"
    found = done(
        *("--input", tmp_path / "lists.parquet", *flags, "--on-invalid", "reject"),
        *("--rejects", rejects, "--json", "-"),
    ).json
    values = {(row["metric"], row["k"], row["value"]) for row in expected}
    assert {(row["metric"], row["k"], row["value"]) for row in found["metrics"]} == values
    assert (found["rows"]["read"], found["rows"]["rejected"]) == (41, 1)
    kept = spark.read.parquet(str(rejects)).collect()
    assert [(row["reason"], json.loads(row["row"])["query_id"]) for row in kept] == [("null_list", "q0")]

    table.drop("query_id").write.parquet(str(tmp_path / "unnamed.parquet"))
    ended = done("--input", tmp_path / "unnamed.parquet", *flags, "--json", "-")
    found = ended.json
    assert {(row["metric"], row["k"], row["value"]) for row in found["metrics"]} == values
    unjudged = [row["n_unjudged_items"] for row in found["metrics"]]
    assert min(unjudged) > 0  # which these lists say of whatever is not relevant, so that no line tells
    assert "unjudged; see" not in ended.out
    judged = str(tmp_path / "judged.parquet")
    long_tables(spark, rows)[1].write.parquet(judged)
    ended = done(
        *("--input", tmp_path / "lists.parquet", "--ranked-cols", "ranked", "--judgments", judged, "--k", "1,3"),
        *("--on-invalid", "reject", "--rejects", rejects, "--json", "-"),
    )
    found = ended.json
    assert "among the first 3 are unjudged; see the metric judged@3" in ended.out
    beside = evaluate(table, long_tables(spark, rows)[1], ranked="ranked", k=[1, 3], on_invalid="reject")
    assert found["config_hash"] == beside.provenance["config_hash"]
    assert {(row["metric"], row["k"], row["value"]) for row in found["metrics"]} == values
    refused = command("compare-runs", "--input", tmp_path / "unnamed.parquet", *flags)
    assert_refused(refused, "name the column (--query-col)")


def test_a_job_takes_lists_in_two_tables(spark, tmp_path):
    """Its means are those of one table; a bad entry of the truth is a bad row of the judgments, counted and kept."""
    rows = lists(11)
    table = in_order(spark, rows)
    truth = table.select("query_id", F.transform(F.map_keys("relevant"), lambda item: item).alias("items"))
    expected = evaluate(
        table.withColumn("items", F.map_keys("relevant")), ranked="ranked", relevant="items", k=[1, 3]
    ).summary.collect()
    more = truth.where("query_id = 'q0'").select("query_id", F.array_append("items", F.lit(None)).alias("items"))
    truth.where("query_id != 'q0'").unionAll(more).write.parquet(str(tmp_path / "truth.parquet"))
    table.drop("relevant").write.parquet(str(tmp_path / "lists.parquet"))
    rejects = tmp_path / "rejects"
    flags = ["--input", tmp_path / "lists.parquet", "--judgments", tmp_path / "truth.parquet", "--k", "1,3"]
    flags += ["--ranked-cols", "ranked", "--relevant-col", "items"]
    assert_refused(command("mean-ndcg", *flags), "1 bad row", "null_item 1 (e.g. query_id=q0", "judgments")
    found = done(*flags, "--on-invalid", "reject", "--rejects", rejects, "--json", "-").json
    values = {(row["metric"], row["k"], row["value"]) for row in expected}
    assert {(row["metric"], row["k"], row["value"]) for row in found["metrics"]} == values
    assert found["judgment_rows"]["rejected"] == {"null_item": 1}
    assert [row["reason"] for row in spark.read.parquet(str(rejects)).collect()] == ["null_item"]
