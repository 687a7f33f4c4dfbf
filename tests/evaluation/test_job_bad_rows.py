"""Rows that the main job refuses: it stops before anything is written, counts them, and names one.

This machine does the job, but for what only Spark looks for and for a row of each reason, which both refuse.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.engines import parametrize_engine
from support.main_job import (
    RunResult,
    assert_refused,
    mean_ndcg,
    read_files,
    run_mean_ndcg,
    write_judgments,
    write_rows,
    write_run,
    write_table,
)
from support.oracle import Row, build_ranking

ROWS = build_ranking([3, 0, 1])
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bad_rows")


@pytest.fixture(scope="module")
def metrics(folder):
    """A metric table from an earlier, good run of the same night, which refusals must leave as it is."""
    good = write_rows(folder / "good.parquet", ROWS)
    night = ("--run-date", "2026-01-31", "--dataset", "d", "--engine", "local")
    run_mean_ndcg("--input", good, "--k", 3, "--output", folder / "metrics", *night)
    return folder / "metrics"


def refused_night(metrics: Path, tmp_path: Path, *arguments: object, engine: str = "local") -> RunResult:
    before = read_files(metrics)
    ended = mean_ndcg(
        *("--engine", engine),
        *("--output", metrics, "--run-date", "2026-01-31", "--dataset", "d", "--k", 1),
        *("--per-query-output", tmp_path / "queries", "--json", tmp_path / "out.json", *arguments),
    )
    assert before
    assert read_files(metrics) == before
    assert not (tmp_path / "queries").exists()
    assert not (tmp_path / "out.json").exists()
    return ended


GOOD = {"query_id": "q", "item_id": "a", "score": 2.0, "relevance": 1.0, "weight": 1.0}
# After a good row of the same query, one row with these changes.
BAD_ALONE = {
    "null query": {"query_id": None},
    "null item": {"item_id": None},
    "null score": {"score": None},
    "nan score": {"score": NAN},
    "infinite score": {"score": -INF},
    "nan relevance": {"relevance": NAN},
    "infinite relevance": {"relevance": INF},
    "gain overflow": {"relevance": 1024.0},
    "weight": {"weight": -1.0},
}


@pytest.mark.parametrize("reason", ["null item", "nan score", "gain overflow"])
def test_one_bad_row_that_no_cutoff_reaches(metrics, tmp_path, reason):
    """It ranks second where k is 1, and is a bad row all the same."""
    bad = {**GOOD, "item_id": "b", "score": 1.0, **BAD_ALONE[reason]}
    columns = {name: [GOOD[name], bad[name]] for name in GOOD}
    source = write_table(tmp_path / "in" / "rows.parquet", columns)
    ended = refused_night(metrics, tmp_path, "--input", source, "--weight-col", "weight")
    assert_refused(ended, "1 bad row of 2", "input", *reason.split(), "query_id=")


def test_bad_rows_of_every_reason_in_a_typed_table(metrics, tmp_path, engine):
    rows = [GOOD, *[{**GOOD, "item_id": f"b{n}", **changes} for n, changes in enumerate(BAD_ALONE.values())]]
    columns = {name: [row[name] for row in rows] for name in GOOD}
    source = write_table(tmp_path / "in" / "rows.parquet", columns)
    ended = refused_night(metrics, tmp_path, "--input", source, "--weight-col", "weight", **engine)
    reasons = [f"{reason.replace(' ', '_')} 1 " for reason in BAD_ALONE if reason != "weight"]
    assert_refused(ended, "9 bad rows of 10", "input", *reasons, "bad_weight 1 ")


def test_every_bad_row_of_a_csv_is_counted_by_reason(metrics, tmp_path):
    bad = {
        "null_query 2": [{"query_id": None}, {"query_id": None}],
        "null_item 1": [{"item_id": None}],
        "null_score 1": [{"score": None}],
        "score_not_a_number 2": [{"score": "high"}, {"score": "1,5"}],
        "nan_score 1": [{"score": "NaN"}],
        "infinite_score 2": [{"score": "Infinity"}, {"score": "-Infinity"}],
        "nan_relevance 1": [{"relevance": "NaN"}],
        "infinite_relevance 1": [{"relevance": "-Infinity"}],
        "relevance_not_a_number 1": [{"relevance": "good"}],
        "gain_overflow 1": [{"relevance": "1e6"}],
        "bad_weight 3": [{"weight": "-0.5"}, {"weight": "NaN"}, {"weight": None}],
    }
    rows = [
        {**GOOD, "item_id": f"i{n}", **one}
        for n, one in enumerate(element for group in bad.values() for element in group)
    ]
    columns = {name: [f'"{row[name]}"' if row[name] is not None else None for row in rows] for name in GOOD}
    source = write_table(tmp_path / "in" / "rows.csv", columns)
    ended = refused_night(metrics, tmp_path, "--input", source, "--weight-col", "weight")
    assert_refused(ended, "16 bad rows of 16", *bad, "query_id=q, item=i")


def test_bad_rows_of_the_judgments(metrics, tmp_path, engine):
    run = write_run(tmp_path / "in" / "run.parquet", ROWS)
    bad = {"query_id": ["q", None, "q", "other"], "item_id": ["0", "1", None, "2"], "relevance": [1.0, 1.0, 1.0, NAN]}
    ended = refused_night(
        *(metrics, tmp_path, "--input", run),
        *("--judgments", write_table(tmp_path / "in" / "qrels.parquet", bad)),
        **engine,
    )
    assert_refused(ended, "3 bad rows of 4", "judgments", "null_query 1", "null_item 1", "nan_relevance 1")
    assert_refused(ended, "query_id=other, item=2")


TWICE = [*ROWS, Row(query="q", item="0", score=9.0, relevance=3)]


@parametrize_engine("form", local=["long", "run", "judgments"], spark=["below the cutoff"])
def test_duplicates(metrics, tmp_path, engine, form):
    more = ("--k", 10)
    if form in ("long", "below the cutoff"):
        tables = ("--input", write_rows(tmp_path / "in" / "rows.parquet", TWICE))
        more = more if form == "long" else ("--k", 1, "--check-duplicates", "all")
    else:
        run, judged = (TWICE, ROWS) if form == "run" else (ROWS, TWICE)
        tables = ("--input", write_run(tmp_path / "in" / "run.parquet", run), "--judgments")
        tables += (write_judgments(tmp_path / "in" / "qrels.parquet", judged),)
    named = "item 0 appears 2 times" if form == "below the cutoff" else "an item appears twice"
    assert_refused(refused_night(metrics, tmp_path, *tables, *more, **engine), named, "query_id=q")


def test_a_query_that_comes_twice_in_a_table_of_arrays(spark, metrics, tmp_path):
    columns = {"query_id": ["q", "p", "q"], "relevance": [[1.0, 0.0], [1.0], [0.0, 1.0]]}
    source = write_table(tmp_path / "in" / "arrays.parquet", columns)
    ended = refused_night(metrics, tmp_path, "--input", source, "--check-duplicates", "all", engine="spark")
    assert_refused(ended, "query query_id=q comes in 2 rows", "run-col")


@parametrize_engine("check", local=["top"], spark=["all"])
def test_several_rankers_without_a_run_column(metrics, tmp_path, engine, check):
    """Of the columns that are not used, that one is named whose values differ; if none does, nobody is asked."""
    rankers = {
        "query_id": ["q"] * 4,
        "item_id": ["a", "b", "a", "b"],
        "score": [4, 2, 3, 1],
        "relevance": [1, 0, 1, 0],
    }
    rankers |= {"market": ["DE"] * 4, "ranker": ["bm25", "bm25", "dense", "dense"]}
    source = write_table(tmp_path / "in" / "rankers.parquet", rankers)
    ended = refused_night(metrics, tmp_path, "--input", source, "--check-duplicates", check, **engine)
    assert_refused(
        ended,
        "in query query_id=q. " if check == "all" else "in the ranking of query query_id=q. ",
        "query_id=q. Does the table hold several rankers? Then name the column that tells them apart: "
        "--run-col ranker. Else remove it, or choose which one counts: --duplicates best, or first with --order-col. "
        "Nothing was written.",
    )
    if check == "top":
        source = write_table(tmp_path / "in" / "again.parquet", rankers | {"ranker": ["bm25"] * 4})
        ended = refused_night(metrics, tmp_path, "--input", source)
        assert_refused(
            ended, "query_id=q. Remove it, or choose which one counts: --duplicates best, or first with --order-col."
        )
