"""`retrieve` end to end: worked codes, help, and refusals that write nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.main_job import (
    RunResult,
    assert_refused,
    find_value,
    read_files,
    read_stored_rows,
    run_command,
    run_mean_ndcg,
    write_table,
)
from support.retrieval import ITEMS_178, QUERY_178

TYPES = {"code": pa.binary(), "labels": pa.list_(pa.int32()), "vector": pa.list_(pa.float64())}
NIGHT = ("--run-date", "2026-01-31", "--dataset", "codes")


def run_retrieve(*arguments: object) -> RunResult:
    return run_command("retrieve", *arguments)


def write_tables(
    folder: Path, queries: dict[str, Any], items: dict[str, Any], types: dict[str, Any] = TYPES
) -> tuple[object, ...]:
    write_table(folder / "queries.parquet", queries, types)
    write_table(folder / "items.parquet", items, types)
    return "--queries", folder / "queries.parquet", "--corpus", folder / "items.parquet", "--parts", 2


@pytest.fixture
def codes_178(spark, tmp_path):
    del spark
    queries, items = (
        {**example, "code": [bytes([code]) for code in example["code"]]} for example in (QUERY_178, ITEMS_178)
    )
    return *write_tables(tmp_path, queries, items), "--metric", "hamming"


def test_the_worked_codes_are_evaluated_and_written(codes_178, tmp_path):
    places = {name: tmp_path / name for name in ("rankings", "judgments", "metrics", "queries")}
    ended = run_retrieve(*codes_178, "--labels-col", "labels", "--k", "4,8", *NIGHT, "--json", "-", "--gate",
                         "ndcg@4>=0.3", "--rankings-output", places["rankings"], "--judgments-output",
                         places["judgments"], "--output", places["metrics"],
                         "--per-query-output", places["queries"])  # fmt: skip
    assert (ended.code, ended.complaints) == (0, []), ended.err
    expected = {4: 0.355234221298, 8: 0.604153514849}
    assert {k: find_value(ended.json, "ndcg", k) for k in expected} == pytest.approx(expected, abs=1e-12)
    stored = {row["k"]: row["value"] for row in read_stored_rows(places["metrics"]) if row["metric"] == "ndcg"}
    assert stored == pytest.approx(expected, abs=1e-12)
    assert {row["k"]: row["ndcg"] for row in read_stored_rows(places["queries"])} == pytest.approx(
        expected, abs=1e-12
    )
    actual = sorted(read_stored_rows(places["rankings"]), key=lambda row: row["rank"])
    assert [(row["item_id"], row["score"]) for row in actual] == [
        *zip("abcdefgh", (0, -1, -1, -2, -2, -2, -3, -5), strict=True)
    ]
    judged = {row["item_id"]: row["relevance"] for row in read_stored_rows(places["judgments"])}
    assert judged == {"a": 1, "c": 2, "d": 3, "f": 1, "h": 2}
    main_job = run_mean_ndcg("--input", places["rankings"], "--judgments", places["judgments"], "--k", "4,8",
                             "--json", "-", "--check-duplicates", "none")  # fmt: skip
    assert find_value(main_job.json, "ndcg", 8) == pytest.approx(expected[8], abs=1e-12)


def test_metrics_without_ndcg_among_them(codes_178):
    ended = run_retrieve(*codes_178, "--labels-col", "labels", "--metrics", "acg@4,wap@4,ap_r", *NIGHT, "--json", "-",
                         "--gate", "wap@4>=1")  # fmt: skip
    assert (ended.code, ended.complaints) == (0, []), ended.err
    actual = [find_value(ended.json, *key) for key in (("acg", 4), ("wap", 4), ("ap_r", None))]
    assert actual == pytest.approx([1.083333333333, 1.152777777778, 0.56], abs=1e-12)
    assert ended.json["queries"]["in_mean"] == 1
    ended = run_retrieve(*codes_178, "--labels-col", "labels", "--k", 4, "--gate", "ndcg@4>=0.9")
    assert ended.code == 3
    assert "gate ndcg@4>=0.9: NOT MET (0.355234)" in ended.out


def test_a_table_without_labels(codes_178, tmp_path):
    ended = run_retrieve(*codes_178, "--k", 2, "--rankings-output", tmp_path / "r", *NIGHT, "--run", "h")
    assert (ended.code, ended.out, ended.complaints) == (0, "", [])
    assert sorted((row["rank"], row["item_id"], row["run"]) for row in read_stored_rows(tmp_path / "r")) == [
        (1, "a", "h"), (2, "b", "h"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("vectors", "metric", "named"),
    [
        ([[1.0, 2.0], [1.0]], "cosine", "two lengths, 1 and 2"),
        ([[1, -1], [1, 2]], "hamming", "not_plus_or_minus_one at item_id=1"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_written(spark, tmp_path, vectors, metric, named):
    kind = pa.list_(pa.int8()) if metric == "hamming" else pa.list_(pa.float64())
    items = {"item_id": list(range(len(vectors))), "vector": vectors, "labels": ["x"] * len(vectors)}
    queries = {"query_id": [7], "vector": [[1, -1] if metric == "hamming" else [1.0, 2.0]], "labels": ["x"]}
    read = write_tables(tmp_path, queries, items, {"vector": kind})
    before = read_files(tmp_path)
    ended = run_retrieve(*read, "--metric", metric, "--vector-col", "vector", "--labels-col", "labels", *NIGHT,
                         "--rankings-output", tmp_path / "r", "--output", tmp_path / "m")  # fmt: skip
    assert_refused(ended, "bad row: ", named, "Nothing was written")
    assert read_files(tmp_path) == before


def test_no_mean_without_a_query_with_a_relevant_item(codes_178, tmp_path):
    """The convention leaves such queries out."""
    items = {**ITEMS_178, "code": [bytes([code]) for code in ITEMS_178["code"]]}
    items["labels"] = [[0] * len(labels) for labels in items["labels"]]
    write_table(tmp_path / "items.parquet", items, TYPES)
    skip = ("--convention", "default;no_relevant=skip")
    ended = run_retrieve(*codes_178, "--labels-col", "labels", "--k", 4, *skip, *NIGHT, "--output", tmp_path / "m")
    assert_refused(ended, "no query counts in the mean (1 no_relevant, 0 missing, 0 unjudged); nothing was written")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "nothing to do"),
        (("--output", "m"), "--output needs --labels-col"),
        (("--rankings-output", "r", "--k", "all"), "--k all is for evaluation"),
        (("--rankings-output", "r", "--output", "r", "--labels-col", "labels"), "each its own place"),
        (("--rankings-output", "r", "--parts", "0"), "parts must be between"),
        (("--rankings-output", "items.parquet"), "--corpus and --rankings-output are both"),
        (("--labels-col", "labels", "--convention", "default;ties=input_order"), "order"),
    ],
)
def test_impossible_options_are_refused_before_spark_starts(tmp_path, monkeypatch, options, named):
    monkeypatch.chdir(tmp_path)
    # stands in for: the session, because none may start
    monkeypatch.setattr("ndcg_spark.jobs.session.open_session", None)
    write_tables(tmp_path, {"query_id": ["q"]}, {"item_id": ["a"]})
    before = read_files(tmp_path)
    read = ("--queries", "queries.parquet", "--corpus", "items.parquet", "--metric", "hamming")
    assert_refused(run_retrieve(*read, *options), named)
    assert read_files(tmp_path) == before


def test_conf_of_another_session_and_missing_columns_are_refused(codes_178):
    assert_refused(
        run_retrieve(*codes_178, "--labels-col", "labels", "--conf", "spark.ui.port=4040"),
        "--conf is for a session that the job starts",
    )
    assert_refused(
        run_retrieve(*codes_178, "--labels-col", "digit"), "column 'digit' (--labels-col) is not in the query table"
    )
