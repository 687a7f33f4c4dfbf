"""A sample of queries: by hash, the same in run and judgments, with an interval that holds the mean of all."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from support.main_job import read_stored_rows, run_mean_ndcg

from ndcg_spark import evaluate
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import EvaluationSettings, LocalEvaluation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES = 400


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    draw = random.Random(20260131)
    rows = [(query, item, draw.random(), draw.randrange(4)) for query in range(QUERIES) for item in range(5)]
    return spark.createDataFrame(rows, "query_id int, item_id int, score double, relevance int").cache()


def test_the_queries_do_not_depend_on_type_partitions_or_form(table: DataFrame) -> None:
    def sampled(frame: DataFrame, **options: object) -> dict[str, float]:
        rows = evaluate(frame, k=3, sample=0.25, **options).per_query.collect()
        return {str(row["query_id"]): row["ndcg"] for row in rows}

    actual = sampled(table)
    assert 70 <= len(actual) <= 130  # 100 expected, standard deviation 8.7
    assert sampled(table.withColumn("query_id", F.col("query_id").cast("bigint")).repartition(7)) == actual
    wide = table.withColumn("query_id", F.col("query_id").cast("bigint")).drop("score")
    assert sampled(table.drop("relevance"), judgments=wide) == actual
    of_all = {str(row["query_id"]): row["ndcg"] for row in evaluate(table, k=3).per_query.collect()}
    assert actual.items() <= of_all.items()


KEYS = {
    "texts": ["query_id"],
    "whole numbers": ["number"],
    "dates and booleans": ["day", "flag"],
    "texts and nulls": ["query_id", "some"],
}


@pytest.mark.parametrize("name", KEYS)
def test_this_machine_draws_the_queries_that_spark_draws(spark: SparkSession, name: str) -> None:
    draw, keys = random.Random(name), KEYS[name]
    rows = [
        {
            "query_id": f"söme {query}" * draw.randrange(4), "number": query, "flag": query % 2 == 0, "item": item,
            "day": date(2026, 1, 1) + timedelta(query), "some": None if query % 7 == 0 else str(query % 7),
            "score": draw.random(), "relevance": draw.randrange(3),
        }
        for query in range(150)
        for item in range(2)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    options = {"query": keys, "item": None, "k": 2, "sample": 0.4, "check_duplicates": "none"}
    options |= {"convention": "default;unjudged_query=zero", "on_invalid": "reject"}
    local = evaluate(table, **options)
    assert isinstance(local, LocalEvaluation)
    actual = [repr(sorted(row.items())) for row in local.per_query.to_pylist()]
    other = [repr(sorted(row.asDict().items())) for row in local.to_spark(spark).per_query.collect()]
    assert sorted(actual) == sorted(other)
    assert 0 < len(actual) < len(set(map(str, zip(*(table[key].to_pylist() for key in keys), strict=True))))
    counted = local.ranking.count_bad_rows()["input"]
    assert 0 < counted.read < len(table)


def test_a_sample_without_spark(tmp_path: Path) -> None:
    """Of a run and its judgments, and of lists; rows that are kept as they came are those of the sample."""
    rows = [(query, item, 1.0 + item, 1) for query in range(60) for item in range(3)]
    names = ("query_id", "item_id", "score", "relevance")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    run, judgments = table.drop_columns(["relevance"]), table.drop_columns(["score"])
    lists = pa.table({"query_id": list(range(60)), "relevance": [[1.0, 1.0, 1.0]] * 60})
    chosen = [
        set(actual.per_query["query_id"].to_pylist())
        for actual in (
            evaluate(table, sample=0.3),
            evaluate(run, judgments, sample=0.3),
            evaluate(lists, sample=0.3),
        )
    ]
    assert chosen[0] == chosen[1] == chosen[2]
    assert 8 <= len(chosen[0]) <= 30
    bad = table.set_column(2, "score", pa.array([float("inf")] * len(table)))
    pq.write_table(pa.concat_tables([table, bad]), tmp_path / "in.parquet")
    ended = run_mean_ndcg("--input", tmp_path / "in.parquet", "--sample", "0.3", "--on-invalid", "reject",
                          "--engine", "local", "--rejects", tmp_path / "rejects", "--json", "-")  # fmt: skip
    rejected = [json.loads(row["row"])["query_id"] for row in read_stored_rows(tmp_path / "rejects")]
    assert sorted(rejected) == sorted(3 * list(chosen[0]))
    assert ended.json["rows"]["rejected"] == len(rejected)


def test_a_larger_sample_holds_the_smaller(table: DataFrame) -> None:
    chosen = [
        {row["query_id"] for row in evaluate(table, k=3, sample=share).per_query.collect()} for share in (0.1, 0.5, 1)
    ]
    assert chosen[0] < chosen[1] < chosen[2]
    assert len(chosen[2]) == QUERIES


def test_the_job_says_that_it_sampled(table: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table.coalesce(1).write.parquet(str(path))
    ended = run_mean_ndcg("--input", path, "--k", "3", "--sample", "0.25", "--json", "-")
    assert "sample: 0.25 of the queries" in ended.out
    assert (ended.json["sample"], ended.json["input"].endswith("0.25 of the queries")) == (0.25, True)
    whole = evaluate(table, k=3).summary.where("metric = 'ndcg'").collect()[0]["value"]
    mean = ended.json["metrics"][0]
    assert mean["ci_low"] < whole < mean["ci_high"]


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_shares_outside_0_to_1_are_refused(share: float) -> None:
    with pytest.raises(InvalidParameterError, match="sample must be above 0"):
        EvaluationSettings(sample=share)
