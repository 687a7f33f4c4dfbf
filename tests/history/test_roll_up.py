"""Weeks, months and rolling weeks: the bits of one evaluation, days that are missing, changed nights, refusals."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from support.expectations import approx, collect_refusal

from ndcg_spark import compare, evaluate, merge_summaries
from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.core.exact import MOMENTS, query_states
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.history import RollUpSettings, local_periods, roll_up
from ndcg_spark.history.frames import roll_up_table
from ndcg_spark.history.local_periods import read_period_rows
from ndcg_spark.sources.local import open_memory_table

RANKED = "night date, query_id string, item_id string, score double, relevance int, country string, w double"
KEYS = ("run", "segment_by", "segment", "metric", "k")
MEANS = ("n_queries", "n_no_relevant", "n_rows", "value", "weight_sum", "std_error", "ci_low", "ci_high", "state")
NIGHTS = [date(2026, 1, day) for day in (26, 27, 28, 30, 31)] + [date(2026, 2, day) for day in (1, 2, 3)]
"""A Monday to a Tuesday eight days later, without the 29th; two ISO weeks, two months."""


@pytest.fixture(scope="module")
def ranked(spark):
    random = np.random.default_rng(8)
    rows = [
        (
            night,
            f"{night}/{query}",
            f"i{item}",
            float(random.normal()),
            int(random.integers(0, 4)),
            country,
            0.1 + query,
        )
        for night in NIGHTS
        for query in range(int(random.integers(3, 9)))
        for country in [["DE", "US", None][query % 3]]
        for item in range(6)
    ]
    return spark.createDataFrame(rows, RANKED).cache()


def evaluated(rows):
    return evaluate(rows, k=[2, 5], segments=["country"], weight="w").summary


@pytest.fixture(scope="module")
def table(spark, ranked):
    """A metric table: each night evaluated by itself."""
    parts = []
    for night in NIGHTS:
        for row in evaluated(ranked.where(f"night = '{night}'")).collect():
            parts.append({"run_date": night, "config_hash": "aa11", "convention": "default", **row.asDict()})
    kept = evaluated(ranked).schema.simpleString()[len("struct<") : -1]
    schema = "run_date date, config_hash string, convention string, " + kept.replace(":", " ", kept.count(":"))
    return spark.createDataFrame(parts, schema).cache()


def by_period(frame):
    actual = {}
    for row in frame.collect():
        key = (row["period"], row["period_start"], row["period_end"], *(row[name] for name in KEYS))
        assert key not in actual
        actual[key] = row.asDict()
    return actual


@pytest.fixture(scope="module")
def every(table):
    """All periods of the metric table."""
    return by_period(roll_up(table))


def test_every_period_has_the_bits_of_one_evaluation(ranked, table, every):
    actual = every
    periods = {key[:3] for key in actual}
    weeks = {("week", date(2026, 1, 26), date(2026, 2, 1)), ("week", date(2026, 2, 2), date(2026, 2, 8))}
    months = {("month", date(2026, 1, 1), date(2026, 1, 31)), ("month", date(2026, 2, 1), date(2026, 2, 28))}
    rolling = {("rolling_7", date(2026, 1, 20) + timedelta(at), date(2026, 1, 26) + timedelta(at)) for at in range(9)}
    assert periods == weeks | months | rolling
    for period, start, end in sorted(periods)[::3]:
        at_once = evaluated(ranked.where(f"night between '{start}' and '{end}'")).collect()
        expected = {tuple(row[name] for name in KEYS): [row[name] for name in MEANS] for row in at_once}
        group = {
            key[3:]: [row[name] for name in MEANS] for key, row in actual.items() if key[:3] == (period, start, end)
        }
        assert group == expected
    assert by_period(roll_up(table.orderBy("value", "state").repartition(5))) == actual


def roll_up_locally(stored, settings):
    """Periods of a Spark table by the engine without Spark, by their keys."""
    schema = to_arrow_schema(stored.schema)
    rows = pa.Table.from_pylist([row.asDict() for row in stored.collect()], schema)
    nights = read_period_rows(open_memory_table(rows, "metrics"), settings)
    known = replace(settings, as_of=settings.as_of or max(nights.column("night").to_pylist()))
    periods = local_periods.roll_up_table(nights, known).to_pylist()
    return {(*(row[name] for name in ("period", "period_start", "period_end")), *(row[name] for name in KEYS)): row
            for row in periods}  # fmt: skip


@pytest.mark.parametrize("independence", ["query_day", "day"])
def test_weights_and_segments_have_the_same_bits_without_spark(table, independence):
    """A segment is null, and so are states of a metric that is no mean; a night has another configuration."""
    no_mean = "CASE WHEN metric = 'dcg' THEN null ELSE state END state"
    changed = "CASE WHEN run_date = '2026-01-30' THEN null ELSE config_hash END config_hash"
    others = [name for name in table.columns if name not in ("state", "config_hash")]
    mixed = table.selectExpr(*others, no_mean, changed)
    for settings in (
        RollUpSettings(independence=independence),
        RollUpSettings(independence=independence, periods=("week",), start=NIGHTS[2], end=NIGHTS[4]),
        RollUpSettings(independence=independence, as_of=NIGHTS[3], confidence=0.8),
    ):
        expected = by_period(roll_up_table(mixed, settings))
        assert None in {key[5] for key in expected}
        assert roll_up_locally(mixed, settings) == expected


def test_missing_days_are_named_and_queries_weigh_not_days(table, every):
    actual = every
    overall = {key[:3]: row for key, row in actual.items() if key[3:] == ("", "", "", "ndcg", 5)}
    january = overall["month", date(2026, 1, 1), date(2026, 1, 31)]
    assert (january["n_days"], len(january["missing_days"])) == (5, 26)
    week = overall["week", date(2026, 1, 26), date(2026, 2, 1)]
    assert (week["n_days"], week["missing_days"]) == (6, [date(2026, 1, 29)])
    # The second week is not over: its other days are to come, not missing.
    running = overall["week", date(2026, 2, 2), date(2026, 2, 8)]
    assert (running["n_days"], running["missing_days"], running["independence"]) == (2, [], "query_day")
    assert (running["config_hash"], running["convention"]) == ("aa11", "default")
    days = list(table.where("segment_by = '' and metric = 'ndcg' and k = 5").collect())
    both = [row for row in days if row["run_date"] >= date(2026, 2, 2)]
    assert both[0]["n_queries"] != both[1]["n_queries"]
    weighted = sum(row["value"] * row["weight_sum"] for row in both) / sum(row["weight_sum"] for row in both)
    assert running["value"] == approx(weighted)


def test_a_changed_night_touches_its_periods_alone(table, every):
    changed = date(2026, 1, 28)
    some = by_period(roll_up_table(table, RollUpSettings(start=changed, end=changed)))
    assert some == {key: row for key, row in every.items() if key[1] <= changed <= key[2]}
    for kinds in (("week",), ("rolling_7",), ("week", "month")):  # others need fewer nights
        few = by_period(roll_up_table(table, RollUpSettings(periods=kinds, start=changed, end=changed)))
        assert few == {key: row for key, row in some.items() if key[0] in kinds}
    assert {key[:3] for key in some} == {
        ("week", date(2026, 1, 26), date(2026, 2, 1)),
        ("month", date(2026, 1, 1), date(2026, 1, 31)),
        *(("rolling_7", date(2026, 1, 22) + timedelta(at), date(2026, 1, 28) + timedelta(at)) for at in range(7)),
    }


def test_nights_after_as_of_are_not_known(table):
    early = by_period(roll_up_table(table, RollUpSettings(as_of=date(2026, 1, 30), periods=("rolling_7",))))
    assert max(key[2] for key in early) == date(2026, 1, 30)
    every = by_period(roll_up_table(table.where("run_date <= '2026-01-30'"), RollUpSettings(periods=("rolling_7",))))
    assert early == every


# -------------------------------------------------------------------------------------------- worked values

DAYS = [
    {"s1": 0.65 - 0.50, "s2": 0.42 - 0.30, "s3": 0.78 - 0.80, "s4": 0.52 - 0.40},
    {"s1": 0.66 - 0.52, "s2": 0.41 - 0.33, "s3": 0.79 - 0.79, "s5": 0.58 - 0.60},
    {"s1": 0.64 - 0.48, "s2": 0.45 - 0.31, "s4": 0.50 - 0.42, "s5": 0.60 - 0.61},
]
"""Differences of two rankers, query by query; the expected values are by an independent script in exact fractions."""


def metric_row(run_date, values):
    values = np.array(list(values), dtype=np.float64)
    state = MOMENTS.states(query_states(values, None), 1, np.sum)
    MOMENTS.fill_unweighted(state, np.array([len(values)]))
    counts = dict.fromkeys(("n_no_relevant", "n_missing", "n_unjudged", "n_rows", "n_left_out"), 0)
    keys = {"run": "", "segment_by": "", "segment": "", "metric": "difference", "k": 10}
    return {"run_date": run_date, **keys, "n_queries": len(values), **counts, "state": state[0].tolist()}


COLUMNS = (
    "run_date date, run string, segment_by string, segment string, metric string, k int, n_queries bigint, "
    "n_no_relevant bigint, n_missing bigint, n_unjudged bigint, n_rows bigint, n_left_out bigint, state array<bigint>"
)


def test_three_days_of_differences(spark):
    """As clusters, days have Student's t with 2 degrees of freedom; a single day with queries has no error."""
    three = [metric_row(date(2026, 1, 5 + at), day.values()) for at, day in enumerate(DAYS)]
    two = [{**metric_row(date(2026, 1, 5 + at), group), "run": "two"} for at, group in enumerate(([0.1, 0.2], []))]
    days = spark.createDataFrame([*three, *two], COLUMNS)
    for independence, std_error, t in (("query_day", 0.020627773765, 1.959963984540),
                                       ("day", 0.014166666667, 4.302652729911)):  # fmt: skip
        settings = RollUpSettings(periods=("week",), independence=independence)
        row, of_two = roll_up_table(days, settings).orderBy("run").collect()
        assert (row["n_days"], row["n_queries"], row["independence"]) == (3, 12, independence)
        assert (row["value"], row["std_error"]) == (approx(0.078333333333), approx(std_error))
        assert (row["value"] - row["ci_low"]) / row["std_error"] == pytest.approx(t, abs=1e-9)
        assert of_two["value"] == approx(0.15)
    assert (of_two["std_error"], of_two["ci_low"]) == (None, None)


