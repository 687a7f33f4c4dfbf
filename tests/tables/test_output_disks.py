"""Outputs on a disk that is full or that cannot be written: a line, the old rows, and the next run heals."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from support.disks import closed, small_disk, unwritable
from support.elsewhere import elsewhere
from support.main_job import assert_refused, done, files_below, mean_ndcg, stored_rows, write_rows
from support.slices import replace_slices
from support.small_rankings import ranked

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import Slices, check_output, stage_slices, swap_in

pytestmark = pytest.mark.usefixtures("spark")
NIGHT = partial(Slices.for_night, date(2026, 1, 31), "shop")
FULL = "No space left on device"


def flags(source: Path, folder: Path) -> list[object]:
    same = ["--run-date", "2026-01-31", "--dataset", "shop", "--k", "1,3"]
    return ["--input", source, *same, "--output", folder / "metrics", "--per-query-output", folder / "queries"]


@pytest.fixture
def sources(tmp_path):
    """Rankings of two nights; the later ones need some hundred kilobytes as metrics of queries."""
    old, new = [ranked([0, 1])], [ranked([3, 2, n % 3], query=f"query {n}") for n in range(1500)]
    return [
        write_rows(tmp_path / f"{name}.parquet", [row for query in rows for row in query])
        for name, rows in (("old", old), ("new", new))
    ]


def visible(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_below(folder).items() if ".ndcg-spark" not in name}


def leftovers(folder: Path) -> list[str]:
    return [str(place) for place in folder.glob("*/.ndcg-spark")]


# ---------------------------------------------------------------------------------------------------- full disks


OFTEN_ENOUGH = pytest.mark.cluster("one full disk is checked every time")


@pytest.mark.parametrize(
    "left",
    [12, pytest.param(0, marks=OFTEN_ENOUGH), pytest.param(40, marks=OFTEN_ENOUGH)],
    ids="{} KiB left".format,
)
def test_a_full_disk_is_a_line_and_the_next_run_heals(tmp_path, sources, left):
    old, new = sources
    with small_disk(tmp_path / "disk", 2048) as disk:
        done(*flags(old, disk.folder))
        before = visible(disk.folder)
        disk.fill(left << 10)
        assert_refused(mean_ndcg(*flags(new, disk.folder)), FULL, str(disk.folder))
        disk.free()
        assert visible(disk.folder) == before
        assert leftovers(disk.folder) == []
        done(*flags(new, disk.folder))
        assert len(stored_rows(disk.folder / "queries")) == 3000


def test_a_claim_that_does_not_fit_on_the_disk_is_given_up(spark, tmp_path):
    """In one process, as in a notebook: what is left open of it would refuse the next write."""
    rows = spark.createDataFrame([("", 1)], "run string, value int")
    with small_disk(tmp_path / "disk", 256) as disk:
        table = disk.folder / "table"
        replace_slices(rows, str(table), None, NIGHT([""]))
        refused = []
        for left in range(0, 64 << 10, 4 << 10):
            disk.fill(left)
            try:
                stage_slices(rows, str(table), None, NIGHT([""])).close()
            except OutputRefusedError as error:
                refused.append(str(error))
            disk.free()
            assert not (table / ".ndcg-spark").exists(), left
        assert 3 <= len(refused) < 16  # for the hidden folder, the lock, the claim, and the rows
        assert [text for text in refused if FULL not in text] == []
        with closing(stage_slices(rows, str(table), None, NIGHT([""]))) as staged:
            swap_in([staged])
        assert [row["value"] for row in stored_rows(table)] == [1]


# ------------------------------------------------------------------------------------------- outputs without a way in


@pytest.mark.classic("a client of Connect takes a folder that it may not write for one of another machine")
def test_a_folder_that_cannot_be_written_is_a_line_before_anything_is_computed(tmp_path, sources):
    folder = tmp_path / "tables"
    done(*flags(sources[0], folder))
    before = files_below(folder)
    with unwritable(folder):
        ended = mean_ndcg(*flags(sources[1], folder))
    assert_refused(ended, str(folder / "metrics"), "cannot write")
    assert "ranking and scoring" not in ended.err
    assert files_below(folder) == before


def test_a_folder_below_a_file_is_a_line(tmp_path, sources):
    (tmp_path / "file").touch()
    assert_refused(mean_ndcg(*flags(sources[0], tmp_path / "file")), str(tmp_path / "file"), "below, a file")


@pytest.mark.classic("a client of Connect takes a folder that it may not write for one of another machine")
@pytest.mark.parametrize("below", ["", "run_date=2026-01-30"], ids=["the folder above", "a night in it"])
def test_a_folder_that_is_closed_to_the_user_is_a_line(spark, below):
    schema = spark.range(1).schema
    with TemporaryDirectory() as name:  # anybody may go there, unlike into the folders of pytest
        table = Path(name, "home", "table")
        (table / below).mkdir(parents=True)
        for folder in (table, table.parent, table.parent.parent):
            folder.chmod(0o777)
        with closed(table / below if below else table.parent), pytest.raises(OutputRefusedError) as refused:
            check_output(spark, str(table), None, schema)
        assert str(refused.value).startswith(f"cannot write '{table}': Permission denied")
        assert not [one for one in table.iterdir() if one.name.startswith(".")]


@pytest.mark.parametrize("place", [str, elsewhere], ids=["here", "where only Spark reaches"])
@pytest.mark.parametrize("foreign", ["notes/x.parquet", "run_date=2026-01-31/other/x.parquet"])
def test_a_folder_that_holds_something_else_is_refused(spark, tmp_path, place, foreign):
    file = tmp_path / "table" / foreign
    file.parent.mkdir(parents=True)
    pd.DataFrame({"id": [0]}).to_parquet(file)
    with pytest.raises(OutputRefusedError, match=r"but tables of this job hold nothing but .*files in run_date="):
        check_output(spark, place(tmp_path / "table"), None, spark.range(1).schema)


def test_a_folder_that_holds_an_empty_one_is_refused(spark, tmp_path):
    (tmp_path / "table" / "run_date=2026-01-31" / "other").mkdir(parents=True)
    with pytest.raises(OutputRefusedError, match="holds 'run_date=2026-01-31/other', but tables of this job hold"):
        check_output(spark, str(tmp_path / "table"), None, spark.range(1).schema)


def test_a_path_is_no_name_of_a_table(spark):
    with pytest.raises(
        OutputRefusedError, match="'some/path' is a path, but delta outputs are tables of the catalog"
    ):
        check_output(spark, "some/path", "delta", spark.range(1).schema)


def test_a_table_whose_files_cannot_be_read_is_refused_before_it_is_written(spark, tmp_path):
    rows = spark.createDataFrame([("", 1)], "run string, value int")
    table = tmp_path / "table"
    replace_slices(rows, str(table), None, NIGHT([""]))
    for file in table.rglob("*.parquet"):
        file.write_bytes(b"PAR1 and no more")
    before = files_below(table)
    with pytest.raises(OutputRefusedError, match=f"cannot read '{table}' as parquet: "):
        check_output(spark, str(table), None, rows.schema)
    assert files_below(table) == before


def test_a_folder_that_can_no_longer_be_written_when_rows_are_ready(spark, tmp_path):
    rows = spark.createDataFrame([("", 1)], "run string, value int")
    table = tmp_path / "table"
    replace_slices(rows, str(table), None, NIGHT([""]))
    before = files_below(table)
    with unwritable(table), pytest.raises(OutputRefusedError) as refused:
        replace_slices(rows, str(table), None, NIGHT([""]))
    assert str(table) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert files_below(table) == before
    assert sorted(os.listdir(table)) == ["_SUCCESS", "run_date=2026-01-31"]
