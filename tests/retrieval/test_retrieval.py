"""Retrieval of DataFrames: every form of vector, real data against loops, any partitioning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F
from support.expectations import collect_refusal
from support.retrieval import ITEMS_178, QUERY_178, compute_ndcg
from support.spark_rankings import session_settings

from ndcg_spark import evaluate
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import evaluation_settings, score_queries, summarize_rankings
from ndcg_spark.retrieval import RetrievalSettings
from ndcg_spark.retrieval.frames import list_labelled_items, rank_corpus, retrieve_items

CODES = RetrievalSettings(metric="hamming", labels="labels", parts=2)


def create_table_178(spark, columns, name):
    codes = [bytearray([code]) for code in columns["code"]]
    rows = list(zip(columns[name], codes, columns["labels"], strict=True))
    return spark.createDataFrame(rows, f"{name} string, code binary, labels array<int>")


@pytest.fixture
def tables_178(spark):
    return create_table_178(spark, QUERY_178, "query_id"), create_table_178(spark, ITEMS_178, "item_id")


def test_the_worked_codes(tables_178):
    settings = evaluation_settings(k=[4, 8])
    rankings = rank_corpus(*tables_178, CODES, settings)
    values = {row["k"]: row["ndcg"] for row in score_queries(rankings, settings).collect()}
    assert values == pytest.approx({4: 0.355234221298, 8: 0.604153514849}, abs=1e-12)
    means = summarize_rankings(rankings, settings).where("metric = 'ndcg'").collect()
    assert {row["k"]: row["value"] for row in means} == values


def test_other_metrics_of_the_worked_codes(tables_178):
    names = ["ap(denominator=hits)", "acg", "wap"]
    settings = evaluation_settings(metrics=[*names, "ap_r", "r"], k=[4, 8])
    rows = summarize_rankings(rank_corpus(*tables_178, CODES, settings), settings).collect()
    actual = {(row["metric"], row["k"]): row["value"] for row in rows}
    wanted = {4: (0.879629629630, 1.083333333333, 1.152777777778), 8: (0.773888888889, 1.125, 1.157222222222)}
    for k, values in wanted.items():
        assert [actual[name, k] for name in names] == pytest.approx(values, abs=1e-12)
    assert actual["ap_r", None] == pytest.approx(0.56, abs=1e-12)
    assert actual["r", 8] == 1


def test_table_and_judgments_are_those_of_the_main_evaluation(tables_178):
    """The table of all items, with judgments of the relevant ones, has the NDCG of the direct evaluation."""
    rows = retrieve_items(*tables_178, CODES, k=100).collect()
    assert [(row["item_id"], row["score"], row["rank"], row["relevance"]) for row in rows] == [
        *zip("abcdefgh", (0, -1, -1, -2, -2, -2, -3, -5), range(1, 9), (1, 0, 2, 3, 0, 1, 0, 2), strict=True)
    ]
    judgments = list_labelled_items(*tables_178, CODES)
    assert {row["item_id"]: row["relevance"] for row in judgments.collect()} == {
        "a": 1,
        "c": 2,
        "d": 3,
        "f": 1,
        "h": 2,
    }
    run = retrieve_items(*tables_178, CODES, k=100).drop("relevance")
    values = evaluate(run, judgments=judgments, k=[4, 8], check_duplicates="none").per_query.collect()
    assert {row["k"]: row["ndcg"] for row in values} == pytest.approx(
        {4: 0.355234221298, 8: 0.604153514849}, abs=1e-12
    )


def test_every_form_of_vector(spark):
    rows = [(1, [1, 2, 2]), (2, [2, 1, 2]), (3, [0, 0, 5])]
    sparse = [(key, Vectors.sparse(3, dict(enumerate(vector)))) for key, vector in rows]
    corpora = {"ml": spark.createDataFrame(sparse, ["item_id", "vector"])}
    whole = spark.createDataFrame(rows, "item_id int, vector array<int>")
    for kind in ("double", "float", "int"):
        corpora[kind] = whole.selectExpr("item_id", f"cast(vector as array<{kind}>) vector")
    queries = spark.createDataFrame([("q", [1.0, 2.0, 2.0])], "query_id string, vector array<double>")
    for form, corpus in corpora.items():
        actual = retrieve_items(queries, corpus, RetrievalSettings(parts=1), k=2).collect()
        assert [(row["query_id"], row["item_id"], row["rank"]) for row in actual] == [("q", 1, 1), ("q", 2, 2)], form
        assert [row["score"] for row in actual] == pytest.approx([1, 8 / 9], abs=1e-15), form


def create_digits_tables(spark):
    """Create queries and items from images of hand-written digits; labels are the digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = images[:600], labels[:600]
    rows = [(f"d{at:04}", x.tolist(), int(y)) for at, (x, y) in enumerate(zip(images, labels, strict=True))]
    table = spark.createDataFrame(rows, "id string, vector array<double>, digit int")
    queries, corpus = table.withColumnRenamed("id", "query_id"), table.withColumnRenamed("id", "item_id")
    return queries.where("query_id < 'd0060'"), corpus, images, labels


