"""Parquet files that workers read themselves: the numbers and refusals of every other way, or another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import file_rows
from support.main_job import done, mean_ndcg
from support.oracle import Choices, Row, evaluate
from pyspark.sql import functions as F
from support.random_rankings import random_rows
from support.spark_rankings import (
    SHORT_LIVED_PLANS,
    Case,
    assert_same_results,
    collect_cases,
    convention_of,
    ranks_of,
    session_settings,
)

import ndcg_spark
from ndcg_spark.errors import InvalidParameterError, find_refusal
from ndcg_spark.plan import Columns, EvaluationPlan
from ndcg_spark.spark.ranking import local_files, stored
from ndcg_spark.spark.ranking.choose import choose_way
from ndcg_spark.spark.ranking.moving import labels_of_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT = Choices(ties="item_asc")
CHOICES = {
    "default": DEFAULT,
    "item_desc, clip, float32": Choices(ties="item_desc", score_precision="float32", negative="clip"),
    "input_order, condensed": Choices(ties="input_order", unjudged="condensed", no_relevant="one"),
    "retrieved, k_ones": Choices(gain="linear", ties="item_asc", ideal="retrieved", missing_query="drop"),
}


@pytest.fixture(scope="module", autouse=True)
def _short_lived_plans(spark: SparkSession):
    with session_settings(spark, **SHORT_LIVED_PLANS):
        yield


def write(folder: Path, rows: pa.RecordBatch, *, n_files: int = 2, of_a_group: int = 7) -> str:
    """Files of small row groups, so that queries lie across groups and files."""
    folder.mkdir(parents=True)
    step = -(-rows.num_rows // n_files)
    for at in range(n_files):
        part = pa.Table.from_batches([rows.slice(at * step, step)])
        pq.write_table(part, folder / f"part-{at}.parquet", row_group_size=of_a_group)
    return str(folder)


def with_ranks(rows: Sequence[Row], choices: Choices) -> pa.RecordBatch:
    ranks = ranks_of(rows, choices)
    return file_rows(rows).append_column("rank", pa.array([ranks.get((r.query, r.item)) for r in rows], pa.int32()))


def plan_of(choices: Choices, **changes: object) -> EvaluationPlan:
    columns = Columns(order="position") if choices.ties == "input_order" else Columns()
    chosen = {"columns": columns, "cutoffs": (1, 3, 10), "null_score": "unretrieved", "way": "files"} | changes
    return EvaluationPlan(convention=convention_of(choices), **chosen)


@pytest.mark.parametrize("name", CHOICES)
def test_files_give_what_the_oracle_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Strings and integers as items; queries together, scattered, and moved together; scores, and ranks where these
    are kept."""
    choices, cases, expected = CHOICES[name], {}, {}
    for seed, integer in enumerate((False, True)):
        rows = random_rows(seed, integer_items=integer, negatives=True, extreme_scores=True)
        rows = sorted(rows, key=lambda row: row.query) if integer else rows
        table = spark.read.parquet(write(tmp_path / f"{seed}", with_ranks(rows, choices)))
        cases |= {f"{seed} scores": Case(data=table, plan=plan_of(choices))}
        if not integer:
            cases |= {f"{seed} moved": Case(data=table, plan=plan_of(choices, layout="scattered"))}
        if choices.unjudged != "condensed":
            by_rank = plan_of(choices, columns=Columns(rank="rank"), check_duplicates=("top", "none")[seed])
            cases |= {f"{seed} ranks": Case(data=table, plan=by_rank)}
        expected |= {case: evaluate(rows, choices, [1, 3, 10]) for case in cases if case.startswith(f"{seed}")}
    for case, got in collect_cases(cases).items():
        assert_same_results(got, expected[case])


# --- What is chosen


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("table") / "rows", with_ranks(random_rows(3), DEFAULT))


@pytest.fixture
def table(spark: SparkSession, folder: str) -> DataFrame:
    return spark.read.parquet(folder)


def test_files_are_read_by_workers_unless_asked_otherwise(table: DataFrame) -> None:
    plan = EvaluationPlan(columns=Columns(rank="rank"), cutoffs=(3,))
    assert choose_way(table, plan).ranked == "files"
    assert choose_way(table.select("query_id", "item_id", "score", "relevance"), EvaluationPlan()).ranked == "files"
    assert choose_way(table, replace(plan, way="given")).ranked == "given"


