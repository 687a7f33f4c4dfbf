"""Equal runs are found equal at the nominal rate, as in that check; naive errors fail it."""

from __future__ import annotations

import pytest

from scripts.checks import type_1_error

N = 150


@pytest.mark.slow
@pytest.mark.parametrize("users", [False, True])
def test_equal_runs_are_found_equal(users):
    # Four standard deviations of a share of 0.95: 0.071. The full 1,000 repetitions: scripts/check type-1-error.
    for method, share in type_1_error.coverage(N, users=users, clustered=users).items():
        assert share > 0.95 - 0.071, method


@pytest.mark.slow
def test_naive_errors_of_clustered_data_fail():
    assert type_1_error.coverage(N, users=True, clustered=False)["t"] < 0.95 - 0.071
