"""Comparisons without Spark: worked values, what is refused, what is left to Spark, and processes without PySpark.

That both engines give the same bits is the matter of `test_engines_of_comparisons.py`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.closeness import near
from support.comparing import example_1
from support.main_job import assert_refused, command, files_below
from support.paired import X, Y, estimate

from ndcg_spark import compare, evaluate
from ndcg_spark.comparison import LocalComparison
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingPackageError

NAMES = ("a", "b", "c")
FAST = ("--flips", "200", "--replicates", "100")


def queries() -> pa.Table:
    rows = example_1(with_c=True)
    names = {"ndcg": "value", "weight": "weight", "country": "country", "user": "user", "query_id": "query"}
    columns = {name: pa.array([row[its] for row in rows]) for name, its in names.items()}
    return pa.table({"run": [NAMES[row["run"]] for row in rows], "k": pa.repeat(10, len(rows)), **columns})


def test_the_worked_example():
    table = queries().drop_columns(["weight"])
    result = compare(table, baseline="a", runs=["a", "b"], metrics="ndcg", segments="country")
    assert isinstance(result, LocalComparison)
    rows = result.summary.to_pylist()
    assert [(row["run"], row["segment"]) for row in rows] == [("b", s) for s in ("", "DE", "FR", "US")]
    assert (rows[0]["difference"], rows[0]["p_value"]) == (near(0.071666666667), near(0.019159835596))
    assert (rows[0]["boot_low"], rows[0]["boot_t_low"]) == (near(0.022714646424), near(0.020274137492))
    assert (rows[0]["p_sign_flip"], rows[3]["std_error"]) == (0.021484375, near(0.039660013448))
    clustered = compare(table, baseline="a", runs="b", metrics="ndcg", cluster="user").summary.to_pylist()
    assert (clustered[0]["std_error"], clustered[0]["n_clusters"]) == (near(0.034184728740), 5)
    assert (clustered[0]["boot_low"], clustered[0]["boot_high"]) == (near(0.027944444441), near(0.146208333347))


def test_stored_weights_and_pairs():
    options = {"metrics": "ndcg", "replicates": 0, "flips": 0}
    weighted = compare(queries(), baseline="a", **options).summary.to_pylist()[0]
    assert (weighted["difference"], weighted["std_error"]) == (near(0.065), near(0.029933342139))
    plain = compare(queries(), weight="", **options).summary.to_pylist()
    assert [(row["baseline"], row["run"]) for row in plain] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert plain[0]["difference"] == estimate(X, Y).difference
    assert [row["p_holm"] for row in plain] == [near(0.052515915382), near(0.052515915382), near(0.054386395576)]


def test_what_it_shows(capsys):
    result = compare(queries().to_pandas(), baseline="a", runs="b", metrics="ndcg@10", segments="country", weight="")
    assert repr(result).splitlines() == [
        "Comparison: b against a; ndcg@10, by country",
        "tests at 0.05: t, 9,999 sign flips, 1,000 bootstrap replicates, seed 42; queries that one run lacks: zero",
        "compared on this machine: summary (differences)",
    ]
    assert result.engine == "local"
    result.show(1)
    _, first, more = capsys.readouterr().out.splitlines()
    shown = ["b", "a", "overall", "ndcg@10", "0.0717", "[0.0141,", "0.1292]", "0.0575", "not_worse", "12", "0"]
    assert (first.split(), more) == (shown, "... and 3 more; show(4) prints all rows")
    people = result.differences()
    assert people["segment"].to_pylist() == ["overall", "country=DE", "country=FR", "country=US"]
    assert people.schema.field("p").type == pa.float64()
    assert people["missing"].to_pylist() == [0, 0, 0, 0]


def rankings(**columns) -> pa.Table:
    rows = {"query_id": ["q", "q", "r", "r"], "item_id": ["x", "y"] * 2, "score": [2.0, 1.0, 1.0, 2.0]}
    return pa.table({**rows, "relevance": [1.0, 0.0] * 2, **columns})


def test_bad_rows_of_evaluations_are_counted():
    bad = rankings(score=[math.inf, 1.0, 1.0, 2.0])
    runs = {"good": evaluate(rankings()), "bad": evaluate(bad), "never": evaluate(bad)}
    result = compare(runs, runs=["good", "bad"], replicates=0, flips=0)
    for act in (result.show, lambda: result.summary):
        with pytest.raises(InputRefusedError, match=r"^1 bad row of 4 in the data of run 'bad': infinite_score 1 "):
            act()


def test_an_evaluation_that_was_computed_is_not_computed_again(monkeypatch):
    evaluated = evaluate(rankings(other=[1.0, 2.0, 1.0, 2.0]), score=["score", "other"], k=2)
    assert evaluated.per_query.num_rows == 4
    # stands in for: the processes, because nothing may run
    monkeypatch.setattr("ndcg_spark.evaluation.local.LocalRanking._run", None)
    (row,) = compare(evaluated, metrics="ndcg", replicates=0, flips=0).summary.to_pylist()
    second = 1 / math.log2(3)  # of a relevant item on the second rank
    assert (row["baseline_value"], row["value"]) == (near((1 + second) / 2), near(second))


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        ({"query_id": [0.5, 1.5]}, {}, "Spark alone compares by column 'query_id' of type double"),
        ({"k": ["10", "10"]}, {}, "Spark alone compares by column 'k' of type string"),
        ({"user": [True, False]}, {"cluster": "user"}, "Spark alone compares by column 'user' of type boolean"),
    ],
)
def test_what_is_left_to_spark(monkeypatch, change, options, why):
    columns = {"run": ["a", "b"], "query_id": ["q", "q"], "k": [10, 10], "ndcg": [0.5, 1.0]}
    table = pa.table({**columns, **change})
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingPackageError) as refused:
        compare(table, **options)
    assert str(refused.value).startswith(f"this needs Spark, as {why}, and PySpark is not installed")
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")
    with pytest.raises(InvalidParameterError) as refused:
        compare(table, **options)
    assert str(refused.value) == f"NDCG_SPARK_ENGINE=local cannot compare this: {why}."


def test_segments_of_several_types_are_left_to_spark(monkeypatch):
    columns = {"query_id": ["q"], "k": [10], "ndcg": [0.5], "hour": [1]}
    tables = {"a": pa.table(columns), "b": pa.table({**columns, "hour": ["1"]})}
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")
    with pytest.raises(InvalidParameterError, match="cannot compare this: column 'hour' has several types"):
        compare(tables, segments="hour")


def test_the_environment_says_who_compares(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "spark")
    with pytest.raises(MissingPackageError):
        compare(queries())


@pytest.mark.parametrize("given", ["queries.parquet", 3, None, {"a": "queries.parquet"}, []])
def test_what_is_no_table(given):
    with pytest.raises(InvalidParameterError, match=r"^results(\['a'\])? must be a table"):
        compare(given)


def test_tables_without_rows():
    nothing = compare(queries().slice(0, 0), runs=["a", "b"], cluster="user")
    assert nothing.summary.num_rows == 0
    with pytest.raises(InputRefusedError, match="there is no run 'a' to compare: the input has no rows"):
        compare(queries().slice(0, 0), baseline="a")


def test_a_process_without_pyspark(tmp_path: Path):
    """PySpark is not imported where it is installed, either."""
    queries().to_pandas().to_parquet(tmp_path / "queries.parquet")
    code = """
