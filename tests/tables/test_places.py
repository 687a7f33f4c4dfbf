"""Spellings of places: which of them are one, and which are files of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from support.disks import to_viewfs
from support.main_job import assert_refused, mean_ndcg, run_mean_ndcg, write_rows
from support.oracle import build_ranking
from support.spark_rows import replace_slices

from ndcg_spark.errors import InvalidParameterError, OutputRefusedError
from ndcg_spark.tables import Slices
from ndcg_spark.tables.catalog import locate_table, read_current_schema, split_name
from ndcg_spark.tables.checks import (
    UsedPlaces,
    _find_remote_table_above,
    _list_local_slices,
    check_output,
    find_used_places,
)
from ndcg_spark.tables.commits import Commit, IcebergLog
from ndcg_spark.tables.places import canonicalize, is_local, resolve_spark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://data/rows", "s3a://data/rows/"),
        ("s3n://data//rows", "S3://data/rows"),
        ("s3a://data/", "s3://data"),
        ("gs://data/rows/", "gs://data/rows"),
        ("abfss://box@acct.dfs.core.windows.net/x/", "abfs://box@acct.dfs.core.windows.net/x"),
        ("wasbs://box@acct.blob.core.windows.net/x", "abfss://box@acct.dfs.core.windows.net/x"),
        ("dbfs:/rows", "dbfs:///rows/"),
        ("hdfs://node:8020/rows/", "hdfs://node:8020/rows"),
    ],
)
def test_one_place_has_one_spelling(one: str, other: str) -> None:
    assert canonicalize(one) == canonicalize(other)
    assert canonicalize(canonicalize(one)) == canonicalize(one)
    assert not is_local(canonicalize(one))
    reading = UsedPlaces(name="--input", folders=frozenset([canonicalize(one)]))
    assert reading.touches(canonicalize(other))
    assert reading.touches(canonicalize(f"{other.rstrip('/')}/metrics"))


def test_a_path_that_spark_cannot_read_is_not_taken_for_one_that_is_not_there(spark: SparkSession) -> None:
    for reference in ("a:b:c", "http://[rows"):
        with pytest.raises(OutputRefusedError, match=r"^cannot reach '"):
            resolve_spark_path(spark, reference)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://data/rows", "s3://data/rows2"),
        ("s3://data/rows", "gs://data/rows"),
        ("s3://data/Rows", "s3://data/rows"),
        ("abfss://a@acct.dfs.core.windows.net/x", "abfss://b@acct.dfs.core.windows.net/x"),
        ("dbfs:/rows", "/rows"),
        ("s3://rows", "/rows"),
    ],
)
def test_other_places_stay_apart(one: str, other: str) -> None:
    assert not UsedPlaces(name="--input", folders=frozenset([canonicalize(one)])).touches(canonicalize(other))


@pytest.mark.parametrize(
    ("table", "schema", "name"),
    [
        ("metrics", "", "metrics"),
        ("prod.metrics", "prod", "metrics"),
        ("`my-catalog`.`my-schema`.metrics", "`my-catalog`.`my-schema`", "metrics"),
        ("main.`a.b`.`c.d`", "main.`a.b`", "c.d"),
        ("`a.b`", "", "a.b"),
        ("`a``.b`.`c``d`", "`a``.b`", "c`d"),
    ],
)
def test_the_schema_of_a_table_keeps_its_quotes(table: str, schema: str, name: str) -> None:
    assert split_name(table) == (schema, name)


def test_the_place_of_a_new_table_in_a_schema_with_quotes(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE SCHEMA `2027` LOCATION '{to_viewfs(tmp_path)}/'")
    try:
        for schema in ("`2027`", "spark_catalog.`2027`", "`spark_catalog`.`2027`"):
            assert locate_table(spark, f"{schema}.Metrics") == f"{to_viewfs(tmp_path)}/metrics"
    finally:
        spark.sql("DROP SCHEMA `2027`")


def test_a_schema_that_is_named_must_be_there() -> None:
    """That of a table without one is the current schema."""
    described = SimpleNamespace(collect=lambda: [("Location", "s3://lake/prod/")])
    catalog = SimpleNamespace(
        tableExists=lambda _: False, databaseExists=lambda _: False, currentDatabase=lambda: "prod"
    )
    session = SimpleNamespace(catalog=catalog, sql=lambda _: described)
    assert locate_table(session, "metrics") == "s3://lake/prod/metrics"
    with pytest.raises(OutputRefusedError, match=r"'stage\.metrics' cannot be created: there is no schema 'stage'"):
        locate_table(session, "stage.metrics")


@pytest.mark.parametrize("provider", ["delta", "iceberg", "parquet", ""])
def test_only_tables_with_commits_may_have_a_location_that_is_not_told(provider: str) -> None:
    """They are written by their names. A view has neither provider nor location."""
    # stands in for: Unity Catalog and REST catalogs, because Spark's own catalog tells each location
    described = SimpleNamespace(collect=lambda: [("Table", "ranking"), ("Provider", provider)])
    session = SimpleNamespace(catalog=SimpleNamespace(tableExists=lambda _: True), sql=lambda _: described)
    if provider in ("delta", "iceberg"):
        assert locate_table(session, "main.`Prod`.ranking") == "table:main.prod.ranking"
        return
    with pytest.raises(OutputRefusedError, match="is a view, or a table without a location; name another table"):
        locate_table(session, "main.prod.ranking")


def test_an_output_below_a_pattern_would_be_read_the_next_time() -> None:
    reading = UsedPlaces(name="--input", patterns=("/logs/2026-*/rows",))
    assert reading.touches("/logs/2026-01/rows")
    assert reading.touches("/logs/2026-01/rows/metrics")
    assert not reading.touches("/logs/2025-12/rows")
    assert not reading.touches("/logs/2026-01")


@pytest.mark.parametrize(
    ("current", "named"),
    [
        ("default", "default"),
        ("main.prod", "main.prod"),
        ("my-db", "`my-db`"),
        ("`my-db`", "`my-db`"),
        ("a.`b-c`", "a.`b-c`"),
        ("été", "`été`"),
    ],
)
def test_the_current_schema_is_named_as_sql_takes_it(current: str, named: str) -> None:
    # stands in for: a session in a schema of Unity Catalog, because Spark's own catalog takes no such names
    session = SimpleNamespace(catalog=SimpleNamespace(currentDatabase=lambda: current))
    assert read_current_schema(session) == named
    assert IcebergLog(session, "`my.metrics`", [])._table == f"{named}.`my.metrics`"
    assert IcebergLog(session, "`x.y`.metrics", [])._table == "`x.y`.metrics"


def test_databricks_shows_stores_as_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of that name is a plain one anywhere else."""
    assert canonicalize("/Volumes/main/search/raw/rows") == "/Volumes/main/search/raw/rows"
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    for spelling in ("/Volumes/main/search/raw/rows", "file:/Volumes/main/search/raw/rows/"):
        assert canonicalize(spelling) == canonicalize("dbfs:/Volumes/main/search/raw/rows")
    assert canonicalize("/dbfs/rows") == canonicalize("file:///dbfs/rows") == canonicalize("dbfs:/rows")
    assert canonicalize("/dbfs2/rows") == "/dbfs2/rows"


