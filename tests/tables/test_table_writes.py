"""Writes of slices: all or nothing for each, whatever fails and whoever writes beside it."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from support.elsewhere import elsewhere
from support.main_job import files_below, stored_rows
from support.permissions import bound_by_permissions, closed
from support.slices import replace_slices
from support.spark_rankings import session_settings

from ndcg_spark.core.columns import refuse
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import NdcgSparkError, OutputRefusedError, PartlyWrittenError, find_refusal
from ndcg_spark.sources.formats import open_table
from ndcg_spark.tables import (
    SliceKey,
    Slices,
    SliceWrite,
    check_output,
    claims,
    folders,
    slice_name,
    stage_slices,
    swap_in,
    table_writes,
)
from ndcg_spark.tables.catalog import cast_to_table, check_table, create_table, place_of_table
from ndcg_spark.tables.folders import RemoteFolderWrite
from ndcg_spark.tables.slices import verify_counts
from ndcg_spark.tables.table_writes import RemoteTableWrite, partition_locations, set_location

NIGHT = partial(Slices.for_night, date(2026, 1, 31), "shop")
OTHER = partial(Slices.for_night, date(2026, 1, 31), "app")
KINDS = ("folder", "table", "remote folder", "remote table")


def rows(spark, value, runs=("",), n=5, *, broken=None):
    """`n` rows a run; those of the run `broken` raise when the last of them is computed."""
    frame = spark.createDataFrame([(run, i, value) for run in runs for i in range(n)], "run string, k int, value int")
    if broken is None:
        return frame
    failing = f"IF(run = '{broken}' AND k = {n - 1}, raise_error('broken row'), value)"
    return frame.selectExpr("run", "k", f"CAST({failing} AS INT) AS value")


class Table:
    """A place that rows are written to, of any kind, and read from."""

    def __init__(self, spark, kind, path):
        self.spark, self.kind, self.path = spark, kind, path
        self.is_table = kind.endswith("table")
        self.reference = elsewhere(path) if kind == "remote folder" else str(path)
        if self.is_table:
            self.reference = f"writes_{path.name.replace('-', '_')}"
        if kind == "remote table":
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS writes_elsewhere LOCATION '{elsewhere(path.parent / 'schema')}'")
            self.reference = f"writes_elsewhere.{self.reference}"

    def write(self, frame, runs=("",), night=NIGHT, *, empty=(), **more):
        self.write_slices(frame, night(runs, empty=empty), **more)

    def write_slices(self, frame, slices, **more):
        replace_slices(frame, self.reference, None, slices, **more)

    def values(self, **where):
        """Sorted (data set, run, value, number of rows); nothing where there is no table."""
        if self.is_table and not self.spark.catalog.tableExists(self.reference):
            return []
        if not self.is_table and not any(self.path.glob("run_date=*")):
            return []
        frame = self.spark.table(self.reference) if self.is_table else self.spark.read.parquet(str(self.path))
        return sorted(tuple(row) for row in frame.groupBy("dataset", "run", "value").count().collect())


@pytest.fixture(params=KINDS)
def table(request, spark, tmp_path):
    made = Table(spark, request.param, tmp_path / f"t{abs(hash(request.node.name)) % 10**9}")
    yield made
    if made.is_table:
        spark.sql(f"DROP TABLE IF EXISTS {made.reference}")
    spark.sql("DROP SCHEMA IF EXISTS writes_elsewhere CASCADE")


@pytest.fixture
def folder(spark, tmp_path):
    return Table(spark, "folder", tmp_path / "metrics")


def ends(*calls):
    """Run calls in threads that start together; each ends in None or in its refusal."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        try:
            call()
        except NdcgSparkError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


# ------------------------------------------------------------------------------------------------ writes that fail


def test_a_failed_write_leaves_the_old_rows(table, spark):
    table.write(rows(spark, 1))
    with pytest.raises(OutputRefusedError, match="broken row"):
        table.write(rows(spark, 2, broken=""))
    assert table.values() == [("shop", "", 1, 5)]


def crashing(batches):
    for _ in batches:
        raise RuntimeError("a bug of ours")
    yield


@pytest.mark.parametrize("why", ["refused", "crashed"])
def test_what_rows_raise_is_not_put_down_to_the_output(folder, spark, why):
    """A row that is refused, or a bug: the output is not the cause, and its name would mislead."""
    frame = rows(spark, 1)
    if why == "refused":
        frame = frame.withColumn("value", F.when(F.col("k") == 4, refuse("query 7 is bad.").cast("int")).otherwise(1))
    else:
        frame = frame.mapInPandas(crashing, frame.schema)
    with pytest.raises(SPARK_ERRORS) as raised:
        folder.write(frame)
    assert find_refusal(str(raised.value)) == ("query 7 is bad." if why == "refused" else None)
    assert not folder.path.exists()


def test_a_slice_that_somebody_else_changes_is_not_kept(folder, spark, monkeypatch):
    """Whoever writes without our locks: what the swap has put there is no longer what was staged."""
    folder.write(rows(spark, 1))
    put = folders.FolderWrite._put

    def disturbed(write, staged, place, name):
        how = put(write, staged, place, name)
        (place / "stray.parquet").touch()
        return how

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(folders.FolderWrite, "_put", disturbed)
        with pytest.raises(OutputRefusedError, match=r"run_date=2026-01-31/slice=\S+ of .* was changed by somebody"):
            folder.write(rows(spark, 2))
    assert folder.values() == [("shop", "", 1, 5)]


@pytest.mark.parametrize(("code", "done"), [(errno.EIO, False), (errno.EINVAL, True)])
def test_only_a_disk_that_cannot_keep_what_it_is_told_to_write_ends_a_write(folder, spark, monkeypatch, code, done):
    """Some file systems have no fsync; an input/output error means that rows may be lost."""

    def failing(_):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as disk:
        disk.setattr(folders.os, "fsync", failing)
        if done:
            folder.write(rows(spark, 1))
        else:
            with pytest.raises(OutputRefusedError, match="Input/output error"):
                folder.write(rows(spark, 1))
    assert folder.values() == ([("shop", "", 1, 5)] if done else [])


