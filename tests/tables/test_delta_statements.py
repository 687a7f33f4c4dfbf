"""Delta without Delta: what is asked of a session, as of one on Databricks, and what is made of its answers."""

from __future__ import annotations

import json
import re
from contextlib import closing
from datetime import date
from functools import partial
from types import SimpleNamespace

import pytest

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import Slices, SliceWrite, commits, slice_name, stage_slices, swap_in, table_writes
from ndcg_spark.tables.catalog import CatalogTable
from ndcg_spark.tables.commits import Commit, ConflictError, DeltaLog
from ndcg_spark.tables.kinds import Growth
from ndcg_spark.tables.slices import build_condition

pytestmark = pytest.mark.classic("what stands for Delta answers in place of a session's Java")
NIGHT = partial(Slices.for_night, date(2026, 1, 31), "shop")
NAME = slice_name("shop", "")
OURS, THEIRS = f"run_date=2026-01-31/slice={NAME}", f"run_date=2026-01-31/slice={slice_name('app', '')}"
CONDITION = f"(run_date = DATE'2026-01-31' AND slice IN ('{NAME}'))"
TABLE = "main.metrics.ranking"
DESCRIBED = [
    ("run", "string"), ("value", "int"), ("dataset", "string"), ("run_date", "date"), ("slice", "string"),
    ("# Clustering Information", ""), ("# col_name", "data_type"), ("run_date", "date"), ("slice", "string"),
    ("", ""), ("# Detailed Table Information", ""), ("Catalog", "main"), ("Database", "metrics"),
    ("Table", "ranking"), ("Type", "MANAGED"), ("Location", "s3://bucket/__unitystorage/4711"), ("Provider", "delta"),
]  # fmt: skip
"""What Databricks says of a table with liquid clustering in Unity Catalog, which nobody may write to by its path."""


def entry(version, operation="WRITE", predicate=None, mark=None):
    parameters = {"mode": "Overwrite"} | ({"predicate": f'["{predicate}"]'} if predicate else {})
    return {"version": version, "operation": operation, "operationParameters": parameters, "userMetadata": mark}


class Databricks:
    """Answers and records; its rows are those of a frame of a real session."""

    def __init__(self, spark, stored):
        self.spark, self.stored = spark, stored
        self.history = [entry(7, predicate=f"slice IN ('{NAME}')")]
        self.said, self.writes = [], []
        self.meanwhile = lambda: None

    def sql(self, statement):
        self.said.append(statement)
        if statement.startswith("DESCRIBE TABLE EXTENDED"):
            return SimpleNamespace(collect=lambda: DESCRIBED)
        if statement.startswith("DESCRIBE HISTORY"):
            return SimpleNamespace(collect=lambda: self.history[: int(statement.rpartition(" ")[2])])
        if statement.startswith("ALTER TABLE"):
            self.stored = self.stored.selectExpr("*", "CAST(NULL AS STRING) AS country")
            return None
        assert re.fullmatch(rf"SELECT \* FROM {re.escape(TABLE)} VERSION AS OF \d", statement), statement
        return self.stored

    def write_to(self, rows, table):
        write = {"table": table, "columns": rows.columns, "values": sorted(row.value for row in rows.collect())}

        def option(name, value):
            write[name] = value
            return writer

        def overwrite(condition):
            write["condition"] = " ".join(str(condition._jc.toString()).split())
            self.writes.append(write)
            is_nothing = not write["values"] and self.stored.isEmpty()
            self.meanwhile()
            if is_nothing:
                return  # Delta commits nothing where no file is added or removed
            self.history.insert(0, entry(self.history[0]["version"] + 1, "WRITE", CONDITION, write["userMetadata"]))

        writer = SimpleNamespace(option=option, overwrite=overwrite)
        return writer


