"""Nights against their history: which nights are history, limits, words."""

from __future__ import annotations

import re
import statistics
from datetime import date, datetime, timedelta

import pyarrow as pa
import pytest
import scipy.stats
from support.expectations import collect_refusal
from support.nights import METRIC_COLUMNS, build_metric_rows, nth_night

from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, NdcgSparkError
from ndcg_spark.history import FlagSettings, flag_changes
from ndcg_spark.history.causes import group_by_cause
from ndcg_spark.history.frames import judge_nights
from ndcg_spark.history.tasks import judging
from ndcg_spark.history.tasks.judging import EPOCH

BOTH = FlagSettings(direction="both")
USUAL = [0.4420, 0.4431, 0.4409, 0.4415, 0.4442, 0.4398, 0.4426, 0.4411, 0.4437, 0.4404, 0.4423, 0.4418]


def weekly(values, **changed):
    """One row per week, all on the weekday of the first night, a Thursday."""
    rows = build_metric_rows(values, **changed)
    return [row | {"run_date": nth_night(7 * at)} for at, row in enumerate(rows)]


def days(night):
    return (night - EPOCH).days


def judged(rows, settings=BOTH, columns=judging.FLAG_COLUMNS):
    """Rows of the worker, of series put together as by Spark: with the nights of their run and of the table."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in judging.SERIES), []).append(row)
    series = []
    for key, group in groups.items():
        known = dict(zip(judging.SERIES, key, strict=True))
        of_run = [row for row in rows if all(row[name] == known[name] for name in ("run", "metric", "k"))]
        numbers = ("value", "std_error", "config_hash", "n_queries", "n_missing", "rules")
        known["nights"] = [
            {"day": days(row["run_date"]), **{name: row.get(name) for name in numbers}} for row in group
        ]
        latest = date.min if settings.start is None else settings.start - timedelta(days=judging.LATEST_DAYS)
        sets = {(row["run_date"], row["config_hash"], row.get("rules"), row["segment_by"]) for row in of_run}
        known["run_nights"] = [
            {"day": days(run_date), "config_hash": config_hash, "rules": rules, "segment_by": segment_by}
            for run_date, config_hash, rules, segment_by in sets
            if run_date >= latest
        ]
        known["run_counts"] = [
            {"day": days(row["run_date"]), **{name: row.get(name) for name in ("n_queries", "n_missing", "rules")}}
            for row in of_run
            if not row["segment_by"]
        ]
        known["table_nights"] = None if known["segment_by"] else sorted({days(row["run_date"]) for row in rows})
        series.append(known)
    (batch,) = judging.flag_nights(iter([pa.RecordBatch.from_pylist(series)]), settings, columns)
    return batch.to_pylist()


def flags(rows, settings=BOTH):
    """Rows by night."""
    actual = judged(rows, settings)
    by_night = {row["night"]: row for row in actual}
    assert len(by_night) == len(actual)
    return by_night


def flags_of_pairs(rows, settings=BOTH, **pairs):
    """Rows by night, the last one with what its pairs showed; all pairs of earlier nights have the same error."""
    actual = judged(rows, settings, columns=judging.TO_PAIR_COLUMNS)
    last = max(row["night"] for row in actual)
    values = {row["night"]: row["value"] for row in actual}
    group = {"n_queries": 12, "n_only_run": 0, "n_only_baseline": 0, "df": 11.0, **pairs}
    batch = pa.RecordBatch.from_pylist([row | {"paired": group if row["night"] == last else None} for row in actual])
    (batch,) = judging.request_pairs(iter([batch]))
    nights = []
    for row in batch.to_pylist():
        if row["later"] is None:
            nights.append(row | {"of_flags": []})
        else:
            difference = values[row["later"]] - values[row["earlier"]]
            nights[-1]["of_flags"].append({**row, "paired": group | {"difference": difference}})
    (batch,) = judging.flag_pairs(iter([pa.RecordBatch.from_pylist(nights)]), settings)
    return {row["night"]: row for row in batch.to_pylist()}


def test_a_drop_after_twelve_weeks():
    """An independent script gives the numbers; the limit for 12 nights is 4.5."""
    row = flags(weekly([*USUAL, 0.4312]))[nth_night(84)]
    numbers = [row[name] for name in ("median", "spread", "z")]
    assert numbers == pytest.approx([0.441900000000, 0.001334341997, -7.133333333333], abs=1e-12)
    assert [row[name] for name in ("status", "n_nights", "weekday", "limit")] == ["low", 12, "Thursday", 4.5]
    assert row["rule"] == (
        "ndcg@10 of overall is 0.431200 on 2026-03-26, below the median 0.441900 of 12 earlier Thursdays "
        "(7.13 standard errors of 0.001500; limit 4.5); lower is worse"
    )


@pytest.mark.parametrize(
    ("n", "limit"), [(8, 5.9), (9, 5.9), (10, 5.0), (12, 4.5), (15, 4.5), (16, 3.9), (26, 3.3), (51, 3.3), (52, 2.9)]
)
def test_the_limit_depends_on_the_nights_of_history(n, limit):
    values = [0.5 + 0.001 * (at % 3 - 1) for at in range(n)]
    settings = FlagSettings(start=nth_night(7 * n), direction="both")
    row = flags(weekly([*values, 0.5 + 0.0015 * limit + 1e-9]), settings)[nth_night(7 * n)]
    assert (row["limit"], row["n_nights"], row["status"]) == (limit, n, "high")  # the standard error is 0.0015
    below = flags(weekly([*values, 0.5 + 0.0015 * limit - 1e-6]))[nth_night(7 * n)]
    assert below["status"] == "usual"


def test_a_short_history_is_held_against_the_night_before():
    """Errors of .0015 make .0021213203 of the difference; 3.2905 of these, the quantile of .9995, are .0069803."""
    actual = flags(weekly([0.4070, 0.4001, 0.4070, 0.4]))
    statuses = [actual[nth_night(7 * at)]["status"] for at in range(4)]
    assert statuses == ["short_history", "short_history", "short_history", "low"]
    assert actual[nth_night(0)]["rule"] == (
        "ndcg@10 of overall: 0 earlier nights are too few to judge 2026-01-01 by history, 28 are needed"
    )
    last = actual[nth_night(21)]
    assert (last["weekday"], last["n_nights"], last["median"]) == ("before", 3, 0.4070)
    assert (last["z"], last["limit"]) == (pytest.approx(-3.29983, abs=1e-5), pytest.approx(3.290527, abs=1e-6))
    assert last["rule"] == (
        "ndcg@10 of overall is 0.400000 on 2026-01-22 and was 0.407000 on 2026-01-15 (3.30 "
        "standard errors of 0.002121; limit 3.29, level 0.001); lower is worse; 3 earlier nights are too few to "
        "judge 2026-01-22 by history, 28 are needed"
    )
    without = flags(weekly([0.4, 0.9], std_error=None))
    assert {row["status"] for row in without.values()} == {"short_history"}


def test_a_night_with_at_most_half_of_the_queries_is_passed_over():
    """Its mean is as before the fall, by chance; the fall lasts."""
    rows = build_metric_rows([0.90, 0.85, 0.90, 0.85], std_error=0.002, n_queries=500)
    for n_queries, status, day in ((250, "ongoing", 0), (251, "low", 2), (None, "low", 2)):
        rows[2]["n_queries"] = n_queries
        last = flags(rows)[nth_night(3)]
        assert (last["status"], last["median"], last["reference_night"]) == (status, 0.90, nth_night(day))
        assert str(nth_night(day)) in last["rule"]
    only = [row | {"n_queries": n} for row, n in zip(rows[1:3], (10, 500), strict=True)]
    assert flags(only)[nth_night(2)]["status"] == "high"


def test_any_change_counts_where_no_query_differs_from_another():
    """From 1 to 0 for every query: the standard errors are 0, which is not the same as unknown."""
    actual = flags(weekly([1.0, 0.0, 0.0], std_error=0.0))
    assert [actual[nth_night(7 * at)]["status"] for at in range(3)] == ["short_history", "low", "ongoing"]
    fallen = actual[nth_night(7)]
    assert (fallen["z"], fallen["weekday"], fallen["spread"]) == (None, "before", 0.0)
    assert fallen["rule"] == (
        "ndcg@10 of overall is 0.000000 on 2026-01-08 and was 1.000000 on 2026-01-01 (any change "
        "counts, as no query differs on either night); lower is worse; 1 earlier nights are too few to judge "
        "2026-01-08 by history, 28 are needed"
    )
    rows = [row | {"std_error": 0.0} for row in build_metric_rows([1.0, 0.5])]
    row = flags_of_pairs(rows, difference=-0.5, std_error=0.0)[nth_night(1)]
    assert (row["status"], row["weekday"], row["z"]) == ("low", "before_paired", None)
    assert "any change counts, as all of these changed alike" in row["rule"]


def test_nights_of_all_weekdays_serve_until_there_are_eight_of_one():
    actual = flags(build_metric_rows([0.4 + 0.001 * (at % 3) for at in range(60)]))
    statuses = [actual[nth_night(at)]["status"] for at in range(60)]
    assert statuses == ["short_history"] * 28 + ["usual"] * 32
    assert [(actual[nth_night(at)]["weekday"], actual[nth_night(at)]["n_nights"]) for at in (28, 55, 56)] == [
        ("any", 28),
        ("any", 55),
        ("Thursday", 8),
    ]
    assert actual[nth_night(28)]["limit"] == 3.3


def test_without_spread_any_change_is_flagged():
    actual = flags(weekly([0.4] * 9 + [0.4, 0.40001], std_error=None))
    assert (actual[nth_night(63)]["status"], actual[nth_night(63)]["z"]) == ("usual", 0.0)
    last = actual[nth_night(70)]
    assert (last["status"], last["z"], last["spread"]) == ("high", None, 0.0)
    assert "any change counts" in last["rule"]


def test_history_is_of_one_configuration_and_series():
    rows = [*weekly([0.9] * 10, config_hash="old")[:5], *weekly([0.4] * 14)[5:], *weekly([0.4] * 9, metric="p")]
    last = max((row for row in judged(rows) if row["metric"] == "ndcg"), key=lambda row: row["night"])
    assert (last["n_nights"], last["status"], last["median"]) == (8, "usual", 0.4)


def test_nights_without_a_value_are_no_history():
    actual = flags(weekly([*USUAL[:5], None, *USUAL[5:8], 0.4312]))
    assert (actual[nth_night(35)]["status"], actual[nth_night(63)]["n_nights"]) == ("missing", 8)
    first = flags(weekly([None, 0.4]))[nth_night(0)]
    assert (first["status"], first["rule"]) == ("no_value", "ndcg@10 of overall has no value on 2026-01-01")


def test_which_nights_are_judged_and_looked_back_on():
    settings = FlagSettings(start=nth_night(77), end=nth_night(84), lookback=63)
    actual = flags(weekly([0.9, 0.9, 0.9, *USUAL, 0.4]), settings)
    assert sorted(actual) == [nth_night(77), nth_night(84)]
    assert {row["n_nights"] for row in actual.values()} == {9}
    assert actual[nth_night(84)]["median"] < 0.5


def test_a_night_twice_is_refused():
    with pytest.raises(InputRefusedError, match="has two rows for the night 2026-01-01"):
        judged([*weekly(USUAL), *weekly(USUAL[:1])])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"limits": ()}, "limits"),
        ({"limits": ((10, 5.0), (8, 6.0))}, "increasing numbers"),
        ({"limits": ((8, 0.0),)}, "the limit for 8 nights must be above 0"),
        ({"lookback": 0}, "lookback"),
        ({"fewest_any_day": 1}, "fewest_any_day"),
        ({"start": nth_night(1), "end": nth_night(1) - timedelta(days=1)}, "is after the last"),
        ({"start": "2026-01-02"}, "must be a datetime.date; got '2026-01-02'"),
        ({"end": datetime(2026, 1, 2)}, "must be a datetime.date; got datetime.datetime"),
    ],
)
def test_options_out_of_range(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        FlagSettings(**options)


# ------------------------------------------------------------------------------------------- what is missing


def missing(rows, settings=BOTH):
    """Rules of what is missing, by night and segment."""
    listed = [row for row in judged(rows, settings) if row["status"] == "missing"]
    return {(row["night"], row["run"], row["segment"]): row["rule"] for row in listed}


def of_segment(n_queries, nights, **changed):
    rows = build_metric_rows([0.5] * nights, segment_by="country", segment="US", n_queries=n_queries, **changed)
    return [*rows, *build_metric_rows([0.4] * 10, n_queries=100, **changed)]


@pytest.mark.parametrize(
    ("n_queries", "nights", "message"),
    [
        (7, 9, True),  # 49 queries in 7 nights: (7 / 8) ** 49 = 0.0014
        (5, 9, True),  # (7 / 8) ** 35 = 0.0093
        (4, 9, False),  # (7 / 8) ** 28 = 0.0238
        (18, 5, True),  # there until four nights ago: 3 of the latest 7 nights, (7 / 8) ** 54 = 0.0007
        (100, 2, False),  # not on any of the latest 7 nights
    ],
)
def test_a_segment_without_queries_is_missing_if_chance_does_not_explain_it(n_queries, nights, message):
    actual = missing(of_segment(n_queries, nights), FlagSettings(start=nth_night(9)))
    assert set(actual) == ({(nth_night(9), "", "US")} if message else set())
    if (n_queries, nights) == (7, 9):
        assert list(actual.values()) == [
            "ndcg@10 of country=US has no value on 2026-01-10; its last was 0.500000 over 7 queries on 2026-01-09"
        ]


def test_a_segment_of_another_configuration_is_not_missing():
    rows = of_segment(50, 9)
    assert list(missing(rows)) == [(nth_night(9), "", "US")]
    rows[-1] = rows[-1] | {"config_hash": "c2"}  # the last night of all queries
    assert missing(rows) == {}


@pytest.mark.parametrize(
    ("rules", "other_segments", "is_missing"),
    [
        ("gain=linear;ties=expected", "country", True),  # such as `on-invalid` alone was changed
        ("gain=linear;ties=worst", "country", False),
        ("gain=linear;ties=expected", "device", False),  # another column was asked for
        ("gain=linear;ties=expected", None, False),  # none was
        (None, "country", False),  # unknown rules: only `config_hash` can say that nights are alike
    ],
)
def test_a_segment_is_missing_by_rules_where_only_config_hash_differs(rules, other_segments, is_missing):
    rows = [row | {"rules": "gain=linear;ties=expected"} for row in of_segment(50, 9)]
    changed = {"config_hash": "c2", "rules": rules}
    rows[-1] = rows[-1] | changed
    if other_segments is not None:
        rows.append(rows[0] | changed | {"run_date": nth_night(9), "segment_by": other_segments, "segment": "DE"})
    assert list(missing(rows)) == ([(nth_night(9), "", "US")] if is_missing else [])


def test_a_run_without_rows_is_missing_once_for_seven_nights():
    """Run b has two nights of ten, at first with a segment; of run c, the eighth night has no query."""
    rows = [*build_metric_rows([0.4] * 10, run="a", n_queries=1), *build_metric_rows([0.3] * 2, run="b", n_queries=1)]
    rows += build_metric_rows([0.3] * 2, run="b", n_queries=900, segment_by="country", segment="US")
    rows += build_metric_rows([*[0.2] * 7, None, 0.2, 0.2], run="c", n_queries=1)
    actual = missing(rows)
    assert set(actual) == {*((nth_night(at), "b", "") for at in range(2, 9)), (nth_night(7), "c", "")}
    assert actual[nth_night(8), "b", ""] == (
        "ndcg@10 of run 'b', overall has no value on 2026-01-09; its last was 0.300000 over 1 query on 2026-01-02"
    )
    # Nor does another configuration explain that a run has no query.
    changed = [row | {"config_hash": "c2"} if row["run_date"] >= nth_night(7) else row for row in rows]
    assert missing(changed)[nth_night(7), "c", ""] == actual[nth_night(7), "c", ""]
    # A night that no run has is none of the table.
    later = [row for row in rows if row["run_date"] != nth_night(3)]
    assert (nth_night(3), "b", "") not in missing(later)


# ---------------------------------------------------------------------------------------------- few queries


@pytest.mark.parametrize(
    ("n_queries", "flagged"),
    [
        ([800, 400, 800], {1}),  # half is few
        ([800, 401, 800], set()),
        ([800, 300, 300, 800], {1}),  # told once: the night before has as few
        ([800, 800, 0, 300, 800], {3}),  # a night without queries says nothing of what is usual
        ([800, None, 300, 800], {2}),
        ([300, 800, 800, 800, 800, 800, 800, 300], set()),  # as few as a week before
        ([300, 800, 800, 800, 800, 800, 800, 150], {7}),
        ([*[1000] * 5, 400, 400] * 2 + [400] * 3, {5, 14}),  # a Monday with as few as on a usual Sunday, told once
        ([*[1000] * 5, 400, 400] * 3, {5}),  # weekends, told in the first week
        ([800, 100, 300], {1, 2}),  # the thin night is passed over
        ([100, 800, 400], {2}),
    ],
)
def test_a_night_with_at_most_half_of_its_queries_is_flagged(n_queries, flagged):
    rows = build_metric_rows([0.4 if n != 0 else None for n in n_queries], run="a")
    rows = [row | {"n_queries": n} for row, n in zip(rows, n_queries, strict=True)]
    segment = [row | {"segment_by": "country", "segment": "US"} for row in rows]  # segments often have few
    actual = [row for row in judged([*rows, *segment]) if row["status"] == "few_queries"]
    assert {(row["night"], row["segment_by"]) for row in actual} == {(nth_night(at), "") for at in flagged}
    if n_queries == [800, 400, 800]:
        (rule,) = (row["rule"] for row in actual)
        assert rule == "ndcg@10 of run 'a', overall has 400 queries with a list in its mean on 2026-01-02, 800 before"
        (cause,) = group_by_cause(actual)
        assert cause.line == f"FLAG few queries: {rule}"


ZERO = "gain=linear;missing_query=zero"


def with_counts(values, n_queries, n_missing, **columns):
    rows = zip(build_metric_rows(values, **columns), n_queries, n_missing, strict=True)
    return [row | {"n_queries": n, "n_missing": missing} for row, n, missing in rows]


@pytest.mark.parametrize(
    ("columns", "n_queries", "n_missing", "status"),
    [
        ({"rules": ZERO}, (800, 800), (50, 425), "few_queries"),  # 375 of 750 have a list
        ({"rules": ZERO}, (800, 800), (50, 424), "short_history"),
        ({"rules": "gain=linear;missing_query=drop"}, (750, 375), (50, 425), "few_queries"),  # in no mean
        ({"rules": "gain=linear;missing_query=drop"}, (750, 400), (50, 400), "short_history"),
        ({"rules": None}, (800, 800), (50, 425), "short_history"),
        # An empty list has no diversity, so that its query is in no mean: 900 are judged.
        ({"rules": ZERO, "metric": "ild"}, (600, 320), (300, 580), "short_history"),
        # Queries of weight 0 are in no mean, but among those without a list.
        ({"rules": f"{ZERO};weight=yes"}, (100, 100), (0, 60), "short_history"),
    ],
)
def test_queries_that_count_as_0_for_want_of_a_list_are_lost(columns, n_queries, n_missing, status):
    rows = with_counts((0.4, 0.4), n_queries, n_missing, **columns)
    assert [row["status"] for row in judged(rows)] == ["short_history", status]


@pytest.mark.parametrize(
    ("n_queries", "values", "medians"),
    [
        ([800, 300, 800], [0.9, 0.2, 0.7], [None, 0.9, 0.9]),
        ([800, 400, 800], [0.9, 0.2, 0.7], [None, 0.9, 0.9]),  # half is few
        ([800, 390, 760], [0.9, 0.2, 0.7], [None, 0.9, 0.9]),  # few beside the night before, not beside the later one
        ([800, 390, 390, 760], [0.9, 0.2, 0.3, 0.7], [None, 0.9, 0.2, 0.3]),  # a loss that lasts is one night
        ([800, 0, 800], [0.9, 0.0, 0.7], [None, 0.9, 0.9]),
        ([300, 800], [0.9, 0.7], [None, 0.9]),  # the only one
    ],
)
def test_nights_that_lost_queries_are_passed_over(n_queries, values, medians):
    rows = with_counts(values, [800] * len(values), [800 - n for n in n_queries], rules=ZERO)
    assert [row["median"] for row in judged(rows)] == medians


@pytest.mark.parametrize("n_segment", [72, 35])
@pytest.mark.parametrize(("n_saturday", "reference"), [(429, 1), (327, 0)])
def test_segments_are_compared_with_the_nights_of_their_run(n_segment, n_saturday, reference):
    """A segment may have half as many queries on a Saturday; its run has not lost any by that."""
    n_queries = [686, n_saturday, 690]
    rows = [row | {"n_queries": n} for row, n in zip(build_metric_rows([0.8, 0.8, 0.8]), n_queries, strict=True)]
    segment = build_metric_rows([0.8, 0.8, 0.6], segment_by="market", segment="fi", std_error=0.01)
    segment = [row | {"n_queries": n} for row, n in zip(segment, (72, n_segment, 70), strict=True)]
    last = [row for row in judged([*rows, *segment]) if row["night"] == nth_night(2)]
    assert [row["reference_night"] for row in last] == [nth_night(reference)] * 2
    assert [row["status"] for row in last] == ["short_history", "low"]


@pytest.mark.parametrize("start", [None, nth_night(42)])
def test_what_a_run_lost_long_ago_is_known(start):
    """A week after a broken delivery; the first night that is judged is 35 days later."""
    rows = [row | {"n_queries": n} for row, n in zip(weekly([0.8] * 7), [1000, 100, *[1000] * 5], strict=True)]
    segment = weekly([0.8, 0.95, *[0.8] * 5], segment_by="market", segment="fi", std_error=0.01, n_queries=100)
    settings = FlagSettings(start=start, direction="both")
    last = [row for row in judged([*rows, *segment], settings) if row["night"] == nth_night(42)]
    assert [row["status"] for row in last] == ["short_history"] * 2


@pytest.mark.parametrize(
    ("values", "statuses"),
    [
        ([0.8, 0.8, 0.6, 0.6], ["short_history", "short_history", "low", "ongoing"]),
        ([0.8, 0.5, 0.8, 0.8], ["short_history", "low", "short_history", "short_history"]),
    ],
)
def test_nights_on_which_a_segment_alone_lost_queries_are_passed_over(values, statuses):
    """5 of its 500 queries have an error of 0.05; its run has 505 of 1,000."""
    rows = [
        row | {"n_queries": n} for row, n in zip(build_metric_rows([0.8] * 4), [1000, 505, 1000, 1000], strict=True)
    ]
    segment = build_metric_rows(values, segment_by="market", segment="fi")
    segment = [
        row | {"n_queries": n, "std_error": error}
        for row, n, error in zip(segment, (500, 5, 500, 500), (0.01, 0.05, 0.01, 0.01), strict=True)
    ]
    assert [row["status"] for row in judged([*rows, *segment]) if row["segment_by"]] == statuses


def test_a_run_that_has_no_lists_any_more_is_flagged_once():
    rows = with_counts([0.4, 0.4, *[0.0] * 12], [800] * 14, [0, 0, *[800] * 12], rules=ZERO)
    assert [row["status"] for row in judged(rows)] == ["short_history"] * 2 + ["low"] + ["ongoing"] * 11
    counted = [row | {"value": 0.4} for row in rows]
    assert [row["status"] for row in judged(counted)].count("few_queries") == 1


def test_a_value_beyond_the_limit_says_more_than_few_queries():
    rows = with_counts([0.4, 0.3], [800, 300], [0, 0])
    assert [row["status"] for row in judged(rows)] == ["short_history", "low"]
    rose = [row | {"value": value} for row, value in zip(rows, (0.4, 0.5), strict=True)]
    assert [row["status"] for row in judged(rose, FlagSettings(direction="worse"))] == [
        "short_history",
        "few_queries",
    ]


def test_nights_of_other_rules_do_not_say_how_many_queries_are_usual():
    rows = with_counts([0.4, 0.4], [800, 300], [0, 0])
    assert [row["status"] for row in judged(rows)] == ["short_history", "few_queries"]
    rows[1] |= {"config_hash": "c2"}
    assert [row["status"] for row in judged(rows)] == ["short_history", "short_history"]


def test_queries_that_no_run_has_a_list_of_are_not_missed():
    """Their segment is unknown; other queries of an unknown segment are missed as those of any other."""
    for n_missing, is_missed in ((50, False), (0, True)):
        rows = of_segment(50, 9, rules=ZERO, n_missing=n_missing)
        rows = [row | {"segment": None} if row["segment_by"] else row | {"n_missing": 0} for row in rows]
        listed = [row for row in judged(rows) if row["status"] == "missing"]
        assert [row["segment_by"] for row in listed] == ["country"] * is_missed


# -------------------------------------------------------------------------------------------------- on Spark


@pytest.mark.parametrize(
    "settings", [FlagSettings(), FlagSettings(start=nth_night(8), end=nth_night(84), lookback=40)]
)
def test_spark_judges_the_same_in_any_order_and_of_texts(spark, settings):
    """A flag, segments and runs that are missing, several configurations and metrics, nulls."""
    rows = [row | {"n_queries": 100} for row in weekly([*USUAL, 0.4312, None])]
    rows += [row | {"n_queries": 30} for row in weekly([*USUAL, 0.4412], metric="p", k=None, std_error=None)]
    rows += of_segment(50, 9, run="b")
    rows += build_metric_rows([0.3] * 2, run="c", n_queries=1)
    rows += build_metric_rows([0.3] * 9, run="b", segment_by="country", segment=None, n_queries=40, config_hash="c2")
    rows += [row | {"rules": "ties=expected"} for row in of_segment(50, 9, run="d")]
    rows[-1] = rows[-1] | {"config_hash": "c2"}
    rows.append(rows[-1] | {"segment_by": "country", "segment": "DE"})
    rows = [{"rules": None, **row} for row in rows]
    expected = {tuple(row.values()) for row in judged(rows, settings)}
    assert {"low", "missing"} < {row[list(judging.FLAG_COLUMNS).index("status")] for row in expected}
    frame = spark.createDataFrame(rows, f"rules string, {METRIC_COLUMNS}, n_queries bigint")
    text = mark_text_table(frame.select([frame[name].cast("string") for name in frame.columns]))
    for table in (frame.orderBy("value").repartition(5), text):
        actual = judge_nights(table, settings).collect()
        assert len(actual) == len(expected)
        assert set(map(tuple, actual)) == expected
    twice = flag_changes(frame.union(frame.limit(1)))
    assert "has two rows for the night 2026-01-01" in collect_refusal(twice)


# ---------------------------------------------------------------------------------- nights that are paired

BEFORE = [0.50, 0.30, 0.80, 0.00, 0.62, 0.91, 0.45, 0.70, 0.25, 0.55, 1.00, 0.40]
AFTER = [0.47, 0.26, 0.77, 0.00, 0.58, 0.87, 0.42, 0.66, 0.23, 0.51, 0.96, 0.38]
"""Each query lost a little; the means, .54 and .5092, lie far within the spread of queries."""
QUERY_COLUMNS = "run_date date, query_id string, k int, ndcg double"


def queries(at, values, first=0):
    return [(nth_night(at), f"q{first + number}", 10, value) for number, value in enumerate(values)]


def two_nights(**changed):
    """Means and standard errors of the two lists."""
    means = [statistics.fmean(BEFORE), statistics.fmean(AFTER)]
    errors = [statistics.stdev(group) / len(group) ** 0.5 for group in (BEFORE, AFTER)]
    return [
        row | {"std_error": error} for row, error in zip(build_metric_rows(means, **changed), errors, strict=True)
    ]


def paired_flags(spark, rows, per_query, columns=QUERY_COLUMNS, **options):
    table = per_query if hasattr(per_query, "schema") else spark.createDataFrame(per_query, columns)
    return flag_changes(spark.createDataFrame(rows, METRIC_COLUMNS), per_query=table, **options).collect()


def test_a_night_is_paired_with_the_night_before(spark):
    """Means and errors of these nights show nothing; scipy's test of the pairs does."""
    rows = two_nights()
    without = flags(rows)[nth_night(1)]
    assert (without["status"], round(without["z"], 2)) == ("short_history", -0.27)
    only = [*queries(0, [0.9], first=50), *queries(1, [0.1, 0.2], first=60)]
    actual = paired_flags(spark, rows, [*queries(0, BEFORE), *queries(1, AFTER), *only])
    first, row = sorted(actual, key=lambda row: row["night"])
    assert (first["status"], first["weekday"]) == ("short_history", "any")
    expected = scipy.stats.ttest_rel(AFTER, BEFORE)
    assert expected.pvalue < 0.001
    assert row["z"] == pytest.approx(expected.statistic, rel=1e-12)
    assert row["limit"] == pytest.approx(scipy.stats.t.ppf(0.9995, 11), rel=1e-12)
    differences = [y - x for x, y in zip(BEFORE, AFTER, strict=True)]
    assert row["spread"] == pytest.approx(statistics.stdev(differences) / 12**0.5, rel=1e-12)
    assert (row["status"], row["weekday"], row["n_nights"]) == ("low", "before_paired", 1)
    assert row["rule"] == (
        "ndcg@10 of overall is 0.509167 on 2026-01-02 and was 0.540000 on 2026-01-01; the 12 "
        "queries of both nights changed by -0.030833, without 2 that only 2026-01-02 has and 1 that only "
        f"2026-01-01 has ({-expected.statistic:.2f} standard errors of {row['spread']:.6f}; limit 4.44, "
        "level 0.001); lower is worse; 1 earlier nights are too few to judge 2026-01-02 by history, 28 are needed"
    )