def test_rows_that_executors_write_to_disks_of_their_own_are_missed(folder, spark, monkeypatch):
    """As on a cluster without a shared folder: here one file of three goes, as if it were on another machine."""
    # stands in for: executors on other machines, because there is one; scripts/check cluster has several
    monkeypatch.setattr("ndcg_spark.core.session.runs_locally", lambda *_: False)
    frame = rows(spark, 1, n=6).repartition(3, "k")
    folder.write(frame)  # all are found
    assert folder.values() == [("shop", "", 1, 6)]
    counted = folders.count_file_rows
    monkeypatch.setattr(folders, "count_file_rows", lambda place, kind: counted(place, kind) - 2)
    with pytest.raises(
        OutputRefusedError, match=r"of 6 rows for .* there are 4: executors wrote the others to disks"
    ):
        folder.write(frame)
    # stands in for: an engine that tells nothing of rows on their way, because Spark does
    monkeypatch.setattr(type(folders._observation(spark)), "get", {})
    folder.write(frame)


@pytest.mark.parametrize("table", ["remote folder"], indirect=True)
def test_a_remote_folder_that_cannot_be_looked_at_is_not_taken_for_an_empty_one(table, spark, monkeypatch):
    """Else old files would not be missed, as where a store denies to list them."""
    table.write(rows(spark, 1))
    # stands in for: a store that denies to list, because no store of the tests has rights
    monkeypatch.setattr("ndcg_spark.tables.folders.condition_of", lambda _: "ACCESS_DENIED")
    table.path.rename(table.path.with_name("away"))
    with pytest.raises(OutputRefusedError, match="cannot write"):
        table.write(rows(spark, 2))
    assert not table.path.exists()


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_a_slice_that_another_job_has_replaced_meanwhile_is_not_replaced_again(table, spark, tmp_path):
    """Its rows are newer than those that ours were to replace."""
    table.write(rows(spark, 1))
    name, (slice_,) = table.reference, NIGHT([""]).folders.values()
    with closing(stage_slices(rows(spark, 2), name, None, NIGHT([""]))) as staged:
        (theirs,) = partition_locations(spark, name, [slice_]).values()
        set_location(spark, name, slice_, f"{tmp_path.as_uri()}/theirs")
        with pytest.raises(OutputRefusedError, match="another job wrote the same runs to"):
            swap_in([staged])
    assert partition_locations(spark, name, [slice_])[slice_].endswith("/theirs")
    set_location(spark, name, slice_, theirs)
    assert table.values() == [("shop", "", 1, 5)]


@pytest.mark.parametrize("table", ["table"], indirect=True)
def test_a_table_that_has_other_rows_than_were_written_is_told(table, spark):
    table.write(rows(spark, 1))
    (slice_,) = NIGHT([""]).folders.values()
    verify_counts(spark, table.reference, [slice_], {slice_: 5})
    with pytest.raises(OutputRefusedError, match=r"has 5 rows where 6 were written: somebody else changed it"):
        verify_counts(spark, table.reference, [slice_], {slice_: 6})


@pytest.mark.parametrize("table", ["remote folder"], indirect=True)
def test_a_remote_folder_that_is_half_written_is_no_refusal(table, spark, monkeypatch):
    """A refusal says that nothing was written; here old files are gone."""
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    save = type(spark.range(1).write).save

    def failing(writer, place):
        for file in table.path.glob("run_date=*/slice=shop.a-*/*.parquet"):
            file.unlink()
        save(writer.partitionBy(), "/proc/nothing")

    again = rows(spark, 2, ("a", "b"))
    with monkeypatch.context() as broken:
        broken.setattr(type(spark.range(1).write), "save", failing)
        with pytest.raises(RuntimeError, match=r"half written: rows of run_date=\S*shop\.a-"):
            table.write(again, ("a", "b"))
    table.write(rows(spark, 3, ("a", "b")), ("a", "b"))
    assert table.values() == [("shop", run, 3, 5) for run in ("a", "b")]


@pytest.mark.parametrize("table", ["remote folder"], indirect=True)
@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), KeyboardInterrupt()], ids=repr)
def test_what_fails_once_a_remote_folder_is_written_is_no_refusal(table, spark, monkeypatch, error):
    """The rows are replaced by then; the look at them fails, as Java has died, or as somebody pressed Ctrl-C."""
    table.write(rows(spark, 1))
    files, looks = RemoteFolderWrite._files, []

    def failing(write):
        looks.append(1)
        if len(looks) == 2:
            raise error
        return files(write)

    with monkeypatch.context() as broken:
        broken.setattr(RemoteFolderWrite, "_files", failing)
        with pytest.raises(PartlyWrittenError, match=r"rows of run_date=\S* are wrong until"):
            table.write(rows(spark, 2))
    table.write(rows(spark, 3))
    assert table.values() == [("shop", "", 3, 5)]


@pytest.mark.parametrize("table", ["remote folder"], indirect=True)
def test_a_committer_that_adds_rows_is_told(table, spark, monkeypatch):
    """As Hadoop's, behind the protocol of cloud committers, in some releases of Spark (SPARK-56588)."""
    table.write(rows(spark, 1))
    writers = type(spark.range(1).write)
    mode = writers.mode
    with monkeypatch.context() as broken:
        # stands in for: a committer of a cloud that adds rows, because none is among the jars of Spark
        broken.setattr(writers, "mode", lambda writer, _: mode(writer, "append"))
        with pytest.raises(PartlyWrittenError, match="beside the old ones: its output committer"):
            table.write(rows(spark, 2))


