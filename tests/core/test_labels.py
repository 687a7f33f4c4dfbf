"""Names of metrics, segments, numbers and rows, and the order of rows: in Python and in Spark."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core import labels
from ndcg_spark.metrics.normalized_gain import NDCG, TIE_BOUNDS

# run, segment_by, segment, metric, k, asked
ROWS = [
    ("a", "", "", "ndcg", 10, "NDCG@10"),
    ("a", "", "", "ap", None, None),
    ("a", "country", "DE", "p(rel=2)", 5, None),
    ("b", "country", None, "ndcg", None, None),
    ("b", "country+device", '["DE",null]', "idcg", 1, None),
]
NAMES = ("run", "segment_by", "segment", "metric", "k", "asked")


def build_rows(values=ROWS):
    return [dict(zip(NAMES, row, strict=True)) for row in values]


def create_frame(spark: SparkSession, values=ROWS):
    return spark.createDataFrame(
        values, "run string, segment_by string, segment string, metric string, k int, asked string"
    )


def test_labels_load_no_spark():
    code = "import sys, ndcg_spark.core.labels; print(*{'numpy', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_metric_has_its_requested_or_its_own_name():
    assert [labels.metric(row) for row in build_rows()] == ["NDCG@10", "ap@all", "p(rel=2)@5", "ndcg@all", "idcg@1"]
    assert labels.metric({"metric": "ndcg", "k": 3}) == "ndcg@3"  # a table of means without requested names


def test_segment_has_its_columns_and_its_value():
    shown = ["overall", "overall", "country=DE", "country=null", 'country+device=["DE",null]']
    assert [labels.segment(row) for row in build_rows()] == shown


def test_key_names_null():
    assert labels.key({"run": "a", "query_id": 7, "item": None}) == "run=a, query_id=7, item=null"
    assert labels.key({}) == ""


def test_cutoffs_are_numbers_or_all():
    assert labels.cutoffs([1, 10, None]) == "1, 10, all"


def test_number_has_a_dash_for_null():
    assert [labels.number(None), labels.number(0.5), labels.number(-0.25, "+.1%")] == ["-", "0.5000", "-25.0%"]


def test_interval_has_the_form_of_its_value():
    assert labels.interval(-0.5, 0.25, "+.2f") == "[-0.50, +0.25]"
    row = {"difference": 0.5, "ci_low": 0.25, "ci_high": 0.75, "r": 0.5, "r_low": None, "r_high": None}
    assert labels.estimate(row, "difference", form="+.4f") == "+0.5000 [+0.2500, +0.7500]"
    assert labels.estimate(row, "r", "r_", ".1f") == "0.5"
    assert labels.estimate({**row, "r": None}, "r", "r_") == "-"


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [(0.5, 0.25, 0.75, "0.5000 ± 0.2500"), (0.5, None, None, "0.5000"), (None, None, None, "-")],
)
def test_mean_has_half_of_its_interval(value, low, high, shown):
    assert labels.mean({"value": value, "ci_low": low, "ci_high": high}) == shown


def test_ndcg_and_its_companions_come_first():
    assert tuple(field.name for field in (NDCG, *NDCG.comes_with, *TIE_BOUNDS)) == labels.SHOWN_FIRST


def list_rows_in_order(metrics):
    """List rows in the expected order: run, segment, metric, cutoff; null and the whole list last."""
    segments = [
        *(("", ""), ("country", ""), ("country", "DE"), ("country", "FR"), ("country", None)),
        *(("country+device", '["DE","x"]'), ("country+device", None)),
    ]
    return build_rows(
        (run, *segment, metric, k, None)
        for run in ("", "a", "b")
        for segment in segments
        for metric in metrics
        for k in (1, 5, 10, None)
    )


def test_row_order_is_run_segment_metric_cutoff():
    expected = list_rows_in_order(["ndcg", "dcg", "idcg", "tied_share", "ap", "rr"])
    for seed in range(5):
        shuffled = random.Random(seed).sample(expected, len(expected))
        assert sorted(shuffled, key=labels.row_order) == expected


def test_row_order_begins_with_requested_metrics():
    of_run = build_rows([("a", "", "", name, k, None) for name in ("ndcg", "ap") for k in (1, 5, None)])
    ordered = sorted(of_run, key=lambda row: labels.row_order(row, ["ap@5", "ndcg@all"]))
    assert [labels.metric(row) for row in ordered] == ["ap@5", "ndcg@all", "ndcg@1", "ndcg@5", "ap@1", "ap@all"]


# --- In Spark


def test_labels_of_spark_equal_those_of_python(spark: SparkSession):
    actual = create_frame(spark).selectExpr(labels.METRIC_AT_SQL, labels.METRIC_SQL, labels.SEGMENT_SQL)
    assert [tuple(row) for row in actual.collect()] == [
        (labels.metric_at(row["metric"], row["k"]), labels.metric(row), labels.segment(row)) for row in build_rows()
    ]


def test_interval_in_spark_is_null_without_bounds(spark: SparkSession):
    bounds = [(0.25, 0.75), (-1.0, 12.5), (None, None)]
    actual = spark.createDataFrame(bounds, "ci_low double, ci_high double").selectExpr(labels.INTERVAL_SQL)
    shown = [None if low is None else labels.interval(low, high) for low, high in bounds]
    assert [row[0] for row in actual.collect()] == shown


def test_spark_sorts_as_row_order_with_runs_last(spark: SparkSession):
    for first in ([], ["ap@5", "ndcg@all"]):
        ordered = list_rows_in_order(["ndcg", "dcg", "ap"])
        expected = sorted(ordered, key=lambda row: (*labels.row_order(row, first)[1:], row["run"]))
        shuffled = random.Random(7).sample(expected, len(expected))
        values = [tuple(row[name] for name in NAMES) for row in shuffled]
        actual = create_frame(spark, values).orderBy(*map(F.expr, labels.row_order_sql(first)))
        assert [row.asDict() for row in actual.collect()] == expected
