"""Comparisons of tables of Arrow, without Spark: worked values, every kind of input, policies, and what is refused.

That Spark finds the same bits is the matter of `test_engines_of_comparisons.py`.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.comparing import X, Y, Z, estimate, example_1
from support.engines import table as arrow
from support.engines import with_columns
from support.expectations import near

from ndcg_spark import compare, evaluate
from ndcg_spark.comparison import LocalComparison
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, MissingPackageError

NAMES = ("a", "b", "c")
SCHEMA = "run string, query_id string, k int, ndcg double, dcg double, weight double, country string, user string"
WORKED = near(0.065), near(0.029933342139)
"""Difference and standard error of b against a, weighted."""
PLAIN = {"replicates": 0, "flips": 0}
WEIGHTED = arrow(
    [
        (NAMES[r["run"]], r["query"], 10, r["value"], 2 * r["value"], r["weight"], r["country"], r["user"])
        for r in example_1(with_c=True)
    ],
    SCHEMA,
)
TABLE = WEIGHTED.drop_columns(["weight"])


def of_run(table, *runs):
    return table.filter(pc.is_in(table["run"], pa.array(runs)))


def compared(results, **options):
    """Rows in the order of their keys, without resampling."""
    rows = compare(results, **{**PLAIN, **options}).summary.to_pylist()
    keys = ("baseline", "run", "segment_by", "segment", "metric")
    return sorted(rows, key=lambda row: (*(row[name] or "" for name in keys), row["k"] or 0))


def test_the_worked_example():
    result = compare(TABLE, baseline="a", runs=["a", "b"], metrics="ndcg", segments="country")
    assert isinstance(result, LocalComparison)
    rows = result.summary.to_pylist()
    assert [(row["run"], row["segment"]) for row in rows] == [("b", s) for s in ("", "DE", "FR", "US")]
    assert (rows[0]["difference"], rows[0]["p_value"]) == (near(0.071666666667), near(0.019159835596))
    assert (rows[0]["boot_low"], rows[0]["boot_t_low"]) == (near(0.022714646424), near(0.020274137492))
    assert (rows[0]["p_sign_flip"], rows[3]["std_error"]) == (0.021484375, near(0.039660013448))
    (clustered,) = compare(TABLE, baseline="a", runs="b", metrics="ndcg", cluster="user").summary.to_pylist()
    assert (clustered["std_error"], clustered["n_clusters"]) == (near(0.034184728740), 5)
    assert (clustered["boot_low"], clustered["boot_high"]) == (near(0.027944444441), near(0.146208333347))


def test_all_pairs_of_the_runs_that_a_table_has():
    rows = compared(TABLE, metrics="ndcg@10")
    assert [(row["baseline"], row["run"]) for row in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert rows[0]["difference"] == estimate(X, Y).difference
    assert [row["p_holm"] for row in rows] == [near(0.052515915382), near(0.052515915382), near(0.054386395576)]


def test_ndcg_is_compared_and_dcg_beside_it_is_not_tested():
    """p of c against a is .017505305127 (COMPARE's worked example); one test leaves it, two double it."""
    options = {"baseline": "a", "runs": ["a", "c"]}
    dcg, ndcg = compared(TABLE, **options)
    assert (dcg["metric"], ndcg["metric"]) == ("dcg", "ndcg")
    assert ndcg["difference"] == estimate(X, Z).difference
    assert dcg["difference"] == near(2 * estimate(X, Z).difference)
    assert (dcg["ci_low"], dcg["std_error"]) == (near(2 * ndcg["ci_low"]), near(2 * ndcg["std_error"]))
    assert [dcg[name] for name in ("p_value", "p_holm", "p_bh", "verdict")] == [None] * 4
    assert (ndcg["p_value"], ndcg["p_holm"], ndcg["family_size"]) == (near(0.017505305127), ndcg["p_value"], 1)
    assert ndcg["verdict"] == "better"
    assert compared(TABLE.drop_columns(["dcg"]), **options) == [ndcg]
    named = compared(TABLE, **options, metrics="ndcg,dcg")
    assert [row["p_holm"] for row in named] == [2 * ndcg["p_value"]] * 2
    assert {(row["family_size"], row["verdict"]) for row in named} == {(2, "better")}
    assert set(compare(TABLE, baseline="a", **PLAIN).to_pandas()["metric"]) == {"ndcg@10"}


RANKINGS = arrow(
    [
        (query, item, score_a, score_b, relevance, country)
        for query, country in (("q1", "DE"), ("q2", "US"), ("q3", "DE"))
        for item, score_a, score_b, relevance in (("i", 3.0, 1.0, 0), ("j", 2.0, 4.0, 2), ("k", 1.0, 3.0, 1))
    ],
    "query_id string, item_id string, old double, new double, relevance int, country string",
)


def test_dcg_of_an_evaluation_is_tested_where_it_was_named():
    both = evaluate(RANKINGS, score=["old", "new"], metrics=["ndcg@1", "ndcg@3", "dcg@3", "ap@3"])
    rows = {(row["metric"], row["k"]): row for row in compared(both, baseline="old")}
    assert set(rows) == {("ndcg", 1), ("ndcg", 3), ("dcg", 1), ("dcg", 3), ("ap", 3)}
    assert {at for at, row in rows.items() if row["verdict"] is None} == {("dcg", 1)}


def test_evaluations():
    """Of two columns of scores, one each, and a run column; the table of their queries; weights."""
    data = with_columns(RANKINGS, w=pa.array([3.0] * 3 + [1.0] * 6))
    options = {"k": [1, 3], "segments": ["country"], "weight": "w"}
    several = evaluate(data, score=["old", "new"], **options)
    rows = compared(several, baseline="old")
    assert {(row["metric"], row["k"], row["segment"]) for row in rows} == {
        (metric, k, segment) for metric in ("ndcg", "dcg") for k in (1, 3) for segment in ("", "DE", "US")
    }
    means = {
        (row["run"], row["metric"], row["k"], row["segment"]): row["value"] for row in several.summary.to_pylist()
    }
    for row in rows:
        at = (row["metric"], row["k"], row["segment"])
        assert (row["baseline_value"], row["value"]) == (means[("old", *at)], means[("new", *at)])
    assert rows != compared(several, baseline="old", weight="")
    one_each = {name: evaluate(data, score=name, **options) for name in ("old", "new")}
    assert compared(one_each, baseline="old") == rows
    long = pa.concat_tables(
        with_columns(data, score=data[name], ranker=name).drop_columns(["old", "new"]) for name in ("old", "new")
    )
    assert compared(evaluate(long, run="ranker", **options), baseline="old") == rows
    assert compared(several.per_query, baseline="old", segments="country") == rows
    told = "the input has one run without a name; two runs need run= or score="
    with pytest.raises(InvalidParameterError, match=told):
        compare(evaluate(data, score="old", k=3), runs=["old", "new"])


def test_queries_of_one_run_follow_the_convention():
    is_kept = [row["run"] != "b" or row["query_id"] != "q01" for row in TABLE.to_pylist()]
    some = TABLE.filter(pa.array(is_kept))
    (zero,) = compared(some, metrics="ndcg", runs=["a", "b"])
    assert (zero["n_queries"], zero["unpaired"], zero["n_only_baseline"]) == (12, "zero", 1)
    (row,) = compared(some, metrics="ndcg", runs=["a", "b"], convention="default;missing_query=drop")
    assert (row["n_queries"], row["unpaired"], row["difference"]) == (11, "drop", estimate(X[1:], Y[1:]).difference)


@pytest.mark.parametrize(
    ("convention", "unpaired", "expected"),
    [
        # NDCG@1 of q1, q2, q3, q4 is 1, 0, 1, - by a and 0, 0, -, - by b; nobody answers q4.
        ("default", None, (-2 / 4, 4)),
        ("default", "zero", (-2 / 4, 4)),
        ("default", "drop", (-1 / 2, 2)),
        ("trec_eval", None, (-1 / 2, 2)),
        ("trec_eval", "zero", (-2 / 3, 3)),
    ],
)
def test_queries_that_a_run_misses_are_told_and_unpaired(convention, unpaired, expected):
    """Of an evaluation and of its stored table, of rows and of lists."""
    judgments = pa.table({"query_id": ["q1", "q2", "q3", "q4"], "item_id": ["x"] * 4, "relevance": [1] * 4})
    cells = {"ranker": list("aaabb"), "query_id": ["q1", "q2", "q3", "q1", "q2"]}
    items = ["x", "y", "x", "y", "y"]
    rows, lists = (
        pa.table({**cells, "item_id": items, "score": [1.0] * 5}),
        pa.table({**cells, "items": [[x] for x in items]}),
    )
    of_rows = evaluate(rows, judgments, run="ranker", k=1, convention=convention)
    of_lists = evaluate(lists, judgments, ranked="items", run="ranker", k=1, convention=convention)
    options = {"baseline": "a", "metrics": "ndcg", "convention": convention}
    for results in (of_rows, of_lists, of_rows.per_query_table):
        (row,) = compared(results, unpaired=unpaired, **options)
        assert (row["difference"], row["n_queries"], row["n_only_baseline"], row["n_skipped"]) == (*expected, 1, 0)
        with pytest.raises(InputRefusedError, match="query query_id=q3 is in run 'a' and not in 'b'"):
            compared(results, unpaired="error", **options)


def test_stored_weights_are_used():
    options = {"baseline": "a", "metrics": "ndcg"}
    for names in (None, ["a", "b"]):
        row = compared(WEIGHTED, **options, runs=names)[0]
        assert (row["difference"], row["std_error"]) == WORKED
    row = compared(WEIGHTED, **options, weight="", runs=["a", "b"])[0]
    assert (row["difference"], row["std_error"]) == (near(0.071666666667), near(0.026135814663))
    two = {"a": of_run(WEIGHTED, "a"), "b": of_run(TABLE, "b")}
    with pytest.raises(InputRefusedError, match="of run 'a' has stored weights and that of run 'b' has none"):
        compare(two, **options)
    assert compared(two, **options, weight="")[0]["difference"] == near(0.071666666667)


def test_some_of_several_tables_are_compared():
    tables = {name: of_run(TABLE, name) for name in NAMES}
    (row,) = compared(tables, runs=["c", "a"], metrics="ndcg")
    assert (row["baseline"], row["run"], row["difference"]) == ("c", "a", -estimate(X, Z).difference)


def test_the_baseline_is_one_of_the_runs_that_are_chosen():
    chosen = [compare(TABLE, baseline="a", runs=runs, metrics="ndcg", replicates=0) for runs in ("b", ["a", "b"])]
    assert chosen[0].summary == chosen[1].summary
    assert chosen[0].settings.runs == ("a", "b")


def test_stored_replicates_add_up():
    """Queries drawn, differences and squares in two limbs; the first two as the kernels' worked example has them."""
    options = {"replicates": 3, "flips": 0, "keep_replicates": True}
    result = compare(TABLE, baseline="a", runs=["a", "b"], metrics="ndcg", **options)
    ((n_replicates, n_places, *places_and_sums),) = result.summary["replicates"].to_pylist()
    sums = places_and_sums[n_places:]
    assert (n_replicates, n_places, sums[0], sums[3]) == (3, 4, 15, 5282809773)


def test_an_evaluation_that_was_computed_is_not_computed_again(monkeypatch):
    evaluated = evaluate(RANKINGS, score=["old", "new"], k=3)
    assert evaluated.per_query.num_rows == 6
    # stands in for: the processes, because nothing may run
    monkeypatch.setattr("ndcg_spark.evaluation.local.LocalRanking._run", None)
    (row,) = compared(evaluated, metrics="ndcg")
    third = 1 + 3 / math.log2(3)  # DCG of 2, 1, 0 with gains 3, 1, 0 is 3 + 1 / log2(3)
    assert row["value"] == near(1.0)
    assert row["baseline_value"] == near((3 / math.log2(3) + 1 / 2) / (3 + 1 / math.log2(3)))
    assert third > row["value"]


# ------------------------------------------------------------------------------------------------ what it shows


def test_what_it_shows(capsys):
    """The worked example again, by what a person reads: `differences` names what `summary` has."""
    result = compare(TABLE.to_pandas(), baseline="a", runs="b", metrics="ndcg@10", segments="country")
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
    rows = {row["segment"]: row for row in result.summary.to_pylist()}
    people = result.to_pandas()
    assert people.columns.tolist() == result.differences().schema.names
    # All queries first; then clear differences, the largest first; then those that may be chance.
    assert people["segment"].tolist() == ["overall", "country=DE", "country=FR", "country=US"]
    assert people["missing"].tolist() == [0, 0, 0, 0]
    for row in people.to_dict("records"):
        group = rows[row["segment"].removeprefix("country=").replace("overall", "")]
        named = {"difference": "difference", "verdict": "verdict", "n": "n_queries"}
        assert all(row[name] == group[column] for name, column in named.items())
        for name, column in (("p", "p_holm"), ("ci_low", "ci_low")):
            assert (group[column] is None and math.isnan(row[name])) or row[name] == group[column]
    assert result._repr_html_().count("<tr") == 5


def test_small_numbers_are_not_shown_as_zero(capsys):
    rows = [
        (run, f"q{n}", 10, 0.5 + (0.00001 + n / 1e9) * (run == "new")) for n in range(9) for run in ("old", "new")
    ]
    result = compare(arrow(rows, "run string, query_id string, k int, ndcg double"), baseline="old")
    result.show()
    assert "1.0e-05" in capsys.readouterr().out
    result.to_pandas().drop(columns="run", inplace=True)
    result.show(-1)
    assert capsys.readouterr().out == "... and 1 more; show(1) prints all rows\n"
    assert "<th>run</th>" in result._repr_html_()


# ----------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        (None, {"metrics": []}, InvalidParameterError, "metrics must name at least one metric, such as ndcg"),
        (None, {"query": []}, InvalidParameterError, "query= must name at least one column"),
        (None, {"seed": -1, "flips": 9}, InvalidParameterError, "seed must be between 0 and 2^63 - 1; got -1"),
        (None, {"effect": 0.0}, InvalidParameterError, "effect must be finite and not 0; got 0.0"),
        (None, {"cluster": "usr"}, MissingColumnError, "column 'usr'"),
        (None, {"cluster": "usr"}, MissingColumnError, "Did you mean 'user'"),
        (None, {"baseline": "d"}, InvalidParameterError, "baseline must be one of a, b, c; got 'd'."),
        (None, {"baseline": "d", "runs": "b"}, InvalidParameterError, "baseline must be one of a, b, c; got 'd'."),
        (None, {"runs": "b,c"}, InvalidParameterError, "run must be one of a, b, c; got 'b,c'."),
        (None, {"runs": "a"}, InvalidParameterError, "a comparison needs two runs; got 'a'."),
        (None, {"runs": ["a", "b", "a"]}, InvalidParameterError, "run 'a' is named twice."),
        (None, {"weight": "country"}, InputRefusedError, "not a number"),
        (None, {"runs": ["typo", "a"], "baseline": "typo"}, InputRefusedError,
         "run 'typo' has no rows; of the runs to compare, these have some: 'a'."),
        (None, {"runs": ["typo", "a"], "baseline": "typo", "unpaired": "drop"}, InputRefusedError,
         "run 'typo' has no rows; of the runs to compare, these have some: 'a'."),
        ("twice", {}, InputRefusedError,
         "query query_id=q05 appears twice in run 'a' at k=10; choose the rows of one night and data set."),
        ("ideals", {}, InputRefusedError, "two values of IDCG"),
        ("null weights", {"runs": ["a", "b"]}, InputRefusedError, "weight='' compares without weights"),
        ("empty", {}, InputRefusedError, "there is no run 'a' to compare: the input has no rows"),
    ],
)  # fmt: skip
def test_comparisons_that_are_refused(change, options, error, message):
    table = {
        None: TABLE,
        "twice": pa.concat_tables([TABLE, TABLE.slice(4, 1)]),
        "ideals": with_columns(
            TABLE, idcg=pa.array([1.0 if run == "a" else 2.0 for run in TABLE["run"].to_pylist()])
        ),
        "null weights": with_columns(TABLE, weight=pa.nulls(len(TABLE), pa.float64())),
        "empty": TABLE.slice(0, 0),
    }[change]
    with pytest.raises(error, match=re.escape(message)):
        compare(table, **{"baseline": "a", "metrics": "ndcg", **PLAIN, **options}).to_pandas()
    if change == "ideals":
        assert len(compared(table, baseline="a", metrics="ndcg", convention="default;ideal=retrieved")) == 2
    if change == "null weights":  # as a table has them to which another data set added the column
        assert compared(table, baseline="a", metrics="ndcg")[0]["difference"] == near(0.071666666667)
    if change == "empty":
        assert compared(table, runs=["a", "b"], cluster="user") == []


