"""Lists of items, one row a query: the numbers of the long table of the same lists, to the last bit.

This machine ranks them here, but for a few of each form that Spark has to explode, join and read by itself. Every
rule of a convention, and items that appear twice: test_lists_by_rules.py.
"""

from __future__ import annotations

import json
import math
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from support.engines import catch_refusal, collect_rows, parametrize_engine, table, with_columns
from support.main_job import assert_refused, read_stored_rows, run_command, run_mean_ndcg
from support.spark_rankings import session_settings

from ndcg_spark import PRESETS, compare, evaluate, explain_difference, report
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import evaluation_settings, rank_queries, score_queries

METRICS = [
    "ndcg@1", "ndcg@3", "ndcg", "ap@3", "ap", "rr@3", "p@3", "p(rel=2)@3", "r@3", "success@1", "err(max_grade=3)@3",
    "rbp(p=0.5)", "rbp_residual(p=0.5)", "cg@3", "bpref", "rprec", "wap@3", "ap_r",
]  # fmt: skip
IDS = "query_id string, country string, ranked array<string>, relevant array<string>"
KINDS = (InputRefusedError, InvalidParameterError, MissingColumnError)
BOTH = {"ranked": "ranked", "relevant": "relevant"}


def lists(seed: int, n_queries: int = 40, *, twice: bool = False) -> list[dict]:
    """Rows with ids, scores of which many are tied, and grades; none is empty throughout."""
    draw, actual = random.Random(seed), []
    for number in range(n_queries):
        items = [f"i{at}" for at in draw.sample(range(12), draw.randint(0, 9))]
        judged = {f"i{at}": draw.randint(0, 3) for at in draw.sample(range(12), draw.randint(0 if items else 1, 6))}
        scores = [float(draw.randint(0, 3)) for _ in items]
        if twice and items:
            at = draw.randrange(len(items))
            items.insert(draw.randint(0, len(items)), items[at])
            scores.append(float(draw.randint(0, 3)))
        actual.append({"query": f"q{number}", "items": items, "scores": scores, "judged": judged})
    return actual


def long_tables(rows: list[dict]) -> tuple[pa.Table, pa.Table]:
    """The same lists as a run and judgments."""
    run = [
        (row["query"], item, at + 1, score)
        for row in rows
        for at, (item, score) in enumerate(zip(row["items"], row["scores"], strict=True))
    ]
    judged = [
        (row["query"], item, grade, at) for row in rows for at, (item, grade) in enumerate(row["judged"].items())
    ]
    return (
        table(run, "query_id string, item_id string, place int, score double"),
        table(judged, "query_id string, item_id string, relevance int, place int"),
    )


def graded(rows: list[dict]) -> pa.Table:
    cells = [(row["query"], list(zip(row["items"], row["scores"], strict=True)), row["judged"]) for row in rows]
    return table(
        cells, "query_id string, ranked array<struct<item_id: string, rating: double>>, relevant map<string, int>"
    )


def in_order(rows: list[dict]) -> pa.Table:
    """Ids alone, and a second column of them in the opposite order."""
    cells = [(row["query"], row["items"], row["items"][::-1], row["judged"]) for row in rows]
    return table(cells, "query_id string, ranked array<string>, other array<string>, relevant map<string, int>")


def means(evaluation) -> set[tuple]:
    names = ("run", "segment", "metric", "k", "n_queries", "value", "std_error")
    return {tuple(row[name] for name in names) for row in collect_rows(evaluation.summary)}


def of_queries(evaluation) -> set[tuple]:
    left_out = {"n_rows", "n_left_out"}  # a row of lists is one row
    return {
        tuple(str(row[name]) for name in sorted(row.keys() - left_out)) for row in collect_rows(evaluation.per_query)
    }


def values(evaluation, metric: str | None = None) -> list[float]:
    return [row["value"] for row in collect_rows(evaluation.summary, metric)]


def test_means_by_hand(engine):
    """Two queries at k=3: q1 finds one of two relevant items on rank 2, q2 its only one on rank 1."""
    data = table([("q1", "DE", ["a", "b", "c"], ["b", "x"]), ("q2", "FR", ["d"], ["d"])], IDS)
    evaluation = evaluate(data, **BOTH, k=3, metrics="ndcg,r,p", segments="country", **engine)
    ndcg = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    expected = {
        ("", "", "ndcg"): (ndcg + 1) / 2, ("country", "DE", "ndcg"): ndcg, ("country", "FR", "ndcg"): 1.0,
        ("", "", "r"): 0.75, ("country", "DE", "r"): 0.5, ("country", "FR", "r"): 1.0,
        ("", "", "p"): 1 / 3, ("country", "DE", "p"): 1 / 3, ("country", "FR", "p"): 1 / 3,
    }  # fmt: skip
    rows = [row for row in collect_rows(evaluation.summary) if row["metric"] in ("ndcg", "r", "p")]
    assert {(row["segment_by"], row["segment"].rpartition("=")[2], row["metric"]): row["value"] for row in rows} == (
        pytest.approx(expected, abs=1e-15)
    )


@pytest.mark.parametrize("convention", sorted({*PRESETS} - {"mllib"}))  # which sorts no ideal list
def test_ids_in_rank_order_are_a_long_table_with_ranks(convention):
    rows = lists(1)
    run, judgments = long_tables(rows)
    options = {"convention": convention, "metrics": METRICS}
    by_lists = evaluate(in_order(rows), **BOTH, **options)
    by_rows = evaluate(run, judgments, rank="place", **options)
    assert means(by_lists) == means(by_rows)
    assert of_queries(by_lists) == of_queries(by_rows)


