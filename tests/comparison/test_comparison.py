"""Comparisons on Spark: hashes, worked values, every kind of input, and the same bits for any partitioning."""

from __future__ import annotations

import html
import math

import pytest
from pyspark.sql import functions as F
from support.closeness import near
from support.comparing import example_1
from support.paired import X, Y, Z, estimate, key_hash

from ndcg_spark import compare, evaluate, readable_errors
from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
from ndcg_spark.comparison.frames import key_hash as spark_hash
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError

NAMES = ("a", "b", "c")
SCHEMA = "run string, query_id string, k int, ndcg double, dcg double, weight double, country string, user string"
WORKED = near(0.065), near(0.029933342139)
"""Difference and standard error of b against a, weighted."""


@pytest.fixture(scope="module")
def weighted(spark):
    rows = [
        (NAMES[r["run"]], r["query"], 10, r["value"], 2 * r["value"], r["weight"], r["country"], r["user"])
        for r in example_1(with_c=True)
    ]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.fixture(scope="module")
def table(weighted):
    return weighted.drop("weight")


def found(frame, *, by=("baseline", "run", "segment_by", "segment", "metric", "k")):
    return [row.asDict() for row in frame.orderBy(*by).collect()]


def test_the_hash_of_keys_is_the_definition(spark):
    frame = spark.createDataFrame([("q01", "s1", "shoes", 7)], "q string, s string, c string, n int")
    hashed = frame.select(
        spark_hash([F.col("q")]), spark_hash([F.col("s"), F.col("c")]), spark_hash([F.col("n").cast("string")])
    ).first()
    expected = [0x9F1351CFBEA4F3F7, 0xBBC10728CE977E93, key_hash("7")]
    assert [one % 2**64 for one in hashed] == expected


def test_a_run_column(table):
    frame = compare(
        table, baseline="a", metrics="ndcg", segments=["country"], runs=["a", "b"], replicates=1000
    ).summary
    assert frame.schema == COMPARISON_SCHEMA
    rows = found(frame)
    assert [(row["run"], row["segment"]) for row in rows] == [("b", s) for s in ("", "DE", "FR", "US")]
    assert (rows[0]["difference"], rows[0]["p_value"]) == (near(0.071666666667), near(0.019159835596))
    assert (rows[0]["boot_low"], rows[0]["boot_t_low"]) == (near(0.022714646424), near(0.020274137492))
    assert (rows[0]["p_sign_flip"], rows[3]["std_error"]) == (0.021484375, near(0.039660013448))


def test_all_pairs_of_the_runs_that_a_table_has(table):
    rows = found(compare(table, metrics="ndcg@10", replicates=0, flips=0).summary)
    assert [(row["baseline"], row["run"]) for row in rows] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [row["p_holm"] for row in rows] == [near(0.052515915382), near(0.052515915382), near(0.054386395576)]


def test_two_tables_weights_and_clusters(weighted):
    table = weighted.withColumnRenamed("weight", "w")
    tables = {"new": table.where("run = 'b'"), "old": table.where("run = 'a'").repartition(3)}
    options = {"baseline": "old", "replicates": 1000, "cluster": "user", "metrics": ["ndcg"]}
    (row,) = found(compare(tables, **options).summary)
    assert (row["run"], row["std_error"], row["n_clusters"]) == ("new", near(0.034184728740), 5)
    assert (row["boot_low"], row["boot_high"]) == (near(0.027944444441), near(0.146208333347))
    (row,) = found(compare(tables, **options, weight="w").summary)
    assert row["std_error"] == near(0.041480623065)


def test_ndcg_is_compared_and_dcg_beside_it_is_not_tested(table):
    """p of c against a is .017505305127 (COMPARE's worked example); one test leaves it, two double it."""
    options = {"baseline": "a", "runs": ["a", "c"], "replicates": 0, "flips": 0}
    dcg, ndcg = found(compare(table, **options).summary)
    assert (dcg["metric"], ndcg["metric"]) == ("dcg", "ndcg")
    assert ndcg["difference"] == estimate(X, Z).difference
    assert dcg["difference"] == near(2 * estimate(X, Z).difference)
    assert (dcg["ci_low"], dcg["std_error"]) == (near(2 * ndcg["ci_low"]), near(2 * ndcg["std_error"]))
    assert [dcg[name] for name in ("p_value", "p_holm", "p_bh", "verdict")] == [None] * 4
    assert (ndcg["p_value"], ndcg["p_holm"], ndcg["family_size"]) == (near(0.017505305127), ndcg["p_value"], 1)
    assert ndcg["verdict"] == "better"
    (alone,) = found(compare(table.drop("dcg"), **options).summary)
    assert alone == ndcg
    named = found(compare(table, **options, metrics="ndcg,dcg").summary)
    assert [row["p_holm"] for row in named] == [2 * ndcg["p_value"]] * 2
    assert {(row["family_size"], row["verdict"]) for row in named} == {(2, "better")}