def test_pairs_that_did_not_change_leave_the_night_to_the_means():
    """All queries but two came and went with the nights, and the mean fell; the two say nothing of that."""
    rows = [row | {"std_error": 0.03} for row in build_metric_rows([0.87, 0.2])]
    others = {"n_only_run": 2, "n_only_baseline": 1}
    actual = flags_of_pairs(rows, n_queries=2, difference=0.0, std_error=0.0, df=1.0, **others)[nth_night(1)]
    assert (actual["status"], actual["weekday"]) == ("low", "before")
    assert actual == flags(rows)[nth_night(1)]
    # If both rise alike, that is a change, whatever the others do.
    actual = flags_of_pairs(rows, n_queries=2, difference=0.25, std_error=0.0, df=1.0)[nth_night(1)]
    assert (actual["status"], actual["weekday"]) == ("high", "before_paired")


def test_few_pairs_do_not_stand_for_a_night():
    """14 of 180 queries return, nearly unchanged; the mean of the others fell. A night before was a little lower."""
    rows = [row | {"std_error": 0.009} for row in build_metric_rows([0.978, 0.975, 0.977, 0.839])]
    few = {"n_queries": 14, "n_only_run": 166, "n_only_baseline": 166, "df": 13.0}
    actual = flags_of_pairs(rows, difference=0.0001, std_error=0.00016, **few)
    assert actual == flags(rows)
    assert [row["status"] for row in actual.values()] == ["short_history"] * 3 + ["low"]
    half = few | {"n_only_run": 14, "n_only_baseline": 13}
    assert flags_of_pairs(rows, difference=-0.1, std_error=0.001, **half)[nth_night(3)]["weekday"] == "before_paired"
    half["n_only_run"] = 15
    assert flags_of_pairs(rows, difference=-0.1, std_error=0.001, **half)[nth_night(3)]["weekday"] == "before"


