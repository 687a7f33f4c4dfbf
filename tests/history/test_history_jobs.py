"""`roll-up` and `flag-changes` on tables that `mean-ndcg` wrote: what they write, changed nights, refusals."""

from __future__ import annotations

import math
import shutil
from datetime import date, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
from support.main_job import (
    assert_refused,
    read_files,
    read_stored_rows,
    run_command,
    run_mean_ndcg,
    write_rows,
    write_table,
)
from support.nights import build_metric_rows, nth_night, to_columns
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
        run_mean_ndcg(
            "--input", path, "--k", "3", "--run-date", run_date, "--dataset", "shop", "--output", folder / "metrics"
        )
    return folder / "metrics"


@pytest.fixture(params=["local", "spark"])
def roll_up(request):
    return partial(run_command, "roll-up", "--engine", request.param)


@pytest.fixture(params=["local", "spark"])
def flag_changes(request):
    return partial(run_command, "flag-changes", "--engine", request.param)


def stored(path):
    """Rows of a table by all that identifies them, without what changes from run to run."""
    actual = {}
    for row in read_stored_rows(path):
        key = tuple(row[name] for name in ("run_date", "slice", "period", "run", "segment", "metric", "k"))
        assert key not in actual
        actual[key] = {
            name: value for name, value in row.items() if name not in ("computed_at", "source_computed_at")
        }
    return actual


def read_file(file):
    """Read a file of a table; Spark may have stored its times without a zone."""
    rows = pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read()
    times = rows.column("computed_at").cast(pa.timestamp("us", "UTC"))
    return rows.set_column(rows.column_names.index("computed_at"), "computed_at", times)


# -------------------------------------------------------------------------------------------------- roll-up


def test_a_backfill_of_all_periods(roll_up, table, folder, tmp_path):
    ended = roll_up("--input", table, "--output", tmp_path / "periods", "--json", "-")
    assert (ended.code, ended.complaints) == (0, [])
    assert "week 2026-01-26..2026-02-01  ndcg@3 of overall" in ended.out
    assert "days 3 (missing: 2026-02-01)" in ended.out  # of the days since the table began
    rows = stored(tmp_path / "periods")
    assert {(key[0], key[2]) for key in rows} == {
        ("2026-02-01", "week"),
        ("2026-02-08", "week"),
        ("2026-01-31", "month"),
        ("2026-02-28", "month"),
        *((str(NIGHTS[0] + timedelta(days=at)), "rolling_7") for at in range(6)),
    }
    (week,) = [row for key, row in rows.items() if (key[0], key[2], key[5]) == ("2026-02-01", "week", "ndcg")]
    tables = [pq.read_table(folder / f"{night}.parquet") for night in NIGHTS[:3]]
    pq.write_table(pa.concat_tables(tables), folder / "whole.parquet")
    actual = run_mean_ndcg("--input", folder / "whole.parquet", "--k", "3", "--json", "-").json["metrics"]
    (at_once,) = [row for row in actual if row["metric"] == "ndcg"]
    names = ("n_queries", "value", "std_error", "ci_low", "ci_high", "weight_sum")
    assert [week[name] for name in names] == [at_once[name] for name in names]
    shown = [row for row in ended.json["periods"] if (row["period"], row["metric"]) == ("week", "ndcg")]
    assert [row["value"] for row in shown if row["period_end"] == "2026-02-01"] == [week["value"]]