def test_dcg_of_an_evaluation_is_tested_where_it_was_named(spark):
    both = evaluate(rankings(spark), score=["old", "new"], metrics=["ndcg@1", "ndcg@3", "dcg@3", "ap@3"])
    rows = {
        (row["metric"], row["k"]): row for row in found(compare(both, baseline="old", replicates=0, flips=0).summary)
    }
    assert set(rows) == {("ndcg", 1), ("ndcg", 3), ("dcg", 1), ("dcg", 3), ("ap", 3)}
    assert {at for at, row in rows.items() if row["verdict"] is None} == {("dcg", 1)}


@pytest.mark.parametrize("cluster", [None, "user"])
def test_the_same_bits_at_any_number_of_partitions(spark, weighted, cluster):
    many = weighted.crossJoin(spark.range(40).withColumnRenamed("id", "n")).withColumn(
        "query_id", F.concat("query_id", F.col("n").cast("string"))
    )
    many = many.withColumn("ndcg", F.col("ndcg") + F.col("n") * F.length("run") / 977).withColumn(
        "user", F.concat("user", (F.col("n") % 7).cast("string"))
    )
    options = {"baseline": "a", "segments": ["country"], "replicates": 200, "flips": 300, "weight": "weight"}
    results = []
    for n in (1, 7, 64):
        spark.conf.set("spark.sql.shuffle.partitions", str(n))
        spark.conf.set("spark.sql.adaptive.enabled", str(n == 1).lower())
        try:
            results.append(found(compare(many.repartition(n), runs=["a", "b"], cluster=cluster, **options).summary))
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "2")
            spark.conf.unset("spark.sql.adaptive.enabled")
    assert len(results[0]) == 8
    assert results[0] == results[1] == results[2]


def rankings(spark):
    rows = [
        (query, item, score_a, score_b, relevance, country)
        for query, country in (("q1", "DE"), ("q2", "US"), ("q3", "DE"))
        for item, score_a, score_b, relevance in (
            ("i", 3.0, 1.0, 0),
            ("j", 2.0, 2.0 + len(query), 2),
            ("k", 1.0, 3.0, 1),
        )
    ]
    return spark.createDataFrame(
        rows, "query_id string, item_id string, old double, new double, relevance int, country string"
    )


def test_evaluations(spark):
    data = rankings(spark)
    several = evaluate(data, score=["old", "new"], k=[1, 3], segments=["country"])
    with pytest.raises(
        InvalidParameterError, match="the input has one run without a name; two runs need run= or score="
    ):
        compare(evaluate(data, score="old", k=3), runs=["old", "new"])
    rows = found(compare(several, baseline="old", replicates=0).summary)
    assert {(row["metric"], row["k"], row["segment"]) for row in rows} == {
        (metric, k, segment) for metric in ("ndcg", "dcg") for k in (1, 3) for segment in ("", "DE", "US")
    }
    summary = several.summary.where("metric != 'idcg'").collect()
    for name, column in (("new", "value"), ("old", "baseline_value")):
        means = {(row["metric"], row["k"], row["segment"]): row["value"] for row in summary if row["run"] == name}
        assert {(row["metric"], row["k"], row["segment"]): row[column] for row in rows} == means
    one_each = {name: evaluate(data, score=name, k=[1, 3], segments=["country"]) for name in ("old", "new")}
    assert found(compare(one_each, baseline="old", replicates=0).summary) == rows
    long = data.select("*", F.expr("stack(2, 'old', old, 'new', new) as (ranker, score)"))
    by_column = evaluate(long, run="ranker", k=[1, 3], segments=["country"])
    assert found(compare(by_column, baseline="old", replicates=0).summary) == rows


