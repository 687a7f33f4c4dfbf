"""Slices of folders, written by Arrow: what readers see, what is refused, who writes, and what is left behind.

Rows of Spark are staged by Spark and put in place by the same class.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import date, datetime
from pathlib import Path
from types import CodeType, FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.disks import drop_root, make_closed_folder
from support.main_job import read_files, read_stored_rows

from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError
from ndcg_spark.sources.local import LocalTable, open_local
from ndcg_spark.tables import (
    Rows,
    SliceKey,
    Slices,
    check_output,
    claims,
    find_used_places,
    folders,
    slice_name,
    stage_slices,
    swap_in,
    write_together,
)
from ndcg_spark.tables.checks import _read_columns
from ndcg_spark.tables.claims import claim_slices

NIGHT = date(2026, 1, 31)


def rows(*runs: str | None, value: int = 1) -> pa.Table:
    columns = {
        "run": pa.array(runs, pa.string()),
        "k": pa.array([10] * len(runs), pa.int32()),
        "value": [value] * len(runs),
    }
    return pa.table({**columns, "state": pa.array([[1, 2]] * len(runs), pa.list_(pa.int64()))})


def shop(*runs: str, empty: tuple[str, ...] = ()) -> Slices:
    return Slices.for_night(NIGHT, "shop", runs, may_be_empty=empty)


def write(folder: Path, table: pa.Table, slices: Slices) -> None:
    write_together([Rows(frame=table, slices=slices, reference=str(folder))])


def values(folder: Path) -> list[tuple[str, int]]:
    return sorted((row["run"], row["value"]) for row in read_stored_rows(folder))


def test_slices_are_those_of_spark_by_name_and_layout(tmp_path):
    write(tmp_path / "t", rows("bm25", "b 2", "bm25"), shop("bm25", "b 2", "none", empty=("none",)))
    folders = sorted(path.parent.name for path in (tmp_path / "t").rglob("*.parquet"))
    assert folders == [f"slice={slice_name('shop', run)}" for run in ("b 2", "bm25", "none")]
    (empty,) = (tmp_path / "t").glob("run_date=2026-01-31/slice=shop.none-*/*.parquet")
    assert pq.read_metadata(empty).num_rows == 0
    assert pq.read_schema(empty) == pq.read_schema(next((tmp_path / "t").rglob("slice=shop.bm25-*/*.parquet")))
    assert (tmp_path / "t" / "_SUCCESS").exists()
    assert {row["dataset"] for row in read_stored_rows(tmp_path / "t")} == {"shop"}


def test_a_slice_is_replaced_and_others_stay(tmp_path):
    write(tmp_path, rows("a", "b"), shop("a", "b"))
    write(tmp_path, rows("a", "a", value=2), shop("a"))
    assert values(tmp_path) == [("a", 2), ("a", 2), ("b", 1)]
    assert sorted(os.listdir(tmp_path)) == ["_SUCCESS", "run_date=2026-01-31"]


def test_rows_are_seen_once_they_are_swapped_in(tmp_path):
    write(tmp_path, rows("a"), shop("a"))
    with closing(stage_slices(rows("a", value=2), str(tmp_path), None, shop("a"))) as staged:
        assert [value for _, value in values(tmp_path / "run_date=2026-01-31")] == [1]
        swap_in([staged])
    assert values(tmp_path) == [("a", 2)]
    with closing(stage_slices(rows("a", value=3), str(tmp_path), None, shop("a"))):
        pass
    assert values(tmp_path) == [("a", 2)]
    assert sorted(os.listdir(tmp_path)) == ["_SUCCESS", "run_date=2026-01-31"]


def test_outputs_are_taken_back_if_a_later_one_fails(tmp_path, monkeypatch):
    """One that was there, and one that was not."""
    old, new, failing = (tmp_path / name for name in ("old", "new", "failing"))
    write(old, rows("a"), shop("a"))
    before = read_files(old)
    rename = os.rename

    def fail(source, place):
        if str(failing) in str(place):
            raise OSError(28, "No space left on device")
        rename(source, place)

    monkeypatch.setattr(os, "rename", fail)
    tables = [Rows(frame=rows("a", value=2), slices=shop("a"), reference=str(place)) for place in (old, new, failing)]
    with pytest.raises(OutputRefusedError, match=r"cannot write .*failing.*No space left on device"):
        write_together(tables)
    assert read_files(old) == before
    assert not new.exists()
    assert not failing.exists()


def test_a_full_disk_leaves_the_old_rows(tmp_path, monkeypatch):
    write(tmp_path, rows("a"), shop("a"))
    before = read_files(tmp_path)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OutputRefusedError, match=r"cannot write .*No space left on device"):
        write(tmp_path, rows("a", value=2), shop("a"))
    assert read_files(tmp_path) == before


def test_a_second_writer_is_told_who_is_at_work(tmp_path):
    claim = claim_slices(tmp_path / "t", list(shop("a").folders.values()), print)
    who = rf"{slice_name('shop', 'a')} of .* is being written by process {os.getpid()} on .* since 20[^\n]*$"
    try:
        with pytest.raises(OutputRefusedError, match=who):
            write(tmp_path / "t", rows("a"), shop("a"))
        write(tmp_path / "t", rows("b"), shop("b"))
    finally:
        claim.release()
    assert values(tmp_path / "t") == [("b", 1)]


KILLED = """
import sys, time
from pathlib import Path
from ndcg_spark.tables.claims import claim_slices
claim = claim_slices(Path(sys.argv[1]), sys.argv[2:], print)
for folder in sys.argv[2:]:
    (claim.rows_folder / folder).mkdir(parents=True)
    (claim.rows_folder / folder / "part-0.parquet").write_text("half")
    (claim.replaced_folder / folder).parent.mkdir(parents=True)
    (claim.root / folder).rename(claim.replaced_folder / folder)
