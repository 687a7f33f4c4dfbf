"""Comparisons by Spark: hashes of keys, schemas, types, laziness, and the same bits for any partitioning."""

from __future__ import annotations

import html
import math
from datetime import date

import pytest
from pyspark.sql import functions as F
from support.comparing import example_1, hash_key
from support.expectations import near

from ndcg_spark import compare, evaluate, readable_errors
from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
from ndcg_spark.comparison.frames import hash_keys as spark_hash
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.sources.api import select_slice

NAMES = ("a", "b", "c")
SCHEMA = "run string, query_id string, k int, ndcg double, dcg double, weight double, country string, user string"
PLAIN = {"replicates": 0, "flips": 0}


@pytest.fixture(scope="module")
def weighted(spark):
    rows = [
        (NAMES[r["run"]], r["query"], 10, r["value"], 2 * r["value"], r["weight"], r["country"], r["user"])
        for r in example_1(with_c=True)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def sorted_rows(frame, *, by=("baseline", "run", "segment_by", "segment", "metric", "k")):
    return [row.asDict() for row in frame.orderBy(*by).collect()]


def test_the_hash_of_keys_is_the_definition(spark):
    frame = spark.createDataFrame([("q01", "s1", "shoes", 7)], "q string, s string, c string, n int")
    hashed = frame.select(
        spark_hash([F.col("q")]), spark_hash([F.col("s"), F.col("c")]), spark_hash([F.col("n").cast("string")])
    ).first()
    expected = [0x9F1351CFBEA4F3F7, 0xBBC10728CE977E93, hash_key("7")]
    assert [element % 2**64 for element in hashed] == expected


def test_the_worked_example_and_how_it_shows_itself(weighted, capsys):
    """Stored weights are used unless weight='' says otherwise."""
    table = weighted.drop("weight")
    result = compare(table, baseline="a", runs=["a", "b"], metrics="ndcg@10", segments="country", replicates=1000)
    assert result.summary.schema == COMPARISON_SCHEMA
    rows = sorted_rows(result.summary)
    assert [(row["run"], row["segment"]) for row in rows] == [("b", s) for s in ("", "DE", "FR", "US")]
    assert (rows[0]["difference"], rows[0]["p_value"]) == (near(0.071666666667), near(0.019159835596))
    assert (rows[0]["boot_low"], rows[0]["boot_t_low"]) == (near(0.022714646424), near(0.020274137492))
    assert (rows[0]["p_sign_flip"], rows[3]["std_error"]) == (0.021484375, near(0.039660013448))
    assert repr(result).splitlines() == [
        "Comparison: b against a; ndcg@10, by country",
        "tests at 0.05: t, 9,999 sign flips, 1,000 bootstrap replicates, seed 42; queries that one run lacks: zero",
        "lazy: summary (differences); each action on it compares anew",
    ]
    assert result._repr_html_() == f"<pre>{html.escape(repr(result))}</pre>"
    result.show(1)
    assert capsys.readouterr().out.splitlines()[-1] == "... and 3 more; show(4) prints all rows"
    assert result.to_pandas()["segment"].tolist() == ["overall", "country=DE", "country=FR", "country=US"]
    assert result._repr_html_().count("<tr") == 5
    for weight, difference in ((None, 0.065), ("", 0.071666666667)):
        (row,) = sorted_rows(
            compare(weighted, baseline="a", runs="b", metrics="ndcg", weight=weight, **PLAIN).summary
        )
        assert row["difference"] == near(difference)


@pytest.mark.parametrize("cluster", [None, "user"])
def test_the_same_bits_at_any_number_of_partitions(spark, weighted, cluster):
    many = weighted.crossJoin(spark.range(40).withColumnRenamed("id", "n")).withColumn(
        "query_id", F.concat("query_id", F.col("n").cast("string"))
    )
    many = many.withColumn("ndcg", F.col("ndcg") + F.col("n") * F.length("run") / 977).withColumn(
        "user", F.concat("user", (F.col("n") % 7).cast("string"))
    )
    options = {"baseline": "a", "segments": ["country"], "replicates": 200, "flips": 300, "weight": "weight"}
    results = []
    for n in (1, 7, 64):
        spark.conf.set("spark.sql.shuffle.partitions", str(n))
        spark.conf.set("spark.sql.adaptive.enabled", str(n == 1).lower())
        try:
            results.append(
                sorted_rows(compare(many.repartition(n), runs=["a", "b"], cluster=cluster, **options).summary)
            )
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "2")
            spark.conf.unset("spark.sql.adaptive.enabled")
    assert len(results[0]) == 8
    assert results[0] == results[1] == results[2]


def test_keys_of_other_types_are_refused(spark):
    """As texts 1 and 1.0 are no pair: every query would count as one that only one run has."""
    whole = spark.createDataFrame([(1, 3, 0.5), (2, 3, 0.25)], "query_id int, k int, ndcg double")
    others = {
        kind: whole.withColumn("query_id", whole.query_id.cast(kind)) for kind in ("bigint", "double", "string")
    }
    more = {"baseline": "x", "metrics": "ndcg", **PLAIN}
    (row,) = compare({"x": whole, "y": others["bigint"]}, **more).summary.collect()
    assert (row["n_queries"], row["difference"]) == (2, 0)
    for kind in ("double", "string"):
        with pytest.raises(InputRefusedError, match=f"'query_id' is int in run 'x' and {kind} in run 'y'; cast one"):
            compare({"x": whole, "y": others[kind]}, **more)