def test_pairs_need_no_standard_errors_of_the_nights():
    rows = [row | {"std_error": None} for row in two_nights()]
    for n_only in (0, 3):
        actual = flags_of_pairs(rows, difference=-0.03, std_error=0.005, n_only_run=n_only).values()
        assert sorted(row["status"] for row in actual) == ["low", "short_history"]


def test_pairs_are_of_the_latest_earlier_night_and_of_one_run_and_configuration(spark):
    """Night 1 has no value, so night 2 is paired with night 0; run 'b' and other configurations are others' rows."""
    rows = [*two_nights(run="a"), *two_nights(run="b")]
    rows[1]["run_date"] = nth_night(2)
    rows.append(rows[0] | {"run_date": nth_night(1), "value": None})
    table = [
        *[("a", "c1", *element) for element in (*queries(0, BEFORE), *queries(1, AFTER[::-1]), *queries(2, AFTER))],
        *[("a", "c0", *query) for query in queries(0, AFTER)],
        *[("b", "c1", *query) for query in queries(1, AFTER)],
    ]
    actual = paired_flags(spark, rows, table, f"run string, config_hash string, {QUERY_COLUMNS}")
    by_key = {(row["run"], row["night"]): row for row in actual}
    assert by_key["a", nth_night(1)]["status"] == "missing"
    assert by_key["a", nth_night(2)]["z"] == pytest.approx(scipy.stats.ttest_rel(AFTER, BEFORE).statistic, rel=1e-12)
    assert by_key["b", nth_night(1)]["weekday"] == "before"  # the table lacks its night before
    alone = paired_flags(spark, rows[:2], [*queries(0, BEFORE)], QUERY_COLUMNS)
    assert {row["weekday"] for row in alone} == {"any", "before"}


