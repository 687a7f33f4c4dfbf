"""Slices that Arrow writes, without Spark: what readers see, what is refused, and what is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import files_below, stored_rows

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import (
    Rows,
    SliceKey,
    Slices,
    check_output,
    reading_of,
    slice_name,
    stage_slices,
    swap_in,
    write_together,
)
from ndcg_spark.tables.checks import _stored_schema
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
    return Slices.for_night(NIGHT, "shop", runs, empty=empty)


def write(folder: Path, table: pa.Table, slices: Slices) -> None:
    write_together([Rows(frame=table, slices=slices, reference=str(folder))])


def values(folder: Path) -> list[tuple[str, int]]:
    return sorted((row["run"], row["value"]) for row in stored_rows(folder))


def test_slices_are_those_of_spark_by_name_and_layout(tmp_path):
    write(tmp_path / "t", rows("bm25", "b 2", "bm25"), shop("bm25", "b 2", "none", empty=("none",)))
    folders = sorted(path.parent.name for path in (tmp_path / "t").rglob("*.parquet"))
    assert folders == [f"slice={slice_name('shop', run)}" for run in ("b 2", "bm25", "none")]
    (empty,) = (tmp_path / "t").glob("run_date=2026-01-31/slice=shop.none-*/*.parquet")
    assert pq.read_metadata(empty).num_rows == 0
    assert pq.read_schema(empty) == pq.read_schema(next((tmp_path / "t").rglob("slice=shop.bm25-*/*.parquet")))
    assert (tmp_path / "t" / "_SUCCESS").exists()
    assert {row["dataset"] for row in stored_rows(tmp_path / "t")} == {"shop"}


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


def test_the_first_output_is_taken_back_if_the_second_fails(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, rows("a"), shop("a"))
    before = files_below(first)
    rename = os.rename

    def fail(source, place):
        if str(second) in str(place):
            raise OSError(28, "No space left on device")
        rename(source, place)

    monkeypatch.setattr(os, "rename", fail)
    tables = [Rows(frame=rows("a", value=2), slices=shop("a"), reference=str(place)) for place in (first, second)]
    with pytest.raises(OutputRefusedError, match=r"cannot write .*second.*No space left on device"):
        write_together(tables)
    assert files_below(first) == before
    assert values(second) == []


def test_a_full_disk_leaves_the_old_rows(tmp_path, monkeypatch):
    write(tmp_path, rows("a"), shop("a"))
    before = files_below(tmp_path)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(OutputRefusedError, match=r"cannot write .*No space left on device"):
        write(tmp_path, rows("a", value=2), shop("a"))
    assert files_below(tmp_path) == before


def test_slices_that_somebody_else_writes_are_refused(tmp_path):
    claim = claim_slices(tmp_path, list(shop("a").folders.values()), print)
    try:
        with pytest.raises(OutputRefusedError, match="is being written by process"):
            write(tmp_path, rows("a"), shop("a"))
        write(tmp_path, rows("b"), shop("b"))
    finally:
        claim.release()
    assert values(tmp_path) == [("b", 1)]


def test_what_a_killed_writer_has_left_is_removed(tmp_path):
    code = f"""
import os, pyarrow as pa
from datetime import date
from ndcg_spark.tables import Slices, stage_slices
table = pa.table({{"run": ["a"], "value": [7]}})
stage_slices(table, {str(tmp_path)!r}, None, Slices.for_night(date(2026, 1, 31), "shop", ["a"]))
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert len(files_below(tmp_path)) > 1
    said: list[str] = []
    write_together([Rows(frame=rows("a"), slices=shop("a"), reference=str(tmp_path))], tell=said.append)
    assert [line.partition(":")[0] for line in said] == [f"removed what a killed writer left in {tmp_path}"]
    assert values(tmp_path) == [("a", 1)]


