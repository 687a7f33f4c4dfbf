"""`on_invalid=reject`: rejected rows and the queries that lost all of theirs are counted, on every road.

Expected counts are written by hand. The means are those of the valid rows, computed by hand, too.
"""

from __future__ import annotations

import math
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.spark_rankings import evaluate_small_parts, session_settings

from ndcg_spark import evaluate, merge_summaries
from ndcg_spark.evaluation import summarize
from ndcg_spark.history import roll_up

NAN, INF = math.nan, math.inf
Counts = dict[tuple[str | None, str, str | None], tuple[int, float | None, int | None, int | None]]
"""(n_queries, value, n_rejected, n_lost_queries) by (run, segment_by, segment)."""
COLUMNS = ("run", "segment_by", "segment", "n_queries", "value", "n_rejected", "n_lost_queries")

SCHEMA = "run string, query_id string, item_id string, score double, relevance double, country string, w double"
ROWS = [
    ("a", "q1", "x", 3.0, 1.0, "DE", 1.0),
    ("a", "q1", "y", 2.0, 0.0, "DE", 1.0),
    ("a", "q1", "z", NAN, 1.0, "FR", 1.0),  # of a query in DE, whatever the bad row says
    ("a", "q2", "x", None, 1.0, "US", 1.0),  # q2 has bad rows only
    ("a", "q2", "y", INF, 1.0, "XX", None),
    ("a", "q2", "z", NAN, 1.0, None, 1.0),
    ("a", "q3", "x", NAN, 1.0, None, 1.0),  # as has q3, whose segment is not known
    ("a", None, "x", 1.0, 1.0, "DE", 1.0),  # no query: in the overall row alone
    ("a", None, "y", NAN, 1.0, "DE", 1.0),
    ("b", "q1", "x", 1.0, 0.0, "DE", 1.0),
    ("b", "q1", "y", 2.0, 1.0, "DE", 1.0),
    ("b", "q2", "x", 1.0, 0.0, "US", 1.0),
    ("c", "q1", "x", NAN, 1.0, "DE", 1.0),  # a run of bad rows only
    (None, "q1", "x", 1.0, 1.0, "DE", 1.0),  # of no run that is known
]
EXPECTED: Counts = {
    ("a", "", ""): (1, 1.0, 7, 2),
    ("a", "country", "DE"): (1, 1.0, 1, 0),
    ("a", "country", "US"): (0, None, 3, 1),
    ("a", "country", None): (0, None, 1, 1),
    ("b", "", ""): (2, 0.5, 0, 0),
    ("b", "country", "DE"): (1, 1.0, 0, 0),
    ("b", "country", "US"): (1, 0.0, 0, 0),
    ("c", "", ""): (0, None, 1, 1),
    ("c", "country", "DE"): (0, None, 1, 1),
    (None, "", ""): (0, None, 1, 0),
}
OPTIONS: dict[str, Any] = {"run": "run", "weight": "w", "segments": ["country"], "k": 3, "on_invalid": "reject"}
ROADS: dict[str, dict[str, Any]] = {
    "engine": {},
    "whole lists": {"k": "all"},
    "an order of tied items": {"convention": "default;ties=item_asc"},
    "windows": {"strategy": "window"},
    "best copy": {"convention": "default;duplicates=best"},
    "no copies": {"check_duplicates": "all"},
    "best copy by windows": {"convention": "default;duplicates=best", "strategy": "window"},
}


@pytest.fixture(scope="module", autouse=True)
def _two_shuffle_partitions(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=2):
        yield


def collected(summaries: dict[str, DataFrame], metric: str = "ndcg") -> dict[str, Counts]:
    """Rows of a metric of several summaries, by one action."""
    chosen = [
        summary.where(F.col("metric") == metric).select(*COLUMNS, F.lit(name).alias("name"))
        for name, summary in summaries.items()
    ]
    actual: dict[str, Counts] = {name: {} for name in summaries}
    for row in reduce(DataFrame.unionByName, chosen).collect():
        key = (row["run"], row["segment_by"], row["segment"])
        assert key not in actual[row["name"]]
        actual[row["name"]][key] = tuple(row[name] for name in COLUMNS[3:])
    return actual