@pytest.mark.parametrize("table", ["remote folder"], indirect=True)
def test_a_run_without_rows_is_told_of_a_remote_folder_too(table, spark):
    """Nobody knows before the others are written."""
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    with pytest.raises(PartlyWrittenError, match="no rows of run 'b'"):
        table.write(rows(spark, 2, ("a",)), ("a", "b"))
    with pytest.raises(OutputRefusedError, match="no rows of run 'c'"):
        table.write(rows(spark, 2, ("c",)).limit(0), ("c",))


def test_rows_of_a_run_that_was_not_announced_are_refused(table, spark):
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    with pytest.raises(OutputRefusedError):
        table.write(rows(spark, 2, ("a", "b")), ("a",))
    assert table.values() == [("shop", run, 1, 5) for run in ("a", "b")]


@pytest.mark.parametrize("table", ["table"], indirect=True)
def test_a_table_with_its_partition_columns_in_another_order_is_refused(table, spark):
    """Its partitions have other names in the catalog."""
    spark.sql(
        f"CREATE TABLE {table.reference} (run STRING, value INT, dataset STRING, run_date DATE, slice STRING) "
        "USING parquet PARTITIONED BY (slice, run_date)"
    )
    with pytest.raises(OutputRefusedError, match="partitioned by run_date and slice, in this order"):
        table.write(rows(spark, 1))


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_a_partition_that_another_job_adds_at_the_same_moment_is_not_taken_for_ours(table, spark, monkeypatch):
    """`ADD IF NOT EXISTS` adds nothing to Hive's catalog then, and both have as many rows."""
    table.write(rows(spark, 1, ("a",)), ("a",))
    add = table_writes.add_partitions

    def late(*_):
        with monkeypatch.context() as first:
            first.setattr(table_writes, "add_partitions", add)
            # stands in for: the claims of another process, because a catalog in memory has one process
            first.setattr(claims, "_claimed", set())
            table.write(rows(spark, 2))

    # stands in for: Hive's catalog, which adds no partition that it has, because that in memory replaces it
    monkeypatch.setattr(table_writes, "add_partitions", late)
    with pytest.raises(OutputRefusedError, match="another job wrote the same runs"):
        table.write(rows(spark, 3))
    assert table.values() == [("shop", "", 2, 5), ("shop", "a", 1, 5)]


def test_many_nights_are_replaced_again(table, spark):
    """As `roll-up` and `flag-changes` write them; their slices lie in several folders of nights."""
    nights = [date(2026, 1, day) for day in (30, 31)]
    frame = spark.createDataFrame([(night, "", 1) for night in nights], "night date, run string, value int")
    keys = tuple(SliceKey(night, "") for night in nights)
    slices = Slices(dataset="shop", keys=keys, columns={"night": "night", "run": "run"})
    for value in (1, 2):
        table.write_slices(frame.selectExpr("night", "run", f"{value} AS value"), slices)
    assert table.values() == [("shop", "", 2, 2)]


@pytest.mark.parametrize("n", [1, 2])
def test_stamp_finds_the_slice_of_a_row_by_all_of_its_keys(spark, n):
    """One slice is found by a condition, several by a join; a row of another night, run or length has none."""
    days = [date(2026, 1, day) for day in (30, 31)]
    keys = (SliceKey(days[1], "a", "week"), SliceKey(days[0], "a", "week"))[:n]
    columns = {"night": "night", "run": "run", "part": "length"}
    slices = Slices(dataset="shop", keys=keys, columns=columns, empty=frozenset())
    values = [(days[1], "a", "week"), (days[0], "a", "week"), (days[1], "b", "week"), (days[1], "a", "month")]
    frame = spark.createDataFrame(values, "night date, run string, length string")
    stored = {tuple(row)[:3]: (str(row["run_date"]), row["slice"]) for row in slices.stamp(frame).collect()}
    name = slice_name("shop", "a", "week")
    assert stored == {value: (str(value[0]), name if value in keys else None) for value in values}
    assert slices.folders == {f"{key.night} week a": f"run_date={key.night}/slice={name}" for key in keys}


@pytest.mark.parametrize("table", ["table", "remote table"], indirect=True)
def test_a_table_that_another_writer_drops_again_is_made_anew(table, spark, monkeypatch):
    """Another writer made it, its rows did not come, and it dropped the table before our slices were claimed."""
    create, dropped = table_writes.create_table, []

    def create_and_lose(*arguments):
        made = create(*arguments)
        if not dropped:
            dropped.append(spark.sql(f"DROP TABLE {table.reference}"))
        return made

    monkeypatch.setattr(table_writes, "create_table", create_and_lose)
    table.write(rows(spark, 1))
    assert dropped
    assert table.values() == [("shop", "", 1, 5)]


@pytest.mark.parametrize("table", ["table", "remote table"], indirect=True)
def test_a_table_that_is_dropped_once_its_slices_are_claimed_is_made_anew(table, spark, monkeypatch):
    """The claims are given back before they are asked for again."""
    claim, dropped = table_writes._table_write, []

    def claim_and_lose(*arguments):
        made = claim(*arguments)
        if not dropped:
            dropped.append(spark.sql(f"DROP TABLE {table.reference}"))
        return made

    table.write(rows(spark, 1))
    monkeypatch.setattr(table_writes, "_table_write", claim_and_lose)
    table.write(rows(spark, 2))
    assert dropped
    assert table.values() == [("shop", "", 2, 5)]


def test_a_view_whose_table_is_gone_is_named(spark):
    """Spark says of the view that a table cannot be found; the view is there."""
    spark.sql("CREATE TABLE writes_base (run STRING, value INT) USING parquet")
    spark.sql("CREATE VIEW writes_view AS SELECT * FROM writes_base")
    try:
        spark.sql("DROP TABLE writes_base")
        with pytest.raises(OutputRefusedError, match=r"cannot write to table 'writes_view'.*writes_base"):
            stage_slices(rows(spark, 1), "writes_view", "table", NIGHT([""]))
    finally:
        spark.sql("DROP VIEW writes_view")


