"""Functions of arrays, compared with the oracle list by list, and with the definitions of other metrics."""

from __future__ import annotations

import math

import pytest
from chispa import assert_column_equality
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from support import metric_definitions
from support.expectations import collect_refusal
from support.oracle import Choices, Row, build_ranking, evaluate_single
from support.spark_rankings import is_close

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.functions import average_precision, dcg, ndcg, precision, recall, reciprocal_rank

LISTS: list[list[float | None] | None] = [
    [3.0, 2.0, 3.0, 0.0, 1.0, 2.0],
    [0.0, 0.0],
    [None, 1.0, None],
    [None],
    [-1.0, 2.0],
    [0.25],
    [],
    None,
]


def test_columns_of_arrays(spark):
    """Compare with the oracle list by list: with cutoffs, one beyond every list."""
    cutoffs = (1, 2, 100, None)
    pairs = list(zip(cutoffs, ("zero", "one", "skip", "skip"), strict=True))
    for kind in ("double", "int", "decimal(4,2)"):
        lists = [ranked_list for ranked_list in LISTS if not (kind == "int" and ranked_list == [0.25])]
        table = spark.createDataFrame([(n, listed) for n, listed in enumerate(lists)], "n int, rels array<double>")
        table = table.selectExpr("n", f"cast(rels as array<{kind}>) as rels")
        columns = [ndcg("rels", k=k, gain="linear", no_relevant=policy).alias(f"ndcg {k}") for k, policy in pairs]
        columns += [dcg(table["rels"], k=k).alias(f"dcg {k}") for k in cutoffs]
        for row in table.select("n", *columns).collect():
            for k, policy in pairs:
                rows = build_ranking(lists[row["n"]] or [])
                exponential = compute_expected(rows, Choices(ties="item_asc"), k)[0]
                assert is_close(row[f"dcg {k}"], exponential), (lists[row["n"]], k, kind)
                choices = Choices(gain="linear", ties="item_asc", no_relevant=policy)
                assert is_close(row[f"ndcg {k}"], compute_expected(rows, choices, k)[1]), (lists[row["n"]], k, kind)


def compute_expected(rows: list[Row], choices: Choices, k: int | None) -> tuple[float | None, float | None]:
    """Return DCG and NDCG of a list; None if nothing is judged."""
    if not rows:
        return None, None
    result = evaluate_single(rows, choices, k)
    return result.dcg, result.ndcg


def test_a_column_with_an_ideal_of_its_own(spark):
    """From the specification: with two more judged items 3 and 2, NDCG@6 is 0.785002 and 0.751083."""
    row = ([3.0, 2.0, 3.0, 0.0, 1.0, 2.0], [0.0, 2.0, 3.0, 1.0, 3.0, 2.0, 2.0, 3.0], 0.785002, 0.751083)
    schema = "ranked array<double>, ideal array<double>, linear double, exponential double"
    table = spark.createDataFrame([row], schema).select(
        "linear",
        "exponential",
        ndcg("ranked", "ideal", k=6, gain="linear").alias("got_linear"),
        ndcg("ranked", "ideal", k=6).alias("got_exponential"),
    )
    rounded = table.selectExpr(*[f"round({name}, 6) as {name}" for name in table.columns])
    assert_column_equality(rounded, "linear", "got_linear")
    assert_column_equality(rounded, "exponential", "got_exponential")


def test_relevance_with_infinite_gain_is_refused(spark):
    """Like in `evaluate`. The largest allowed gain is 2^63 - 1."""
    for value, shown in ((math.inf, "Infinity"), (-math.inf, "-Infinity"), (2000.0, "2000"), (63.5, "63.5")):
        table = spark.createDataFrame([([3.0, value, None, 1.0], [63.0])], "rels array<double>, good array<double>")
        for column in (ndcg("rels"), dcg("rels"), ndcg("good", "rels")):
            assert collect_refusal(table.select(column)) == (
                f"relevance {shown} in array rels has a gain that is infinite or above 2^63; "
                "remove the item or choose another gain."
            )
    assert table.select(dcg("good", gain="linear"), dcg("good")).collect()[0] == (63.0, 2.0**63 - 1)
    message = collect_refusal(table.select(ndcg("rels", gain="table:0=0,1=1")))
    assert message == "relevance 3 has no gain in the table [0.0, 1.0]."