def test_an_unsorted_ideal_list_is_in_the_order_of_relevant_items():
    """RankingMetricsSuite.scala of MLlib, with relevances: labels come best first there."""
    rows = [
        ("0", [1, 6, 2, 7, 8, 3, 9, 10, 4, 5], list(zip([1, 2, 3, 4, 5], [3, 2, 1, 1, 1], strict=True))),
        ("1", [4, 1, 5, 6, 2, 7, 3, 8, 9, 10], list(zip([1, 2, 3], [2, 0, 0], strict=True))),
        ("2", [1, 2, 3, 4, 5], []),
    ]
    data = table(rows, "query_id string, ranked array<int>, relevant array<struct<item_id: int, relevance: int>>")
    actual = collect_rows(evaluate(data, **BOTH, k=[3, 5, 10], convention="mllib").summary, "ndcg")
    expected = {3: 0.511960, 5: 0.487807, 10: 0.518701}
    assert {row["k"]: row["value"] for row in actual} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "convention",
    ["default", "default;ties=best", "default;ties=worst", "default;ties=item_asc", "default;ties=item_desc",
     "default;ties=input_order", "default;unjudged=condensed", "default;ideal=retrieved;missing_query=drop"],
)  # fmt: skip
def test_structs_with_scores_are_a_long_table_with_scores(convention):
    rows = lists(2)
    run, judgments = long_tables(rows)
    metrics = [metric for metric in METRICS if metric.startswith(("ndcg", "p", "r@"))]
    options = {"convention": convention, "metrics": metrics}
    by_lists = evaluate(graded(rows), **BOTH, **options)
    by_rows = evaluate(run, judgments, order="place" if "input_order" in convention else None, **options)
    assert means(by_lists) == means(by_rows)
    assert of_queries(by_lists) == of_queries(by_rows)


COUNTRY = pa.array([("DE", "FR")[at % 2] for at in range(40)])
SPARK_READS = {
    "scores and grades": ((with_columns(graded(lists(3, twice=True)), country=COUNTRY, w=2.0),),
                          {**BOTH, "convention": "default;duplicates=first;ties=item_asc", "segments": "country",
                           "weight": "w", "metrics": ["ndcg@3", "r@3"]}),
    "ids without a key": ((in_order(lists(1)).drop_columns(["query_id"]),),
                          {**BOTH, "convention": "trec_eval", "metrics": METRICS}),
    "several columns": ((in_order(lists(5)),), {"ranked": ["ranked", "other"], "relevant": "relevant",
                                                "metrics": "ndcg@3,ap"}),
    "scores beside judgments": ((graded(lists(6)).drop_columns(["relevant"]), long_tables(lists(6))[1]),
                                {"ranked": "ranked", "metrics": "ndcg@3,ap"}),
    "ids beside lists": ((in_order(lists(6)).drop_columns(["relevant"]),
                          with_columns(in_order(lists(6)).select(["query_id", "relevant"]), country=COUNTRY)),
                         {**BOTH, "metrics": "ndcg@3,ap", "segments": "country"}),
}  # fmt: skip


@pytest.mark.parametrize("form", SPARK_READS)
def test_spark_gives_the_rows_of_this_machine(spark, form):
    tables, options = SPARK_READS[form]
    here, there = (evaluate(*tables, engine=engine, **options) for engine in ("local", "spark"))
    assert means(here) == means(there)
    assert "query_id" in tables[0].column_names or "query_id" not in there.per_query.columns
    if "query_id" in tables[0].column_names:
        assert of_queries(here) == of_queries(there)


def test_rows_without_a_key_are_queries():
    """The numbers are those of rows with a key; what needs one is refused by name."""
    keyed = in_order(lists(4))
    nameless = keyed.drop_columns(["query_id"])
    options = {**BOTH, "metrics": "ndcg@3,ap"}
    evaluation = evaluate(nameless, **options)
    assert means(evaluation) == means(evaluate(keyed, **options))
    assert "query_id" not in evaluation.per_query.column_names
    assert len(evaluation.per_query_table) > 0
    both = evaluate(nameless, **options | {"ranked": ["ranked", "other"]})
    assert {mean for mean in means(both) if mean[0] == "ranked"} == {
        ("ranked", *mean[1:]) for mean in means(evaluation)
    }
    assert catch_refusal(KINDS, evaluate, nameless, **options, sample=0.5).startswith(
        "sample needs a query column: name it"
    )
    assert "'q'" in catch_refusal(MissingColumnError, evaluate, keyed, query="q", **options)  # as it was named


def test_what_needs_no_key_and_what_does_on_spark(spark):
    table = spark.createDataFrame(graded(lists(4)).drop_columns(["query_id"]))
    options = {**BOTH, "metrics": "ndcg@3,ap"}
    actual, settings = evaluate(table, **options), evaluation_settings(**options)
    by_steps = score_queries(rank_queries(table, settings), settings)
    assert by_steps.columns == actual.per_query.columns
    assert by_steps.count() == actual.per_query.count()
    assert "NDCG@3" in report(actual, metric="ndcg@3").html
    assert actual.per_query_table.count() > 0
    said = catch_refusal(KINDS, compare, {"a": actual, "b": actual}, baseline="a", metrics="ndcg", k=3)
    assert "the lists have no query column" in said
    said = catch_refusal(KINDS, evaluate, table, **options | {"metrics": "coverage@3", "items": table})
    assert said.startswith("metric 'coverage@3' needs a query column: name it")