@pytest.fixture
def databricks(spark, monkeypatch):
    stored = spark.createDataFrame(
        [("", value, "shop", date(2026, 1, 31), NAME) for value in (1, 1)],
        "run string, value int, dataset string, run_date date, slice string",
    )
    made = Databricks(spark, stored)
    # stands in for: Delta in Unity Catalog, because Databricks is not here, nor a jar of Delta
    monkeypatch.setattr(type(spark), "sql", lambda _, statement, **__: made.sql(statement))
    monkeypatch.setattr(type(spark), "table", lambda *_: made.stored)
    monkeypatch.setattr(type(spark.catalog), "tableExists", lambda *_: True)
    monkeypatch.setattr(type(stored), "writeTo", lambda rows, table: made.write_to(rows, table))
    return made


@pytest.fixture
def new_rows(spark):
    return spark.createDataFrame([("", 2)] * 2, "run string, value int")


def staged_in(rows):
    return closing(stage_slices(rows, TABLE, "table", NIGHT([""])))


def test_a_clustered_table_of_unity_catalog_is_named_and_nothing_else(databricks, new_rows):
    """No path, no DDL, no partitions: one overwrite by a condition over the keys."""
    with staged_in(new_rows) as staged:
        assert databricks.writes == []
        swap_in([staged])
    (write,) = databricks.writes
    assert write.pop("userMetadata")
    assert write.pop("condition").count(NAME) == 1
    assert write == {"table": TABLE, "columns": ["run", "value", "dataset", "run_date", "slice"], "values": [2, 2]}
    assert {line.partition(TABLE)[0] for line in databricks.said} == {"DESCRIBE TABLE EXTENDED ", "DESCRIBE HISTORY "}


def test_a_column_is_added_by_a_statement_before_the_commit(databricks, new_rows):
    with staged_in(new_rows.selectExpr("*", "'de' AS country")) as staged:
        swap_in([staged])
    (write,) = databricks.writes
    assert write["columns"] == ["run", "value", "dataset", "country", "run_date", "slice"]
    altered = [line for line in databricks.said if line.startswith("ALTER")]
    assert altered == [f"ALTER TABLE {TABLE} ADD COLUMNS (`country` string)"]


def test_old_rows_come_back_though_their_version_lacks_a_column(databricks, new_rows, monkeypatch):
    """Delta and Iceberg show an earlier version with the columns that it had."""
    with staged_in(new_rows.selectExpr("*", "'de' AS country")) as staged:
        # stands in for: an earlier version of a table of Delta, because a jar of Delta is not here
        monkeypatch.setattr(DeltaLog, "read_rows", lambda *_: databricks.stored.drop("country"))
        with pytest.raises(OutputRefusedError, match="no"):
            swap_in([staged, Failing()])
    assert [write["values"] for write in databricks.writes] == [[2, 2], [1, 1]]
    assert databricks.writes[1]["columns"] == databricks.writes[0]["columns"]


def test_no_rows_over_no_rows_are_no_commit_and_no_error(databricks, new_rows):
    """As a table of rejects is written after a night without bad rows."""
    databricks.stored = databricks.stored.limit(0)
    none = new_rows.limit(0)
    with closing(stage_slices(none, TABLE, "table", NIGHT([""], may_be_empty=[""]))) as staged:
        swap_in([staged])
    assert [write["values"] for write in databricks.writes] == [[]]
    with staged_in(none) as staged, pytest.raises(OutputRefusedError, match="does not confirm"):
        swap_in([staged])


def test_a_run_without_rows_is_missed_after_the_commit_and_its_old_rows_come_back(databricks, new_rows):
    """Nothing is counted before where no folder is shared."""
    with (
        closing(stage_slices(new_rows, TABLE, "table", NIGHT(["", "b"]))) as staged,
        pytest.raises(OutputRefusedError, match="there are no rows of run 'b' for 'main"),
    ):
        swap_in([staged])
    assert [write["values"] for write in databricks.writes] == [[2, 2], [1, 1]]


class Failing(SliceWrite):
    reference = "other"

    def __init__(self):
        pass

    def swap(self):
        raise OutputRefusedError("no")


def test_what_was_committed_is_taken_back_by_a_commit_of_the_old_rows(databricks, new_rows):
    with staged_in(new_rows) as staged, pytest.raises(OutputRefusedError, match="no"):
        swap_in([staged, Failing()])
    assert [write["values"] for write in databricks.writes] == [[2, 2], [1, 1]]
    assert databricks.writes[0]["condition"] == databricks.writes[1]["condition"]
    assert not any("RESTORE" in statement for statement in databricks.said)


