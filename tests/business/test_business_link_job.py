"""`business-link`: output, exit codes, refusals."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from support.main_job import assert_refused, read_stored_rows, run_command, write_table
from support.nights import CLICKS, NDCG, build_click_rows, build_metric_rows, nth_night, to_columns

pytestmark = pytest.mark.usefixtures("spark")
METRIC_TYPES = {"run_date": pa.date32(), "segment": pa.string(), "k": pa.int32()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("link")


def write(path, rows):
    return write_table(path, to_columns(rows), METRIC_TYPES)


@pytest.fixture(scope="module")
def metrics(folder):
    return write(folder / "metrics.parquet", [*build_metric_rows(NDCG), *build_metric_rows(NDCG, metric="dcg")])


@pytest.fixture(scope="module")
def clicks(folder):
    return write(folder / "clicks.parquet", build_click_rows(CLICKS))


def link(*arguments):
    return run_command("business-link", *arguments)


def test_business_link_prints_and_stores_an_alarm(metrics, clicks, tmp_path):
    outputs = ("--output", tmp_path / "links", "--json", "-")
    ended = link("--input", metrics, "--clicks", clicks, *outputs, "--fail-on-alarm")
    assert (ended.code, ended.complaints) == (3, [])
    assert "ndcg@10 of overall  click-through  nights 14  Pearson -0.927 [-0.977, -0.781]" in ended.out
    assert (
        "ALARM ndcg up, click-through down: ndcg@10 of overall; 2026-01-08..2026-01-14 against "
        "2026-01-01..2026-01-07: ndcg +2.75 % ± 0.44 %, click-through -3.94 % ± 0.87 %" in ended.out
    )
    assert [(row["metric"], row["rate"]) for row in ended.json["links"]] == [("ndcg", "ctr"), ("ndcg", "cvr")]
    assert (ended.json["as_of"], ended.json["dataset"], len(ended.json["alarms"])) == ("2026-01-14", "shop", 1)
    rows = read_stored_rows(tmp_path / "links")
    assert {(row["run_date"], row["dataset"], row["rate"], row["alarm"]) for row in rows} == {
        ("2026-01-14", "shop", "ctr", "metric_up_ctr_down"),
        ("2026-01-14", "shop", "cvr", None),
    }
    assert rows[0]["window_to"] == date(2026, 1, 14)
    assert "window=7,window_days=28,min_change=0.01" in rows[0]["limits"]
    assert link("--input", metrics, "--clicks", clicks, *outputs).code == 0
    assert len(read_stored_rows(tmp_path / "links")) == 2  # the night was replaced


def test_limits_are_options(metrics, clicks):
    ended = link("--input", metrics, "--clicks", clicks, "--min-change", 0.03, "--json", "-", "--fail-on-alarm")
    assert (ended.code, ended.json["alarms"]) == (0, [])
    assert "no alarm" in ended.out
    assert "by 0.03 or more and 2.447 standard errors" in ended.out


def test_metrics_are_chosen_by_name(metrics, clicks):
    ended = link("--input", metrics, "--clicks", clicks, "--metrics", "dcg@10", "--json", "-")
    assert {row["metric"] for row in ended.json["links"]} == {"dcg"}
    assert_refused(
        link("--input", metrics, "--clicks", clicks, "--metrics", "ap"), "there is no metric 'ap'", "are dcg, ndcg"
    )


def test_nights_left_out_are_printed(metrics, folder):
    few = build_click_rows(CLICKS[1:], run_date=None)
    for at, row in enumerate(few):
        row["run_date"] = nth_night(at + 1)
    few[0]["impressions"] = 10
    other = build_click_rows(CLICKS[:1], segment_by="country", segment="DE")
    ended = link("--input", metrics, "--clicks", write(folder / "few.parquet", [*few, *other]))
    assert "nights 12 (left out: 1 without clicks, 1 of few impressions)" in ended.out
    assert "clicks without a metric: country=DE" in ended.out
    assert "alarms: 2 of 2 series have fewer than 14 nights to compare" in ended.out


def test_csv_with_text_in_every_column(metrics, folder):
    path = write_table(folder / "clicks.csv", to_columns(build_click_rows(CLICKS)))
    ended = link("--input", metrics, "--clicks", path, "--json", "-")
    assert ended.json["links"][0]["pearson"] == pytest.approx(-0.927374429422, abs=1e-12)


def test_refusals_write_nothing(metrics, clicks, folder, tmp_path):
    read, output = ("--input", metrics, "--clicks", clicks), ("--output", tmp_path / "links")
    bad = write(folder / "bad.parquet", [*build_click_rows(CLICKS), *build_click_rows([-3], run_date=nth_night(3))])
    assert_refused(link("--input", metrics, "--clicks", bad, *output), "got -3 at run_date=2026-01-04", "Nothing was")
    lines = (folder / "clicks.csv").read_text().splitlines()
    (folder / "long.csv").write_text("\n".join([*lines, lines[1] + ",7"]) + "\n")
    assert_refused(link("--input", metrics, "--clicks", folder / "long.csv", *output), "is not a date", "Nothing was")
    late = write(folder / "late.parquet", build_click_rows(CLICKS, run_date=nth_night(30)))
    assert_refused(link("--input", metrics, "--clicks", late, *output), "no night of a segment is in both tables")
    two = write(folder / "two.parquet", [*build_metric_rows(NDCG), *build_metric_rows(NDCG, dataset="app")])
    assert_refused(link("--input", two, "--clicks", clicks, *output), "several data sets (app, shop)", "--dataset")
    assert_refused(link(*read, *output, "--as-of", "14.1.2026"), "--as-of: '14.1.2026' is not a date")
    assert_refused(link(*read, *output, "--window", 1), "window must be at least 2")
    assert_refused(link(*read, "--output", clicks), "--clicks and --output are both")
    assert_refused(link("--input", clicks, "--clicks", clicks, *output), "column 'metric'", "metric table")
    assert_refused(link("--input", metrics, "--clicks", metrics, *output), "column 'impressions'", "clicks")
    assert list(tmp_path.iterdir()) == []