def test_runs_of_several_tables_are_named():
    with pytest.raises(InvalidParameterError, match="run must be one of x, y; got 'z'"):
        compare({"x": TABLE, "y": TABLE}, runs=["x", "z"])


@pytest.mark.parametrize(
    ("evaluated", "options", "named"),
    [
        ({"k": 3}, {"k": 7}, "k=7 is not one of the cutoffs that were evaluated"),
        ({"metrics": ["ap@3"]}, {"k": 7}, "k=7 is not one of the cutoffs that were evaluated"),
        ({"k": [3, "all"]}, {"metrics": "ndcg", "k": 7}, "'ndcg' was evaluated at k=3, all; got k=7"),
        ({"metrics": ["ap@3", "ndcg@5"]}, {"metrics": "ap@5"}, "'ap' was evaluated at k=3; got k=5"),
    ],
)
def test_a_cutoff_at_which_nothing_was_evaluated_is_refused(evaluated, options, named):
    """A comparison without a row would say that nothing differs."""
    result = evaluate(RANKINGS, score=["old", "new"], **evaluated)
    with pytest.raises(InvalidParameterError, match=re.escape(named)):
        compare(result, baseline="old", **options)


def test_bad_rows_of_evaluations_are_counted():
    bad = with_columns(RANKINGS, old=pa.array([math.inf, *[1.0] * 8]))
    runs = {
        "good": evaluate(RANKINGS, score="new"),
        "bad": evaluate(bad, score="old"),
        "never": evaluate(bad, score="old"),
    }
    result = compare(runs, runs=["good", "bad"], **PLAIN)
    for act in (result.show, lambda: result.summary):
        with pytest.raises(InputRefusedError, match=r"^1 bad row of 9 in the data of run 'bad': infinite_score 1 "):
            act()


# --------------------------------------------------------------------------------- what this machine leaves to Spark


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        ({"query_id": [0.5, 1.5]}, {}, "only Spark can compare by column 'query_id' of type double"),
        ({"k": ["10", "10"]}, {}, "only Spark can compare by column 'k' of type string"),
        ({"user": [True, False]}, {"cluster": "user"}, "only Spark can compare by column 'user' of type boolean"),
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
    with pytest.raises(
        InvalidParameterError, match="cannot compare this: column 'hour' has different types in two of"
    ):
        compare(tables, segments="hour")


def test_the_environment_says_who_compares(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "spark")
    with pytest.raises(MissingPackageError):
        compare(TABLE)


@pytest.mark.parametrize("given", ["queries.parquet", 3, None, {"a": "queries.parquet"}, []])
def test_what_is_no_table(given):
    with pytest.raises(InvalidParameterError, match=r"^results(\['a'\])? must be a table"):
        compare(given)


@pytest.mark.slow
def test_a_process_without_pyspark(tmp_path: Path):
    """PySpark is not imported where it is installed, either."""
    WEIGHTED.to_pandas().to_parquet(tmp_path / "queries.parquet")
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
