"""Flags that last, in a short history, against a program that pairs every two nights and reads no code of ours."""

from __future__ import annotations

import statistics
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from support.nights import build_metric_rows, nth_night

from ndcg_spark.history.local import judge_nights, read_metric_rows
from ndcg_spark.history.settings import Direction, FlagSettings
from ndcg_spark.metrics import parse_metric
from ndcg_spark.sources.local import open_memory_table

OPPOSITE = {"low": "high", "high": "low"}
CHANGES = {"same": 0.1, "few": 0.3, "refresh": 0.2, "fall": 0.15, "rise": 0.1, "back": 0.15}
N_QUERIES = 60


def build_nights(seed: int) -> list[np.ndarray]:
    """Build the values of the same queries on several nights, which change in few queries, in many, or for good."""
    numbers = np.random.default_rng(seed)
    nights = [numbers.uniform(0.2, 0.9, N_QUERIES)]
    for kind in numbers.choice([*CHANGES], size=numbers.integers(3, 11), p=[*CHANGES.values()]):
        values = nights[-1].copy()
        if kind == "few":
            values[:2] += numbers.normal(0, 0.03, 2)
        elif kind == "refresh":
            values += numbers.normal(0, 0.05, N_QUERIES)
        elif kind == "back":
            values = nights[0] + numbers.normal(0, 0.01, N_QUERIES)
        elif kind != "same":
            values += (-0.05 if kind == "fall" else 0.05) + numbers.normal(0, 0.03, N_QUERIES)
        nights.append(values)
    return nights


def judge(later: np.ndarray, earlier: np.ndarray) -> str:
    """Hold a night against an earlier one, query by query, or by their errors where no query changed."""
    if (later == earlier).all():
        return "short_history"
    test = scipy.stats.ttest_rel(later, earlier)
    return "short_history" if test.pvalue >= 0.001 else "low" if test.statistic < 0 else "high"


def judge_by_definition(nights: list[np.ndarray], flagged: Collection[str] = ("low",)) -> list[str]:
    """Judge nights one after another: changes to the sides `flagged` are flags, until a night is as before them."""
    statuses, flags = ["short_history"], []
    for at in range(1, len(nights)):
        status = change = judge(nights[at], nights[at - 1])
        opposite = [number for number, (side, _) in enumerate(flags) if side == OPPOSITE.get(change)]
        recovered = [*opposite[-1:]]
        if recovered and judge(nights[at], nights[flags[recovered[0]][1]]) != "short_history":
            recovered = []
        if recovered:
            status = "recovered"
            del flags[recovered[0] :]
        if recovered or change == "short_history":
            is_lasting = any(judge(nights[at], nights[before]) == side for side, before in flags)
            status = "ongoing" if is_lasting else status
        if change in flagged and not recovered:
            flags.append((change, at - 1))
        statuses.append("other_direction" if status in OPPOSITE and status not in flagged else status)
    return statuses


def judge_by_package(
    nights: list[np.ndarray],
    *,
    has_errors: bool = True,
    metric: str = "ndcg",
    direction: Direction = "worse",
    segment_by: str = "",
) -> list[dict]:
    """Judge nights of which each may lack queries (nan), or a segment that has every second query."""
    every = slice(0, None, 2 if segment_by else 1)
    known = [night[every][~np.isnan(night[every])].tolist() for night in nights]
    series = {"metric": metric, "segment_by": segment_by, "segment": "even" if segment_by else ""}
    metrics = [
        {**row, "rules": "ties=expected", "n_queries": len(values)}
        | {"std_error": statistics.stdev(values) / len(values) ** 0.5 if has_errors else None}
        for row, values in zip(build_metric_rows(map(statistics.fmean, known), **series), known, strict=True)
    ]
    queries = [
        {"run_date": nth_night(at), "query_id": f"q{number}", "k": 10, parse_metric(metric)[0].column: value}
        | {"place": ("even", "odd")[number % 2]}
        for at, night in enumerate(nights)
        for number, value in enumerate(night.tolist())
        if not np.isnan(value)
    ]
    rows = read_metric_rows(open_memory_table(pa.Table.from_pylist(metrics), "metrics"))
    per_query = open_memory_table(pa.Table.from_pylist(queries), "queries")
    settings = FlagSettings(direction=direction)
    flags = judge_nights(rows, settings, per_query=per_query, query=["query_id"]).to_pylist()
    return sorted(flags, key=lambda row: row["night"])