def test_pairs_in_segments_with_weights_that_change(spark):
    """Keys of two columns. Of weights and segments of a query those of the later night count: 3 for q0, in DE."""
    shops = [None, "a"]
    table = [
        (nth_night(at), f"q{number // 2}", number % 2, 10, value, 3.0 if number == 0 and at else 1.0,
         "DE" if number < 5 else None, "FR" if number == 0 and not at else "DE" if number < 5 else None,
         shops[number % 2])
        for at, values in enumerate((BEFORE, AFTER))
        for number, value in enumerate(values)
    ]  # fmt: skip
    columns = (
        "run_date date, query_id string, page int, k int, ndcg double, weight double, fixed string, country string"
    )
    sets = [
        ("", ""),
        ("country", "DE"),
        ("country", None),
        ("fixed+shop", '["DE","a"]'),
        ("fixed+shop", "[null,null]"),
    ]
    rows = [row for by, group in sets for row in two_nights(segment_by=by, segment=group)]
    rows += two_nights(segment_by="device", segment="tv")
    actual = paired_flags(spark, rows, table, f"{columns}, shop string", query=["query_id", "page"])
    got = {(row["segment_by"], row["segment"]): row for row in actual if row["night"] == nth_night(1)}
    differences = [y - x for x, y in zip(BEFORE, AFTER, strict=True)]
    groups = {
        sets[0]: range(12), sets[1]: range(5), sets[2]: range(5, 12), sets[3]: [1, 3], sets[4]: [6, 8, 10],
    }  # fmt: skip
    for key, numbers in groups.items():
        group = [(3.0 if number == 0 else 1.0, differences[number]) for number in numbers]
        total = sum(w for w, _ in group)
        mean = sum(w * d for w, d in group) / total
        error = (len(group) / (len(group) - 1) * sum(w * w * (d - mean) ** 2 for w, d in group)) ** 0.5 / total
        assert (got[key]["spread"], got[key]["z"]) == pytest.approx((error, mean / error), rel=1e-11), key
        assert got[key]["weekday"] == "before_paired"
    assert got["device", "tv"]["weekday"] == "before"  # the per-query table has no such column