@pytest.mark.parametrize("is_made_again", [False, True], ids=["dropped", "made again without the column"])
def test_a_table_that_loses_a_new_column_before_it_is_written(spark, tmp_path, monkeypatch, is_made_again):
    """Somebody drops it just after the column was added: it is made anew, unless somebody makes the old one, too."""
    one, add = Table(spark, "table", tmp_path / "lost"), table_writes.add_columns
    one.write(rows(spark, 1))

    def add_and_lose(*arguments):
        add(*arguments)
        spark.sql(f"DROP TABLE {one.reference}")
        if is_made_again:
            stored = NIGHT([""]).stamp(rows(spark, 1)).drop("run_date", "slice").schema
            assert create_table(spark, one.reference, stored, "table")

    monkeypatch.setattr(table_writes, "add_columns", add_and_lose)
    new = rows(spark, 2).withColumn("more", F.lit(7))
    try:
        if is_made_again:
            with pytest.raises(OutputRefusedError, match="was dropped or altered by somebody else"):
                one.write(new)
        else:
            one.write(new)
            assert one.values() == [("shop", "", 2, 5)]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {one.reference}")


@pytest.mark.parametrize("table", ["table"], indirect=True)
def test_a_table_that_is_dropped_every_time_is_refused(table, spark, monkeypatch):
    create = table_writes.create_table

    def create_and_lose(*arguments):
        made = create(*arguments)
        spark.sql(f"DROP TABLE {table.reference}")
        return made

    monkeypatch.setattr(table_writes, "create_table", create_and_lose)
    with pytest.raises(
        OutputRefusedError, match=f"table '{table.reference}' was dropped or altered by somebody else"
    ):
        table.write(rows(spark, 1))


@pytest.mark.parametrize("table", ["table", "remote table"], indirect=True)
def test_rows_that_somebody_adds_to_a_slice_before_a_write_ends_are_told(table, spark, monkeypatch):
    verify = table_writes.verify_counts

    def late(*arguments):
        spark.sql(f"INSERT INTO {table.reference} SELECT * FROM {table.reference} LIMIT 1")
        verify(*arguments)

    monkeypatch.setattr(table_writes, "verify_counts", late)
    with pytest.raises(OutputRefusedError, match="has 6 rows where 5 were written: somebody else changed it"):
        table.write(rows(spark, 1))


@pytest.mark.parametrize("table", ["table"], indirect=True)
def test_a_table_of_another_provider_is_refused(table, spark):
    spark.sql(
        f"CREATE TABLE {table.reference} (run STRING, value INT, dataset STRING, run_date DATE, slice STRING) "
        "USING csv PARTITIONED BY (run_date, slice)"
    )
    with pytest.raises(OutputRefusedError, match="is of provider 'csv'; this version writes parquet, orc, hive, "):
        table.write(rows(spark, 1))


def test_a_catalog_that_does_not_load_is_named(spark):
    table = "broken.metrics.ranking"
    told = rf"cannot write to table '{table}': .*no\.such\.Catalog"
    with session_settings(spark, spark__sql__catalog__broken="no.such.Catalog"):
        with pytest.raises(OutputRefusedError, match=told):
            replace_slices(rows(spark, 1), table, None, NIGHT([""]))
        with pytest.raises(OutputRefusedError, match=told):
            check_output(spark, table, None, rows(spark, 1).schema)


@pytest.mark.parametrize("kind", ["Delta", "Iceberg"])
def test_a_provider_that_spark_lacks_is_named(spark, kind):
    told = f"this Spark has no {kind}, and cannot make table 'new_metrics'; start it with its package"
    with pytest.raises(OutputRefusedError, match=told):
        check_output(spark, "new_metrics", kind.lower(), rows(spark, 1).schema)


def test_a_table_that_cannot_be_made_is_not_taken_for_one_that_others_have_made(spark):
    twice = T.StructType([T.StructField("run", T.StringType())] * 2)
    with pytest.raises(SPARK_ERRORS, match="COLUMN_ALREADY_EXISTS"):
        create_table(spark, "writes_never_made", twice, "table")


def test_a_format_that_no_output_has_is_refused(spark, tmp_path):
    with pytest.raises(OutputRefusedError, match=r"outputs are written as parquet, .*, not 'csv'"):
        check_output(spark, str(tmp_path / "metrics"), "csv", rows(spark, 1).schema)


def test_a_place_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as broken:
        broken.setattr(claims.fcntl, "flock", no_locks)
        with pytest.raises(OutputRefusedError, match=r"has no locks \(flock: No locks available\); write elsewhere"):
            claims.claim_slices(tmp_path / "metrics", ["a"], print)
    # stands in for: Windows, which has no fcntl, because this is none
    monkeypatch.setattr(claims, "fcntl", None)
    with pytest.raises(OutputRefusedError, match="this system has no flock; write to a remote path"):
        claims.claim_slices(tmp_path / "metrics", ["a"], print)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("table", ["table", "remote table"], indirect=True)
@pytest.mark.parametrize("when", ["once they are claimed", "between two questions to the catalog"])
def test_slices_are_free_again_when_a_table_cannot_be_opened(table, spark, monkeypatch, when):
    def refuse(*_):
        raise OSError(5, "no catalog")

    claim = table_writes._table_write

    def claim_and_refuse(*arguments):
        made = claim(*arguments)
        broken.setattr(type(spark.catalog), "tableExists", refuse)
        return made

    table.write(rows(spark, 1))
    with monkeypatch.context() as broken:
        if when == "once they are claimed":
            broken.setattr(table_writes, "_table_write", claim_and_refuse)
        else:
            broken.setattr(table_writes, "partition_locations", refuse)
        with pytest.raises(OutputRefusedError, match="no catalog"):
            table.write(rows(spark, 2))
    table.write(rows(spark, 3))
    assert table.values() == [("shop", "", 3, 5)]


