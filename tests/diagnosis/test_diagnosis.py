"""Diagnosis on Spark: two nights, lost gain, and the queries that changed most."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from support.expectations import near

from ndcg_spark import evaluate, readable_errors
from ndcg_spark.conventions import Convention
from ndcg_spark.diagnosis import changed_queries, score_losses, shift_of_means, summarize_losses
from ndcg_spark.errors import InputRefusedError, InvalidParameterError

SEGMENTS = {
    "a": {"DE": (700, 0.52), "US": (250, 0.44), "JP": (50, 0.31)},
    "b": {"DE": (600, 0.51), "US": (380, 0.45), "FR": (120, 0.30)},
}


def summarize_night(spark, name):
    """Summarize a night by country: a query weighs as much as a segment."""
    from ndcg_spark.evaluation import summarize
    from ndcg_spark.evaluation.api import evaluation_settings

    rows = [
        ("", f"{country}", 10, u, u, 1.0, "evaluated", 1, 0, float(w), country)
        for country, (w, u) in SEGMENTS[name].items()
    ]
    schema = (
        "run string, query_id string, k int, ndcg double, dcg double, idcg double, status string, n_rows bigint, "
        "n_left_out bigint, weight double, country string"
    )
    settings = evaluation_settings(k=10, segments=["country"], weight="weight")
    return summarize(spark.createDataFrame(rows, schema), settings).where("metric = 'ndcg'")


def test_the_worked_nights(spark):
    before, after = summarize_night(spark, "a"), summarize_night(spark, "b")
    rows = {(row["segment"], row["is_total"]): row for row in shift_of_means(before, after).collect()}
    assert rows["DE", False]["mix"] == near(-0.005728719008)
    assert rows["DE", False]["within"] == near(-0.006227272727)
    assert rows["US", False]["mix"] == near(-0.003143491736)
    assert (rows["FR", False]["mix"], rows["FR", False]["within"]) == (near(-0.019410743802), 0)
    assert (rows["JP", False]["mix"], rows["JP", False]["value_after"]) == (near(0.008396590909), None)
    total = rows["", True]
    assert (total["mix"], total["within"]) == (near(-0.019886363636), near(-0.00325))
    means = [frame.where("segment_by = ''").first()["value"] for frame in (before, after)]
    assert sum(row["mix"] + row["within"] for key, row in rows.items() if not key[1]) == pytest.approx(
        means[1] - means[0], abs=1e-15
    )


def test_metrics_without_states_are_left_out_and_text_states_refused(spark):
    """`coverage` by segment has no state; CSV files of a metric table have states as text."""
    nights = [summarize_night(spark, name) for name in ("a", "b")]
    both = [
        night.unionByName(
            night.withColumns({"metric": F.lit("coverage"), "state": F.lit(None).cast("array<bigint>")})
        )
        for night in nights
    ]
    assert sorted(shift_of_means(*both).collect()) == sorted(shift_of_means(*nights).collect())
    with pytest.raises(InputRefusedError, match="'state' of the metric table is string, not array<bigint>"):
        shift_of_means(nights[0], nights[1].withColumn("state", F.col("state").cast("string")))


@pytest.fixture(scope="module")
def rankings(spark):
    rows = [(f"q{n}", f"i{i}", float(-i), float((i * (n + 2)) % 7), (i * n) % 4, "DE" if n % 2 else "US")
            for n in range(1, 9) for i in range(6)]  # fmt: skip
    return spark.createDataFrame(
        rows, "query_id string, item_id string, old double, new double, relevance int, country string"
    )


def test_losses_and_ndcg_sum_to_1(rankings):
    result = evaluate(rankings, score=["old", "new"], k=[3, 6], segments=["country"])
    losses = score_losses(result.rankings, result.settings)
    for row in losses.collect():
        if row["ndcg"] is not None:
            assert row["lost_not_retrieved"] + row["lost_ranked_low"] == pytest.approx(1 - row["ndcg"], abs=1e-12)
    rows = summarize_losses(losses, result.settings).collect()
    means = {(row["run"], row["segment"], row["k"], row["metric"]): row["value"] for row in rows}
    assert {row["n_no_relevant"] for row in rows if not row["segment"]} == {2}  # q4 and q8 have nothing relevant
    for run, segment, k, metric in list(means):
        if metric == "ndcg":
            lost = means[run, segment, k, "lost_not_retrieved"] + means[run, segment, k, "lost_ranked_low"]
            profile = [means[run, segment, k, f"ndcg_rank_{rank}"] for rank in range(1, k + 1)]
            assert lost == pytest.approx(1 - means[run, segment, k, "ndcg"], abs=1e-12)
            assert sum(profile) == pytest.approx(means[run, segment, k, "ndcg"], abs=1e-12)
    assert ("old", "", 3, "ndcg_rank_4") not in means


def test_the_queries_that_changed_most(spark, rankings):
    long = rankings.select("*", F.expr("stack(2, 'old', old, 'new', new) as (ranker, score)"))
    plain = evaluate(long.drop("old", "new"), run="ranker", k=[3, 6])
    wide = evaluate(rankings, score=["old", "new"], k=[3, 6])
    judged = evaluate(
        long.drop("old", "new", "relevance"), run="ranker", k=[3, 6],
        judgments=rankings.select("query_id", "item_id", "relevance"),
    )  # fmt: skip
    values = {(row["run"], row["query_id"]): row["ndcg"] for row in wide.per_query.where("k = 3").collect()}
    differences = sorted((values["new", f"q{n}"] - values["old", f"q{n}"], f"q{n}") for n in range(1, 9))
    actual = []
    for result in (plain, wide, judged):
        rows = (
            changed_queries(result, baseline="old", run="new", n=2, k=3, depth=3).orderBy("change", "place").collect()
        )
        actual.append([(row["change"], row["place"], row["query_id"], row["difference"]) for row in rows])
        for row in rows:
            for listed, name in ((row["baseline_list"], "old"), (row["list"], "new")):
                scores = [row["score"] for row in listed]
                assert len(listed) == 3
                assert scores == sorted(scores, reverse=True), name
                assert {row["relevance"] for row in listed} <= {0, 1, 2, 3}
    assert actual[0] == actual[1] == actual[2]
    lost = [(place, query, value) for change, place, query, value in actual[0] if change == "lost"]
    expected = [(at + 1, query, value) for at, (value, query) in enumerate(differences[:2]) if value < 0]
    assert lost == expected


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("one table", {"convention": Convention(duplicates="best")}),
        ("one table", {"strategy": "window"}),
        ("judgments", {}),
        ("judgments", {"check_duplicates": "all"}),
    ],
)
def test_lists_of_changed_queries_are_the_rankings(rankings, options, form):
    """Judgments by every strategy; rejected rows are absent, even with the highest scores."""
    bad = rankings.limit(1).select(
        "query_id", F.lit("bad").alias("item_id"), F.expr("double('inf')").alias("old"), F.lit(0.5).alias("new"),
        "relevance", "country",
    )  # fmt: skip
    rows = rankings.unionByName(bad)
    judgments = rankings.select("query_id", "item_id", "relevance") if form == "judgments" else None
    data = rows.drop("relevance") if judgments is not None else rows
    result = evaluate(data, score=["old", "new"], k=3, judgments=judgments, on_invalid="reject", **options)
    for row in changed_queries(result, baseline="old", run="new", n=4, k=3, depth=9).collect():
        for listed in (row["baseline_list"], row["list"]):
            assert len([row for row in listed if row["item"] != "bad"]) == 6
            assert all(row["relevance"] is not None for row in listed if row["item"] != "bad")
        assert "bad" not in {cell["item"] for cell in row["baseline_list"]}


def test_changed_queries_of_a_run_without_rows_are_refused(rankings):
    """Otherwise all its queries would count as zeros and be the most changed."""
    long = rankings.select("*", F.expr("stack(2, 'old', old, 'new', new) as (ranker, score)")).drop("old", "new")
    result = evaluate(long, run="ranker", k=3)
    for baseline, run in (("typo", "new"), ("new", "typo")):
        with pytest.raises(InputRefusedError) as refused, readable_errors():
            changed_queries(result, baseline=baseline, run=run, n=2).collect()
        assert str(refused.value) == "run typo has no rows; the runs are new, old."
    wide = evaluate(rankings, score=["old", "new"], k=3)
    with pytest.raises(InvalidParameterError, match="baseline must be one of old, new; got 'typo'"):
        changed_queries(wide, baseline="typo", run="new")
    with pytest.raises(InvalidParameterError, match="one run without a name"):
        changed_queries(evaluate(rankings, score="old", k=3), baseline="old", run="new")


def test_diagnosis_refuses_unusable_results(rankings):
    result = evaluate(rankings, score=["old", "new"], k="all")
    with pytest.raises(InvalidParameterError, match="cutoffs that are numbers"):
        score_losses(result.rankings, result.settings)
    with pytest.raises(InvalidParameterError, match="metric must be one of dcg, idcg, ndcg; got 'ap'"):
        changed_queries(result, baseline="old", run="new", metric="ap")
    with pytest.raises(InvalidParameterError, match="n must be at least 1"):
        changed_queries(result, baseline="old", run="new", n=0)
    lists = rankings.selectExpr("query_id", "array(old) AS relevance", "stack(2, 'old', 'new') AS ranker")
    of_arrays = evaluate(lists, run="ranker", k=3)
    with pytest.raises(InvalidParameterError, match="changed queries need a long table, not one row per query"):
        changed_queries(of_arrays, baseline="old", run="new")
    with pytest.raises(InvalidParameterError, match="segment 'item_id' is not a segment column of the evaluation"):
        changed_queries(result, baseline="old", run="new", segments=["item_id"])
    padded = evaluate(rankings, score=["old", "new"], k=5, convention="default;ideal=as_many")
    with pytest.raises(
        InvalidParameterError,
        match="lost gain needs convention='default;ideal=judged', or retrieved; got ideal=as_many",
    ):
        score_losses(padded.rankings, padded.settings)


def test_changed_queries_need_a_value_and_a_weight(spark):
    """A list of one item has no diversity, so q1 and q2 did not change; q4 has no weight. Only q3 remains."""
    lists = {("A", "q1"): "ab", ("B", "q1"): "a", ("A", "q2"): "a", ("B", "q2"): "ab", ("A", "q3"): "ab",
             ("B", "q3"): "ac", ("A", "q4"): "ab", ("B", "q4"): "ac"}  # fmt: skip
    rows = [
        (*key, item, 2.0 - at, 1, 0.0 if key[1] == "q4" else 2.0)
        for key, items in lists.items()
        for at, item in enumerate(items)
    ]
    schema = "run string, query_id string, item_id string, score double, relevance int, w double"
    items = spark.createDataFrame(
        [("a", ["x"]), ("b", ["y"]), ("c", ["x"])], "item_id string, categories array<string>"
    )
    options = {"items": items, "metrics": "ild(by=categories)@2", "convention": "default;ties=item_asc"}
    result = evaluate(spark.createDataFrame(rows, schema), run="run", weight="w", **options)
    actual = changed_queries(result, baseline="A", run="B", metric="ild_by_categories").collect()
    assert [(row["query_id"], row["change"], row["difference"]) for row in actual] == [("q3", "lost", -1.0)]
