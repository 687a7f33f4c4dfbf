"""Correlations, their intervals, and changes between windows: worked values and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.expectations import approx

from ndcg_spark.business.kernels import (
    WindowChange,
    compare_windows,
    compute_decimal_changes,
    match_days,
    pearson,
    rank_values,
    spearman,
)

NDCG = np.array([0.400, 0.402, 0.398, 0.401, 0.399, 0.400, 0.400, 0.410, 0.412, 0.409, 0.411, 0.413, 0.410, 0.412])
CTR = np.array([500, 505, 498, 502, 497, 503, 495, 480, 478, 485, 481, 476, 479, 483]) / 10000


# ----------------------------------------------------------------------------------------------- correlations


def test_pearson_with_fishers_interval():
    # scipy 1.17: pearsonr(NDCG, CTR), and .confidence_interval(0.95)
    actual = pearson(NDCG, CTR, confidence=0.95)
    assert actual == (14, approx(-0.927374429422), approx(-0.977150882351), approx(-0.781162900986))


def test_spearman_with_midranks():
    # scipy 1.17: spearmanr(NDCG, CTR); the interval by hand from doi:10.1007/BF02294183
    r = -0.752228958158
    half = 1.959963984540 * math.sqrt((1 + r * r / 2) / 11)
    actual = spearman(NDCG, CTR, confidence=0.95)
    assert actual == (14, approx(r), approx(math.tanh(math.atanh(r) - half)), approx(math.tanh(math.atanh(r) + half)))


def test_nightly_changes():
    # numpy 2.4: corrcoef(diff(NDCG), diff(CTR))
    assert pearson(np.diff(NDCG), np.diff(CTR), confidence=0.95).r == approx(-0.386965537777)


@pytest.mark.parametrize("seed", range(20))
def test_changes_that_are_equal_on_paper_are_equal(seed):
    random = np.random.default_rng(seed)
    whole, digits = random.integers(-50, 50, 30), int(random.integers(1, 6))
    values = np.array([float(f"{n}e-{digits}") for n in whole])
    expected = np.array([float(f"{change}e-{digits}") for change in np.diff(whole)])
    assert compute_decimal_changes(values).tolist() == expected.tolist()
    x, y = compute_decimal_changes(values), compute_decimal_changes(values[::-1])
    in_ranks = stats.spearmanr(np.diff(whole), np.diff(whole[::-1])).statistic
    assert spearman(x, y, confidence=0.95).r == approx(in_ranks)


def test_steady_change_has_no_correlation():
    """In floats the changes of 0.1, 0.2, 0.3, ... differ in their last bits, which correlate with anything."""
    steady = np.arange(1, 12) / 10
    assert np.ptp(np.diff(steady)) > 0
    for how in (pearson, spearman):
        assert how(compute_decimal_changes(steady), CTR[:10], confidence=0.95).r is None


def test_no_change_of_fewer_than_two_values():
    assert [len(compute_decimal_changes(np.zeros(n))) for n in (0, 1, 2)] == [0, 0, 1]


def test_lag_of_one_night():
    # the definition, in plain Python: NDCG of night t with the click-through of night t + 1
    days = np.arange(100, 114)
    places, others = match_days(days, days, 1)
    assert pearson(NDCG[places], CTR[others], confidence=0.95)[:2] == (13, approx(-0.808195117423))


def test_days_without_a_partner_are_in_no_pair():
    places, others = match_days(np.array([1, 2, 4, 9]), np.array([1, 2, 3, 4, 6]), -1)
    assert [(places.tolist()), others.tolist()] == [[1, 2], [0, 2]]  # 2 with 1, 4 with 3
    places, others = match_days(np.array([], dtype=np.int64), np.array([3]), 0)
    assert (len(places), len(others)) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_correlations_are_those_of_scipy(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(4, 60))
    x, y = random.integers(0, 9, n) / 8, random.normal(size=n).round(1)
    level = float(random.uniform(0.5, 0.99))
    expected = stats.pearsonr(x, y)
    interval = expected.confidence_interval(level)
    assert pearson(x, y, confidence=level) == (n, *map(approx, (expected.statistic, interval.low, interval.high)))
    assert spearman(x, y, confidence=level).r == approx(stats.spearmanr(x, y).statistic)
    assert rank_values(x).tolist() == stats.rankdata(x).tolist()


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        pytest.param([], [], (0, None, None, None), id="nothing"),
        pytest.param([1.0], [2.0], (1, None, None, None), id="one night"),
        pytest.param([1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 1.0, 5.0], (5, None, None, None), id="constant"),
        pytest.param([0.1, 0.2, 0.3, 0.4, 0.7], [0.3, 0.6, 0.9, 1.2, 2.1], (5, 1.0, None, None), id="a line"),
        pytest.param([0.1, 0.2, 0.3, 0.4, 0.7], [-0.3, -0.6, -0.9, -1.2, -2.1], (5, -1.0, None, None), id="down"),
        pytest.param(
            [1.0, 2.0, 4.0], [1.0, 2.0, 1.0], (3, pytest.approx(-1 / math.sqrt(28)), None, None), id="n = 3"
        ),
    ],
)
def test_no_interval(x, y, expected):
    # n = 3 by hand: deviations (-4, -1, 5)/3 and (-1, 2, -1)/3; -3/9 over sqrt(42/9 * 6/9) = -1/sqrt(28)
    assert pearson(np.array(x), np.array(y), confidence=0.95) == expected


# ---------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("values", "change", "ratio"),
    [(NDCG, 0.0275, 15.198684153571), (CTR, -0.039428571429, -11.144505372604)],
)
def test_change_between_two_weeks(values, change, ratio):
    actual = compare_windows(values[:7], values[7:])
    assert (actual.change, actual.change / actual.error) == (approx(change), pytest.approx(ratio, abs=1e-10))
    # scipy: Welch's statistic of the two weeks
    welch = stats.ttest_ind(values[7:], values[:7], equal_var=False).statistic
    assert actual.change / actual.error == pytest.approx(welch, abs=1e-10)


def test_change_from_a_mean_of_zero():
    assert compare_windows(np.array([-1.0, 1.0]), np.array([1.0, 2.0])) is None


def test_change_of_a_negative_mean_is_relative_to_its_size():
    assert compare_windows(np.array([-2.0, -2.0]), np.array([-1.0, -1.0])) == WindowChange(0.5, 0.0)


@pytest.mark.parametrize(
    ("change", "error", "directions"),
    [
        (0.0275, 0.0018, "up"),
        (-0.0394, 0.0035, "down"),
        (0.009, 0.0, "flat"),  # below 1 %
        (0.01, 0.0, "up flat"),  # both limits include their ends
        (0.02, 0.001, "up"),  # 0.02 + 0.0024 is not flat
        (0.02, 0.01, ""),  # two errors are noise, and too much of it to call it flat
        (0.0, 0.0081, "flat"),
        (0.0, 0.0082, ""),  # 2.447 * 0.0082 > 0.02
    ],
)
def test_directions(change, error, directions):
    window_change = WindowChange(change, error)
    actual = {
        "up": window_change.is_up(0.01, 2.447),
        "down": window_change.is_down(0.01, 2.447),
        "flat": window_change.is_flat(0.02, 2.447),
    }
    assert " ".join(name for name, is_so in actual.items() if is_so) == directions