# ---------------------------------------------------------------------------------------------- comparisons

VALUES = [
    {"s1": (0.50, 0.65), "s2": (0.30, 0.42), "s3": (0.80, 0.78), "s4": (0.40, 0.52)},
    {"s1": (0.52, 0.66), "s2": (0.33, 0.41), "s3": (0.79, 0.79), "s5": (0.60, 0.58)},
    {"s1": (0.48, 0.64), "s2": (0.31, 0.45), "s4": (0.42, 0.50), "s5": (0.61, 0.60)},
]
"""Both runs of the differences above."""
DIFFERENCES = (0.020627773765, 0.033949230333, 0.014166666667)


@pytest.fixture(scope="module")
def compared(spark):
    """A comparison table of three days."""
    rows = [
        (date(2026, 1, 5 + at), run, query, 10, values[number], "DE" if query < "s3" else "US")
        for at, day in enumerate(VALUES)
        for query, values in day.items()
        for number, run in enumerate(("old", "new"))
    ]
    queries = spark.createDataFrame(
        rows, "night date, run string, query_id string, k int, ndcg double, country string"
    )
    options = {"baseline": "old", "runs": ["old", "new"], "metrics": "ndcg", "segments": ["country"]}
    parts = [
        compare(
            queries.where(f"night = '{night}'").drop("night"), **options, keep_replicates=True
        ).summary.selectExpr(f"date'{night}' run_date", "'aa11' config_hash", "*")
        for night in (date(2026, 1, 5 + at) for at in range(3))
    ]
    return parts[0].union(parts[1]).union(parts[2]).cache()


