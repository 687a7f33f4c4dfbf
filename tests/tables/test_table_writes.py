"""Writes of Spark: one list of promises for every kind of table, and what only one kind can meet."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from support.disks import NAME, to_viewfs
from support.spark_rankings import session_settings

from ndcg_spark.core.columns import refuse
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError, PartlyWrittenError, find_refusal
from ndcg_spark.sources.formats import open_table
from ndcg_spark.tables import SliceKey, Slices, check_output, claims, folders, slice_name, stage_slices, table_writes
from ndcg_spark.tables.catalog import cast_to_table, check_table, create_table, describe, locate_table
from ndcg_spark.tables.folders import RemoteFolderWrite
from ndcg_spark.tables.table_writes import RemoteTableWrite, read_locations
from scripts.checks.writes import formats
from scripts.checks.writes.places import NIGHT, Place, app, list_places, rows, shop
from scripts.checks.writes.properties import PROPERTIES, expect_values

AB = shop(runs="ab")
FOLDER, TABLE, REMOTE_FOLDER, REMOTE_TABLE = KINDS = ("folder", "table", "remote folder", "remote table")


@dataclass(frozen=True)
class Remote(Place):
    """A place that only Spark reaches."""

    def _reach(self) -> AbstractContextManager[None]:
        return nullcontext()  # the package finds out by itself

    @property
    def root(self) -> Path:
        where = self.reference if self.is_folder else describe(self.spark, self.reference)["location"]
        return Path(unquote(where.removeprefix(NAME)))


@pytest.fixture
def places(spark, tmp_path):
    """A place of each kind, none of which exists yet."""
    folder, table = list_places("spark", spark, tmp_path, hive=False)
    schema = tmp_path / "schema"
    spark.sql(f"CREATE SCHEMA writes_elsewhere LOCATION '{to_viewfs(schema)}'")
    actual = [
        folder,
        table,
        Remote(spark, REMOTE_FOLDER, "parquet", to_viewfs(tmp_path / "remote"), tmp_path),
        Remote(spark, REMOTE_TABLE, "table", "writes_elsewhere.remote", schema, reached=False),
    ]
    yield dict(zip(KINDS, actual, strict=True))
    for place in actual[:2]:
        place.drop()
    spark.sql("DROP SCHEMA writes_elsewhere CASCADE")


@pytest.fixture
def folder(places):
    return places[FOLDER]


@pytest.fixture
def table(places):
    return places[TABLE]


@pytest.fixture
def remote_folder(places):
    return places[REMOTE_FOLDER]


@pytest.fixture
def remote_table(places):
    return places[REMOTE_TABLE]


def broken_run(frame, run):
    """The same rows; the last one of a run raises."""
    failing = F.when((F.col("run") == run) & (F.col("k") == 2), F.raise_error(F.lit("broken row")).cast("int"))
    return frame.withColumn("value", failing.otherwise(F.col("value")))


# ------------------------------------------------------------------------------------------- every kind of table

NOT_OF_REMOTE_FOLDERS = ("emptied", "taken_back", "late", "evolved")
"""Spark's dynamic partition overwrite cannot be taken back."""
NOT_OF_REMOTES = ("others_stay", "bucketed")
PROMISES = {call.__name__: call for call in PROPERTIES.values()}


@pytest.mark.parametrize(
    "promise",
    [
        *("rerun", "others_stay", "nights", "emptied", "stray", "failing", "taken_back", "rivals", "late"),
        *("beside", "evolved", "bucketed"),
    ],
)
def test_promises_are_kept(places, promise):
    for kind, place in places.items():
        left_out = NOT_OF_REMOTES * ("remote" in kind) + NOT_OF_REMOTE_FOLDERS * (kind == REMOTE_FOLDER)
        if promise not in left_out:
            assert PROMISES[promise](place), kind
            place.drop()


def test_a_promise_that_is_not_kept_is_a_row_of_the_table(folder, monkeypatch):
    # stands in for: an output that loses what is written to it, because none of ours does
    monkeypatch.setattr(Place, "write", lambda *_, **__: None)
    actual = formats.try_all([folder], "re-run")
    assert actual["parquet folder"]["re-run replaces its rows only"].startswith("NO: PropertyError: rows: []")
    assert "| re-run replaces its rows only | NO: " in formats.format_table(actual)