def test_a_long_table_without_its_query_column_is_none_of_lists():
    run, judgments = long_tables(lists(4, 3))
    assert "'query_id'" in catch_refusal(MissingColumnError, evaluate, run.drop_columns(["query_id"]), judgments)


def test_rows_with_nothing_in_both_lists_are_queries():
    """As for RankingEvaluator, which counts 0 for them."""
    data = table([(["a"], ["a"]), ([], [])], "ranked array<string>, relevant array<string>")
    for convention, expected in (("default", (1, 1.0)), ("mllib_binary", (2, 0.5))):
        actual = means(evaluate(data, **BOTH, k=3, convention=convention))
        assert {(element[4], element[5]) for element in actual if element[2] == "ndcg"} == {expected}


def test_metrics_of_items_are_those_of_the_long_table(spark):
    rows = lists(8)
    run, judgments = long_tables(rows)
    items = table(
        [(f"i{at}", [float(at % 3), 1.0], [f"c{at % 4}"]) for at in range(12)],
        "item_id string, vector array<double>, categories array<string>",
    )
    options = {"metrics": ["ild@3", "coverage@3", "entropy@3", "ndcg@3"], "items": items}
    by_lists = evaluate(in_order(rows), **BOTH, **options)
    assert means(by_lists) == means(evaluate(run, judgments, rank="place", **options))


def test_several_columns_are_runs():
    """Each equal to its own evaluation."""
    data, options = in_order(lists(5)), {"relevant": "relevant", "metrics": "ndcg@3,ap"}
    both = evaluate(data, ranked=["ranked", "other"], **options)
    alone = {name: means(evaluate(data, ranked=name, **options)) for name in ("ranked", "other")}
    assert means(both) == {(name, *element[1:]) for name, group in alone.items() for element in group}


def test_judgments_beside_lists():
    rows = lists(6)
    run, judgments = long_tables(rows)
    options = {"metrics": "ndcg@3,ap"}
    for data, long in ((graded(rows), {}), (in_order(rows), {"rank": "place"})):
        evaluation = evaluate(data.drop_columns(["relevant"]), judgments, ranked="ranked", **options)
        assert means(evaluation) == means(evaluate(run, judgments, **long, **options))
    named_so = with_columns(in_order(rows).drop_columns(["relevant"]), rank="r", score=2.0)
    evaluation = evaluate(named_so, judgments, ranked="ranked", segments="rank", weight="score",
                     metrics="ndcg@3", convention="default;missing_query=drop")  # fmt: skip
    (of_segment,) = (row for row in collect_rows(evaluation.summary, "ndcg") if row["segment"] == "r")
    assert of_segment["weight_sum"] == 2.0 * of_segment["n_queries"] > 0


@pytest.mark.parametrize("engine", ["local", "spark", "window"], indirect=True)
def test_a_ranker_whose_lists_are_all_empty_is_told(engine):
    """Of two columns, beside judgments and with relevant items in the row; by a run column; it misses each query."""
    judgments = table([("p", "a", 1), ("q", "b", 1)], "query_id string, item_id string, relevance int")
    rows = [("p", ["a", "c"], [], ["a"]), ("q", ["c"], [], ["b"])]
    data = table(rows, "query_id string, x array<string>, y array<string>, own array<string>")
    beside, within = {"judgments": judgments}, {"relevant": "own"}
    for given in (beside,) if "strategy" in engine else (beside, within):  # windows do not rank lists
        rows = collect_rows(evaluate(data, ranked=["x", "y"], k=2, **given, **engine).summary, "ndcg")
        assert {row["run"]: (row["value"], row["n_queries"]) for row in rows} == {"x": (0.5, 2), "y": (0.0, 2)}
    rows = [("1", "p", ["a", "c"]), ("1", "q", ["c"]), ("2", "p", []), ("2", "q", [])]
    rows += [(None, "q", []), ("3", None, [])]
    data = table(rows, "ranker string, query_id string, x array<string>")
    named = evaluate(data, judgments, ranked="x", run="ranker", k=2, **engine)
    rows = collect_rows(named.summary, "ndcg")
    assert {row["run"]: (row["value"], row["n_missing"]) for row in rows} == {"1": (0.5, 0), "2": (0.0, 2)}
    of_run = {(row["run"], row["query_id"]): row["ndcg"] for row in collect_rows(named.per_query)}
    assert of_run == {("1", "p"): 1.0, ("1", "q"): 0.0, ("2", "p"): 0.0, ("2", "q"): 0.0}


def test_a_difference_is_explained_of_lists(spark):
    """From one table and from two, of which the other has judgments or lists; the convention needs an order."""
    rows = lists(9)
    run, judgments = long_tables(rows)
    alone, truth = graded(rows).drop_columns(["relevant"]), graded(rows).select(["query_id", "relevant"])
    actual = [
        collect_rows(explain_difference(given, "default", "default;duplicates=first", k=3, **options).steps)
        for given, options in (
            (run, {"judgments": judgments, "order": "place"}),
            (graded(rows), BOTH),
            (alone, {"judgments": judgments, "ranked": "ranked", "order": "place"}),  # of the judgments
            (alone, {"judgments": truth, **BOTH}),
        )
    ]
    steps = [[(row["part"], row["value"], row["n_queries"]) for row in group] for group in actual]
    assert steps[0] == steps[1] == steps[2] == steps[3]


