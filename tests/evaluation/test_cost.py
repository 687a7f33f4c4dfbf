"""What a run costs Spark, counted, so that it cannot creep: scans, shuffles, passes through Python, jobs."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.main_job import run_mean_ndcg
from support.spark_rankings import session_settings

from ndcg_spark import evaluate
from ndcg_spark.core.session import task_limit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CACHED = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
ROWS = [("q1", "a", 0.9, 1, 2), ("q1", "b", 0.8, 2, 0), ("q2", "c", 0.7, 1, 1)]


@pytest.fixture(scope="module")
def path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cost") / "rows.parquet"
    schema = "query_id string, item_id string, score double, rank int, relevance int"
    spark.createDataFrame(ROWS, schema).coalesce(1).write.parquet(str(path))
    return path


@pytest.fixture(scope="module")
def table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.parquet(str(path))


def plan_of(frame: DataFrame) -> str:
    """The physical plan; before it runs it names each exchange once for every use."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        frame.explain()
    return printed.getvalue()


def costs(frame: DataFrame) -> tuple[int, int, int]:
    """Scans, shuffles, and passes through Python."""
    plan = plan_of(frame)
    shuffles = re.findall(r"Exchange (?:hashpartitioning|.*[Pp]assthrough|.*DirectShuffle)", plan)
    return plan.count("FileScan"), len(shuffles), plan.count("MapInArrow")


def test_a_table_is_read_once_and_its_partial_rankings_shuffled_once(table: DataFrame) -> None:
    """Whatever is ranked, and how. The sums of the summary are a second, tiny shuffle."""
    ties, scores = {"convention": "default;ties=expected"}, {"score": ["score", "rank"]}
    for options in ({}, {"rank": "rank"}, ties, {"k": "all"}, scores):
        evaluation = evaluate(table, **({"k": [1, 3, 10]} | options))
        assert costs(evaluation.rankings) == (1, 1, 2), options
        assert costs(evaluation.per_query) == (1, 1, 3), options
        assert costs(evaluation.summary) == (1, 2, 3), options


def test_judgments_are_one_scan_more_and_no_join(table: DataFrame) -> None:
    run, judgments = table.drop("relevance"), table.select("query_id", "item_id", "relevance")
    rankings = evaluate(run, judgments=judgments, k=3).rankings
    assert costs(rankings) == (2, 1, 3)
    assert "Join" not in plan_of(rankings)


@pytest.mark.classic("Python workers read files themselves")
def test_files_that_workers_read_are_not_scanned_by_spark(path: Path) -> None:
    evaluation = evaluate(str(path), k=[1, 3, 10])
    assert costs(evaluation.rankings) == (0, 1, 2)
    assert costs(evaluation.summary) == (0, 2, 3)


def test_to_check_all_rows_for_duplicates_costs_one_shuffle_more(table: DataFrame) -> None:
    assert costs(evaluate(table, k=3, check_duplicates="all").rankings) == (1, 2, 3)


def test_arrays_are_not_shuffled(spark: SparkSession) -> None:
    evaluation = evaluate(spark.createDataFrame([("q", [1, 0])], "query_id string, relevance array<int>"), k=2)
    assert costs(evaluation.per_query) == (0, 0, 2)
    assert "Exchange" not in plan_of(evaluation.per_query)


def test_only_the_columns_in_use_are_read(table: DataFrame) -> None:
    """No items where no rule needs them: neither for ranks nor for ties that are averaged."""
    ranks = evaluate(table, k=3, rank="rank", check_duplicates="none").summary
    assert "ReadSchema: struct<query_id:string,rank:int,relevance:int>" in plan_of(ranks)
    averaged = evaluate(table, k=3, convention="default;ties=expected", check_duplicates="none").summary
    assert "ReadSchema: struct<query_id:string,score:double,relevance:int>" in plan_of(averaged)