@pytest.mark.classic("Python workers read files themselves")
def test_every_road_counts_rejected_rows_and_lost_queries(spark: SparkSession, tmp_path: Path) -> None:
    """Read by Spark or by workers, in one part or many; from metrics of queries as jobs keep them, too."""
    rows = spark.createDataFrame(ROWS, SCHEMA)
    rows.repartition(5).write.parquet(str(tmp_path / "rows"))
    items = spark.createDataFrame([("x", ["a"]), ("y", ["b"])], "item_id string, categories array<string>")
    actual = {name: evaluate(rows, **OPTIONS | options).summary for name, options in ROADS.items()}
    actual["files"] = evaluate(str(tmp_path / "rows"), source="parquet", **OPTIONS).summary
    actual["many parts"] = evaluate(rows.repartition(7), **OPTIONS).summary
    with_items: dict[str, Any] = {"items": items, "metrics": ["ndcg", "ild(by=categories)@3", "coverage@3"]}
    actual["with items"] = evaluate(rows, **OPTIONS, **with_items, convention="default;ties=item_asc").summary
    kept = evaluate(rows, **OPTIONS).ranking
    actual["kept metrics of queries"] = kept.summary(kept.per_query(rejected=True))
    for name, counts in collected(actual).items():
        assert counts == EXPECTED, name


def test_rankings_and_metrics_of_queries_have_no_rejected_row(spark: SparkSession) -> None:
    """A summary of these metrics does not know what was rejected, and says so."""
    for strategy in ("engine", "window"):
        evaluation = evaluate(spark.createDataFrame(ROWS, SCHEMA), **OPTIONS, strategy=strategy)
        for table in (evaluation.rankings, evaluation.per_query):
            assert "n_rejected" not in table.columns
            assert {(row["run"], row["query_id"]) for row in table.collect()} == {
                ("a", "q1"),
                ("b", "q1"),
                ("b", "q2"),
            }
    counts = collected({"one": summarize(evaluation.per_query, evaluation.settings)})["one"]
    assert counts["a", "", ""] == (1, 1.0, None, None)
    unbroken = evaluate(spark.createDataFrame(ROWS[9:12], SCHEMA), **OPTIONS | {"on_invalid": "fail"})
    counts = collected({"one": summarize(unbroken.per_query, unbroken.settings)})["one"]
    assert counts["b", "", ""] == (2, 0.5, 0, 0)


def test_rankings_for_a_summary_have_the_counts(spark: SparkSession) -> None:
    ranking = evaluate(spark.createDataFrame(ROWS, SCHEMA), **OPTIONS).ranking
    assert "n_rejected" in ranking.rankings(rejected=True).columns
    assert "n_rejected" not in ranking.rankings().columns