def test_structs_with_ranks_are_in_their_order_wherever_they_stand():
    entries = "array<struct<rank: int, doc: string>>"
    schema = f"ranked {entries}, relevant array<string>, ids array<struct<id: string>>, long array<bigint>, "
    schema += "ints array<int>"
    data = table([([(2, "b"), (1, "a")], ["b"], [("b",)], [2], [1, 2])], schema)
    for options in ({"relevant": "relevant"}, {"relevant": "ids"}, {"relevant": "relevant", "relevance": "grade"},
                    {"ranked": "ints", "relevant": "long"}):  # fmt: skip
        assert values(evaluate(data, metrics="rr", **{"ranked": "ranked", **options})) == [0.5]
    bad = table([([(0, "b"), (0, "a")], ["b"])], f"ranked {entries}, relevant array<string>")
    assert "rank_below_1 1" in catch_refusal(InputRefusedError, evaluate(bad, **BOTH).to_pandas)


@pytest.mark.parametrize("kind", ["bigint", "int", "double", "date"])
def test_types_of_ids(kind):
    data = table([([1, 2], [2])], f"ranked array<{'int' if kind == 'date' else kind}>, relevant array<int>")
    cast = {name: data[name].cast(pa.list_(table([], f"x {kind}")["x"].type)) for name in BOTH}
    assert values(evaluate(with_columns(data, **cast), **BOTH, metrics="rr@3")) == [0.5]


def test_lists_in_other_forms():
    """Structs without a score are in rank order; ids are the first field; grades may be in structs."""
    data = table(
        [([("a", "A"), ("b", "B")], [("b", 2)], [("b", 2)])],
        "ranked array<struct<chunk: string, text: string>>, graded array<struct<id: string, relevance: int>>, "
        "other array<struct<id: string, grade: int>>",
    )
    expected = [3 / math.log2(3)]
    for options in ({"relevant": "graded"}, {"relevant": "other"}, {"relevant": "other", "relevance": "grade"}):
        evaluation = evaluate(data, ranked="ranked", metrics="dcg@3", **options)
        assert values(evaluation, "dcg") == pytest.approx(expected)


FIELDS = [("item: string, Score: double", (0.1, 0.9)), ("Item: string, RATING: double", (0.1, 0.9)),
          ("ID: string, Rank: int", (2, 1)), ("Item_Id: string, sCORE: int", (1, 2))]  # fmt: skip


@parametrize_engine("fields, first", local=FIELDS, spark=FIELDS[2:3])
def test_fields_of_structs_are_found_whatever_their_case(engine, fields, first):
    """b is first by its score or rank; in the order of the list it is second. Its grade is 2, its gain 3."""
    score, grade = fields.partition(", ")[2], fields.partition(":")[0]
    schema = f"query_id string, p array<struct<{fields}>>, l array<struct<{grade}: string, GRADE: int>>"
    data = table([("q", list(zip("ab", first, strict=True)), [("b", 2)])], schema)
    lists = {"ranked": "p", "relevant": "l", **engine}
    for tables in ((data,), (data.drop_columns(["l"]), data.select(["query_id", "l"]))):
        rows = collect_rows(evaluate(*tables, k=1, **lists).summary)
        assert {row["metric"]: row["value"] for row in rows} == {"ndcg": 1.0, "dcg": 3.0, "idcg": 3.0}
    named_so = evaluate(data, relevance="grade", item=grade.lower(), metrics="dcg@1", **lists)
    assert collect_rows(named_so.summary)[0]["value"] == 3.0
    if "Rank" not in score:
        by = evaluate(data, score=score.partition(":")[0].upper(), metrics="dcg@1", **lists)
        assert collect_rows(by.summary)[0]["value"] == 3.0


def test_fields_that_differ_in_case_alone(spark):
    """Refused, but where Spark tells them apart."""
    table = spark.sql("SELECT 'q' AS query_id, array('b') AS l, from_json('[]', 'array<struct<i: string>>') AS p")
    schema = "array<struct<i: string, Score: double, score: double>>"
    with session_settings(spark, spark__sql__caseSensitive="true"):
        table = table.withColumn("p", F.expr(f'from_json(\'[{{"i": "a", "Score": 1, "score": 2}}]\', \'{schema}\')'))
        assert evaluate(table, ranked="p", relevant="l", metrics="p@1").summary.first()["value"] == 0.0
    said = catch_refusal(InputRefusedError, evaluate, table, ranked="p", relevant="l")
    assert said == "column 'p' has structs with fields Score and score, which Spark treats as one name; rename one."


def test_arrays_of_structs_with_fields_in_another_case(engine):
    """Their items are looked at for duplicates, too."""
    schema = "query_id string, relevance array<struct<Item: string, Relevance: int>>"
    assert values(evaluate(table([("q", [("a", 0), ("b", 1)])], schema), metrics="rr", **engine)) == [0.5]
    twice = evaluate(table([("q", [("a", 0), ("a", 1)])], schema), **engine)
    assert "an item appears twice in the list" in catch_refusal(InputRefusedError, twice.to_pandas)


RENAMED = [("item_id", {}), ("country", {"segments": "country"}), ("w", {"weight": "w"}),
           ("pos", {"order": "pos", "convention": "lightgbm"}), ("query_id", {}), ("score", {}),
           ("relevance", {})]  # fmt: skip


