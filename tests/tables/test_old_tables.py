"""Tables that an earlier version wrote are read, merged, compared and flagged by this one, and get more nights."""

from __future__ import annotations

import shutil
from math import log2
from pathlib import Path

import pytest
from support.main_job import command, mean_ndcg, write_table

from ndcg_spark import compare, merge_summaries
from ndcg_spark.sources.formats import open_table

OLD = Path(__file__).resolve().parents[1] / "old_tables"
RANKS = {
    "2026-01-30": {"a": (1, 1, 2, 3), "b": (1, 2, 3, 3)},
    "2026-01-31": {"a": (2, 1, 1), "b": (1, 1, 1)},
    "2026-02-01": {"a": (3, 3), "b": (1, 2)},
}
"""Ranks of the one relevant item of each query; the last night is not in the old tables."""
BEFORE, NEW = tuple(RANKS)[:2], tuple(RANKS)[2]


def ndcg(rank: int) -> float:
    """NDCG@3 of a list whose one relevant item, of gain 1, is at a rank."""
    return 1 / log2(rank + 1)


def means(*nights: str, of: slice = slice(None)) -> dict[str, tuple[int, float]]:
    """Number of queries of some nights and the mean of their NDCG, of each ranker."""
    found = {}
    for run in ("a", "b"):
        values = [ndcg(rank) for night in nights for rank in RANKS[night][run][of]]
        found[run] = (len(values), pytest.approx(sum(values) / len(values), abs=1e-12))
    return found


def overall(rows, **where):
    """Of each ranker, the number of queries and the mean NDCG; over all of them unless a segment is named."""
    where = {"metric": "ndcg", "segment": "", **where}
    kept = [row for row in rows if all(str(row[name]) == value for name, value in where.items())]
    assert len(kept) == 2
    return {row["run"]: (row["n_queries"], row["value"]) for row in kept}


def new_night(folder: Path, *arguments: object):
    """Evaluate the third night."""
    rows = [
        (f"q{query}", run, item, float(-item), int(item == rank), "DE")
        for run, ranks in RANKS[NEW].items()
        for query, rank in enumerate(ranks)
        for item in (1, 2, 3)
    ]
    names = ("query_id", "ranker", "item_id", "score", "relevance", "country")
    path = write_table(folder / f"{NEW}.parquet", dict(zip(names, zip(*rows, strict=True), strict=True)))
    its = ("--input", path, "--run-col", "ranker", "--run-date", NEW, "--dataset", "shop")
    ended = mean_ndcg(*its, "--k", "3", "--segment-cols", "country", *arguments)
    assert ended.code == 0, ended.err
    return ended


def test_they_are_read_and_merged(spark):
    metrics = open_table(spark, str(OLD / "metrics")).frame
    assert metrics.count() == 36
    assert open_table(spark, str(OLD / "per_query")).frame.count() == 14
    merged = merge_summaries(metrics).collect()
    assert overall(merged) == means(*BEFORE)
    assert overall(merged, segment="DE") == means(*BEFORE, of=slice(2))


def test_they_are_rolled_up(spark):
    ended = command("roll-up", "--input", OLD / "metrics", "--periods", "week", "--json", "-")
    assert ended.code == 0, ended.err
    assert overall(ended.json["periods"]) == means(*BEFORE)


def test_they_are_flagged(spark):
    both = ("--from", BEFORE[0], "--to", BEFORE[1], "--metrics", "ndcg@3")
    ended = command("flag-changes", "--input", OLD / "metrics", *both, "--json", "-")
    assert ended.code == 0, ended.err
    assert ended.json["by_status"] == {"short_history": 12}


def test_runs_of_a_night_are_compared(spark):
    """The differences are 0, .631 - 1, .5 - .631 and 0; together -.5 over 4 queries."""
    night = open_table(spark, str(OLD / "per_query")).frame.where("run_date = '2026-01-30'")
    found = compare(night, baseline="a", metrics="ndcg@3", segments=["country"]).summary.collect()
    assert {row["segment"]: (row["n_queries"], row["difference"]) for row in found} == {
        "": (4, pytest.approx(-0.125, abs=1e-12)),
        "DE": (2, pytest.approx((ndcg(2) - 1) / 2, abs=1e-12)),
        "FR": (2, pytest.approx((ndcg(3) - ndcg(2)) / 2, abs=1e-12)),
    }


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_nights_are_added_to_them(spark, tmp_path, kind):
    """The hash of the configuration is that of the old nights, or they could not be merged."""
    names = {name: str(tmp_path / name) for name in ("metrics", "per_query")}
    for name, path in names.items():
        shutil.copytree(OLD / name, path)
    if kind == "table":
        for name, path in names.items():
            spark.sql(f"CREATE TABLE old_{name} USING parquet LOCATION '{path}'")
            spark.sql(f"MSCK REPAIR TABLE old_{name}")
            names[name] = f"old_{name}"
    try:
        new_night(tmp_path, "--output", names["metrics"], "--per-query-output", names["per_query"])
        metrics = open_table(spark, names["metrics"]).frame
        merged = merge_summaries(metrics).collect()
        assert overall(merged) == means(*RANKS)
        assert overall(metrics.where(f"run_date = '{NEW}'").collect()) == means(NEW)
        per_query = open_table(spark, names["per_query"]).frame
        counted = per_query.groupBy("run_date").count().collect()
        assert {str(row["run_date"]): row["count"] for row in counted} == dict(zip(RANKS, (8, 6, 4), strict=True))
        flagged = command("flag-changes", "--input", names["metrics"], "--metrics", "ndcg", "--json", "-")
        assert flagged.json["by_status"] == {"short_history": 4}
    finally:
        for name in ("metrics", "per_query"):
            spark.sql(f"DROP TABLE IF EXISTS old_{name}")
