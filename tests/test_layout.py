"""Where the rows of a query lie: what is seen of it, and that it changes the cost and never a number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from main_job import done, mean_ndcg
from oracle import Choices
from random_rankings import random_rows
from spark_rankings import TOP_K, scored_table

from ndcg_spark import evaluate
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark import layout
from ndcg_spark.spark.formats import read_table
from ndcg_spark.spark.layout import FIRST_ROWS, layout_of, look_at_layout
from ndcg_spark.spark.ranking import local_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

IN_PIECES = np.arange(FIRST_ROWS)
MIXED = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("queries", "k", "expected"),
    [
        pytest.param(IN_PIECES // 100, 10, "together", id="100 of a query"),
        pytest.param(IN_PIECES // 100, 26, "scattered", id="100 of a query, long lists"),
        pytest.param(IN_PIECES // 10, 10, "scattered", id="10 of a query"),
        pytest.param(IN_PIECES, 10, "scattered", id="one of a query"),
        pytest.param(MIXED.integers(0, 1_000_000, FIRST_ROWS), 10, "scattered", id="a million queries, mixed"),
        pytest.param(MIXED.integers(0, 2_000, FIRST_ROWS), 10, "together", id="2,000 queries, mixed"),
        pytest.param(np.where(IN_PIECES % 2, 0, IN_PIECES), 10, "together", id="half of one query"),
        pytest.param(np.zeros(FIRST_ROWS, dtype=np.int64), 10, "together", id="one query"),
        pytest.param(IN_PIECES[:-1], 10, "together", id="few rows"),
        pytest.param(np.zeros(0, dtype=np.int64), 10, "together", id="no rows"),
    ],
)
def test_layout_of_first_rows(queries: np.ndarray, k: int, expected: str) -> None:
    assert layout_of(queries, k) == expected


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "SMALL", 0.0)
    monkeypatch.setattr(layout, "FIRST_ROWS", 500)
    monkeypatch.setattr(local_files, "SMALLEST_PART", 1)


def write(path: Path, n_queries: int, n_items: int, *, in_order: bool = False) -> Path:
    """Queries lie together; in no order, each row group has some from all over."""
    n = np.arange(n_queries * n_items)
    query = n // n_items
    columns = {"query_id": query if in_order else query * 7 % n_queries, "item_id": n, "score": np.sin(n)}
    pq.write_table(pa.table(columns | {"relevance": n % 3}), path, row_group_size=100)
    return path


def test_large_tables_are_looked_at(spark: SparkSession, tmp_path: Path, any_size: None) -> None:
    single = spark.read.parquet(str(write(tmp_path / "single.parquet", 600, 1)))
    assert look_at_layout(single, EvaluationPlan(cutoffs=(3,))) == "scattered"
    assert look_at_layout(single, EvaluationPlan(cutoffs=(None,))) == "together"
    in_order = spark.read.parquet(str(write(tmp_path / "in order.parquet", 600, 1, in_order=True)))
    assert look_at_layout(in_order, EvaluationPlan(cutoffs=(3,))) == "together"
    assert look_at_layout(in_order, EvaluationPlan(cutoffs=(3,), way="window")) == "scattered"
    long = spark.read.parquet(str(write(tmp_path / "long.parquet", 20, 30)))
    assert look_at_layout(long, EvaluationPlan(cutoffs=(3,))) == "together"


def test_only_the_first_partition_is_looked_at(spark: SparkSession, any_size: None) -> None:
    table = spark.range(0, 8_000, 1, numPartitions=8).withColumnRenamed("id", "query_id")
    spark.sparkContext.setJobGroup("a look", "a look")
    try:
        look_at_layout(table, EvaluationPlan(cutoffs=(3,)))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup("a look") for stage in tracker.getJobInfo(job).stageIds]
    assert [tracker.getStageInfo(stage).numTasks for stage in stages] == [1]


def test_small_tables_are_not_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "single.parquet", FIRST_ROWS, 1)
    assert look_at_layout(spark.read.parquet(str(path)), EvaluationPlan(cutoffs=(3,))) == "together"


def test_results_of_queries_are_known_to_be_computed(spark: SparkSession, tmp_path: Path) -> None:
    """They are not looked at: that would compute them once more."""
    path = write(tmp_path / "rows.parquet", 2, 2)
    spark.read.parquet(str(path)).createOrReplaceTempView("seen_rows")
    assert not read_table(spark, str(path)).computed
    assert not read_table(spark, f"parquet.`{path}`", "table").computed
    assert read_table(spark, "seen_rows").computed
    assert read_table(spark, "select * from seen_rows").computed
    spark.catalog.dropTempView("seen_rows")


@pytest.mark.parametrize("form", [TOP_K, "window", "expected", "given", "judgments"])
def test_moving_rows_first_changes_no_number(spark: SparkSession, form: str) -> None:
    rows_of_all = random_rows(31, special=False, unretrieved=False)
    table = scored_table(spark, rows_of_all, Choices(ties="item_asc"))
    options = {
        "top_k": {"way": "top_k"},
        "window": {"way": "window"},
        "expected": {"convention": "default;ties=expected"},
        "given": {"rank": "rank"},
        "judgments": {"judgments": table.where("relevance is not null").select("query_id", "item_id", "relevance")},
    }[form]
    data = table.drop("relevance") if form == "judgments" else table

    def rows(where: str) -> list[tuple[object, ...]]:
        found = evaluate(data, k=[1, 3, 10], layout=where, **options).per_query
        return sorted(tuple(row) for row in found.drop("status").collect())

    assert rows("scattered") == rows("together")


def test_the_job_says_what_it_saw(spark: SparkSession, tmp_path: Path, any_size: None) -> None:
    asked = ("--input", write(tmp_path / "rows.parquet", 600, 1), "--k", 3, "--json", "-")
    together = done(*asked, "--layout", "together").json
    looked = mean_ndcg(*asked)
    assert looked.code == 0
    assert looked.complaints == ["few rows of a query lie together: they are moved first (--layout scattered)"]
    assert looked.json == together


def test_a_wrong_column_is_refused_before_rows_are_looked_at(
    spark: SparkSession, tmp_path: Path, any_size: None
) -> None:
    ended = mean_ndcg("--input", write(tmp_path / "rows.parquet", 600, 1), "--query-col", "session")
    assert (ended.code, ended.out) == (2, "")
    assert "column 'session' (query-col) is not in the input" in ended.err
    assert "Traceback" not in ended.err


def test_arrays_are_not_moved(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "arrays.parquet"
    pq.write_table(pa.table({"query_id": ["q"], "relevance": [[1, 0]]}), path)
    explained = done("--input", path, "--layout", "scattered", "--explain").out
    assert "no shuffle" in explained
    assert "shuffle of all rows" not in explained


def test_explain_tells_what_will_decide(spark: SparkSession, tmp_path: Path) -> None:
    asked = ("--input", write(tmp_path / "rows.parquet", 2, 2), "--explain")
    assert "decided by the first rows of a large table" in done(*asked).out
    scattered = done(*asked, "--layout", "scattered").out
    assert "a shuffle of all rows in every pass" in scattered


def test_the_layout_is_not_part_of_the_digest() -> None:
    plan = EvaluationPlan()
    assert replace(plan, layout="scattered").digest == plan.digest