def test_a_changed_night_replaces_its_periods_alone(roll_up, table, folder, tmp_path):
    copied, periods, fresh = tmp_path / "metrics", tmp_path / "periods", tmp_path / "fresh"
    shutil.copytree(table, copied)
    assert roll_up("--input", copied, "--output", periods).code == 0
    before, files = stored(periods), read_files(periods)
    again = ranked(folder / "late.parquet", NIGHTS[3], seed=1)
    run_mean_ndcg("--input", again, "--k", "3", "--run-date", NIGHTS[3], "--dataset", "shop", "--output", copied)
    assert roll_up("--input", copied, "--output", periods, "--from", NIGHTS[3], "--to", NIGHTS[3]).code == 0
    after = stored(periods)
    changed = {key[:3] for key in after if after[key] != before[key]}
    assert {(element[0], element[2]) for element in changed} == {
        ("2026-02-08", "week"),
        ("2026-02-28", "month"),
        ("2026-02-02", "rolling_7"),
        ("2026-02-03", "rolling_7"),
    }
    nights = {f"run_date={element[0]}" for element in changed}
    kept = {name: content for name, content in files.items() if name.partition("/")[0] not in nights}
    assert {name: content for name, content in read_files(periods).items() if name in kept} == kept
    assert roll_up("--input", copied, "--output", fresh).code == 0
    assert stored(fresh) == after


def test_periods_in_a_catalog_table(spark, table):
    spark.sql("DROP TABLE IF EXISTS history_periods")
    for _ in range(2):
        ended = run_command("roll-up", "--input", table, "--output", "history_periods", "--periods", "week,month")
        assert ended.code == 0, ended.err
    rows = spark.table("history_periods").where("metric = 'ndcg'").orderBy("run_date", "period").collect()
    assert [(str(row["run_date"]), row["period"], row["n_days"]) for row in rows] == [
        ("2026-01-31", "month", 3),
        ("2026-02-01", "week", 3),
        ("2026-02-08", "week", 2),
        ("2026-02-28", "month", 2),
    ]
    spark.sql("DROP TABLE history_periods")


@pytest.fixture(scope="module")
def compared(folder):
    """A comparison table of three nights with replicates: two runs against a third, and its rows once more."""
    for at, run_date in enumerate(NIGHTS[:3]):
        values = {
            run: [0.3 + 0.02 * n + shift * ((n + at) % 3) for n in range(12)]
            for run, shift in (("a", 0), ("b", 0.1), ("c", 0.01))
        }
        columns = {
            "run": [run for run, group in values.items() for _ in group],
            "query_id": [f"q{n}" for group in values.values() for n in range(len(group))],
            "k": [3] * 36,
            "ndcg": [value for group in values.values() for value in group],
        }
        path = write_table(folder / f"per_query_{at}.parquet", columns, {"k": pa.int32()})
        ended = run_command("compare-runs", "--per-query", path, "--baseline", "a", "--metrics", "ndcg@3",
                            "--run-date", run_date, "--dataset", "shop", "--replicates", "200", "--flips", "300",
                            "--keep-replicates", "--output", folder / "compared")  # fmt: skip
        assert (ended.code, ended.complaints) == (0, []), ended.err
    return folder / "compared"


def test_comparisons_are_rolled_up(roll_up, compared, tmp_path):
    out = tmp_path / "periods"
    ended = roll_up("--input", compared, "--output", out, "--json", "-", "--periods", "week,month", "--margin", "0.1")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    assert "week 2026-01-26..2026-02-01  ndcg@3 of run 'b' against 'a', overall  difference +0.1" in ended.out
    assert "intervals: independence=query" in ended.out
    rows = {(row["period"], row["run"]): row for row in read_stored_rows(out)}
    assert set(rows) == {(period, run) for period in ("week", "month") for run in ("b", "c")}
    week = rows["week", "b"]
    assert (str(week["run_date"]), week["n_queries"], week["n_days"]) == ("2026-02-01", 36, 3)
    assert week["slice"].startswith("shop.a.week-")
    assert week["difference"] == pytest.approx(0.1, abs=1e-12)  # each query has 0, 0.1 and 0.2
    assert (week["p_value"], week["family_size"], week["p_holm"]) == (None, 2, 2 * week["p_sign_flip"])
    assert (week["verdict"], rows["week", "c"]["note"]) == ("better", "")
    assert len(week["missing_days"]) == 3  # Monday to Wednesday; Sunday is to come
    (shown,) = [row for row in ended.json["periods"] if (row["period"], row["run"]) == ("week", "b")]
    assert (shown["difference"], "state" in shown) == (week["difference"], False)
    again = roll_up("--input", compared, "--output", out, "--periods", "week", "--independence", "query_day")
    assert again.code == 0, again.err
    actual = {(row["period"], row["run"]): row["independence"] for row in read_stored_rows(out)}
    assert actual["week", "b"] == "query_day"
    assert actual["month", "b"] == "query"