@parametrize_engine("renamed, options", local=RENAMED, spark=RENAMED[1:2])
def test_columns_in_another_case_are_refused_by_name(engine, renamed, options):
    """Also those that a table may lack, which would be as if they were not there."""
    data = table(
        [("q", "a", 1.0, 1, "DE", 1.0, 1)],
        "query_id string, item_id string, score double, relevance int, country string, w double, pos int",
    )
    options = {**options, **engine}
    assert values(evaluate(data, **options))

    def in_capitals(given: pa.Table) -> pa.Table:
        return given.rename_columns({renamed: renamed.upper()})

    said = catch_refusal(KINDS, evaluate, in_capitals(data), **options)
    assert repr(renamed) in said
    assert repr(renamed.upper()) in said
    if renamed in ("country", "w"):  # each of two tables may have it
        run, judged = data.drop_columns(["relevance"]), data.select(["query_id", "item_id", "relevance", renamed])
        for tables in ((in_capitals(run), judged), (run, in_capitals(judged))):
            said = catch_refusal(InputRefusedError, evaluate, *tables, **options)
            assert f"column {renamed!r} is named {renamed.upper()!r}" in said


def test_a_rank_and_a_query_of_lists_in_another_case():
    data = table([("q", "a", 2, 1)], "query_id string, item_id string, RANK int, relevance int")
    assert values(evaluate(data, metrics="rr")) == [0.5]
    named = table([("q", ["a"], ["a"])], "QUERY_ID string, p array<string>, l array<string>")  # not without a query
    assert "'QUERY_ID'" in catch_refusal(MissingColumnError, evaluate, named, ranked="p", relevant="l")


# --- In two tables

TRUTHS = {
    "ids": ("array<string>", list),
    "structs": ("array<struct<movie: string, rating: int>>", lambda its: [*its.items()]),
    "map": ("map<string, int>", dict),
}


@parametrize_engine("form", local=TRUTHS, spark=["structs"], window=["map"])
def test_lists_in_two_tables_by_hand(engine, form):
    """p finds b on rank 2, with grade 2; q is not recommended; r is not in the truth, s has an empty list there.

    DCG@2 of p is 3 / log2(3), IDCG is 3 + 1 / log2(3); with ids alone 1 / log2(3) and 1 + 1 / log2(3).
    """
    recommended = table([("p", ["a", "b"]), ("r", ["a"]), ("s", ["b"])], "user string, recommendations array<string>")
    grades = [("p", {"b": 2, "c": 1}), ("q", {"a": 1}), ("s", {})]
    kind, made = TRUTHS[form]
    truth = table([(user, made(group)) for user, group in grades], f"user string, items {kind}")
    options = {"query": "user", "ranked": "recommendations", "relevant": "items", "k": 2, **engine}
    evaluation = evaluate(recommended, truth, **options)
    of_users = {row["user"]: (row["status"], row["ndcg"]) for row in collect_rows(evaluation.per_query)}
    gain = 1 if form == "ids" else 3
    expected = gain / math.log2(3) / (gain + 1 / math.log2(3))
    assert of_users == {"p": ("evaluated", pytest.approx(expected)), "q": ("missing", 0.0), "r": ("unjudged", None),
                        "s": ("unjudged", None)}  # fmt: skip
    (row,) = collect_rows(evaluation.summary, "ndcg")
    assert (row["value"], row["n_queries"], row["n_missing"], row["n_unjudged"]) == (
        pytest.approx(expected / 2), 2, 1, 2,
    )  # fmt: skip
    other = evaluate(recommended, truth, convention="default;missing_query=drop;unjudged_query=zero", **options)
    (row,) = collect_rows(other.summary, "ndcg")
    assert (row["value"], row["n_queries"]) == (pytest.approx(expected / 3), 3)


def test_segments_and_weights_of_lists_in_two_tables():
    """As of the long tables, from either table."""
    rows = [row for row in lists(10) if row["items"]]
    run, judgments = long_tables(rows)
    of_query = {one["query"]: ("DE", "FR")[at % 2] for at, one in enumerate(rows)}
    judgments = with_columns(
        judgments, country=pa.array([of_query[row] for row in judgments["query_id"].to_pylist()]), w=2.0
    )
    truth = graded(rows).select(["query_id", "relevant"])
    truth = with_columns(truth, country=pa.array([*of_query.values()]), w=2.0)
    options = {"metrics": "ndcg@3,ap", "segments": "country", "weight": "w"}
    evaluation = evaluate(graded(rows).select(["query_id", "ranked"]), truth, **BOTH, **options)
    assert means(evaluation) == means(evaluate(run, judgments, **options))


def test_lists_in_two_tables_are_compared(spark):
    rows = lists(10)
    recommended, truth = in_order(rows).drop_columns(["relevant"]), graded(rows).select(["query_id", "relevant"])
    options = {"relevant": "relevant", "metrics": "ndcg@3", "engine": "spark"}
    of_runs = evaluate(recommended, truth, ranked=["ranked", "other"], **options)
    assert {row["run"] for row in compare(of_runs, baseline="ranked").summary.collect()} == {"other"}


