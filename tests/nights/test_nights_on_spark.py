"""A night with steps of Spark: in one session, each by what earlier steps wrote."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from support.main_job import read_stored_rows, run_command
from support.night_files import (
    FILE,
    NIGHT,
    assert_resumed_with_late_file,
    make_night_folder,
    read_log,
    read_statuses,
    run_night,
    split_by_ranker,
    write_file,
)

import ndcg_spark


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return make_night_folder(tmp_path, monkeypatch)


MORE = """
[[step]]
command = "flag-changes"
direction = "both"
output = "./flags"

[[step]]
command = "roll-up"
periods = ["week"]
output = "./weeks"

[[step]]
command = "report"
output = "night-{run_date}.html"
index = "night-index.html"
"""


def absolute(text: str, folder: Path) -> str:
    """A file whose places do not depend on the folder in which Java was started."""
    return re.sub(r'"(?:\./)?(rankings/|log|metrics|queries|comparisons|flags|weeks|night-)', rf'"{folder}/\1', text)


@pytest.mark.classic("processes of Arrow write folders of this machine")
def test_a_usual_night(spark, folder):
    """Of 16 lines; the second night is held against the first, and the week has both."""
    write_file(absolute(FILE + MORE, folder))
    assert run_night("--backfill", "2026-01-30..2026-01-30").code == 0
    ended = run_night("--message", "said.txt")
    done = dict.fromkeys(("mean-ndcg", "compare-runs", "flag-changes", "roll-up", "report"), "succeeded")
    assert (ended.code, read_statuses(ended)) == (0, done | {"flag-changes": "flagged"}), ended.err
    page = (folder / f"night-{NIGHT}.html").read_text("utf-8")
    assert "vectors" in page
    assert "2026-01-31" in page
    (week,) = [
        row
        for row in read_stored_rows(folder / "weeks")
        if (row["run"], row["metric"], row["k"], row["period_end"])
        == ("vectors", "ndcg", 1, NIGHT.replace(month=2, day=1))
    ]
    # The relevant item is second of three queries on the first night, and first on the second.
    assert (week["n_days"], week["value"]) == (2, 0.5)
    assert {row["run_date"] for row in read_stored_rows(folder / "flags")} == {"2026-01-30", "2026-01-31"}
    assert len(read_log(folder)) == 12
    first = json.loads((folder / "said.json").read_text("utf-8"))
    assert set(read_statuses(run_night("--resume", "--message", "said.txt")).values()) == {"succeeded before"}
    again = json.loads((folder / "said.json").read_text("utf-8"))
    assert again["verdict"] == first["verdict"] == "bad"
    assert again["lines"][1:] == [
        first["lines"][1],
        "nothing was run; all results are up to date",
        first["lines"][-1],
    ]
    refused = run_night("--backfill", "2026-02-01..2026-02-01")
    assert (refused.code, read_statuses(refused)["report"]) == (2, "not run")
    newest, earlier = re.findall(r'<tr><th scope="row".*?</tr>', (folder / "night-index.html").read_text("utf-8"))[:2]
    assert "<time>2026-02-01</time>" in newest
    assert "mean-ndcg refused: " in newest
    assert f'<a href="night-{NIGHT}.html">' in earlier


@pytest.fixture
def schema(spark, tmp_path):
    name = "night_tables"
    spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path}/{name}'")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.slow
@pytest.mark.classic("places of catalog tables")
def test_the_first_night_of_catalog_tables_that_do_not_exist_yet(spark, folder, schema, monkeypatch):
    """Each step is checked before the tables that it reads are there."""
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "spark")
    tables = re.sub(r'"\./(log|metrics|queries|comparisons|flags|weeks)"', rf'"{schema}.\1"', FILE + MORE)
    write_file(absolute(tables, folder))
    ended = run_night()
    assert ended.code == 0, ended.err
    assert set(read_statuses(ended).values()) == {"succeeded"}
    assert (folder / f"night-{NIGHT}.html").exists()


@pytest.mark.classic("places of catalog tables")
def test_a_catalog_table_of_several_nights_is_read_a_night_at_a_time(spark, folder, schema, monkeypatch):
    """With the file that `init` writes."""
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "spark")
    nights = (spark.read.parquet(f"{folder}/rankings/2026-01-{day}.parquet") for day in (30, 31))
    first, second = (
        frame.withColumn("run_date", F.to_date(F.lit(f"2026-01-{day}")))
        for frame, day in zip(nights, (30, 31), strict=True)
    )
    first.unionByName(second).write.partitionBy("run_date").saveAsTable(f"{schema}.rankings")
    assert run_command("init", "--input", f"{schema}.rankings", "--output", "made.toml").code == 0
    text = (folder / "made.toml").read_text("utf-8").replace('"./', f'"{folder}/')
    (folder / "made.toml").write_text(text, encoding="utf-8")
    ended = run_command("nightly", "--config", "made.toml", "--run-date", NIGHT, "--only", "mean-ndcg")
    assert ended.code == 0, ended.err
    means = {
        row["run"]: row["value"]
        for row in read_stored_rows(folder / "metrics")
        if (row["metric"], row["k"]) == ("ndcg", 10)
    }
    # The relevant item is second for `bm25`, and first for `vectors` on the second night.
    assert means == {"bm25": pytest.approx(1 / math.log2(3)), "vectors": 1.0}


@pytest.mark.classic("processes of Arrow write folders of this machine")
def test_a_page_for_flagged_nights_leaves_the_index_of_others_alone(spark, folder):
    """The step `report` is not run, as nothing is flagged on the first night; that is no night without a result."""
    write_file(absolute(FILE + MORE.replace('command = "report"', 'command = "report"\nwhen = "flagged"'), folder))
    (folder / "night-index.html").write_text("<tbody>\n</tbody>", encoding="utf-8")
    ended = run_night("--backfill", "2026-01-30..2026-01-30")
    assert (ended.code, read_statuses(ended)["report"]) == (0, "not run")
    assert (folder / "night-index.html").read_text("utf-8") == "<tbody>\n</tbody>"


@pytest.mark.slow
@pytest.mark.classic("processes of Arrow write folders of this machine")
def test_what_a_night_that_is_run_again_makes_old(spark, folder):
    """The flags and the page of the later night were made of the earlier one; its comparison and the week were not.

    Points in time are stored to the second.
    """
    write_file(absolute(FILE + MORE, folder))
    assert "older" not in run_night("--backfill", "2026-01-30..2026-01-31").out
    before = {name: read_stored_rows(folder / name) for name in ("metrics", "comparisons", "flags", "weeks")}
    time.sleep(1)
    again = run_night("--backfill", "2026-01-30..2026-01-30")
    assert again.out.splitlines()[-4:] == [
        "older than their inputs:",
        "  flag-changes: 2026-01-31 is older",
        "  report: 2026-01-31 is older",
        "  to renew them: ndcg-spark nightly --config night.toml --backfill 2026-01-31..2026-01-31 --stale",
    ]
    renewed = run_night("--backfill", "2026-01-31..2026-01-31", "--stale")
    assert read_statuses(renewed) == {"flag-changes": "flagged", "report": "succeeded"}
    assert "older than" not in renewed.out
    assert "nothing is older" in run_night("--stale").out
    times = {"computed_at": "", "source_computed_at": ""}
    for name, rows in before.items():
        assert [row | times for row in read_stored_rows(folder / name)] == [row | times for row in rows]


def test_columns_are_refused_before_anything_runs(spark, folder):
    """The per-query table has no column `q`. What does not need the flags is run, and the page says why they lack."""
    write_file(absolute(FILE + MORE.replace('"flag-changes"', '"flag-changes"\nquery-col = "q"'), folder))
    actual = {element.step: element.status for element in ndcg_spark.nightly("night.toml", night=NIGHT)}
    assert actual["flag-changes"] == "refused"
    assert (actual["mean-ndcg"], actual["roll-up"], actual["report"]) == ("succeeded", "succeeded", "succeeded")
    page = (folder / f"night-{NIGHT}.html").read_text("utf-8")
    assert "flag-changes: refused: column &#39;q&#39; (--query-col) is not in the per-query table" in page


def test_a_file_that_arrives_after_spark_opened_the_input_is_read_when_the_night_is_resumed(
    spark, folder, monkeypatch
):
    night = split_by_ranker(folder)
    text = absolute(FILE.replace("{run_date}.parquet", "{run_date}"), folder)
    write_file('engine = "spark"\nsource = "spark"\n' + text.partition('[[step]]\ncommand = "compare-runs"')[0])
    assert_resumed_with_late_file(folder, night, monkeypatch)