@pytest.fixture(scope="module")
def older(table, compared, folder):
    """The tables as an older version would have written them, without columns that came later."""
    for name in ("metrics", "compared"):
        for file in (folder / name).rglob("*.parquet"):
            rows = read_file(file)
            later = {"rules", "convention", "asked", "n_rejected"} & {*rows.column_names}
            path = folder / "older" / file.relative_to(folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows.drop_columns([*later]), path)
    return folder / "older"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("metrics", ()),
        ("metrics", ("--independence", "day")),
        ("older/metrics", ("--from", NIGHTS[1], "--to", NIGHTS[2])),
        ("compared", ()),
        ("compared", ("--independence", "query_day", "--verbose")),
        ("older/compared", ("--independence", "day", "--margin", "0.1")),
    ],
)
def test_both_engines_store_and_print_the_same_periods(older, folder, tmp_path, name, more):
    ended, schemas = {}, {}
    for engine in ("local", "spark"):
        source, out = ("--input", folder / name), ("--output", tmp_path / engine)
        limits = ("--as-of", NIGHTS[3], "--periods", "rolling_7,week,month")
        ended[engine] = run_command("roll-up", "--engine", engine, *source, *out, *limits, *more, "--json", "-")
        assert (ended[engine].code, ended[engine].complaints) == (0, []), ended[engine].err
        schemas[engine] = pq.read_schema(next((tmp_path / engine).rglob("*.parquet"))).names
    assert len(stored(tmp_path / "local")) > 10
    assert stored(tmp_path / "local") == stored(tmp_path / "spark")
    assert schemas["local"] == schemas["spark"]
    assert ended["local"].json["periods"] == ended["spark"].json["periods"]
    shown = [one.out.partition("{")[0] for one in ended.values()]
    assert shown[0] == shown[1]
    assert "rolling_7 2026" in shown[0]


def test_refused_roll_ups_of_comparisons(roll_up, compared, table, tmp_path):
    output = ("--output", tmp_path / "periods")
    more = (*output, "--independence", "query")
    assert_refused(roll_up("--input", table, *more), "--independence query needs replicates")
    copied = tmp_path / "compared"
    shutil.copytree(compared, copied)
    path = compared.parent / "per_query_0.parquet"
    few = ("--metrics", "ndcg@3", "--run-date", NIGHTS[0], "--dataset", "shop", "--replicates", "0", "--flips", "0")
    for options in (("--baseline", "a"), ()):
        ended = run_command("compare-runs", "--per-query", path, *options, *few, "--output", copied)
        assert ended.code == 0, ended.err
    ended = roll_up("--input", copied, *output)
    assert_refused(ended, "two rows for the night 2026-01-29; keep the rows of one data set and slice")
    shutil.rmtree(copied)
    shutil.copytree(compared, copied)
    run_command("compare-runs", "--per-query", path, "--baseline", "a", *few, "--output", copied)
    ended = roll_up("--input", copied, *output)
    assert_refused(ended, "was computed in two ways: n_replicates 0 on 2026-01-29, 200 on")
    assert read_files(tmp_path / "periods") == {}


