"""A short leg of scripts/check cross-check, which notices differences."""

from __future__ import annotations

import pytest
from support.spark_rankings import since_spark

from scripts.checks.cross_check import routes
from scripts.checks.cross_check.questions import draw_question

KEY = ("bm25", "", "", "ndcg", 10)


@since_spark("4.0", "DataFrames of Arrow tables")
@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize("seed", range(20))
def test_every_route_has_the_same_means(spark, tmp_path, seed):
    """Each seed runs a third of the routes, as all of them take ten seconds; the check runs all."""
    first, *others = routes.ROUTES
    result = routes.ask(spark, draw_question(seed, tmp_path), [first, *others[seed % 3 :: 3]])
    assert result.differences == []
    assert result.asked >= 3


@since_spark("4.0", "DataFrames of Arrow tables")
@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize("seed", [11, 22, 24])
def test_every_route_has_the_same_metrics_of_queries(spark, tmp_path, seed):
    """Seed 11 has duplicate items, 22 a table of gains, 24 duplicates that are refused."""
    result = routes.ask(spark, draw_question(seed, tmp_path, per_query=True))
    assert result.differences == []
    assert result.asked >= 12


def test_a_difference_of_one_bit_is_seen():
    exact, whole = routes.ROUTES[0], {KEY: 0.1}
    assert routes.find_first_difference({KEY: 0.1}, whole, exact) == ""
    assert "0.1" in routes.find_first_difference({KEY: 0.1 + 2**-56}, whole, exact)
    sums = next(route for route in routes.ROUTES if route.name == "sums of queries")
    assert routes.find_first_difference({KEY: 0.1 * (1 + 4e-16)}, whole, sums) == ""
    assert routes.find_first_difference({KEY: 0.1 * (1 + 4e-15)}, whole, sums)
    assert routes.find_first_difference({KEY: None}, whole, sums)


def test_missing_mean_and_other_refusal_are_seen():
    exact, part = routes.ROUTES[0], next(route for route in routes.ROUTES if not route.is_whole)
    assert "is in one of two answers" in routes.find_first_difference({}, {KEY: 0.1}, exact)
    assert routes.find_first_difference({}, {KEY: 0.1}, part) == ""
    assert routes.find_first_difference({KEY: 0.1}, {}, part)
    assert (
        routes.find_first_difference("refused: nan_score", {KEY: 0.1}, exact) == "refused: nan_score against answered"
    )
    assert routes.find_first_difference("refused: nan_score", "refused: null_item", exact)
    assert routes.find_first_difference("refused: nan_score", "refused: nan_score", exact) == ""