def test_a_run_that_may_be_empty(places, spark):
    """It may lack from the first night on; rows that it has are written, and kept where the write fails."""
    for kind, place in places.items():
        may_lack = partial(shop, runs="ab", empty=["b"])
        place.write(rows(spark, 1, "a"), may_lack())
        assert (kind, place.values()) == (kind, [expect_values(1, run="a")])
        slices = [path for path in place.root.glob("run_date=*/slice=*") if path.is_dir()]
        assert len(slices) == (1 if kind == REMOTE_FOLDER else len(slices))  # one of Spark would stay for ever
        for value in (2, 3):
            place.write(rows(spark, value, "ab"), may_lack())
            assert (kind, place.values()) == (kind, [expect_values(value, run=run) for run in "ab"])
        with pytest.raises(OutputRefusedError, match="broken row"):
            place.write(broken_run(rows(spark, 4, "a"), "a"), may_lack())
        assert (kind, place.values()) == (kind, [expect_values(3, run=run) for run in "ab"])


def crashing(batches):
    for _ in batches:
        raise RuntimeError("a bug of ours")
    yield


def test_what_rows_raise_is_not_put_down_to_the_output(folder, spark):
    """A row that is refused, or a bug: the output is not the cause, and its name would mislead."""
    frame = rows(spark, 1)
    refused = frame.withColumn("value", F.when(F.col("k") == 2, refuse("query 7 is bad.").cast("int")).otherwise(1))
    for bad, reason in ((refused, "query 7 is bad."), (frame.mapInPandas(crashing, frame.schema), None)):
        with pytest.raises(SPARK_ERRORS) as raised:
            folder.write(bad)
        assert find_refusal(str(raised.value)) == reason
        assert not folder.root.exists()


def test_rows_that_executors_write_to_disks_of_their_own_are_missed(folder, spark, monkeypatch):
    """As on a cluster without a shared folder: here one file of three goes, as if it were on another machine."""
    # stands in for: executors on other machines, because there is one; scripts/check cluster has several
    monkeypatch.setattr("ndcg_spark.core.session.runs_locally", lambda *_: False)
    frame = rows(spark, 1, n=6).repartition(3, "k")
    folder.write(frame)  # all are found
    assert folder.values() == [expect_values(1, 6)]
    counted = folders.count_file_rows
    monkeypatch.setattr(folders, "count_file_rows", lambda place, kind: counted(place, kind) - 2)
    with pytest.raises(
        OutputRefusedError, match=r"only 4 of 6 rows for .* were found: executors wrote the others to their"
    ):
        folder.write(frame)
    # stands in for: an engine that tells nothing of rows on their way, because Spark does
    monkeypatch.setattr(type(folders._make_row_counter(spark)), "get", {})
    folder.write(frame)


def test_what_tasks_of_a_killed_writer_still_write_goes_with_the_next_one(folder, spark):
    """It was cleared when this writer began; a task on a cluster goes on for a moment and makes its folder again."""
    with closing(folder.stage(rows(spark, 1), shop())) as staged:
        (own,) = (folder.root / ".ndcg-spark").glob("write-*")
        (own.with_name("write-0") / "rows" / "_temporary").mkdir(parents=True)
        staged.swap()
    assert [name for name in os.listdir(folder.root) if name.startswith(".")] == []
    assert folder.values() == [expect_values(1)]


def test_stamp_finds_the_slice_of_a_row_by_all_of_its_keys(spark):
    """One slice is found by a condition, several by a join; a row of another night, run or length has none."""
    days = [date(2026, 1, day) for day in (30, 31)]
    columns = {"night": "night", "run": "run", "part": "length"}
    values = [(days[1], "a", "week"), (days[0], "a", "week"), (days[1], "b", "week"), (days[1], "a", "month")]
    frame = spark.createDataFrame(values, "night date, run string, length string")
    name = slice_name("shop", "a", "week")
    for n in (1, 2):
        keys = (SliceKey(days[1], "a", "week"), SliceKey(days[0], "a", "week"))[:n]
        slices = Slices(dataset="shop", keys=keys, columns=columns, may_be_empty=frozenset())
        stored = {tuple(row)[:3]: (str(row["run_date"]), row["slice"]) for row in slices.stamp(frame).collect()}
        assert stored == {value: (str(value[0]), name if value in keys else None) for value in values}
        assert slices.folders == {f"{key.night} week a": f"run_date={key.night}/slice={name}" for key in keys}