def test_files_of_this_machine_are_real_paths(tmp_path: Path) -> None:
    (tmp_path / "a b%20é").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b%20é")
    expected = str(tmp_path / "a b%20é")
    for spelling in (f"{tmp_path}/link/", f"file:{tmp_path}/a b%20é", f"file://{tmp_path}//link/../link"):
        assert canonicalize(spelling) == expected


@pytest.fixture
def iceberg(spark: SparkSession) -> Iterator[str]:
    """A name whose tables of metadata are views in a schema of that name, so that real SQL reads them."""
    # stands in for: a table of Iceberg, because no release of it runs on this Spark
    spark.sql("CREATE SCHEMA ranking_log")
    spark.sql(
        "CREATE VIEW ranking_log.refs AS SELECT * FROM VALUES ('main', 7L, 'BRANCH'), ('audit', 8L, 'BRANCH'), "
        "('kept', 6L, 'TAG') AS t(name, snapshot_id, type)"
    )
    spark.sql(
        "CREATE VIEW ranking_log.snapshots AS SELECT * FROM VALUES "
        "(7L, 6L, map('ndcg-spark-write', 'whole', 'changed-partition-count', '1')), "
        "(8L, 7L, map('ndcg-spark-write', 'wide', 'changed-partition-count', '2')), "
        "(9L, 8L, map('ndcg-spark-write', 'silent')) AS t(snapshot_id, parent_id, summary)"
    )
    yield "spark_catalog.ranking_log"
    spark.sql("DROP SCHEMA ranking_log CASCADE")


