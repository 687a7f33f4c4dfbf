"""The worked examples through the main job: every form of input, and the answer as JSON and per query."""

from __future__ import annotations

import json

import pytest
from support.engines import parametrize_engine
from support.main_job import (
    find_query_values,
    find_value,
    read_stored_rows,
    run_mean_ndcg,
    write_judgments,
    write_rows,
    write_run,
    write_table,
)
from support.oracle import Choices, build_ranking, evaluate, mean
from support.printed_values import BOOSTED, EXAMPLES, PRINTED, Example

CUTOFFS = (4, 5, 6)
METRICS = ("dcg", "idcg", "ndcg")
HERE = ("--engine", "local")
ROWS = [
    row
    for name, example in EXAMPLES.items()
    for row in build_ranking(example.relevances, unretrieved=example.unretrieved, query=name)
]


def expected(gain: str, examples: dict[str, Example] = EXAMPLES) -> dict[tuple[str, str, int], object]:
    """The printed values by (query, metric, k)."""
    return {
        (name, metric, example.k): pytest.approx(value, abs=PRINTED)
        for name, example in examples.items()
        for metric, value in zip(METRICS, getattr(example, gain) or (), strict=False)
        if value is not None
    }


def assert_printed(got: dict, gain: str, examples: dict[str, Example] = EXAMPLES) -> None:
    wanted = expected(gain, examples)
    assert {key: got[key] for key in wanted} == wanted