SIDES = {"worse": ("low",), "low": ("low",), "high": ("high",), "both": ("low", "high")}
"""Sides that are flagged, of a metric of which larger is better."""
CASES = [
    *(("ndcg", direction, sides) for direction, sides in SIDES.items()),
    ("ils(by=categories)", "worse", ("high",)),
    ("tied_share", "worse", ("low", "high")),
]


@pytest.mark.parametrize("segment_by", ["", "place"])
@pytest.mark.parametrize(("metric", "direction", "flagged"), CASES)
def test_flags_last_by_the_pairs_of_every_two_nights(metric, direction, flagged, segment_by):
    """Whether a night was flagged is decided by its own pairs, however much other nights vary."""
    seen = set()
    for seed in range(25 if metric == "ndcg" and direction == "worse" else 10):
        nights = build_nights(seed)
        expected = judge_by_definition([night[:: 2 if segment_by else 1] for night in nights], flagged)
        rows = judge_by_package(nights, metric=metric, direction=direction, segment_by=segment_by)
        assert [row["status"] for row in rows] == expected, seed
        seen.update(expected)
    assert {"short_history", *flagged, "ongoing", "recovered"} <= seen


def build_change(size: float, spread: float) -> np.ndarray:
    noise = np.random.default_rng(5).standard_normal(N_QUERIES)
    return size + spread * (noise - noise.mean()) / noise.std()


LOST = 0.6 * (np.arange(N_QUERIES) < 18)
"""A third of the queries, which fall a lot."""


@pytest.mark.parametrize(
    ("changes", "statuses"),
    [
        # A change within its limit is not a flag, though the next night hardly varies.
        ([build_change(-0.01, 0.05), build_change(-0.0001, 0.0005)], ["short_history", "short_history"]),
        ([build_change(-0.01, 0.05), build_change(0.01, 0.0005)], ["short_history", "other_direction"]),
        # A flag lasts, though the next night is the same, or hardly varies.
        ([build_change(-0.03, 0.05), build_change(0.0, 0.0)], ["low", "ongoing"]),
        ([build_change(-0.03, 0.05), build_change(-0.0001, 0.0005)], ["low", "ongoing"]),
        # It lasts when a second one is over that hid it.
        ([build_change(-0.03, 0.05), -LOST, LOST], ["low", "low", "ongoing"]),
    ],
)
def test_a_quiet_night_does_not_judge_the_night_before(changes, statuses):
    first = np.random.default_rng(0).uniform(0.2, 0.9, N_QUERIES)
    nights = [np.round(night, 9) for night in (first, *(first + change for change in np.cumsum(changes, axis=0)))]
    rows = judge_by_package(nights)
    assert [row["status"] for row in rows] == ["short_history", *statuses]
    if statuses[-1] == "ongoing":
        expected = scipy.stats.ttest_rel(nights[-1], nights[0])
        assert (rows[-1]["z"], rows[-1]["weekday"]) == (pytest.approx(expected.statistic, rel=1e-9), "before_flag")


def read_statuses(nights: list[np.ndarray], **options: bool) -> list[str]:
    return [row["status"] for row in judge_by_package(nights, **options)]


def test_a_flag_lasts_though_the_mean_rose_as_other_queries_came():
    """The same queries fell on the second night; on the fourth they rise a little, still below the first."""
    first = np.append(np.random.default_rng(0).uniform(0.2, 0.7, N_QUERIES), [np.nan] * 20)
    fell = first - 0.05 + np.linspace(-0.01, 0.01, N_QUERIES + 20)
    fell[N_QUERIES:] = 0.9
    nights = [first, fell, fell + np.linspace(-1e-4, 1e-4, N_QUERIES + 20), fell + 0.02]
    assert np.nanmean(nights[1]) > np.nanmean(nights[0])
    assert read_statuses(nights) == ["short_history", "low", "ongoing", "other_direction"]


def test_what_cannot_be_compared_has_not_recovered():
    """A third of the queries is new each night, so that the first night and the third share too few."""
    numbers = np.random.default_rng(3)
    nights = []
    for at, level in enumerate((0.6, 0.3, 0.4)):
        night = np.full(100, np.nan)
        night[20 * at : 20 * at + 50] = level + 0.01 * numbers.standard_normal(50)
        nights.append(night)
    assert read_statuses(nights, has_errors=False) == ["short_history", "low", "other_direction"]


@pytest.mark.parametrize("has_errors", [True, False])
def test_a_night_that_repeats_a_flagged_one_is_ongoing(has_errors):
    first = np.random.default_rng(0).uniform(0.2, 0.7, N_QUERIES)
    fell = first + build_change(-0.05, 0.01)
    assert read_statuses([first, fell, fell], has_errors=has_errors) == ["short_history", "low", "ongoing"]