def test_digits_are_retrieved_as_by_loops(spark):
    """Cosines of real images; test_retrieval_blocks compares codes and other metrics with loops."""
    queries, corpus, images, labels = create_digits_tables(spark)
    retrieval = RetrievalSettings(metric="cosine", labels="digit", exclude_self=True, parts=3)
    settings = evaluation_settings(k=[10, 100])
    values = score_queries(rank_corpus(queries, corpus, retrieval, settings), settings).collect()
    assert len(values) == 2 * 60
    unit = images / np.sqrt((images**2).sum(axis=1))[:, None]
    for row in values:
        at = int(row["query_id"][1:])
        others = np.arange(len(images)) != at
        scores = (unit[others] * unit[at]).sum(axis=1)
        relevance = (labels[others] == labels[at]).astype(float)
        assert row["ndcg"] == pytest.approx(compute_ndcg(scores.tolist(), relevance.tolist(), row["k"]), abs=1e-12)
        assert (row["n_items"], row["n_relevant"]) == (len(relevance), relevance.sum())
    mean = np.mean([row["ndcg"] for row in values if row["k"] == 10])
    assert mean > 0.5  # a broken distance finds a tenth


def test_results_do_not_depend_on_partitions_and_stripes(spark):
    queries, corpus, *_ = create_digits_tables(spark)
    queries, corpus = queries.limit(20), corpus.limit(300)
    actual: list[Any] = []
    for partitions, parts, block_bytes in ((1, 1, 2**25), (5, 4, 5000)):
        settings = RetrievalSettings(labels="digit", same="digit", parts=parts, block_bytes=block_bytes)
        rows = retrieve_items(
            queries.repartition(partitions), corpus.repartition(partitions), settings, k=5
        ).collect()
        actual.append(sorted(tuple(row) for row in rows))
    assert actual[0] == actual[1]
    assert len(actual[0]) == 100


def test_segments_weights_and_run_are_carried(spark, tables_178):
    queries = tables_178[0].selectExpr("*", "'de' country", "2.5 importance")
    settings = evaluation_settings(k=4, segments=["country"], weight="importance")
    rankings = rank_corpus(
        queries, tables_178[1], RetrievalSettings(metric="hamming", labels="labels", run="h"), settings
    )
    rows = summarize_rankings(rankings, settings).where("metric = 'ndcg'").collect()
    assert {(row["run"], row["segment"], row["weight_sum"]) for row in rows} == {("h", "", 2.5), ("h", "de", 2.5)}


def test_an_empty_corpus_finds_nothing(spark, tables_178):
    settings = evaluation_settings(k=4)
    empty = tables_178[1].where("item_id = 'z'")
    assert retrieve_items(tables_178[0], empty, CODES, k=3).collect() == []
    (row,) = score_queries(rank_corpus(tables_178[0], empty, CODES, settings), settings).collect()
    assert (row["status"], row["n_items"]) == ("unjudged", 0)


def test_bad_schemas_are_refused_at_once(spark, tables_178):
    queries, corpus = tables_178
    with pytest.raises(MissingColumnError, match="'vector'"):
        retrieve_items(queries, corpus, RetrievalSettings())
    with pytest.raises(InputRefusedError, match="metric='cosine' needs an array of numbers"):
        retrieve_items(queries, corpus, RetrievalSettings(vector="code"))
    with pytest.raises(InputRefusedError, match="must have the same type"):
        retrieve_items(queries, corpus.selectExpr("item_id", "array(1L) code"), RetrievalSettings(metric="hamming"))
    with pytest.raises(InvalidParameterError, match="metric must be one of"):
        RetrievalSettings(metric="l2")
    with pytest.raises(InvalidParameterError, match="k must be a whole number"):
        retrieve_items(queries, corpus, CODES, k=0)
    with pytest.raises(InvalidParameterError, match="needs labels"):
        rank_corpus(queries, corpus, RetrievalSettings(metric="hamming"), evaluation_settings(k=4))


