"""Times and dates in Spark expressions: any instant, any time zone of the session, ANSI mode on and off.

The expected values are those of Python's `datetime`. Many values share a DataFrame, so that an example is one job.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from support.spark_rankings import session_settings

from ndcg_spark import evaluate
from ndcg_spark.core.columns import format_utc, mark_text_table, time_column
from ndcg_spark.history.settings import RollUpSettings
from ndcg_spark.history.tasks.period_sums import list_periods
from ndcg_spark.judgments.frames import judge_events
from ndcg_spark.judgments.settings import EventSettings

BY_ITEM = "default;ties=item_asc"
EPOCH = datetime(1970, 1, 1)
MICRO = timedelta(microseconds=1)
ZONES = ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Europe/Berlin"]
AWKWARD = [
    datetime(1970, 1, 1, 0, 36),  # 36 minutes are 2,160,000,000 microseconds, more than an int holds
    datetime(1970, 1, 1, 23, 59, 59, 999999),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1900, 2, 28, 23, 59, 59, 1),  # no leap year
    datetime(2000, 2, 29, 12, 35, 47, 483648),
    datetime(2024, 2, 29, 23, 36),
    datetime(2026, 3, 8, 2, 30),  # skipped in New York
    datetime(2026, 11, 1, 1, 30, 0, 1),  # twice in New York
    datetime(2011, 12, 30, 12, 0),  # a day that Apia never had
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]

sessions = st.fixed_dictionaries(
    {"spark__sql__session__timeZone": st.sampled_from(ZONES), "spark__sql__ansi__enabled": st.booleans()}
)
many_instants = st.lists(st.datetimes(), min_size=50, max_size=200)
in_new_york = {"spark__sql__session__timeZone": "America/New_York", "spark__sql__ansi__enabled": True}
in_apia_without_ansi = {"spark__sql__session__timeZone": "Pacific/Apia", "spark__sql__ansi__enabled": False}
few = settings(max_examples=2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""To shrink an example of many values would take minutes; what differs is shown."""


def count_micros(instant: datetime) -> int:
    return (instant - EPOCH) // MICRO


def create_texts(spark, values):
    """Create a column `ts` of texts and their number, `at`, as read from CSV."""
    return mark_text_table(spark.createDataFrame(list(enumerate(values)), "at int, ts string"))


def read_micros(frame):
    time = time_column(frame, "ts", "ts", "events")
    return dict(frame.select("at", time.micros.alias("micros")).collect())


@few
@given(instants=many_instants, session=sessions)
@example(instants=AWKWARD, session=in_new_york)
@example(instants=AWKWARD, session=in_apia_without_ansi)
def test_timestamps_without_time_zone_are_utc(spark, instants, session):
    """As timestamps and as text."""
    with session_settings(spark, **session):
        rows = create_texts(spark, [instant.isoformat(sep=" ") for instant in instants])
        plain = rows.withColumn("ts", F.col("ts").cast("timestamp_ntz"))
        expected = {at: count_micros(instant) for at, instant in enumerate(instants)}
        assert read_micros(plain) == expected
        assert read_micros(rows) == expected


@few
@given(
    instants=st.lists(
        st.tuples(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), st.integers(-18 * 3600, 18 * 3600)),
        min_size=50,
        max_size=200,
    ),
    session=sessions,
)
@example(instants=[(instant, -5 * 3600) for instant in AWKWARD[:-2]], session=in_new_york)
def test_text_with_an_offset_is_that_instant(spark, instants, session):
    """Offsets of hours, minutes and seconds, in all forms that Spark reads."""
    written, expected = [], {}
    for instant, offset in instants:
        local_text = (instant + timedelta(seconds=offset)).isoformat(sep="T")
        sign, rest = "-" if offset < 0 else "+", abs(offset)
        hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
        exact = f"{sign}{hours:02}:{minutes:02}:{seconds:02}"
        forms = [exact, f" {exact}", f"UTC{exact}", f" GMT{exact}"]
        if not seconds:
            forms += [f"{sign}{hours:02}:{minutes:02}", f"UTC{sign}{hours:02}:{minutes:02}"]
        if not rest % 3600:
            forms += [f"{sign}{hours:02}", f"GMT{sign}{hours}", f" UTC{sign}{hours}"]
        for form in forms:
            expected[len(written)] = count_micros(instant)
            written.append(local_text + form)
    with session_settings(spark, **session):
        assert read_micros(create_texts(spark, written)) == expected


@few
@given(
    instants=st.lists(
        st.tuples(st.datetimes(datetime(1996, 1, 1), datetime(2026, 1, 1)), st.sampled_from(ZONES)),
        min_size=50,
        max_size=200,
    ),
    session=sessions,
)
def test_text_with_the_name_of_a_zone_is_that_instant(spark, instants, session):
    written, expected = [], {}
    for instant, zone in instants:
        local = instant.replace(tzinfo=timezone.utc).astimezone(ZoneInfo(zone))
        if local.utcoffset() == local.replace(fold=1 - local.fold).utcoffset():  # else it occurs twice on the clock
            expected[len(written)] = count_micros(instant)
            written.append(f"{local.replace(tzinfo=None).isoformat(sep=' ')} {zone}")
    with session_settings(spark, **session):
        assert read_micros(create_texts(spark, written)) == expected