@pytest.mark.parametrize(("mark", "at", "alone"), [("whole", 7, True), ("wide", 8, False), ("silent", 9, False)])
def test_a_snapshot_that_does_not_say_what_it_changed_may_have_changed_more(
    spark: SparkSession, iceberg: str, mark: str, at: int, alone: bool
) -> None:
    log = IcebergLog(spark, iceberg, ["run_date=2026-01-31/slice=a"])
    assert log.read_version() == 7
    assert log.find_commit(mark, 6) == Commit(version=at, before=at - 1, changed_only_own_slices=alone)
    assert log.find_commit("of nobody", 6) is None


# --- Places that cannot be found out


def test_a_table_that_cannot_be_found_any_more_is_not_nowhere(spark: SparkSession) -> None:
    """An output might lie in its place. The view was there when its rows were opened."""
    spark.sql("CREATE VIEW places_gone AS SELECT 1 AS x")
    frame = spark.table("places_gone")
    assert find_used_places(spark, "--input 'places_gone'", "places_gone", None, frame) == UsedPlaces(
        name="--input 'places_gone'"
    )
    spark.sql("DROP VIEW places_gone")
    with pytest.raises(
        OutputRefusedError, match=r"cannot find the location of --input 'places_gone', which no output"
    ):
        find_used_places(spark, "--input 'places_gone'", "places_gone", None, frame)


def test_a_table_that_cannot_be_found_any_more_has_the_files_that_its_rows_come_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(1).write.parquet(str(tmp_path / "rows"))
    actual = find_used_places(spark, "--input", "places_gone", None, spark.read.parquet(str(tmp_path / "rows")))
    assert actual.folders == frozenset()
    assert {os.path.dirname(file) for file in actual.files} == {str(tmp_path / "rows")}


def test_a_path_that_spark_does_not_reach_is_unknown_unless_workers_may_reach_it(spark: SparkSession) -> None:
    """Who opens it says so; if it is open, it lies somewhere. An object store is known by its address."""
    for reference, folders in (("foo://bucket/rows", set()), ("gs://bucket/rows", {"gs://bucket/rows"})):
        assert find_used_places(spark, "--input", reference, "parquet", None).folders == folders
    with pytest.raises(OutputRefusedError, match=r"location of --input.*no file system for foo"):
        find_used_places(spark, "--input", "foo://bucket/rows", "parquet", spark.range(1))
    assert find_used_places(spark, "--input", "gs://bucket/rows", "parquet", spark.range(1)).folders == {
        "gs://bucket/rows"
    }


