"""Means are the same to the last bit, however the rows arrive and wherever they are added up."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

import pytest
from support.oracle import Choices, Row
from support.oracle import evaluate as by_definition
from support.oracle import mean as mean_by_definition
from support.random_rankings import random_rows
from support.spark_rankings import needs_top_k, scored_table, session_settings, shuffled

from ndcg_spark import evaluate, merge_summaries, rank_queries, score_queries, summarize, summarize_rankings
from ndcg_spark.plan import Columns, EvaluationPlan

NUMBERS = ("value", "weight_sum", "std_error", "ci_low", "ci_high")
COUNTS = ("n_queries", "n_no_relevant", "n_missing", "n_unjudged", "n_rows", "n_left_out")
KEYS = ("run", "segment_by", "segment", "metric", "k")
ROWS = random_rows(60, n_queries=60, max_items=8)
PLAN = EvaluationPlan(
    columns=Columns(weight="w"), cutoffs=(1, 3, 10), segment_sets=(("country",),), null_score="unretrieved"
)


def weighted_table(spark, rows: Sequence[Row]):
    """Weights that have no short binary form: their sums depend on the order of floating-point addition."""
    number = "abs(hash(query_id)) % 97"
    return scored_table(spark, rows).selectExpr(
        "*", f"({number} + 1) / 7.0D as w", f"if({number} < 50, 'DE', 'FR') as country"
    )


def bits(summary) -> dict[tuple, tuple]:
    """Every number of a summary as text that two doubles share only when they are the same bits."""
    return bits_of(summary.collect())


def bits_of(rows) -> dict[tuple, tuple]:
    found = {}
    for row in rows:
        numbers = tuple(None if row[name] is None else row[name].hex() for name in NUMBERS)
        key = tuple(row[name] for name in KEYS)
        assert key not in found
        found[key] = (*numbers, tuple(row[name] for name in COUNTS), tuple(row["state"]))
    return found


def summary_of(spark, rows: Sequence[Row], plan: EvaluationPlan = PLAN, n_inputs: int = 2):
    return summarize_rankings(rank_queries(weighted_table(spark, rows).repartition(n_inputs), plan), plan)


@pytest.fixture(scope="module")
def collected(spark):
    """The summary that all others must equal, with its schema."""
    with session_settings(spark, spark__sql__shuffle__partitions=2):
        summary = summary_of(spark, ROWS)
        return summary.collect(), summary.schema


@pytest.fixture(scope="module")
def reference(collected) -> dict[tuple, tuple]:
    return bits_of(collected[0])


@pytest.mark.parametrize(
    ("partitions", "adaptive", "way"),
    [
        (1, True, "window"),
        (7, False, "window"),
        pytest.param(64, True, "top_k", marks=needs_top_k),
        pytest.param(16, False, "top_k", marks=needs_top_k),
    ],
)
def test_row_order_partitions_and_plan_do_not_change_a_bit(spark, reference, partitions, adaptive, way):
    plan = EvaluationPlan(
        columns=PLAN.columns,
        cutoffs=PLAN.cutoffs,
        segment_sets=PLAN.segment_sets,
        null_score="unretrieved",
        way=way,
    )
    settings = {"spark__sql__shuffle__partitions": partitions, "spark__sql__adaptive__enabled": str(adaptive).lower()}
    with session_settings(spark, **settings):
        rows = shuffled(ROWS, seed=partitions + adaptive)
        assert bits(summary_of(spark, rows, plan, n_inputs=1 + partitions % 5)) == reference


def test_small_arrow_batches_do_not_change_a_bit(spark, reference):
    with session_settings(spark, spark__sql__execution__arrow__maxRecordsPerBatch=3):
        assert bits(summary_of(spark, ROWS)) == reference


def test_the_reference_has_the_rows_that_it_should(reference):
    """Every metric and cutoff, overall and by country; a run without a name."""
    groups = {("", ""), ("country", "DE"), ("country", "FR")}
    assert set(reference) == {
        ("", by, segment, metric, k)
        for by, segment in groups
        for metric in ("ndcg", "dcg", "idcg")
        for k in (1, 3, 10)
    }


def test_summaries_of_queries_and_of_rankings_are_the_same(spark, reference):
    rankings = rank_queries(weighted_table(spark, ROWS), PLAN)
    assert bits(summarize(score_queries(rankings, PLAN), PLAN)) == reference


def test_two_days_merge_into_the_summary_over_both(spark, reference):
    """Days of disjoint queries, the second with one segment alone: its other row comes from the first."""
    monday = [row for row in ROWS if len(row.query) % 2]
    tuesday = [row for row in ROWS if not len(row.query) % 2]
    assert min(len(monday), len(tuesday)) > 20
    merged = merge_summaries(summary_of(spark, monday).unionByName(summary_of(spark, tuesday)))
    assert bits(merged) == reference


def test_the_confidence_of_a_merge(spark, collected, reference):
    from statistics import NormalDist

    key = ("", "", "", "ndcg", 10)
    merged = {
        tuple(row[name] for name in KEYS): row
        for row in merge_summaries(spark.createDataFrame(*collected), confidence=0.8).collect()
    }
    row = merged[key]
    assert row["value"].hex() == reference[key][0]
    half = NormalDist().inv_cdf(0.9) * row["std_error"]
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((row["value"] - half, row["value"] + half), abs=1e-15)


@pytest.fixture(scope="module")
def plain(spark):
    """One cutoff without weights: the table, and what is found in it."""
    table = scored_table(spark, [row for row in ROWS if row.score is not None])
    found = evaluate(table, k=10)
    return table, found, {row["metric"]: row for row in found.summary.collect()}


def test_equal_weights_give_the_unweighted_values(plain):
    """The weight 3 has no share in value, error and interval; weight_sum alone knows it."""
    table, _, plain = plain
    found = evaluate(table.selectExpr("*", "3 w"), k=10, weight="w").summary.collect()
    weighted = {row["metric"]: row for row in found}
    assert plain.keys() == weighted.keys()
    for metric, row in plain.items():
        for name in ("value", "std_error", "ci_low", "ci_high", "n_queries"):
            assert weighted[metric][name] == row[name], (metric, name)
        assert (row["weight_sum"], weighted[metric]["weight_sum"]) == (row["n_queries"], 3 * row["n_queries"])


def test_means_are_rounded_once(plain):
    """The exact mean of the values of the queries, as a fraction; their standard error; and the oracle's mean."""
    _, found, summary = plain
    per_query = [row for row in found.per_query.collect() if row["ndcg"] is not None]
    for metric in ("ndcg", "dcg", "idcg"):
        values = [row[metric] for row in per_query]
        assert summary[metric]["value"] == float(sum(map(Fraction, values)) / len(values))
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert summary[metric]["std_error"] == pytest.approx(error, rel=1e-13)
    expected = by_definition([row for row in ROWS if row.score is not None], Choices(ties="item_asc"), [10])
    assert summary["ndcg"]["value"] == pytest.approx(mean_by_definition(expected, 10), abs=1e-14)


def test_a_naive_sum_would_fail_these_tests():
    """Doubles added in another order give another sum, with values such as these."""
    values = [1.0 / n for n in range(1, 200)]
    assert sum(values) != sum(reversed(values))


def test_settings_are_as_they_were(spark):
    """The tests of this file leave the session as they found it."""
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    with session_settings(spark, spark__sql__shuffle__partitions=9):
        assert spark.conf.get("spark.sql.shuffle.partitions") == "9"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
