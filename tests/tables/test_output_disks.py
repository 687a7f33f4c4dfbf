"""Outputs on a disk that is full or that cannot be written: a line, the old rows, and the next run heals."""

from __future__ import annotations

import os
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.disks import deny_access, deny_writes, mount_small_disk, to_viewfs
from support.engines import parametrize_engine
from support.main_job import assert_refused, mean_ndcg, read_files, read_stored_rows, run_mean_ndcg, write_rows
from support.oracle import build_ranking

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import Rows, Slices, check_output, stage_slices, write_together

NIGHT = partial(Slices.for_night, date(2026, 1, 31), "shop")
FULL = "No space left on device"


ROWS = pa.table({"run": [""], "value": [1]})


def write(table: Path) -> None:
    write_together([Rows(frame=ROWS, slices=NIGHT([""]), reference=str(table))])


def flags(source: Path, folder: Path, engine: str = "local") -> list[object]:
    same = ["--run-date", "2026-01-31", "--dataset", "shop", "--k", "1,3", "--engine", engine]
    return ["--input", source, *same, "--output", folder / "metrics", "--per-query-output", folder / "queries"]


@pytest.fixture
def sources(tmp_path):
    """Rankings of two nights; the later ones need some hundred kilobytes as metrics of queries."""
    old, new = [build_ranking([0, 1])], [build_ranking([3, 2, n % 3], query=f"query {n}") for n in range(1500)]
    return [
        write_rows(tmp_path / f"{name}.parquet", [row for query in rows for row in query])
        for name, rows in (("old", old), ("new", new))
    ]


def visible(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in read_files(folder).items() if ".ndcg-spark" not in name}


def leftovers(folder: Path) -> list[str]:
    return [str(place) for place in folder.glob("*/.ndcg-spark")]


# ---------------------------------------------------------------------------------------------------- full disks


@parametrize_engine("kib_left", local=[0, 12], spark=[12])
def test_a_full_disk_is_a_line_and_the_next_run_heals(engine, tmp_path, sources, kib_left):
    (old, new), by_engine = sources, engine["engine"]
    with mount_small_disk(tmp_path / "disk", 2048) as disk:
        run_mean_ndcg(*flags(old, disk.folder, by_engine))
        before = visible(disk.folder)
        disk.fill(kib_left << 10)
        assert_refused(mean_ndcg(*flags(new, disk.folder, by_engine)), FULL, str(disk.folder))
        disk.free()
        assert visible(disk.folder) == before
        assert leftovers(disk.folder) == []
        run_mean_ndcg(*flags(new, disk.folder, by_engine))
        assert len(read_stored_rows(disk.folder / "queries")) == 3000


def test_a_claim_that_does_not_fit_on_the_disk_is_given_up(tmp_path):
    """In one process, as in a notebook: what is left open of it would refuse the next write."""
    with mount_small_disk(tmp_path / "disk", 256) as disk:
        table = disk.folder / "table"
        write(table)
        refused = []
        for left in range(0, 64 << 10, 4 << 10):
            disk.fill(left)
            try:
                stage_slices(ROWS, str(table), None, NIGHT([""])).close()
            except OutputRefusedError as error:
                refused.append(str(error))
            disk.free()
            assert not (table / ".ndcg-spark").exists(), left
        assert 2 <= len(refused) < 16  # for the claim, and the rows
        assert [text for text in refused if FULL not in text] == []
        write(table)
        assert [row["value"] for row in read_stored_rows(table)] == [1]


# ------------------------------------------------------------------------------------------- outputs without a way in


def test_a_folder_that_cannot_be_written_is_a_line_before_anything_is_computed(tmp_path, sources):
    folder = tmp_path / "tables"
    run_mean_ndcg(*flags(sources[0], folder))
    before = read_files(folder)
    with deny_writes(folder):
        ended = mean_ndcg(*flags(sources[1], folder))
    assert_refused(ended, str(folder / "metrics"), "cannot write")
    assert "ranking" not in ended.err
    assert read_files(folder) == before


def test_a_folder_below_a_file_is_a_line(tmp_path, sources):
    (tmp_path / "file").touch()
    assert_refused(mean_ndcg(*flags(sources[0], tmp_path / "file")), str(tmp_path / "file"), "below a file")


@pytest.mark.parametrize("below", ["", "run_date=2026-01-30"], ids=["the folder above", "a night in it"])
def test_a_folder_that_is_closed_to_the_user_is_a_line(below):
    with TemporaryDirectory() as name:  # anybody may go there, unlike into the folders of pytest
        table = Path(name, "home", "table")
        (table / below).mkdir(parents=True)
        for folder in (table, table.parent, table.parent.parent):
            folder.chmod(0o777)
        with deny_access(table / below if below else table.parent), pytest.raises(OutputRefusedError) as refused:
            check_output(None, str(table), None, ROWS.schema)
        assert str(refused.value).startswith(f"cannot write '{table}': Permission denied")
        assert not [path for path in table.iterdir() if path.name.startswith(".")]


FOREIGN = ("notes/x.parquet", "run_date=2026-01-31/other/x.parquet")


def holding(folder: Path, foreign: str) -> Path:
    (folder / foreign).parent.mkdir(parents=True)
    pq.write_table(ROWS, folder / foreign)
    return folder


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    for at, foreign in enumerate(FOREIGN):
        table = holding(tmp_path / str(at), foreign)
        with pytest.raises(OutputRefusedError, match=r"but nightly tables contain only .*files in run_date="):
            check_output(None, str(table), None, ROWS.schema)
    (tmp_path / "empty" / "run_date=2026-01-31" / "other").mkdir(parents=True)
    with pytest.raises(OutputRefusedError, match="contains 'run_date=2026-01-31/other', but nightly tables contain"):
        check_output(None, str(tmp_path / "empty"), None, ROWS.schema)


def test_a_folder_where_only_spark_reaches_that_holds_something_else_is_refused(spark, tmp_path):
    for at, foreign in enumerate(FOREIGN):
        table = to_viewfs(holding(tmp_path / str(at), foreign))
        with pytest.raises(OutputRefusedError, match=r"but nightly tables contain only .*files in run_date="):
            check_output(spark, table, None, spark.range(1).schema)


def test_a_path_is_no_name_of_a_table(spark):
    with pytest.raises(
        OutputRefusedError, match="'some/path' is a path, but delta outputs are tables of the catalog"
    ):
        check_output(spark, "some/path", "delta", spark.range(1).schema)


def test_a_folder_that_can_no_longer_be_written_when_rows_are_ready(tmp_path):
    table = tmp_path / "table"
    write(table)
    before = read_files(table)
    with deny_writes(table), pytest.raises(OutputRefusedError) as refused:
        write(table)
    assert str(table) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert read_files(table) == before
    assert sorted(os.listdir(table)) == ["_SUCCESS", "run_date=2026-01-31"]