OBSTACLES = {
    "a filter": (lambda frame: frame.where("score > 0"), {}, "the table is not Parquet files"),
    "a computed column": (
        lambda frame: frame.withColumn("score", F.col("score") * 2),
        {},
        "the table is not Parquet files",
    ),
    "a renamed column": (
        lambda frame: frame.drop("score").withColumnRenamed("position", "score"),
        {},
        "the table is not Parquet files",
    ),
    "a constant": (lambda frame: frame.withColumn("relevance", F.lit(1.0)), {}, "the table is not Parquet files"),
    "files that are read twice": (
        lambda frame: frame.sparkSession.read.parquet(*[str(Path(frame.inputFiles()[0][7:]).parent)] * 2),
        {},
        "the table is not Parquet files",
    ),
    "a sample": (lambda frame: frame, {"sample": 0.5}, "a sample is taken"),
    "a name of pieces": (lambda frame: frame, {"segments": ["Sums"]}, "a column has a name that pieces use"),
    "a limit": (lambda frame: frame.limit(5), {}, "the table is not Parquet files"),
    "a union": (lambda frame: frame.union(frame), {}, "the table is not Parquet files"),
    "no files": (lambda frame: frame.sparkSession.createDataFrame(frame.collect(), frame.schema), {}, "the table is"),
    "another type": (lambda frame: frame.withColumn("score", F.col("score").cast("string")), {}, "'score' is string"),
    "whole lists": (lambda frame: frame, {"k": None}, "k=all takes whole lists"),
    "tied groups": (lambda frame: frame, {"convention": "default;ties=expected"}, "ties=expected takes all items"),
    "a table of gains": (lambda frame: frame, {"convention": "default;gain=table:0=1"}, "a gain table need not rise"),
    "duplicates": (lambda frame: frame, {"convention": "default;duplicates=best"}, "all rows are looked through"),
    "no item": (lambda frame: frame.drop("item_id"), {}, "there is no item column"),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_is_not_plain_files_is_left_to_spark(table: DataFrame, name: str) -> None:
    change, options, why = OBSTACLES[name]
    plan = ndcg_spark.evaluation.evaluation_plan(**options)
    assert choose_way(change(table), plan).ranked != "files"
    with pytest.raises(InvalidParameterError, match=f"way=files cannot be gone: .*{why}.*; use way=auto"):
        choose_way(change(table), replace(plan, way="files"))


def test_columns_of_folders_and_files_of_table_formats_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = file_rows(random_rows(3)).drop_columns(["query_id"])
    write(tmp_path / "by query" / "query_id=q1", rows)
    assert "query_id" in (stored.obstacle_to_files(read(spark, tmp_path / "by query"), EvaluationPlan(), judged=True))
    write(tmp_path / "delta", file_rows(random_rows(3)))
    assert stored.obstacle_to_files(read(spark, tmp_path / "delta"), EvaluationPlan(), judged=True) is None
    (tmp_path / "delta" / "_delta_log").mkdir()
    assert stored.obstacle_to_files(read(spark, tmp_path / "delta"), EvaluationPlan(), judged=True) is not None


def test_scattered_rows_are_moved_unless_their_parts_are_in_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row a query: each would be a piece, which costs more than to move it. Those of one query are one task's."""
    monkeypatch.setattr(local_files, "SMALLEST_PART", 1)
    monkeypatch.setattr(stored, "FIRST_ROWS", 100)
    for name, step in {"in order": 1, "out of order": 7}.items():
        rows = file_rows([Row(query=f"{n * step % 300:03}", item=n, score=n, relevance=1) for n in range(300)])
        table = read(spark, Path(write(tmp_path / name, rows, of_a_group=50)))
        assert choose_way(table, EvaluationPlan()).moves == (name == "out of order")
    monkeypatch.setattr(stored, "LONGEST_QUERY", 4_000)
    rows = file_rows([Row(query=str(n if n % 2 else 0), item=n, score=n, relevance=1) for n in range(300)])
    table = read(spark, Path(write(tmp_path / "half", rows, of_a_group=50)))
    assert choose_way(table, EvaluationPlan()).ranked != "files"
    with pytest.raises(InvalidParameterError, match="rows of a query are scattered, and one query has very many"):
        choose_way(table, EvaluationPlan(way="files"))


def test_scattered_queries_may_be_written_as_large_strings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As polars writes them; beside a file without rows, as Spark writes them."""
    monkeypatch.setattr(stored, "FIRST_ROWS", 100)
    rows = file_rows([Row(query=f"q{n * 7 % 60}", item=n, score=n, relevance=n % 3) for n in range(300)])
    wide = rows.set_column(0, "query_id", rows.column("query_id").cast(pa.large_string()))
    folder = Path(write(tmp_path / "rows", wide))
    pq.write_table(pa.Table.from_batches([wide.slice(0, 0)]), folder / "empty.parquet")
    table = read(spark, folder)
    assert choose_way(table, EvaluationPlan()).moves
    means = [ndcg_spark.evaluate(table, k=3, way=way).summary for way in ("files", "window")]
    assert [row["value"] for row in means[0].collect()] == [row["value"] for row in means[1].collect()]


def test_the_labels_of_partitions_are_hashed_to_them(spark: SparkSession) -> None:
    for n in (1, 8, 50):
        labels = spark.createDataFrame([(label,) for label in labels_of_partitions(n)], "label int")
        assert [row[0] for row in labels.select(F.expr(f"pmod(hash(label), {n})")).collect()] == list(range(n))


def read(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.parquet(str(path))


# --- What is refused


def refusal(frame: DataFrame) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark chooses the class
        frame.collect()
    message = find_refusal(str(caught.value))
    assert message is not None, str(caught.value)[:500]
    return message


def test_refusals_are_those_of_the_other_ways(spark: SparkSession, tmp_path: Path) -> None:
    """A bad row, an item twice in a ranking, and a segment that is not one."""
    good = [Row(query="q1", item=item, score=1.0, relevance=1.0) for item in "ab"]
    tables = {
        "bad": [*good, Row(query="q2", item="a", score=float("nan"), relevance=1.0)],
        "twice": [*good, good[0]],
        "segments": good,
    }
    for name, rows in tables.items():
        batch = file_rows(rows)
        country = pa.array(["x", "y", "x"][: batch.num_rows] if name == "segments" else ["x"] * batch.num_rows)
        table = read(spark, Path(write(tmp_path / name, batch.append_column("country", country))))
        found = {
            way: refusal(ndcg_spark.evaluate(table, k=3, way=way, segments=["country"]).rankings)
            if name != "twice"
            else refusal(ndcg_spark.evaluate(table, k=3, way=way).per_query)
            for way in ("files", "window")
        }
        assert found["files"] == found["window"], name


def test_a_file_with_another_type_is_refused_with_a_way_out(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "rows", file_rows(random_rows(3)))
    pq.write_table(pa.table({"query_id": ["q"], "item_id": [1]}), tmp_path / "rows" / "zzz.parquet")
    table = spark.read.schema("query_id string, item_id string, score double, relevance double").parquet(
        str(tmp_path / "rows")
    )
    message = refusal(ndcg_spark.evaluate(table, k=3, way="files", null_score="unretrieved").rankings)
    assert message.startswith("column 'item_id' of ")
    assert message.endswith("zzz.parquet is int64, not string; way=window leaves reading to Spark.")


def test_files_may_lack_a_column_or_have_narrower_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """As Spark reads them: the country of the second file is null."""
    rows = file_rows([Row(query=query, item=n, score=-n, relevance=n % 3) for n, query in enumerate("aabbcc")])
    write(tmp_path / "rows", rows.slice(0, 4).append_column("country", pa.array(["x", "x", "y", "y"])), n_files=1)
    narrow = rows.slice(4).to_pydict() | {"score": pa.array([-4.0, -5.0], pa.float32())}
    pq.write_table(pa.table({**narrow, "item_id": pa.array([4, 5], pa.int32())}), tmp_path / "rows" / "zzz.parquet")
    table = spark.read.parquet(str(tmp_path / "rows" / "part-0.parquet"))
    table = spark.read.schema(table.schema).parquet(str(tmp_path / "rows"))
    found = ndcg_spark.evaluate(table, k=3, way="files", segments=["country"]).per_query.collect()
    assert {row["query_id"]: row["country"] for row in found} == {"a": "x", "b": "y", "c": None}


# --- The job


def test_the_job_accounts_for_every_row_of_files(tmp_path: Path) -> None:
    """Segments, weights, and bad rows that are rejected: by both ways the same, to the last bit."""
    rows = [row for row in random_rows(11, n_queries=40) if row.query != "missing"]
    batch = file_rows(rows)
    weight = pa.array([1.0 + len(row.query) for row in rows])
    country = pa.array([None if row.query.endswith("1") else row.query[-1] for row in rows])
    batch = batch.append_column("w", weight).append_column("country", country)
    options = [
        "--input",
        write(tmp_path / "rows", batch),
        "--k",
        "1,5",
        "--weight-col",
        "w",
        "--on-invalid",
        "reject",
    ]
    options += ["--segment-cols", "country", "--json", "-"]
    files, window = (done(*options, "--way", way).json for way in ("files", "window"))
    assert files == window
    assert files["rows"]["rejected"] > 0


def test_ranks_need_no_items(table: DataFrame) -> None:
    by_rank = {"k": 3, "rank": "rank", "item": None, "null_score": "unretrieved"}
    files, given = (ndcg_spark.evaluate(table, way=way, **by_rank).summary.collect() for way in ("files", "given"))
    assert sorted(files) == sorted(given)


def test_the_job_says_what_it_does_with_files(folder: str) -> None:
    ended = mean_ndcg("--input", folder, "--k", "3", "--way", "files", "--explain")
    assert "way          files: workers read the Parquet files, and cut what they read" in ended.out
    assert "cost         Python workers read the files; one shuffle" in ended.out