def test_rows_that_others_wrote_over_ours_are_not_taken_back(databricks, new_rows):
    class Late(Failing):
        def swap(self):
            databricks.history.insert(0, entry(9, predicate=CONDITION, mark="theirs"))
            raise OutputRefusedError("no")

    with staged_in(new_rows) as staged, pytest.raises(OutputRefusedError, match="no"):
        swap_in([staged, Late()])
    assert [write["values"] for write in databricks.writes] == [[2, 2]]


def test_a_writer_of_the_same_slice_who_was_quicker_wins(databricks, new_rows):
    with staged_in(new_rows) as staged:
        databricks.history.insert(0, entry(8, predicate=CONDITION, mark="theirs"))
        with pytest.raises(OutputRefusedError, match="another job wrote the same runs"):
            swap_in([staged])
    assert databricks.writes == []


def test_a_writer_who_commits_between_our_look_and_our_commit_keeps_its_rows(databricks, new_rows):
    """Delta does not tell, as its transaction began after theirs; the old rows that come back are theirs."""
    others = iter([entry(8, predicate=CONDITION, mark="theirs")])

    def meanwhile():
        databricks.history[:0] = list(others)

    databricks.meanwhile = meanwhile
    with staged_in(new_rows) as staged, pytest.raises(OutputRefusedError, match="another job wrote the same runs"):
        swap_in([staged])
    assert [write["values"] for write in databricks.writes] == [[2, 2], [1, 1]]
    assert any("VERSION AS OF 8" in statement for statement in databricks.said)


def test_a_commit_that_others_have_beaten_is_tried_again(databricks, new_rows):
    lost = iter([True, True, False])

    def meanwhile():
        if next(lost):
            databricks.history.insert(0, entry(databricks.history[0]["version"] + 1, "OPTIMIZE"))
            raise SPARK_ERRORS[0]("[DELTA_CONCURRENT_WRITE] ConcurrentWriteException: somebody was quicker")

    databricks.meanwhile = meanwhile
    with staged_in(new_rows) as staged:
        swap_in([staged])
    assert len(databricks.writes) == 3


def test_after_so_many_commits_of_others_the_job_is_to_run_again(databricks, new_rows, monkeypatch):
    def meanwhile():
        raise SPARK_ERRORS[0]("[DELTA_CONCURRENT_WRITE] ConcurrentWriteException: somebody was quicker")

    monkeypatch.setattr(commits, "MAX_ATTEMPTS", 2)
    databricks.meanwhile = meanwhile
    with staged_in(new_rows) as staged, pytest.raises(OutputRefusedError, match="came first 2 times; run again"):
        swap_in([staged])
    assert len(databricks.writes) == 2


def test_a_commit_that_fails_for_another_reason_is_not_tried_again(databricks, new_rows):
    def meanwhile():
        raise SPARK_ERRORS[0]("no right to write")

    databricks.meanwhile = meanwhile
    with staged_in(new_rows) as staged, pytest.raises(OutputRefusedError, match=r"cannot write.*no right to write"):
        swap_in([staged])
    assert len(databricks.writes) == 1


def test_where_the_folder_is_shared_rows_are_staged_and_counted(databricks, new_rows, monkeypatch, tmp_path):
    """What stands for Delta shows the two old rows of the slice whatever is committed."""
    # stands in for: a folder of Delta that workers share, because a jar of Delta is not here
    monkeypatch.setattr(table_writes, "find_shared_folder", lambda *_: tmp_path / "table")
    with staged_in(new_rows) as staged:
        swap_in([staged])
    assert [write["values"] for write in databricks.writes] == [[2, 2]]
    assert list((tmp_path / "table").rglob("*.parquet")) == []
    with staged_in(new_rows.limit(1)) as staged, pytest.raises(OutputRefusedError, match="has 2 rows where 1 were"):
        swap_in([staged])
    with pytest.raises(OutputRefusedError, match="no rows of run ''"):
        stage_slices(new_rows.limit(0), TABLE, "table", NIGHT([""]))