def test_per_query_tables_that_cannot_pair(spark):
    good = [*queries(0, BEFORE), *queries(1, AFTER)]
    twice = flag_changes(
        spark.createDataFrame(two_nights(), METRIC_COLUMNS),
        per_query=spark.createDataFrame([*good, *queries(1, AFTER)], QUERY_COLUMNS),
    )
    message = collect_refusal(twice)
    assert "appears twice in run 'the night' at k=10" in message
    assert "query query_id=" in message  # no column of ours beside those of the user
    for options, columns, named in (
        ({"query": "qid"}, QUERY_COLUMNS, "column 'qid'"),
        ({}, QUERY_COLUMNS.replace("run_date", "day"), "column 'run_date'"),
        ({}, QUERY_COLUMNS.replace("ndcg", "ap"), "none of the metrics to judge (ndcg)"),
    ):
        with pytest.raises(NdcgSparkError, match=re.escape(named)):
            paired_flags(spark, two_nights(), good, columns, **options)


SIDES = {"worse": ("low", "high", "both"), "low": ("low",) * 3, "high": ("high",) * 3, "both": ("both",) * 3}


@pytest.mark.parametrize("direction", SIDES)
def test_a_side_that_is_not_asked_for_is_not_flagged(direction):
    """NDCG is better where it is larger, ils where it is smaller, and tied_share has no better side."""
    for metric, side in zip(("ndcg", "ils", "tied_share"), SIDES[direction], strict=True):
        for status, value in (("low", 0.3), ("high", 0.7)):
            rows = build_metric_rows([0.5, value], metric=metric)
            row = flags(rows, FlagSettings(direction=direction))[nth_night(1)]
            assert row["status"] == (status if side in (status, "both") else "other_direction")
            assert ("not flagged, because of the direction" in row["rule"]) is (row["status"] == "other_direction")