@pytest.mark.classic("Python workers read files themselves")
def test_each_score_column_has_its_own_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Query p is lost by run b alone; a row without a query is a row of each run."""
    rows = [
        ("p", "x", 2.0, NAN, 1.0),
        ("p", "y", NAN, NAN, 0.0),
        ("q", "x", 1.0, 1.0, 1.0),
        (None, "x", 1.0, NAN, 1.0),
    ]
    table = spark.createDataFrame(rows, "query_id string, item_id string, a double, b double, relevance double")
    table.write.parquet(str(tmp_path / "rows"))
    options: dict[str, Any] = {"score": ["a", "b"], "k": 1, "on_invalid": "reject"}
    actual = {
        "engine": evaluate(table, **options).summary,
        "windows": evaluate(table, strategy="window", **options).summary,
        "best copy": evaluate(table, convention="default;duplicates=best", **options).summary,
        "files": evaluate(str(tmp_path / "rows"), source="parquet", **options).summary,
    }
    for name, counts in collected(actual).items():
        assert counts == {("a", "", ""): (2, 1.0, 2, 0), ("b", "", ""): (1, 1.0, 3, 1)}, name


def test_a_lost_query_that_is_judged_is_missing(spark: SparkSession) -> None:
    """q2 is judged and u is not; the segment of q2 is that of its judgments, that of u is in its bad row.

    A run whose rows are all bad misses all judged queries.
    """
    run = spark.createDataFrame(
        [
            ("a", "q1", "x", 1.0, "DE"),
            ("a", "q2", "x", NAN, "FR"),
            ("a", "u", "x", NAN, "US"),
            ("c", "q1", "x", NAN, "DE"),
            ("a", None, "x", 1.0, "DE"),
        ],
        "run string, query_id string, item_id string, score double, country string",
    )
    judgments = spark.createDataFrame(
        [("q1", "x", 1.0, "DE"), ("q2", "x", 1.0, "DE")],
        "query_id string, item_id string, relevance double, country string",
    )
    options: dict[str, Any] = {"judgments": judgments, "run": "run", "segments": ["country"], "k": 1}
    options |= {"on_invalid": "reject"}
    summaries = {name: evaluate(run, strategy=name, **options).summary for name in ("engine", "window")}
    for name, counts in collected(summaries).items():
        assert counts == {
            ("a", "", ""): (2, 0.5, 3, 2),
            ("a", "country", "DE"): (2, 0.5, 1, 1),
            ("a", "country", "US"): (0, None, 1, 1),
            ("c", "", ""): (2, 0.0, 1, 1),
            ("c", "country", "DE"): (2, 0.0, 1, 1),
        }, name
    missing = {
        row["run"]: row["n_missing"]
        for row in summaries["engine"].where("metric = 'ndcg' and segment = ''").collect()
    }
    assert missing == {"a": 1, "c": 2}


def test_each_row_of_arrays_is_a_query(spark: SparkSession) -> None:
    rows = [("p", [1.0, 0.0], "DE"), ("q", [NAN], "DE"), ("r", None, "US"), (None, [1.0], "US")]
    table = spark.createDataFrame(rows, "query_id string, relevance array<double>, country string")
    actual = evaluate(table, segments=["country"], k=1, on_invalid="reject").summary
    assert collected({"arrays": actual})["arrays"] == {
        ("", "", ""): (1, 1.0, 3, 2),
        ("", "country", "DE"): (1, 1.0, 1, 1),
        ("", "country", "US"): (0, None, 1, 1),
    }


@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize("wide", [False, True])
def test_sorted_files_are_scored_where_they_are_read_all_the_same(tmp_path: Path, wide: bool) -> None:
    """Of queries 0 to 39, each of three rows: 7 has a bad row, 11 has bad rows only, at 29 and 30 a file ends."""
    rows = [(query, item, float(-item), 1.0 if item == 1 else 0.0) for query in range(40) for item in range(3)]
    bad = {(7, 0), (11, 0), (11, 1), (11, 2), (29, 2), (30, 0), (30, 1), (30, 2)}
    columns: dict[str, Any] = {
        "query_id": pa.array([row[0] for row in rows], pa.int64()),
        "item_id": [row[1] for row in rows],
        "score": [NAN if row[:2] in bad else row[2] for row in rows],
        "relevance": [row[3] for row in rows],
    }
    options: dict[str, Any] = {"k": 1, "on_invalid": "reject"}
    if wide:
        columns["other"] = [row[2] for row in rows]
        options["score"] = ["score", "other"]
    table = pa.table(columns)
    (tmp_path / "rows").mkdir()
    for number, (start, stop) in enumerate(((0, 30), (30, 89), (89, 92), (92, 120))):
        pq.write_table(table.slice(start, stop - start), tmp_path / "rows" / f"{number}.parquet", row_group_size=12)
    evaluation = evaluate_small_parts(str(tmp_path / "rows"), **options)
    assert "by the tasks that read them" in evaluation.ranking.costs(means_only=True)[0]
    # The relevant item is second: first of query 7 alone, whose first item has a bad score.
    expected: Counts = {("score" if wide else "", "", ""): (38, 1 / 38, 8, 2)}
    if wide:
        expected["other", "", ""] = (40, 0.0, 0, 0)
    assert collected({"files": evaluation.summary})["files"] == expected


def test_nights_that_did_not_count_make_a_sum_null(spark: SparkSession) -> None:
    """Merged or rolled up; nights that did count add up."""
    table = spark.createDataFrame(ROWS, SCHEMA)
    summary = evaluate(table, **OPTIONS).summary.where("run = 'a' and segment_by = '' and metric = 'ndcg'")
    (row,) = summary.collect()
    night = spark.createDataFrame([row], summary.schema)
    old = night.drop("n_rejected", "n_lost_queries")
    both = night.unionByName(old, allowMissingColumns=True)
    merged = {"two": night.unionAll(night), "old": old, "both": both}
    actual = collected({name: merge_summaries(rows) for name, rows in merged.items()})
    assert actual["two"] == {("a", "", ""): (2, 1.0, 14, 4)}
    assert actual["old"] == {("a", "", ""): (1, 1.0, None, None)}
    assert actual["both"] == {("a", "", ""): (2, 1.0, None, None)}

    def nights(rows: DataFrame) -> DataFrame:
        stored = rows.withColumns({"config_hash": F.lit("h"), "convention": F.lit("c")})
        return stored.withColumn("run_date", F.expr("date'2026-01-05' + cast(row_number() over (order by 1) as int)"))

    weeks = {name: roll_up(nights(rows)).where("period = 'week'").drop("period") for name, rows in merged.items()}
    assert collected(weeks) == actual