@parametrize_engine("convention", local=["default"], spark=["default;duplicates=best"])
def test_a_query_in_two_rows_of_the_truth_is_refused(engine, convention):
    """Whatever is in its lists; unless nothing is checked, which makes one list of them."""
    recommended = table([("q", ["a", "b"])], "query_id string, p array<string>")
    schema, nameless = "query_id string, l array<string>", [(None, ["a"]), (None, ["a"])]  # which are not one query
    known = table([("q", ["a"]), ("q", ["b"])], schema)
    options = {"ranked": "p", "relevant": "l", "metrics": "r@2", "convention": convention, **engine}

    def refused() -> None:
        evaluate(recommended, known, **options).to_pandas()

    said = catch_refusal(InputRefusedError, refused)
    assert said.startswith("query query_id=q comes in 2 rows; a table of relevant items must have one row per query.")
    if "duplicates=best" not in convention:
        assert values(evaluate(recommended, known, **options, check_duplicates="none")) == [1.0]
    evaluation = evaluate(recommended, table([("q", ["a"]), *nameless], schema), on_invalid="reject", **options)
    assert values(evaluation) == [1.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"relevant": "m"}, "column 'm' (relevant=) is not in the judgments, which has: query_id, l, numbers, text"),
        ({"relevant": "numbers"}, "items are string in column 'p' and bigint in column 'numbers'"),
        ({"relevant": "text"}, "must be an array of ids, an array of structs"),
        ({"relevant": "p"}, "but there is also a judgments table; remove one of them, or drop the column"),
        ({"query": "user"}, "column 'user' (query=) is not in the input"),
    ],
    ids=lambda element: str(element)[:40],
)
def test_what_two_tables_of_lists_lack(change, said):
    recommended = table([("q", ["a"])], "query_id string, p array<string>")
    truth = table([("q", ["a"], [1], "a")], "query_id string, l array<string>, numbers array<bigint>, text string")
    assert said in catch_refusal(KINDS, evaluate, recommended, truth, **{"ranked": "p", "relevant": "l"} | change)


TEXTS, VOID = ("array<string>", ["a", "b"]), ("array<void>", [])
EMPTY = {
    "no relevant items": (TEXTS, VOID, ("unjudged", None)),
    "nothing recommended": (VOID, ("array<string>", ["a"]), ("missing", 0.0)),
    "nothing recommended, numbers": (VOID, ("array<int>", [7]), ("missing", 0.0)),
    "structs": (("array<struct<id: string, score: double>>", [("a", 1.5)]), VOID, ("unjudged", None)),
}


APART = [(case, apart) for case in EMPTY.values() for apart in (False, True)]


@parametrize_engine("case, apart", local=APART, spark=[APART[4]])
def test_lists_that_are_all_empty_have_any_type(engine, case, apart):
    """In one table, or in two."""
    ranked, relevant, expected = case
    data = table([("q", ranked[1], relevant[1])], f"query_id string, p {ranked[0]}, l {relevant[0]}")
    tables = (data.drop_columns(["l"]), data.drop_columns(["p"])) if apart else (data,)
    rows = collect_rows(evaluate(*tables, ranked="p", relevant="l", k=2, **engine).per_query)
    assert [(row["status"], row["ndcg"]) for row in rows] == [expected]


def test_a_map_without_entries_has_any_type(spark):
    """Arrow has none without a type."""
    table = spark.sql("SELECT 'q' AS query_id, array('a', 'b') AS p, map() AS l")
    for tables in ((table,), (table.drop("l"), table.drop("p"))):
        assert evaluate(*tables, ranked="p", relevant="l", k=2).per_query.first()["status"] == "unjudged"


def test_empty_lists_beside_a_table_of_judgments_and_arrays_without_relevances(engine):
    recommended = table([("q", [])], "query_id string, p array<void>")
    judgments = table([("q", 7, 1)], "query_id string, item_id int, relevance int")
    both = table([("q", [], [], [])], "query_id string, p array<void>, l array<void>, relevance array<void>")
    for tables, options, status in (
        ((recommended, judgments), {"ranked": "p"}, "missing"),
        ((both,), {"ranked": "p", "relevant": "l"}, "unjudged"),
        ((both,), {}, "unjudged"),
    ):
        assert collect_rows(evaluate(*tables, **options, **engine).per_query)[0]["status"] == status


BAD = [("null_item", ["a", None], ["a"]), ("null_item", ["a"], ["a", None]), ("null_list", None, ["a"]),
       ("null_list", ["a"], None)]  # fmt: skip


@parametrize_engine("reason, ranked, relevant", local=BAD, spark=BAD[1:2])
def test_bad_rows_of_lists(engine, reason, ranked, relevant):
    data = table([("p", "DE", ["a"], ["a"]), ("q", "DE", ranked, relevant)], IDS)
    options = {**BOTH, "metrics": "rr@3", **engine}
    assert f"{reason} 1 (e.g. query_id=q)" in catch_refusal(InputRefusedError, evaluate(data, **options).to_pandas)
    for element in (data, data.drop_columns(["query_id"])):
        (row,) = collect_rows(evaluate(element, on_invalid="reject", **options).summary)
        assert (row["value"], row["n_queries"], row["n_rejected"], row["n_lost_queries"]) == (1.0, 1, 1, 1)


@pytest.mark.parametrize("engine", ["local", "window"], indirect=True)
def test_a_bad_entry_of_a_list_beside_judgments_is_a_row_of_its_own(engine):
    """As of the long table: the others stay. Of p and q NDCG is 1; a null list leaves r without results."""
    judgments = table(
        [(*element, 1) for element in ("pa", "qb", "rc")], "query_id string, item_id string, relevance int"
    )
    data = table([("p", ["a"]), ("q", ["b", None]), ("r", None)], "query_id string, ranked array<string>")
    evaluation = evaluate(data, judgments, ranked="ranked", k=2, on_invalid="reject", **engine)
    (row,) = collect_rows(evaluation.summary, "ndcg")
    assert (row["value"], row["n_missing"], row["n_rows"], row["n_rejected"]) == (2 / 3, 1, 2, 2)