@pytest.mark.parametrize(
    ("values", "statuses"),
    [
        ([0.6, 0.3, 0.6], "short low recovered"),
        ([0.6, 0.3, 0.3], "short low ongoing"),
        ([0.6, 0.3, 0.3, 0.3, 0.6], "short low ongoing ongoing recovered"),
        ([0.6, 0.3, 0.45, 0.45, 0.6, 0.6], "short low high ongoing recovered short"),
        ([0.6, 0.3, 0.2, 0.2, 0.3, 0.3, 0.6, 0.6], "short low low ongoing ongoing ongoing recovered short"),
        ([0.6, 0.3, 0.9], "short low high"),
        ([0.3, 0.6, 0.9], "short high high"),
        ([0.3, 0.6, 0.6, 0.3, 0.3], "short high ongoing recovered short"),
        ([0.6, 0.3, 0.6, 0.3, 0.3], "short low recovered low ongoing"),
    ],
)
def test_a_value_that_is_again_what_it_was_has_recovered(values, statuses):
    """By the errors of means, and by pairs, whose standard error stands for that of other nights, too.

    A second fall is no recovery: the night before it was one itself, and flagged nothing.
    """
    actual = flags(build_metric_rows(values))
    wanted = [part.replace("short", "short_history") for part in statuses.split()]
    assert [actual[nth_night(at)]["status"] for at in range(len(values))] == wanted
    last = len(values) - 1
    paired = flags_of_pairs(build_metric_rows(values), difference=values[-1] - values[-2], std_error=0.002)[
        nth_night(last)
    ]
    assert paired["status"] == wanted[-1]
    if wanted[-1] == "recovered":
        assert "again as on 2026-01-01 (" in actual[nth_night(last)]["rule"]
        assert [row["change_night"] for row in (actual[nth_night(last)], paired)] == [nth_night(1)] * 2
    if wanted[-1] == "ongoing":
        for row in (actual[nth_night(last)], paired):
            before = max(at for at in range(last) if values[at] == 0.6)
            assert (row["median"], row["weekday"], row["z"] < 0) == (values[before], "before_flag", True)
            assert (row["reference_night"], row["change_night"]) == (nth_night(before), nth_night(before + 1))
            assert (
                f"still different from {values[before]:.6f} on {nth_night(before)}, before it changed on "
                in row["rule"]
            )