def test_hundreds_of_runs(spark):
    """A `when` for each run overflowed Spark's stack at 600."""
    runs = [f"run {at} \u00e9" for at in range(700)]
    stamped = shop(runs=runs).stamp(spark.createDataFrame([(run, 1) for run in runs], "run string, value int"))
    assert {row["run"]: row["slice"] for row in stamped.collect()} == {run: slice_name("shop", run) for run in runs}
    assert stamped.columns == ["run", "value", "dataset", "run_date", "slice"]


# ------------------------------------------------------------------------------------------------ remote folders


def test_a_remote_folder_that_cannot_be_looked_at_is_not_taken_for_an_empty_one(remote_folder, spark, monkeypatch):
    """Else old files would not be missed, as where a store denies to list them."""
    remote_folder.write(rows(spark, 1))
    # stands in for: a store that denies to list, because no store of the tests has rights
    monkeypatch.setattr("ndcg_spark.tables.folders.get_condition", lambda _: "ACCESS_DENIED")
    remote_folder.root.rename(remote_folder.root.with_name("away"))
    with pytest.raises(OutputRefusedError, match="cannot write"):
        remote_folder.write(rows(spark, 2))
    assert not remote_folder.root.exists()


def test_a_remote_folder_that_is_half_written_is_no_refusal(remote_folder, spark, monkeypatch):
    """A refusal says that nothing was written; here old files are gone."""
    remote_folder.write(rows(spark, 1, "ab"), AB)
    save = type(spark.range(1).write).save

    def failing(writer, place):
        for file in remote_folder.root.glob("run_date=*/slice=shop.a-*/*.parquet"):
            file.unlink()
        save(writer.partitionBy(), "/proc/nothing")

    again = rows(spark, 2, "ab")
    with monkeypatch.context() as broken:
        broken.setattr(type(spark.range(1).write), "save", failing)
        with pytest.raises(RuntimeError, match=r"partly written: rows of run_date=\S*shop\.a-"):
            remote_folder.write(again, AB)
    remote_folder.write(rows(spark, 3, "ab"), AB)
    assert remote_folder.values() == [expect_values(3, run=run) for run in "ab"]


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), KeyboardInterrupt()], ids=repr)
def test_what_fails_once_a_remote_folder_is_written_is_no_refusal(remote_folder, spark, monkeypatch, error):
    """The rows are replaced by then; the look at them fails, as Java has died, or as somebody pressed Ctrl-C."""
    remote_folder.write(rows(spark, 1))
    files, looks = RemoteFolderWrite._list_files, []

    def failing(write):
        looks.append(1)
        if len(looks) == 2:
            raise error
        return files(write)

    with monkeypatch.context() as broken:
        broken.setattr(RemoteFolderWrite, "_list_files", failing)
        with pytest.raises(PartlyWrittenError, match=r"rows of run_date=\S* are wrong until"):
            remote_folder.write(rows(spark, 2))
    remote_folder.write(rows(spark, 3))
    assert remote_folder.values() == [expect_values(3)]


def test_a_committer_that_adds_rows_is_told(remote_folder, spark, monkeypatch):
    """As Hadoop's, behind the protocol of cloud committers, in some releases of Spark (SPARK-56588)."""
    remote_folder.write(rows(spark, 1))
    writers = type(spark.range(1).write)
    mode = writers.mode
    with monkeypatch.context() as broken:
        # stands in for: a committer of a cloud that adds rows, because none is among the jars of Spark
        broken.setattr(writers, "mode", lambda writer, _: mode(writer, "append"))
        with pytest.raises(PartlyWrittenError, match="beside the old ones: its output committer"):
            remote_folder.write(rows(spark, 2))


def test_a_run_without_rows_is_told_of_a_remote_folder_too(remote_folder, spark):
    """Nobody knows before the others are written."""
    remote_folder.write(rows(spark, 1, "ab"), AB)
    with pytest.raises(PartlyWrittenError, match="no rows of run 'b'"):
        remote_folder.write(rows(spark, 2, "a"), AB)
    with pytest.raises(OutputRefusedError, match="no rows of run 'c'"):
        remote_folder.write(rows(spark, 2, "c").limit(0), shop(runs="c"))
    remote_folder.write(rows(spark, 2, "a"), shop(runs="ab", empty="b"))
    assert remote_folder.values() == [expect_values(2, run="a")]


# ------------------------------------------------------------------------------------------------- remote tables


