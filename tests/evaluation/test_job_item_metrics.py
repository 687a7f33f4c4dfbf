"""Diversity, novelty and coverage through the main job: tables, gates, JSON, refusals that write nothing."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import assert_refused, mean_ndcg, read_stored_rows, run_mean_ndcg

pytestmark = pytest.mark.usefixtures("spark")

COPIES = ["copy1", "copy2", "copy3", "copy4", "copy5"]
OTHERS = ["w", "x", "y", "z"]
METRICS = "ndcg@5,ild(by=categories)@5,ils@5,alpha_ndcg@5,novelty@5,first_new@5,first_appearance@5,coverage@5,gini@5"


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def books(tmp_path):
    """Five copies of one book, and four other books that nobody lists; all of relevance 2."""
    run = write(tmp_path / "run.parquet", query_id=["q"] * 5, item_id=COPIES, score=[5.0, 4.0, 3.0, 2.0, 1.0])
    judgments = write(
        tmp_path / "judgments.parquet", query_id=["q"] * 9, item_id=[*COPIES, *OTHERS], relevance=[2] * 9,
        topics=[["1"]] * 5 + [["2"], ["3"], ["4"], ["5"]],
    )  # fmt: skip
    first_seen = pa.array([None] * 4 + ["2026-01-01"] * 5, pa.string()).cast(pa.date32())
    items = write(
        tmp_path / "items.parquet", item_id=[*COPIES, *OTHERS], vector=[[1.0, 2.0, 2.0]] * 9,
        categories=[["novel", "sea"]] * 9, first_seen=first_seen,
    )  # fmt: skip
    interactions = write(
        tmp_path / "met.parquet", query_id=["q", "p", "p", "p"], item_id=["copy1", "copy1", "w", "x"]
    )
    return {"input": run, "judgments": judgments, "items": items, "interactions": interactions}


def options(tables) -> list[object]:
    given = [part for name, path in tables.items() for part in (f"--{name}", path)]
    return [*given, "--ties", "item_asc", "--run-date", "2026-01-31"]


def test_five_copies_of_one_book(tmp_path, books):
    table, queries = tmp_path / "table", tmp_path / "queries"
    gates = ("--gate", "ild(by=categories)@5<=0", "--gate", "coverage@5>=0.5")
    ended = run_mean_ndcg(
        *options(books), "--metrics", METRICS, "--output", table, "--per-query-output", queries, *gates, "--json", "-"
    )
    actual = {row["metric"]: row["value"] for row in ended.json["metrics"]}
    assert actual["ndcg"] == 1
    assert actual["ils"] == pytest.approx(1, abs=1e-12)
    assert actual["ild(by=categories)"] == pytest.approx(0, abs=1e-12)
    assert actual["alpha_ndcg"] == pytest.approx(0.515007224375, abs=1e-12)  # pyndeval 0.0.8
    assert actual["novelty"] == pytest.approx((math.log2(2) + 4 * math.log2(4)) / 5, abs=1e-12)
    assert (actual["first_new"], actual["first_appearance"]) == (2, 6)
    assert actual["coverage"] == 5 / 9
    assert actual["gini"] == pytest.approx(4 / 9, abs=1e-15)
    assert (actual["pairs_left_out"], actual["outside_catalogue"]) == (0, 0)
    stored = {row["metric"]: row for row in read_stored_rows(table)}
    assert {name: row["value"] for name, row in stored.items()} == actual
    assert (stored["coverage"]["std_error"], stored["coverage"]["n_queries"]) == (None, 1)
    (query,) = read_stored_rows(queries)
    assert query["ild_by_categories"] == actual["ild(by=categories)"]
    assert not {"items", "features", "coverage"} & query.keys()
    assert "coverage@5 0.5556" in ended.out
    assert "gate coverage@5>=0.5: met (0.555556)" in ended.out
    (against,) = [line for line in ended.out.splitlines() if " requires " in line]
    assert against == "gate ild(by=categories)@5<=0 requires less of ild(by=categories), but more is better."


def test_the_summary_is_the_same_without_a_table_of_queries(tmp_path, books):
    asked = [*options(books), "--metrics", METRICS, "--json", "-"]
    plain, beside = (
        run_mean_ndcg(*asked, *more).json["metrics"] for more in ((), ("--per-query-output", tmp_path / "queries"))
    )
    assert plain == beside


def test_a_gate_on_the_catalogue_that_is_not_met(books):
    ended = mean_ndcg(*options({name: books[name] for name in ("input", "judgments", "items")}), "--metrics",
                      "coverage@5", "--gate", "coverage@5>=0.9")  # fmt: skip
    assert ended.code == 3
    assert "gate coverage@5>=0.9: NOT MET (0.555556)" in ended.out


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"item_id": [*COPIES, *OTHERS[:3], "w"]}, ["item_id=w appears twice"]),
        (None, ["metric 'coverage@5' needs the item table", "--items"]),
    ],
)
def test_what_is_refused_writes_nothing(tmp_path, books, columns, named):
    """All that is refused: test_metrics_of_items.py."""
    tables = {name: path for name, path in books.items() if name != "interactions"}
    if columns is None:
        del tables["items"]
    else:
        write(books["items"], **(pq.read_table(books["items"]).to_pydict() | columns))
    ended = mean_ndcg(*options(tables), "--metrics", "coverage@5", "--output", tmp_path / "table")
    assert_refused(ended, *named)
    assert not (tmp_path / "table").exists()
