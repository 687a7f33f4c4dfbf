"""`build-judgments`: output, its use by the main job, counts and refusals."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest
from support.main_job import (
    assert_refused,
    find_value,
    read_files,
    read_stored_rows,
    run_command,
    run_mean_ndcg,
    write_table,
)

NIGHT = ("--run-date", "2026-03-01", "--dataset", "shop")
TS = pa.timestamp("us", tz="UTC")
EVENT_NAMES = ("query_id", "item_id", "event", "ts", "event_id", "user_id")
EVENTS = [
    ("q", "a", "view", 26, "1", "u"),
    ("q", "a", "purchase", 27, "2", "u"),
    ("q", "a", "purchase", 27, "2", "u"),
    ("q", "b", "cart", 27, "3", "u"),
    ("q", "b", "dislike", 28, "4", "u"),
    ("q", "c", "impression", 20, "5", "u"),
    ("q", "d", "impression", 1, "6", "u"),
]
RATING_NAMES = ("query_id", "item_id", "annotator", "relevance", "weight")
RATINGS = [
    ("q", f"i{item}", f"a{who}", float(value), 1.0)
    for item, values in enumerate([[3, 3, 2], [0, 1, 0], [-1, -1], [2], [1, 2, 2]])
    for who, value in enumerate(values)
]


def write(path, rows, names, types=()):
    return write_table(path, dict(zip(names, zip(*rows, strict=True), strict=True)), dict(types))


def write_events(path, rows=EVENTS):
    timed = [(*row[:3], row[3] and datetime(2026, 2, row[3], tzinfo=timezone.utc), *row[4:]) for row in rows]
    return write(path, timed, EVENT_NAMES, {"ts": TS})


def write_ratings(path, rows=RATINGS):
    return write(path, rows, RATING_NAMES)


def run_events(*arguments):
    return run_command("build-judgments", "events", *arguments)


def run_annotators(*arguments):
    return run_command("build-judgments", "annotators", *arguments)


GRADES = ("--grades", "view=1,cart=2,purchase=3,dislike=-1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("judgments")


@pytest.fixture(scope="module")
def events(folder):
    return write_events(folder / "events.parquet")


@pytest.fixture(scope="module")
def ratings(folder):
    return write_ratings(folder / "ratings.parquet")


# ------------------------------------------------------------------------------------------------ what it writes


@pytest.mark.usefixtures("spark")
def test_events_become_judgments_that_the_main_job_reads(folder, events, tmp_path):
    options = (*GRADES, "--from", "2026-02-15", "--as-of", "2026-03-01", "--dedup", "event_id", "--rule", "sum")
    ended = run_events("--input", events, *options, *NIGHT, "--output", tmp_path / "judgments", "--json", "-")
    assert (ended.code, ended.complaints) == (0, [])
    actual = {row["item_id"]: row for row in read_stored_rows(tmp_path / "judgments")}
    assert {item: (row["relevance"], row["rule"]) for item, row in actual.items()} == {
        "a": (3.0, "sum"),  # 1 + 3, at most 3
        "b": (-1.0, "negative"),
        "c": (0.0, "impressions"),
    }
    assert (actual["a"]["n_events"], actual["a"]["n_duplicates"], actual["b"]["event"]) == (2, 1, "dislike")
    assert str(actual["a"]["first_ts"]) == "2026-02-26 00:00:00"
    assert ended.json["rows"] == {
        **{"events": 4, "impressions": 1, "duplicates": 1},
        **{"rejected": 0, "rejected_by_reason": {}},
    }
    assert ended.json["by_rule"] == {"impressions": 1, "negative": 1, "sum": 1}
    assert "events: 6 in the window = 4 graded + 1 impressions + 1 repeated + 0 rejected" in ended.out
    run = write(folder / "run.parquet", [("q", "b", 3.0), ("q", "a", 2.0)], ("query_id", "item_id", "score"))
    judged = ("--input", run, "--judgments", tmp_path / "judgments", "--k", 2, "--json", "-")
    clipped = find_value(run_mean_ndcg(*judged, "--negative", "clip").json, "ndcg", 2)
    assert clipped == pytest.approx(0.630929753571)  # 7 / log2(3) over 7
    value_with_negatives = find_value(run_mean_ndcg(*judged, "--negative", "keep").json, "ndcg", 2)
    assert value_with_negatives == pytest.approx(0.559501182143)  # 2^-1 - 1 less, over 7


@pytest.mark.usefixtures("spark")
def test_ratings_become_judgments_and_disputes(folder, ratings, tmp_path):
    outputs = (
        "--output",
        tmp_path / "judgments",
        "--disputes",
        tmp_path / "disputes",
        "--json",
        tmp_path / "out.json",
    )
    ended = run_annotators("--input", ratings, "--rule", "majority", *NIGHT, *outputs)
    assert (ended.code, ended.complaints) == (0, [])
    actual = {row["item_id"]: row for row in read_stored_rows(tmp_path / "judgments")}
    assert {item: row["relevance"] for item, row in actual.items()} == {"i0": 3, "i1": 0, "i2": -1, "i3": 2, "i4": 2}
    assert actual["i0"]["decided_by"] == ["a0", "a1"]
    assert read_stored_rows(tmp_path / "disputes") == []
    assert "Krippendorff's alpha (ordinal) 0.8585, 11 ratings of 4 items" in ended.out
    again = write_ratings(folder / "more.parquet", [*RATINGS, ("q", "i3", "a9", 0.0, 1.0)])
    assert run_annotators("--input", again, *NIGHT, *outputs).code == 0
    assert [row["item_id"] for row in read_stored_rows(tmp_path / "disputes")] == ["i3"]
    assert len(read_stored_rows(tmp_path / "judgments")) == 5  # the night was replaced


@pytest.mark.usefixtures("spark")
def test_csv(folder):
    rows = [("007", "a", "view", "2026-02-01 12:00:00"), ("007", "a", "cart", "2026-02-02T00:00:00+02:00")]
    path = write(folder / "events.csv", rows, EVENT_NAMES[:4])
    ended = run_events("--input", path, "--rule", "last", "--json", "-")
    assert (ended.code, ended.json["by_rule"]) == (0, {"last": 1})
    bad = write(folder / "bad.csv", [*rows, ("007", "a", "view", "yesterday")], EVENT_NAMES[:4])
    bad.write_text(bad.read_text() + "007,b,view,2026-02-03 00:00:00,one more\n")
    reasons = ("ts_not_a_timestamp 1", "malformed_line 1")
    assert_refused(run_events("--input", bad), "2 bad rows of 4", *reasons, "query_id=007")


@pytest.mark.usefixtures("spark")
def test_explain_runs_nothing(events, ratings, tmp_path):
    for ended in (
        run_events("--input", events, "--output", tmp_path / "out", "--explain"),
        run_annotators("--input", ratings, "--output", tmp_path / "out", "--explain"),
    ):
        assert ended.code == 0
        assert f"would write  judgments to {tmp_path / 'out'}" in ended.out
        assert ended.out.endswith("Nothing was run.\n")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- bad rows

BAD_EVENTS = [
    (("q", "a", "veiw", 27, "7", "u"), "unknown_event"),
    ((None, "a", "view", 27, "7", "u"), "null_query"),
    (("q", None, "view", 27, "7", "u"), "null_item"),
    (("q", "a", None, 27, "7", "u"), "null_event"),
    (("q", "a", "view", None, "7", "u"), "null_ts"),
]
BAD_RATINGS = [
    (("q", "i0", "b", float("nan"), 1.0), "nan_relevance"),
    (("q", "i0", "b", 1.0, -1.0), "bad_weight"),
    (("q", "i0", None, 1.0, 1.0), "null_annotator"),
]


@pytest.mark.usefixtures("spark")
def test_bad_events_stop_the_job_or_are_counted(folder, tmp_path):
    path = write_events(folder / "bad_events.parquet", [*EVENTS, *[row for row, _ in BAD_EVENTS]])
    reasons = [reason for _, reason in BAD_EVENTS]
    outputs = ("--output", tmp_path / "judgments", "--json", tmp_path / "out.json")
    assert_refused(run_events("--input", path, *GRADES, *outputs), "5 bad rows of 12 in the events", *reasons)
    assert list(tmp_path.iterdir()) == []
    rejecting = ("--on-invalid", "reject", "--rejects", tmp_path / "rejects")
    ended = run_events("--input", path, *GRADES, *outputs[:2], *rejecting, "--json", "-")
    assert ended.json["rows"]["rejected_by_reason"] == dict.fromkeys(sorted(reasons), 1)
    assert sorted(row["reason"] for row in read_stored_rows(tmp_path / "rejects")) == sorted(reasons)
    assert ended.json["judgments"] == len(read_stored_rows(tmp_path / "judgments")) == 4
    limited = run_events("--input", path, *GRADES, "--on-invalid", "reject", "--max-reject-fraction", 0.1)
    assert_refused(limited, "5 bad rows of 12", "--max-reject-fraction 0.1")


@pytest.mark.usefixtures("spark")
def test_bad_ratings_stop_the_job_or_are_counted(folder, tmp_path):
    weightless = ("q", "i0", "a9", 3.0, 0.0)
    path = write_ratings(folder / "bad_ratings.parquet", [*RATINGS, weightless, *[row for row, _ in BAD_RATINGS]])
    reasons = [reason for _, reason in BAD_RATINGS]
    options = ("--input", path, "--weight-col", "weight")
    ended = run_annotators(*options, "--output", tmp_path / "judgments")
    assert_refused(ended, "3 bad rows of 16 in the ratings", *reasons)
    assert list(tmp_path.iterdir()) == []
    ended = run_annotators(*options, "--on-invalid", "reject", "--json", "-")
    assert ended.json["rows"] == {
        **{"ratings": 12, "zero_weight": 1, "rejected": 3},
        "rejected_by_reason": dict.fromkeys(sorted(reasons), 1),
    }
    assert "ratings: 12 used, 1 of weight 0, 3 rejected" in ended.out


@pytest.mark.usefixtures("spark")
def test_an_annotator_who_rated_twice(folder, tmp_path):
    path = write_ratings(folder / "twice.parquet", [*RATINGS, RATINGS[0]])
    ended = run_annotators("--input", path, "--output", tmp_path / "judgments", "--on-invalid", "reject")
    assert_refused(ended, "'a0' rated query_id=q, item_id=i0 twice", "Nothing was written")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_empty_results_do_not_replace_stored_ones(events, tmp_path):
    options = ("--input", events, *GRADES, *NIGHT, "--output", tmp_path / "judgments")
    assert run_events(*options).code == 0
    before = read_files(tmp_path)
    assert_refused(run_events(*options, "--from", "2026-12-01"), "no events", "--allow-empty")
    assert read_files(tmp_path) == before
    assert run_events(*options, "--from", "2026-12-01", "--allow-empty").code == 0
    assert read_stored_rows(tmp_path / "judgments") == []


# --------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--grades", "view"), ("--grades must look like view=1,cart=2", "'view'")),
        (("--grades", "view=one"), ("--grades", "'view=one'")),
        (("--grades", "view=1,view=2"), ("--grades", "twice")),
        (("--grades", "view=nan"), ("'view'", "nan")),
        (("--rule", "first"), ("--rule", "'first'", "best")),
        (("--as-of", "today"), ("--as-of", "'today'")),
        (("--half-life", "7"), ("--half-life", "--as-of")),
        (("--dedup", "time"), ("--dedup-seconds",)),
        (("--rejects", "r"), ("--rejects", "--on-invalid reject")),
        (("--output", "o", "--on-invalid", "reject", "--rejects", "o"), ("--output", "--rejects", "'o'")),
        (("--json", "/no/such/folder/out.json"), ("--json",)),
        (("--query-col", "a,a"), ("a, a",)),
        (("--tie", "lower"), ("--tie",)),
    ],
    ids=" ".join,
)
def test_option_of_events(options, named):
    assert_refused(run_events("--input", "nowhere/at/all", *options), *named)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--rule", "mode"), ("--rule", "'mode'", "majority")),
        (("--tie", "random"), ("--tie", "'random'")),
        (("--dispute-range", "0"), ("--dispute-range 0",)),
        (("--output", "o", "--disputes", "o"), ("--output", "--disputes", "'o'")),
    ],
    ids=" ".join,
)
def test_option_of_annotators(options, named):
    assert_refused(run_annotators("--input", "nowhere/at/all", *options), *named)


@pytest.mark.usefixtures("spark")
def test_unsuitable_tables_are_refused(events, ratings, tmp_path):
    refused = {
        run_events("--input", ratings): ("'event'", "event-col"),
        run_events("--input", events, "--ts-col", "event"): ("'event'", "not a timestamp"),
        run_annotators("--input", events): ("'annotator'", "annotator-col"),
        run_events("--input", events, "--output", events): (str(events),),
        run_events("--input", "/no/such/folder"): ("'/no/such/folder'",),
    }
    for ended, named in refused.items():
        assert_refused(ended, *named)


@pytest.mark.parametrize("words", [(), ("visitors",)], ids=len)
def test_unknown_commands_are_refused(words):
    assert_refused(run_command("build-judgments", *words), *(f"'{word}'" for word in words), "ommand")
