"""Counts of unjudged items: by definition, the same by every route, added up over nights."""

from __future__ import annotations

import random
from functools import partial

import pytest
from pyspark.sql import functions as F

import ndcg_spark
from ndcg_spark import merge_summaries
from ndcg_spark.evaluation import summarize
from ndcg_spark.history import roll_up

SCHEMA = "query_id string, item_id long, score double, relevance double, country string"
CUTOFFS = (1, 3, 5, None)


def random_rows(seed: int, *, tied: bool) -> list[tuple[str, int, float, float | None, str]]:
    """Rows of 40 queries in two countries, a third of them unjudged; nobody has judged query 3."""
    draw, rows = random.Random(seed), []
    for query in range(40):
        n = draw.randint(1, 9)
        scores = [float(draw.randint(0, 3)) for _ in range(n)] if tied else draw.sample([x / 8 for x in range(99)], n)
        for item, score in enumerate(scores):
            relevance = None if query == 3 or draw.random() < 0.35 else draw.choice([0.0, 1.0, 2.0])
            rows.append((f"q{query}", item, score, relevance, "DE" if query % 3 else "FR"))
    return rows


def unjudged_in(groups: list[list[float | None]], k: int | None, ties: str) -> int:
    """Unjudged items on the first k ranks: as many as an order puts there that the tie rule allows."""
    actual, left = 0, 1000 if k is None else k
    for group in groups:
        size = min(left, len(group))
        if ties == "expected":
            actual += min(size, sum(item is None for item in group))
        else:  # of equal gains the unjudged items come first
            sign = -1 if ties == "best" else 1
            order = sorted(group, key=lambda item: (sign * (item or 0.0), item is not None))
            actual += sum(item is None for item in order[:size])
        left -= size
    return actual


def wanted(rows, ties: str = "expected", *, dropped: bool = True) -> dict[tuple[str, int | None], int]:
    """Counts over all queries and by country, at each cutoff; a query without judgments is dropped."""
    actual: dict[tuple[str, int | None], int] = {}
    for query in {row[0] for row in rows}:
        group = [row for row in rows if row[0] == query]
        if dropped and all(row[3] is None for row in group):
            continue
        scores = sorted({row[2] for row in group}, reverse=True)
        groups = [[row[3] for row in group if row[2] == score] for score in scores]
        for k in CUTOFFS:
            for segment in ("", group[0][4]):
                actual[segment, k] = actual.get((segment, k), 0) + unjudged_in(groups, k, ties)
    return actual


def counted(summary) -> dict[tuple[str, int | None], int]:
    rows = summary.where("metric = 'ndcg'").collect()
    return {(row["segment"], row["k"]): row["n_unjudged_items"] for row in rows}


@pytest.mark.parametrize("ties", ["expected", "best", "worst"])
def test_items_tied_across_a_cutoff_count_as_far_as_they_can_be_before_it(spark, ties):
    rows = random_rows(5, tied=True)
    table = spark.createDataFrame(rows, SCHEMA)
    evaluate = partial(ndcg_spark.evaluate, k=CUTOFFS, segments=["country"], convention=f"default;ties={ties}")
    expected = wanted(rows, ties)
    assert expected["", 3] > 20
    assert counted(evaluate(table).summary) == expected
    assert counted(evaluate(table.repartition(7), strategy="window").summary) == expected


@pytest.mark.classic("Python workers read files themselves")
def test_every_route_counts_the_same(spark, tmp_path):
    rows = random_rows(6, tied=False)
    table = spark.createDataFrame(rows, SCHEMA)
    table.orderBy("query_id").coalesce(1).write.parquet(str(tmp_path / "sorted"))
    run, judged = table.drop("relevance"), table.where("relevance is not null").drop("score", "country")
    in_order = "transform(sort_array(collect_list(struct(score, item_id)), false), x -> x.item_id)"
    lists = run.groupBy("query_id", "country").agg(F.expr(in_order).alias("ranked"))
    at = "row_number() over (partition by query_id order by score desc) as rank"
    ranked = run.selectExpr("*", at).drop("score")
    evaluate = partial(ndcg_spark.evaluate, k=CUTOFFS, segments=["country"])
    actual = {
        "one table": evaluate(table),
        "sorted files": evaluate(str(tmp_path / "sorted"), source="parquet"),
        "in order": evaluate(table, convention="default;ties=item_asc"),
        "judgments": evaluate(run, judgments=judged),
        "judgments, window": evaluate(run, judgments=judged, strategy="window"),
        "given ranks": evaluate(ranked, rank="rank", judgments=judged),
        "lists": evaluate(lists, ranked="ranked", judgments=judged),
    }
    for name, evaluation in actual.items():
        assert counted(evaluation.summary) == wanted(rows), name
    one = actual["one table"]
    assert counted(summarize(one.per_query, one.settings)) == wanted(rows)
    assert "n_unjudged_items" not in one.per_query_table.columns


def test_a_query_that_nobody_judged_counts_where_it_is_in_the_mean(spark):
    rows = random_rows(6, tied=False)
    evaluate = partial(ndcg_spark.evaluate, spark.createDataFrame(rows, SCHEMA), k=CUTOFFS, segments=["country"])
    kept = evaluate(convention="default;unjudged_query=zero").summary
    assert counted(kept) == wanted(rows, dropped=False) != wanted(rows)
    assert set(counted(evaluate(convention="default;unjudged=condensed").summary).values()) == {0}


def test_metrics_of_queries_that_did_not_count_make_a_sum_null(spark):
    """Those of a version before, beside those of tonight: in one country all queries have counts."""
    evaluation = ndcg_spark.evaluate(
        spark.createDataFrame(random_rows(8, tied=True), SCHEMA), k=CUTOFFS, segments=["country"], on_invalid="reject"
    )
    rows = evaluation.ranking.per_query(rejected=True)
    old = rows.where("country = 'FR'").drop("n_unjudged_items", "n_rejected")
    both = rows.where("country = 'DE'").unionByName(old, allowMissingColumns=True)
    message, known = counted(summarize(both, evaluation.settings)), counted(evaluation.summary)
    assert message == {key: n if key[0] == "DE" else None for key, n in known.items()}
    counts = {row["segment"]: row["n_rejected"] for row in summarize(both, evaluation.settings).collect()}
    assert counts == {"": None, "FR": None, "DE": 0}


def test_counts_of_nights_add_up_and_are_unknown_beside_nights_that_did_not_count(spark):
    rows = random_rows(7, tied=True)
    summary = ndcg_spark.evaluate(spark.createDataFrame(rows, SCHEMA), k=CUTOFFS, segments=["country"]).summary
    night = spark.createDataFrame(summary.collect(), summary.schema)
    old = night.drop("n_unjudged_items")
    once = wanted(rows)
    assert counted(merge_summaries(night.union(night))) == {key: 2 * n for key, n in once.items()}
    mixed = night.unionByName(old, allowMissingColumns=True)
    stored = mixed.withColumns({"config_hash": F.lit("h"), "convention": F.lit("c")}).withColumn(
        "run_date",
        F.when(F.col("n_unjudged_items").isNull(), F.lit("2026-01-06")).otherwise("2026-01-07").cast("date"),
    )
    for merged in (merge_summaries(old), merge_summaries(mixed), roll_up(stored).where("period = 'week'")):
        assert set(counted(merged).values()) == {None}