def test_evaluations_and_their_bad_rows(spark):
    """Bad rows are those of a run that is compared and does not leave them out."""
    rows = [("q", "x", math.nan, 1.0), ("q", "y", 1.0, 0.0), ("r", "x", 2.0, 0.0), ("r", "y", 1.0, 1.0)]
    bad = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance double")
    good = bad.fillna(0.5, "score")
    long = good.crossJoin(spark.createDataFrame([("a", 1), ("b", -1)], "ranker string, sign int"))
    long = long.withColumn("score", F.col("sign") * F.col("score")).drop("sign")
    several = compare(evaluate(long, run="ranker", k=1), baseline="a", **PLAIN)
    apart = {"a": evaluate(good, k=1), "b": evaluate(good.withColumn("score", -F.col("score")), k=1)}
    assert sorted_rows(compare(apart, baseline="a", **PLAIN).summary) == sorted_rows(several.summary)
    # NDCG@1 by a is 0 of both queries, by b 1.
    assert several.to_pandas()["difference"].tolist() == [1.0]
    runs = {"other": evaluate(bad), "a": evaluate(bad, on_invalid="reject"), "b": evaluate(bad)}
    result = compare(runs, baseline="a", runs="b", **PLAIN)
    assert list(result.evaluations) == ["a", "b"]
    with pytest.raises(InputRefusedError, match=r"^1 bad row of 4 in the data of run 'b': nan_score 1 "):
        result.to_pandas()


def test_refusals_are_one_line(weighted):
    twice = weighted.union(weighted.where("run = 'a' and query_id = 'q05'"))
    with pytest.raises(InputRefusedError) as refused, readable_errors():
        compare(twice, baseline="a", metrics="ndcg", replicates=0).summary.collect()
    message = "query query_id=q05 appears twice in run 'a' at k=10; choose the rows of one night and data set."
    assert str(refused.value) == message
    with pytest.raises(InputRefusedError, match=r"^query query_id=q05 appears twice in run 'a'.*$") as refused:
        compare(twice, baseline="a", metrics="ndcg", replicates=0).show()
    assert refused.value.__cause__ is not refused.value


def test_data_sets_of_other_nights_do_not_count(spark):
    rows = [("2026-01-30", "shop"), ("2026-01-30", "blog"), ("2026-01-31", "shop")]
    table = spark.createDataFrame(rows, "run_date string, dataset string")
    assert select_slice(table, "T", night=date(2026, 1, 31), dataset=None).collect() == [("2026-01-31", "shop")]
    with pytest.raises(InputRefusedError, match="has 2 data sets, from blog to shop"):
        select_slice(table, "T", night=date(2026, 1, 30), dataset=None)
    with pytest.raises(
        InputRefusedError, match=r"has no rows of the night 2026-02-01 .* nights from 2026-01-30 to 2"
    ):
        select_slice(table, "T", night=date(2026, 2, 1), dataset=None)


def test_what_all_evaluations_have_is_compared(spark):
    """Other cutoffs and metrics are left out, as are metrics of the catalogue, which no query has."""
    rows = [("q1", "a", 0.9, 1), ("q1", "b", 0.5, 0), ("q2", "a", 0.9, 0), ("q2", "b", 0.5, 1)]
    table = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")
    items, order = table.select("item_id").distinct(), "default;ties=item_asc"
    one = evaluate(table, items=items, metrics="ndcg@1,ndcg@2,p@1,coverage@2", convention=order)
    two = evaluate(table.withColumn("score", -F.col("score")), metrics="ndcg@2,p@1,rr", convention=order)
    actual = compare({"one": one, "two": two}, baseline="one", replicates=0, flips=0).summary.collect()
    assert {(row["metric"], row["k"]) for row in actual if row["metric"] != "dcg"} == {("ndcg", 2), ("p", 1)}
    other = evaluate(table, metrics="rr", convention=order)
    with pytest.raises(InvalidParameterError, match="the evaluations have no per-query metric at a common cutoff"):
        compare({"one": one, "other": other}, baseline="one")


def test_a_query_without_a_list_has_no_diversity_in_any_form_of_input(spark):
    """A list of no items has no value of `ild`, so the query is left out: 10 of 12, whichever table names it."""
    categories = {"a": ["x"], "b": ["y"], "c": ["x"]}
    items = spark.createDataFrame(list(categories.items()), "item_id string, categories array<string>")
    queries = [f"q{n}" for n in range(12)]
    lists = {"A": dict.fromkeys(queries, ("a", "c")), "B": dict.fromkeys(queries[2:], ("a", "b"))}
    lists["B"]["q2"] = ("a", "c")
    run = [
        (name, query, item, 1.0 - place)
        for name, group in lists.items()
        for query, several in group.items()
        for place, item in enumerate(several)
    ]
    table = spark.createDataFrame(run, "run string, query_id string, item_id string, score double")
    judged = [(query, item, 1) for query in queries for item in categories]
    judgments = spark.createDataFrame(judged, "query_id string, item_id string, relevance int")
    options = {"items": items, "run": "run", "metrics": "ild(by=categories)@2", "convention": "default;ties=item_asc"}
    for result in (
        evaluate(table, judgments, **options),
        evaluate(table.withColumn("relevance", F.lit(1)), **options),
    ):
        row = compare(result, baseline="A", replicates=0, flips=0).summary.where("metric LIKE 'ild%'").first()
        assert (row["difference"], row["n_queries"], row["verdict"]) == (0.9, 10, "better")
