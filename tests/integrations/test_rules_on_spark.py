"""Public functions with results of two rules: refused in one line, or combined on purpose; see also `test_rules`."""

from __future__ import annotations

from datetime import date

import pytest
from pyspark.sql import functions as F

from ndcg_spark import compare, evaluate, merge_summaries, report
from ndcg_spark.business import business_link
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.diagnosis import shift_of_means
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import read_rules
from ndcg_spark.history import flag_changes, roll_up

ITEMS = "query_id string, item_id string, score double, relevance int, country string"
NIGHTS = (date(2026, 1, 5), date(2026, 1, 6))


@pytest.fixture(scope="module")
def rankings(spark):
    """In each query two items tie, and the better one has rank 1 or 2: NDCG depends on the tie rule."""
    rows = [
        (f"q{n}", item, score, relevance, "DE" if n % 2 else "US")
        for n in range(12)
        for item, score, relevance in (("a", 0.5, 1), ("b", 0.5, 0), ("c", 0.1 * (n % 3), 1))
    ]
    return spark.createDataFrame(rows, ITEMS).withColumn("other", 1 - F.col("score")).coalesce(1)


@pytest.fixture(scope="module")
def results(rankings):
    """Evaluations that differ in a rule, and one that differs only in a cutoff."""
    more = {"default": {}, "worst": {"convention": "default;ties=worst"}, "half": {"sample": 0.5}}
    actual = {name: evaluate(rankings, k=2, segments="country", **options) for name, options in more.items()}
    return actual | {"cutoffs": evaluate(rankings, k=[2, 5], segments="country")}


@pytest.fixture(scope="module")
def means(spark, results):
    """Summaries as stored, computed once."""
    actual = {}
    for name, result in results.items():
        stamped = result.summary.where("metric = 'ndcg' and k = 2").withColumns(
            {name: F.lit(value) for name, value in result.provenance.items()}
        )
        actual[name] = spark.createDataFrame(stamped.collect(), stamped.schema)
    return actual


@pytest.fixture(scope="module")
def queries(spark, results):
    actual = {}
    for name, result in results.items():
        frame = result.per_query_table
        actual[name] = spark.createDataFrame(frame.collect(), frame.schema)
    return actual


def union_nights(means, *names):
    first, second = (means[name].withColumn("run_date", F.lit(day)) for name, day in zip(names, NIGHTS, strict=True))
    return first.union(second)


def create_clicks(spark):
    rows = [(day, "", "", 10_000, 500, 50) for day in NIGHTS]
    columns = "run_date date, segment_by string, segment string, impressions long, clicks long, conversions long"
    return spark.createDataFrame(rows, columns)