def test_incompatible_columns_are_refused_at_once(tables_178):
    queries, corpus = tables_178
    texts = [frame.withColumn("labels", F.col("labels").cast("array<string>")) for frame in tables_178]
    one_name = replace(CODES, query="item_id")
    for left, right, settings, message in (
        (
            queries.withColumn("query_id", F.array("query_id")), corpus, CODES,
            "column 'query_id' (query=) is array<string>; cast it to text first.",
        ),
        (
            queries.withColumnRenamed("query_id", "item_id"), corpus, one_name,
            "query and item columns are both 'item_id'; rename one.",
        ),
        (
            queries.withColumn("labels", F.lit(1)), corpus, CODES,
            "column 'labels' is an array in one of the tables only.",
        ),
        (*texts, CODES, "column 'labels' is array<string>; labels are 0 and 1."),
        (
            queries.withColumn("labels", F.lit("a")), corpus.withColumn("labels", F.lit(1)), CODES,
            "column 'labels' is string in one table and int in the other; cast one of them so that values compare.",
        ),
    ):  # fmt: skip
        with pytest.raises((InputRefusedError, InvalidParameterError)) as refused:
            retrieve_items(left, right, settings, k=3)
        assert str(refused.value) == message
    with pytest.raises(InvalidParameterError, match="judgments need labels, the column that defines relevance"):
        list_labelled_items(queries, corpus, replace(CODES, labels=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"query": "session"},
            "the query column of the evaluation is session, but that of the retrieval is query_id;",
        ),
        ({"convention": "default;ties=input_order", "order": "at"}, "needs the order of the input rows; choose"),
        ({"metrics": "ild@4", "convention": "default;ties=item_asc"}, "metric 'ild@4' needs items: write the"),
        ({"sample": 0.5}, "sample is not supported by retrieval: filter the query table instead."),
        ({"segments": ["vector"]}, "segment column 'vector' has a name that retrieval uses; rename it."),
        ({"segments": ["LABELS"]}, "segment column 'LABELS' has a name that retrieval uses; rename it."),
    ],
)
def test_evaluations_that_are_not_for_retrieval(options, message):
    with pytest.raises(InvalidParameterError) as refused:
        rank_corpus(None, None, CODES, evaluation_settings(**options))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"parts": 0}, "parts must be between 1 and "),
        ({"held_pairs": 0}, "held_pairs must be at least 1; got 0."),
        ({"block_bytes": -1}, "block_bytes must be at least 1; got -1."),
    ],
)
def test_bad_sizes_are_refused(option, message):
    with pytest.raises(InvalidParameterError, match=f"^{message}"):
        RetrievalSettings(**option)


# ------------------------------------------------------------------------------------------------ values of labels


@pytest.mark.parametrize("k", [2.0, "all", True, 0, None, 1_000_001])
def test_bad_k_is_refused(k):
    with pytest.raises(InvalidParameterError, match=r"^k must be a whole number from 1 to 1,000,000; got .*\.$"):
        retrieve_items(None, None, CODES, k=k)


def test_the_two_zeros_are_one_label_and_one_group(spark):
    """Equal as in Spark's join. Items of label or group 1 differ from both."""
    schema = "code binary, label double, kept float"
    queries = [("q-", -0.0, 0.0), ("q+", 0.0, -0.0)]
    items = [("i-", -0.0, -0.0), ("i+", 0.0, 0.0), ("i1", 1.0, 0.0), ("out", 0.0, 1.0)]
    left, right = (
        spark.createDataFrame([(name, bytearray(b"1"), *group) for name, *group in rows], f"{key} string, {schema}")
        for key, rows in (("query_id", queries), ("item_id", items))
    )
    settings = RetrievalSettings(metric="hamming", labels="label", same="kept", parts=1)
    actual = {
        (row["query_id"], row["item_id"]): row["relevance"] for row in retrieve_items(left, right, settings).collect()
    }
    assert actual == {(query, item): float(item != "i1") for query in ("q-", "q+") for item in ("i-", "i+", "i1")}
    joined = left.join(right, (left["label"] == right["label"]) & (left["kept"] == right["kept"]))
    judged = list_labelled_items(left, right, settings)
    pairs = {(row["query_id"], row["item_id"]) for row in joined.select("query_id", "item_id").collect()}
    assert {(row["query_id"], row["item_id"]) for row in judged.collect()} == pairs


def test_array_label_beyond_int_is_refused(spark):
    """4,294,967,297 is 2^32 + 1; as an int it would be 1."""
    rows = [("a", bytearray(b"1"), [1, 4_294_967_297])]
    queries, corpus = (
        spark.createDataFrame(rows, f"{key} string, code binary, labels array<bigint>")
        for key in ("query_id", "item_id")
    )
    # Both sides are read at the same time: where both are bad, either may be the first.
    narrow = corpus.withColumn("labels", F.expr("array(true, true)"))
    for ansi in ("true", "false"):
        with session_settings(spark, spark__sql__ansi__enabled=ansi):
            assert "bad row: label_not_0_or_1 at query_id=a" in collect_refusal(
                retrieve_items(queries, narrow, CODES)
            )
    good = queries.withColumn("labels", F.expr("array(0L, 1L)"))
    assert [row["relevance"] for row in retrieve_items(good, narrow, CODES).collect()] == [1.0]
