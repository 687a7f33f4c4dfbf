"""`ndcg-spark report`: the page it writes, the text it prints, and its refusals."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import pytest
from support.main_job import assert_refused, read_files, run_command, run_mean_ndcg, write_table
from support.reports import SUMMARY, create_comparison_table, create_metrics_table, create_query_table

ROWS = {
    "query_id": ["a", "a", "b", "b"],
    "item_id": ["x", "y", "x", "y"],
    "score": [2.0, 1.0, 2.0, 1.0],
    "relevance": [1, 0, 0, 1],
    "country": ["DE", "DE", "US", "US"],
}


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """Tables of three nights."""
    place = tmp_path_factory.mktemp("report")
    create_metrics_table(spark).write.parquet(str(place / "metrics"))
    create_query_table(spark).write.parquet(str(place / "per_query"))
    create_comparison_table(spark).write.parquet(str(place / "comparison"))
    (place / "summary.json").write_text("a line of a log\n" + json.dumps(SUMMARY), encoding="utf-8")
    return place


def test_report_of_two_nights_of_mean_ndcg(spark, tmp_path):
    rankings = write_table(tmp_path / "rankings.parquet", ROWS)
    for night in ("2026-01-30", "2026-01-31"):
        run_mean_ndcg("--input", rankings, "--k", "1,2", "--segment-cols", "country", "--output",
             tmp_path / "metrics", "--per-query-output", tmp_path / "queries", "--json", tmp_path / "summary.json",
             "--run-date", night, "--dataset", "shop")  # fmt: skip
    page = tmp_path / "report.html"
    ended = run_command("report", "--metrics", tmp_path / "metrics", "--per-query", tmp_path / "queries", "--summary",
                        tmp_path / "summary.json", "--gate", "ndcg@1>=0.4", "--run-date", night, "--output",
                        page)  # fmt: skip
    assert (ended.code, ended.complaints) == (0, [])
    assert ended.out.splitlines()[0].startswith("NDCG@2 0.82 [")
    assert ended.out.splitlines()[1:] == ["gate ndcg@1>=0.4: met (0.500000)"]
    text = page.read_text(encoding="utf-8")
    # NDCG@2 of the two queries: 1 and 1 / log2(3) = 0.6309297535714575; their mean 0.8154648767857288
    assert 'data-value="0.8154648767857288"' in text
    assert "4 rows read = 4 evaluated + 0 rejected as bad + 0 left out by a stated rule" in text
    assert read_files(tmp_path).keys() >= {"report.html"}
    assert not [name for name in read_files(tmp_path) if "unfinished" in name]


@pytest.mark.parametrize("more", [("--baseline", "old"), ("--metric", "dcg@10"), ("--run-date", "2026-01-29")])
def test_both_engines_write_the_same_page(folder, tmp_path, more):
    pages, said = {}, {}
    tables = [word for name in ("per-query", "comparison") for word in (f"--{name}", folder / name.replace("-", "_"))]
    for engine in ("local", "spark"):
        page = tmp_path / f"{engine}.html"
        more_tables = tables if "--baseline" in more else tables[:2]  # the comparison is of one night and metric
        ended = run_command("report", "--metrics", folder / "metrics", *more_tables, *more, "--output", page,
                            "--engine", engine)  # fmt: skip
        assert ended.code == 0, ended.err
        pages[engine], said[engine] = page.read_text(encoding="utf-8"), ended.out
    assert pages["local"] == pages["spark"]
    assert said["local"] == said["spark"]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--run", "nobody"), "there is no run 'nobody'"),
        (("--baseline", "nobody"), "'nobody'"),
        (("--production", "nobody"), "'nobody'"),
        (("--metric", "ap@10"), "'ap@10'"),
        (("--dataset", "other"), "there is no data set 'other'"),
        (("--run-date", "2026-02-28"), "has no rows of data set 'shop' on 2026-02-28"),
        (("--per-query", "./absent"), "there is no path './absent'"),
        (("--comparison", "PER_QUERY"), "is not in the comparison table"),
        (("--metrics", "PER_QUERY"), "is not in the metric table"),
        (("--per-query", "METRICS"), "per-query table"),
        (("--per-query", "TEXTS"), "not a number"),
        (("--metrics", "EMPTY"), "has no rows"),
    ],
)
def test_both_engines_refuse_the_same(folder, tmp_path, more, named):
    write_table(tmp_path / "empty.parquet", {"run": pa.array([], pa.string())} | dict.fromkeys(
        ("segment_by", "segment", "metric"), pa.array([], pa.string())) | {"k": pa.array([], pa.int32()),
        "value": pa.array([], pa.float64())})  # fmt: skip
    texts = {"run": ["old"], "query": ["a"], "k": pa.array([10], pa.int32()), "ndcg": ["high"]}
    write_table(tmp_path / "texts.parquet", texts)
    places = {"METRICS": folder / "metrics", "PER_QUERY": folder / "per_query",
              "EMPTY": tmp_path / "empty.parquet", "TEXTS": tmp_path / "texts.parquet"}  # fmt: skip
    options = {"--metrics": folder / "metrics", more[0]: places.get(more[1], more[1])}
    said = set()
    for engine in ("local", "spark"):
        words = [word for option in options.items() for word in option]
        ended = run_command("report", *words, "--output", tmp_path / "page.html", "--engine", engine)
        assert_refused(ended, named)
        assert not (tmp_path / "page.html").exists()
        said.add(ended.err)
    assert len(said) == 1


def test_report_shows_a_diagnosis(folder, tmp_path):
    rows = {**ROWS, "other": [1.0, 2.0, 2.0, 1.0]}
    rankings, diagnosis = write_table(tmp_path / "rankings.parquet", rows), tmp_path / "diagnosis.json"
    ended = run_command("diagnose", "runs", "--input", rankings, "--score-col", "score,other", "--k", "2",
                        "--baseline", "score", "--run", "other", "--json", diagnosis)  # fmt: skip
    assert ended.code == 0, ended.err
    page = tmp_path / "report.html"
    ended = run_command("report", "--metrics", folder / "metrics", "--diagnosis", diagnosis, "--output", page)
    assert (ended.code, ended.complaints) == (0, [])
    text = page.read_text(encoding="utf-8")
    # The relevant item of query a falls from rank 1 to 2: NDCG@2 from 1 to 1 / log2(3) = 0.6309.
    assert "Lost the most from <bdi>score</bdi> to <bdi>other</bdi>" in text
    assert ("Gained the most" in text, "0.6309" in text) == (False, True)


def test_report_writes_the_page_and_exits_with_3_if_a_gate_is_not_met(folder, tmp_path):
    page = tmp_path / "report.html"
    ended = run_command("report", "--metrics", folder / "metrics", "--comparison", folder / "comparison",
                        "--run-date", "2026-01-31", "--output", page, "--gate", "ndcg@10>=0.43",
                        "--gate", "ndcg@10<0.43")  # fmt: skip
    assert (ended.code, ended.complaints) == (3, [])
    assert ended.out.startswith("new: gate ndcg@10>=0.43 is not met; NDCG@10 fell by 0.0200 to 0.4210")
    assert "gate ndcg@10>=0.43: NOT MET (new: 0.421000)" in ended.out.splitlines()
    assert "gate ndcg@10<0.43 requires less of ndcg, but more is better." in ended.out.splitlines()
    assert "is not met" in page.read_text(encoding="utf-8")


OUT = ("--output", "r.html")
REFUSED = [
    ((), "name the page to write: --output"),
    (("--output", "no/folder/r.html"), "--output 'no/folder/r.html': its folder does not exist"),
    (("--output", "{folder}/metrics"), "is a folder; name a file"),
    ((*OUT, "--run-date", "31.1.2026"), "--run-date: '31.1.2026' is not a date"),
    ((*OUT, "--summary", "{folder}/nothing.json"), "--summary '{folder}/nothing.json' cannot be read"),
    ((*OUT, "--summary", "{folder}/page.html"), "is not a JSON file of mean-ndcg"),
    ((*OUT, "--summary", "{folder}/list.json"), "is not a JSON file of mean-ndcg"),
    (("--output", "{folder}/summary.json", "--summary", "{folder}/summary.json"), "are both"),
    ((*OUT, "--index", "./r.html"), "--index and --output are both 'r.html'"),
    ((*OUT, "--diagnosis", "{folder}/summary.json"), "is not a JSON file of diagnose runs"),
    ((*OUT, "--segments", "0"), "segments must be between 1 and 2,000; got 0"),
]


@pytest.mark.parametrize(("options", "named"), REFUSED)
def test_report_refuses_options_before_spark_starts(tmp_path, monkeypatch, options, named):
    monkeypatch.chdir(tmp_path)
    # stands in for: the session, because none may start
    monkeypatch.setattr("ndcg_spark.jobs.session.open_session", None)
    folder = tmp_path / "stored"
    write_table(folder / "metrics" / "1.parquet", ROWS)
    for name, text in {"summary.json": json.dumps(SUMMARY), "page.html": "<p>", "list.json": "[1]"}.items():
        (folder / name).write_text(text, encoding="utf-8")
    before = read_files(tmp_path)
    filled = [word.format(folder=folder) for word in options]
    assert_refused(run_command("report", "--metrics", folder / "metrics", *filled), named.format(folder=folder))
    assert read_files(tmp_path) == before


def test_report_writes_nothing_if_a_table_is_refused(folder, tmp_path):
    before, page = read_files(folder), ("--output", tmp_path / "r.html")
    for options, named in [
        (("--output", folder / "metrics" / "report.html"), "overlaps --metrics"),
        (("--dataset", "web"), "there is no data set 'web'"),
        (("--metric", "mrr@10"), "metric 'mrr@10': rr@10 is not computed; computed are ndcg@1"),
        (("--per-query", folder / "nothing"), "there is no path"),
        (("--comparison", folder / "metrics"), "'baseline'"),
    ]:
        assert_refused(run_command("report", "--metrics", folder / "metrics", *page, *options), named)
    assert (read_files(tmp_path), read_files(folder)) == ({}, before)


def test_report_leaves_no_files_if_the_output_cannot_be_replaced(folder, tmp_path, monkeypatch):
    from pathlib import Path

    def fail(self, target):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "replace", fail)
    ended = run_command("report", "--metrics", folder / "metrics", "--output", tmp_path / "r.html")
    assert_refused(ended, "Read-only file system")
    assert read_files(tmp_path) == {}


@pytest.mark.parametrize(("package", "module"), [("Jinja2", "page"), ("matplotlib", "figures")])
def test_report_names_missing_packages(folder, tmp_path, monkeypatch, package, module):
    monkeypatch.setitem(sys.modules, package.lower(), None)
    monkeypatch.delitem(sys.modules, f"ndcg_spark.reports.{module}", raising=False)
    ended = run_command("report", "--metrics", folder / "metrics", "--output", tmp_path / "r.html")
    assert_refused(ended, package, "pip install 'ndcg-spark[report]'")