def test_queries_of_one_run_follow_the_convention(spark, table):
    some = table.where("not (run = 'b' and query_id = 'q01')")
    (zero,) = found(compare(some, metrics="ndcg", runs=["a", "b"], replicates=0).summary)
    assert (zero["n_queries"], zero["unpaired"], zero["n_only_baseline"]) == (12, "zero", 1)
    dropping = compare(
        some, metrics="ndcg", runs=["a", "b"], replicates=0, convention="default;missing_query=drop"
    ).summary
    (row,) = found(dropping)
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
def test_queries_that_a_run_misses_are_told_and_unpaired(spark, convention, unpaired, expected):
    """Of an evaluation and of its stored table, of rows and of lists."""
    judgments = spark.createDataFrame(
        [(f"q{at}", "x", 1) for at in range(1, 5)], "query_id string, item_id string, relevance int"
    )
    cells = [("a", "q1", "x"), ("a", "q2", "y"), ("a", "q3", "x"), ("b", "q1", "y"), ("b", "q2", "y")]
    rows = spark.createDataFrame(
        [(*cell, 1.0) for cell in cells], "ranker string, query_id string, item_id string, score double"
    )
    lists = rows.groupBy("ranker", "query_id").agg(F.collect_list("item_id").alias("items"))
    of_rows = evaluate(rows, judgments, run="ranker", k=1, convention=convention)
    of_lists = evaluate(lists, judgments, ranked="items", run="ranker", k=1, convention=convention)
    options = {"baseline": "a", "metrics": "ndcg", "convention": convention, "replicates": 0}
    for results in (of_rows, of_lists, of_rows.per_query_table):
        (row,) = found(compare(results, unpaired=unpaired, **options).summary)
        assert (row["difference"], row["n_queries"], row["n_only_baseline"], row["n_skipped"]) == (*expected, 1, 0)
        with (
            pytest.raises(InputRefusedError, match="query query_id=q3 is in run 'a' and not in 'b'"),
            readable_errors(),
        ):
            compare(results, unpaired="error", **options).summary.collect()


def test_stored_weights_are_used(weighted):
    options = {"baseline": "a", "metrics": "ndcg", "replicates": 0, "flips": 0}
    for names in (None, ["a", "b"]):
        row = found(compare(weighted, **options, runs=names).summary)[0]
        assert (row["difference"], row["std_error"]) == WORKED
    row = found(compare(weighted, **options, weight="", runs=["a", "b"]).summary)[0]
    assert (row["difference"], row["std_error"]) == (near(0.071666666667), near(0.026135814663))
    # As a table has them to which another data set added the column.
    null = weighted.withColumn("weight", F.lit(None).cast("double"))
    assert found(compare(null, **options).summary)[0]["difference"] == near(0.071666666667)
    with pytest.raises(InputRefusedError, match="weight='' compares without weights"), readable_errors():
        compare(null, **options, runs=["a", "b"]).summary.collect()
    two = {"a": weighted.where("run = 'a'"), "b": weighted.where("run = 'b'").drop("weight")}
    with pytest.raises(InputRefusedError, match="of run 'a' has stored weights and that of run 'b' has none"):
        compare(two, **options)
    assert found(compare(two, **options, weight="").summary)[0]["difference"] == near(0.071666666667)


def test_an_evaluation_and_its_per_query_table_agree(spark):
    data = rankings(spark).withColumn("w", F.expr("case query_id when 'q1' then 3.0 else 1.0 end"))
    result = evaluate(data, score=["old", "new"], k=[1, 3], weight="w")
    options = {"baseline": "old", "replicates": 0, "flips": 0}
    rows = found(compare(result, **options).summary)
    assert found(compare(result.per_query, **options).summary) == rows
    means = {(row["run"], row["metric"], row["k"]): row["value"] for row in result.summary.collect()}
    for row in rows:
        at = (row["metric"], row["k"])
        assert (row["baseline_value"], row["value"]) == (means[("old", *at)], means[("new", *at)])
    assert rows != found(compare(result, **options, weight="").summary)