def test_of_several_runs_none_is_replaced_when_one_fails(table, spark):
    runs = ("a", "b", "c")
    table.write(rows(spark, 1, runs), runs)
    with pytest.raises(OutputRefusedError, match="broken row"):
        table.write(rows(spark, 2, runs, broken="c"), runs)
    assert table.values() == [("shop", run, 1, 5) for run in runs]


def test_a_first_write_that_fails_leaves_nothing(table, spark):
    with pytest.raises(OutputRefusedError, match="broken row"):
        table.write(rows(spark, 2, broken=""))
    assert table.values() == []
    if table.is_table:  # of a remote one nobody can tell whether others have begun to use it
        assert spark.catalog.tableExists(table.reference) == (table.kind == "remote table")
    if table.kind == "folder":
        assert not table.path.exists()
    table.write(rows(spark, 3))
    assert table.values() == [("shop", "", 3, 5)]


def test_writes_replace_their_slices_only(table, spark):
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    table.write(rows(spark, 2, ("a",)), ("a",), OTHER)
    table.write(rows(spark, 3, ("b",), n=2), ("b",))
    table.write(rows(spark, 4, ("b",), n=3), ("b",))
    assert table.values() == [("app", "a", 2, 5), ("shop", "a", 1, 5), ("shop", "b", 4, 3)]


def test_a_run_without_rows_is_emptied_where_that_is_allowed(table, spark):
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    table.write(rows(spark, 2, ("a",)), ("a", "b"), empty=["b"])
    assert table.values() == [("shop", "a", 2, 5)]


def test_a_run_that_may_be_empty_keeps_the_rows_it_has(table, spark):
    for value in (1, 2):
        table.write(rows(spark, value, ("a", "b")), ("a", "b"), empty=["b"])
        assert table.values() == [("shop", "a", value, 5), ("shop", "b", value, 5)]


def test_a_run_that_has_never_had_rows_may_be_empty(table, spark):
    table.write(rows(spark, 1, ("a",)), ("a", "b"), empty=["b"])
    assert table.values() == [("shop", "a", 1, 5)]
    if table.kind == "remote folder":  # one that Spark has made for nothing stays for ever
        assert len([one for one in table.path.glob("run_date=*/slice=*") if one.is_dir()]) == 1


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_readers_are_sent_to_a_place_that_is_there(table, spark):
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    table.write(rows(spark, 2, ("a",)), ("a", "b"), empty=["b"])
    locations = partition_locations(spark, table.reference, list(NIGHT(["a", "b"]).folders.values()))
    places = [Path(unquote(one.removeprefix(elsewhere("/").rstrip("/")))) for one in locations.values()]
    assert [place.is_dir() for place in places] == [True, True]
    assert table.values() == [("shop", "a", 2, 5)]


@pytest.mark.parametrize("table", ["folder", "table", "remote table"], indirect=True)
def test_a_run_without_rows_is_refused_where_it_is_not(table, spark):
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    with pytest.raises(OutputRefusedError, match="no rows of run 'b'"):
        table.write(rows(spark, 2, ("a",)), ("a", "b"))
    assert table.values() == [("shop", "a", 1, 5), ("shop", "b", 1, 5)]


def test_staged_rows_are_not_visible(table, spark):
    if table.kind == "remote folder":
        pytest.skip("Spark stages those itself")
    table.write(rows(spark, 1))
    with closing(stage_slices(rows(spark, 2), table.reference, None, NIGHT([""]))) as staged:
        assert table.values() == [("shop", "", 1, 5)]
        swap_in([staged])
        assert table.values() == [("shop", "", 2, 5)]
    assert table.values() == [("shop", "", 2, 5)]


def test_a_swap_that_fails_is_taken_back(spark, tmp_path):
    """Of three outputs the last cannot be swapped in: the first two are as they were."""

    class Broken(SliceWrite):
        reference = "broken"

        def __init__(self):
            pass

        def swap(self):
            raise OutputRefusedError("no")

        def finish(self):
            raise AssertionError

    first, second = Table(spark, "folder", tmp_path / "first"), Table(spark, "table", tmp_path / "second")
    fresh = Table(spark, "folder", tmp_path / "fresh")
    try:
        for one in (first, second):
            one.write(rows(spark, 1))
        staged = [stage_slices(rows(spark, 2), one.reference, None, NIGHT([""])) for one in (first, second, fresh)]
        staged += [stage_slices(rows(spark, 2), second.reference, None, OTHER([""]))]
        with pytest.raises(OutputRefusedError):
            swap_in([*staged, Broken()])
        for one in staged:
            one.close()
        assert first.values() == second.values() == [("shop", "", 1, 5)]
        assert not fresh.path.exists()
        second.write(rows(spark, 3), night=OTHER)
        assert second.values() == [("app", "", 3, 5), ("shop", "", 1, 5)]
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {second.reference}")


# ------------------------------------------------------------------------------------------------ writers at once


@pytest.mark.parametrize("table", ["folder", "table", "remote table"], indirect=True)
def test_two_data_sets_at_once_into_a_new_table(table, spark):
    for _ in range(4):
        calls = [lambda one=one: table.write(rows(spark, 1), night=one) for one in (NIGHT, OTHER)]
        assert ends(*calls) == [None, None]
        assert table.values() == [("app", "", 1, 5), ("shop", "", 1, 5)]
        if table.is_table:
            spark.sql(f"DROP TABLE {table.reference}")


def test_a_column_that_the_table_lost_meanwhile_is_not_lost_with_it(spark, tmp_path):
    one = Table(spark, "table", tmp_path / "lost")
    try:
        one.write(rows(spark, 1))
        stored = NIGHT([""]).stamp(rows(spark, 2).withColumn("more", F.lit(1)))
        facts = check_table(spark, one.reference, stored.drop("run_date", "slice").schema)
        with pytest.raises(OutputRefusedError, match=f"table '{one.reference}' has no column 'more': somebody"):
            cast_to_table(stored, facts)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {one.reference}")