def test_a_partition_that_another_job_adds_at_the_same_moment_is_not_taken_for_ours(remote_table, spark, monkeypatch):
    """`ADD IF NOT EXISTS` adds nothing to Hive's catalog then, and both have as many rows."""
    remote_table.write(rows(spark, 1, "a"), shop(runs="a"))
    add = table_writes.add_partitions

    def late(*_):
        with monkeypatch.context() as first:
            first.setattr(table_writes, "add_partitions", add)
            # stands in for: the claims of another process, because a catalog in memory has one process
            first.setattr(claims, "_claimed", set())
            remote_table.write(rows(spark, 2))

    # stands in for: Hive's catalog, which adds no partition that it has, because that in memory replaces it
    monkeypatch.setattr(table_writes, "add_partitions", late)
    with pytest.raises(OutputRefusedError, match="another job wrote the same runs"):
        remote_table.write(rows(spark, 3))
    assert remote_table.values() == [expect_values(2), expect_values(1, run="a")]


def test_readers_are_sent_to_a_place_that_is_there(remote_table, spark):
    remote_table.write(rows(spark, 1, "ab"), AB)
    remote_table.write(rows(spark, 2, "a"), shop(runs="ab", empty="b"))
    locations = read_locations(spark, remote_table.reference, list(AB.folders.values()))
    assert [Path(unquote(location.removeprefix(NAME))).is_dir() for location in locations.values()] == [True, True]
    assert remote_table.values() == [expect_values(2, run="a")]


def test_rows_are_seen_from_the_swap_on(remote_table, spark):
    """And not discarded, also when whoever swapped them in could not finish."""
    remote_table.write(rows(spark, 1))
    staged = remote_table.stage(rows(spark, 2), shop())
    assert remote_table.values() == [expect_values(1)]
    staged.swap()
    staged.close()
    assert remote_table.values() == [expect_values(2)]


def files_with_rows(place):
    """Data files of a place, hidden ones too, that have rows."""
    return [path for path in place.base.rglob("*.parquet") if pq.read_metadata(path).num_rows]


def test_rows_that_were_replaced_take_no_space(remote_table, spark):
    """Spark cannot delete files, so that it overwrites them with none: ours, and those of a statement of SQL."""
    remote_table.write(rows(spark, 0), app())
    kept = files_with_rows(remote_table)
    (slice_,) = shop().folders.values()
    name = slice_.split("/slice=")[1]
    columns = f"run, k, 1, night, 'shop', DATE'{NIGHT}', '{name}'"
    spark.sql(f"INSERT INTO {remote_table.reference} SELECT {columns} FROM {remote_table.reference}")
    assert remote_table.values() == [expect_values(0, dataset="app"), expect_values(1)]
    for value in (2, 3):
        remote_table.write(rows(spark, value))
        assert remote_table.values() == [expect_values(0, dataset="app"), expect_values(value)]
        files = files_with_rows(remote_table)
        assert set(kept) < set(files)
        assert sum(pq.read_metadata(file).num_rows for file in files) == 6


def test_rows_that_were_staged_for_nothing_take_no_space(remote_table, spark):
    """Nor does a write that staged nothing, as when the table is dropped between two looks at it."""
    remote_table.write(rows(spark, 1, "ab"), AB)
    before = files_with_rows(remote_table)
    with pytest.raises(OutputRefusedError, match="no rows of run 'b'"):
        remote_table.write(rows(spark, 2, "a"), AB)
    assert files_with_rows(remote_table) == before
    facts = check_table(spark, remote_table.reference, stored_schema(rows(spark, 2)))
    RemoteTableWrite(spark, facts, AB, print).close()
    assert files_with_rows(remote_table) == before
    remote_table.write(rows(spark, 3, "ab"), AB)
    assert remote_table.values() == [expect_values(3, run=run) for run in "ab"]


def stored_schema(frame):
    return shop().stamp(frame).drop("run_date", "slice").schema


# ------------------------------------------------------------------------------------------ tables of the catalog


def act_after(monkeypatch, name, then):
    """After the first call of a function of `table_writes`, do something else; returns a list with what that gave."""
    call, results = getattr(table_writes, name), []

    def call_and_act(*arguments):
        made = call(*arguments)
        if not results:
            results.append(then())
        return made

    # stands in for: somebody else at this very moment, because chance would hit it too rarely
    monkeypatch.setattr(table_writes, name, call_and_act)
    return results


