"""Comparisons of nights rolled up, without Spark: worked values, the bits of one comparison, refusals."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest
from support.comparing import build_metric, build_settings, compare_rows, hash_key, hash_keys, run_worker
from support.expectations import near

from ndcg_spark.comparison.kernels import hash_words
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.history.settings import RollUpSettings
from ndcg_spark.history.tasks.period_sums import FAMILY, PAIRS_SCHEMA, decide_families, roll_up_nights

DAYS = [
    {"s1": (0.50, 0.65), "s2": (0.30, 0.42), "s3": (0.80, 0.78), "s4": (0.40, 0.52)},
    {"s1": (0.52, 0.66), "s2": (0.33, 0.41), "s3": (0.79, 0.79), "s5": (0.60, 0.58)},
    {"s1": (0.48, 0.64), "s2": (0.31, 0.45), "s4": (0.42, 0.50), "s5": (0.61, 0.60)},
]
"""Two runs on three days; the expected values are by an independent script in exact fractions."""
MONDAY = date(2026, 1, 5)
FAMILY_COLUMNS = {"p_holm", "p_bh", "family_size", "verdict"}
OF_PERIOD = {"period", "period_start", "period_end", "n_days", "missing_days", "config_hash", "convention"}


def day_rows(day, **more):
    """Rows of a night, such as `compared` takes them."""
    return [
        {"query": query, "run": run, "value": values[run], **{name: group.get(query) for name, group in more.items()}}
        for query, values in day.items()
        for run in (0, 1)
    ]


def random_days(n_days=4, n_queries=60, seed=3):
    random = np.random.default_rng(seed)
    names = [f"q{n}" for n in range(n_queries)]
    return [
        {
            name: (float(x), float(np.clip(x + random.normal(0.02, 0.1), 0, 1)))
            for name, x in zip(names, random.random(n_queries), strict=True)
            if random.random() < 0.7
        }
        for _ in range(n_days)
    ]


def nights(days, settings, **more):
    """Stored rows of each night."""
    actual = []
    for at, day in enumerate(days):
        night = MONDAY + timedelta(days=at)
        for row in compare_rows(day_rows(day, **more), settings):
            held = {"night": night, "as_of": MONDAY + timedelta(days=len(days) - 1)}
            actual.append({**row, **held, "convention": "default", "config_hash": "aa11"})
    return actual


def test_companions_stay_untested_in_periods():
    """Two metrics with the same values: as a companion, the second leaves the first its p-value, else it doubles."""
    pair = (build_metric("ndcg"), build_metric("dcg"))
    beside = (pair[0], replace(pair[1], asked=""))
    for independence in ("query_day", "query", "day"):
        options = {"replicates": 50, "flips": 99, "keep_replicates": True}
        week = RollUpSettings(periods=("week",), independence=independence)
        alone = rolled(nights(DAYS, build_settings(**options, metrics=beside)), week)
        both = rolled(nights(DAYS, build_settings(**options, metrics=pair)), week)
        (ndcg,) = [row for row in alone if row["metric"] == "ndcg"]
        (dcg,) = [row for row in alone if row["metric"] == "dcg"]
        assert [dcg[name] for name in ("p_value", "p_holm", "p_bh", "verdict")] == [None] * 4
        assert (dcg["difference"], dcg["ci_low"]) == (ndcg["difference"], ndcg["ci_low"])
        p = ndcg["p_sign_flip" if independence == "query" else "p_value"]
        assert (ndcg["p_holm"], ndcg["family_size"]) == (p, 1)
        assert {(row["p_holm"], row["family_size"]) for row in both} == {(min(1, 2 * p), 2)}


@pytest.mark.parametrize(
    ("metric", "verdict", "wins"), [("ndcg", "better", 8), ("ils", "worse", 3), ("rbp_residual", "higher", 8)]
)
def test_periods_follow_the_direction_of_their_metric(metric, verdict, wins):
    """Of 12 queries, 8 rise, one ties and 3 fall; stored wins are turned once, by the night."""
    metrics = (build_metric(metric),)
    for independence in ("query_day", "day", "query"):
        options = {"replicates": 200, "flips": 999, "keep_replicates": True, "metrics": metrics}
        week = RollUpSettings(periods=("week",), independence=independence)
        (row,) = rolled(nights(DAYS, build_settings(**options)), replace(week, confidence=0.7))
        assert (row["n_wins"], row["n_ties"], row["n_losses"]) == (wins, 1, 11 - wins)
        assert (row["difference"] > 0, row["verdict"]) == (True, verdict)


def test_a_segment_that_one_run_lacks_on_every_night_stays_unclear():
    country = {"country": {"s1": "DE", "s2": "US", "s3": "DE", "s4": "US", "s5": "US"}}
    settings = build_settings(segment_sets=(("country",),))
    rows = nights(DAYS, settings, **country)
    for row in rows:
        if row["segment"] == "DE":
            row["note"] = "one_side_empty"
    (week,) = [row for row in rolled(rows) if row["segment"] == "DE"]
    assert (week["verdict"], week["p_value"]) == ("unclear", None)
    assert "one_side_empty" in week["note"].split(",")
    rows[-1]["note"] = next(row for row in rows if row["segment"] == "DE")["note"] = ""
    (week,) = [row for row in rolled(rows) if row["segment"] == "DE"]
    assert "one_side_empty" not in week["note"]


def rolled(rows, settings=None, *, rows_per_batch=2):
    """Periods of stored rows."""
    settings = settings or RollUpSettings(periods=("week",))
    table = pa.Table.from_pylist(rows)
    replicates = pa.array([row["replicates"] for row in rows], pa.list_(pa.int64()))
    table = table.set_column(table.schema.get_field_index("replicates"), "replicates", replicates)
    table = table.sort_by(
        [(name, "ascending") for name in ("baseline", "run", "segment_by", "segment", "metric", "k", "night")]
    )
    actual = run_worker(roll_up_nights, [table], settings, rows_per_batch=rows_per_batch)
    family = [hash((row["period_start"], row["baseline"])) for row in actual.to_pylist()]
    actual = actual.append_column(FAMILY, pa.array(family, pa.int64())).sort_by(FAMILY)
    decided = run_worker(decide_families, [actual], settings)
    assert decided.schema == PAIRS_SCHEMA
    return decided.to_pylist()


def all_at_once(days, *, cluster):
    """Rows of all nights as one: a query of a night is a query of its own; a cluster is the query or the night."""
    rows = []
    for at, day in enumerate(days):
        for row in day_rows(day):
            user = row["query"] if cluster == "query" else str(MONDAY + timedelta(days=at))
            rows.append({**row, "query": f"{at}/{row['query']}", "user": user})
    return rows


# ------------------------------------------------------------------------------------------- worked values


@pytest.mark.parametrize(
    ("independence", "std_error"),
    [("query_day", 0.020627773765), ("query", 0.033949230333), ("day", 0.014166666667)],
)
def test_three_days(independence, std_error):
    stored = nights(DAYS, build_settings(replicates=1000, flips=9999, keep_replicates=True))
    settings = RollUpSettings(periods=("week",), independence=independence)
    (row,) = rolled(stored, settings)
    assert (row["difference"], row["std_error"]) == (near(0.078333333333), near(std_error))
    assert (row["n_queries"], row["n_wins"], row["n_ties"], row["n_losses"]) == (12, 8, 1, 3)
    assert (row["independence"], row["n_days"], row["missing_days"]) == (independence, 3, [])


def test_replicates_decide_where_they_are_stored():
    stored = nights(DAYS, build_settings(replicates=1000, flips=99, keep_replicates=True))
    assert rolled(stored)[0]["independence"] == "query"
    stored[1]["replicates"] = None
    assert rolled(stored)[0]["independence"] == "query_day"
    with pytest.raises(InputRefusedError, match=r"no replicates for the night 2026-01-06.*keep_replicates"):
        rolled(stored, RollUpSettings(periods=("week",), independence="query"))


def test_nights_with_different_numbers_of_replicates_are_refused():
    week, *others = (
        nights(DAYS, build_settings(replicates=drawn, flips=flips, keep_replicates=True))
        for drawn, flips in ((40, 99), (40, 9), (80, 99))
    )
    mixed = [[*week[:2], other[2]] for other in others]
    for settings in (RollUpSettings(periods=("week",), independence="query"), None):
        with pytest.raises(InputRefusedError) as refused:
            rolled(mixed[0], settings)
        assert str(refused.value).endswith(
            "has replicates of different number: 40 draws and 99 flips on 2026-01-05, 40 and 9 on 2026-01-07; "
            "compare these nights again with the same numbers, or choose independence='query_day' or day."
        )
    assert rolled(mixed[0], RollUpSettings(periods=("week",), independence="query_day"))[0]["n_days"] == 3
    with pytest.raises(InputRefusedError, match="n_replicates"):
        rolled(mixed[1])


def test_a_query_keeps_its_weight_and_sign_from_day_to_day():
    """By loops over the definition: the sum of a query over its days is drawn, and flipped, as a whole."""
    n_replicates, n_flips = 40, 199
    stored = nights(DAYS, build_settings(replicates=n_replicates, flips=n_flips, keep_replicates=True))
    (row,) = rolled(stored)
    table = np.repeat(np.arange(9), [24109, 24110, 12055, 4017, 1005, 201, 34, 4, 1])
    names = sorted({name for day in DAYS for name in day})
    hashes = hash_keys(names)
    drawn = table[hash_words(hashes, 42, 1, n_replicates // 4).astype("<u8").view("<u2")]
    bits = np.unpackbits(hash_words(hashes, 42, 2, 4).astype("<u8").view("u1"), axis=1, bitorder="little")
    sums = np.array([sum(round((day[q][1] - day[q][0]) * 2**32) for day in DAYS if q in day) for q in names])
    counts = np.array([sum(q in day for day in DAYS) for q in names])
    means = [float(drawn[:, r] @ sums / (drawn[:, r] @ counts) * 2.0**-32) for r in range(n_replicates)]
    assert row["std_error"] == pytest.approx(np.std(means, ddof=1), abs=1e-14)
    assert (row["boot_low"], row["boot_high"]) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=1e-14)
    n_differ = 11
    flips = [abs(int((1 - 2 * bits[:, r].astype(np.int64)) @ sums)) for r in range(n_flips)]
    count = sum(flip + n_differ >= abs(int(sums.sum())) for flip in flips)
    assert (row["p_sign_flip"], row["n_flips"]) == ((1 + count) / (1 + n_flips), n_flips)
    assert hash_key("s1") == int(hashes[0])


# ------------------------------------------------------------------------- one comparison of all the nights


def of_both(row, other):
    names = set(row) & set(other) - OF_PERIOD - {"seed", "cluster_by", "n_replicates"}
    return {name: row[name] for name in names}, {name: other[name] for name in names}


@pytest.mark.parametrize("weighted", [False, True])
def test_query_day_has_the_bits_of_one_comparison(weighted):
    days = random_days()
    weight = {f"q{n}": 0.5 + n % 3 for n in range(60)} if weighted else {}
    named = {"weight": "weight"} if weighted else {}
    stored = nights(days, build_settings(segment_sets=(("country",),), **named), weight=weight)
    actual = rolled(stored, RollUpSettings(periods=("week",), independence="query_day"))
    rows = [
        {**row, "query": f"{at}/{row['query']}"}
        for at, day in enumerate(days)
        for row in day_rows(day, weight=weight)
    ]
    expected = compare_rows(rows, build_settings(segment_sets=(("country",),), **named))
    assert len(actual) == len(expected) == 2
    for row, other in zip(sorted(actual, key=lambda row: row["segment_by"]), expected, strict=True):
        one, same = of_both(row, other)
        assert one == same
        assert (row["mde"], row["lift_low"], row["family_size"]) != (None, None, None)


def test_query_has_the_bootstrap_and_the_signs_of_queries_as_clusters():
    days = random_days()
    stored = nights(days, build_settings(replicates=500, flips=999, keep_replicates=True))
    (row,) = rolled(stored)
    (other,) = compare_rows(
        all_at_once(days, cluster="query"), build_settings(cluster="user", replicates=500, flips=999)
    )
    names = ("n_queries", "value", "difference", "lift", "state", "boot_low", "boot_high", "p_sign_flip", "n_flips")
    assert [row[name] for name in names] == [other[name] for name in names]
    assert row["n_flips"] == 999
    assert (row["ci_low"], row["ci_high"]) == (row["boot_low"], row["boot_high"])
    assert row["std_error"] == pytest.approx(other["std_error"], rel=0.1)  # of 500 replicates
    assert row["design_effect"] == pytest.approx(other["design_effect"], rel=0.2)
    none = ("df", "t", "p_value", "boot_t_low", "boot_t_high", "lift_low", "lift_high", "mde", "n_clusters")
    assert [row[name] for name in none] == [None] * len(none)
    assert row["p_holm"] == row["p_sign_flip"]


def test_day_has_the_bits_of_days_as_clusters():
    days = random_days()
    (row,) = rolled(nights(days, build_settings()), RollUpSettings(periods=("week",), independence="day"))
    (other,) = compare_rows(all_at_once(days, cluster="night"), build_settings(cluster="user"))
    one, same = of_both(row, other)
    assert one == same
    assert (row["n_clusters"], row["df"], row["note"], row["n_flips"]) == (4, 3, "few_clusters", 0)


def test_order_and_batches_change_no_bit():
    settings = build_settings(replicates=64, flips=99, keep_replicates=True, segment_sets=(("country",),))
    stored = nights(random_days(), settings, country={f"q{n}": ("DE", "US", "FR")[n % 3] for n in range(60)})
    expected = rolled(stored)
    assert rolled(stored[::-1], rows_per_batch=1) == rolled(stored, rows_per_batch=1000) == expected


# ------------------------------------------------------------------------------------------------- edges


def test_clusters_that_may_come_back_have_no_error_of_added_states():
    users = {f"s{n}": f"u{n % 2}" for n in range(6)}
    stored = nights(DAYS, build_settings(cluster="user", replicates=50, flips=99, keep_replicates=True), user=users)
    (row,) = rolled(stored, RollUpSettings(periods=("week",), independence="query_day"))
    assert (row["difference"], row["std_error"], row["ci_low"], row["p_holm"]) == (near(0.078333333333), *[None] * 3)
    assert (row["note"], row["verdict"], row["n_clusters"]) == ("clusters_not_added", "unclear", None)
    (row,) = rolled(stored)
    assert (row["independence"], row["cluster_by"]) == ("query", "user")
    assert row["std_error"] > 0


def test_equal_differences_have_no_spread():
    same = [{"q1": (0.25, 0.5), "q2": (0.5, 0.75)}, {"q1": (0.125, 0.375)}, {}]
    for settings in (build_settings(), build_settings(replicates=50, flips=99, keep_replicates=True)):
        (row,) = rolled(nights(same, settings))
        assert (row["std_error"], row["p_value"], row["ci_low"], row["ci_high"]) == (0.0, None, 0.25, 0.25)
        assert (row["note"], row["n_queries"], row["n_days"]) == ("no_spread,few_queries", 3, 2)
    other = [{"q1": (0.25, 0.5), "q2": (0.5, 0.75)}, {"q1": (0.125, 0.5)}]
    (row,) = rolled(nights(other, build_settings()))
    assert row["std_error"] > 0


def test_one_query_on_several_nights_says_nothing_of_others():
    days = [{"q1": (0.25, 0.5)}, {"q1": (0.5, 0.625)}]
    (row,) = rolled(nights(days, build_settings(replicates=50, flips=99, keep_replicates=True)))
    assert (row["difference"], row["std_error"], row["ci_low"]) == (0.1875, None, None)


def test_holm_ties_the_rows_of_a_period_and_baseline():
    runs = {"runs": ("a", "b", "c"), "baseline": None}
    days = random_days()
    stored = []
    for at, day in enumerate(days):
        rows = [*day_rows(day), *({"query": q, "run": 2, "value": v[0] / 2} for q, v in day.items())]
        for row in compare_rows(rows, build_settings(**runs)):
            later = {"night": MONDAY + timedelta(days=at), "as_of": MONDAY + timedelta(days=3)}
            stored.append({**row, **later, "convention": "default", "config_hash": "aa11"})
    actual = {(row["baseline"], row["run"]): row for row in rolled(stored)}
    assert {pair: row["family_size"] for pair, row in actual.items()} == {("a", "b"): 2, ("a", "c"): 2, ("b", "c"): 1}
    low, high = sorted((actual["a", "b"], actual["a", "c"]), key=lambda row: row["p_value"])
    assert (low["p_holm"], high["p_holm"]) == (2 * low["p_value"], max(2 * low["p_value"], high["p_value"]))
    assert actual["b", "c"]["verdict"] == "worse"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rules": "ties=worst"}, r"would combine results of different rules \(ties: expected and worst\)"),
        ({"seed": 7}, "seed 42 on 2026-01-05, 7 on"),
        ({"unpaired": "drop"}, "unpaired zero on 2026-01-05, drop on"),
        ({"night": MONDAY}, "two rows for the night 2026-01-05; keep the rows of one data set and slice"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, named):
    stored = [{**row, "rules": "ties=expected"} for row in nights(DAYS, build_settings())]
    stored[1] |= changes
    with pytest.raises(InputRefusedError, match=r"ndcg@10 of run 'b' against 'a', overall .*" + named):
        rolled(stored)
