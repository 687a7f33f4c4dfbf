"""Nights held against their history: the worked example, weekdays, short and steady histories."""

from __future__ import annotations

import math
from datetime import date, timedelta

import numpy as np
import pytest

from ndcg_spark.kernels.anomaly import LIMITS, in_words, standing

NIGHT = date(2026, 3, 30)
BEFORE = [0.4420, 0.4431, 0.4409, 0.4415, 0.4442, 0.4398, 0.4426, 0.4411, 0.4437, 0.4404, 0.4423, 0.4418]


def weekly(values):
    return [(NIGHT - timedelta(weeks=at + 1), value) for at, value in enumerate(values)]


def test_the_worked_history():
    found = standing(0.4312, 0.0015, NIGHT, weekly(BEFORE))
    assert (found.median, found.spread) == (
        pytest.approx(0.4419, abs=5e-13),
        pytest.approx(0.001334341997, abs=5e-13),
    )
    assert found.z == pytest.approx(-7.133333333333, abs=5e-12)
    assert (found.flagged, found.nights, found.same_weekday, found.limit) == (True, 12, True, 4.5)
    said = "flagged: 0.4312 is 7.1 spreads below the median 0.4419 of 12 nights of the same weekday (limit 4.5)"
    assert in_words(0.4312, found) == said


def test_other_weekdays_count_only_where_the_same_are_few():
    others = [(NIGHT - timedelta(days=day), 0.9) for day in range(1, 60) if day % 7]
    assert standing(0.442, 0.0015, NIGHT, [*weekly(BEFORE), *others]).median == pytest.approx(0.4419)
    found = standing(0.442, 0.0015, NIGHT, [*weekly(BEFORE[:7]), *others])
    assert (found.same_weekday, found.median, found.nights) == (False, 0.9, 58)
    short = standing(0.442, 0.0015, NIGHT, [*weekly(BEFORE[:7]), *others[:20]])
    assert (short.note, short.flagged, short.nights, short.z) == ("short_history", False, 27, None)
    assert in_words(0.442, short).startswith("not judged: 27 earlier nights")


def test_later_nights_play_no_part():
    later = [(NIGHT + timedelta(weeks=at), 0.9) for at in range(20)]
    assert standing(0.4312, 0.0015, NIGHT, [*weekly(BEFORE), *later]).nights == 12


def test_any_change_of_a_constant_is_flagged():
    assert standing(0.5, None, NIGHT, weekly([0.5] * 9)).z == 0
    found = standing(0.4999, None, NIGHT, weekly([0.5] * 9))
    assert (found.z, found.flagged) == (-math.inf, True)
    assert not standing(0.4999, 0.01, NIGHT, weekly([0.5] * 9)).flagged


@pytest.mark.parametrize("n", [8, 12, 26])
def test_one_normal_night_in_a_hundred_is_flagged(n):
    """Without the floor of the standard error, 20,000 histories: 1 % within four standard errors of the share."""
    values = np.random.default_rng(n).normal(size=(20_000, n + 1))
    middle = np.median(values[:, 1:], axis=1)
    spread = 1.4826 * np.median(np.abs(values[:, 1:] - middle[:, None]), axis=1)
    share = float(np.mean(np.abs(values[:, 0] - middle) / spread > LIMITS[n]))
    assert share == pytest.approx(0.01, abs=4 * math.sqrt(0.01 * 0.99 / 20_000) + 0.0005)