def jobs_of(spark: SparkSession, *arguments: object) -> int:
    """Spark jobs that a run of the main job starts; adaptive execution makes each shuffle a job of its own."""
    group = "counted " + " ".join(map(str, arguments))
    spark.sparkContext.setJobGroup(group, group)
    try:
        run_mean_ndcg(*arguments)
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.classic("jobs are counted through sparkContext")
def test_jobs_of_a_run(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """The schema, two shuffles and the result; one more for a metric table, two for per-query results.

    To replace what lies there costs one job more.
    """
    options = ("--input", path, "--k", "1,10", "--run-date", "2026-01-31")
    queries = ("--per-query-output", tmp_path / "queries")
    with session_settings(spark, spark__sql__adaptive__enabled="true"):  # which runs each shuffle as a job
        assert jobs_of(spark, *options) == 4
        assert jobs_of(spark, *options, "--source", "spark") == 4
        assert jobs_of(spark, *options, "--output", tmp_path / "metrics") == 5
        assert jobs_of(spark, *options, "--output", tmp_path / "others", *queries) == 7
        assert jobs_of(spark, *options, "--output", tmp_path / "metrics", "--confidence", "0.9") == 6


def tasks_of(spark: SparkSession, action: Callable[[], object]) -> list[int]:
    """Tasks of each stage that an action runs."""
    group = f"tasks {id(action)}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        action()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return [stage.numTasks for stage in stages if stage]


@pytest.mark.classic("tasks are counted through sparkContext")
@pytest.mark.parametrize("kind", ["path", "frame", "judged window"])
def test_tasks_without_adaptive_execution_are_those_of_cores(spark: SparkSession, path: Path, kind: str) -> None:
    """A file of some kB on two cores; two tables are read by two tasks or more."""
    with session_settings(spark, spark__sql__adaptive__enabled="false", spark__sql__shuffle__partitions=20):
        table = spark.read.parquet(str(path))
        options: dict[str, Any] = {"strategy": "window"} if "window" in kind else {}
        if "judged" in kind:
            options["judgments"] = table.select("query_id", "item_id", "relevance")
            table = table.drop("relevance")
        actual = tasks_of(spark, evaluate(str(path) if kind == "path" else table, k=3, **options).summary.collect)
    assert max(actual) <= 2 + ("judged" in kind) * 2, actual


@pytest.mark.classic("tasks are counted through sparkContext")
def test_adaptive_execution_merges_partitions_of_cached_tables(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    """A job caches the metrics of queries; Spark leaves the partitions of cached tables alone unless it is told."""
    options = ("--source", "spark", "--run-date", "2026-01-31", "--per-query-output", tmp_path / "queries")
    with session_settings(spark, spark__sql__adaptive__enabled="true", spark__sql__shuffle__partitions=20):
        before = spark.conf.get(CACHED)
        assert max(tasks_of(spark, lambda: run_mean_ndcg("--input", path, *options))) < 20
        assert spark.conf.get(CACHED) == before


def test_tasks_are_left_to_spark_where_it_adapts_or_does_not_know_the_size(spark: SparkSession, path: Path) -> None:
    table = spark.read.parquet(str(path))
    made = table.mapInArrow(lambda batches: batches, table.schema)  # of one row, Python makes any number
    with session_settings(spark, spark__sql__adaptive__enabled="true", spark__sql__shuffle__partitions=20):
        assert task_limit(table) is None
    with session_settings(spark, spark__sql__adaptive__enabled="false", spark__sql__shuffle__partitions=20):
        assert task_limit(table.crossJoin(table.select("score"))) is None
        assert task_limit(table, made) is None
        assert task_limit(spark.range(10**7)) == 2  # 80 MB are 2.4 times 32 MiB
        assert task_limit(spark.range(10**8)) == 20  # 800 MB would be 23
        assert task_limit(spark.range(5 * 10**7)) == 11
        assert task_limit(spark.range(5 * 10**7), spark.range(10**7)) == 14  # 480 MB, 14.3 times 32 MiB
        assert task_limit(table.groupBy("query_id").count(), table.join(table.select("query_id"), "query_id")) == 2


@pytest.mark.classic("the server's master may be any")
def test_cores_that_a_master_names_are_not_asked_for(spark: SparkSession) -> None:
    """A plan, which takes Spark 20 ms to explain, would show the 7 parts of a range instead."""
    unlike = {"spark__sql__leafNodeDefaultParallelism": 7, "spark__sql__adaptive__enabled": "false"}
    with session_settings(spark, **unlike, spark__sql__shuffle__partitions=20):
        assert task_limit(spark.range(10)) == 2
    with session_settings(spark, **unlike, spark__sql__shuffle__partitions=2):
        assert task_limit(spark.range(10)) is None  # nothing to save


def test_a_table_in_the_cache_stays_there_when_its_size_is_asked(spark: SparkSession, path: Path) -> None:
    table = spark.read.parquet(str(path)).where("score >= 0").cache()
    try:
        with session_settings(spark, spark__sql__adaptive__enabled="false", spark__sql__shuffle__partitions=20):
            assert task_limit(table) is None  # not filled yet
            assert table.count() > 0
            assert task_limit(table) == 2
        assert table.storageLevel.useMemory
    finally:
        table.unpersist()
    assert spark.sql("SHOW VIEWS LIKE 'ndcg_spark_*'").collect() == []
