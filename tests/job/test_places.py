"""Spellings of places: which of them are one, and which are files of this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.catalog import current_schema, place_of_table, split_name
from ndcg_spark.tables.checks import Reading
from ndcg_spark.tables.iceberg import IcebergLog
from ndcg_spark.tables.places import canonical, is_local


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
    assert canonical(one) == canonical(other)
    assert canonical(canonical(one)) == canonical(one)
    assert not is_local(canonical(one))
    reading = Reading(name="--input", folders=frozenset([canonical(one)]))
    assert reading.touches(canonical(other))
    assert reading.touches(canonical(f"{other.rstrip('/')}/metrics"))


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
    assert not Reading(name="--input", folders=frozenset([canonical(one)])).touches(canonical(other))


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


def test_the_place_of_a_new_table_in_a_schema_with_quotes() -> None:
    asked = []

    def sql(statement: str) -> SimpleNamespace:
        asked.append(statement)
        return SimpleNamespace(collect=lambda: [("Location", "s3://lake/my-schema/")])

    catalog = SimpleNamespace(tableExists=lambda _: False, databaseExists=lambda name: asked.append(name) or True)
    session = SimpleNamespace(catalog=catalog, sql=sql)
    table = "`my-catalog`.`my-schema`.Metrics"
    assert place_of_table(session, table) == "s3://lake/my-schema/metrics"
    assert asked == ["`my-catalog`.`my-schema`", "DESCRIBE SCHEMA `my-catalog`.`my-schema`"]


def test_a_schema_that_is_named_must_be_there() -> None:
    """That of a table without one is the current schema."""
    described = SimpleNamespace(collect=lambda: [("Location", "s3://lake/prod/")])
    catalog = SimpleNamespace(
        tableExists=lambda _: False, databaseExists=lambda _: False, currentDatabase=lambda: "prod"
    )
    session = SimpleNamespace(catalog=catalog, sql=lambda _: described)
    assert place_of_table(session, "metrics") == "s3://lake/prod/metrics"
    with pytest.raises(OutputRefusedError, match=r"there is no schema 'stage' to make table 'stage\.metrics' in"):
        place_of_table(session, "stage.metrics")


def test_an_output_below_a_pattern_would_be_read_the_next_time() -> None:
    reading = Reading(name="--input", patterns=("/logs/2026-*/rows",))
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
    session = SimpleNamespace(catalog=SimpleNamespace(currentDatabase=lambda: current))
    assert current_schema(session) == named
    assert IcebergLog(session, "`my.metrics`", [])._table == f"{named}.`my.metrics`"
    assert IcebergLog(session, "`x.y`.metrics", [])._table == "`x.y`.metrics"


def test_databricks_shows_stores_as_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of that name is a plain one anywhere else."""
    assert canonical("/Volumes/main/search/raw/rows") == "/Volumes/main/search/raw/rows"
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    for spelling in ("/Volumes/main/search/raw/rows", "file:/Volumes/main/search/raw/rows/"):
        assert canonical(spelling) == canonical("dbfs:/Volumes/main/search/raw/rows")
    assert canonical("/dbfs/rows") == canonical("file:///dbfs/rows") == canonical("dbfs:/rows")
    assert canonical("/dbfs2/rows") == "/dbfs2/rows"


def test_files_of_this_machine_are_real_paths(tmp_path: Path) -> None:
    (tmp_path / "a b%20é").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b%20é")
    expected = str(tmp_path / "a b%20é")
    for spelling in (f"{tmp_path}/link/", f"file:{tmp_path}/a b%20é", f"file://{tmp_path}//link/../link"):
        assert canonical(spelling) == expected