def test_three_days_of_a_comparison(compared):
    for independence, std_error in zip(("query_day", "query", "day"), DIFFERENCES, strict=True):
        settings = RollUpSettings(periods=("week",), independence=independence)
        actual = roll_up_table(compared.orderBy("difference").repartition(5), settings).collect()
        assert sorted(map(str, roll_up_table(compared, settings).collect())) == sorted(map(str, actual))
        rows = {row["segment"]: row for row in actual}
        assert set(rows) == {"", "DE", "US"}
        assert (rows[""]["difference"], rows[""]["std_error"]) == (approx(0.078333333333), approx(std_error))
        assert (rows[""]["n_days"], rows[""]["config_hash"], rows[""]["convention"]) == (3, "aa11", None)
        # All three rows have a p-value: of Student's t, or of sign flips where there is no t.
        p_values = {row["segment"]: row["p_sign_flip" if independence == "query" else "p_value"] for row in actual}
        lowest = min(p_values, key=p_values.get)
        assert (rows[lowest]["family_size"], rows[lowest]["p_holm"]) == (3, approx(min(1, 3 * p_values[lowest])))


@pytest.mark.parametrize("independence", ["query_day", "query", "day"])
def test_segments_of_comparisons_have_the_same_bits_without_spark(compared, independence):
    settings = RollUpSettings(independence=independence, margin=0.01)
    expected = by_period(roll_up_table(compared, settings))
    assert {key[5] for key in expected} == {"", "DE", "US"}
    assert roll_up_locally(compared, settings) == expected


