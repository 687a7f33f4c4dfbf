"""Folders of Delta, Iceberg and Hudi tables: their Parquet files hold rows that the tables no longer have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import file_rows
from support.main_job import assert_refused, mean_ndcg
from support.random_rankings import random_rows

import ndcg_spark
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.spark import table_folders
from ndcg_spark.spark.formats import read_table

ROWS = pa.Table.from_batches([file_rows(random_rows(3))])
MARKS = {"delta": "_delta_log/00000000000000000000.json", "hudi": ".hoodie/hoodie.properties",
         "iceberg": "metadata/v1.metadata.json"}  # fmt: skip


@pytest.fixture(params=MARKS)
def table(request, tmp_path):
    """The folder of a table, which has a file in `data/run_date=2026-01-31`, and its format."""
    root = tmp_path / "runs"
    mark = root / MARKS[request.param]
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    place = root / "data" / "run_date=2026-01-31" / "part-0.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(ROWS, place)
    return root, request.param


PARTS = ("data", "data/run_date=2026-01-31", "data/run_date=2026-01-31/part-0.parquet", "data/*/*.parquet", "*", "")


@pytest.mark.parametrize("part", PARTS)
def test_files_of_a_table_are_not_read_as_parquet(spark, table, part):
    root, kind = table
    with pytest.raises(InputRefusedError, match=f"{kind.capitalize()} table '{root}'.* with format {kind}"):
        read_table(spark, str(root / part), "parquet")


@pytest.mark.parametrize("path", ["{root}", "{root}/", "file:{root}", "file://{root}"])
def test_the_folder_of_a_table_is_read_as_the_table_it_is(spark, table, path):
    """This Spark has no reader for it, so that the format it tried shows."""
    root, kind = table
    with pytest.raises((InvalidParameterError, InputRefusedError), match=f"format '{kind}'|cannot read {kind}"):
        read_table(spark, path.format(root=root))


@pytest.mark.usefixtures("spark")
def test_the_path_of_a_table_is_refused_by_the_library(table):
    root, kind = table
    with pytest.raises(InputRefusedError, match=f"{kind.capitalize()} table"):
        ndcg_spark.evaluate(root / "data")


@pytest.mark.usefixtures("spark")
def test_no_output_goes_into_a_table(table, tmp_path):
    """Its folders may look like those of this job: run_date=.../slice=..."""
    root, kind = table
    source = tmp_path / "in.parquet"
    pq.write_table(ROWS, source)
    for place in (root, root / "new"):
        ended = mean_ndcg("--input", source, "--output", place)
        assert_refused(ended, f"{kind.capitalize()} table", f"USING {kind} LOCATION")
    assert not (root / "new").exists()


def test_other_folders_are_no_tables(spark, tmp_path, monkeypatch):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "metadata").mkdir()  # without a file of Iceberg
    monkeypatch.chdir(tmp_path)
    for path in (str(tmp_path), "rows.parquet", ".", "*.parquet", f"file:{tmp_path}", "no/such/path"):
        assert table_folders.table_folder_of(spark, path) is None


def test_places_that_only_spark_reaches(spark, table, monkeypatch):
    """Folders above are looked into where the path shows that they may be a table."""
    root, kind = table
    monkeypatch.setattr(table_folders.os.path, "exists", lambda _: False)
    monkeypatch.setattr(table_folders, "glob", lambda _: [])
    for part in ("", "data/run_date=2026-01-31", "data/part-0.parquet"):
        found = table_folders.table_folder_of(spark, str(root / part))
        assert found == table_folders.TableFolder(kind, str(root), whole=not part)


def test_an_engine_that_finds_everything_finds_nothing(spark, monkeypatch):
    monkeypatch.setattr(table_folders, "is_there", lambda *_: True)
    assert table_folders.table_folder_of(spark, "s3://bucket/runs") is None