def test_refused_roll_ups_write_nothing(roll_up, table, folder, tmp_path):
    copied, output = tmp_path / "metrics", ("--output", tmp_path / "periods")
    path = folder / f"{NIGHTS[0]}.parquet"
    for run_date, gain in ((NIGHTS[0], "linear"), (NIGHTS[1], "exponential")):
        more = ("--k", "3", "--run-date", run_date, "--dataset", "shop", "--gain", gain)
        run_mean_ndcg("--input", path, *more, "--output", copied)
    ended = roll_up("--input", copied, *output)
    assert_refused(ended, "different rules (gain: exponential and linear)", "--across-rules", "Nothing was written")
    assert_refused(
        roll_up("--input", table, *output, "--metrics", "ap,ndcg@4"), "no metric 'ap'", "are dcg, idcg, ndcg"
    )
    assert_refused(roll_up("--input", table, *output, "--dataset", "app"), "no data set 'app'", "there is shop")
    assert_refused(roll_up("--input", table, *output, "--periods", "year"), "must be one of week, month, rolling_7")
    assert_refused(
        roll_up("--input", table, *output, "--from", "2026-02-30"),
        "--from: '2026-02-30' is not a day of the calendar",
    )
    assert_refused(
        roll_up("--input", table, *output, "--from", "2027-01-01"), "no night of the table is in a requested period"
    )
    assert_refused(roll_up("--input", table, "--output", table), "--input and --output are both")
    assert_refused(roll_up("--input", path, *output), "column 'metric'", "metric table")
    empty = shutil.copytree(copied, tmp_path / "empty", ignore=shutil.ignore_patterns(".*.crc"))
    for file in empty.rglob("*.parquet"):
        pq.write_table(read_file(file).slice(0, 0), file)
    assert_refused(roll_up("--input", empty, *output), "has no rows")
    shutil.rmtree(empty)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics"]
    hash_of = {row["config_hash"] for row in read_stored_rows(copied) if row["run_date"] == "2026-01-29"}
    assert roll_up("--input", copied, *output, "--config-hash", *hash_of).code == 0


# --------------------------------------------------------------------------------------------- flag-changes


@pytest.fixture(scope="module")
def weeks(folder):
    values = [0.4420, 0.4431, 0.4409, 0.4415, 0.4442, 0.4398, 0.4426, 0.4411, 0.4437, 0.4404, 0.4423, 0.4418, 0.4312]
    rows = [row | {"run_date": nth_night(7 * at)} for at, row in enumerate(build_metric_rows(values))]
    return write_table(folder / "weeks.parquet", to_columns(rows), {"run_date": pa.date32()})


def test_a_flag(flag_changes, weeks, tmp_path):
    flagged = ("--input", weeks, "--output", tmp_path / "flags", "--json", "-")
    ended = flag_changes(*flagged, "--fail-on-flag")
    assert (ended.code, ended.complaints) == (3, [])
    assert "night 2026-03-26, 1 series: 1 low" in ended.out
    assert (
        "FLAG low: ndcg@10 of overall is 0.4312 on 2026-03-26, usually 0.4419 (7.1 standard errors below)"
        in ended.out
    )
    assert [(row["night"], row["limit"]) for row in ended.json["flags"]] == [("2026-03-26", 4.5)]
    assert flag_changes(*flagged, "--to", "2026-03-26", "--run-log", tmp_path / "runs").code == 0
    assert [row["run_date"] for row in read_stored_rows(tmp_path / "runs")] == ["2026-03-26"]  # the night, not today
    (row,) = read_stored_rows(tmp_path / "flags")
    assert (row["run_date"], row["dataset"], row["status"]) == ("2026-03-26", "shop", "low")
    assert "limits=8:5.9 10:5 12:4.5" in row["limits"]


def test_many_nights_at_once_and_other_limits(flag_changes, weeks, tmp_path):
    ended = flag_changes("--input", weeks, "--from", "2026-01-01", "--output", tmp_path / "flags", "--limits", "8=9")
    assert (ended.code, "no flag" in ended.out) == (0, True)
    assert "5 usual" in ended.out
    assert "13 values: 1 with a short history, 5 usual, 7 without a clear change" in ended.out
    assert len(read_stored_rows(tmp_path / "flags")) == 13