def test_rows_that_were_counted_and_are_in_no_commit_are_missed(databricks, new_rows, monkeypatch, tmp_path):
    """Though the slice may be empty, as a table of rejects is, and is so after the write."""
    databricks.stored = databricks.stored.limit(0)
    # stands in for: a folder of Delta that workers share, because a jar of Delta is not here
    monkeypatch.setattr(table_writes, "find_shared_folder", lambda *_: tmp_path / "table")
    # stands in for: an engine that loses a commit, because Delta does not
    monkeypatch.setattr(DeltaLog, "find_commit", lambda *_: None)
    with (
        closing(stage_slices(new_rows, TABLE, "table", NIGHT([""], may_be_empty=[""]))) as staged,
        pytest.raises(OutputRefusedError, match="does not confirm that only these runs were replaced"),
    ):
        swap_in([staged])


def test_a_table_without_a_location_cannot_be_written_as_a_folder():
    table = CatalogTable(name="t", format="parquet", location=None, columns=None, growth=Growth())
    with pytest.raises(OutputRefusedError, match="the catalog has no location for table 't'"):
        _ = table.folder


def test_a_write_that_the_log_shows_as_a_whole_overwrite_is_taken_back(databricks, new_rows, monkeypatch):
    """As if the engine had passed over the condition."""
    monkeypatch.setattr("test_delta_statements.CONDITION", None)
    with staged_in(new_rows) as staged, pytest.raises(OutputRefusedError, match="only these runs"):
        swap_in([staged])
    assert [write["values"] for write in databricks.writes] == [[2, 2], [1, 1]]


def test_a_whole_overwrite_by_no_rows_is_seen_though_none_are_left(databricks, new_rows, monkeypatch):
    monkeypatch.setattr("test_delta_statements.CONDITION", None)
    databricks.meanwhile = lambda: setattr(databricks, "stored", databricks.stored.limit(0))
    with (
        closing(stage_slices(new_rows.limit(0), TABLE, "table", NIGHT([""], may_be_empty=[""]))) as staged,
        pytest.raises(OutputRefusedError, match="only these runs"),
    ):
        swap_in([staged])


# ------------------------------------------------------------------------------------------- logs, without Spark


class History:
    """A session that knows nothing but the history of a table."""

    # stands in for: DESCRIBE HISTORY, because a jar of Delta is not here

    def __init__(self, entries):
        self.entries, self.limits = entries, []

    def sql(self, statement):
        self.limits.append(int(statement.rpartition(" ")[2]))
        return SimpleNamespace(collect=lambda: self.entries[: self.limits[-1]])


class WrittenError(Exception):
    """Rows were about to be written."""


def unwritten_rows():
    """Rows that raise when they are to be written: without Spark, nothing can be."""

    def write(_):
        raise WrittenError

    return SimpleNamespace(writeTo=write)


@pytest.mark.parametrize(
    ("newer", "conflicts"),
    [
        ([], False),
        ([entry(8, predicate=f"slice IN ('{NAME}')")], True),
        ([entry(8, predicate="slice IN ('app-12345678')")], False),
        ([entry(8, predicate=f"(run_date = DATE '2026-01-31') AND slice IN ('{NAME}')")], True),
        ([entry(8, predicate=f"(run_date = DATE '2026-01-30') AND slice IN ('{NAME}')")], False),
        ([entry(8, predicate=f"slice IN ('{NAME}', 'of-2026-01-30-12345678')")], True),
        ([entry(8)], True),
        ([entry(8, "DELETE", "value = 3")], False),
        ([entry(8, "MERGE")], True),
        ([entry(8, "RESTORE")], True),
        ([entry(8, "OPTIMIZE", "[]")], False),
        ([entry(8, "VACUUM END")], False),
        ([entry(8, "ADD COLUMNS")], False),
        ([entry(9), entry(8, "OPTIMIZE")], True),
    ],
)
def test_which_commits_of_others_are_conflicts(newer, conflicts):
    log = DeltaLog(History([*newer, entry(7)]), TABLE, [OURS], None)
    assert log.read_version() == 7 + len(newer)
    with pytest.raises(ConflictError if conflicts else WrittenError):
        log.replace(unwritten_rows(), 7, "mark")