WAYS = {
    "merge_summaries": lambda means, names, **options: merge_summaries(
        means[names[0]].union(means[names[1]]), **options
    ),
    "roll_up": lambda means, names, **options: roll_up(union_nights(means, *names), periods="week", **options),
    "shift_of_means": lambda means, names, **options: shift_of_means(*(means[name] for name in names), **options),
    "business_link": lambda means, names, **options: business_link(
        union_nights(means, *names), create_clicks(means["default"].sparkSession), **options
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_means_of_two_rules_are_not_combined(means, way):
    """Results of another configuration are combined if it changes no value of a query: a cutoff was added."""
    combine = WAYS[way]
    with (
        readable_errors(),
        pytest.raises(InputRefusedError, match=r"\(ties: expected and worst\).*across_rules=True"),
        readable_errors(),
    ):
        combine(means, ("default", "worst")).collect()
    with pytest.raises(InputRefusedError, match=r"sample: (1.0 and 0.5|0.5 and 1.0)"), readable_errors():
        combine(means, ("default", "half")).collect()
    mixed = combine(means, ("default", "worst"), across_rules=True)
    assert {read_rules(row["rules"])["ties"] for row in mixed.collect()} == {"mixed"}
    (rules,) = {row["rules"] for row in means["default"].collect()}
    assert {row["rules"] for row in combine(means, ("default", "cutoffs")).collect()} == {rules}


def test_nights_without_rules_are_added_up(means):
    """The merged mean is that of both; its rules are unknown."""
    old = means["default"].withColumn("rules", F.lit(None).cast("string"))
    merged = merge_summaries(means["default"].union(old)).where("segment_by = ''").first()
    assert (merged["n_queries"], read_rules(merged["rules"])["unknown"]) == (24, "some")
    bare = means["default"].drop("rules", "convention", "config_hash")
    both = merge_summaries(bare.union(means["worst"].drop("rules", "convention", "config_hash"))).first()
    assert both["rules"] is None


def test_queries_of_two_rules_are_not_compared(queries, results, capsys):
    tables = {"one": queries["default"], "other": queries["worst"]}
    with pytest.raises(InputRefusedError, match=r"comparison of 'other' with 'one'.*ties: expected and worst"):
        compare(tables, baseline="one").to_pandas()
    with pytest.raises(InputRefusedError, match="ties: expected and worst"):
        compare({"one": results["default"], "other": queries["worst"]}, baseline="one").to_pandas()
    with pytest.raises(InputRefusedError, match="ties: expected and worst"):  # before an action
        compare({"one": results["default"], "other": results["worst"]}, baseline="one")
    half = {"one": queries["default"], "other": queries["half"]}
    with pytest.raises(InputRefusedError, match=r"sample: 0.5 and 1.0"):
        compare(half, baseline="one").to_pandas()
    with pytest.raises(InputRefusedError, match=r"unpaired='?drop"):
        compare(half, baseline="one", across_rules=True).to_pandas()
    actual = compare(half, baseline="one", across_rules=True, unpaired="drop", segments=()).to_pandas()
    assert (actual["difference"].tolist(), actual["n"].tolist()) == ([0.0], [queries["half"].count()])
    compare(tables, baseline="one", across_rules=True, segments=()).show()
    assert "results of different rules are combined, as requested; they differ in ties" in capsys.readouterr().out


def test_runs_of_equal_rules_are_compared(rankings, queries, results, capsys):
    """Two columns of scores, another cutoff, and rows of users."""
    two = [evaluate(rankings, score=name, k=2) for name in ("score", "other")]
    rows = compare(dict(zip("ab", two, strict=True)), baseline="a").summary.collect()
    assert {row["rules"] for row in rows} == {two[0].settings.rules_of_means}
    compare({"a": results["default"], "b": results["cutoffs"]}, baseline="a", k=2, segments=()).show()
    old = queries["default"].drop("rules")
    rows = compare({"a": old, "b": old}, baseline="a").summary.collect()
    assert {row["rules"] for row in rows} == {None}
    assert "the rules of some results are unknown" not in capsys.readouterr().out
    for other in (queries["default"], results["default"]):
        compare({"a": old, "b": other}, baseline="a", segments=()).show()
        assert "the rules of some results are unknown" in capsys.readouterr().out
    own = old.selectExpr("query_id", "k", "ndcg")
    assert compare({"a": own, "b": own}, baseline="a", query="query_id").to_pandas()["difference"].tolist() == [0.0]


def test_a_night_of_other_rules_begins_a_new_series(means):
    flags = flag_changes(union_nights(means, "default", "worst"), start=NIGHTS[1]).where("segment_by = ''").first()
    assert (flags["status"], flags["n_nights"]) == ("short_history", 0)
    flags = flag_changes(union_nights(means, "default", "cutoffs"), start=NIGHTS[1]).where("segment_by = ''").first()
    assert flags["n_nights"] == 1


def test_a_report_has_a_table_for_each_set_of_rules(means):
    table = means["default"].withColumn("run", F.lit("new")).union(means["worst"].withColumn("run", F.lit("old")))
    contents = report(table).contents
    assert [about for about, _ in contents.result_tables] == ["ties=expected", "ties=worst"]
    page = report(table).html
    assert page.count('<table class="standings">') == 2
    assert "different rules (ties: expected and worst)" in page
    same = means["default"].withColumn("run", F.lit("new")).union(means["cutoffs"].withColumn("run", F.lit("old")))
    assert [about for about, _ in report(same).contents.result_tables] == [""]
    trend = report(union_nights(means, "default", "worst").withColumn("dataset", F.lit("shop"))).contents
    assert [result.change.kind for result in trend.results] == ["incomparable"]
    trend = report(union_nights(means, "default", "cutoffs").withColumn("dataset", F.lit("shop"))).contents
    assert [result.change.kind for result in trend.results] == ["unclear"]


def test_every_result_has_its_rules(spark, rankings, results):
    """For any ranking: windows, arrays of relevances, lists of items."""
    weighted = evaluate(rankings.withColumn("w", F.lit(2.0)), k=2, weight="w", strategy="window")
    lists = spark.createDataFrame(
        [("q", ["a", "b"], ["b"])], "query_id string, ranked array<string>, items array<string>"
    )
    arrays = spark.createDataFrame([("q", [1.0, 0.0])], "query_id string, relevance array<double>")
    every = [weighted, evaluate(lists, ranked="ranked", relevant="items", k=2), evaluate(arrays, k=2)]
    for result in every:
        rules = result.settings.rules
        assert {row["rules"] for row in result.per_query.select("rules").collect()} == {rules}
        weight = "yes" if result is weighted else "no"
        assert {row["rules"] for row in result.summary.select("rules").collect()} == {f"{rules};weight={weight}"}
    assert results["default"].settings.rules == every[1].settings.rules


def test_mlflow_refuses_other_rules_under_one_prefix(means, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'ndcg-spark[mlflow]'")
    from ndcg_spark.mlflow import log_evaluation

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    stamped = {name: frame.withColumn("package_version", F.lit("1")) for name, frame in means.items()}
    try:
        with mlflow.start_run() as run:
            log_evaluation(stamped["default"])
            log_evaluation(stamped["cutoffs"], step=1)
            with pytest.raises(InputRefusedError, match=r"ties: expected and worst\).*prefix="):
                log_evaluation(stamped["worst"])
            log_evaluation(stamped["worst"], prefix="worst_")
            with pytest.raises(InputRefusedError, match=r"has 25[1-9]|has 2[6-9]"):
                log_evaluation(stamped["half"], prefix="x" * 240)
            with pytest.raises(InputRefusedError, match="letters, digits"):
                log_evaluation(stamped["half"], prefix="a;b")
            log_evaluation(stamped["half"], across_rules=True, step=2)
        data = mlflow.get_run(run.info.run_id).data
        assert sorted(data.metrics) == ["ndcg_at_2", "worst_ndcg_at_2"]
        assert (data.params["convention.ties"], data.params["worst_convention.ties"]) == ("expected", "worst")
        assert read_rules(data.tags["ndcg_spark.rules"])["sample"] == "mixed"
        assert read_rules(data.tags["worst_ndcg_spark.rules"])["ties"] == "worst"
    finally:
        mlflow.end_run()
        mlflow.set_tracking_uri(before)


def test_a_report_refuses_tables_of_other_rules(spark):
    rows = [
        (run, f"q{n}", item, score, n % 2)
        for run in "AB"
        for n in range(4)
        for item, score in (("a", 1.0), ("b", 1.0))
    ]
    table = spark.createDataFrame(rows, "run string, query_id string, item_id string, score double, relevance int")
    means, worst = (
        evaluate(table, run="run", k=1, convention=f"default;ties={ties}") for ties in ("expected", "worst")
    )
    differences = compare(worst, baseline="A", replicates=0, flips=0)
    for beside in ({"per_query": worst.per_query_table}, {"comparison": differences}):
        with pytest.raises(InputRefusedError, match=r"by other rules than its means \(ties: expected and worst\)"):
            report(means, **beside)
