"""A short leg of scripts/check cross-check, and that it notices what differs."""

from __future__ import annotations

import pytest
from support.spark_rankings import since_spark

from scripts.checks.cross_check import fuzz


@since_spark("4.0", "DataFrames of Arrow tables")
@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize("seed", [0, 11])
def test_every_strategy_and_form_agrees_with_the_oracle_and_in_every_bit(spark, tmp_path, seed):
    """Seed 0 has order values and items that come twice, seed 11 a gain table and duplicates that are refused."""
    n_compared, differences = fuzz.fuzz(spark, seed, tmp_path)
    assert differences == []
    assert n_compared >= 12


def test_a_difference_of_one_bit_is_seen():
    one = {("", "q", 1): ((1.0).hex(), (1.0).hex(), (1.0).hex(), "evaluated", 1, 1, 1, 1, 0)}
    other = {("", "q", 1): ((1.0 + 2**-52).hex(), *one["", "q", 1][1:])}
    assert one != other
    assert "q" in fuzz.first_difference(one, other)
    assert fuzz.first_difference(one, "refused") == "evaluated and refused"
