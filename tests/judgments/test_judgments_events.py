"""Judgments from an event log: worked values, the definition in plain loops, equal bits in any order."""

from __future__ import annotations

import io
import random
import re
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import functions as F
from support.expectations import collect_refusal
from support.judging import AS_OF, EVENT_SCHEMA, Event, judge_by_loops, random_events

from ndcg_spark import evaluate
from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import EvaluationSettings
from ndcg_spark.judgments import from_events
from ndcg_spark.judgments.frames import check_events, judge_events
from ndcg_spark.judgments.settings import EventColumns, EventSettings

GRADES = {"dislike": -1.0, "skip": 0.0, "view": 1.0, "cart": 2.0, "purchase": 3.0}
# Purchase 14, cart 7, view .5 days ago.
THREE = [Event("purchase", 14), Event("cart", 7), Event("view", 0.5)]


def create_events(spark, events):
    return spark.createDataFrame([event.row for event in events], EVENT_SCHEMA)


def judge(frame, settings):
    judgments = {}
    for row in judge_events(frame, settings).collect():
        values = row.asDict()
        for name in ("first_ts", "last_ts"):
            values[name] = values[name].astimezone(timezone.utc)
        judgments[values.pop("query_id"), values.pop("item_id")] = values
    return judgments


# ----------------------------------------------------------------------------- the definition, without Spark


@pytest.mark.parametrize(
    ("rule", "half_life", "expected"),
    [
        ("best", None, 3.0),
        ("sum", None, 3.0),
        ("last", None, 1.0),
        ("best", 7, 1.0),
        ("sum", 7, 2.701695153011),
        ("last", 7, 0.951695153011),
    ],
)
def test_the_definition_of_the_worked_values(rule, half_life, expected):
    actual = judge_by_loops(THREE, EventSettings(as_of=AS_OF, rule=rule, half_life=half_life))
    assert actual["q", "i"]["relevance"] == pytest.approx(expected, abs=1e-12)


RULES = [
    ([Event("impression")], {}, 0.0, "impressions"),
    ([Event("impression")], {"min_impressions": 2}, None, "too_few_impressions"),
    ([Event("impression")] * 2, {"min_impressions": 2}, 0.0, "impressions"),
    ([Event("purchase", 3), Event("dislike", 2)], {}, -1.0, "negative"),
    ([Event("dislike", 3), Event("purchase", 2)], {}, -1.0, "negative"),
    ([Event("dislike", 3), Event("purchase", 2)], {"negative": "latest"}, 3.0, "best"),
    ([Event("dislike", 3), Event("skip", 2)], {"negative": "latest"}, -1.0, "negative"),
    ([Event("dislike", 2), Event("purchase", 2)], {"negative": "latest"}, -1.0, "negative"),
    ([Event("dislike", 2)], {"half_life": 1.0}, -1.0, "negative"),
    ([Event("view", 2), Event("purchase", 2)], {"rule": "last"}, 3.0, "last"),
    ([Event("purchase", 2), Event("impression", 1)], {"rule": "last"}, 3.0, "last"),
    ([Event("skip", 2)], {}, 0.0, "best"),
    ([Event("view")] * 9, {"rule": "sum", "cap": 4.0}, 4.0, "sum"),
    # The window includes its begin, but not its end.
    ([Event("view", 3), Event("cart", 2), Event("purchase", 1)],
     {"start": AS_OF - timedelta(days=3), "as_of": AS_OF - timedelta(days=1), "rule": "sum", "cap": 10}, 3.0, "sum"),
]  # fmt: skip


@pytest.mark.parametrize(("events", "options", "relevance", "rule"), RULES)
def test_the_definition_of_rules(events, options, relevance, rule):
    (actual,) = judge_by_loops(events, EventSettings(**{"grades": GRADES, "as_of": AS_OF, **options})).values()
    assert (actual["relevance"], actual["rule"]) == (relevance, rule)


