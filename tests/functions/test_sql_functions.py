"""The functions for SQL equal the aggregates of Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from support.random_rankings import random_rows
from support.spark_rankings import create_scored_table, is_close, since_spark

from ndcg_spark import functions as f
from ndcg_spark.errors import NdcgSparkError

OF_GAINS = {"ndcg": f.ndcg_at, "dcg": f.dcg_at}
OF_HITS = {
    "precision": f.precision_at,
    "recall": f.recall_at,
    "average_precision": f.average_precision_at,
    "reciprocal_rank": f.reciprocal_rank_at,
}
DOCS = Path(__file__).resolve().parents[2] / "docs"
LIST = "collect_list(struct(score, relevance))"
needs_spark_4 = since_spark("4.0", "SQL functions")


@pytest.fixture(scope="module")
def sql(spark):
    """A session with the functions registered, until the module ends."""
    f.register(spark)
    yield spark
    for name in (*OF_GAINS, *OF_HITS):
        spark.sql(f"DROP TEMPORARY FUNCTION {name}_list")


@needs_spark_4
@pytest.mark.parametrize("ties", ["expected", "worst"])
def test_lists_have_the_values_of_the_aggregates(sql, ties):
    table = create_scored_table(sql, random_rows(11))
    options_by_arguments = {
        **{
            f"{LIST}, {k}, '{gain}', '{ties}'": {"k": k, "gain": gain}
            for k in (1, 3)
            for gain in ("linear", "binary")
        },
        f"{LIST}, ties => '{ties}'": {},
    }
    columns = []
    for arguments, options in options_by_arguments.items():
        for name, function in OF_GAINS.items():
            columns += [F.expr(f"{name}_list({arguments})"), function("score", "relevance", ties=ties, **options)]
    for name, function in OF_HITS.items():
        columns += [
            F.expr(f"{name}_list({LIST}, 3, 2, '{ties}')"),
            function("score", "relevance", k=3, rel=2, ties=ties),
        ]
        columns += [F.expr(f"{name}_list({LIST}, ties => '{ties}')"), function("score", "relevance", ties=ties)]
    named = [column.alias(f"c{at}") for at, column in enumerate(columns)]
    compared = 0
    for start in range(0, len(named), 8):  # plans of many long expressions take long to compile
        for row in table.groupBy("query_id").agg(*named[start : start + 8]).collect():
            for actual, expected in zip(row[1::2], row[2::2], strict=True):
                assert is_close(actual, expected), (row["query_id"], start)
                compared += 1
    assert compared > 200


REFUSED = [
    (f"ndcg_list({LIST}, 0)", "k must be a whole number of at least 1, or null for the whole list; got 0."),
    (f"ndcg_list({LIST}, 3, 'cubic')", "gain must be one of exponential, linear, binary; got cubic."),
    (f"recall_list({LIST}, ties => 'x')", "ties must be one of expected, best, worst; got x."),
    (f"ndcg_list({LIST}, ties => NULL)", "ties must be one of expected, best, worst; got null."),
    (f"ndcg_list({LIST}, gain => NULL)", "gain must be one of exponential, linear, binary; got null."),
    (f"recall_list({LIST}, rel => NULL)", "rel must be a finite number; got null."),
    (f"precision_list({LIST}, rel => double('nan'))", "rel must be a finite number; got NaN."),
    (
        "ndcg_list(collect_list(struct(double('nan'), relevance)))",
        "bad value in the list: score NaN, relevance 3; it must be finite, and a gain at most 2^63.",
    ),
    ("precision_list(collect_list(struct(score, double('-inf'))))", "relevance -Infinity; it must be finite"),
    ("ndcg_list(collect_list(struct(score, 64)))", "bad value in the list: score 1, relevance 64; it must be"),
]


@needs_spark_4
def test_bad_arguments_and_values_are_refused(sql):
    table = sql.createDataFrame([(1.0, 3.0)], "score double, relevance double")
    for call, message in REFUSED:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # Spark chooses the class
            table.agg(F.expr(call)).collect()
        assert message in str(raised.value)


@needs_spark_4
def test_text_is_refused_in_any_session(sql):
    """A function keeps the ANSI setting of its registration; without ANSI, text would be an unretrieved item."""
    before = sql.conf.get("spark.sql.ansi.enabled")
    try:
        sql.conf.set("spark.sql.ansi.enabled", "false")
        f.register(sql)
        assert sql.conf.get("spark.sql.ansi.enabled") == "false"
        with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
            sql.sql("SELECT ndcg_list(array(struct('high', 1), struct('low', 2)), 2)").collect()
    finally:
        sql.conf.set("spark.sql.ansi.enabled", before)


@needs_spark_4
def test_the_statement_of_the_documentation(sql):
    """The six items of the page; 0.3839 is also the value of `evaluate`; one of three relevant items is retrieved."""
    (statement,) = re.findall(r"```sql\n(.*?)```", (DOCS / "functions.md").read_text("utf-8"), re.DOTALL)
    cells = [(0.9, 1.0), (0.8, 3.0), (0.8, 0.0), (0.5, 2.0), (0.4, 0.0), (None, 3.0)]
    table = sql.createDataFrame([("q", *cell) for cell in cells], "query_id string, score double, relevance double")
    of_the_page, actual = re.subn(r"FROM \w+", "FROM {table}", statement)
    (row,) = sql.sql(of_the_page, table=table).collect()
    assert actual == 1
    assert (row["ndcg"], row["recall"]) == pytest.approx((0.3838695436828514, 1 / 3), abs=1e-12)


@needs_spark_4
def test_an_array_in_rank_order_is_a_list(sql):
    """The first worked example of NDCG, as in the file's header."""
    table = sql.createDataFrame([([3.0, 2.0, 3.0, 0.0, 1.0, 2.0],)], "ranked array<double>")
    made = table.selectExpr("transform(ranked, (rel, i) -> struct(-i, rel)) AS list")
    (actual,) = made.selectExpr("ndcg_list(list, 6, 'linear')", "ndcg_list(list, 6)").collect()
    assert actual == pytest.approx((0.960808, 0.948811), abs=5e-7)


def test_register_on_spark_3_names_the_alternative(spark):
    if int(spark.version.split(".")[0]) >= 4:
        pytest.skip("this Spark has SQL functions")
    with pytest.raises(NdcgSparkError, match=r"SQL functions need Spark 4\.0 or later; this is 3"):
        f.register(spark)