def test_too_short_a_history_is_no_clean_bill(flag_changes, folder):
    for values, errors, said in (
        (
            [0.44, 0.44, 0.44],
            0.0015,
            "no new flag; nights are compared with the one before until 28 are stored, now 2",
        ),
        ([0.44, 0.44, 0.44], None, "nothing could be judged: 2 earlier nights, 28 needed"),
        (
            [0.44, 0.44, 0.40],
            0.0015,
            "FLAG low: ndcg@10 of overall is 0.4000 on 2026-01-03, before 0.4400 (18.9 standard errors below)",
        ),
    ):
        rows = build_metric_rows(values, std_error=errors)
        path = write_table(
            folder / "short.parquet", to_columns(rows), {"run_date": pa.date32(), "std_error": pa.float64()}
        )
        ended = flag_changes("--input", path)
        assert said in ended.out, ended.err


def test_flags_of_nights_that_are_paired(flag_changes, folder, tmp_path):
    """Two nights of one data set, as `mean-ndcg` writes both tables, and one of another: 20 queries get worse.

    DCG of one relevant item at rank r is 1 / log2(r + 1): ten queries fall from rank 1 to 2, ten from 5 to 6.
    """
    metrics, per_query = tmp_path / "metrics", tmp_path / "queries"
    for run_date, dataset, moved in ((NIGHTS[0], "shop", 0), (NIGHTS[1], "shop", 1), (NIGHTS[1], "app", 0)):
        rows = [
            Row(query=f"q{at}", item=f"i{item}", score=-float(item), relevance=float(item == first + moved))
            for at in range(20)
            for first in [0 if at < 10 else 4]
            for item in range(6)
        ]
        path = write_rows(folder / "paired.parquet", rows)
        run_mean_ndcg("--input", path, "--k", "10", "--run-date", run_date, "--dataset", dataset, "--output", metrics,
                      "--per-query-output", per_query)  # fmt: skip
    given = ("--input", metrics, "--dataset", "shop", "--output", tmp_path / "flags")
    assert flag_changes(*given, "--fail-on-flag").code == 0  # by means and errors nothing shows
    ended = flag_changes(*given, "--per-query", per_query, "--fail-on-flag", "--json", "-")
    assert (ended.code, ended.complaints) == (3, []), ended.err
    assert "compared with one earlier night: 1 series, 1 of them query by query" in ended.out
    (flag,) = ended.json["flags"]
    falls = [1 / math.log2(3) - 1] * 10 + [1 / math.log2(7) - 1 / math.log2(6)] * 10
    assert (flag["status"], flag["weekday"]) == ("low", "before_paired")
    assert flag["z"] == pytest.approx(scipy.stats.ttest_1samp(falls, 0).statistic, rel=1e-9)
    assert "; the 20 queries of both nights changed by -0." in flag["rule"]
    (row,) = read_stored_rows(tmp_path / "flags")
    assert (row["weekday"], row["input"]) == ("before_paired", ended.json["input"])
    assert_refused(flag_changes(*given, "--per-query", per_query, "--query-col", "qid"), "column 'qid'", "query-col")
    assert_refused(flag_changes(*given, "--per-query", tmp_path / "none"), "none")


def test_refused_flags_write_nothing(flag_changes, weeks, tmp_path):
    output = ("--output", tmp_path / "flags")
    assert_refused(flag_changes("--input", weeks, *output, "--limits", "8"), "8")
    assert_refused(flag_changes("--input", weeks, *output, "--limits", "x=1"), "--limits must be as")
    assert_refused(flag_changes("--input", weeks, *output, "--from", "2027-01-01"), "is after the last")
    early = flag_changes("--input", weeks, *output, "--from", "2001-01-01", "--to", "2001-01-02")
    assert_refused(early, "has no night from 2001-01-01 to 2001-01-02; its nights are from 20")
    assert list(tmp_path.iterdir()) == []