@contextmanager
def read_all_the_time(table):
    """Look a catalog table up in threads of their own, as somebody's queries do."""
    ended = threading.Event()

    def look():
        while not ended.is_set():
            assert table.spark.table(table.reference).schema

    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(look) for _ in range(2 * table.is_table)]
        try:
            yield
        finally:
            ended.set()
    assert [one.exception() for one in looks] == [None] * len(looks)


@pytest.mark.parametrize("table", ["folder", "table", "remote table"], indirect=True)
def test_writers_that_add_columns_at_once(table, spark):
    """Each of them may read the columns of a table before the other one has added its own.

    Spark remembers the columns that the last look-up found, even one that began before they were added.
    """
    table.write(rows(spark, 0), night=NIGHT)
    with read_all_the_time(table):
        for value in (1, 2):
            calls = [
                partial(table.write, rows(spark, value).selectExpr("*", f"{value} AS {name}_{value}"), night=one)
                for name, one in (("ours", NIGHT), ("theirs", OTHER))
            ]
            assert ends(*calls) == [None, None]
    frame = spark.table(table.reference) if table.is_table else open_table(spark, table.reference).frame
    # Of a folder, columns that no night has any more are gone.
    gone = ["NULL AS ours_1", "NULL AS theirs_1"] if not table.is_table else []
    found = frame.selectExpr("*", *gone).groupBy("dataset", "ours_1", "theirs_1", "ours_2", "theirs_2").count()
    assert sorted(map(tuple, found.collect())) == [
        ("app", None, None, None, 2, 5),
        ("shop", None, None, 2, None, 5),
    ]


def test_of_two_writers_of_a_slice_one_wins_whole(table, spark):
    table.write(rows(spark, 0))
    before = 0
    for value in range(1, 9, 2):
        ended = ends(*[lambda one=one: table.write(rows(spark, one, n=3 + one)) for one in (value, value + 1)])
        refused = [end for end in ended if end is not None]
        assert len(refused) < 2
        assert all("is being written by" in one or "meanwhile" in one for one in refused)
        ((_, _, now, n),) = table.values()
        assert now in [value + at for at, end in enumerate(ended) if end is None], (before, ended)
        assert n == 3 + now
        before = now


def test_a_second_writer_is_told_who_is_at_work(spark, folder):
    with (
        closing(stage_slices(rows(spark, 1), folder.reference, None, NIGHT([""]))) as staged,
        pytest.raises(OutputRefusedError) as refused,
    ):
        folder.write(rows(spark, 2))
    told = str(refused.value)
    assert [one for one in (slice_name("shop", ""), f"process {os.getpid()}", "since 20") if one not in told] == []
    assert "\n" not in told
    assert staged.reference == folder.reference
    assert not folder.path.exists()
    folder.write(rows(spark, 3))
    assert folder.values() == [("shop", "", 3, 5)]


def test_of_two_threads_that_claim_a_slice_where_no_folder_is_shared_one_is_refused():
    place = "main.metrics.ranking"
    first = claims.ThreadClaim(place, ["a", "b"], place)
    with pytest.raises(OutputRefusedError, match=rf"b of '{place}' is being written by another thread of this proc"):
        claims.ThreadClaim(place, ["b", "c"], place)
    claims.ThreadClaim(place, ["c"], place).release()  # nothing was claimed by who was refused
    first.release()
    claims.ThreadClaim(place, ["b"], place).release()


def test_a_writer_waits_while_another_one_looks_who_is_there(tmp_path):
    """As one that drops a table which nobody uses."""
    writers = ThreadPoolExecutor(1)
    with claims.lock_out_writers(tmp_path) as nobody:
        claiming = writers.submit(claims.claim_slices, tmp_path, ["a"], print)
        assert (nobody, wait([claiming], timeout=0.2).done) == (True, set())
        assert os.listdir(tmp_path / claims.HIDDEN) == ["mutex"]
    claiming.result(timeout=60).release()
    writers.shutdown()


def test_what_tasks_of_a_killed_writer_still_write_goes_with_the_next_one(spark, folder):
    """It was cleared when this writer began; a task on a cluster goes on for a moment and makes its folder again."""
    with closing(stage_slices(rows(spark, 1), folder.reference, None, NIGHT([""]))) as staged:
        (own,) = (folder.path / ".ndcg-spark").glob("write-*")
        (own.with_name("write-0") / "rows" / "_temporary").mkdir(parents=True)
        swap_in([staged])
    assert [name for name in os.listdir(folder.path) if name.startswith(".")] == []
    assert folder.values() == [("shop", "", 1, 5)]


def test_nothing_of_a_write_is_left_over(spark, folder):
    folder.write(rows(spark, 1))
    folder.write(rows(spark, 2))
    names = {re.sub(r"part-.*", "part", name) for name in files_below(folder.path)}
    place = f"run_date=2026-01-31/slice={slice_name('shop', '')}"
    assert names == {"_SUCCESS", f"{place}/part", f"{place}/.part"}  # the latter are checksums
    assert sorted(os.listdir(folder.path)) == ["_SUCCESS", "run_date=2026-01-31"]


# ------------------------------------------------------------------------------------------ writers that are killed

