"""A sample of queries: by hash, the same in run and judgments, with an interval that holds the mean of all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from support.main_job import done

from ndcg_spark import evaluate
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import EvaluationSettings

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

    found = sampled(table)
    assert 70 <= len(found) <= 130  # 100 expected, standard deviation 8.7
    assert sampled(table.withColumn("query_id", F.col("query_id").cast("bigint")).repartition(7)) == found
    wide = table.withColumn("query_id", F.col("query_id").cast("bigint")).drop("score")
    assert sampled(table.drop("relevance"), judgments=wide) == found
    of_all = {str(row["query_id"]): row["ndcg"] for row in evaluate(table, k=3).per_query.collect()}
    assert found.items() <= of_all.items()


def test_a_larger_sample_holds_the_smaller(table: DataFrame) -> None:
    chosen = [
        {row["query_id"] for row in evaluate(table, k=3, sample=share).per_query.collect()} for share in (0.1, 0.5, 1)
    ]
    assert chosen[0] < chosen[1] < chosen[2]
    assert len(chosen[2]) == QUERIES


def test_the_job_says_that_it_sampled(table: DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table.coalesce(1).write.parquet(str(path))
    ended = done("--input", path, "--k", "3", "--sample", "0.25", "--json", "-")
    assert "sample: 0.25 of the queries" in ended.out
    assert (ended.json["sample"], ended.json["input"].endswith("0.25 of the queries")) == (0.25, True)
    whole = evaluate(table, k=3).summary.where("metric = 'ndcg'").collect()[0]["value"]
    mean = ended.json["metrics"][0]
    assert mean["ci_low"] < whole < mean["ci_high"]


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_shares_outside_0_to_1_are_refused(share: float) -> None:
    with pytest.raises(InvalidParameterError, match="sample must be above 0"):
        EvaluationSettings(sample=share)