@pytest.mark.parametrize("unpaired", ["zero", "drop"])
def test_a_run_without_rows_is_refused(table, unpaired):
    options = {"metrics": "ndcg", "replicates": 0, "flips": 0, "unpaired": unpaired}
    with pytest.raises(InputRefusedError) as refused, readable_errors():
        compare(table, runs=["typo", "a"], baseline="typo", **options).summary.collect()
    told = "run 'typo' has no rows; of the runs to compare, these have some: 'a'."
    assert str(refused.value) == told
    with pytest.raises(InvalidParameterError, match="run must be one of x, y; got 'z'"):
        compare({"x": table, "y": table}, runs=["x", "z"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"metrics": []}, "metrics must name at least one metric, such as ndcg"),
        ({"query": []}, "query= must name at least one column"),
        ({"seed": -1}, "seed must lie between 0 and 2^63 - 1; got -1"),
        ({"effect": 0.0}, "effect must be a number other than 0; got 0.0"),
    ],
)
def test_options_that_no_comparison_takes(table, options, named):
    with pytest.raises(InvalidParameterError) as refused:
        compare(table, baseline="a", **options)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("evaluated", "options", "named"),
    [
        ({"k": 3}, {"k": 7}, "k=7 is none of the cutoffs that were evaluated"),
        ({"metrics": ["ap@3"]}, {"k": 7}, "k=7 is none of the cutoffs that were evaluated"),
        ({"k": [3, "all"]}, {"metrics": "ndcg", "k": 7}, "'ndcg' was evaluated at k=3, all; got k=7"),
        ({"metrics": ["ap@3", "ndcg@5"]}, {"metrics": "ap@5"}, "'ap' was evaluated at k=3; got k=5"),
    ],
)
def test_a_cutoff_at_which_nothing_was_evaluated_is_refused(spark, evaluated, options, named):
    """A comparison without a row would say that nothing differs."""
    rows = spark.sql("SELECT 'q' AS query_id, 'a' AS item_id, 1D AS old, 2D AS new, 1 AS relevance")
    result = evaluate(rows, score=["old", "new"], **evaluated)
    with pytest.raises(InvalidParameterError) as refused:
        compare(result, baseline="old", **options)
    assert named in str(refused.value)


def test_some_of_several_tables_are_compared(table):
    tables = {name: table.where(f"run = '{name}'") for name in NAMES}
    (row,) = found(compare(tables, runs=["c", "a"], metrics="ndcg", replicates=0, flips=0).summary)
    assert (row["baseline"], row["run"], row["difference"]) == ("c", "a", -estimate(X, Z).difference)


def test_keys_of_other_types_are_refused(spark):
    """As texts 1 and 1.0 are no pair: every query would count as one that only one run has."""
    whole = spark.createDataFrame([(1, 3, 0.5), (2, 3, 0.25)], "query_id int, k int, ndcg double")
    others = {
        kind: whole.withColumn("query_id", whole.query_id.cast(kind)) for kind in ("bigint", "double", "string")
    }
    more = {"baseline": "x", "metrics": "ndcg", "replicates": 0, "flips": 0}
    (row,) = compare({"x": whole, "y": others["bigint"]}, **more).summary.collect()
    assert (row["n_queries"], row["difference"]) == (2, 0)
    for kind in ("double", "string"):
        with pytest.raises(InputRefusedError, match=f"'query_id' is int in run 'x' and {kind} in run 'y'; cast one"):
            compare({"x": whole, "y": others[kind]}, **more)


def test_refusals_are_one_line(table):
    twice = table.union(table.where("run = 'a' and query_id = 'q05'"))
    with pytest.raises(InputRefusedError) as refused, readable_errors():
        compare(twice, baseline="a", metrics="ndcg", replicates=0).summary.collect()
    told = "query query_id=q05 comes twice in run 'a' at k=10; choose the rows of one night and data set."
    assert str(refused.value) == told
    with pytest.raises(MissingColumnError, match=r"column 'usr'.*Did you mean 'user'"):
        compare(table, baseline="a", cluster="usr")
    with pytest.raises(InvalidParameterError, match="baseline must be one of a, b, c; got 'd'"):
        compare(table, baseline="d")
    with pytest.raises(InvalidParameterError, match="needs two runs"):
        compare(table, runs=["a"])
    with pytest.raises(InvalidParameterError, match="a run is named twice: a, b, a"):
        compare(table, runs=["a", "b", "a"])
    with pytest.raises(InputRefusedError, match=r"column 'country' .* not a number"):
        compare(table, baseline="a", weight="country")