def test_a_change_that_pairs_do_not_confirm_has_no_night():
    """By the errors of means it is ongoing; the queries changed so differently that it may be chance."""
    rows = build_metric_rows([0.6, 0.3, 0.3])
    assert flags(rows)[nth_night(2)]["change_night"] == nth_night(1)
    paired = flags_of_pairs(rows, difference=0.0, std_error=1.0)[nth_night(2)]
    assert [paired[name] for name in ("status", "median", "reference_night", "change_night")] == [
        "short_history",
        0.3,
        nth_night(1),
        None,
    ]


@pytest.mark.parametrize("metric", ["ndcg", "ils", "tied_share"])
@pytest.mark.parametrize("direction", SIDES)
def test_only_what_was_flagged_recovers(metric, direction):
    """A fall and a rise back, and a rise and a fall back, of metrics in which more is better, worse, and neither.

    What fell without a flag rises, and does not recover: it is flagged itself where that side is asked for.
    """
    side = dict(zip(("ndcg", "ils", "tied_share"), SIDES[direction], strict=True))[metric]
    for first, second, values in (("low", "high", [0.6, 0.3, 0.6]), ("high", "low", [0.3, 0.6, 0.3])):
        actual = flags(build_metric_rows(values, metric=metric), FlagSettings(direction=direction))
        last = "recovered" if side in ("both", first) else second if side == second else "other_direction"
        went = first if side in ("both", first) else "other_direction"
        assert [actual[nth_night(at)]["status"] for at in (1, 2)] == [went, last]