# ----------------------------------------------------------------------------------------- Spark does the same

SETTINGS = {
    "best": EventSettings(grades=GRADES),
    "sum": EventSettings(grades=GRADES, rule="sum", cap=100),
    "last, in a window": EventSettings(
        grades=GRADES, rule="last", start=AS_OF - timedelta(days=30), as_of=AS_OF - timedelta(days=2)
    ),
    "best, half-life": EventSettings(grades=GRADES, half_life=7, as_of=AS_OF + timedelta(days=1)),
    "last, half-life": EventSettings(grades=GRADES, rule="last", half_life=0.5, as_of=AS_OF, negative="latest"),
    "latest negative": EventSettings(grades=GRADES, negative="latest", min_impressions=3),
    "two negatives": EventSettings(grades={**GRADES, "skip": -2.0, "view": -2.0}, negative="latest", rule="last"),
    "event_id": EventSettings(grades=GRADES, dedup="event_id", rule="sum", cap=50),
    "time": EventSettings(grades=GRADES, dedup="time", dedup_seconds=100_000, rule="sum", cap=50, min_impressions=2),
    "grades that are not whole": EventSettings(grades={**GRADES, "view": 0.5, "cart": 0.75}, rule="sum", cap=20.5),
    "decayed sum": EventSettings(grades={**GRADES, "view": 0.1}, rule="sum", cap=1000, half_life=3.3,
                                 as_of=AS_OF + timedelta(days=1)),
}  # fmt: skip
LOG = [
    *(replace(event, query=f"{seed} {event.query}") for seed in (1, 2) for event in random_events(seed)),
    *(replace(event, item=f"case {at}") for at, (events, *_) in enumerate(RULES) for event in events),
    *THREE,
]
"""Random events, and those that the definition is shown by."""


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_judge_events_equals_the_definition_to_the_bit_in_any_order(spark, settings):
    expected, got = judge_by_loops(LOG, settings), judge(create_events(spark, LOG).coalesce(1), settings)
    assert got.keys() == expected.keys()
    for pair, row in expected.items():
        close = pytest.approx(row["relevance"], abs=1e-12) if settings.half_life else row["relevance"]
        assert got[pair] == {**row, "relevance": close}, pair
    shuffled = random.Random(7).sample(LOG, len(LOG))
    assert judge(create_events(spark, shuffled).repartition(7), settings) == got


def test_sums_of_doubles_depend_on_the_order():
    """As doubles some orders of these values give different sums, so the test above can fail."""
    values = [0.5 ** (day / 3.3) * 0.1 for day in range(40)]
    assert len({sum(random.Random(seed).sample(values, len(values))) for seed in range(20)}) > 1


def test_sums_of_small_values_are_not_rounded_early(spark):
    """In doubles 1 + 2^-54 is 1, however often it is added."""
    events = [Event("one"), *[Event("tiny")] * 5]
    settings = EventSettings(grades={"one": 1.0, "tiny": 2.0**-54}, rule="sum", cap=2.0)
    (actual,) = judge(create_events(spark, events), settings).values()
    assert actual["relevance"] == 1 + 2.0**-52  # 1 + 5 * 2^-54 is nearer to it than to 1


def test_a_window_without_time_zone_is_utc():
    assert EventSettings(as_of=datetime(2026, 3, 1)).as_of_micros == EventSettings(as_of=AS_OF).as_of_micros


