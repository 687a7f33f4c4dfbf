"""`roll-up` and `flag-changes` on tables that `mean-ndcg` wrote: what they write, changed nights, refusals."""

from __future__ import annotations

import shutil
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import assert_refused, command, done, files_below, stored_rows, write_rows, write_table
from support.nights import as_columns, metric_rows, night
from support.oracle import Row

pytestmark = pytest.mark.usefixtures("spark")
NIGHTS = [date(2026, 1, 29) + timedelta(days=at) for at in (0, 1, 2, 4, 5)]
"""A Thursday to a Tuesday, without the Sunday."""


def ranked(path, run_date, seed=0):
    rows = [
        Row(query=f"{run_date}/{at}", item=f"i{item}", score=float(-item), relevance=float((at + item + seed) % 3))
        for at in range(2 + run_date.day % 3)
        for item in range(4)
    ]
    return write_rows(path, rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("history")


@pytest.fixture(scope="module")
def table(folder):
    """A metric table of five nights."""
    for run_date in NIGHTS:
        path = ranked(folder / f"{run_date}.parquet", run_date)
        done("--input", path, "--k", "3", "--run-date", run_date, "--dataset", "shop", "--output", folder / "metrics")
    return folder / "metrics"


def roll_up(*arguments):
    return command("roll-up", *arguments)


def flag_changes(*arguments):
    return command("flag-changes", *arguments)


def stored(path):
    """Rows of a table by all that identifies them, without what changes from run to run."""
    found = {}
    for row in stored_rows(path):
        key = tuple(row[name] for name in ("run_date", "slice", "period", "run", "segment", "metric", "k"))
        assert key not in found
        found[key] = {name: value for name, value in row.items() if name != "computed_at"}
    return found


# -------------------------------------------------------------------------------------------------- roll-up


def test_a_backfill_of_all_periods(table, folder, tmp_path):
    ended = roll_up("--input", table, "--output", tmp_path / "periods", "--json", "-")
    assert (ended.code, ended.complaints) == (0, [])
    assert "week 2026-01-26..2026-02-01  ndcg@3 of overall" in ended.out
    assert "days 3 (missing: 2026-01-26, 2026-01-27, 2026-01-28, 2026-02-01)" in ended.out
    rows = stored(tmp_path / "periods")
    assert {(key[0], key[2]) for key in rows} == {
        ("2026-02-01", "week"),
        ("2026-02-08", "week"),
        ("2026-01-31", "month"),
        ("2026-02-28", "month"),
        *((str(NIGHTS[0] + timedelta(days=at)), "rolling_7") for at in range(6)),
    }
    (week,) = [row for key, row in rows.items() if (key[0], key[2], key[5]) == ("2026-02-01", "week", "ndcg")]
    tables = [pq.read_table(folder / f"{one}.parquet") for one in NIGHTS[:3]]
    pq.write_table(pa.concat_tables(tables), folder / "whole.parquet")
    found = done("--input", folder / "whole.parquet", "--k", "3", "--json", "-").json["metrics"]
    (at_once,) = [row for row in found if row["metric"] == "ndcg"]
    names = ("n_queries", "value", "std_error", "ci_low", "ci_high", "weight_sum")
    assert [week[name] for name in names] == [at_once[name] for name in names]
    shown = [row for row in ended.json["periods"] if (row["period"], row["metric"]) == ("week", "ndcg")]
    assert [row["value"] for row in shown if row["period_end"] == "2026-02-01"] == [week["value"]]


def test_a_changed_night_replaces_its_periods_alone(table, folder, tmp_path):
    copied, periods, fresh = tmp_path / "metrics", tmp_path / "periods", tmp_path / "fresh"
    shutil.copytree(table, copied)
    assert roll_up("--input", copied, "--output", periods).code == 0
    before, files = stored(periods), files_below(periods)
    again = ranked(folder / "late.parquet", NIGHTS[3], seed=1)
    done("--input", again, "--k", "3", "--run-date", NIGHTS[3], "--dataset", "shop", "--output", copied)
    assert roll_up("--input", copied, "--output", periods, "--from", NIGHTS[3], "--to", NIGHTS[3]).code == 0
    after = stored(periods)
    changed = {key[:3] for key in after if after[key] != before[key]}
    assert {(one[0], one[2]) for one in changed} == {
        ("2026-02-08", "week"),
        ("2026-02-28", "month"),
        ("2026-02-02", "rolling_7"),
        ("2026-02-03", "rolling_7"),
    }
    nights = {f"run_date={one[0]}" for one in changed}
    kept = {name: content for name, content in files.items() if name.partition("/")[0] not in nights}
    assert {name: content for name, content in files_below(periods).items() if name in kept} == kept
    assert roll_up("--input", copied, "--output", fresh).code == 0
    assert stored(fresh) == after


def test_periods_in_a_catalog_table(spark, table):
    spark.sql("DROP TABLE IF EXISTS history_periods")
    for _ in range(2):
        assert roll_up("--input", table, "--output", "history_periods", "--periods", "week,month").code == 0
    found = spark.table("history_periods").where("metric = 'ndcg'").orderBy("run_date", "period").collect()
    assert [(str(row["run_date"]), row["period"], row["n_days"]) for row in found] == [
        ("2026-01-31", "month", 3),
        ("2026-02-01", "week", 3),
        ("2026-02-08", "week", 2),
        ("2026-02-28", "month", 2),
    ]
    spark.sql("DROP TABLE history_periods")


def test_refused_roll_ups_write_nothing(table, folder, tmp_path):
    copied, output = tmp_path / "metrics", ("--output", tmp_path / "periods")
    path = folder / f"{NIGHTS[0]}.parquet"
    for run_date, gain in ((NIGHTS[0], "linear"), (NIGHTS[1], "exponential")):
        more = ("--k", "3", "--run-date", run_date, "--dataset", "shop", "--gain", gain)
        done("--input", path, *more, "--output", copied)
    ended = roll_up("--input", copied, *output)
    assert_refused(
        ended, "two configurations", "config_hash", "on 2026-01-29", "on 2026-01-30", "Nothing was written"
    )
    assert_refused(roll_up("--input", table, *output, "--metrics", "ap"), "has no rows of metrics ap")
    assert_refused(roll_up("--input", table, *output, "--dataset", "app"), "has no rows of data set 'app'")
    assert_refused(roll_up("--input", table, *output, "--periods", "year"), "must be one of week, month, rolling_7")
    assert_refused(roll_up("--input", table, *output, "--from", "2026-02-30"), "--from must be a date")
    assert_refused(roll_up("--input", table, *output, "--from", "2027-01-01"), "no night of the table is in a period")
    assert_refused(roll_up("--input", table, "--output", table), "--input and --output are both")
    assert_refused(roll_up("--input", path, *output), "column 'metric'", "metric table")
    assert [one.name for one in tmp_path.iterdir()] == ["metrics"]
    hash_of = {row["config_hash"] for row in stored_rows(copied) if row["run_date"] == "2026-01-29"}
    assert roll_up("--input", copied, *output, "--config-hash", *hash_of).code == 0


# --------------------------------------------------------------------------------------------- flag-changes


@pytest.fixture(scope="module")
def weeks(folder):
    values = [0.4420, 0.4431, 0.4409, 0.4415, 0.4442, 0.4398, 0.4426, 0.4411, 0.4437, 0.4404, 0.4423, 0.4418, 0.4312]
    rows = [row | {"run_date": night(7 * at)} for at, row in enumerate(metric_rows(values))]
    return write_table(folder / "weeks.parquet", as_columns(rows), {"run_date": pa.date32()})


def test_a_flag(weeks, tmp_path):
    flagged = ("--input", weeks, "--output", tmp_path / "flags", "--json", "-")
    ended = flag_changes(*flagged, "--fail-on-flag")
    assert (ended.code, ended.complaints) == (3, [])
    assert "nights from 2026-03-26 to 2026-03-26: 1 low" in ended.out
    assert "FLAG low: ndcg@10 of overall is 0.431200 on 2026-03-26, below the median 0.441900" in ended.out
    assert [(row["night"], row["limit"]) for row in ended.json["flags"]] == [("2026-03-26", 4.5)]
    assert flag_changes(*flagged).code == 0
    (row,) = stored_rows(tmp_path / "flags")
    assert (row["run_date"], row["dataset"], row["status"]) == ("2026-03-26", "shop", "low")
    assert "limits=8:5.9 10:5 12:4.5" in row["limits"]


def test_many_nights_at_once_and_other_limits(weeks, tmp_path):
    ended = flag_changes("--input", weeks, "--from", "2026-01-01", "--output", tmp_path / "flags", "--limits", "8=9")
    assert (ended.code, "no flag" in ended.out) == (0, True)
    assert "5 usual" in ended.out
    assert "8 short history" in ended.out
    assert len(stored_rows(tmp_path / "flags")) == 13


def test_refused_flags_write_nothing(weeks, tmp_path):
    output = ("--output", tmp_path / "flags")
    assert_refused(flag_changes("--input", weeks, *output, "--limits", "8"), "8")
    assert_refused(flag_changes("--input", weeks, *output, "--limits", "x=1"), "--limits must be as")
    assert_refused(flag_changes("--input", weeks, *output, "--from", "2027-01-01"), "is after the last")
    assert_refused(
        flag_changes("--input", weeks, *output, "--from", "2027-01-01", "--to", "2027-01-02"), "no night from --from"
    )
    assert list(tmp_path.iterdir()) == []