KILLED = """
import sys, time
from pathlib import Path
from ndcg_spark.tables.claims import claim_slices
claim = claim_slices(Path(sys.argv[1]), sys.argv[2:], print)
for folder in sys.argv[2:]:
    (claim.rows / folder).mkdir(parents=True)
    (claim.rows / folder / "part-0.parquet").write_text("half")
    if (claim.root / folder).exists():
        (claim.replaced / folder).parent.mkdir(parents=True)
        (claim.root / folder).rename(claim.replaced / folder)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def writer(folder):
    """A process that has claimed a slice, and moved its old rows away as where names cannot be exchanged."""
    place = f"run_date=2026-01-31/slice={slice_name('shop', '')}"
    command = [sys.executable, "-c", KILLED, str(folder.path), place]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def kill(writer):
    assert writer.stdout.readline() == "ready\n"
    writer.kill()
    writer.wait()


def test_what_a_killed_writer_left_is_named_and_removed(spark, folder, writer):
    assert writer.stdout.readline() == "ready\n"
    with pytest.raises(OutputRefusedError, match=rf"is being written by process {writer.pid} on "):
        folder.write(rows(spark, 1))
    writer.kill()
    writer.wait()
    told = []
    folder.write(rows(spark, 1), tell=told.append)
    assert len(told) == 1
    assert told[0].startswith("removed what a killed writer left in ")
    assert f"process {writer.pid}" in told[0]
    assert str(folder.path) in told[0]
    assert folder.values() == [("shop", "", 1, 5)]
    assert not (folder.path / ".ndcg-spark").exists()


def test_leftovers_are_invisible(spark, folder, writer):
    folder.write(rows(spark, 1), night=OTHER)
    kill(writer)
    assert (folder.path / ".ndcg-spark").exists()
    assert folder.values() == [("app", "", 1, 5)]


@pytest.mark.parametrize("what", ["rows", "replaced"])
def test_leftovers_that_are_closed_to_the_next_writer_are_not_said_to_be_removed(public_folder, what):
    """Old rows that wait there may be the only ones: they are not passed over."""
    entry = public_folder / ".ndcg-spark" / "write-1"
    closed(entry / what / "run_date=2026-01-31")
    with bound_by_permissions():
        if what == "rows":
            said = claims._clear(entry, public_folder)
            assert said.startswith(f"could not remove what a killed writer left in {entry}")
        else:
            with pytest.raises(PermissionError):
                claims._clear(entry, public_folder)
    assert entry.exists()


@pytest.fixture
def moved(spark, folder):
    """A folder with old rows, which the writer will move away: ask for this before the writer."""
    folder.write(rows(spark, 1))
    return folder.path / f"run_date=2026-01-31/slice={slice_name('shop', '')}"


def test_old_rows_that_a_killed_writer_moved_away_come_back(spark, folder, moved, writer):
    kill(writer)
    assert not moved.exists()
    with pytest.raises(OutputRefusedError, match="broken row"):
        folder.write(rows(spark, 2, broken=""))
    assert folder.values() == [("shop", "", 1, 5)]


def test_without_exchange_a_slice_is_replaced_by_two_renames(spark, folder, monkeypatch):
    # stands in for: a file system that cannot exchange names, because none of this machine is one
    monkeypatch.setattr(folders, "exchange", lambda *_: False)
    folder.write(rows(spark, 1))
    folder.write(rows(spark, 2))
    assert folder.values() == [("shop", "", 2, 5)]
    assert sorted(os.listdir(folder.path)) == ["_SUCCESS", "run_date=2026-01-31"]


def test_a_file_that_somebody_adds_to_a_slice_while_it_is_put_in_place_is_told(spark, folder, monkeypatch):
    exchange = folders.exchange
    folder.write(rows(spark, 1))

    def exchange_and_add(staged, place):
        done = exchange(staged, place)
        (place / "part-theirs.parquet").touch()
        return done

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(folders, "exchange", exchange_and_add)
        with pytest.raises(
            OutputRefusedError, match=r"^run_date=\S* of .* was changed by somebody else meanwhile\.$"
        ):
            folder.write(rows(spark, 2))
    assert folder.values() == [("shop", "", 1, 5)]


@pytest.mark.skipif(sys.platform != "linux", reason="renameat2 is of Linux")
def test_folders_are_exchanged_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert folders.exchange(tmp_path / "one", tmp_path / "other")
    assert os.listdir(tmp_path / "one") == ["other"]
    assert os.listdir(tmp_path / "other") == ["one"]
    with pytest.raises(FileNotFoundError):  # False would mean that this system cannot
        folders.exchange(tmp_path / "one", tmp_path / "gone")


# ------------------------------------------------------------------------------------------------------- many runs


def test_hundreds_of_runs(spark, folder):
    """A `when` for each run overflowed Spark's stack at 600."""
    runs = [f"run {at} \u00e9" for at in range(700)]
    frame = spark.createDataFrame([(run, at) for at, run in enumerate(runs)], "run string, value int")
    marked = NIGHT(runs).stamp(frame)
    found = {row["run"]: row["slice"] for row in marked.collect()}
    assert found == {run: slice_name("shop", run) for run in runs}
    assert marked.columns == ["run", "value", "dataset", "run_date", "slice"]
    some = frame.where("value < 20")
    folder.write(some, runs[:20])
    assert {json.dumps(row["run"]) for row in stored_rows(folder.path)} == {json.dumps(run) for run in runs[:20]}


# ----------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["dataset", "Run_Date", "SLICE"])
def test_columns_that_storing_would_overwrite_are_refused(spark, folder, name):
    taken = rows(spark, 1).selectExpr("*", f"k AS {name}")
    with pytest.raises(OutputRefusedError, match=f"{name!r}.*rename"):
        check_output(spark, str(folder.path), "parquet", taken.schema)
    with pytest.raises(OutputRefusedError, match=f"{name!r}.*rename"):
        folder.write(taken)
    assert not folder.path.exists()


def test_a_view_is_no_place_for_rows(spark):
    spark.range(1).createOrReplaceTempView("no_place")
    try:
        with pytest.raises(OutputRefusedError, match="'no_place' is a view, or a table without a location"):
            place_of_table(spark, "no_place")
    finally:
        spark.catalog.dropTempView("no_place")


# ------------------------------------------------------------------------------------- when taking back fails, too