def test_the_time_zone_of_the_session_does_not_matter(spark):
    """Timestamps without time zone, and text; in New York 02:30 of 8 March 2026 does not exist."""
    texts = ["2026-03-08 02:30:00.000001", "2026-03-08T02:30:00Z", "2026-03-08", "2026-03-08 03:30:00+01:00"]
    rows = [("q", str(at), "view", text) for at, text in enumerate(texts)]
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        text = spark.createDataFrame(rows, "query_id string, item_id string, event string, ts string")
        actual = judge_events(mark_text_table(text), EventSettings())
        plain = text.where("item_id in (0, 2)").withColumn("ts", F.col("ts").cast("timestamp_ntz"))
        both = [actual, judge_events(plain, EventSettings())]
        micros = [
            {row[0]: row[1] for row in result.selectExpr("item_id", "unix_micros(first_ts)").collect()}
            for result in both
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    day = int(datetime(2026, 3, 8, tzinfo=timezone.utc).timestamp()) * 1_000_000
    half_past_two = day + 9_000_000_000
    assert micros[0] == {"0": half_past_two + 1, "1": half_past_two, "2": day, "3": half_past_two}
    assert micros[1] == {"0": half_past_two + 1, "2": day}


def test_the_main_job_reads_the_judgments(spark):
    events = [Event("purchase", item="a"), Event("view", item="b"), Event("impression", item="c")]
    judgments = judge_events(create_events(spark, events), EventSettings())
    run = spark.createDataFrame(
        [("q", "b", 3.0), ("q", "a", 2.0), ("q", "c", 1.0)], "query_id string, item_id string, score double"
    )
    (row,) = evaluate(run, judgments=judgments, k=3).per_query.collect()
    assert row["dcg"] == pytest.approx(1 + 7 / 1.584962500721156)  # gains 1, 7 and 0; log2(3)
    assert row["n_judged"] == 3
    assert EvaluationSettings().columns.relevance in judgments.columns


# --------------------------------------------------------------------------------------------------- bad rows

BAD = [
    ((None, "i", "view", AS_OF, "e", "u"), "null_query"),
    (("q", None, "view", AS_OF, "e", "u"), "null_item"),
    (("q", "i", None, AS_OF, "e", "u"), "null_event"),
    (("q", "i", "veiw", AS_OF, "e", "u"), "unknown_event"),
    (("q", "i", "view", None, "e", "u"), "null_ts"),
]


def list_reasons(frame, settings):
    return [row["reason"] for row in check_events(frame, settings).collect()]


def test_bad_rows(spark):
    frame = spark.createDataFrame([Event("cart").row, *(row for row, _ in BAD)], EVENT_SCHEMA).coalesce(1)
    assert list_reasons(frame, EventSettings()) == [None, *(reason for _, reason in BAD)]
    (judgment,) = judge_events(frame, EventSettings(on_invalid="reject")).collect()
    assert (judgment["relevance"], judgment["n_events"]) == (2.0, 1)
    unknown = frame.where("event = 'veiw'")
    assert collect_refusal(judge_events(unknown, EventSettings())).startswith(
        "bad row: unknown_event at query_id=q, item_id=i"
    )
    # Also if only the keys are asked for; and not if the row lies outside of the window.
    assert "unknown_event" in collect_refusal(judge_events(unknown, EventSettings()).select("query_id"))
    assert judge_events(unknown, EventSettings(start=AS_OF + timedelta(days=1))).count() == 0


def test_null_ids_are_bad_only_if_deduplication_needs_them(spark):
    rows = [("q", "i", "view", AS_OF, None, "u"), ("q", "i", "view", AS_OF, "e", None)]
    frame = spark.createDataFrame(rows, EVENT_SCHEMA).coalesce(1)
    assert list_reasons(frame, EventSettings(dedup="event_id")) == ["null_event_id", None]
    assert list_reasons(frame, EventSettings(dedup="time", dedup_seconds=9)) == [None, "null_user"]
    assert judge_events(frame, EventSettings()).first()["n_events"] == 2


def test_missing_and_mistyped_columns_are_refused(spark):
    events = create_events(spark, THREE).withColumn("tags", F.array("event"))
    for options, error, named in [
        ({"columns": EventColumns(query=("query",))}, MissingColumnError, "'query_id'"),
        ({"columns": EventColumns(item="item")}, MissingColumnError, "'item_id'"),
        ({"columns": EventColumns(event="type")}, MissingColumnError, "(event=)"),
        ({"columns": EventColumns(ts="time")}, MissingColumnError, "(ts=)"),
        ({"columns": EventColumns(event_id="id")}, MissingColumnError, "'id' (event_id=)"),
        ({"columns": EventColumns(user="visitor")}, MissingColumnError, "'visitor' (user=)"),
        ({"columns": EventColumns(ts="user_id")}, InputRefusedError, "not a timestamp"),
        ({"columns": EventColumns(item="tags")}, InputRefusedError,
         "'tags' (item=) is array<string>; cast it to text first"),
    ]:  # fmt: skip
        with pytest.raises(error, match=re.escape(named)):
            judge_events(events, EventSettings(**options))
    # Columns that deduplication alone needs are asked for by it.
    for options, column, named in [
        ({"dedup": "event_id"}, "event_id", "'event_id' (event_id=)"),
        ({"dedup": "time", "dedup_seconds": 9}, "user_id", "'user_id' (user=)"),
    ]:
        assert "relevance" in from_events(events.drop(column)).columns
        with pytest.raises(MissingColumnError, match=re.escape(named)):
            judge_events(events.drop(column), EventSettings(**options))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rule": "first"}, "rule must be one of best, sum, last"),
        ({"grades": {"view": float("nan")}}, "'view'"),
        ({"grades": {"view": 1e7}}, "'view'"),
        ({"grades": {"dislike": -1.0}}, "above 0"),
        ({"grades": {"impression": 1.0}}, "'impression'"),
        ({"cap": 3.0}, "rule='sum'"),
        ({"rule": "sum", "cap": 0.0}, "cap"),
        ({"rule": "sum", "cap": float("nan")}, "cap"),
        ({"half_life": 7.0}, "as_of"),
        ({"half_life": 0.0, "as_of": AS_OF}, "half_life"),
        ({"start": AS_OF, "as_of": AS_OF}, "window is empty"),
        ({"min_impressions": 0}, "min_impressions"),
        ({"dedup": "time"}, "dedup_seconds"),
        ({"dedup_seconds": 5}, "dedup_seconds"),
        ({"dedup": "time", "dedup_seconds": 0}, "dedup_seconds"),
        (
            {"dedup": "time", "dedup_seconds": 10**13},
            "dedup_seconds=10000000000000 must be between 1 and 10,000,000,000",
        ),
        ({"negative": "drop"}, "negative"),
        ({"columns": EventColumns(query=("event_id",)), "on_invalid": "skip"}, "on_invalid"),
    ],
)
def test_bad_option_is_refused(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        EventSettings(**options)


@pytest.mark.parametrize(("query", "item"), [((), "i"), (("q", "q"), "i"), (("q",), "q"), (("Rule",), "i")])
def test_bad_keys_are_refused(query, item):
    with pytest.raises(InvalidParameterError):
        EventColumns(query=query, item=item)


# ------------------------------------------------------------------------------------------------------- cost


def explain(frame):
    """Return Spark's plan as printed by `explain`."""
    text = io.StringIO()
    with redirect_stdout(text):
        frame.explain()
    return text.getvalue()


def test_one_shuffle_and_neither_sort_nor_python(spark):
    for name, settings in SETTINGS.items():
        text = explain(judge_events(create_events(spark, THREE), settings))
        assert text.count("Exchange hashpartitioning") == text.count("Exchange") == 1, name
        assert not [step for step in ("Sort", "Python", "Arrow", "ObjectHashAggregate") if step in text], name


def test_the_window_reaches_the_files(spark, tmp_path):
    create_events(spark, THREE).write.parquet(str(tmp_path / "events"))
    events = spark.read.parquet(str(tmp_path / "events"))
    text = explain(judge_events(events, EventSettings(start=AS_OF, as_of=AS_OF + timedelta(days=1))))
    (pushed,) = [line for line in text.splitlines() if "PushedFilters" in line]
    assert "GreaterThanOrEqual(ts" in pushed
    assert "LessThan(ts" in pushed
