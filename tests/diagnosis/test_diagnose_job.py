"""`diagnose` end to end, and its refusals."""

from __future__ import annotations

import pytest
from support.main_job import assert_refused, read_stored_rows, run_command, write_table

NIGHTS = {"2026-01-30": {"DE": (7, 0.5), "US": (3, 0.25)}, "2026-01-31": {"DE": (4, 0.5), "US": (6, 0.75)}}


@pytest.fixture
def metrics(spark, tmp_path):
    """A metric table of two nights, written by the main job."""
    del spark
    out = tmp_path / "metrics"
    for day, segments in NIGHTS.items():
        rows = [
            (f"{country}{n}", item, score, grade, country)
            for country, (size, share) in segments.items()
            for n in range(size)
            for item, score, grade in (("a", 2.0, int(n < share * size)), ("b", 1.0, int(n >= share * size)))
        ]
        names = ("query_id", "item_id", "score", "relevance", "country")
        path = write_table(tmp_path / f"{day}.parquet", dict(zip(names, zip(*rows, strict=True), strict=True)))
        ended = run_command("mean-ndcg", "--input", path, "--k", "1", "--segment-cols", "country",
                            "--output", out, "--run-date", day, "--dataset", "shop")  # fmt: skip
        assert ended.code == 0, ended.err
    return out


def test_two_nights_and_their_run_log(metrics, tmp_path):
    ended = run_command("diagnose", "nights", "--metric-table", metrics, "--before", "2026-01-30", "--after",
                        "2026-01-31", "--dataset", "shop", "--metric", "ndcg@1", "--json", "-", "--run-log",
                        tmp_path / "runs")  # fmt: skip
    assert ended.code == 0, ended.err
    rows = {(row["segment"], row["is_total"]): row for row in ended.json["shifts"]}
    # Queries with a correct list: 4 of 7 and 1 of 3, then 2 of 4 and 5 of 6.
    assert (rows["DE", False]["value_before"], rows["DE", False]["value_after"]) == (pytest.approx(4 / 7), 0.5)
    total = rows["", True]
    assert total["mix"] + total["within"] == pytest.approx(0.7 - 0.5, abs=1e-15)
    assert rows["US", False]["within"] == pytest.approx((0.3 + 0.6) / 2 * (5 / 6 - 1 / 3), abs=1e-15)
    assert "ndcg@1 by country, 2026-01-30 to 2026-01-31" in ended.out
    (row,) = read_stored_rows(tmp_path / "runs")
    assert (row["run_date"], row["dataset"]) == ("2026-01-31", "shop")


@pytest.fixture
def rankings(spark, tmp_path):
    del spark
    rows = [(f"q{n}", f"i{i}", -float(i), float((i * (n + 2)) % 7), (i * n) % 4)
            for n in range(1, 9) for i in range(6)]  # fmt: skip
    names = ("query_id", "item_id", "old", "new", "relevance")
    return write_table(tmp_path / "rankings.parquet", dict(zip(names, zip(*rows, strict=True), strict=True)))


def test_two_runs(rankings):
    ended = run_command("diagnose", "runs", "--input", rankings, "--score-col", "old,new", "--k", "3",
                        "--baseline", "old", "--run", "new", "--top", "2", "--json", "-")  # fmt: skip
    assert (ended.code, ended.complaints) == (0, []), ended.err
    means = {(row["run"], row["metric"]): row["value"] for row in ended.json["losses"]}
    for run in ("old", "new"):
        lost = means[run, "lost_not_retrieved"] + means[run, "lost_ranked_low"]
        assert lost == pytest.approx(1 - means[run, "ndcg"], abs=1e-12)
    changes = [(row["change"], row["place"]) for row in ended.json["queries"]]
    assert changes == [("gained", 1), ("gained", 2)]
    assert "No query lost from old to new." in ended.out
    assert all(len(row["list"]) == 3 == len(row["baseline_list"]) for row in ended.json["queries"])
    assert "queries that gained most from old to new" in ended.out


def test_rankings_that_cannot_be_diagnosed_are_refused(spark, tmp_path):
    del spark
    rows = [(run, f"q{n}", item, score, int(item == "a")) for run in ("old", "new") for n in range(3)
            for item, score in (("a", 2.0), ("b", 1.0))]  # fmt: skip
    names = ("ranker", "query_id", "item_id", "score", "relevance")
    path = write_table(tmp_path / "runs.parquet", dict(zip(names, zip(*rows, strict=True), strict=True)))
    ended = run_command("diagnose", "runs", "--input", path, "--run-col", "ranker", "--k", "1", "--run", "new",
                        "--baseline", "typo")  # fmt: skip
    assert_refused(ended, "run 'typo' (--baseline) has no rows; the runs are 'new', 'old'")
    path = write_table(tmp_path / "run.parquet", {"query_id": ["q"], "item_id": ["a"], "s": [1.0], "relevance": [0]})
    for k, message in (
        ("1", "there is no query with a relevant item to diagnose"),
        ("all", "cutoffs that are numbers"),
    ):
        ended = run_command("diagnose", "runs", "--input", path, "--score-col", "s", "--k", k)
        assert_refused(ended, message)


def test_two_nights_without_a_segment_in_common_are_refused(metrics, tmp_path):
    """Both nights have the metric, but only one has segments."""
    source = tmp_path / "later.parquet"
    columns = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [2.0, 1.0], "relevance": [1, 0]}
    ended = run_command("mean-ndcg", "--input", write_table(source, columns), "--k", "1", "--output", metrics,
                        "--run-date", "2026-02-01", "--dataset", "shop")  # fmt: skip
    assert ended.code == 0, ended.err
    ended = run_command("diagnose", "nights", "--metric-table", metrics, "--before", "2026-01-31",
                        "--after", "2026-02-01", "--metric", "ndcg@1")  # fmt: skip
    assert_refused(ended, "has no segments of ndcg", "on both 2026-01-31 and 2026-02-01")

    ended = run_command("diagnose", "nights", "--metric-table", metrics, "--before", "2026-01-30",
                        "--after", "2026-03-01")  # fmt: skip
    assert_refused(ended, "there is no night '2026-03-01'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nights", "--metric-table", "M", "--before", "2026-01-30", "--after", "2026-01-30"), "name two nights"),
        (("nights", "--metric-table", "M", "--before", "x", "--after", "2026-02-01"), "is not a date"),
        (("runs",), "Missing option '--input'"),
        (("runs", "--input", "R", "--run", "new"), "--baseline and --run must be used together"),
        (("runs", "--input", "R", "--score-col", "old", "--top", "0"), "top must be at least 1; got 0"),
    ],
)
def test_options_are_refused_before_spark_starts(monkeypatch, arguments, message):
    # stands in for: the session, because none may start
    monkeypatch.setattr("ndcg_spark.jobs.session.open_session", None)
    assert_refused(run_command("diagnose", *arguments), message)
