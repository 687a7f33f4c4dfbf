"""Folders of Delta, Iceberg and Hudi tables: their Parquet files hold rows that the tables have dropped."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from support.arrow_rows import build_file_rows
from support.disks import drop_root, make_closed_folder, to_viewfs
from support.main_job import assert_refused, mean_ndcg
from support.random_rankings import random_rows

import ndcg_spark
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.sources import folders as table_folders
from ndcg_spark.sources.formats import open_table

ROWS = pa.Table.from_batches([build_file_rows(random_rows(3))])
MARKS = {"delta": "_delta_log/00000000000000000000.json", "hudi": ".hoodie/hoodie.properties",
         "iceberg": "metadata/v1.metadata.json"}  # fmt: skip


@pytest.fixture(params=MARKS)
def table(request, tmp_path):
    """The folder of a table with a file in `data/run_date=2026-01-31`, and its format."""
    root = tmp_path / "runs"
    mark = root / MARKS[request.param]
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    place = root / "data" / "run_date=2026-01-31" / "part-0.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(ROWS, place)
    return root, request.param


PARTS = ("data", "data/run_date=2026-01-31", "data/run_date=2026-01-31/part-0.parquet", "data/*/*.parquet", "*", "")


def test_files_of_a_table_are_not_read_as_parquet(table):
    root, kind = table
    message = f"{kind.capitalize()} table '{root}'.* with format {kind}"
    for part in PARTS:
        if part.startswith("data") and "*" not in part:  # others are for Spark
            with pytest.raises(InputRefusedError, match=message):
                ndcg_spark.evaluate(str(root / part), engine="local")


@pytest.mark.parametrize("table", ["delta"], indirect=True)
def test_files_of_a_table_are_not_read_as_parquet_by_spark(spark, table):
    root, _ = table
    for part in PARTS:
        with pytest.raises(InputRefusedError, match=f"Delta table '{root}'.* with format delta"):
            open_table(spark, str(root / part), "parquet")
    with pytest.raises(InputRefusedError, match="Delta table"):
        ndcg_spark.evaluate(root / "data")


def test_the_folder_of_a_table_is_read_as_the_table_it_is(spark, table):
    """This Spark has no reader for it, so the error names the format."""
    root, kind = table
    for path in (f"{root}", f"{root}/", f"file:{root}", f"file://{root}"):
        with pytest.raises((InvalidParameterError, InputRefusedError), match=f"format '{kind}'|cannot read {kind}"):
            open_table(spark, path)


def test_outputs_inside_a_table_are_refused(table, tmp_path):
    """Its folders may look like a job's: run_date=.../slice=..."""
    root, kind = table
    source = tmp_path / "in.parquet"
    pq.write_table(ROWS, source)
    for place in (root, root / "new"):
        ended = mean_ndcg("--input", source, "--output", place, "--engine", "local")
        assert_refused(ended, f"{kind.capitalize()} table", f"USING {kind} LOCATION")
    assert not (root / "new").exists()


def test_other_folders_are_not_tables(spark, tmp_path, monkeypatch):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "metadata").mkdir()  # without a file of Iceberg
    monkeypatch.chdir(tmp_path)
    for path in (str(tmp_path), "rows.parquet", ".", "*.parquet", f"file:{tmp_path}", "no/such/path"):
        assert table_folders.find_table_folder(spark, path) is None


@pytest.mark.parametrize("table", ["delta", "iceberg"], indirect=True)
def test_places_that_only_spark_reaches(spark, table):
    """Parent folders are checked if the path may be inside a table."""
    root, kind = table
    for part in ("", "data/run_date=2026-01-31", "data/part-0.parquet"):
        actual = table_folders.find_table_folder(spark, to_viewfs(root / part))
        assert actual == table_folders.TableFolder(kind, to_viewfs(root), whole=not part)


def test_engine_that_claims_every_path_exists_is_ignored(spark, monkeypatch):
    # stands in for: a session of Sail, because that is no package of the tests; scripts/test-matrix has it
    monkeypatch.setattr(table_folders, "path_exists", lambda *_: True)
    assert table_folders.find_table_folder(spark, "s3://bucket/runs") is None


def test_unlistable_metadata_is_logged(public_folder, caplog):
    """The table may be of Iceberg, and then old rows are read."""
    pq.write_table(ROWS, public_folder / "rows.parquet")
    make_closed_folder(public_folder / "metadata")
    with drop_root():
        assert table_folders.find_table_folder(None, str(public_folder)) is None
    (said,) = caplog.messages
    assert said.startswith(
        f"cannot check whether {public_folder} is a Delta, Iceberg or Hudi table (Permission denied)"
    )


def test_dangling_link_named_like_a_log_is_a_log(tmp_path):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "_delta_log").symlink_to(tmp_path / "nothing")
    assert table_folders.find_table_folder(None, str(tmp_path)) == table_folders.TableFolder(
        "delta", str(tmp_path), True
    )


@pytest.mark.parametrize(("reached", "logged"), [("day=", ["missing"]), ("nothing", [])])
def test_inaccessible_parent_folder_is_logged(spark, tmp_path, caplog, monkeypatch, reached, logged):
    """A policy may show only part of a bucket. If the folder itself is denied, the reader raises."""
    is_there = table_folders.path_exists

    def refusing(session, uri):
        if reached not in uri:
            raise AnalysisException("[x] AccessDenied: s3:ListBucket")
        return is_there(session, uri)

    monkeypatch.setattr(table_folders, "path_exists", refusing)
    assert table_folders.find_table_folder(spark, f"{tmp_path}/missing/day=1") is None
    unknown = [f"cannot check whether {tmp_path}/{part} is a Delta, Iceberg or Hudi table" for part in logged]
    assert [message.partition(" (")[0] for message in caplog.messages] == unknown