def test_the_baseline_is_one_of_the_runs_that_are_chosen(table):
    chosen = [compare(table, baseline="a", runs=runs, metrics="ndcg", replicates=0) for runs in ("b", ["a", "b"])]
    assert found(chosen[0].summary) == found(chosen[1].summary)
    assert chosen[0].settings.runs == ("a", "b")
    with pytest.raises(InvalidParameterError, match=r"a comparison needs two runs; got 'a'\.$"):
        compare(table, baseline="a", runs="a")
    for runs in (["a", "b"], "b"):
        with pytest.raises(InvalidParameterError, match=r"^baseline must be one of a, b, c; got 'd'\.$"):
            compare(table, baseline="d", runs=runs)
    with pytest.raises(InvalidParameterError, match=r"^run must be one of a, b, c; got 'b,c'\.$"):
        compare(table, baseline="a", runs="b,c")


def test_ideals_of_different_judgments_are_refused_unless_the_convention_has_them(table):
    different = table.withColumn("idcg", F.when(F.col("run") == "a", 1.0).otherwise(2.0))
    with pytest.raises(InputRefusedError, match="two values of IDCG"), readable_errors():
        compare(different, baseline="a", metrics="ndcg", replicates=0).summary.collect()
    allowed = compare(
        different, baseline="a", metrics="ndcg", replicates=0, convention="default;ideal=retrieved"
    ).summary
    assert len(allowed.collect()) == 2


def test_stored_replicates_add_up(table):
    (row,) = found(
        compare(
            table, baseline="a", runs=["a", "b"], metrics="ndcg", replicates=3, flips=0, keep_replicates=True
        ).summary
    )
    n_replicates, n_places = row["replicates"][:2]
    assert (n_replicates, n_places) == (3, 4)  # draws, differences, squares in two limbs
    draws = row["replicates"][2 + n_places : 2 + n_places + 3]
    assert draws[0] == 15
    differences = row["replicates"][2 + n_places + 3 : 2 + n_places + 6]
    assert differences[0] == 5282809773 if differences[0] > 0 else True


def test_a_comparison_shows_itself(table, capsys):
    """The worked example again, by what a person reads: `differences` names what `summary` has."""
    result = compare(table, baseline="a", runs=["a", "b"], metrics="ndcg@10", segments="country", replicates=0)
    told = [
        "Comparison: b against a; ndcg@10, by country",
        "tests at 0.05: t, 9,999 sign flips, 0 bootstrap replicates, seed 42; queries that one run lacks: zero",
        "lazy: summary (differences); each action on it compares anew",
    ]
    assert repr(result).splitlines() == told
    assert result._repr_html_() == f"<pre>{html.escape(repr(result))}</pre>"
    result.show(1)
    _, first, more = capsys.readouterr().out.splitlines()
    shown = ["b", "a", "overall", "ndcg@10", "0.0717", "[0.0141,", "0.1292]", "0.0575", "not_worse", "12", "0"]
    assert (first.split(), more) == (shown, "... and 3 more; show(4) prints all rows")
    rows = {row["segment"]: row for row in found(result.summary)}
    people = result.to_pandas()
    assert people["segment"][0] == "overall"
    by_size = sorted(
        (row for row in rows.values() if row["segment_by"]),
        key=lambda row: (row["verdict"] == "unclear", -abs(row["difference"])),
    )
    assert people["segment"].tolist()[1:] == [f"country={row['segment']}" for row in by_size]
    assert people["ci_low"].dropna().tolist() == [
        row["ci_low"] for row in (rows[""], *by_size) if row["ci_low"] is not None
    ]
    assert people.columns.tolist() == result.differences().columns
    for row in people.to_dict("records"):
        its = rows[row["segment"].removeprefix("country=").replace("overall", "")]
        named = {"difference": "difference", "verdict": "verdict", "n": "n_queries"}
        assert all(row[name] == its[column] for name, column in named.items())
        assert (its["p_holm"] is None and math.isnan(row["p"])) or row["p"] == its["p_holm"]
    assert result._repr_html_().count("<tr") == 5


def test_what_stands_beside_a_metric_is_not_shown(table):
    assert set(compare(table, baseline="a", replicates=0, flips=0).to_pandas()["metric"]) == {"ndcg@10"}


def test_a_comparison_that_is_refused_is_one_line(table):
    result = compare(table.union(table.limit(1)), baseline="a", metrics="ndcg", replicates=0)
    with pytest.raises(InputRefusedError, match=r"^query query_id=.* comes twice in run '.'.*$") as refused:
        result.show()
    assert refused.value.__cause__ is not refused.value


