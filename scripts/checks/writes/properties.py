"""What a write of a slice promises, tried on one table after the other. Each function returns words, or raises."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ndcg_spark.errors import InputRefusedError, NdcgSparkError, OutputRefusedError
from ndcg_spark.sources.formats import open_table
from ndcg_spark.tables import SliceWrite, check_output, claims, swap_in
from scripts.checks.writes.places import BEFORE, NIGHT, Place, app, broken, location, rows, several_nights, shop

NONE = "-"
PROPERTIES: dict[str, Callable[[Place], str]] = {}


class PropertyError(AssertionError):
    """A property does not hold."""


def named(title: str) -> Callable[[Callable[[Place], str]], Callable[[Place], str]]:
    """Enter a property under its title."""

    def enter(call: Callable[[Place], str]) -> Callable[[Place], str]:
        PROPERTIES[title] = call
        return call

    return enter


def expect(got: Any, wanted: Any, what: str) -> None:
    """Raise unless two things are equal."""
    if got != wanted:
        raise PropertyError(f"{what}: {got}, not {wanted}")


def refusal(call: Callable[[], Any], *words: str) -> str:
    """Return the refusal of a call; it must contain some words and be one line."""
    try:
        call()
    except NdcgSparkError as error:
        message = str(error)
        missing = [word for word in words if word not in message]
        if missing or "\n" in message:
            raise PropertyError(f"the refusal lacks {missing} or has several lines: {message}") from error
        return message
    raise PropertyError(f"nothing was refused; expected {words}")


def expect_values(
    value: int, n: int = 3, *, night: Any = NIGHT, dataset: str = "shop", run: str = ""
) -> tuple[Any, ...]:
    """Return the expected value of `Place.values` for a slice."""
    return (str(night), dataset, run, value, n)


@named("first night: table made by DDL")
def first_night(place: Place) -> str:
    made = place.exists()
    place.write(rows(place.spark, 1))
    expect(place.values(), [expect_values(1)], "rows")
    if place.is_folder:
        return "yes (no table)"
    provider = place.provider()
    expect(provider, place.kind if place.commits else ("hive" if made else "parquet"), "provider")
    columns = [column.name for column in place.spark.catalog.listColumns(place.reference) if column.isPartition]
    expect(columns, ["run_date", "slice"], "partition columns")
    return "yes (made before)" if made else "yes"


@named("re-run replaces its rows only")
def rerun(place: Place) -> str:
    place.write(rows(place.spark, 1, ("a", "b")), shop(runs=("a", "b")))
    place.write(rows(place.spark, 2, ("a",)), app(runs=("a",)))
    place.write(rows(place.spark, 3, night=BEFORE), shop(BEFORE))
    place.write(rows(place.spark, 4, ("b",), n=2), shop(runs=("b",)))
    place.write(rows(place.spark, 5, ("b",), n=4), shop(runs=("b",)))
    wanted = [
        expect_values(1, run="a"),
        expect_values(5, 4, run="b"),
        expect_values(2, dataset="app", run="a"),
        expect_values(3, night=BEFORE),
    ]
    expect([row for row in place.values() if row != expect_values(1)], sorted(wanted), "rows")
    return "yes"


@named("other dates and runs byte-identical")
def others_stay(place: Place) -> str:
    for slices in (shop(BEFORE), app(), shop()):
        place.write(rows(place.spark, 1, night=slices.keys[0].night), slices)
    others = [shop(BEFORE), app()]
    before = [place.files(folder) for folder in others]
    if not all(before):
        raise PropertyError("there are no files to look at")
    place.write(rows(place.spark, 2))
    expect([place.files(folder) for folder in others], before, "files of other slices")
    expect(sorted(place.values())[-1], expect_values(2), "rows")
    return "yes"


@named("several nights in one write")
def nights(place: Place) -> str:
    for night in (BEFORE, NIGHT):
        place.write(rows(place.spark, 1, night=night), shop(night))
    place.write(rows(place.spark, 7), app())
    place.write(*several_nights(place.spark, 2))
    expect(
        place.values(),
        sorted([expect_values(2, night=BEFORE), expect_values(2), expect_values(7, dataset="app")]),
        "rows",
    )
    return "yes"


@named("a run without rows: emptied or refused")
def emptied(place: Place) -> str:
    place.write(rows(place.spark, 1, ("a", "b")), shop(runs=("a", "b")))
    new_rows = rows(place.spark, 2, ("a",))
    refusal(lambda: place.write(new_rows, shop(runs=("a", "b"))), "no rows of run 'b'")
    expect(place.values(), [expect_values(1, run="a"), expect_values(1, run="b")], "rows after the refusal")
    place.write(new_rows, shop(runs=("a", "b"), empty=["b"]))
    expect(place.values(), [expect_values(2, run="a")], "rows")
    return "yes"


@named("rows of another run are refused")
def stray(place: Place) -> str:
    place.write(rows(place.spark, 1, ("a",)), shop(runs=("a",)))
    refusal(lambda: place.write(rows(place.spark, 2, ("a", "b")), shop(runs=("a",))), "belong to an unexpected slice")
    expect(place.values(), [expect_values(1, run="a")], "rows")
    return "yes"


@named("a failing row leaves the old rows")
def failing(place: Place) -> str:
    is_kept = place.exists() or not place.reached  # another job may have found the table that Spark made meanwhile
    refusal(lambda: place.write(broken(rows(place.spark, 1))), "broken row")
    expect((place.exists(), place.values()), (is_kept, []), "after a first night that failed")
    place.write(rows(place.spark, 1))
    refusal(lambda: place.write(broken(rows(place.spark, 2))), "broken row")
    expect(place.values(), [expect_values(1)], "rows")
    return "yes"


class _FailingOutput(SliceWrite):
    """Output that fails after others were swapped in."""

    def __init__(self, before: Callable[[], None]) -> None:
        self.reference, self.before = "another output", before

    def swap(self) -> None:
        self.before()
        raise OutputRefusedError("no")

    def finish(self) -> None:
        raise AssertionError


@named("a later output fails: taken back, others' rows kept")
def taken_back(place: Place) -> str:
    place.write(rows(place.spark, 1))
    seen: list[Any] = []

    def meanwhile() -> None:
        seen.extend(place.values())
        place.write(rows(place.spark, 9), app())

    with closing(place.stage(rows(place.spark, 2), shop())) as staged:
        refusal(lambda: swap_in([staged, _FailingOutput(meanwhile)]), "no")
    expect(seen, [expect_values(2)], "rows before the failure")
    expect(place.values(), sorted([expect_values(1), expect_values(9, dataset="app")]), "rows")
    place.write(rows(place.spark, 3))
    expect(place.values(), sorted([expect_values(3), expect_values(9, dataset="app")]), "rows afterwards")
    return "yes"


def _together(*calls: Callable[[], None]) -> list[str | None]:
    begin = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> str | None:
        begin.wait()
        try:
            call()
        except NdcgSparkError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@named("two writers of one slice: one wins whole")
def rivals(place: Place) -> str:
    place.write(rows(place.spark, 0))
    refused = 0
    for value in (1, 3, 5):
        calls = [
            lambda count=count: place.write(rows(place.spark, count, n=3 + count)) for count in (value, value + 1)
        ]
        ended = _together(*calls)
        messages = [end for end in ended if end is not None]
        strange = [count for count in messages if "is being written by" not in count and "meanwhile" not in count]
        if strange or len(messages) == 2:
            raise PropertyError(f"both or strangely refused: {messages}")
        winners = [expect_values(value + index, 3 + value + index) for index, end in enumerate(ended) if end is None]
        if place.values() not in [[count] for count in winners]:
            raise PropertyError(f"{place.values()}, not one of {winners}")
        refused += len(messages)
    return f"yes ({refused} of 3 refused)"


@named("a writer who comes late is refused")
def late(place: Place) -> str:
    place.write(rows(place.spark, 1))
    if place.reached:
        with closing(place.stage(rows(place.spark, 2), shop())):
            refusal(lambda: place.write(rows(place.spark, 3)), "is being written by process")
        expect(place.values(), [expect_values(1)], "rows")
        return "yes, before it computes"
    with closing(place.stage(rows(place.spark, 2), shop())) as staged:
        claims._claimed.clear()  # as if the other one ran in another process
        place.write(rows(place.spark, 3))
        place.write(rows(place.spark, 4), app())
        refusal(lambda: swap_in([staged]), "meanwhile")
    expect(place.values(), sorted([expect_values(3), expect_values(4, dataset="app")]), "rows")
    return "yes, when it commits"


@named("writers of other slices at once: all succeed")
def beside(place: Place) -> str:
    names = ("a", "b", "c", "d")
    for value in (1, 2):
        calls = [
            lambda run=run, value=value: place.write(rows(place.spark, value, (run,)), shop(runs=(run,)))
            for run in names
        ]
        expect(_together(*calls), [None] * 4, "refusals")
        expect(place.values(), [expect_values(value, run=run) for run in names], "rows")
    return "yes"


@named("a column added later, by one of several writers")
def evolved(place: Place) -> str:
    place.write(rows(place.spark, 1), app())
    place.write(rows(place.spark, 1, night=BEFORE), shop(BEFORE))
    before = place.files(app())
    wider = rows(place.spark, 2).selectExpr("*", "'de' AS country")
    messages: list[str] = []
    check_output(place.spark, place.reference, place.kind, wider.schema, report=messages.append)
    line = f"column 'country' is added to {place.reference!r}; it is null for earlier nights"
    expect(messages, [line], "lines")
    with closing(place.stage(rows(place.spark, 3, night=BEFORE), shop(BEFORE))) as narrow:
        how = _written_wider(place, wider)
        swap_in([narrow])  # its table had no such column when it was staged
    expect(_countries(place), [("app", 1, ""), ("shop", 2, "de"), ("shop", 3, "")], "countries")
    expect(place.files(app()), before, "files of other slices")
    with closing(place.stage(rows(place.spark, 4, night=BEFORE), shop(BEFORE))) as staged:
        refusal(lambda: swap_in([staged, _FailingOutput(lambda: None)]), "no")
    with closing(place.stage(rows(place.spark, 4), shop())) as staged:
        refusal(lambda: swap_in([staged, _FailingOutput(lambda: None)]), "no")
    expect(_countries(place), [("app", 1, ""), ("shop", 2, "de"), ("shop", 3, "")], "countries after failures")
    return how


def _written_wider(place: Place, wider: DataFrame) -> str:
    """Write rows with a column more; Sail cannot alter a table, so that the refusal there says what to run."""
    try:
        place.write(wider)
    except OutputRefusedError as error:
        if place.kind != "delta" or "ALTER TABLE" not in str(error):
            raise
        how = _add_country(place, place.reference, "ALTER TABLE" + str(error).split("ALTER TABLE")[1])
        place.write(wider)
        return f"yes, after the ALTER TABLE that the refusal names{how}"
    return "yes"


def _countries(place: Place) -> list[tuple[str, int, str]]:
    rows = place.frame().select("dataset", "value", "country").distinct().collect()
    return sorted((row[0], row[1], row[2] or "") for row in rows)


def _add_country(place: Place, table: str, statement: str) -> str:
    """Run a statement that adds the column `country`; Sail has none, so that `deltalake` does it there."""
    try:
        place.spark.sql(statement)
    except PySparkException:
        if place.kind != "delta":
            raise
        from deltalake import DeltaTable, Field

        DeltaTable(str(location(place.spark, table))).alter.add_columns([Field("country", "string")])
        return " (by deltalake)"
    return ""


@named("SIGKILL of the writer: last good state, next run heals")
def killed(place: Place, kills: int = 3, seed: int = 1) -> str:
    if not place.shared or not place.reached:
        return NONE
    place.write(rows(place.spark, 1000))
    place.write(rows(place.spark, 1), app())
    rng, known, left = random.Random(seed), 1000, 0
    for number in range(kills):
        known = _kill_one(place, 10000 * (number + 1), known, rng.uniform(0.0, 1.5))
        left += any((place.root / claims.LOCK_FOLDER).glob("write-*"))
        messages: list[str] = []
        place.write(rows(place.spark, 2 + number), app(), report=messages.append)
        slices = place.values()
        values = [row for row in slices if row[1] == "shop"]
        if len(values) != 1 or values[0][3] not in known or values[0][4] != 3:
            raise PropertyError(f"after SIGKILL: {values}, not one of {known}")
        expect(
            [row for row in slices if row[1] == "app"], [expect_values(2 + number, dataset="app")], "the other slice"
        )
        expect(list(place.root.glob(f"{claims.LOCK_FOLDER}/write-*")), [], "leftovers")
        place.write(rows(place.spark, 1000))
        known = 1000
    return f"yes ({kills} kills, {left} left something)"


def _kill_one(place: Place, first: int, known: int, after: float) -> set[int]:
    """Kill a process that writes one version after the other; return those that the slice may hold."""
    leg = place.kind if place.commits else "spark"
    command = [sys.executable, "-m", "scripts.checks.writes.formats", "--writer", leg, place.title]
    command += [str(place.base), str(place.root), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as writer:
        try:
            done = known
            line = writer.stdout.readline() if writer.stdout else ""
            if line.strip() != str(first):
                raise PropertyError(f"the writer did not start: {line!r}")
            time.sleep(after)
        finally:
            os.killpg(writer.pid, signal.SIGKILL)
        numbers = [int(text) for text in (writer.stdout.read() if writer.stdout else "").split()]
        done = max([first, *numbers])
    return {done, done + 1}


@named("inputs: deleted rows and later columns honoured")
def inputs(place: Place) -> str:
    if not place.commits:
        return NONE
    spark, table = place.spark, f"{place.reference}_read"
    properties = {
        "delta": "'delta.enableDeletionVectors' = 'true'",
        "iceberg": "'write.delete.mode' = 'merge-on-read', 'format-version' = '2'",
    }[place.kind]
    spark.sql(f"CREATE TABLE {table} (query_id INT, score DOUBLE) USING {place.kind} TBLPROPERTIES ({properties})")
    root = location(spark, table)
    try:
        spark.range(10).selectExpr("CAST(id AS INT) AS query_id", "CAST(id AS DOUBLE) AS score").coalesce(1).writeTo(
            table
        ).append()
        spark.sql(f"DELETE FROM {table} WHERE query_id < 4")
        _add_country(place, table, f"ALTER TABLE {table} ADD COLUMNS (country STRING)")
        expect(open_table(spark, table).frame.columns, ["query_id", "score", "country"], "columns of the table")
        expect(open_table(spark, table).frame.count(), 6, "rows of the table")
        expect(open_table(spark, str(root)).frame.count(), 6, "rows of the folder, its format guessed")
        for path in (str(root), str(root / "data"), f"{root}/*.parquet", f"file:{root}"):
            try:
                open_table(spark, path, "parquet")
            except InputRefusedError as error:
                if place.kind.capitalize() not in str(error):
                    raise PropertyError(f"{path}: {error}") from error
            else:
                raise PropertyError(f"{path} was read as Parquet")
        return "yes; its files as Parquet are refused"
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {table}")


@named("write-audit-publish: nights of a branch, run again")
def audited(place: Place) -> str:
    if place.kind != "iceberg":
        return NONE
    spark = place.spark
    place.write(rows(spark, 1))
    spark.sql(f"ALTER TABLE {place.reference} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    try:
        spark.conf.set("spark.wap.branch", "audit")
        for value in (2, 3):
            place.write(rows(spark, value))
            expect(place.values(), [expect_values(value)], "rows of the branch")
        staged = [place.stage(rows(spark, 4), shop()), _FailingOutput(lambda: None)]
        with closing(staged[0]):
            refusal(lambda: swap_in(staged), "could not be undone")
        place.write(rows(spark, 5))
        expect(place.values(), [expect_values(5)], "rows of the branch")
        spark.conf.unset("spark.wap.branch")
        expect(place.values(), [expect_values(1)], "rows of main")
        spark.conf.set("spark.wap.id", "night")
        refusal(lambda: place.write(rows(spark, 6)), "spark.wap.id", "spark.wap.branch")
    finally:
        spark.conf.unset("spark.wap.branch")
        spark.conf.unset("spark.wap.id")
    expect(place.values(), [expect_values(1)], "rows of main")
    return "yes; a staged id is refused"


@named("buckets are refused before anything is written")
def bucketed(place: Place) -> str:
    if place.is_folder or place.kind == "delta":
        return NONE
    spark, table = place.spark, f"{place.reference}_bucketed"
    columns = "run STRING, k INT, value INT, night DATE, dataset STRING, run_date DATE, slice STRING"
    by = {"iceberg": "USING iceberg PARTITIONED BY (run_date, slice, bucket(4, k))"}.get(
        place.kind, "USING parquet PARTITIONED BY (run_date, slice) CLUSTERED BY (k) INTO 4 BUCKETS"
    )
    spark.sql(f"CREATE TABLE {table} ({columns}) {by}")
    try:
        refusal(lambda: check_output(spark, table, None, rows(spark, 1).schema), "buckets of 'k'", "CLUSTERED BY")
    finally:
        spark.sql(f"DROP TABLE {table}")
    return "yes"