def k_flag(*cutoffs: int) -> tuple[str, str]:
    return "--k", ",".join(map(str, cutoffs or CUTOFFS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


# ------------------------------------------------------------------------------------------------- long tables


@pytest.fixture(scope="module")
def long_linear(folder):
    """Judged items that were not retrieved have no score; short lists are padded."""
    source = write_rows(folder / "long.parquet", ROWS)
    return run_mean_ndcg(
        *("--input", source, "--null-score", "unretrieved", "--convention", "linear", "--pad-to-k", 0),
        *(*k_flag(), "--per-query-output", folder / "queries", "--json", "-", *HERE),
    )


def test_per_query_output_of_a_long_table(long_linear, folder):
    rows = read_stored_rows(folder / "queries")
    assert {"run", "query_id", "k", "dcg", "idcg", "ndcg"} <= rows[0].keys()
    assert {row["run"] for row in rows} == {""}
    assert sorted((row["query_id"], row["k"]) for row in rows) == sorted((q, k) for q in EXAMPLES for k in CUTOFFS)
    assert_printed({(row["query_id"], m, row["k"]): row[m] for row in rows for m in METRICS}, "linear")


def test_json_of_a_long_table(long_linear):
    results = evaluate(ROWS, Choices(gain="linear", pad_to_k=0.0), CUTOFFS)
    for metric in METRICS:
        for k in CUTOFFS:
            wanted = mean(results, k, metric)
            assert find_value(long_linear.json, metric, k) == pytest.approx(wanted, abs=1e-12), (metric, k)


def test_json_has_the_keys_of_the_contract(long_linear):
    outcome = long_linear.json
    assert set(outcome) >= {"metrics", "rows"}
    wanted = {"run", "segment_by", "segment", "metric", "k", "value", "n_queries"}
    assert [row for row in outcome["metrics"] if not wanted <= row.keys()] == []
    overall = [row for row in outcome["metrics"] if row["metric"] == "ndcg" and row["k"] == 6]
    assert [(row["run"], row["segment_by"], row["segment"]) for row in overall] == [("", "", "")]
    assert overall[0]["n_queries"] == len(EXAMPLES)
    rows = outcome["rows"]
    assert rows["read"] == rows["evaluated"] + rows["left_out"] == len(ROWS)
    assert rows["rejected"] == 0


def test_json_is_alone_on_the_last_line_of_stdout(long_linear):
    assert long_linear.out.endswith("}\n")
    *before, last = long_linear.out.splitlines()
    assert isinstance(json.loads(last), dict)
    assert before
    assert [line for line in before if line.lstrip().startswith(("{", "["))] == []


def test_rankers_in_one_csv_and_json_in_a_file(folder):
    """The two rankers of the example rank one query: each is normalised by its own list."""
    rankers = {name: ("a", name) for name in EXAMPLES} | {"ranker a": ("a", "shared"), "ranker b": ("b", "shared")}
    source = write_rows(
        folder / "long.csv",
        ROWS,
        ("item_id", "score", "relevance"),
        ranker=lambda row: rankers[row.query][0],
        query_id=lambda row: rankers[row.query][1],
    )
    run_mean_ndcg(
        *("--input", source, "--null-score", "unretrieved", "--run-col", "ranker", *k_flag(5, 6)),
        *("--segment-cols", "query_id", "--json", folder / "out.json", *HERE),
    )
    outcome = json.loads((folder / "out.json").read_text("utf-8"))
    actual = [row for row in outcome["metrics"] if row["segment_by"] == "query_id"]
    got = {(row["run"], row["segment"], row["metric"], row["k"]): row["value"] for row in actual}
    wanted = {(*rankers[name], metric, k): value for (name, metric, k), value in expected("exponential").items()}
    assert {key: got[key] for key in wanted} == wanted
    assert find_value(outcome, "ndcg", 5, run="b") == pytest.approx(0.624051, abs=PRINTED)
    assert sorted(path.name for path in folder.glob("out.json*")) == ["out.json"]


def test_a_boosted_first_slot(folder):
    source = write_rows(folder / "boosted.parquet", build_ranking(EXAMPLES["best last"].relevances))
    ended = run_mean_ndcg(
        "--input", source, "--gain", "linear", "--discount", BOOSTED, *k_flag(5), "--json", "-", *HERE
    )
    assert find_value(ended.json, "dcg", 5) == pytest.approx(6.672418, abs=PRINTED)
    assert find_value(ended.json, "ndcg", 5) == pytest.approx(0.943302, abs=PRINTED)


# ------------------------------------------------------------------------------------------- run and judgments


@parametrize_engine("gain, ending", local=[("linear", "csv")], spark=[("exponential", "parquet")])
def test_run_and_judgments(engine, folder, gain, ending):
    ended = run_mean_ndcg(
        *("--input", write_run(folder / f"run.{ending}", ROWS)),
        *("--judgments", write_judgments(folder / f"qrels.{ending}", ROWS)),
        *("--gain", gain, *k_flag(), "--segment-cols", "query_id", "--json", "-"),
        *("--per-query-output", folder / f"queries of {gain}", "--engine", engine["engine"]),
    )
    assert_printed(find_query_values(ended.json), gain)
    stored = read_stored_rows(folder / f"queries of {gain}")
    assert_printed({(row["query_id"], m, row["k"]): row[m] for row in stored for m in METRICS}, gain)
    assert ended.json["rows"]["read"] == sum(row.score is not None for row in ROWS)


# ------------------------------------------------------------------------------- other forms, as in the README


def test_a_query_and_a_catalog_table(spark, folder):
    run, judgments = write_run(folder / "sql" / "run.parquet", ROWS), folder / "catalog"
    write_judgments(judgments / "part.parquet", ROWS)
    spark.sql(f"CREATE TABLE example_judgments USING parquet LOCATION '{judgments}'")
    try:
        ended = run_mean_ndcg(
            *("--input", f"SELECT * FROM parquet.`{run}` WHERE score IS NOT NULL"),
            *("--judgments", "example_judgments", "--convention", "linear", *k_flag()),
            *("--segment-cols", "query_id", "--json", "-"),
        )
    finally:
        spark.sql("DROP TABLE example_judgments")
    assert_printed(find_query_values(ended.json), "linear")


def test_trec_files(folder):
    name = {name: name.replace(" ", "_") for name in EXAMPLES}
    run = [f"{name[r.query]} Q0 {r.item} 1 {r.score} tag" for r in ROWS if r.score is not None]
    qrels = [f"{name[r.query]}  0\t{r.item} {r.relevance}" for r in ROWS]
    (folder / "run.txt").write_text("\n".join(run) + "\n")
    (folder / "qrels.txt").write_text("\n".join(["# judged by hand", *qrels]) + "\n")
    ended = run_mean_ndcg(
        *("--input", folder / "run.txt", "--input-format", "trec-run"),
        *("--judgments", folder / "qrels.txt", "--judgments-format", "trec-qrels"),
        *("--convention", "linear", *k_flag(), "--segment-cols", "query_id", "--json", "-", *HERE),
    )
    assert_printed(find_query_values(ended.json), "linear", {name[key]: one for key, one in EXAMPLES.items()})


def test_ranks_that_were_logged(folder):
    complete = {name: example for name, example in EXAMPLES.items() if not example.unretrieved}
    rows = [row for row in ROWS if row.query in complete]
    source = write_rows(
        folder / "logged.csv", rows, ("query_id", "item_id", "relevance"), rank=lambda row: int(row.item) + 1
    )
    ended = run_mean_ndcg("--input", source, *k_flag(), "--segment-cols", "query_id", "--json", "-", *HERE)
    assert_printed(find_query_values(ended.json), "exponential", complete)


def test_a_list_a_query(folder):
    lists = {
        "query_id": list(EXAMPLES),
        "relevance": [list(example.relevances) for example in EXAMPLES.values()],
        "judged": [[*example.relevances, *example.unretrieved] for example in EXAMPLES.values()],
    }
    source = write_table(folder / "lists.parquet", lists)
    ended = run_mean_ndcg(
        *("--input", source, "--ideal-col", "judged", "--convention", "linear", *k_flag()),
        *("--segment-cols", "query_id", "--json", "-", *HERE),
    )
    assert_printed(find_query_values(ended.json), "linear")