print("ready", flush=True)
time.sleep(600)
"""
"""A writer that has moved old rows away, as where names cannot be exchanged."""


def test_what_a_killed_writer_left_is_named_and_removed(tmp_path):
    """Old rows that it moved away come back, also where the next writer fails."""
    write(tmp_path, rows("a"), shop("a"))
    command = [sys.executable, "-c", KILLED, str(tmp_path), *shop("a").folders.values()]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            with pytest.raises(OutputRefusedError, match=rf"is being written by process {writer.pid} on "):
                write(tmp_path, rows("a", value=2), shop("a"))
            assert not any(tmp_path.glob("run_date=*/*/*.parquet"))
        finally:
            writer.kill()
    refused = Rows(frame=rows("a", "z", value=2), slices=shop("a"), reference=str(tmp_path))
    with pytest.raises(OutputRefusedError, match="belong to an unexpected slice"):
        write_together([refused], report=said.append)
    assert values(tmp_path) == [("a", 1)]
    (line,) = said
    assert line.startswith(f"removed files of a killed writer in {tmp_path}: process {writer.pid} on ")
    assert sorted(os.listdir(tmp_path)) == ["_SUCCESS", "run_date=2026-01-31"]


@pytest.mark.parametrize("what", ["rows", "replaced"])
def test_leftovers_that_are_closed_to_the_next_writer_are_not_said_to_be_removed(public_folder, what):
    """Old rows that wait there may be the only ones: they are not passed over."""
    entry = public_folder / ".ndcg-spark" / "write-1"
    make_closed_folder(entry / what / "run_date=2026-01-31")
    with drop_root():
        if what == "rows":
            said = claims._clear_leftover(entry, public_folder)
            assert said.startswith(f"could not remove files of a killed writer in {entry}")
        else:
            with pytest.raises(PermissionError):
                claims._clear_leftover(entry, public_folder)
    assert entry.exists()


def test_a_writer_waits_while_another_one_looks_who_is_there(tmp_path):
    """As one that drops a table which nobody uses."""
    writers = ThreadPoolExecutor(1)
    with claims.lock_out_writers(tmp_path) as nobody:
        claiming = writers.submit(claim_slices, tmp_path, ["a"], print)
        assert (nobody, wait([claiming], timeout=0.2).done) == (True, set())
        assert os.listdir(tmp_path / claims.LOCK_FOLDER) == ["mutex"]
    claiming.result(timeout=60).release()
    writers.shutdown()


def test_of_two_threads_that_claim_a_slice_where_no_folder_is_shared_one_is_refused():
    place = "main.metrics.ranking"
    first = claims.InProcessClaim(place, ["a", "b"], place)
    with pytest.raises(OutputRefusedError, match=rf"b of '{place}' is being written by another thread of this proc"):
        claims.InProcessClaim(place, ["b", "c"], place)
    claims.InProcessClaim(place, ["c"], place).release()  # nothing was claimed by who was refused
    first.release()
    claims.InProcessClaim(place, ["b"], place).release()


def test_a_place_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as broken:
        broken.setattr(claims.fcntl, "flock", no_locks)
        with pytest.raises(OutputRefusedError, match=r"has no locks \(flock: No locks available\); write elsewhere"):
            claim_slices(tmp_path / "metrics", ["a"], print)
    # stands in for: Windows, which has no fcntl, because this is none
    monkeypatch.setattr(claims, "fcntl", None)
    with pytest.raises(OutputRefusedError, match="this system has no flock; write to a remote path"):
        claim_slices(tmp_path / "metrics", ["a"], print)
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------------------------ putting in place


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_file_that_somebody_adds_to_a_slice_while_it_is_put_in_place_is_told(tmp_path, monkeypatch, can_exchange):
    """Whoever writes without our locks: what the swap has put there is no longer what was staged."""
    write(tmp_path, rows("a"), shop("a"))
    if not can_exchange:
        # stands in for: a file system that cannot exchange names, because none of this machine is one
        monkeypatch.setattr(folders, "exchange_names", lambda *_: False)
    put = folders.FolderWrite._put_slice

    def disturbed(write, staged, place, name):
        how = put(write, staged, place, name)
        (place / "stray.parquet").touch()
        return how

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(folders.FolderWrite, "_put_slice", disturbed)
        with pytest.raises(
            OutputRefusedError,
            match=r"^run_date=2026-01-31/slice=\S+ of .* was changed by somebody else meanwhile\.$",
        ):
            write(tmp_path, rows("a", value=2), shop("a"))
    assert values(tmp_path) == [("a", 1)]
    write(tmp_path, rows("a", value=3), shop("a"))
    assert values(tmp_path) == [("a", 3)]
    assert sorted(os.listdir(tmp_path)) == ["_SUCCESS", "run_date=2026-01-31"]


def test_old_rows_come_back_when_no_rename_works_any_more(tmp_path, monkeypatch):
    """The old slice was moved away; neither the new one nor the old one could be moved in."""
    write(tmp_path, rows("a"), shop("a"))
    # stands in for: a file system that cannot exchange names, because none of this machine is one
    monkeypatch.setattr(folders, "exchange_names", lambda *_: False)
    rename, count = os.rename, iter(range(9))

    def failing(*places):
        if next(count) in (1, 2):
            raise OSError(5, "Input/output error")
        return rename(*places)

    monkeypatch.setattr(folders.os, "rename", failing)
    with pytest.raises((OutputRefusedError, RuntimeError)):
        write(tmp_path, rows("a", value=2), shop("a"))
    assert values(tmp_path) == [("a", 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is of Linux")
def test_folders_are_exchanged_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert folders.exchange_names(tmp_path / "one", tmp_path / "other")
    assert os.listdir(tmp_path / "one") == ["other"]
    assert os.listdir(tmp_path / "other") == ["one"]
    with pytest.raises(FileNotFoundError):  # False would mean that this system cannot
        folders.exchange_names(tmp_path / "one", tmp_path / "gone")


@pytest.mark.parametrize(("code", "done"), [(errno.EIO, False), (errno.EINVAL, True)])
def test_only_a_disk_that_cannot_keep_what_it_is_told_to_write_ends_a_write(tmp_path, monkeypatch, code, done):
    """Some file systems have no fsync; an input/output error means that rows may be lost."""

    def failing(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folders.os, "fsync", failing)
    with nullcontext() if done else pytest.raises(OutputRefusedError, match="Input/output error"):
        write(tmp_path, rows("a"), shop("a"))
    assert values(tmp_path) == ([("a", 1)] if done else [])


class Output:
    """An output that fails where it is told to."""

    undoable = True

    def __init__(self, name, failing=(), error=None):
        self.reference, self.failing, self.error, self.calls = name, failing, error, []

    def __getattr__(self, name):
        def call():
            self.calls.append(name)
            if name in self.failing:
                raise self.error or OSError(5, f"{name} of {self.reference}")

        return call


@pytest.mark.parametrize(("error", "told"), [(None, "undo of b"), (TimeoutError(), "TimeoutError")])
def test_one_output_that_cannot_be_taken_back_does_not_keep_others(caplog, error, told):
    first, second, third = Output("a"), Output("b", ["undo"], error), Output("c", ["swap", "undo"])
    lost = r"c was not written completely, and c, b could not be undone: .* swap of c"
    with pytest.raises(PartlyWrittenError, match=lost):
        swap_in([first, second, third])
    assert (first.calls, second.calls) == (["swap", "undo"], ["swap", "undo"])
    assert [line for line in caplog.messages if line.startswith("could not undo b: ") and told in line]


def test_all_outputs_are_finished_though_one_cannot_be():
    outputs = [Output("a", ["finish"]), Output("b"), Output("c")]
    with pytest.raises(OSError, match="finish of a"):
        swap_in(outputs)
    assert [output.calls for output in outputs] == [["swap", "finish"]] * 3


# ------------------------------------------------------------------------------------------- rows that do not fit


@pytest.mark.parametrize(
    ("table", "slices", "message"),
    [
        (rows("a", "z"), shop("a"), "belong to an unexpected slice"),
        (rows("a", None), shop("a"), "belong to an unexpected slice"),
        (rows("a"), shop("a", "b"), "there are no rows of run 'b'"),
        # The first two of 135,283 names whose hashes begin alike.
        (
            rows("\u4ee3\u4f61", "\u4f52\u4e53"),
            shop("\u4ee3\u4f61", "\u4f52\u4e53"),
            "have the same slice name",
        ),
    ],
    ids=["another run", "no run", "no rows", "two runs of one name"],
)
def test_rows_that_do_not_fit(tmp_path, table, slices, message):
    write(tmp_path, rows("a", value=5), shop("a"))
    with pytest.raises(OutputRefusedError, match=message):
        write(tmp_path, table, slices)
    assert values(tmp_path) == [("a", 5)]


@pytest.mark.parametrize("name", ["dataset", "Run_Date", "SLICE"])
def test_columns_that_storing_would_overwrite_are_refused(tmp_path, name):
    taken = rows("a").append_column(name, pa.array(["x"]))
    with pytest.raises(OutputRefusedError, match=f"{name!r}.*rename"):
        check_output(None, str(tmp_path / "t"), "parquet", taken.schema)
    with pytest.raises(OutputRefusedError, match=f"{name!r}.*rename"):
        write(tmp_path / "t", taken, shop("a"))
    assert os.listdir(tmp_path) == []


def test_a_format_that_no_output_has_is_refused(tmp_path):
    with pytest.raises(OutputRefusedError, match=r"outputs are written as parquet, .*, not 'csv'"):
        check_output(None, str(tmp_path / "metrics"), "csv", rows("a").schema)


@pytest.mark.parametrize("reference", ["prod.metrics", "s3://bucket/metrics"])
def test_a_place_that_only_spark_writes(reference):
    with pytest.raises(OutputRefusedError, match="is not a local folder"):
        stage_slices(rows("a"), reference, None, shop("a"))
    with pytest.raises(OutputRefusedError, match="is not a local folder"):
        check_output(None, reference, None, rows("a").schema)


def test_slices_of_several_nights(tmp_path):
    keys = tuple(SliceKey(date(2026, 1, day), "a") for day in (30, 31))
    slices = Slices(dataset="shop", keys=keys, columns={"night": "until", "run": "run"})
    table = rows("a", "a").append_column("until", pa.array([key.night for key in keys]))
    write(tmp_path, table, slices)
    assert sorted(row["run_date"] for row in read_stored_rows(tmp_path)) == ["2026-01-30", "2026-01-31"]


# ----------------------------------------------------------------------------------------------- checks before that


def metrics(**more: pa.DataType) -> pa.Schema:
    names = {name: pa.string() for name in ("run", "segment_by", "metric")}
    counts = {name: pa.int64() for name in ("n_queries", "n_no_relevant", "n_left_out")}
    return pa.schema(list((names | counts | more).items()))


def test_columns_that_are_there(tmp_path):
    for night, schema in ((30, metrics(value=pa.float64())), (31, metrics(rules=pa.string()))):
        table = pa.Table.from_pylist([{"run": "a"}], schema)
        write(tmp_path, table, Slices.for_night(date(2026, 1, night), "shop", ["a"]))
    said: list[str] = []
    check_output(None, str(tmp_path), None, metrics(value=pa.float64(), site=pa.string()), report=said.append)
    assert said == [
        f"column 'site' is added to {str(tmp_path)!r}; it is null for earlier nights",
        f"this night has no 'rules' of {str(tmp_path)!r}; it is null",
    ]
    with pytest.raises(OutputRefusedError, match=r"column 'value' is double in .* and int in these results"):
        check_output(None, str(tmp_path), None, metrics(value=pa.int32()))
    with pytest.raises(OutputRefusedError, match="has no column 'site', unlike these results"):
        check_output(None, str(tmp_path), None, metrics(value=pa.float64(), site=pa.string()), grow=False)
    log = pa.schema([(name, pa.string()) for name in ("run_id", "command", "status", "started_at")])
    with pytest.raises(OutputRefusedError, match="is a metric table, and these are rows of a run log"):
        check_output(None, str(tmp_path), None, log)


def test_files_whose_columns_contradict_each_other(tmp_path):
    write(tmp_path, rows("a"), shop("a"))
    other = rows("b").set_column(1, "k", pa.array(["x"]))
    write(tmp_path, other, shop("b"))
    with pytest.raises(OutputRefusedError, match=r"cannot read .* as parquet: column 'k' is .* in other files"):
        check_output(None, str(tmp_path), None, rows("a").schema)


def test_a_file_that_is_not_parquet(tmp_path):
    write(tmp_path, rows("a"), shop("a"))
    next(tmp_path.rglob("*.parquet")).write_bytes(b"nothing")
    with pytest.raises(OutputRefusedError, match=r"cannot read .* as parquet: "):
        check_output(None, str(tmp_path), None, rows("a").schema)


def test_a_folder_that_is_not_ours(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(OutputRefusedError, match=r"contains 'notes\.txt'"):
        check_output(None, str(tmp_path), None, rows("a").schema)
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    with pytest.raises(OutputRefusedError, match="belongs to the Delta table"):
        check_output(None, str(tmp_path / "delta" / "part"), None, rows("a").schema)
    write(tmp_path / "nights", rows("a"), shop("a"))
    with pytest.raises(OutputRefusedError, match=r"is inside .* which contains nights of another table"):
        check_output(None, str(tmp_path / "nights" / "run_date=2026-01-31"), None, rows("a").schema)


def test_inputs_are_not_written_over(tmp_path):
    """By files, folders, and where links lead."""
    (tmp_path / "data" / "day").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    pq.write_table(rows("a"), tmp_path / "elsewhere" / "b.parquet")
    pq.write_table(rows("a"), tmp_path / "data" / "day" / "a.parquet")
    (tmp_path / "data" / "day" / "b.parquet").symlink_to(tmp_path / "elsewhere" / "b.parquet")
    for reference, places in {
        f"{tmp_path}/data/day": ("data", "data/day", "elsewhere", "."),
        f"file:{tmp_path}/data/day/a.parquet": ("data", "data/day", "data/day/a.parquet"),
    }.items():
        opened = open_local(reference)
        assert isinstance(opened, LocalTable)
        files = opened.listing.files
        used_places = [find_used_places(None, "the input", reference, None, None, files=files)]
        for place in places:
            with pytest.raises(OutputRefusedError, match="overlaps the input"):
                check_output(None, str(tmp_path / place), None, rows("a").schema, used_places=used_places)
        check_output(None, str(tmp_path / "metrics"), None, rows("a").schema, used_places=used_places)


def test_a_file_in_the_root_folder_has_its_place():
    assert find_used_places(None, "x", "/rows.parquet", None, None, files=["/rows.parquet"]).files == {
        "/rows.parquet"
    }


@contextmanager
def interrupt_at(moment: int, number: int, start: CodeType, end: CodeType | None = None) -> Iterator[list[str]]:
    """Send a signal at a call or return, counted from `start` until `end` returns; yield those counted."""
    calls: list[str] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def trace(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code is end and event == "return":
            sys.setprofile(None)
        elif calls or frame.f_code is start:
            calls.append(event)
            if len(calls) == moment:
                signal.raise_signal(number)

    before = signal.signal(number, interrupt)
    sys.setprofile(trace)
    try:
        with suppress(KeyboardInterrupt):
            yield calls
    finally:
        sys.setprofile(None)
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_any_moment_of_clearing_up_leaves_nothing_behind(tmp_path, number):
    """It comes at each call by which a write of new or of replaced rows is closed."""
    for moment in itertools.count(1, 7):
        staged = stage_slices(rows("a"), str(tmp_path), None, shop("a"))
        if moment % 2:
            swap_in([staged])
        with interrupt_at(moment, number, claims.Claim.release.__code__, type(staged).close.__code__) as calls:
            staged.close()
        assert not (tmp_path / claims.LOCK_FOLDER).exists(), moment
        if len(calls) < moment:
            break
    assert moment > 100


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_any_moment_of_claiming_leaves_nothing_behind(tmp_path, number):
    """It comes at each call by which slices are claimed, until the claim is returned."""
    for moment in itertools.count(2, 8):
        claim = None
        with interrupt_at(moment, number, claim_slices.__code__, claim_slices.__code__) as calls:
            claim = claim_slices(tmp_path / "table", ["a"], print)
        if claim is not None:
            claim.release()
        assert os.listdir(tmp_path) == [], moment
        if len(calls) < moment:
            break
    assert moment > 100


def test_types_of_files_are_those_of_spark(tmp_path):
    """INT96, in which Spark writes times, is a point in time; Arrow reads it without a zone."""
    times = pa.array([datetime(2026, 1, 31)], pa.timestamp("ns"))
    table = pa.table(
        {"old": times, "plain": times.cast(pa.timestamp("us")), "zoned": times.cast(pa.timestamp("us", "UTC"))}
    )
    pq.write_table(table.select(["old"]), tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(table.select(["plain", "zoned"]), tmp_path / "new.parquet")
    actual = [_read_columns(str(tmp_path / f"{name}.parquet"), 0, 0) for name in ("old", "new")]
    assert [column.kind for columns in actual for column in columns] == ["timestamp", "timestamp_ntz", "timestamp"]