def test_nan_is_a_bad_value_and_null_an_unjudged_item(spark):
    cells = [(1, [1.0, math.nan], [1.0]), (2, [None, 1.0], [None, 1.0])]
    for kind in ("double", "float"):
        table = spark.createDataFrame(cells, f"n int, rels array<{kind}>, good array<{kind}>")
        for column in (ndcg("rels"), dcg(table["rels"], k=1), ndcg("good", "rels")):
            message = collect_refusal(table.select("n", column)) or ""
            assert message.startswith("nan_relevance in array rels: NaN is a bad value; set it to null")
        actual = table.where("n = 2").select(ndcg("rels"), dcg("rels", gain="linear")).collect()[0]
        assert actual == pytest.approx((1 / math.log2(3), 1 / math.log2(3)), abs=1e-15)


def test_field_of_an_array_of_structs(spark):
    cells = [([("a", 0.0), ("b", 1.0)], [3.0, 1.0])]
    table = spark.createDataFrame(cells, "ranked array<struct<item:string,relevance:double>>, rels array<double>")
    (actual,) = table.select(ndcg("ranked.relevance"), dcg(table["ranked"]["relevance"])).collect()
    assert actual == pytest.approx((1 / math.log2(3), 1 / math.log2(3)), abs=1e-15)
    with pytest.raises(AnalysisException, match=r'ranked" due to data type mismatch|"ARRAY<STRUCT<item: STRING'):
        table.select(ndcg("ranked")).collect()


def test_all_is_the_whole_list(spark):
    table = spark.createDataFrame([([0.0, 1.0, 3.0], [3.0, 1.0])], "rels array<double>, best array<double>")
    columns = [column for k in ("all", None) for column in (ndcg("rels", "best", k=k), dcg("rels", k=k))]
    (actual,) = table.select(columns).collect()
    gained = 1 / math.log2(3) + 7 / 2
    assert actual[:2] == actual[2:] == pytest.approx((gained / (7 + 1 / math.log2(3)), gained), abs=1e-15)


def test_an_array_of_text_is_refused(spark):
    """Otherwise text that is not a number would be an unjudged item."""
    table = spark.createDataFrame([(["3", "two"],)], "rels array<string>")
    message = "array rels is array<string>; it must hold numbers (relevances): cast it first."
    assert collect_refusal(table.select(dcg("rels"))) == message
    assert collect_refusal(table.select(recall("rels"))) == message


def test_columns_are_named_after_their_arguments(spark):
    table = spark.createDataFrame([([3.0, 1.0], [3.0])], "rels array<double>, best array<double>")
    named = table.select(ndcg("rels"), ndcg(table["rels"], "best", k=1), dcg("rels"), ndcg("rels").alias("x"))
    assert named.columns == ["ndcg(rels)", "ndcg(rels, best, k=1)", "dcg(rels)", "x"]


@pytest.mark.parametrize("k", [0, -1, 2.5, "ten", True])
def test_bad_cutoff_is_refused_at_the_call(k):
    for column in (ndcg, dcg):
        with pytest.raises(InvalidParameterError, match="k must be a positive whole number, or all; got "):
            column("rels", k=k)
        with pytest.raises(InvalidParameterError, match="k must be at most 1,000,000; got 1,000,001"):
            column("rels", k=1_000_001)


def test_functions_refuse_unknown_arguments(spark):
    for change in ({"gain": "cubic"}, {"discount": "log1"}, {"no_relevant": "error"}):
        with pytest.raises(InvalidParameterError):
            ndcg("rels", **change)
    for change in ({"rel": math.nan}, {"k": 0}, {"denominator": "hits"}):
        with pytest.raises(InvalidParameterError):
            average_precision("ranked", **change)
    with pytest.raises(InvalidParameterError):
        dcg("rels", k=3, discount="table:1,0.5")


# --- Other metrics


RANKED = [0.0, 3.0, None, 2.0, 0.0, 1.0, 3.0, 0.0]
JUDGED = [item for item in RANKED if item is not None] + [2.0, 0.0]


def test_other_metrics_are_those_of_their_definitions(spark):
    """Without `judged`, the listed items are the judged ones."""
    table = spark.createDataFrame([(RANKED, JUDGED)], "ranked array<double>, judged array<double>")
    listed, of, by = [item for item in RANKED if item is not None], metric_definitions, ("judged", "achievable", "k")
    for k, rel in ((1, 1), (3, 2), (10, 1)):
        spec = {"k": k, "rel": rel}
        columns = [
            precision("ranked", **spec), reciprocal_rank("ranked", **spec), recall("ranked", **spec),
            recall("ranked", "judged", **spec), average_precision("ranked", **spec),
            *[average_precision("ranked", "judged", **spec, denominator=column) for column in by],
        ]  # fmt: skip
        expected = [
            of.p(RANKED, JUDGED, k, rel), of.rr(RANKED, JUDGED, k, rel), of.r(RANKED, listed, k, rel),
            of.r(RANKED, JUDGED, k, rel), of.ap(RANKED, listed, k, rel),
            *[of.ap(RANKED, JUDGED, k, rel, column) for column in by],
        ]  # fmt: skip
        assert table.select(*columns).first() == pytest.approx(expected, abs=1e-14)