def test_bad_rows_of_rankings_are_counted(spark):
    rows = [("a", "q", "x", 1.0, 1.0), ("b", "q", "x", math.nan, 1.0), ("b", "q", "y", math.nan, 0.0)]
    frame = spark.createDataFrame(rows, "run string, query_id string, item_id string, score double, relevance double")
    with pytest.raises(InputRefusedError) as refused:
        compare(evaluate(frame, run="run")).show()
    assert str(refused.value).startswith("2 bad rows of 3 in the data: nan_score 2 (e.g. ")
    assert str(refused.value).endswith("; on_invalid='reject' leaves such rows out.")


def test_bad_rows_are_those_of_a_run_that_is_compared_and_does_not_leave_them_out(spark):
    rows = [("q", "x", math.nan, 1.0), ("q", "y", 1.0, 0.0)]
    bad = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance double")
    runs = {"other": evaluate(bad), "a": evaluate(bad, on_invalid="reject"), "b": evaluate(bad)}
    result = compare(runs, baseline="a", runs="b", replicates=0, flips=0)
    assert list(result.evaluations) == ["a", "b"]
    with pytest.raises(InputRefusedError, match=r"^1 bad row of 2 in the data of run 'b': nan_score 1 "):
        result.to_pandas()


def test_small_numbers_are_not_shown_as_zero(spark, capsys):
    rows = [
        (run, f"q{n}", 10, 0.5 + (0.00001 + n / 1e9) * (run == "new")) for n in range(9) for run in ("old", "new")
    ]
    result = compare(spark.createDataFrame(rows, "run string, query_id string, k int, ndcg double"), baseline="old")
    result.show()
    assert "1.0e-05" in capsys.readouterr().out
    result.to_pandas().drop(columns="run", inplace=True)
    result.show(-1)
    assert capsys.readouterr().out == "... and 1 more; show(1) prints all rows\n"
    assert "<th>run</th>" in result._repr_html_()


def test_what_all_evaluations_have_is_compared(spark):
    """Other cutoffs and metrics are left out, as are metrics of the catalogue, which no query has."""
    rows = [("q1", "a", 0.9, 1), ("q1", "b", 0.5, 0), ("q2", "a", 0.9, 0), ("q2", "b", 0.5, 1)]
    table = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")
    items, order = table.select("item_id").distinct(), "default;ties=item_asc"
    one = evaluate(table, items=items, metrics="ndcg@1,ndcg@2,p@1,coverage@2", convention=order)
    two = evaluate(table.withColumn("score", -F.col("score")), metrics="ndcg@2,p@1,rr", convention=order)
    found = compare({"one": one, "two": two}, baseline="one", replicates=0, flips=0).summary.collect()
    assert {(row["metric"], row["k"]) for row in found if row["metric"] != "dcg"} == {("ndcg", 2), ("p", 1)}
    other = evaluate(table, metrics="rr", convention=order)
    with pytest.raises(InvalidParameterError, match="no metric of queries was evaluated at one cutoff in all runs"):
        compare({"one": one, "other": other}, baseline="one")


def test_a_query_without_a_list_has_no_diversity_in_any_form_of_input(spark):
    """A list of no items has no value of `ild`, so the query is left out: 10 of 12, whichever table names it."""
    categories = {"a": ["x"], "b": ["y"], "c": ["x"]}
    items = spark.createDataFrame(list(categories.items()), "item_id string, categories array<string>")
    queries = [f"q{n}" for n in range(12)]
    lists = {"A": dict.fromkeys(queries, ("a", "c")), "B": dict.fromkeys(queries[2:], ("a", "b"))}
    lists["B"]["q2"] = ("a", "c")
    run = [
        (name, query, item, 1.0 - place)
        for name, its in lists.items()
        for query, several in its.items()
        for place, item in enumerate(several)
    ]
    table = spark.createDataFrame(run, "run string, query_id string, item_id string, score double")
    judged = [(query, item, 1) for query in queries for item in categories]
    judgments = spark.createDataFrame(judged, "query_id string, item_id string, relevance int")
    options = {"items": items, "run": "run", "metrics": "ild(by=categories)@2", "convention": "default;ties=item_asc"}
    for result in (
        evaluate(table, judgments, **options),
        evaluate(table.withColumn("relevance", F.lit(1)), **options),
    ):
        row = compare(result, baseline="A", replicates=0, flips=0).summary.where("metric LIKE 'ild%'").first()
        assert (row["difference"], row["n_queries"], row["verdict"]) == (0.9, 10, "better")