import sys
{block}
import pyarrow.parquet as pq
import ndcg_spark
from ndcg_spark.comparison import compare
from ndcg_spark.main import main
table = pq.read_table("queries.parquet")
print(compare(table, baseline="a", metrics="ndcg", replicates=0, flips=0).summary["difference"][0].as_py())
options = ["--baseline", "a", "--metrics", "ndcg", "--replicates", "0", "--flips", "0"]
code = main(["compare-runs", "--per-query", "queries.parquet", *options, "--json", "out.json"])
print(code, sorted(name for name in ("pyspark", "py4j") if sys.modules.get(name)))
"""
    for block in ("sys.modules['pyspark'] = sys.modules['py4j'] = None", ""):
        ended = subprocess.run(
            [sys.executable, "-c", code.format(block=block)], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        first, *_, last = ended.stdout.splitlines()
        assert (float(first), last) == (near(0.065), "0 []"), ended.stderr
        rows = json.loads((tmp_path / "out.json").read_text())["comparison"]
        assert rows[0]["difference"] == float(first)


# ------------------------------------------------------------------------------------------------------------ the job


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pq.write_table(queries(), tmp_path / "queries.parquet")
    return tmp_path / "queries.parquet"


def run(*arguments: object):
    return command("compare-runs", *arguments, "--engine", "local")


def test_explain_names_the_engine_and_writes_nothing(table, tmp_path):
    out = tmp_path / "comparison"
    ended = run("--per-query", table, "--baseline", "a", "--output", out, "--explain")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    lines = {line.split("  ")[0]: line.rpartition("  ")[2] for line in ended.out.splitlines()}
    assert lines["engine"] == "local: --engine local"
    assert lines["cost"] == "one pass over the metrics of queries by this process"
    assert lines["pairs"] == "b against a, c against a"
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--per-query", "T", "--run-col", "user"), "the run column of --per-query is not 'run'"),
        (("--per-query", "SELECT 1"), "the format sql is Spark's"),
        (("--per-query", "T", "--query-col", "ndcg"), "Spark alone compares by column 'ndcg' of type double"),
        (
            (
                "--input",
                "T",
                "--score-col",
                "ndcg",
                "--relevance-col",
                "ndcg",
                "--item-col",
                "user",
                "--strategy",
                "window",
            ),
            "strategy=window ranks in Spark",
        ),
    ],
)
def test_what_the_job_leaves_to_spark(table, options, why):
    ended = run(*[table if one == "T" else one for one in options])
    assert_refused(ended, f"--engine local cannot do this: {why}; --engine spark can.")


def test_nights_and_data_sets(table, tmp_path):
    """A night that is not chosen is not read: its file is none."""
    nightly = tmp_path / "nightly"
    for night, dataset in (("2026-01-30", "shop"), ("2026-01-31", "shop")):
        folder = nightly / f"run_date={night}"
        folder.mkdir(parents=True)
        stored = queries().append_column("dataset", pa.repeat(dataset, queries().num_rows))
        pq.write_table(stored, folder / "1.parquet")
    same = ("--per-query", nightly, "--metrics", "ndcg", "--runs", "a,b", *FAST, "--json", "-")
    told = "--per-query has 2 nights, from 2026-01-30 to 2026-01-31; --run-date chooses one"
    assert_refused(run(*same), told)
    chosen = run(*same, "--run-date", "2026-01-31")
    assert (chosen.code, chosen.json["comparison"][0]["n_queries"]) == (0, 12), chosen.err
    assert chosen.json["dataset"] == "nightly"


def test_the_run_log(table, tmp_path):
    ended = run("--per-query", table, "--baseline", "a", "--metrics", "ndcg", *FAST, "--output", tmp_path / "out",
                "--run-log", tmp_path / "log", "--run-date", "2026-01-31", "--dataset", "shop")  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = pq.read_table(tmp_path / "log").to_pylist()[-1:]
    assert (row["command"], row["status"], row["spark_version"]) == ("compare-runs", "succeeded", None)
    assert len(files_below(tmp_path / "out")) > 0
    assert isinstance(pd.read_parquet(tmp_path / "out"), pd.DataFrame)
