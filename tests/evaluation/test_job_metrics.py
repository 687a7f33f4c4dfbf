"""Metrics beside NDCG through the main job: JSON, tables, gates, and what a person reads."""

from __future__ import annotations

import pytest
from support.main_job import mean_ndcg, read_stored_rows, run_mean_ndcg, write_rows
from support.oracle import build_ranking

from ndcg_spark.main import main
from ndcg_spark.metrics import all_metrics

LIST = build_ranking([0, 3, None, 2, 0, 1, 3, 0], unretrieved=[2, 0], query="worked")
WORKED = {
    ("p(rel=2)", 5): 0.4,
    ("r", 5): 0.4,
    ("ap", None): 0.414285714286,
    ("err", 10): 0.276657104492,
    ("rr", None): 0.5,
}
NAMES = "ndcg@5,P(rel=2)@5,R@5,AP,ERR@10,RR"


def test_worked_values_in_json_and_in_both_tables(engine, tmp_path):
    rows = write_rows(tmp_path / "rows.parquet", LIST)
    table, queries = tmp_path / "table", tmp_path / "queries"
    common = ("--input", rows, "--null-score", "unretrieved", "--metrics", NAMES, "--engine", engine["engine"])
    ended = run_mean_ndcg(
        *common, "--output", table, "--per-query-output", queries, "--gate", "rr>=0.5", "--json", "-"
    )
    actual = {(row["metric"], row["k"]): row["value"] for row in ended.json["metrics"]}
    assert actual.keys() == {*WORKED, *((name, 5) for name in ("ndcg", "dcg", "idcg"))}
    assert {key: actual[key] for key in WORKED} == pytest.approx(WORKED, abs=1e-12)
    assert {(row["metric"], row["k"]): row["value"] for row in read_stored_rows(table)} == actual
    by_cutoff = {row["k"]: row for row in read_stored_rows(queries)}
    assert (by_cutoff[5]["p_rel_2"], by_cutoff[None]["ap"]) == (0.4, actual["ap", None])
    assert by_cutoff[10]["p_rel_2"] is None
    assert {by_cutoff[k][name] for k in (10, None) for name in ("ndcg", "dcg", "idcg")} == {None}
    assert by_cutoff[5]["ndcg"] == actual["ndcg", 5]
    assert "P(rel=2)@5 0.4000" in ended.out
    (line,) = [line for line in ended.out.splitlines() if line.startswith("overall ")]
    places = [line.index(f"  {name}") for name in NAMES.split(",")]
    assert places == sorted(places)  # as they were asked for
    assert "gate rr>=0.5: met" in ended.out


def test_a_gate_on_another_metric_that_is_not_met(tmp_path):
    rows = write_rows(tmp_path / "rows.parquet", LIST)
    ended = mean_ndcg("--input", rows, "--null-score", "unretrieved", "--metrics", "ap,p@5", "--gate", "p@5>0.9",
                      "--engine", "local")  # fmt: skip
    assert ended.code == 3
    assert "gate p@5>0.9: NOT MET (0.400000)" in ended.out


def test_metrics_beside_do_not_change_the_configuration_that_ndcg_is_merged_by(tmp_path):
    rows = write_rows(tmp_path / "rows.parquet", LIST)
    common = ("--input", rows, "--null-score", "unretrieved", "--json", "-", "--k", "5", "--engine", "local")
    plain, more = (run_mean_ndcg(*common, *extra).json["config_hash"] for extra in ((), ("--metrics", "ndcg,p")))
    assert plain == more


def test_the_list_of_metrics_names_all(capsys):
    assert main(["metrics"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in all_metrics() if name not in printed] == []