@pytest.mark.parametrize(
    ("table", "slices", "message"),
    [
        (rows("a", "z"), shop("a"), "belong to no announced run"),
        (rows("a", None), shop("a"), "belong to no announced run"),
        (rows("a"), shop("a", "b"), "there are no rows of run 'b'"),
        (pa.table({"run": ["a"], "Slice": ["x"]}), shop("a"), "column 'Slice' cannot be written"),
    ],
    ids=["another run", "no run", "no rows", "a column of ours"],
)
def test_rows_that_do_not_fit(tmp_path, table, slices, message):
    write(tmp_path, rows("a", value=5), shop("a"))
    with pytest.raises(OutputRefusedError, match=message):
        write(tmp_path, table, slices)
    assert values(tmp_path) == [("a", 5)]


@pytest.mark.parametrize("reference", ["prod.metrics", "s3://bucket/metrics"])
def test_a_place_that_only_spark_writes(reference):
    with pytest.raises(OutputRefusedError, match="is not a folder of this machine"):
        stage_slices(rows("a"), reference, None, shop("a"))
    with pytest.raises(OutputRefusedError, match="is not a folder of this machine"):
        check_output(None, reference, None, rows("a").schema)


def test_slices_of_several_nights(tmp_path):
    keys = tuple(SliceKey(date(2026, 1, day), "a") for day in (30, 31))
    slices = Slices(dataset="shop", keys=keys, columns={"night": "until", "run": "run"})
    table = rows("a", "a").append_column("until", pa.array([key.night for key in keys]))
    write(tmp_path, table, slices)
    assert sorted(row["run_date"] for row in stored_rows(tmp_path)) == ["2026-01-30", "2026-01-31"]


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
    check_output(None, str(tmp_path), None, metrics(value=pa.float64(), site=pa.string()), tell=said.append)
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
    with pytest.raises(OutputRefusedError, match=r"holds 'notes\.txt'"):
        check_output(None, str(tmp_path), None, rows("a").schema)
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    with pytest.raises(OutputRefusedError, match="is, or lies in, the Delta table"):
        check_output(None, str(tmp_path / "delta" / "part"), None, rows("a").schema)
    write(tmp_path / "nights", rows("a"), shop("a"))
    with pytest.raises(OutputRefusedError, match=r"lies inside .* which holds nights of another table"):
        check_output(None, str(tmp_path / "nights" / "run_date=2026-01-31"), None, rows("a").schema)


def test_inputs_are_not_written_over(tmp_path):
    """By files, folders, patterns, and where links lead."""
    (tmp_path / "data" / "day").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    pq.write_table(rows("a"), tmp_path / "elsewhere" / "b.parquet")
    pq.write_table(rows("a"), tmp_path / "data" / "day" / "a.parquet")
    (tmp_path / "data" / "b.parquet").symlink_to(tmp_path / "elsewhere" / "b.parquet")
    for reference, places in {
        f"{tmp_path}/data": ("data", "data/day", "elsewhere", "."),
        f"file:{tmp_path}/data/day/a.parquet": ("data", "data/day", "data/day/a.parquet"),
        f"{tmp_path}/da*/*/*.parquet": ("data/day", "data"),
    }.items():
        readings = [reading_of(None, "the input", reference, None, None)]
        for place in places:
            with pytest.raises(OutputRefusedError, match="is, holds, or lies inside the input"):
                check_output(None, str(tmp_path / place), None, rows("a").schema, readings=readings)
        check_output(None, str(tmp_path / "metrics"), None, rows("a").schema, readings=readings)


def test_types_of_files_are_those_of_spark(tmp_path):
    """INT96, in which Spark writes times, is a point in time; Arrow reads it without a zone."""
    times = pa.array([datetime(2026, 1, 31)], pa.timestamp("ns"))
    table = pa.table(
        {"old": times, "plain": times.cast(pa.timestamp("us")), "zoned": times.cast(pa.timestamp("us", "UTC"))}
    )
    pq.write_table(table.select(["old"]), tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(table.select(["plain", "zoned"]), tmp_path / "new.parquet")
    found = [_stored_schema(pq.read_metadata(tmp_path / f"{name}.parquet").schema) for name in ("old", "new")]
    assert [field.type.tz for schema in found for field in schema] == ["UTC", None, "UTC"]
