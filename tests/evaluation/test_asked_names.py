"""The column `asked`: a result is found by the name that it was asked for."""

from __future__ import annotations

from functools import partial

import pytest
from pyspark.sql import functions as F

import ndcg_spark
from ndcg_spark import merge_summaries
from ndcg_spark.evaluation.settings import parse_metrics
from ndcg_spark.history import roll_up

SCHEMA = "query_id string, item_id long, score double, relevance double"
ROWS = [("q", 1, 0.9, 0.0), ("q", 2, 0.8, 1.0), ("p", 1, 0.9, 1.0), ("p", 2, 0.8, 0.0)]


def asked_in(summary) -> dict[tuple[str, int | None], str | None]:
    return {(row["metric"], row["k"]): row["asked"] for row in summary.collect()}


@pytest.mark.parametrize(
    ("metrics", "k", "names"),
    [
        (["recall@5"], None, ["recall@5"]),
        ("P(rel = 2) @ 5", None, ["P(rel=2)@5"]),
        ("MAP", None, ["MAP@all"]),
        ("MAP@all, rprec", (1, 5), ["MAP@all", "rprec@all"]),
        ("recall,ndcg@2", (1, 5), ["recall@1", "recall@5", "ndcg@2"]),
        (["recall@5", "r@5", "R@5"], None, ["recall@5"]),
        (["r", "recall@5"], (1, 5), ["r@1", "r@5"]),
    ],
)
def test_the_first_name_of_a_metric_is_kept(metrics, k, names):
    assert [metric.asked_at for metric in parse_metrics(metrics, k)[0]] == names


def test_a_summary_has_the_names_that_were_asked_for(spark):
    """`dcg` at 2 comes with `ndcg` and is asked for, too; `idcg` is not."""
    table = spark.createDataFrame(ROWS, SCHEMA)
    evaluation = ndcg_spark.evaluate(table, metrics=["recall@1", "NDCG@2", "r@1", "dcg@2", "mrr"])
    names = {("r", 1): "recall@1", ("ndcg", 2): "NDCG@2", ("dcg", 2): "dcg@2", ("rr", None): "mrr@all"}
    assert asked_in(evaluation.summary) == names | {("idcg", 2): None}
    (row,) = evaluation.summary.where("asked = 'recall@1'").collect()
    assert (row["metric"], row["k"], row["value"]) == ("r", 1, 0.5)
    assert {row["metric"] for row in evaluation.means().collect()} == set(names.values())
    plain = {("ndcg", k): f"ndcg@{'all' if k is None else k}" for k in (1, None)}
    plain |= {(name, k): None for name in ("dcg", "idcg") for k in (1, None)}
    assert asked_in(ndcg_spark.evaluate(table, k=[1, None]).summary) == plain


def test_metrics_of_the_catalogue_have_names_too(spark):
    table, items = spark.createDataFrame(ROWS, SCHEMA), spark.createDataFrame([(1,), (2,), (3,)], "item_id long")
    evaluation = ndcg_spark.evaluate(
        table, metrics=["Coverage@2", "ap@2"], items=items, item="item_id", convention="default;ties=item_asc"
    )
    names = {("coverage", 2): "Coverage@2", ("ap", 2): "ap@2", ("outside_catalogue", 2): None}
    assert asked_in(evaluation.summary) == names


def test_names_are_kept_over_nights(spark):
    """Of two names the first in the order of letters; a night may have none."""
    table = spark.createDataFrame(ROWS, SCHEMA)
    nights = []
    for day, name in ((5, "recall@1"), (6, "r@1"), (7, "r@1")):
        summary = ndcg_spark.evaluate(table, metrics=name).summary
        night = spark.createDataFrame(summary.collect(), summary.schema)
        stamped = {"config_hash": F.lit("h"), "convention": F.lit("c"), "run_date": F.lit(f"2026-01-0{day}")}
        nights.append(night.withColumns(stamped).withColumn("run_date", F.col("run_date").cast("date")))
    old = nights[2].drop("asked")
    both = nights[0].union(nights[1]).unionByName(old, allowMissingColumns=True)
    for rows, name in ((both, "r@1"), (nights[0], "recall@1"), (old, None)):
        for merged in (merge_summaries(rows), roll_up(rows).where("period = 'week'")):
            assert asked_in(merged) == {("r", 1): name}


def test_comparisons_have_the_names_too(spark):
    """Where runs were evaluated, and of per-query tables; `dcg` stands beside `ndcg`, and is not asked for."""
    rows = [(run, *row) for run in ("a", "b") for row in ROWS]
    table = spark.createDataFrame(rows, "ranker string, " + SCHEMA)
    evaluation = ndcg_spark.evaluate(table, run="ranker", metrics=["recall@1", "r@2", "ndcg@2"])
    compare = partial(ndcg_spark.compare, baseline="a", runs=["a", "b"], replicates=0, flips=0)
    names = {("r", 1): "recall@1", ("r", 2): "r@2", ("ndcg", 2): "ndcg@2"}
    compared = compare(evaluation)
    assert asked_in(compared.summary) == names | {("dcg", 2): None}
    assert {row["metric"] for row in compared.differences().collect()} == set(names.values())
    assert asked_in(compare(evaluation.per_query).summary) == {("ndcg", 2): "ndcg@2", ("dcg", 2): None}
    by_name = compare(evaluation.per_query, metrics="r,recall@2,NDCG")
    assert asked_in(by_name.summary) == {("r", 1): "r@1", ("r", 2): "r@2", ("ndcg", 2): "NDCG@2"}


def test_a_comparison_that_is_rolled_up_keeps_its_names(spark):
    rows = [(run, *row) for run in ("a", "b") for row in ROWS]
    table = spark.createDataFrame(rows, "ranker string, " + SCHEMA)
    evaluation = ndcg_spark.evaluate(table, run="ranker", metrics="recall@1")
    compared = ndcg_spark.compare(evaluation, baseline="a", runs=["a", "b"], replicates=0, flips=0).summary
    night = spark.createDataFrame(compared.collect(), compared.schema)
    stamped = {"config_hash": F.lit("h"), "convention": F.lit("c"), "run_date": F.lit("2026-01-05").cast("date")}
    new = night.withColumns(stamped)
    old = new.drop("asked").withColumn("run_date", F.lit("2026-01-06").cast("date"))
    both = new.unionByName(old, allowMissingColumns=True)
    for nights, name in ((new, "recall@1"), (old, None), (both, "recall@1")):
        assert asked_in(roll_up(nights, independence="query_day").where("period = 'week'")) == {("r", 1): name}
