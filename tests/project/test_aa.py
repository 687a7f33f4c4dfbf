"""Equal runs are found equal as often as intervals promise, as scripts/aa counts it; and naive errors are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))  # a folder of programs, no package

import aa

N = 150


@pytest.mark.slow
@pytest.mark.parametrize("users", [False, True])
def test_equal_runs_are_found_equal(users):
    # Four standard deviations of a share of 0.95: 0.071. The full 1,000 repetitions: scripts/aa.
    for method, share in aa.coverage(N, users=users, clustered=users).items():
        assert share > 0.95 - 0.071, method


@pytest.mark.slow
def test_naive_errors_of_clustered_data_fail():
    assert aa.coverage(N, users=True, clustered=False)["t"] < 0.95 - 0.071