def test_periods_of_comparisons_are_those_of_means(compared):
    def keys(frame):
        return sorted({(row["period"], row["period_start"], row["period_end"]) for row in frame.collect()})

    means = compared.selectExpr(
        "run_date", "run", "segment_by", "segment", "metric", "k", f"array_repeat(0L, {MOMENTS.size}) state",
        "0L n_queries", "0L n_no_relevant",
        "0L n_missing", "0L n_unjudged", "0L n_rows", "0L n_left_out",
    )  # fmt: skip
    for settings in (RollUpSettings(), RollUpSettings(start=date(2026, 1, 6), as_of=date(2026, 1, 6))):
        actual = roll_up_table(compared, settings)
        assert keys(actual.select("period", "period_start", "period_end")) == keys(
            roll_up_table(means, settings).select("period", "period_start", "period_end")
        )
    rolling = {
        row["period_end"]: row
        for row in roll_up_table(compared, RollUpSettings(periods=("rolling_7",))).where("segment_by = ''").collect()
    }
    assert {end: (row["n_days"], len(row["missing_days"])) for end, row in rolling.items()} == {
        date(2026, 1, 5): (1, 6),
        date(2026, 1, 6): (2, 5),
        date(2026, 1, 7): (3, 4),
    }
    assert rolling[date(2026, 1, 7)]["std_error"] == approx(DIFFERENCES[1])


# ------------------------------------------------------------------------------------------------- refusals


def test_two_rules_are_refused_by_name(table):
    table = table.drop("rules").withColumn("rules", F.lit("ties=expected"))
    other = table.where("run_date = '2026-01-28'").drop("config_hash", "rules")
    changed = other.selectExpr("*", "'bb22' config_hash", "'ties=worst' rules")
    said = collect_refusal(
        roll_up_table(table.where("run_date <> '2026-01-28'").unionByName(changed), RollUpSettings(periods=("week",)))
    )
    assert "period=week, period_start=2026-01-26, period_end=2026-02-01" in said
    assert "different rules (ties: expected and worst)" in said
    alike = table.where("run_date <> '2026-01-28'").unionByName(changed.withColumn("rules", F.lit("ties=expected")))
    weeks = roll_up(alike, periods="week").where("period_start = '2026-01-26' and segment_by = ''")
    (week,) = weeks.select("config_hash", "convention", "rules").distinct().collect()
    assert (week["config_hash"], week["convention"], week["rules"]) == (None, "default", "ties=expected")
    alone = roll_up(table.unionByName(changed).where("run_date > '2026-02-01'"))
    assert collect_refusal(alone) is None


def test_a_night_twice_is_refused(table):
    said = collect_refusal(
        roll_up_table(table.union(table.where("run_date = '2026-02-03'")), RollUpSettings(periods=("month",)))
    )
    assert said.startswith("a night appears twice in the month from 2026-02-01 to 2026-02-28 of ")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"periods": ()}, "periods must name at least one"),
        ({"periods": ("year",)}, "periods must be one of week, month, rolling_7; got 'year'"),
        ({"independence": "week"}, "independence must be one of query_day, query, day; got 'week'"),
        ({"margin": -1.0}, "margin must be 0 or more"),
        ({"confidence": 0.0}, "confidence"),
        ({"start": date(2026, 1, 2), "end": date(2026, 1, 1)}, "is after the last"),
    ],
)
def test_options_out_of_range(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        RollUpSettings(**options)


def test_tables_that_cannot_be_rolled_up(spark, table):
    texts = {name: F.col(name).cast("string") for name in ("k", "n_queries")}
    columns = {"run": "''", "segment_by": "''", "segment": "''", "metric": "'ndcg'", "k": "10", "value": "0.5D"}
    named = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    other = spark.sql(f"SELECT {named}, date'2026-01-31' AS run_date")
    lacks = (
        r"column 'n_queries' .* is not in the .*, which has: run, segment_by, segment, metric, k, value, run_date\.$"
    )
    for call, of, error, message in [
        (roll_up, table.withColumn("run_date", F.lit(20260131)), InputRefusedError,
         r"column 'run_date' of the metric table is int; cast it to date"),
        # Texts have no states to add.
        (roll_up, mark_text_table(table.withColumns(texts)), InputRefusedError,
         r"column 'k' .* of the metric table is string, not a number"),
        (lambda group: roll_up_table(group, RollUpSettings(independence="query")), table, InvalidParameterError,
         "a metric table does not have; choose query_day or day"),
        (roll_up, other, MissingColumnError, lacks),
        (merge_summaries, other, MissingColumnError, lacks),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call(of)