def test_other_text_is_not_an_instant(spark):
    """A time of day without a date would be an instant of today."""
    none = ["", "12:30", "12:30:00Z", "T12:30:00+01:00", "yesterday", "2026-02-30", "2026-02-29 12:00:00Z", None]
    for ansi in ("true", "false"):
        with session_settings(spark, spark__sql__ansi__enabled=ansi):
            actual = read_micros(create_texts(spark, none))
        assert actual == dict.fromkeys(range(len(none)))


@few
@given(
    instants=st.lists(
        st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), min_size=30, max_size=100, unique=True
    ),
    seconds=st.sampled_from([1, 7, 1800, 2160, 86_400, 100_000_000]),
    kind=st.sampled_from(["timestamp", "timestamp_ntz", "string"]),
    session=sessions,
)
@example(instants=AWKWARD[:-2], seconds=2160, kind="timestamp_ntz", session=in_new_york)
@example(instants=AWKWARD[:-2], seconds=7, kind="timestamp", session=in_apia_without_ansi)
def test_windows_and_intervals_of_events(spark, instants, seconds, kind, session):
    """Each item has two views, a minute apart; views of one interval, counted from 1970, are one event."""
    start, as_of = sorted(instants)[len(instants) // 4], sorted(instants)[-(len(instants) // 4) or -1]
    rows, expected = [], {}
    for item, first in enumerate(instants):
        pair = [first, first + timedelta(seconds=60)]
        rows += [("q", item, "view", "u", side.isoformat(sep=" ")) for side in pair]
        inside = [count_micros(side) for side in pair if start <= side < as_of]
        if inside:
            intervals = {micro // (seconds * 1_000_000) for micro in inside}
            last = max(
                min(micro for micro in inside if micro // (seconds * 1_000_000) == interval) for interval in intervals
            )
            expected[item] = (inside[0], last, len(intervals), len(inside) - len(intervals))
    with session_settings(spark, **session):
        events = spark.createDataFrame(rows, "query_id string, item_id int, event string, user_id string, ts string")
        if kind == "timestamp":
            events = events.withColumn("ts", F.concat("ts", F.lit("Z")).cast(kind))
        events = events.withColumn("ts", F.col("ts").cast(kind))
        settings = EventSettings(start=start, as_of=as_of, dedup="time", dedup_seconds=seconds)
        actual = judge_events(mark_text_table(events), settings)
        actual = actual.selectExpr(
            "item_id", "struct(unix_micros(first_ts), unix_micros(last_ts), n_events, n_duplicates)"
        )
        assert {item: tuple(values) for item, values in actual.collect()} == expected


@few
@given(
    seen=st.lists(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), min_size=30, max_size=100),
    as_of=st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    kind=st.sampled_from(["timestamp", "timestamp_ntz", "date"]),
    session=sessions,
)
@example(seen=AWKWARD[:-2], as_of=date(2024, 3, 1), kind="timestamp", session=in_new_york)
@example(seen=AWKWARD[:-2], as_of=date(2026, 12, 31), kind="timestamp", session=in_apia_without_ansi)
def test_days_since_an_item_was_first_seen(spark, seen, as_of, kind, session):
    """Days are in UTC for any zone of the session. Items of the future are 0 days old."""
    with session_settings(spark, **session):
        rows = [(f"q{at}", at, 1.0, 1.0, first_seen.isoformat(sep=" ")) for at, first_seen in enumerate(seen)]
        frame = spark.createDataFrame(
            rows, "query_id string, item_id int, score double, relevance double, seen string"
        )
        ts = F.concat("seen", F.lit("Z")) if kind == "timestamp" else F.col("seen")
        items = frame.select("item_id", ts.cast(kind).alias("first_seen"))
        evaluation = evaluate(
            frame.drop("seen"), k=1, metrics="first_appearance", items=items, as_of=as_of, convention=BY_ITEM
        )
        days = {row["query_id"]: row["first_appearance"] for row in evaluation.per_query.collect()}
    assert days == {f"q{at}": max(0, (as_of - first_seen.date()).days) for at, first_seen in enumerate(seen)}


@few
@given(instants=many_instants, session=sessions)
@example(instants=AWKWARD, session=in_new_york)
def test_the_minute_of_a_report_is_that_of_utc(spark, instants, session):
    with session_settings(spark, **session):
        rows = spark.createDataFrame(
            [(at, count_micros(instant)) for at, instant in enumerate(instants)], "at int, micros bigint"
        )
        actual = dict(rows.select("at", format_utc(F.timestamp_micros("micros"))).collect())
    assert actual == {at: f"{instant.isoformat(sep=' ')[:16]} UTC" for at, instant in enumerate(instants)}


@few
@given(nights=st.lists(st.dates(date(1, 2, 1), date(9999, 11, 30)), min_size=30, max_size=150, unique=True))
@example(nights=[date(1900, 2, 28), date(2000, 2, 29), date(1969, 12, 31), date(2024, 12, 30), date(2024, 2, 29)])
def test_the_periods_of_a_night(nights):
    settings, day = RollUpSettings(periods=("week", "month", "rolling_7")), timedelta(days=1)
    for night in nights:
        monday, first = night - night.weekday() * day, night.replace(day=1)
        expected = [
            ("week", monday, monday + 6 * day),
            ("month", first, night.replace(day=monthrange(night.year, night.month)[1])),
            *(("rolling_7", night + (ahead - 6) * day, night + ahead * day) for ahead in range(7)),
        ]
        assert list_periods(night, date(9999, 12, 31), settings) == expected
