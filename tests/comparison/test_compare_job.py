"""The comparison job: worked values from tables and rankings, slices, gates, and refusals that write nothing."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.comparing import build_settings, example_1
from support.expectations import near
from support.main_job import assert_refused, read_files, read_stored_rows, run_command, write_table

from ndcg_spark.comparison.command import ComparisonGate
from ndcg_spark.comparison.printed import format_sentence, sort_key
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.sources.slices import choose_value

NIGHT = ("--run-date", "2026-01-31", "--dataset", "shop")
FAST = ("--flips", "200", "--replicates", "100")
TYPES = {"k": pa.int32(), "ndcg": pa.float64(), "dcg": pa.float64(), "weight": pa.float64()}
TYPES |= dict.fromkeys(("run", "query_id", "country", "user"), pa.string())


def run(*arguments):
    """Without Spark; that both engines write and print the same, `test_engines_of_comparisons.py` says."""
    return run_command("compare-runs", *arguments, "--engine", "local")


def per_query(path, runs, *, names=("a", "b", "c"), weighted=False):
    rows = [row for row in example_1(with_c=True) if names[row["run"]] in runs]
    columns = {
        "run": [names[row["run"]] for row in rows],
        "query_id": [row["query"] for row in rows],
        "k": [10] * len(rows),
        "ndcg": [row["value"] for row in rows],
        "dcg": [2 * row["value"] for row in rows],
        "country": [row["country"] for row in rows],
        "user": [row["user"] for row in rows],
    }
    if weighted:
        columns["weight"] = [row["weight"] for row in rows]
    write_table(path, columns, TYPES)
    return path


@pytest.fixture
def table(tmp_path):
    return per_query(tmp_path / "queries.parquet", ("a", "b", "c"))


def test_the_worked_example_is_compared_and_written(table, tmp_path):
    out, file = tmp_path / "comparison", tmp_path / "c.json"
    ended = run("--per-query", table, "--baseline", "a", "--runs", "a,b", "--metrics", "ndcg@10", "--segment-cols",
                "country", *NIGHT, "--output", out, "--json", file, "--gate", "ndcg@10.ci_low>-0.002",
                "--verbose")  # fmt: skip
    assert (ended.code, ended.complaints) == (0, []), ended.err
    assert "ndcg@10: b is not worse than a (+0.0717, 95% interval [+0.0141, +0.1292]" in ended.out
    # Three rows have a p-value: 3 x .019159835596 = .0575.
    assert ", p 0.0575 after Holm, 3 tests; 12 queries)" in ended.out
    assert "p 0.6102 after Holm, 3 tests  unclear (few queries)" in ended.out
    assert "gate ndcg@10.ci_low>-0.002: met (b against a: 0.014142)" in ended.out
    rows = {row["segment"]: row for row in read_stored_rows(out)}
    assert set(rows) == {"", "DE", "US", "FR"}
    assert (rows[""]["p_value"], rows["US"]["p_value"]) == (near(0.019159835596), near(0.610173154686))
    assert (rows[""]["p_holm"], rows[""]["family_size"]) == (pytest.approx(3 * 0.019159835596, abs=1.6e-12), 3)
    assert (rows[""]["boot_low"], rows[""]["p_sign_flip"]) == (near(0.022714646424), 0.021484375)
    assert (rows[""]["dataset"], rows[""]["baseline_input"]) == ("shop", rows[""]["input"])
    shown = json.loads(file.read_text())
    assert [row["segment"] for row in shown["comparison"]] == ["", "DE", "FR", "US"]
    assert shown["gates"] == [
        {"gate": "ndcg@10.ci_low>-0.002", "run": "b", "baseline": "a", "value": near(0.014142126447), "met": True}
    ]


@pytest.mark.parametrize(("margin", "loss"), [("0", "a loss"), ("0.05", "a loss of 0.05 or more")])
def test_segments_that_are_not_worse_are_explained(table, margin, loss):
    """DE has the interval from .0034 to .1823; the other countries have fewer queries."""
    ended = run("--per-query", table, "--baseline", "a", "--runs", "a,b", "--metrics", "ndcg@10", "--segment-cols",
                "country", "--margin", margin)  # fmt: skip
    assert f"By segment: 1 not worse (interval excludes {loss}); 2 unclear" in ended.out


def test_what_a_difference_takes_and_what_a_run_lacks_is_said(table, tmp_path):
    """163 queries detect 0.02 in the worked example; two queries of b are taken out of a copy of it."""
    same = ("--baseline", "a", "--runs", "a,b", "--metrics", "ndcg", *FAST)
    lines = run("--per-query", table, *same, "--effect", "0.02").out.splitlines()
    assert lines[0].startswith("ndcg@10: b is better than a")
    assert lines[0].endswith(" 12 queries). To detect +0.02 you would need 163 queries (one test, power 80%).")
    verbose = run("--per-query", table, *same, "--effect", "0.02", "--verbose").out.splitlines()
    assert verbose[1] == "ndcg@10: to detect +0.02 you would need 163 queries (one test, power 80%)."
    whole = pq.read_table(table).to_pylist()
    lacking = sorted({row["query_id"] for row in whole})[:2]
    few = tmp_path / "few.parquet"
    rows = [row for row in whole if row["run"] != "b" or row["query_id"] not in lacking]
    write_table(few, {name: [row[name] for row in rows] for name in rows[0]}, TYPES)
    for unpaired, how in (("zero", "counted as 0"), ("drop", "left out")):
        lines = run("--per-query", few, *same, "--unpaired", unpaired).out.splitlines()
        assert lines[0] == f"ndcg@10: b lacks 2 queries of a, {how}."
    # The shift of the worked example, 0.080456 / 0.026147, times the error of c against b, 0.018969.
    lines = run("--per-query", table, "--baseline", "b", "--runs", "c", "--metrics", "ndcg", *FAST).out.splitlines()
    assert lines[0].startswith("ndcg@10: c may or may not differ from b")
    assert lines[0].endswith(" 12 queries). 12 queries detect a difference of 0.0584 or more (one test, power 80%).")
    lines = run("--per-query", table, "--runs", "b,c", "--metrics", "ndcg", "--margin", "0.1", *FAST).out.splitlines()
    assert lines[0].startswith("ndcg@10: c is at most 0.1 worse than b (-0.0408, 95% interval [-0.0826, +0.0009]")


def test_a_run_without_a_name_is_the_run():
    row = {"difference": None, "metric": "ndcg", "k": 10, "run": "", "baseline": "before"}
    assert format_sentence(row, build_settings()) == "ndcg@10: no query of the run can be compared with before."


def test_lines_of_segments_name_them_as_they_are_and_where_the_run_is_worse(tmp_path):
    """Of 300 queries 200 gain 0.2 or so, and 60 and 40 lose 0.3 and 0.1: better in sum."""
    rows = []
    for at in range(300):
        city, change = ("New York", 0.2) if at < 200 else ("NewYork", -0.3) if at < 260 else ("Oslo", -0.1)
        for name, value in (("a", 0.5), ("b", 0.5 + change + (at % 5 - 2) / 100)):
            rows.append({"run": name, "query_id": f"q{at}", "k": 10, "ndcg": value, "city of": city})
    path = write_table(tmp_path / "mixed.parquet", {name: [row[name] for row in rows] for name in rows[0]}, TYPES)
    same = ("--per-query", path, "--baseline", "a", "--metrics", "ndcg@10", "--segment-cols", "city of", *FAST)
    assert run(*same).out.splitlines()[1:] == [
        "By segment: 1 better, +0.2000 (city of=New York); 2 worse, most -0.3000 (city of=NewYork); "
        "--verbose (in a file: verbose = true) prints them."
    ]
    verbose = [line.partition(" city of=")[2] for line in run(*same, "--verbose").out.splitlines()]
    assert sorted(line.partition(" queries=")[0] for line in verbose if line) == ["New York", "NewYork", "Oslo"]


def test_at_most_three_lines_a_pair(table, tmp_path):
    """What a run lacks, the first metric at its largest cutoff, and the verdicts elsewhere; all if asked for."""
    whole = pq.read_table(table).to_pylist()
    lacking = sorted({row["query_id"] for row in whole})[0]
    few = tmp_path / "few.parquet"
    rows = [row for row in whole if row["run"] == "a" or row["query_id"] != lacking]
    write_table(few, {name: [row[name] for row in rows] for name in rows[0]}, TYPES)
    same = ("--per-query", few, "--baseline", "a", "--metrics", "ndcg,dcg", "--segment-cols", "country", *FAST)
    lines = run(*same).out.splitlines()
    assert len(lines) == 6
    for run_, group in (("b", lines[:3]), ("c", lines[3:])):
        assert group[0] == f"ndcg@10: {run_} lacks 1 query of a, counted as 0."
        assert group[1].startswith(f"ndcg@10: {run_} ")
        assert group[2].startswith("Other metrics and segments: ")
        assert group[2].endswith("; --verbose (in a file: verbose = true) prints them.")
    verbose = run(*same, "--verbose").out.splitlines()
    n_rows = sum(line.startswith("run=") for line in verbose)
    counts = re.compile(r"(\d+) (?:better|worse|unclear|not)")
    assert sum(int(n) for line in (lines[2], lines[5]) for n in counts.findall(line)) == n_rows - 2


def test_a_rerun_replaces_the_slice_of_its_baseline_and_no_other(table, tmp_path):
    out = tmp_path / "comparison"
    same = ("--per-query", table, "--metrics", "ndcg", *NIGHT, "--output", out, *FAST)
    for baseline in (("--baseline", "a"), ("--baseline", "b"), (), ("--baseline", "a", "--runs", "a,c")):
        ended = run(*same, *baseline)
        assert (ended.code, ended.complaints) == (0, []), ended.err
    actual = sorted((row["slice"].rpartition("-")[0], row["run"], row["baseline"]) for row in read_stored_rows(out))
    assert actual == [
        ("shop.-all-pairs-", "b", "a"),
        ("shop.-all-pairs-", "c", "a"),
        ("shop.-all-pairs-", "c", "b"),
        ("shop.a", "c", "a"),
        ("shop.b", "a", "b"),
        ("shop.b", "c", "b"),
    ]


def test_dcg_is_not_tested_unless_it_was_named(table):
    same = ("--per-query", table, "--baseline", "a", "--runs", "a,b", *FAST, "--json", "-")
    rows = {row["metric"]: row for row in run(*same).json["comparison"]}
    assert (rows["ndcg"]["p_holm"], rows["ndcg"]["family_size"]) == (rows["ndcg"]["p_value"], 1)
    assert (rows["dcg"]["p_value"], rows["dcg"]["p_holm"], rows["dcg"]["verdict"]) == (None, None, None)
    named = run(*same, "--metrics", "ndcg,dcg", "--verbose")
    assert {row["family_size"] for row in named.json["comparison"]} == {2}
    assert "dcg@10: b is better than a" in named.out
    gate = ("--gate", "dcg@10.p_holm<0.05")
    assert_refused(run(*same, *gate), "gate 'dcg@10.p_holm<0.05': dcg was added to ndcg and is not tested")
    assert run(*same, *gate, "--metrics", "ndcg,dcg").code == 0


def test_a_gate_that_is_not_met_ends_with_3_after_writing(table, tmp_path):
    out = tmp_path / "comparison"
    ended = run("--per-query", table, "--baseline", "a", "--metrics", "ndcg", *NIGHT, "--output", out, *FAST,
                "--gate", "ndcg@10.ci_low>0.03", "--gate", "ndcg.n_queries>=12", "--gate", "ndcg.ci_high<9", "--json",
                "-")  # fmt: skip
    assert ended.code == 3
    assert [gate["met"] for gate in ended.json["gates"]] == [False, False, True, True, True, True]
    (against,) = [line for line in ended.out.splitlines() if " requires " in line]
    assert against == "gate ndcg.ci_high<9 requires less of ndcg, but more is better."
    assert "NOT MET (c against a:" in ended.out
    assert len(read_stored_rows(out)) == 2


def test_two_tables_and_clusters(table, tmp_path):
    new, old = per_query(tmp_path / "new.parquet", ("b",)), per_query(tmp_path / "old.parquet", ("a",))
    ended = run("--per-query", new, "--baseline-per-query", old, "--baseline", "before", "--metrics", "ndcg",
                "--cluster-col", "user", "--json", "-")  # fmt: skip
    assert (ended.code, ended.complaints) == (0, []), ended.err
    (row,) = ended.json["comparison"]
    assert (row["run"], row["baseline"], row["n_clusters"]) == ("b", "before", 5)
    assert (row["std_error"], row["boot_low"]) == (near(0.034184728740), near(0.027944444441))
    assert ended.json["baseline_input"] != ended.json["input"]


def test_runs_are_selected_by_their_stored_names(table, tmp_path):
    one, old = per_query(tmp_path / "b.parquet", ("b",)), per_query(tmp_path / "old.parquet", ("a", "c"))
    same = ("--baseline-per-query", old, "--metrics", "ndcg", *FAST, "--json", "-")
    told = "--per-query has no rows of run 'new'; its runs are 'b'"
    assert_refused(run("--per-query", one, *same, "--baseline", "a", "--runs", "new"), told)
    told = "--baseline-per-query has several runs, 'a', 'c'; name one of them by --baseline"
    assert_refused(run("--per-query", one, *same, "--baseline", "before"), told)
    alone = run("--per-query", one, *same, "--baseline", "a").json["comparison"]
    assert alone[0]["difference"] == near(0.071666666667)
    several = per_query(tmp_path / "bc.parquet", ("b", "c"))
    chosen = run("--per-query", several, *same, "--baseline", "a", "--runs", "b")
    assert chosen.json["comparison"] == alone
    both = run("--per-query", several, *same, "--baseline", "a", "--runs", "b,c").json["comparison"]
    assert [row["run"] for row in both] == ["b", "c"]
    assert both[0]["difference"] == alone[0]["difference"]
    told = "--per-query also has a run 'a', the name of the baseline"
    assert_refused(run("--per-query", table, *same, "--baseline", "a"), told)


def test_stored_weights_are_used_and_the_job_says_so(table, tmp_path):
    weighted = per_query(tmp_path / "w.parquet", ("a", "b"), weighted=True)
    same = ("--baseline", "a", "--metrics", "ndcg", *FAST, "--json", "-")
    used = run("--per-query", weighted, *same)
    assert (
        "Queries have the weights of their means (stored column 'weight'); --weight-col '' turns weights off."
        in used.out
    )
    row = used.json["comparison"][0]
    assert (row["difference"], row["std_error"]) == (near(0.065), near(0.029933342139))
    plain = run("--per-query", weighted, *same, "--weight-col", "")
    assert "Queries have the weights" not in plain.out
    assert plain.json["comparison"][0]["difference"] == near(0.071666666667)
    unweighted = run("--per-query", per_query(tmp_path / "p.parquet", ("a", "b")), *same)
    assert (unweighted.json["comparison"], unweighted.json["weight"]) == (plain.json["comparison"], None)
    old = per_query(tmp_path / "a.parquet", ("a",), weighted=True)
    two = ("--per-query", table, "--runs", "b", "--baseline-per-query", old)
    assert_refused(run(*two, *same), "'a' has stored weights, and 'b' has none; --weight-col '' compares without")
    assert run(*two, *same, "--weight-col", "").json["comparison"] == plain.json["comparison"]


def test_a_nightly_table_is_read_at_its_night(table, tmp_path):
    nightly = tmp_path / "nightly"
    for day, factor in (("2026-01-30", 1), ("2026-01-31", 3)):
        rows = pq.read_table(table)
        rows = rows.set_column(rows.schema.get_field_index("ndcg"), "ndcg", pa.array(
            [value * factor for value in rows["ndcg"].to_pylist()]))  # fmt: skip
        (nightly / f"run_date={day}").mkdir(parents=True)
        pq.write_table(rows, nightly / f"run_date={day}" / "1.parquet")
    same = ("--per-query", nightly, "--metrics", "ndcg", "--runs", "a,b", *FAST, "--json", "-")
    told = "--per-query has 2 nights, from 2026-01-30 to 2026-01-31; --run-date chooses one"
    assert_refused(run(*same), told)
    for day, factor in (("2026-01-30", 1), ("2026-01-31", 3)):
        row = run(*same, "--run-date", day).json["comparison"][0]
        assert row["difference"] == pytest.approx(factor * 0.86 / 12, abs=1e-12)
    told = "--per-query has no rows of the night 2026-02-01 (--run-date); it has nights from 2026-01-30 to 2026-01-31"
    assert_refused(run(*same, "--run-date", "2026-02-01"), told)
    two = ("--per-query", table, "--baseline-per-query", nightly, "--baseline", "a", "--runs", "b")
    assert_refused(
        run(*two), "--baseline-per-query has 2 nights, from 2026-01-30 to 2026-01-31; choose one by a query"
    )
    part = nightly / "run_date=2026-01-30"
    row = run(*two[:3], part, *two[4:], "--metrics", "ndcg", *FAST, "--json", "-").json["comparison"][0]
    assert row["difference"] == pytest.approx(0.86 / 12, abs=1e-12)


@pytest.mark.parametrize(
    ("column", "asked", "there", "message"),
    [
        ("run_date", "2026-01-30", (2, "2026-01-29", "2026-01-31"),
         "T has no rows of the night 2026-01-30 (run_date=); it has nights from 2026-01-29 to 2026-01-31."),
        ("run_date", "2026-01-30", (1, "2026-01-31", "2026-01-31"),
         "T has no rows of the night 2026-01-30 (run_date=); it has the night 2026-01-31."),
        ("run_date", "2026-01-30", (0, None, None),
         "T has no rows of the night 2026-01-30 (run_date=); it has no rows."),
        ("dataset", None, (2, "blog", "shop"), "T has 2 data sets, from blog to shop; dataset= chooses one."),
    ],
)  # fmt: skip
def test_a_night_without_rows_is_refused_with_those_there_are(column, asked, there, message):
    with pytest.raises(InputRefusedError) as refused:
        choose_value(column, "T", asked, there, lambda value: False)
    assert str(refused.value) == message


@pytest.fixture
def rankings(tmp_path):
    rows = [
        (f"q{n}", item, float(score), float((score * (n + 3)) % 7), grade, "DE" if n % 2 else "US", f"u{n % 3}")
        for n in range(12)
        for item, score, grade in (("i", 3, 0), ("j", 2, 2), ("k", 1, 1))
    ]
    names = ("query_id", "item_id", "old", "new", "relevance", "country", "user")
    path = tmp_path / "rankings.parquet"
    write_table(path, dict(zip(names, zip(*rows, strict=True), strict=True)), {})
    return path


def test_rankings_are_evaluated_and_compared(rankings, tmp_path):
    same = ("--input", rankings, "--k", "1,3", "--segment-cols", "country")
    ended = run(*same, "--score-col", "old,new", "--baseline", "old", "--cluster-col", "user", "--json", "-", *FAST)
    assert (ended.code, ended.complaints) == (0, []), ended.err
    rows = {(row["metric"], row["k"], row["segment"]): row for row in ended.json["comparison"]}
    assert set(rows) == {(m, k, s) for m in ("ndcg", "dcg") for k in (1, 3) for s in ("", "DE", "US")}
    means = run_command(
        "mean-ndcg", *same, "--score-col", "old,new", "--per-query-output", tmp_path / "pq", "--json", "-"
    )
    for mean in means.json["metrics"]:
        if mean["metric"] != "idcg":
            row = rows[mean["metric"], mean["k"], mean["segment"]]
            assert row["value" if mean["run"] == "new" else "baseline_value"] == mean["value"]
    again = run("--per-query", tmp_path / "pq", "--k", "1,3", "--segment-cols", "country", "--baseline", "old",
                "--json", "-", *FAST)  # fmt: skip
    assert (again.code, again.complaints) == (0, []), again.err
    told = "is a per-query table (metrics of queries), not rankings; pass it to compare-runs --per-query"
    assert_refused(run("--input", tmp_path / "pq"), told)
    for row in again.json["comparison"]:
        expected = rows[row["metric"], row["k"], row["segment"]]
        assert (row["difference"], row["n_wins"]) == (expected["difference"], expected["n_wins"])


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_bad_rows_are_left_out_counted_and_written(request, rankings, tmp_path, engine):
    if engine == "spark":
        request.getfixturevalue("spark")
    bad, scores = pq.read_table(rankings).slice(0, 2), pa.array([float("nan"), float("inf")])
    for at, (name, values) in enumerate((("item_id", pa.array(["x", "y"])), ("old", scores), ("new", scores)), 1):
        bad = bad.set_column(at, name, values)
    both = tmp_path / "both"
    both.mkdir()
    pq.write_table(pq.read_table(rankings), both / "1.parquet")
    pq.write_table(bad, both / "2.parquet")
    same = ("--score-col", "old,new", "--baseline", "old", "--k", "3", "--engine", engine, *FAST, *NIGHT)
    out, rejects = tmp_path / "comparison", tmp_path / "rejects"
    ended = run_command("compare-runs", "--input", both, *same, "--output", out)
    assert_refused(ended, "bad", "leaves such rows out")
    assert read_files(out) == {}
    named = ("--output", out, "--rejects", rejects, "--on-invalid", "reject")
    ended = run_command("compare-runs", "--input", both, *same, *named, "--json", "-")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    rows = read_stored_rows(rejects)
    assert sorted((row["source"], row["reason"]) for row in rows) == [
        *[("input", "infinite_score")] * 2,  # a row of each of the runs
        *[("input", "nan_score")] * 2,
    ]
    assert {json.loads(row["row"])["query_id"] for row in rows} == {"q0"}
    assert ended.json["rows"]["rejected_by_reason"] == {"infinite_score": 2, "nan_score": 2}
    good = run_command("compare-runs", "--input", rankings, *same, "--json", "-")
    assert ended.json["comparison"] == good.json["comparison"]
    many = run_command("compare-runs", "--input", both, *same, *named, "--max-reject-fraction", "0.01")
    assert_refused(many, "more than --max-reject-fraction 0.01")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name what to compare"),
        (("--per-query", "EMPTY"), "--per-query has no rows"),
        (("--per-query", "EMPTY", "--baseline", "a", "--metrics", "ndcg"), "no rows"),
        (("--per-query", "T", "--baseline", "a", "--runs", "b", "--baseline-per-query", "EMPTY"),
         "--baseline-per-query has no rows; is the night in it?"),
        # A baseline that does not exist was all zeros, any run better, and the gate met.
        (("--per-query", "T", "--runs", "typo,a", "--baseline", "typo", "--gate", "ndcg@10.ci_low>-0.002"),
         "--per-query has no rows of run 'typo' of the night 2026-01-31; its runs are 'a', 'b', 'c'"),
        (("--per-query", "TWICE", "--baseline", "a", *FAST), "appears twice in run 'a' at k=10"),
        (("--per-query", "T", "--input", "T"), "name what to compare"),
        (("--per-query", "T", "--gate", "ndcg@10>0"), "is not of the form METRIC@K.COLUMN"),
        (("--per-query", "T", "--gate", "ndcg@10.low>0"), "there is no column 'low'"),
        (("--per-query", "T", "--gate", "ndcg@10.ci_low>0.1.2"), "'0.1.2' is not a number"),
        (("--per-query", "T", "--gate", "ndcg@5.ci_low>0", *FAST), "was not compared; compared are dcg@10"),
        (("--per-query", "T", "--cluster-col", "usr"), "Did you mean 'user'"),
        (("--per-query", "T", "--alpha", "2"), "alpha must be between 0 and 1"),
        (("--per-query", "T", "--replicates", "-1"), "replicates must be between 0 and 100,000"),
        (("--per-query", "T", "--metrics", "idcg"), "idcg is the same for all runs"),
        (("--per-query", "T", "--baseline-per-query", "T"), "needs --per-query and --baseline NAME"),
        (("--per-query", "T", "--run-col", "ranker"), "column 'ranker' (--run-col) is not in the per-query table"),
        (("--per-query", "T", "--rejects", "r"), "--rejects has no effect with --per-query, whose queries have"),
        (("--per-query", "T", "--sample", "0.5"), "--sample has no effect"),
        (("--per-query", "T", "--judgments", "nowhere"), "--judgments has no effect"),
        (("--per-query", "T", "--score-col", "nowhere"), "--score-col has no effect"),
        (("--per-query", "T", "--gain", "linear"), "--gain has no effect"),
        (("--input", "T", "--rejects", "r"), "--rejects needs --on-invalid reject"),
        (("--per-query", "T", "--k", "7"), "there are no queries to compare"),
    ],
)  # fmt: skip
def test_refusals_write_nothing(table, tmp_path, options, message):
    out, tables = tmp_path / "comparison", {"T": table}
    if "EMPTY" in options:
        tables["EMPTY"] = per_query(tmp_path / "empty.parquet", ())
    if "TWICE" in options:
        tables["TWICE"] = per_query(tmp_path / "twice" / "1.parquet", ("a", "b")).parent
        per_query(tables["TWICE"] / "2.parquet", ("a",))
    ended = run(*[tables.get(word, word) for word in options], *NIGHT, "--output", out)
    assert_refused(ended, message)
    assert read_files(out) == {}


def test_a_gate_without_a_cutoff_needs_one_if_there_are_several():
    gate = ComparisonGate.parse("ndcg.ci_low>0")
    row = {"segment_by": "", "metric": "ndcg", "run": "b", "baseline": "a", "ci_low": 0.5, "verdict": "better"}
    assert [result["met"] for result in gate.results([{**row, "k": 5}])] == [True]
    with pytest.raises(InvalidParameterError, match="name the cutoff too, such as ndcg@10"):
        gate.results([{**row, "k": 5}, {**row, "k": 10}])


@pytest.mark.parametrize("value", [None, -0.5, 0.5])
def test_a_null_meets_no_gate(value):
    gate = ComparisonGate.parse("ap(denominator=k)@10.ci_low > -1")
    row = {"segment_by": "", "metric": str(gate.metric.metric), "k": 10, "verdict": "unclear", "run": "b"}
    row |= {"baseline": "a", "ci_low": value}
    assert [result["met"] for result in gate.results([row])] == [value is not None]
    with pytest.raises(InvalidParameterError, match="this metric or cutoff was not compared"):
        gate.results([{**row, "k": 5}])


def test_rows_of_a_comparison_that_is_cut_are_those_of_the_largest_differences():
    """All queries first; the segments whose difference is clear; then those that differ by chance, perhaps."""
    verdicts = {"a": (0.1, "better"), "b": (0.9, "unclear"), "c": (-0.5, "worse"), "d": (0.2, "better")}
    rows = [{"segment_by": "", "segment": "", "difference": 0.01, "verdict": "unclear"}]
    rows += [{"segment_by": "s", "segment": name, "difference": size, "verdict": verdict}
             for name, (size, verdict) in verdicts.items()]  # fmt: skip
    assert [row["segment"] for row in sorted(rows, key=sort_key)] == ["", "c", "d", "a", "b"]


# ------------------------------------------------------------------------------------------------ without Spark


def test_explain_names_the_engine_and_writes_nothing(table, rankings, tmp_path):
    out = tmp_path / "comparison"
    ended = run("--per-query", table, "--baseline", "a", "--output", out, "--explain")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    lines = {line.split("  ")[0]: line.rpartition("  ")[2] for line in ended.out.splitlines()}
    assert lines["engine"] == "local: --engine local"
    assert lines["cost"] == "one pass over the metrics of queries by this process"
    assert lines["pairs"] == "b against a, c against a"
    ended = run("--input", rankings, "--score-col", "old,new", "--baseline", "old", "--output", out, "--explain")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    assert "pairs        new against old" in ended.out
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--per-query", "T", "--run-col", "user"), "the run column of --per-query is not 'run'"),
        (("--per-query", "SELECT 1"), "only Spark reads the format sql"),
        (("--per-query", "T", "--query-col", "ndcg"), "only Spark can compare by column 'ndcg' of type double"),
        (("--input", "T", "--score-col", "ndcg", "--relevance-col", "ndcg", "--item-col", "user", "--strategy",
          "window"), "strategy=window ranks in Spark"),
    ],
)  # fmt: skip
def test_what_the_job_leaves_to_spark(table, options, why):
    ended = run(*[table if option == "T" else option for option in options])
    assert_refused(ended, f"--engine local cannot do this: {why}; --engine spark can.")


def test_the_run_log(table, tmp_path):
    ended = run("--per-query", table, "--baseline", "a", "--metrics", "ndcg", *FAST, "--output", tmp_path / "out",
                "--run-log", tmp_path / "log", *NIGHT)  # fmt: skip
    assert ended.code == 0, ended.err
    (row,) = pq.read_table(tmp_path / "log").to_pylist()[-1:]
    assert (row["command"], row["status"], row["spark_version"]) == ("compare-runs", "succeeded", None)
    assert len(read_files(tmp_path / "out")) > 0