def test_without_a_cutoff_the_length_of_the_list_counts(spark):
    """By other tools: precision@10 .4, recall .4 and .5, reciprocal rank .5, average precision .414285714286."""
    table = spark.createDataFrame([(RANKED, JUDGED)], "ranked array<double>, judged array<double>")
    (actual,) = table.select(
        precision("ranked", k=10), recall("ranked", "judged", k=5), reciprocal_rank("ranked"),
        average_precision("ranked", "judged"), average_precision("ranked", "judged", rel=2), precision("ranked"),
        average_precision("ranked", "judged", denominator="k"),
    ).collect()  # fmt: skip
    total = 5 * 0.414285714286
    assert actual == pytest.approx([0.4, 0.4, 0.5, total / 5, 0.357142857143, 0.5, total / 8], abs=1e-12)


def test_lists_without_items_or_judgments(spark):
    cells = [
        ("nothing retrieved", [], [1.0]),
        ("null", None, [1.0]),
        ("unjudged", [None], None),
        ("zeros", [0.0], [0.0]),
    ]
    table = spark.createDataFrame(cells, "name string, ranked array<double>, judged array<double>")
    with_judged = [function("ranked", "judged") for function in (ndcg, recall, average_precision)]
    alone = [function("ranked") for function in (ndcg, dcg, precision, recall, average_precision, reciprocal_rank)]
    actual = {row[0]: row[1:] for row in table.select("name", *with_judged, *alone).collect()}
    assert actual == {
        "nothing retrieved": (0.0,) * 3 + (None,) * 6,
        "null": (0.0,) * 3 + (None,) * 6,
        "unjudged": (None,) * 9,
        "zeros": (0.0,) * 9,
    }
    policy = [ndcg("ranked", "judged", no_relevant=rule).alias(rule) for rule in ("one", "skip")]
    by_policy = {row[0]: row[1:] for row in table.select("name", *policy).collect()}
    assert (by_policy["zeros"], by_policy["nothing retrieved"]) == ((1.0, None), (0.0, 0.0))


def test_ids_in_place_of_relevances_are_refused(spark):
    """Recommended and true ids are arrays of numbers, too, but recommended ids are not in the array of true ones."""
    table = spark.createDataFrame([([11, 25, 7], [7, 3])], "prediction array<bigint>, label array<bigint>")
    message = "the ranked array has a relevance that is not in the judged array: pass relevances, not ids"
    for column in (ndcg("prediction", "label"), recall("prediction", "label")):
        assert (collect_refusal(table.select(column)) or "").startswith(message)
    nothing_judged = table.withColumn("label", F.lit(None).cast("array<bigint>"))
    assert (collect_refusal(nothing_judged.select(ndcg("prediction", "label"))) or "").startswith(message)


def test_ranked_relevances_must_be_among_the_judged(spark):
    """Also beyond the cutoff, and with negative gains. Zeros may be unjudged items."""
    for listed, judged in (
        ([3.0, 3.0, 3.0], [1.0, -1.0]),
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [1.0, 1.0]),
        ([1.0, 0.0], None),
        ([2.0], [1.0, 1.0, 1.0]),
    ):
        table = spark.createDataFrame([(listed, judged)], "ranked array<double>, judged array<double>")
        columns = [ndcg("ranked", "judged", k=1)]
        if listed != [2.0]:  # which is one relevant item, as a judged 1 is
            columns += [recall("ranked", "judged", k=1), average_precision("ranked", "judged", denominator="k")]
        for column in columns:
            message = "the ranked array has a relevance that is not in the judged array"
            assert (collect_refusal(table.select(column)) or "").startswith(message), listed
    zeros = spark.createDataFrame([([1.0, 0.0, 0.0, 1.0], [1.0, 1.0])], "ranked array<double>, judged array<double>")
    assert zeros.select(recall("ranked", "judged")).collect()[0][0] == 1.0


def test_ndcg_may_exceed_1_with_negative_gains(spark):
    """Ranked 3; judged 3 and -1, which the ideal list must hold: (2^3 - 1) / (7 - 0.5 / log2(3))."""
    table = spark.createDataFrame([([3.0], [3.0, -1.0])], "ranked array<double>, judged array<double>")
    assert table.select(ndcg("ranked", "judged")).collect()[0][0] == pytest.approx(7 / (7 - 0.5 / math.log2(3)))