def test_files_that_are_not_told_are_those_of_the_path(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    said = ["[NOT_IMPLEMENTED] inputFiles"]

    def fail(_: object) -> None:
        raise AnalysisException(said[-1])

    monkeypatch.setattr(type(spark.range(1)), "inputFiles", fail)
    frame = spark.range(1)
    assert find_used_places(spark, "--input", str(tmp_path), "parquet", frame).folders == {str(tmp_path)}
    assert find_used_places(spark, "--input", "SELECT 1", "sql", frame) == UsedPlaces(name="--input")
    said.append("Read timed out")
    assert find_used_places(spark, "--input", str(tmp_path), "parquet", frame).folders == {str(tmp_path)}
    assert find_used_places(spark, "--input", f"{tmp_path}/*", "parquet", frame).patterns == (f"{tmp_path}/*",)
    with pytest.raises(OutputRefusedError, match=r"location of --input.*Read timed out"):
        find_used_places(spark, "--input", "SELECT 1", "sql", frame)


def test_a_folder_above_that_cannot_be_listed_is_told(spark: SparkSession) -> None:
    """Unless it is closed to this user, as the upper folders of a store often are. Here Spark has no such store."""
    message: list[str] = []
    assert _find_remote_table_above(spark, "foo://bucket/a/b", message.append) is None
    (line,) = message
    assert line.startswith(
        "warning: cannot check whether 'foo://bucket/a/b' is inside another table, because 'foo://bucket/a'"
    )


def test_credentials_in_an_output_are_refused_before_spark_is_asked(spark: SparkSession) -> None:
    """Spark would print them in what it says of the place."""
    with pytest.raises(InvalidParameterError, match=r"'s3a://\*\*\*@data/metrics' contains credentials"):
        check_output(spark, "s3a://KEY:SECRET@data/metrics", "parquet", spark.range(1).schema)


@pytest.mark.parametrize(
    "name",
    [
        "notes/",
        "part-0.parquet",
        "run_date=2026-01-30",
        "run_date=2026-01-30/slice=a",
        "run_date=2026-01-30/hour=3/",
        "run_date=2026-01-30/slice=a/part-0.orc",
    ],
)
def test_what_is_no_file_of_a_slice_is_named(tmp_path: Path, name: str) -> None:
    """An empty folder, too, and a file that has the name of a folder; beside a night as it should be."""
    for line in ("run_date=2026-01-31/slice=a/part-0.parquet", name):
        place = tmp_path / line if not line.endswith("/") else tmp_path / line / "_empty"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    with pytest.raises(OutputRefusedError) as caught:
        _list_local_slices(tmp_path, "./m", "parquet")
    assert str(caught.value).startswith(f"'./m' contains {name.rstrip('/')!r}, but nightly tables contain only")


def test_a_folder_above_that_the_disk_does_not_list_is_no_folder_without_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(OutputRefusedError, match="Input/output error"):
        check_output(spark, str(tmp_path / "new"), "parquet", spark.range(1).schema)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("good") / "rows.parquet", build_ranking([3, 0, 1]))


def test_table_names_that_the_catalog_does_not_take_are_refused(spark, good):
    def names():
        return {row["tableName"] for row in spark.sql("SHOW TABLES").collect()}

    before = names()
    odd = (
        "`odd``name`",
        "`odd.name`",
        "no`tick",
        "metrics; DROP TABLE x",
        "metrics USING csv",
        "a b",
        "x.y.z.w",
        "é",
        ".",
    )
    for name in odd:
        assert_refused(mean_ndcg("--input", good, "--output", name, "--output-format", "table"), name)
    assert names() == before


def test_names_that_need_quotes_can_be_read_and_written(spark, good, tmp_path):
    spark.read.parquet(str(good)).createOrReplaceTempView("`odd ``view``.name`")
    run_mean_ndcg("--input", "`odd ``view``.name`", "--input-format", "table", "--output", "`Quoted_metrics`")
    assert spark.table("quoted_metrics").count() == 3
    run_mean_ndcg(
        "--input", good, "--output", "`spark_catalog`.`default`.`quoted_metrics`", "--output-format", "table"
    )
    assert spark.table("quoted_metrics").count() == 6  # another data set beside the first
    spark.sql("DROP TABLE quoted_metrics")


def test_tables_in_a_schema_that_needs_quotes(spark):
    slices = Slices.for_night(date(2026, 1, 31), "shop", [""])
    rows = spark.sql("SELECT '' AS run, 1 AS value")
    spark.sql("CREATE SCHEMA `2026`")
    try:
        spark.sql("USE `2026`")
        for name in ("`2026`.metrics", "spark_catalog.`2026`.more", "plain"):
            for _ in range(2):  # a new table, and one that is there
                check_output(spark, name, "table", rows.schema)
                replace_slices(rows, name, "table", slices)
            assert [row["value"] for row in spark.table(name).collect()] == [1]
        with pytest.raises(OutputRefusedError, match="cannot be created: there is no schema '`no-db`'"):
            check_output(spark, "`no-db`.metrics", "table", rows.schema)
    finally:
        spark.sql("USE default")
        spark.sql("DROP SCHEMA `2026` CASCADE")