@pytest.mark.parametrize(("kind", "moment"), [(TABLE, "create_table"), (REMOTE_TABLE, "_make_write")])
def test_a_table_that_is_dropped_meanwhile_is_made_anew(places, spark, monkeypatch, kind, moment):
    """Between its making and the claim of our slices, and after it: claims are given back before the next try."""
    place = places[kind]
    if moment == "_make_write":
        place.write(rows(spark, 1))
    dropped = act_after(monkeypatch, moment, lambda: spark.sql(f"DROP TABLE {place.reference}"))
    place.write(rows(spark, 2))
    assert dropped
    assert place.values() == [expect_values(2)]


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


@pytest.mark.parametrize("is_made_again", [False, True], ids=["dropped", "made again without the column"])
def test_a_table_that_loses_a_new_column_before_it_is_written(table, spark, monkeypatch, is_made_again):
    """Somebody drops it just after the column was added: it is made anew, unless somebody makes the old one, too."""
    table.write(rows(spark, 1))

    add = table_writes.add_columns

    def add_and_lose(*arguments):
        add(*arguments)
        spark.sql(f"DROP TABLE {table.reference}")
        if is_made_again:
            assert create_table(spark, table.reference, stored_schema(rows(spark, 1)), "table")

    monkeypatch.setattr(table_writes, "add_columns", add_and_lose)
    new = rows(spark, 2).withColumn("more", F.lit(7))
    if is_made_again:
        with pytest.raises(OutputRefusedError, match="was dropped or altered by somebody else"):
            table.write(new)
    else:
        table.write(new)
        assert table.values() == [expect_values(2)]


def test_a_column_that_the_table_lost_meanwhile_is_not_lost_with_it(table, spark):
    table.write(rows(spark, 1))
    stored = shop().stamp(rows(spark, 2).withColumn("more", F.lit(1)))
    facts = check_table(spark, table.reference, stored.drop("run_date", "slice").schema)
    with pytest.raises(OutputRefusedError, match=f"table '{table.reference}' has no column 'more': another job"):
        cast_to_table(stored, facts)


@pytest.mark.parametrize("kind", [TABLE, REMOTE_TABLE])
def test_rows_that_somebody_adds_to_a_slice_before_a_write_ends_are_told(places, spark, monkeypatch, kind):
    verify, reference = table_writes.verify_counts, places[kind].reference

    def late(*arguments):
        spark.sql(f"INSERT INTO {reference} SELECT * FROM {reference} LIMIT 1")
        verify(*arguments)

    monkeypatch.setattr(table_writes, "verify_counts", late)
    with pytest.raises(OutputRefusedError, match="has 4 rows where 3 were written: somebody else changed it"):
        places[kind].write(rows(spark, 1))


@pytest.mark.parametrize(
    ("kind", "moment"),
    [(REMOTE_TABLE, "once they are claimed"), (TABLE, "between two questions to the catalog")],
)
def test_slices_are_free_again_when_a_table_cannot_be_opened(places, spark, monkeypatch, kind, moment):
    def refuse(*_):
        raise OSError(5, "no catalog")

    places[kind].write(rows(spark, 1))
    with monkeypatch.context() as broken:
        if moment == "once they are claimed":
            look = type(spark.catalog)
            act_after(broken, "_make_write", lambda: broken.setattr(look, "tableExists", refuse))
        else:
            broken.setattr(table_writes, "read_locations", refuse)
        with pytest.raises(OutputRefusedError, match="no catalog"):
            places[kind].write(rows(spark, 2))
    places[kind].write(rows(spark, 3))
    assert places[kind].values() == [expect_values(3)]


@contextmanager
def read_all_the_time(place):
    """Look a catalog table up in threads of their own, as somebody's queries do."""
    ended = threading.Event()

    def look():
        while not ended.is_set():
            assert place.frame().schema

    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(look) for _ in range(0 if place.is_folder else 2)]
        try:
            yield
        finally:
            ended.set()
    assert [look.exception() for look in looks] == [None] * len(looks)