@pytest.mark.parametrize(
    ("score", "grade", "reason"),
    [(math.nan, 1, "nan_score"), (None, 1, "null_score"), (1.0, -1, "negative_relevance")],
)
def test_bad_scores_and_grades_of_lists(score, grade, reason):
    data = graded([{"query": "q", "items": ["a"], "scores": [score], "judged": {"a": grade}}])
    evaluation = evaluate(data, **BOTH, convention="default;negative=error")
    assert f"{reason} 1 (e.g. query_id=q)" in catch_refusal(InputRefusedError, evaluation.to_pandas)


@pytest.mark.parametrize(
    ("ranked", "relevant", "kind"),
    [(["a", "a"], ["a"], "ranked list"), (["a"], ["b", "b"], "list of relevant items")],
)
def test_an_item_twice_is_refused_unless_a_rule_says_which_counts(ranked, relevant, kind):
    data = table([("q", "DE", ranked, relevant)], IDS)
    said = catch_refusal(InputRefusedError, evaluate(data, **BOTH).to_pandas)
    assert said.startswith(f"an item appears twice in the {kind} of query query_id=q. Remove it, or choose which")
    said = catch_refusal(InputRefusedError, evaluate(data.drop_columns(["query_id"]), **BOTH).to_pandas)
    assert f"of query [{', '.join(ranked)}] (there is no query column)" in said
    assert values(evaluate(data, check_duplicates="none", **BOTH))


def test_a_query_in_two_rows_is_found_by_check_duplicates_all(spark):
    data = table([("q", "DE", ["a"], ["a"])] * 2, IDS)
    said = catch_refusal(InputRefusedError, evaluate(data, check_duplicates="all", **BOTH).to_pandas)
    assert said.startswith("query query_id=q comes in 2 rows")


ODD = table(
    [("q", "DE", ["a"], ["a"], ["a"], [1], 1, [("a", 1.0)], [("a", "high")], [(1.0, 1.0)], [("a", 1)], (1,), [("a",)],
      [((1,),)])],
    f"{IDS}, other array<string>, numbers array<int>, place int, scored array<struct<id: string, score: double>>, "
    "texts array<struct<id: string, score: string>>, scores array<struct<score: double, rating: double>>, "
    "pairs array<struct<id: string, position: int>>, struct struct<a: int>, ids array<struct<id: string>>, "
    "nested array<struct<a: struct<b: int>>>",
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranked": "ranked"}, "need relevant items: name a column"),
        ({"ranked": "scored", "relevant": "relevant", "item": "doc"}, "none is 'doc' (item=)"),
        ({"ranked": "scored", "relevant": "relevant", "score": "sim"}, "none is 'sim' (score=)"),
        ({"ranked": "ranked", "relevant": "relevant", "score": "sim"}, "has only ids, without 'sim' (score=)"),
        ({"ranked": "pairs", "relevant": "relevant", "score": "rating"}, "none is 'rating' (score=)"),  # a usual name
        ({"ranked": "ranked", "relevant": "ids", "relevance": "grade"}, "none is 'grade' (relevance=)"),
        ({"ranked": "scores", "relevant": "relevant"}, "none is 'item_id' (item=)"),
        ({"ranked": "ranked", "relevant": "scores"}, "none is 'item_id' (item=)"),
        ({"ranked": "ranked", "relevant": "pairs"}, "none is called relevance or grade or rating"),
        ({"ranked": "ranked", "relevant": "struct"}, "a dict of pandas or json is not a map"),
        ({"ranked": "ranked", "relevant": "relevant", "query": (), "rank": "place"}, "remove rank="),
        ({"ranked": 5, "relevant": "relevant"}, "must be a name or a list of names"),
        ({"ranked": "ranked", "relevant": "relevant", "query": (), "sample": 0.5}, "sample needs a query column"),
        ({"ranked": "nested", "relevant": "relevant"}, "an array of ids, or of structs with an id; it is array<"),
        ({"ranked": "ranked", "relevant": "relevant", "judged": True}, "but there is also a judgments table"),
        ({"ranked": "ranked", "judged": True, "item": None}, "joining judgments needs an item column (item=)"),
        ({"ranked": "ranked", "judged": True, "query": ()}, "joining judgments needs a query column (query=)"),
        ({"ranked": "ranked", "judged": True, "query": "queryid"}, "which has: query_id, country, ranked, relevant"),
        ({"relevant": "relevant"}, "name the column of these lists, too (ranked=), or remove it"),
        ({"ranked": "country", "relevant": "relevant"}, "an array of ids, or of structs with an id; it is string"),
        ({"ranked": "ranked", "relevant": "country"}, "or a map from id to grade; it is string"),
        ({"ranked": "ranked", "relevant": "numbers"}, "cast one of them to the type of the other"),
        ({"ranked": ["ranked", "ranked"], "relevant": "relevant"}, "names a column twice"),
        ({"ranked": ["ranked", "other"], "relevant": "relevant", "run": "country"}, "remove run="),
        ({"ranked": "ranked", "relevant": "relevant", "rank": "place"}, "remove rank="),
        ({"ranked": "ranked", "relevant": "relevant", "score": ["a", "b"]}, "remove score="),
        ({"ranked": ["ranked", "scored"], "relevant": "relevant"}, "mix scores, ranks and ids without numbers"),
        ({"ranked": "texts", "relevant": "relevant"}, "are string; cast them to numbers"),
        ({"ranked": "scored", "relevant": "relevant", "metrics": "bpref"}, "needs an order of tied items"),
    ],
    ids=lambda element: str(element)[:60],
)
def test_what_cannot_be_evaluated_is_refused_at_once(options, said):
    options = dict(options)
    if options.pop("judged", False):
        options["judgments"] = table([("q", "a", 1)], "query_id string, item_id string, relevance int")
    assert said in catch_refusal(KINDS, evaluate, ODD, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metrics": "alpha_ndcg"}, "lists of relevant items have no topics"),
        ({"source": "parquet"}, "has lists"),
    ],
)
def test_what_spark_cannot_evaluate_is_refused_at_once(spark, options, said):
    assert said in catch_refusal(KINDS, evaluate, ODD, engine="spark", **BOTH | options)


