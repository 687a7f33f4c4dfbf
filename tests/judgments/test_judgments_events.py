"""Judgments from an event log: the worked values, the definition in plain loops, and the same bits in any order."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

import pytest
from pyspark.sql import functions as F
from support.judging import AS_OF, EVENT_SCHEMA, Event, judged, random_events
from support.refusals import refusal

from ndcg_spark import evaluate
from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import EvaluationSettings
from ndcg_spark.judgments import from_events
from ndcg_spark.judgments.frames import checked_events, judged_events
from ndcg_spark.judgments.settings import EventColumns, EventSettings

pytestmark = pytest.mark.usefixtures("spark")

GRADES = {"dislike": -1.0, "skip": 0.0, "view": 1.0, "cart": 2.0, "purchase": 3.0}
# Purchase 14, cart 7, view .5 days ago.
THREE = [Event("purchase", 14), Event("cart", 7), Event("view", 0.5)]


def frame_of(spark, events):
    return spark.createDataFrame([one.row for one in events], EVENT_SCHEMA)


def judge(spark, events, settings, n_partitions=None):
    frame = frame_of(spark, events)
    if n_partitions:
        frame = frame.repartition(n_partitions)
    found = {}
    for row in judged_events(frame, settings).collect():
        values = row.asDict()
        for name in ("first_ts", "last_ts"):
            values[name] = values[name].astimezone(timezone.utc)
        found[values.pop("query_id"), values.pop("item_id")] = values
    return found


def relevance_of(spark, events, **options):
    return judge(spark, events, EventSettings(as_of=AS_OF, **options))["q", "i"]["relevance"]


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
def test_the_worked_values(spark, rule, half_life, expected):
    got = relevance_of(spark, THREE, rule=rule, half_life=half_life)
    assert got == pytest.approx(expected, abs=1e-12)


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
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_pair_is_what_the_definition_says(spark, settings, seed):
    events = random_events(seed)
    expected, got = judged(events, settings), judge(spark, events, settings)
    assert got.keys() == expected.keys()
    for pair, its in expected.items():
        close = pytest.approx(its["relevance"], abs=1e-12) if settings.half_life else its["relevance"]
        assert got[pair] == {**its, "relevance": close}, pair


def test_a_decayed_sum_is_what_the_definition_says(spark):
    settings = EventSettings(grades=GRADES, rule="sum", cap=30, half_life=5, as_of=AS_OF + timedelta(hours=1))
    events = random_events(3)
    expected, got = judged(events, settings), judge(spark, events, settings)
    assert [got[pair]["relevance"] for pair in expected] == pytest.approx(
        [its["relevance"] for its in expected.values()], abs=1e-12
    )


SUM = EventSettings(
    grades={**GRADES, "view": 0.1}, rule="sum", cap=1000, half_life=3.3, as_of=AS_OF + timedelta(days=1)
)


@pytest.mark.parametrize("settings", [SUM, SETTINGS["best, half-life"], SETTINGS["event_id"], SETTINGS["time"]])
def test_order_and_partitions_do_not_change_a_bit(spark, settings):
    events = random_events(5)
    expected = judge(spark, events, settings, 1)
    for n_partitions in (2, 7):
        shuffled = random.Random(n_partitions).sample(events, len(events))
        assert judge(spark, shuffled, settings, n_partitions) == expected


def test_that_test_would_catch_a_sum_of_doubles():
    """The same values added as doubles: some of a few orders give another sum, so the test above can fail."""
    values = [0.5 ** (day / 3.3) * 0.1 for day in range(40)]
    assert len({sum(random.Random(seed).sample(values, len(values))) for seed in range(20)}) > 1


def test_a_sum_of_small_values_is_not_rounded_on_the_way(spark):
    """In doubles 1 + 2^-54 is 1, however often it is done."""
    events = [Event("one"), *[Event("tiny")] * 5]
    settings = EventSettings(grades={"one": 1.0, "tiny": 2.0**-54}, rule="sum", cap=2.0)
    got = judge(spark, events, settings, 1)["q", "i"]["relevance"]
    assert got == 1 + 2.0**-52  # 1 + 5 * 2^-54 lies nearer to it than to 1


# ------------------------------------------------------------------------------------------------------ rules


@pytest.mark.parametrize(
    ("events", "options", "relevance", "rule"),
    [
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
    ],
)
def test_rule(spark, events, options, relevance, rule):
    (found,) = judge(spark, events, EventSettings(grades=GRADES, as_of=AS_OF, **options)).values()
    assert (found["relevance"], found["rule"]) == (relevance, rule)


def test_the_window_has_its_begin_and_not_its_end(spark):
    events = [Event("view", 3), Event("cart", 2), Event("purchase", 1)]
    settings = EventSettings(start=AS_OF - timedelta(days=3), as_of=AS_OF - timedelta(days=1), rule="sum", cap=10)
    assert judge(spark, events, settings)["q", "i"]["relevance"] == 3.0


def test_a_pair_without_events_in_the_window_is_not_there(spark):
    assert judge(spark, [Event("view", 9)], EventSettings(start=AS_OF - timedelta(days=3))) == {}


def test_a_window_without_time_zone_is_utc():
    assert EventSettings(as_of=datetime(2026, 3, 1)).as_of_micros == EventSettings(as_of=AS_OF).as_of_micros


def test_the_time_zone_of_the_session_does_not_matter(spark):
    """Of timestamps without time zone, and of text; in New York 02:30 of 8 March 2026 does not exist."""
    texts = ["2026-03-08 02:30:00.000001", "2026-03-08T02:30:00Z", "2026-03-08", "2026-03-08 03:30:00+01:00"]
    rows = [("q", str(at), "view", text) for at, text in enumerate(texts)]
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        text = spark.createDataFrame(rows, "query_id string, item_id string, event string, ts string")
        found = judged_events(mark_text_table(text), EventSettings())
        plain = text.where("item_id in (0, 2)").withColumn("ts", F.col("ts").cast("timestamp_ntz"))
        both = [found, judged_events(plain, EventSettings())]
        micros = [
            {row[0]: row[1] for row in one.selectExpr("item_id", "unix_micros(first_ts)").collect()} for one in both
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    day = int(datetime(2026, 3, 8, tzinfo=timezone.utc).timestamp()) * 1_000_000
    half_past_two = day + 9_000_000_000
    assert micros[0] == {"0": half_past_two + 1, "1": half_past_two, "2": day, "3": half_past_two}
    assert micros[1] == {"0": half_past_two + 1, "2": day}


def test_the_main_job_reads_the_judgments(spark):
    events = [Event("purchase", item="a"), Event("view", item="b"), Event("impression", item="c")]
    judgments = judged_events(frame_of(spark, events), EventSettings())
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


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row(spark, row, reason):
    frame = spark.createDataFrame([Event("cart").row, row], EVENT_SCHEMA)
    message = refusal(judged_events(frame, EventSettings()))
    assert message.startswith(f"bad row: {reason} at query_id=")
    (kept,) = judged_events(frame, EventSettings(on_invalid="reject")).collect()
    assert (kept["relevance"], kept["n_events"]) == (2.0, 1)
    found = {row["reason"] for row in checked_events(frame, EventSettings()).collect()}
    assert found == {None, reason}


@pytest.mark.parametrize(
    ("options", "row", "reason"),
    [
        ({"dedup": "event_id"}, ("q", "i", "view", AS_OF, None, "u"), "null_event_id"),
        ({"dedup": "time", "dedup_seconds": 9}, ("q", "i", "view", AS_OF, "e", None), "null_user"),
    ],
)
def test_a_null_that_deduplication_needs(spark, options, row, reason):
    frame = spark.createDataFrame([row], EVENT_SCHEMA)
    assert f"bad row: {reason} at" in refusal(judged_events(frame, EventSettings(**options)))
    assert judged_events(frame, EventSettings()).count() == 1


def test_a_bad_row_is_found_when_only_the_keys_are_asked_for(spark):
    frame = spark.createDataFrame([Event("veiw").row], EVENT_SCHEMA)
    assert "unknown_event" in refusal(judged_events(frame, EventSettings()).select("query_id"))


def test_bad_rows_outside_the_window_are_not_looked_at(spark):
    frame = frame_of(spark, [Event("veiw", 9), Event("view", 1)])
    assert judged_events(frame, EventSettings(start=AS_OF - timedelta(days=3))).count() == 1


@pytest.mark.parametrize(
    ("columns", "error", "named"),
    [
        (EventColumns(query=("query",)), MissingColumnError, "'query_id'"),
        (EventColumns(item="item"), MissingColumnError, "'item_id'"),
        (EventColumns(event="type"), MissingColumnError, r"\(event=\)"),
        (EventColumns(ts="time"), MissingColumnError, r"\(ts=\)"),
        (EventColumns(event_id="id"), MissingColumnError, r"'id' \(event_id=\)"),
        (EventColumns(user="visitor"), MissingColumnError, r"'visitor' \(user=\)"),
        (EventColumns(ts="user_id"), InputRefusedError, "not a timestamp"),
        (EventColumns(item="tags"), InputRefusedError, r"'tags' \(item=\) is array<string>; cast it to text first"),
    ],
)
def test_a_column_that_does_not_fit(spark, columns, error, named):
    events = frame_of(spark, THREE).withColumn("tags", F.array("event"))
    with pytest.raises(error, match=named):
        judged_events(events, EventSettings(columns=columns))


@pytest.mark.parametrize(
    ("options", "column", "named"),
    [
        ({"dedup": "event_id"}, "event_id", r"'event_id' \(event_id=\)"),
        ({"dedup": "time", "dedup_seconds": 9}, "user_id", r"'user_id' \(user=\)"),
    ],
)
def test_a_column_that_deduplication_alone_needs_is_asked_for_by_it(spark, options, column, named):
    events = frame_of(spark, THREE).drop(column)
    assert "relevance" in from_events(events).columns
    with pytest.raises(MissingColumnError, match=named):
        judged_events(events, EventSettings(**options))


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
            "dedup_seconds=10000000000000 must lie between 1 and 10,000,000,000",
        ),
        ({"negative": "drop"}, "negative"),
        ({"columns": EventColumns(query=("event_id",)), "on_invalid": "skip"}, "on_invalid"),
    ],
)
def test_an_option_that_does_not_fit(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        EventSettings(**options)


@pytest.mark.parametrize(("query", "item"), [((), "i"), (("q", "q"), "i"), (("q",), "q"), (("Rule",), "i")])
def test_keys_that_do_not_fit(query, item):
    with pytest.raises(InvalidParameterError):
        EventColumns(query=query, item=item)


# ------------------------------------------------------------------------------------------------------- cost


def plan_text(frame):
    """Spark's plan, as `explain` prints it."""
    import io
    from contextlib import redirect_stdout

    text = io.StringIO()
    with redirect_stdout(text):
        frame.explain()
    return text.getvalue()


COSTS = [*SETTINGS.values(), SUM]


@pytest.mark.parametrize("settings", COSTS, ids=[*SETTINGS, "decayed sum"])
def test_one_shuffle_and_neither_sort_nor_python(spark, settings):
    text = plan_text(judged_events(frame_of(spark, THREE), settings))
    assert text.count("Exchange hashpartitioning") == text.count("Exchange") == 1
    for step in ("Sort", "Python", "Arrow", "ObjectHashAggregate"):
        assert step not in text


def test_the_window_reaches_the_files(spark, tmp_path):
    frame_of(spark, THREE).write.parquet(str(tmp_path / "events"))
    events = spark.read.parquet(str(tmp_path / "events"))
    text = plan_text(judged_events(events, EventSettings(start=AS_OF, as_of=AS_OF + timedelta(days=1))))
    (pushed,) = [line for line in text.splitlines() if "PushedFilters" in line]
    assert "GreaterThanOrEqual(ts" in pushed
    assert "LessThan(ts" in pushed
