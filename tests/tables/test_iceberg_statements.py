"""Iceberg without Iceberg, and catalogs that refuse: what is asked of a session, and what is made of its answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql import types as T

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.catalog import add_columns, check_table
from ndcg_spark.tables.commits import Commit, IcebergLog

STORED = T.StructType([T.StructField("run", T.StringType()), T.StructField("dataset", T.StringType())])
IN_TABLE = T.StructType([*STORED, T.StructField("run_date", T.DateType()), T.StructField("slice", T.StringType())])
DESCRIBED = [
    ("run", "string"),
    ("# Detailed Table Information", ""),
    ("Location", "s3://b/t"),
    ("Provider", "iceberg"),
]
COUNTRY = T.StructField("country", T.StringType())
SLICE = "run_date=2026-01-31/slice=shop-12345678"


class Session:
    """Answers as one with an Iceberg catalog would; `failing` statements raise, in turn."""

    def __init__(self, settings=(), *, wap="false", snapshots=(), failing=(), described=DESCRIBED):
        self.settings, self.wap, self.snapshots, self.failing = dict(settings), wap, list(snapshots), iter(failing)
        self.conf = SimpleNamespace(get=self.settings.get)
        self.described = described
        columns = [
            SimpleNamespace(name=field.name, isPartition=field.name in ("run_date", "slice"), isBucket=False)
            for field in IN_TABLE
        ]
        self.catalog = SimpleNamespace(
            tableExists=lambda _: True, listColumns=lambda _: columns, refreshTable=lambda _: None
        )
        self.altered, self.added, self.is_blind = [], [], False

    def table(self, _):
        schema = T.StructType([*IN_TABLE, *([] if self.is_blind else self.added)])
        return SimpleNamespace(schema=schema, columns=schema.fieldNames())

    def sql(self, statement):
        if statement.startswith("DESCRIBE"):
            if isinstance(self.described, Exception):
                raise self.described
            rows = self.described
        elif statement.startswith("SHOW TBLPROPERTIES"):
            rows = [("write.wap.enabled", self.wap)]
        elif ".refs " in statement:
            rows = [("main", 5), ("audit", 7)]
        elif ".snapshots " in statement:
            rows = self.snapshots
        else:
            self.altered.append(statement)
            if next(self.failing, False):
                raise SPARK_ERRORS[0]("no right to alter")
            rows, self.added = [], [COUNTRY]
        return SimpleNamespace(collect=lambda: rows, first=lambda: next(iter(rows), None))


@pytest.mark.parametrize(
    ("branch", "wap", "undoable", "version"),
    [(None, "true", True, 5), ("audit", "true", False, 7), ("audit", "false", True, 5), ("new", "TRUE", False, 5)],
)
def test_the_branch_of_a_session_is_written_where_the_table_heeds_it(branch, wap, undoable, version):
    log = IcebergLog(Session({"spark.wap.branch": branch}, wap=wap), "a.t", [SLICE])
    assert (log.undoable, log.read_version()) == (undoable, version)


@pytest.mark.parametrize(
    ("snapshots", "found"),
    [
        ([], None),
        ([(9, 5, "1")], Commit(version=9, before=5, changed_only_own_slices=True)),
        ([(9, None, "2")], Commit(version=9, before=None, changed_only_own_slices=False)),
    ],
)
def test_a_commit_is_found_by_its_mark(snapshots, found):
    assert IcebergLog(Session(snapshots=snapshots), "a.t", [SLICE]).find_commit("mark", None) == found


@pytest.mark.parametrize(
    ("settings", "wap", "is_refused"),
    [({"spark.wap.id": "7"}, "true", True), ({"spark.wap.id": "7"}, "false", False), ({}, "true", False)],
)
def test_commits_that_nobody_would_see_are_refused(settings, wap, is_refused):
    session = Session(settings, wap=wap)
    if is_refused:
        with pytest.raises(OutputRefusedError, match=r"write\.wap\.enabled, and spark\.wap\.id is set"):
            check_table(session, "a.t", STORED)
    else:
        assert check_table(session, "a.t", STORED).format == "iceberg"


def test_a_table_of_another_provider_than_was_asked_for_is_refused():
    assert check_table(Session(), "a.t", STORED, "iceberg").format == "iceberg"
    with pytest.raises(OutputRefusedError, match="is of provider 'iceberg', not 'delta'; name another"):
        check_table(Session(), "a.t", STORED, "delta")


@pytest.mark.parametrize(("provider", "asks"), [("parquet", True), ("delta", False)])
def test_other_providers_have_no_commits_to_publish_later_and_delta_no_partitions_to_check(provider, asks):
    session = Session({"spark.wap.id": "7"}, wap="true", described=[*DESCRIBED[:-1], ("Provider", provider)])
    if not asks:
        session.catalog.listColumns = None
    assert check_table(session, "a.t", STORED).format == provider


@pytest.mark.parametrize(
    ("library", "format_"),
    [("org.apache.hadoop.hive.ql.io.orc.OrcSerde", "orc"), ("org.apache.hadoop.hive.serde2.OpenCSVSerde", None)],
)
def test_a_table_of_hive_has_the_format_of_its_files(library, format_):
    session = Session(described=[*DESCRIBED[:-1], ("Provider", "hive"), ("Serde Library", library)])
    if format_ is None:
        with pytest.raises(
            OutputRefusedError, match=r"is stored by '.*opencsvserde'; this version writes parquet and"
        ):
            check_table(session, "a.t", STORED)
    else:
        assert check_table(session, "a.t", STORED).format == format_


def test_a_table_that_goes_between_two_questions_is_none():
    gone = SPARK_ERRORS[0]("[TABLE_OR_VIEW_NOT_FOUND] The table or view `a`.`t` cannot be found.")
    session, there = Session(described=gone), iter([True, False])
    session.catalog.tableExists = lambda _: next(there)
    assert check_table(session, "a.t", STORED) is None
    # A view whose table has gone is there, and what it lacks is told.
    with pytest.raises(OutputRefusedError, match=r"cannot write to table 'a\.t': .*`a`\.`t` cannot be found"):
        check_table(Session(described=gone), "a.t", STORED)
    closed = SPARK_ERRORS[0]("no right to look")
    with pytest.raises(OutputRefusedError, match=r"cannot write to table 'a\.t': .*no right to look"):
        check_table(Session(described=closed), "a.t", STORED)


def test_columns_are_added_again_where_others_came_first():
    session = Session(failing=[True, True])
    add_columns(session, "a.t", [COUNTRY])
    assert session.altered == ["ALTER TABLE a.t ADD COLUMNS (`country` string)"] * 3
    refusing = Session(failing=[True] * 9)
    with pytest.raises(
        OutputRefusedError, match=r"could not be added .*no right to alter.*somebody run: ALTER TABLE a"
    ):
        add_columns(refusing, "a.t", [COUNTRY])
    assert len(refusing.altered) == 6


def test_columns_that_cannot_be_seen_are_not_taken_for_added():
    session = Session()
    session.is_blind = True
    with pytest.raises(OutputRefusedError, match=r"has no column 'country', .*\(Spark does not see it\)"):
        add_columns(session, "a.t", [COUNTRY])