# --- By a job


def values_by_cutoff(rows) -> set[tuple]:
    return {(row["metric"], row["k"], row["value"]) for row in rows}


def test_a_job_takes_lists(tmp_path):
    """Its means are those of the function; a bad row is counted and kept."""
    rows = lists(7)
    data = graded(rows)
    judged, without_list = long_tables(rows)[1], with_columns(data[:1], ranked=pa.nulls(1, data["ranked"].type))
    tables = {"lists": pa.concat_tables([data, without_list]), "unnamed": data.drop_columns(["query_id"])}
    for name, one in {**tables, "judged": judged}.items():
        pq.write_table(one, tmp_path / f"{name}.parquet")
    expected = values_by_cutoff(collect_rows(evaluate(data, **BOTH, k=[1, 3]).summary))
    flags = ["--ranked-cols", "ranked", "--k", "1,3", "--json", "-", "--engine", "local"]
    within, kept = ["--relevant-col", "relevant"], ["--on-invalid", "reject", "--rejects", tmp_path / "rejects"]
    actual = run_mean_ndcg("--input", tmp_path / "lists.parquet", *flags, *within, *kept).json
    assert values_by_cutoff(actual["metrics"]) == expected
    assert (actual["rows"]["read"], actual["rows"]["rejected"]) == (41, 1)
    rejected = read_stored_rows(tmp_path / "rejects")
    assert [(row["reason"], json.loads(row["row"])["query_id"]) for row in rejected] == [("null_list", "q0")]

    ended = run_mean_ndcg("--input", tmp_path / "unnamed.parquet", *flags, *within)
    assert values_by_cutoff(ended.json["metrics"]) == expected
    unjudged = [row["n_unjudged_items"] for row in ended.json["metrics"]]
    assert min(unjudged) > 0  # which these lists say of whatever is not relevant, so that no line tells
    assert "unjudged; see" not in ended.out
    beside = ["--judgments", tmp_path / "judged.parquet"]
    ended = run_mean_ndcg("--input", tmp_path / "lists.parquet", *beside, *flags, *kept)
    assert "among the first 3 are unjudged; see the metric judged@3" in ended.out
    function = evaluate(data, judged, ranked="ranked", k=[1, 3], on_invalid="reject")
    assert ended.json["config_hash"] == function.provenance["config_hash"]
    assert values_by_cutoff(ended.json["metrics"]) == expected


def test_a_job_takes_lists_in_two_tables(spark, tmp_path):
    """Its means are those of one table; a bad entry of the truth is a bad row of the judgments, counted and kept."""
    rows = lists(11)
    cells = [(row["query"], row["items"], [*row["judged"]]) for row in rows]
    data = table(cells, "query_id string, ranked array<string>, items array<string>")
    expected = evaluate(data, ranked="ranked", relevant="items", k=[1, 3]).summary
    truth = table([(query, [*items, None] if query == "q0" else items) for query, _, items in cells],
                  "query_id string, items array<string>")  # fmt: skip
    pq.write_table(truth, tmp_path / "truth.parquet")
    pq.write_table(data.drop_columns(["items"]), tmp_path / "lists.parquet")
    rejects = tmp_path / "rejects"
    flags = ["--input", tmp_path / "lists.parquet", "--judgments", tmp_path / "truth.parquet", "--k", "1,3"]
    flags += ["--ranked-cols", "ranked", "--relevant-col", "items"]
    assert_refused(run_command("mean-ndcg", *flags), "1 bad row", "null_item 1 (e.g. query_id=q0", "judgments")
    actual = run_mean_ndcg(*flags, "--on-invalid", "reject", "--rejects", rejects, "--json", "-").json
    assert values_by_cutoff(actual["metrics"]) == values_by_cutoff(collect_rows(expected))
    assert actual["judgment_rows"]["rejected"] == {"null_item": 1}
    assert [row["reason"] for row in read_stored_rows(rejects)] == ["null_item"]

    pq.write_table(data.drop_columns(["query_id"]), tmp_path / "unnamed.parquet")
    unnamed = ("--input", tmp_path / "unnamed.parquet", "--ranked-cols", "ranked", "--relevant-col", "items")
    assert_refused(run_command("compare-runs", *unnamed), "name the column (--query-col)")


def test_a_query_in_two_rows_of_lists_beside_judgments_is_refused():
    """Each place of its list is there twice."""
    lists = table([("q", ["a", "b"]), ("q", ["c", "d"]), ("p", ["a"])], "query_id string, found array<string>")
    judged = table([("q", ["a"]), ("p", ["a"])], "query_id string, relevant array<string>")
    options = {"ranked": "found", "relevant": "relevant", "check_duplicates": "none"}
    with pytest.raises(InputRefusedError, match=r"query_id=q has two items on one rank; .* of the query\.$"):
        evaluate(lists, judged, **options).summary  # noqa: B018  # it is evaluated when it is asked for
