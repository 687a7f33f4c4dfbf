"""Outputs of the main job that it must not write: over what it reads, over what is not its own, or only in part.

This machine does the job, but for places that only Spark knows.
"""

from __future__ import annotations

import os
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.disks import to_viewfs
from support.engines import parametrize_engine
from support.main_job import (
    assert_refused,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_mean_ndcg,
    write_rows,
    write_table,
)
from support.oracle import build_ranking

from ndcg_spark.errors import InvalidParameterError, OutputRefusedError
from ndcg_spark.evaluation.frames.ranking import Ranking
from ndcg_spark.jobs.logs import Progress
from ndcg_spark.jobs.outputs import write_all
from ndcg_spark.jobs.places import check_file

ROWS = build_ranking([3, 2, 3, 0, 1, 2])
ON_SPARK = ("--run-date", "2026-01-31", "--dataset", "in", "--k", "3")
NIGHT = (*ON_SPARK, "--engine", "local")


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """A folder of logs in a working folder; the test runs there, and so does Spark, which has its own."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "logs" / "a.parquet", ROWS)
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    return tmp_path / "logs"


def refused(logs: Path, *arguments: object, night: tuple[str, ...] = NIGHT) -> None:
    """Refused, with every file below the working folder as it was."""
    before = read_files(logs.parent)
    ended = mean_ndcg(*arguments, *night)
    assert_refused(ended)
    assert "--engine local cannot" not in ended.err
    assert read_files(logs.parent) == before


# ------------------------------------------------------------------------------------------ over what is read


PLAIN = [
    ("{logs}", "file:{logs}"),
    ("{logs}", "file://{logs}"),
    ("{logs}", "{root}/x/../logs"),
    ("{logs}", "{root}/link"),
    ("{root}/link", "{logs}"),
    ("{logs}/a.parquet", "{logs}"),
    ("{logs}", "{logs}/metrics"),
    ("{logs}", "{root}"),
    ("file:{logs}", "{root}/link/deep/metrics"),
]
OF_SPARK = [
    ("{logs}/*.parquet", "{logs}"),
    ("{root}/l*", "{logs}"),
    ("{root}/*", "{root}/metrics"),
    ("SELECT * FROM parquet.`{logs}`", "{logs}"),
]


BOTH = [(*pair, flag) for pair in PLAIN for flag in ("--output", "--per-query-output")]


@parametrize_engine("read, written, flag", local=BOTH, spark=[(*pair, "--output") for pair in (PLAIN[3], *OF_SPARK)])
def test_output_over_input(engine, logs, read, written, flag):
    places = {"logs": logs, "root": logs.parent}
    night = (*ON_SPARK, "--engine", engine["engine"])
    refused(logs, "--input", read.format(**places), flag, written.format(**places), night=night)


def test_output_over_judgments(logs):
    judgments = logs.parent / "judgments"
    write_rows(judgments / "a.parquet", ROWS, ("query_id", "item_id", "relevance"))
    refused(logs, "--input", logs, "--judgments", judgments, "--output", f"file:{judgments}")


def test_output_over_the_files_of_an_input_table(spark, logs):
    spark.sql(f"CREATE TABLE logs_table USING parquet LOCATION 'file:{logs}'")
    try:
        refused(logs, "--input", "logs_table", "--output", logs, night=ON_SPARK)
        refused(logs, "--input", logs, "--output", "logs_table", night=ON_SPARK)
        refused(logs, "--input", "logs_table", "--output", "DEFAULT.logs_TABLE", night=ON_SPARK)
    finally:
        spark.sql("DROP TABLE logs_table")


@pytest.mark.parametrize("places", [("m", "m/q"), ("m/q", "m"), ("m", "link2/../m")])
def test_one_output_in_another(logs, places):
    actual = [logs.parent / place for place in places]
    refused(logs, "--input", logs, "--output", actual[0], "--per-query-output", actual[1])


def test_one_output_in_another_by_the_name_of_a_table(spark, logs):
    places = ("--output", "new_metrics", "--per-query-output", "default.NEW_metrics")
    refused(logs, "--input", logs, *places, night=ON_SPARK)


@pytest.mark.parametrize("place", ["logs/a.parquet", "logs/out.json", "metrics/out.json"])
def test_json_over_input_or_in_an_output(logs, place):
    (logs.parent / "metrics").mkdir()
    refused(logs, "--input", logs, "--output", logs.parent / "metrics", "--json", logs.parent / place)


def test_a_neighbour_of_the_input_is_no_conflict(spark, logs):
    run_mean_ndcg("--input", logs / "a.parquet", "--output", logs.parent / "logs-metrics", *NIGHT)
    run_mean_ndcg("--input", f"{logs.parent}/lo*/*.parquet", "--output", logs.parent / "metrics", *ON_SPARK)
    assert read_stored_rows(logs.parent / "metrics")


# ----------------------------------------------------------------------------------------- over what is not ours


def write_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [1]}), path)


@pytest.mark.parametrize(
    "name",
    [
        "part-0.parquet",
        "notes.txt",
        "country=DE/part-0.parquet",
        "run_date=2026-01-30/part-0.parquet",
        "run_date=2026-01-30/hour=3/part-0.parquet",
        "run_date=2026-01-30/slice=a/slice=a/part-0.parquet",
        "run_date=2026-01-30/slice=a/part-0.parquet",
        "run_date=2026-01-30/slice=a/part-0.orc",
        "run_date=yesterday/slice=a/part-0.parquet",
    ],
)
def test_a_folder_of_something_else(logs, name):
    write_file(logs.parent / "m" / name)
    refused(logs, "--input", logs / "a.parquet", "--output", logs.parent / "m")


@pytest.fixture
def metrics(logs):
    """A metric table that has one night."""
    run_mean_ndcg("--input", logs, "--output", logs.parent / "met", *NIGHT)
    return logs.parent / "met"


@pytest.mark.parametrize(
    "place", ["{root}/met/run_date=2026-01-09", "file:{root}/to_met/run_date=2026-01-31/slice=x", "{root}/met/a/b"]
)
def test_a_place_inside_another_table(logs, metrics, place):
    """What is written there would make a table that can neither be read nor written any more."""
    (logs.parent / "to_met").symlink_to(metrics)
    reference, before = place.format(root=logs.parent), read_files(logs.parent)
    ended = mean_ndcg("--input", logs, "--per-query-output", reference, *NIGHT)
    assert_refused(ended, f"{reference!r} is inside {str(metrics)!r}, which contains nights of another table")
    assert read_files(logs.parent) == before


def test_a_file_inside_a_table(logs, metrics):
    refused(logs, "--input", logs, "--json", metrics / "night.json")
    run_mean_ndcg("--input", logs, "--output", metrics, "--run-date", "2026-02-01", *NIGHT[2:])


def test_a_place_inside_another_table_that_only_spark_reaches(spark, logs, metrics):
    """As of a store: this process looks at no folder itself."""
    before = read_files(logs.parent)
    ended = mean_ndcg("--input", logs, "--output", to_viewfs(metrics / "run_date=2026-01-09"), *ON_SPARK)
    assert_refused(ended, "is inside", f"{to_viewfs(metrics)}', which contains nights of another table")
    assert read_files(logs.parent) == before
    run_mean_ndcg("--input", logs, "--output", to_viewfs(metrics.parent / "new" / "run_date=2026-01-09"), *ON_SPARK)


def test_a_table_beside_others_is_inside_none(logs, metrics):
    """Neither are folders of other things above it that have partitions."""
    write_file(logs.parent / "run_date=2026-01-31" / "a.parquet")
    run_mean_ndcg("--input", logs, "--output", logs.parent / "env=prod" / "met", *NIGHT)
    run_mean_ndcg("--input", logs, "--output", logs.parent / "env=test" / "met", *NIGHT)
    assert read_stored_rows(logs.parent / "env=test" / "met")


def test_another_format_in_one_folder(logs):
    more = ("--input", logs, "--output", logs.parent / "m")
    run_mean_ndcg(*more, *NIGHT)
    for kind in ("json", "orc"):
        ended = mean_ndcg(*more, "--output-format", kind, "--run-date", "2026-02-01")
        assert_refused(ended, f"outputs are written as parquet, table, delta, iceberg, not {kind!r}")


@parametrize_engine("kind", local=["parquet"], spark=["table"])
def test_keys_of_another_type_in_one_table(request, engine, logs, kind):
    place = "typed_queries" if kind == "table" else logs.parent / "q"
    columns = {"item_id": ["a"], "score": [1.0], "relevance": [1]}
    numbers = write_table(logs.parent / "numbers.parquet", {"query_id": [7], **columns})
    texts = write_table(logs.parent / "texts.parquet", {"query_id": ["7"], **columns})
    more = ("--per-query-output", place, "--per-query-format", kind, *ON_SPARK, "--engine", engine["engine"])
    if kind == "table":
        drop = "DROP TABLE IF EXISTS typed_queries"
        request.addfinalizer(lambda: request.getfixturevalue("spark").sql(drop))
    run_mean_ndcg("--input", numbers, *more)
    run_mean_ndcg("--input", numbers, *more)
    before = read_files(logs.parent)
    ended = mean_ndcg("--input", texts, *more, "--run-date", "2026-02-01")
    assert_refused(ended, "'query_id'", "bigint", "string")
    assert read_files(logs.parent) == before


def test_other_columns_in_one_folder(logs):
    more = ("--input", logs, "--per-query-output", logs.parent / "q", *NIGHT)
    run_mean_ndcg(*more)
    ended = mean_ndcg(*more, "--tie-bounds", "--ties", "expected", "--schema", "strict")
    assert_refused(ended, "ndcg_best")


# ------------------------------------------------------------------------------------------------ reserved names


@pytest.mark.parametrize("name", ["dataset", "Run_Date", "SLICE"])
@pytest.mark.parametrize("flag", ["--query-col", "--segment-cols"])
def test_columns_that_storing_would_overwrite(logs, name, flag):
    shutil.rmtree(logs)
    write_rows(logs / "a.parquet", ROWS, **{name: lambda _: "DE"})
    named = f"{name},query_id" if flag == "--query-col" else name
    before = read_files(logs.parent)
    ended = mean_ndcg("--input", logs, flag, named, "--per-query-output", logs.parent / "q", *NIGHT)
    assert_refused(ended, f"'{name}'", "rename")
    assert read_files(logs.parent) == before


def test_such_columns_may_be_segments_of_the_metric_table(logs):
    write_rows(logs / "a.parquet", ROWS, dataset=lambda _: "DE")
    run_mean_ndcg("--input", logs, "--segment-cols", "dataset", "--output", logs.parent / "m", *NIGHT)
    stored = read_stored_rows(logs.parent / "m")
    assert {(row["segment_by"], row["segment"], row["dataset"]) for row in stored} == {
        ("", "", "in"),
        ("dataset", "DE", "in"),
    }


# ------------------------------------------------------------------------------------------- all outputs or none

UNWRITABLE = "/proc/metrics"
OF_CLASSIC = pytest.mark.classic(
    "a client of Connect takes a folder that it may not write for one of another machine"
)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write")
@pytest.mark.parametrize(
    ("engine", "flag"),
    [("local", "--output"), ("local", "--json"), pytest.param("spark", "--output", marks=OF_CLASSIC)],
    indirect=["engine"],
)
def test_what_cannot_be_written_is_found_before_anything_is(engine, logs, flag):
    bad = write_rows(logs.parent / "bad.parquet", ROWS, score=lambda row: row.score if row.score > 1 else None)
    places = {
        element: logs.parent / element[2:] for element in ("--output", "--per-query-output", "--rejects", "--json")
    }
    places[flag] = Path(UNWRITABLE)
    flags = [part for pair in places.items() for part in pair]
    before = read_files(logs.parent)
    entries = sorted(os.listdir(logs.parent))
    night = (*ON_SPARK, "--engine", engine["engine"])
    ended = mean_ndcg("--input", bad, "--on-invalid", "reject", *flags, *night)
    assert_refused(ended, UNWRITABLE)
    assert (sorted(os.listdir(logs.parent)), read_files(logs.parent)) == (entries, before)


def test_when_the_last_output_fails_none_is_written(engine, logs, monkeypatch):
    """The JSON cannot be put in its place, after everything else was."""

    def replace(self, target):
        raise OSError(28, "No space left on device")

    root = logs.parent
    flags = ("--output", root / "m", "--per-query-output", root / "q", "--json", root / "out.json", *ON_SPARK)
    flags += ("--engine", engine["engine"])
    run_mean_ndcg("--input", logs, *flags)
    before = read_files(root)
    write_rows(logs / "a.parquet", build_ranking([0, 1]))
    before["logs/a.parquet"] = (logs / "a.parquet").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        assert_refused(mean_ndcg("--input", logs, *flags), "out.json", "No space left")
    assert read_files(root) == before


def test_when_a_table_is_being_written_no_output_is(spark, logs):

    from ndcg_spark.tables import Slices, stage_slices

    root = logs.parent
    frame = spark.createDataFrame([("", 1)], "run string, value int")
    held = stage_slices(frame, str(root / "m"), None, Slices.for_night(date(2026, 1, 31), "in", [""]))
    try:
        ended = mean_ndcg("--input", logs, "--output", root / "m", "--per-query-output", root / "q", *ON_SPARK)
    finally:
        held.close()
    assert_refused(ended, "is being written by process", str(os.getpid()))
    assert sorted(os.listdir(root)) == ["link", "logs"]


@pytest.mark.classic("asks Java what it keeps")
def test_rows_that_were_kept_are_let_go_of_whatever_fails_next(spark, logs, monkeypatch):
    kept = spark._jsparkSession.sharedState().cacheManager()
    spark.catalog.clearCache()  # of tests that failed
    nothing_kept = [kept.isEmpty()]

    def fail(*_: object, **options: object) -> None:
        nothing_kept.append(kept.isEmpty())
        raise RuntimeError("no means")

    monkeypatch.setattr(Ranking, "summary", fail)
    ended = mean_ndcg("--input", logs, "--per-query-output", logs.parent / "q", *ON_SPARK)
    assert (ended.code, ended.err.splitlines()[-1]) == (1, "RuntimeError: no means")
    assert [*nothing_kept, kept.isEmpty()] == [True, False, True]


def write_json(path: Path) -> None:
    write_all([], [("JSON", str(path), "{}")], {}, Progress())


def test_what_killed_jobs_left_of_a_json_file_is_removed_after_a_while(tmp_path):
    names = ["out.json.17.unfinished", "out.json.18.unfinished", "a.out.json.17.unfinished", "out.json.x.unfinished"]
    for name in (*names, "outxjson.17.unfinished", "out.json.17.unfinished.txt"):
        (tmp_path / name).write_text("{")
        os.utime(tmp_path / name, (1e9, 1e9))
    os.utime(tmp_path / "out.json.18.unfinished")  # a job that is at work, maybe on another machine
    write_json(tmp_path / "out.json")
    assert sorted(os.listdir(tmp_path)) == [
        "a.out.json.17.unfinished", "out.json", "out.json.17.unfinished.txt", "out.json.18.unfinished",
        "out.json.x.unfinished", "outxjson.17.unfinished",
    ]  # fmt: skip
    assert (tmp_path / "out.json").read_text() == "{}\n"


def test_a_text_that_does_not_fit_leaves_nothing(tmp_path, monkeypatch):
    def full(path, *_, **__):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputRefusedError, match="No space left on device"):
        write_json(tmp_path / "m.json")
    assert list(tmp_path.iterdir()) == []


def test_a_link_keeps_its_place(tmp_path):
    (tmp_path / "night.json").write_text("old")
    (tmp_path / "latest.json").symlink_to("night.json")
    write_json(tmp_path / "latest.json")
    assert (tmp_path / "latest.json").is_symlink()
    assert (tmp_path / "night.json").read_text() == "{}\n"


def test_a_device_is_no_file_to_write(tmp_path):
    with pytest.raises(InvalidParameterError, match="is a device or a pipe; name a file"):
        check_file("--json", "/dev/null")
    check_file("--json", str(tmp_path / "new.json"))


def test_a_link_to_a_file_in_a_folder_that_is_not_there_is_found_before_anything_is_read(logs):
    """It is a link that stays, and its target that is written."""
    link = logs.parent / "latest.json"
    link.symlink_to(logs.parent / "nothing" / "night.json")
    ended = mean_ndcg("--input", logs, "--json", link, *NIGHT)
    assert_refused(ended, f"--json {str(link)!r}: its folder does not exist")
    assert "ranking and scoring" not in ended.err
