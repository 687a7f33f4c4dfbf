"""What a run costs Spark, counted, so that it cannot creep: jobs, shuffles, passes through Python."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.main_job import done
from support.spark_rankings import needs_top_k, since_spark

from ndcg_spark import evaluate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = [("q1", "a", 0.9, 1, 2), ("q1", "b", 0.8, 2, 0), ("q2", "c", 0.7, 1, 1)]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cost") / "rows.parquet"
    schema = "query_id string, item_id string, score double, rank int, relevance int"
    spark.createDataFrame(ROWS, schema).coalesce(1).write.parquet(str(path))
    return path


def plan_of(frame: DataFrame) -> str:
    """The physical plan; before it runs it names each exchange once for every use."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        frame.explain()
    return printed.getvalue()


def costs(frame: DataFrame) -> dict[str, int]:
    plan = plan_of(frame)
    return {
        "scans": plan.count("FileScan"),
        "shuffles": plan.count("Exchange hashpartitioning"),
        "python": plan.count("MapInArrow"),
    }


@needs_top_k
def test_top_k_reads_once_and_shuffles_once(spark: SparkSession, table: Path) -> None:
    found = evaluate(spark.read.parquet(str(table)), k=[1, 3, 10], way="top_k")
    assert costs(found.rankings) == {"scans": 1, "shuffles": 1, "python": 0}
    assert costs(found.per_query) == {"scans": 1, "shuffles": 1, "python": 1}
    assert costs(found.summary) == {"scans": 1, "shuffles": 2, "python": 2}


def test_files_are_read_in_python_once_and_their_pieces_shuffled_once(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sees no row: there is nothing for it to scan, sort or hand over. A small file has one part, to shuffle
    nothing for."""
    found = evaluate(spark.read.parquet(str(table)), k=[1, 3, 10])
    assert costs(found.rankings) == {"scans": 0, "shuffles": 0, "python": 1}
    assert costs(found.summary) == {"scans": 0, "shuffles": 0, "python": 3}
    monkeypatch.setattr("ndcg_spark.spark.ranking.local_files.SMALLEST_PART", 1)
    found = evaluate(spark.read.parquet(str(table)), k=[1, 3, 10])
    assert costs(found.rankings) == {"scans": 0, "shuffles": 1, "python": 1}
    assert costs(found.per_query) == {"scans": 0, "shuffles": 1, "python": 2}
    assert costs(found.summary) == {"scans": 0, "shuffles": 2, "python": 3}


@needs_top_k
def test_given_ranks_sort_only_rows_that_matter(spark: SparkSession, table: Path) -> None:
    """One pass counts all rows by hashing, the other makes lists of few of them; neither sorts by rank or score."""
    found = evaluate(spark.read.parquet(str(table)), k=[1, 3, 10], rank="rank", way="given")
    assert costs(found.summary) == {"scans": 2, "shuffles": 3, "python": 2}
    plan = plan_of(found.rankings)
    assert "Window" not in plan
    assert plan.count("partial_min_by") == 1


@needs_top_k
def test_packed_grades_need_no_sort_but_for_what_is_no_grade(spark: SparkSession, table: Path) -> None:
    """The second scan and its shuffle are of relevances that are no grades: those are listed."""
    rows = spark.read.parquet(str(table))
    found = evaluate(rows, k=[1, 3, 10], rank="rank", check_duplicates="none", way="given").rankings
    assert costs(found) == {"scans": 2, "shuffles": 2, "python": 0}
    counted, _, listed = plan_of(found).partition("BroadcastExchange")
    assert "bit_or" in counted
    assert "Sort" not in counted
    assert "min_by" in listed


def test_beside_windows_the_ideal_list_is_sorted_of_what_is_no_grade_alone(spark: SparkSession, table: Path) -> None:
    """The last scan is of relevances that are no grades: no other column is read for them."""
    rows = spark.read.parquet(str(table))
    found = evaluate(rows, k=[1, 3, 10], way="window", check_duplicates="none").rankings
    assert costs(found) == {"scans": 3, "shuffles": 3, "python": 0}
    last = plan_of(found).rpartition("PushedFilters: ")[2]
    assert last.startswith("[Or(LessThan(relevance,0),GreaterThan(relevance,9))")
    assert "ReadSchema: struct<query_id:string,relevance:int>" in last


@since_spark("4.2", "safe filters below a check of rows")
def test_statistics_spare_most_of_the_read_for_what_is_no_grade(spark: SparkSession, table: Path) -> None:
    rows = spark.read.parquet(str(table))
    found = evaluate(rows, k=3, rank="rank", check_duplicates="none", way="given").rankings
    assert "PushedFilters: [Or(LessThan(relevance,0),GreaterThan(relevance,9))" in plan_of(found)


@needs_top_k
def test_lists_hold_no_items_where_duplicates_are_not_looked_for(spark: SparkSession, table: Path) -> None:
    rows = spark.read.parquet(str(table))
    assert "array_distinct" in plan_of(evaluate(rows, k=3, way="top_k").rankings)
    plan = plan_of(evaluate(rows, k=3, check_duplicates="none", way="top_k").rankings)
    assert "array_distinct" not in plan
    assert "min_by(relevance" in plan


@needs_top_k
def test_scattered_rows_are_shuffled_once_and_not_cut_before(spark: SparkSession, table: Path) -> None:
    rankings = evaluate(spark.read.parquet(str(table)), k=3, layout="scattered", way="top_k").rankings
    assert costs(rankings) == {"scans": 1, "shuffles": 1, "python": 0}
    before_the_shuffle = plan_of(rankings).partition("Exchange hashpartitioning")[2]  # a plan is printed from its end
    assert "FileScan" in before_the_shuffle
    assert "min_by" not in before_the_shuffle


@needs_top_k
def test_rows_that_are_by_query_already_are_not_shuffled_again(spark: SparkSession, table: Path) -> None:
    rows = spark.read.parquet(str(table)).repartition(2, "query_id")
    assert costs(evaluate(rows, k=3).rankings) == {"scans": 1, "shuffles": 1, "python": 0}


def test_arrays_are_not_shuffled(spark: SparkSession) -> None:
    found = evaluate(spark.createDataFrame([("q", [1, 0])], "query_id string, relevance array<int>"), k=2)
    assert costs(found.per_query) == {"scans": 0, "shuffles": 0, "python": 1}


def test_only_the_columns_in_use_are_read(spark: SparkSession, table: Path) -> None:
    plan = plan_of(evaluate(spark.read.parquet(str(table)), k=3, rank="rank", item=None, way="given").summary)
    assert "ReadSchema: struct<query_id:string,rank:int,relevance:int>" in plan


def jobs_of(spark: SparkSession, *arguments: object) -> int:
    """Spark jobs that a run of the main job starts; adaptive execution makes each shuffle a job of its own."""
    group = "counted " + " ".join(map(str, arguments))
    spark.sparkContext.setJobGroup(group, group)
    try:
        done(*arguments)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@needs_top_k
def test_jobs_of_a_run(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    options = ("--input", table, "--k", "1,10", "--run-date", "2026-01-31")
    assert jobs_of(spark, *options) == 2  # the schema, the result
    options = (*options, "--way", "top-k")
    assert jobs_of(spark, *options) == 4  # the schema, two shuffles, the result
    assert jobs_of(spark, *options, "--output", tmp_path / "metrics") == 5  # the write
    queries = ("--output", tmp_path / "metrics", "--per-query-output", tmp_path / "queries")
    assert jobs_of(spark, *options, *queries) == 7