def test_writers_that_add_columns_at_once(places, spark):
    """Each of them may read the columns of a table before the other one has added its own.

    Spark remembers the columns that the last look-up found, even one that began before they were added.
    """
    for kind in (FOLDER, TABLE, REMOTE_TABLE):
        place = places[kind]
        place.write(rows(spark, 0))
        with read_all_the_time(place), ThreadPoolExecutor(2) as writers:
            for value in (1, 2):
                writes = [
                    writers.submit(place.write, rows(spark, value).selectExpr("*", f"{value} AS {name}_{value}"), one)
                    for name, one in (("ours", shop()), ("theirs", app()))
                ]
                assert [write.result() for write in writes] == [None, None]
        frame = open_table(spark, place.reference).frame if place.is_folder else place.frame()
        # Of a folder, columns that no night has any more are gone.
        gone = ["NULL AS ours_1", "NULL AS theirs_1"] if place.is_folder else []
        actual = frame.selectExpr("*", *gone).groupBy("dataset", "ours_1", "theirs_1", "ours_2", "theirs_2").count()
        assert (kind, sorted(map(tuple, actual.collect()))) == (
            kind,
            [("app", None, None, None, 2, 3), ("shop", None, None, 2, None, 3)],
        )


# ----------------------------------------------------------------------------------------------- tables refused

STORED = "run STRING, k INT, value INT, night DATE, dataset STRING"
SLICED = f"{STORED}, run_date DATE, slice STRING"
BY_SLICE = "PARTITIONED BY (run_date, slice)"


@pytest.mark.parametrize(
    ("definition", "message"),
    {
        "csv": (f"({SLICED}) USING csv {BY_SLICE}", "is of provider 'csv'; this version writes parquet, orc, hive, "),
        "json": (f"({SLICED}) USING json {BY_SLICE}", "is of provider 'json'"),
        "not partitioned": (f"({STORED}) USING parquet", "partitioned by run_date and slice, in this order"),
        "by date only": (f"({SLICED}) USING parquet PARTITIONED BY (run_date)", "partitioned by run_date and slice"),
        # Partitions have other names in the catalog.
        "in another order": (
            f"({SLICED}) USING parquet PARTITIONED BY (slice, run_date)",
            "partitioned by run_date and slice, in this order",
        ),
        "other columns": (
            f"(run STRING, run_date DATE, slice STRING) USING parquet {BY_SLICE}",
            "has other columns than these results",
        ),
    }.values(),
)
def test_tables_that_others_have_made_otherwise_are_refused(spark, definition, message):
    spark.sql(f"CREATE TABLE someone_elses {definition}")
    try:
        with pytest.raises(OutputRefusedError, match=f"table 'someone_elses' .*{message}"):
            check_output(spark, "someone_elses", None, rows(spark, 1).schema)
        with pytest.raises(OutputRefusedError, match=message):
            stage_slices(rows(spark, 1), "someone_elses", None, shop())
    finally:
        spark.sql("DROP TABLE someone_elses")


def test_a_view_whose_table_is_gone_is_named(spark):
    """Spark says of the view that a table cannot be found; the view is there."""
    spark.sql("CREATE TABLE writes_base (run STRING, value INT) USING parquet")
    spark.sql("CREATE VIEW writes_view AS SELECT * FROM writes_base")
    try:
        with pytest.raises(OutputRefusedError, match="'writes_view' is a view, or a table without a location"):
            locate_table(spark, "writes_view")
        spark.sql("DROP TABLE writes_base")
        with pytest.raises(OutputRefusedError, match=r"cannot write to table 'writes_view'.*writes_base"):
            stage_slices(rows(spark, 1), "writes_view", "table", shop())
    finally:
        spark.sql("DROP VIEW writes_view")


def test_a_catalog_that_does_not_load_is_named(spark):
    table = "broken.metrics.ranking"
    told = rf"cannot write to table '{table}': .*no\.such\.Catalog"
    with session_settings(spark, spark__sql__catalog__broken="no.such.Catalog"):
        with pytest.raises(OutputRefusedError, match=told):
            stage_slices(rows(spark, 1), table, None, shop())
        with pytest.raises(OutputRefusedError, match=told):
            check_output(spark, table, None, rows(spark, 1).schema)


def test_a_table_that_spark_cannot_make_is_refused(spark):
    for kind in ("Delta", "Iceberg"):
        told = f"this Spark has no {kind}, so table 'new_metrics' cannot be created; start Spark"
        with pytest.raises(OutputRefusedError, match=told):
            check_output(spark, "new_metrics", kind.lower(), rows(spark, 1).schema)
    twice = T.StructType([T.StructField("run", T.StringType())] * 2)
    with pytest.raises(SPARK_ERRORS, match="COLUMN_ALREADY_EXISTS"):  # it is not taken for one that others have made
        create_table(spark, "writes_never_made", twice, "table")