def test_a_long_history_is_read_as_far_as_needed():
    history = History([entry(version, mark=f"of {version}") for version in range(500, -1, -1)])
    log = DeltaLog(history, TABLE, [OURS], None)
    assert log.find_commit("of 251", 250) == Commit(version=251, before=250, changed_only_own_slices=False)
    assert history.limits == [100, 1000]
    assert log.find_commit("of 250", 250) is None


def logged(folder, version, *actions):
    (folder / "_delta_log").mkdir(exist_ok=True)
    lines = "\n".join(json.dumps(action) for action in actions)
    (folder / "_delta_log" / f"{version:020d}.json").write_text(lines)


def file_of(slice_folder, kind="add", **more):
    night, _, name = slice_folder.partition("/slice=")
    return {kind: {"path": "f", "partitionValues": {"run_date": night.partition("=")[2], "slice": name}, **more}}


def said(mark=None, operation="WRITE"):
    return {"commitInfo": {"operation": operation, "operationParameters": {}, "userMetadata": mark}}


class NoHistory:
    """A session without Delta, which does not know the statement DESCRIBE HISTORY."""

    def sql(self, statement):
        raise SPARK_ERRORS[0](f"[PARSE_SYNTAX_ERROR] {statement}")


@pytest.fixture
def log(tmp_path):
    logged(tmp_path, 0, said(operation="CREATE TABLE"), {"metaData": {}})
    logged(tmp_path, 1, said("old"), file_of(OURS))
    return DeltaLog(NoHistory(), TABLE, [OURS], tmp_path)


def test_without_a_history_the_files_of_the_log_are_read(log, tmp_path):
    (tmp_path / "_delta_log" / "00000000000000000001.crc").touch()
    logged(tmp_path, 2, said("mark"), file_of(OURS), file_of(OURS, "remove"))
    assert log.read_version() == 2
    assert log.find_commit("mark", 1) == Commit(version=2, before=1, changed_only_own_slices=True)
    assert log.find_commit("other", 1) is None


def test_files_of_other_slices_in_our_commit_show(log, tmp_path):
    logged(tmp_path, 2, said("mark"), file_of(OURS), file_of(THEIRS, "remove"))
    assert log.find_commit("mark", 1) == Commit(version=2, before=1, changed_only_own_slices=False)


@pytest.mark.parametrize(
    ("actions", "conflicts"),
    [
        ([file_of(THEIRS), file_of(THEIRS, "remove")], False),
        ([file_of(THEIRS), file_of(OURS, "remove")], True),
        ([file_of(OURS, dataChange=False), file_of(OURS, "remove", dataChange=False)], False),
        ([{"metaData": {}}], False),
    ],
)
def test_conflicts_show_in_the_files_of_the_log(log, tmp_path, actions, conflicts):
    logged(tmp_path, 2, said("theirs"), *actions)
    with pytest.raises(ConflictError if conflicts else WrittenError):
        log.replace(unwritten_rows(), 1, "mark")


def test_no_history_and_no_files_are_a_refusal(spark, tmp_path):
    """As where the files of the log were lost. A Spark without Delta has no DESCRIBE HISTORY."""
    with pytest.raises(OutputRefusedError, match="DESCRIBE HISTORY"):
        DeltaLog(spark, TABLE, [OURS], None).read_version()
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(OutputRefusedError, match="has no commits"):
        DeltaLog(spark, TABLE, [OURS], tmp_path).read_version()


def test_conditions_have_a_clause_for_each_night():
    folders = ["run_date=2026-01-30/slice=b", "run_date=2026-01-31/slice=b", "run_date=2026-01-31/slice=a"]
    assert build_condition(folders) == (
        "(run_date = DATE'2026-01-30' AND slice IN ('b')) OR (run_date = DATE'2026-01-31' AND slice IN ('a', 'b'))"
    )