class Output:
    """An output that fails where it is told to."""

    undoable = True

    def __init__(self, name, failing=()):
        self.reference, self.failing, self.calls = name, failing, []

    def __getattr__(self, name):
        def call():
            self.calls.append(name)
            if name in self.failing:
                raise OSError(5, f"{name} of {self.reference}")

        return call


def test_one_output_that_cannot_be_taken_back_does_not_keep_others(caplog):
    first, second, third = Output("a"), Output("b", ["undo"]), Output("c", ["swap", "undo"])
    with pytest.raises(
        RuntimeError, match=r"c was not written, or not whole, and c, b could not be taken back: .* swap of c"
    ):
        swap_in([first, second, third])
    assert (first.calls, second.calls) == (["swap", "undo"], ["swap", "undo"])
    assert "could not take back b" in caplog.text


def test_an_output_that_fails_without_a_word_does_not_keep_others_either(caplog):
    class Silent(Output):
        def undo(self):
            raise TimeoutError

    first, second, third = Output("a"), Silent("b"), Output("c", ["swap"])
    with pytest.raises(PartlyWrittenError, match=r"c was not written, or not whole, and b could not be taken back"):
        swap_in([first, second, third])
    assert first.calls == ["swap", "undo"]
    assert "could not take back b: TimeoutError" in caplog.text


def test_all_outputs_are_finished_though_one_cannot_be():
    outputs = [Output("a", ["finish"]), Output("b"), Output("c")]
    with pytest.raises(OSError, match="finish of a"):
        swap_in(outputs)
    assert [one.calls for one in outputs] == [["swap", "finish"]] * 3


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_rows_that_readers_see_are_not_discarded(table, spark):
    """Also when whoever swapped them in could not finish."""
    table.write(rows(spark, 1))
    staged = stage_slices(rows(spark, 2), table.reference, None, NIGHT([""]))
    staged.swap()
    staged.close()
    assert table.values() == [("shop", "", 2, 5)]


def files_with_rows(folder):
    """Data files below a folder, hidden ones too, that have rows; and all folders there."""
    files = [one for one in folder.rglob("*.parquet") if pq.read_metadata(one).num_rows]
    return files, sorted(one for one in folder.rglob("*") if one.is_dir())


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_rows_that_were_replaced_take_no_space(table, spark):
    """Spark cannot delete files, so that it overwrites them with none: ours, and those of a statement of SQL."""
    folder = table.path.parent / "schema"
    table.write(rows(spark, 0), night=OTHER)
    kept, _ = files_with_rows(folder)
    (slice_,) = NIGHT([""]).folders.values()
    night, name = (part.partition("=")[2] for part in slice_.split("/"))
    spark.sql(
        f"INSERT INTO {table.reference} SELECT run, k, 1, 'shop', DATE'{night}', '{name}' FROM {table.reference}"
    )
    assert table.values() == [("app", "", 0, 5), ("shop", "", 1, 5)]
    for value in (2, 3):
        table.write(rows(spark, value))
        assert table.values() == [("app", "", 0, 5), ("shop", "", value, 5)]
        files, _ = files_with_rows(folder)
        assert set(kept) < set(files)
        assert sum(pq.read_metadata(one).num_rows for one in files) == 10


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_rows_that_were_staged_for_nothing_take_no_space(table, spark):
    table.write(rows(spark, 1, ("a", "b")), ("a", "b"))
    before, _ = files_with_rows(table.path.parent / "schema")
    with pytest.raises(OutputRefusedError, match="no rows of run 'b'"):
        table.write(rows(spark, 2, ("a",)), ("a", "b"))
    assert files_with_rows(table.path.parent / "schema")[0] == before


@pytest.mark.parametrize("table", ["remote table"], indirect=True)
def test_a_write_that_staged_nothing_has_nothing_to_discard(table, spark):
    """As when the table is dropped between two looks at it."""
    table.write(rows(spark, 1))
    stored = NIGHT([""]).stamp(rows(spark, 2)).drop("run_date", "slice").schema
    facts, before = check_table(spark, table.reference, stored), files_with_rows(table.path.parent / "schema")
    RemoteTableWrite(spark, facts, NIGHT([""]), print).close()
    assert files_with_rows(table.path.parent / "schema") == before
    table.write(rows(spark, 3))
    assert table.values() == [("shop", "", 3, 5)]


@pytest.mark.parametrize("table", KINDS, indirect=True)
def test_a_failed_write_does_not_empty_what_may_be_empty(table, spark):
    table.write(rows(spark, 1, "ab"), "ab")
    with pytest.raises(OutputRefusedError, match="broken row"):
        table.write(rows(spark, 2, "b", broken="b"), "ab", empty=["a"])
    assert table.values() == [("shop", "a", 1, 5), ("shop", "b", 1, 5)]


def test_old_rows_come_back_when_no_rename_works_any_more(spark, folder, monkeypatch):
    """The old slice was moved away; neither the new one nor the old one could be moved in."""
    folder.write(rows(spark, 1))
    # stands in for: a file system that cannot exchange names, because none of this machine is one
    monkeypatch.setattr(folders, "exchange", lambda *_: False)
    rename, count = os.rename, iter(range(9))

    def failing(*places):
        if next(count) in (1, 2):
            raise OSError(5, "Input/output error")
        return rename(*places)

    monkeypatch.setattr(folders.os, "rename", failing)
    with pytest.raises((OutputRefusedError, RuntimeError)):
        folder.write(rows(spark, 2))
    assert folder.values() == [("shop", "", 1, 5)]


def test_two_runs_of_one_slice_name_are_refused(spark, folder):
    runs = ("\u4ee3\u4f61", "\u4f52\u4e53")  # the first two of 135,283 whose hashes begin alike
    assert [slice_name("shop", run) for run in runs] == ["shop.--646f1f33"] * 2
    with pytest.raises(OutputRefusedError, match="the same slice name"):
        folder.write(rows(spark, 1, runs), runs)
