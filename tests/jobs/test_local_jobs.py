"""mean-ndcg without Spark: the same folders, JSON, texts and refusals as with it, in a process without PySpark."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import (
    RunResult,
    assert_refused,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_command,
    write_judgments,
    write_rows,
    write_run,
    write_table,
)
from support.oracle import Row, build_ranking
from support.random_rankings import random_rows

NIGHT = ("--run-date", "2026-01-31", "--dataset", "shop")
NIGHT_AFTER = ("--run-date", "2026-02-01", "--dataset", "shop")
OUTPUTS = {"--output": "metrics", "--per-query-output": "queries"}
OF_THE_MOMENT = ("computed_at",)
ROOT = Path(__file__).resolve().parents[2]
IN_SESSION = f"spark: {'SPARK_REMOTE is set' if 'SPARK_REMOTE' in os.environ else 'a Spark session is active'}"
WITHOUT_SPARK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
from ndcg_spark.main import main
code = main()
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"pyspark", "pandas", "scipy"}), file=sys.stderr)
sys.exit(code)
"""


def by(engine: str, folder: Path, *arguments: object, rejects: bool = False) -> RunResult:
    """Run the job by an engine, with all outputs in a folder."""
    outputs = {**OUTPUTS, **({"--rejects": "rejects"} if rejects else {})}
    placed = [word for flag, name in outputs.items() for word in (flag, folder / engine / name)]
    (folder / engine).mkdir(exist_ok=True)
    return mean_ndcg(*arguments, *placed, "--json", folder / engine / "out.json", "--engine", engine)


def rows_of(spark: Any, folder: Path) -> tuple[Any, list[str]]:
    """Read a table with Spark: its columns, and its rows as sorted texts, without times."""
    frame = spark.read.parquet(str(folder)).drop(*OF_THE_MOMENT)
    return frame.schema, sorted(map(repr, frame.collect()))


def types_in(folder: Path) -> dict[str, set[str]]:
    """Types of columns of the files of each slice, as those who read them without Spark have them."""
    types: dict[str, set[str]] = {}
    for path in folder.rglob("*.parquet"):
        columns = {f"{field.name} {field.type}" for field in pq.read_schema(path)}
        types.setdefault(str(path.parent.relative_to(folder)), set()).update(columns)
    return types


def layout(folder: Path) -> list[str]:
    """Folders of a table, and what beside the data is in them."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir() or path == folder / "_SUCCESS"
    )


def assert_same(spark: Any, folder: Path, *arguments: object, rejects: bool = False, code: int = 0) -> RunResult:
    """Both engines must leave the same tables and JSON, and say the same."""
    local, other = (by(engine, folder, *arguments, rejects=rejects) for engine in ("local", "spark"))
    assert (local.code, other.code) == (code, code), (local.err, other.err)
    assert local.complaints == other.complaints
    assert local.out == other.out
    assert (folder / "local" / "out.json").read_text() == (folder / "spark" / "out.json").read_text()
    for name in ("metrics", "queries", *(["rejects"] if rejects else [])):
        assert layout(folder / "local" / name) == layout(folder / "spark" / name)
        assert rows_of(spark, folder / "local" / name) == rows_of(spark, folder / "spark" / name)
        assert types_in(folder / "local" / name) == types_in(folder / "spark" / name)
    return local


def retrieved(seed: int, **more: Any) -> list[Row]:
    """Rows of one table, in which every item has a score."""
    return [row for row in random_rows(seed, **more) if row.score is not None]


@pytest.fixture
def rankings(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.parquet", retrieved(1))


# ------------------------------------------------------------------------------------------------- the same results


def test_a_table_of_rankings(spark, tmp_path):
    rows = retrieved(1, negatives=True, fractional=True)
    table = write_rows(tmp_path / "in.parquet", rows, country=lambda row: row.item[:1], weight=lambda row: 2.5)
    assert_same(
        spark, tmp_path, "--input", table, *NIGHT, "--k", "1,3,all", "--metrics", "ndcg@3,ap,rr,p@5",
        "--weight-col", "weight", "--gate", "ndcg@3>=0.2", "--gate", "p@5>=0.99", "--ties", "item_asc",
        "--unjudged-query", "zero", code=3,
    )  # fmt: skip


def test_run_and_judgments(spark, tmp_path):
    rows = random_rows(4)
    run, judgments = write_run(tmp_path / "run.parquet", rows), write_judgments(tmp_path / "judgments.parquet", rows)
    assert_same(spark, tmp_path, "--input", run, "--judgments", judgments, *NIGHT, "--k", "3,10", "--tie-bounds")


def test_several_rankers_and_segments(spark, tmp_path):
    table = write_rows(
        tmp_path / "in.parquet",
        retrieved(5),
        ranker=lambda row: "ab"[len(row.item) % 2],
        country=lambda row: row.query[-1:],
        hour=lambda row: len(row.query),
    )
    segments = ("--run-col", "ranker", "--segment-cols", "country,country+hour")
    assert_same(spark, tmp_path, "--input", table, *NIGHT, *segments)


TWO = {"query_id": [7, 7, 8], "item_id": [1, 2, 1], "score": [2.0, 1.0, 1.0], "relevance": [1, 0, 1]}
FORMS = {
    "keys as text": ("in.csv", TWO, {}, ()),
    "keys as numbers": ("in.parquet", TWO, {"query_id": pa.int32()}, ()),
    "lists": (
        "in.parquet",
        {"query_id": ["a", "b"], "relevance": [[3.0, 0.0, 1.0], []]},
        {"relevance": pa.list_(pa.float64())},
        (),
    ),
    "an empty table that is accepted": (
        "in.parquet",
        dict.fromkeys(TWO, ()),
        {"query_id": pa.string(), "item_id": pa.string(), "score": pa.float64(), "relevance": pa.float64()},
        ("--allow-empty",),
    ),
    # The table of rejects has a slice without rows, and its columns.
    "no rejected rows": ("in.parquet", TWO, {}, ("--on-invalid", "reject")),
}


@pytest.mark.parametrize("form", FORMS)
def test_small_tables(spark, tmp_path, form):
    name, columns, types, more = FORMS[form]
    table = write_table(tmp_path / name, columns, types)
    assert_same(spark, tmp_path, "--input", table, *NIGHT, *more, rejects="--on-invalid" in more)


def test_rejected_rows(spark, tmp_path):
    columns = {
        "query_id": ["q", "q", None, "lost", "q", "q"],
        "item_id": ["a", "b", "c", "d", "e", "f"],
        "score": [3.0, math.nan, 2.0, math.inf, 1.0, 0.5],
        "relevance": [1.0, 1.0, 0.0, 1.0, math.nan, 0.0],
        "text": [None, "x\n\x1f\x7f\\", "/y\t", "z\u2028", "\u00e9\U0001f600", '"'],
        "double": [0.1, 1e-3, 9.99e-4, 1e7, -9999999.5, 123456789.125],
        "float": [0.1, -0.0, 1e-4, 1e10, 16777216.0, 3.4e38],
        "bool": [True, None, False, True, True, True],
        "money": [Decimal("1.50"), Decimal("-0.00"), Decimal("0.01"), Decimal("9999.99"), None, Decimal("1.00")],
        "small": [Decimal("0.00000010")] * 6,
        "date": [date(2026, 1, 31)] * 6,
        "time": [datetime(2026, 1, 31, 10, 0, 0, 123456)] * 5 + [None],
        "zoned": [datetime(1969, 12, 31, 23, 59, 59, 999999)] * 6,
        "bytes": [b"ab", b"\xff\x00", b"", b"abc", b"a", None],
        "list": [[1.5, None], [], [math.nan], None, [2.0], [1.0]],
    }
    types = {
        "float": pa.float32(), "small": pa.decimal128(10, 8), "time": pa.timestamp("us"),
        "zoned": pa.timestamp("us", "Europe/Berlin"), "list": pa.list_(pa.float64()),
    }  # fmt: skip
    table = write_table(tmp_path / "in.parquet", columns, types)
    ended = assert_same(spark, tmp_path, "--input", table, *NIGHT, "--on-invalid", "reject", rejects=True)
    assert "4 rejected: infinite_score 1, nan_relevance 1, nan_score 1, null_query 1" in ended.out
    assert len(read_stored_rows(tmp_path / "local" / "rejects")) == 4


def test_rejected_rows_of_both_tables(spark, tmp_path):
    run = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [1.0, math.nan]}
    judgments = {"query_id": ["q", "q"], "item_id": ["a", None], "relevance": [1.0, 1.0]}
    tables = write_table(tmp_path / "run.parquet", run), write_table(tmp_path / "judgments.parquet", judgments)
    arguments = ("--input", tables[0], "--judgments", tables[1], *NIGHT, "--on-invalid", "reject")
    assert_same(spark, tmp_path, *arguments, rejects=True)


def test_malformed_lines(spark, tmp_path):
    lines = [
        "query_id,item_id,score,relevance",
        "q,a,2,1",
        "q,b",
        'q,"c ""x""",1,0,7',
        "q,d,abc,1",
        "q,e,1,",
        "q,f,0.5,",
    ]
    (tmp_path / "in.csv").write_text("\n".join([*lines, ""]))
    arguments = ("--input", tmp_path / "in.csv", *NIGHT, "--on-invalid", "reject")
    ended = assert_same(spark, tmp_path, *arguments, rejects=True)
    assert "malformed_line 2" in ended.out


def test_lines_of_trec(spark, tmp_path):
    (tmp_path / "run.txt").write_text("1 Q0 a 1 2.0 t\n1 Q0 b 2 x t\n1 Q0\n\n2 Q0 a 1 1.0 t\n")
    (tmp_path / "qrels.txt").write_text("# judged\n1 0 a 1\n1 0 b\n2 0 c 0\n")
    tables = ("--input", tmp_path / "run.txt", "--judgments", tmp_path / "qrels.txt")
    formats = ("--input-format", "trec-run", "--judgments-format", "trec-qrels", "--on-invalid", "reject")
    assert_same(spark, tmp_path, *tables, *formats, *NIGHT, rejects=True)


def test_a_row_that_only_spark_can_keep(tmp_path):
    columns = {"query_id": ["q"], "item_id": ["a"], "score": [1.0], "relevance": [1.0], "more": [{"x": 1, "y": None}]}
    table = write_table(tmp_path / "in.parquet", columns)
    asked = ("--input", table, *NIGHT, "--on-invalid", "reject", "--rejects", tmp_path / "bad", "--engine", "local")
    assert_refused(mean_ndcg(*asked), "column 'more' of bad rows can only be stored by Spark")


# ------------------------------------------------------------------------------------------------ the same refusals


BAD = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [2.0, math.nan], "relevance": [1.0, 0.0]}
TWICE = {
    "query_id": ["q", "q"],
    "item_id": ["a", "a"],
    "score": [2.0, 1.0],
    "relevance": [1.0, 0.0],
    "ranker": ["x", "y"],
}
SEVERAL = {
    "query_id": [7, 7, 8, 8, 8, 8],
    "item_id": ["a", "b", "a", "a", "b", "b"],
    "score": [2.0, 1.0, 2.0, 1.0, 2.0, 1.0],
    "relevance": [1.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    "country": ["x"] * 6,
    "day": [1, 2, 3, None, 4, 4],
    "ranker": ["x", "x", "x", "y", "x", "y"],
}
NOTHING = {"query_id": ["q"], "item_id": ["a"], "score": [2.0], "relevance": [None]}
SCORED = {"query_id": ["q"], "k": [1], "dcg": [1.0], "idcg": [1.0], "ndcg": [1.0], "status": ["evaluated"]}
REFUSED = {
    "a column that is not there": (None, ("--score-col", "scroe")),
    "a table that is not there": ("missing.parquet", ()),
    "a folder that is not there": ("missing/", ()),
    "a bad row": (BAD, ()),
    "too many bad rows": (BAD, ("--on-invalid", "reject", "--max-reject-fraction", "0.1")),
    "an item that appears twice": (TWICE, ()),
    "an item that appears twice, in rows that differ": (SEVERAL, ()),
    "an item that appears twice, in equal rows": ({**SEVERAL, "day": [1] * 6, "ranker": ["x"] * 6}, ()),
    "no query that counts": (NOTHING, ()),
    "a gate of a run that is not there": (None, ("--gate", "other: ndcg@10>=0.1")),
    "a gate of a metric that is not there": (None, ("--gate", "ap@10>=0.1")),
    "a segment that is not there": (None, ("--segment-cols", "country")),
    "a format of outputs": (None, ("--output-format", "csv")),
    "text in place of numbers": ({**BAD, "score": ["2", "x"]}, ()),
    "metrics of queries": (SCORED, ()),
}  # fmt: skip


def test_refusals(spark, tmp_path, rankings):
    unjudged = [Row(query="Q", item=f"i{n}", score=None, relevance=1.0) for n in range(3)]
    judgments = write_judgments(tmp_path / "judgments.parquet", unjudged)
    run = write_run(tmp_path / "run.parquet", build_ranking([3, 2, 0]))
    ranks = write_table(tmp_path / "ranks.parquet", {"query_id": ["q", "q"], "item_id": ["a", "b"], "pos": [1, 1],
                                                     "relevance": [1, 0]})  # fmt: skip
    asked = [
        (("--input", run, "--judgments", judgments), "none of its queries is judged"),
        (
            ("--input", ranks, "--rank-col", "pos"),
            "correct the ranks, or name all columns of the query. Nothing was written.",
        ),
    ]
    for at, (table, arguments) in enumerate(REFUSED.values()):
        path = tmp_path / table if isinstance(table, str) else rankings
        if isinstance(table, dict):
            types = {"relevance": pa.float64()} if "relevance" in table else {}
            path = write_table(tmp_path / f"bad-{at}.parquet", table, types)
        asked.append((("--input", path, *arguments), ""))
    for arguments, message in asked:
        local, other = (by(engine, tmp_path, *arguments, *NIGHT) for engine in ("local", "spark"))
        assert_refused(local, message)
        assert local.complaints == [line.replace("/spark/", "/local/") for line in other.complaints]
        assert read_files(tmp_path / "local") == {}


def test_an_output_that_is_an_input(tmp_path, rankings):
    ended = mean_ndcg("--input", tmp_path, *NIGHT, "--output", tmp_path / "metrics", "--engine", "local")
    assert_refused(ended, f"'{tmp_path / 'metrics'}' overlaps --input '{tmp_path}'")


# ------------------------------------------------------------------------------------------ nights by either engine


@pytest.mark.parametrize("engines", [("local", "spark"), ("spark", "local")], ids=" then ".join)
def test_a_night_that_the_other_engine_has_written_is_replaced(spark, tmp_path, rankings, engines):
    """Another night stays; the columns are those of either engine, so nothing is said of them."""
    places = ("--output", tmp_path / "metrics", "--per-query-output", tmp_path / "queries")
    first, second = engines
    for engine, night in ((first, NIGHT), (first, NIGHT_AFTER), (second, NIGHT)):
        ended = mean_ndcg("--input", rankings, *night, *places, "--engine", engine)
        assert (ended.code, ended.complaints) == (0, []), ended.err
    frame = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "metrics"))
    nights = {str(night): rows for night, rows in frame.groupBy("run_date").count().collect()}
    assert nights == dict.fromkeys(("2026-01-31", "2026-02-01"), 3)
    for name in ("metrics", "queries"):
        n_slices = len({path.parent for path in (tmp_path / name).rglob("*.parquet")})
        assert n_slices == len(list((tmp_path / name).glob("run_date=*/slice=*"))) == 2
    queries = spark.read.parquet(str(tmp_path / "queries")).orderBy("query_id", "k").drop("slice", "computed_at")
    shown = [queries.where(f"run_date = '{night}'").drop("run_date").collect() for night in nights]
    assert shown[0] == shown[1]


def test_columns_that_the_other_engine_has_not_written(spark, tmp_path):
    """A segment that is new is a new column of metrics of queries, whoever wrote the nights before."""
    table = write_rows(tmp_path / "in.parquet", retrieved(1), country=lambda row: row.query[:1])
    for first, second in (("local", "spark"), ("spark", "local")):
        place = ("--per-query-output", tmp_path / f"{first}-first")
        assert mean_ndcg("--input", table, *NIGHT, *place, "--engine", first).code == 0
        more = ("--segment-cols", "country", "--engine", second)
        ended = mean_ndcg("--input", table, *NIGHT_AFTER, *place, *more)
        line = f"column 'country' is added to '{tmp_path / f'{first}-first'}'; it is null for earlier nights"
        assert ended.complaints == [line]
        assert_refused(
            mean_ndcg(
                "--input", table, *NIGHT, *place, *more, "--schema", "strict", "--k", "7", "--segment-cols", ""
            ),
            "has a column 'country'",
        )


def test_types_that_differ_from_those_of_the_other_engine(spark, tmp_path):
    for first, second in (("local", "spark"), ("spark", "local")):
        place = ("--per-query-output", tmp_path / f"{first}-first")
        for engine, kind, code in ((first, pa.int32(), 0), (second, pa.int64(), 2)):
            columns = {"query_id": [7], "item_id": ["a"], "score": [1.0], "relevance": [1.0]}
            table = write_table(tmp_path / "in.parquet", columns, {"query_id": kind})
            ended = mean_ndcg("--input", table, *NIGHT, *place, "--engine", engine)
            assert ended.code == code
        assert_refused(ended, "column 'query_id' is int in", "and bigint in these results")


def test_the_run_log(spark, tmp_path, rankings):
    arguments = ("--input", rankings, *NIGHT, "--output", tmp_path / "metrics", "--run-log", tmp_path / "runs")
    for engine in ("local", "spark"):
        assert mean_ndcg(*arguments, "--engine", engine).code == 0
    lost = ("--input", tmp_path / "missing.parquet", *NIGHT, "--run-log", tmp_path / "runs")
    assert mean_ndcg(*lost, "--engine", "local").code == 2
    local, other, refused = sorted(read_stored_rows(tmp_path / "runs"), key=lambda row: row["started_at"])
    assert (local["spark_version"], other["spark_version"]) == (None, spark.version)
    assert [row["status"] for row in (local, other, refused)] == ["succeeded", "succeeded", "refused"]
    same = ("command", "exit_code", "rows_read", "rows_evaluated", "n_queries", "inputs", "outputs", "config_hash")
    assert [local[name] for name in same] == [other[name] for name in same]
    assert spark.read.parquet(str(tmp_path / "runs")).count() == 3


# ------------------------------------------------------------------------------------------------ the choice of one


def explained(*arguments: object) -> dict[str, str]:
    ended = mean_ndcg(*arguments, *NIGHT, "--explain")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    lines = ended.out.splitlines()
    return {line[:12].strip(): line[13:] for line in lines[:-1]}


def test_explained(spark, tmp_path, rankings):
    lines = explained("--input", rankings, "--engine", "local", "--output", tmp_path / "metrics")
    assert lines["engine"] == "local: --engine local"
    assert lines["cost"] == "one pass over the files by this process"
    assert not (tmp_path / "metrics").exists()
    assert explained("--input", rankings)["engine"] == IN_SESSION
    assert explained("--input", rankings, "--engine", "spark")["engine"] == "spark: --engine spark"


def test_the_environment_says_what_auto_is(spark, rankings, monkeypatch):
    for named, more, engine in (
        ("local", (), "local: NDCG_SPARK_ENGINE=local"),
        ("spark", (), "spark: NDCG_SPARK_ENGINE=spark"),
        ("spark", ("--engine", "local"), "local: --engine local"),
        ("local", ("--engine", "spark"), "spark: --engine spark"),
        ("auto", (), IN_SESSION),
        ("", (), IN_SESSION),
    ):
        monkeypatch.setenv("NDCG_SPARK_ENGINE", named)
        assert explained("--input", rankings, *more)["engine"] == engine


def test_refusals_name_the_variable_of_the_environment(rankings, monkeypatch):
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")
    assert_refused(mean_ndcg("--input", "SELECT 1"), "NDCG_SPARK_ENGINE=local cannot do this")
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "duck")
    assert_refused(mean_ndcg("--input", rankings), "NDCG_SPARK_ENGINE must be one of auto, local, spark; got 'duck'")


def test_what_has_one_engine_asks_no_environment(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")
    ended = run_command("business-link", "--input", tmp_path / "no-metrics", "--clicks", tmp_path)
    assert_refused(ended, "no-metrics")
    assert "NDCG_SPARK_ENGINE" not in ended.err


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--conf", "spark.ui.port=4050"), "--conf is for Spark"),
        (("--output", "metrics"), "--output 'metrics' is not a folder of this machine, as './metrics' would be"),
        (("--output", "s3://bucket/metrics"), "--output 's3://bucket/metrics' is not a folder of this machine;"),
        (("--run-log", "prod.runs"), "--run-log 'prod.runs' is not a folder of this machine"),
        (("--strategy", "window"), "strategy=window ranks in Spark"),
        (("--duplicates", "best"), "duplicates are resolved"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_only_spark_can_do(rankings, more, why):
    ended = mean_ndcg("--input", rankings, *more, "--engine", "local")
    assert_refused(ended, "--engine local cannot do this", why)


def test_tables_of_a_catalog_and_queries_are_those_of_spark(tmp_path):
    for reference in ("prod.rankings", "SELECT 1"):
        assert_refused(mean_ndcg("--input", reference, "--engine", "local"), "--engine local cannot do this")


# ------------------------------------------------------------------------------------------- processes without Spark


def run_without_spark(folder: Path, *arguments: object, **environment: str) -> RunResult:
    command = [sys.executable, "-c", WITHOUT_SPARK, *map(str, arguments)]
    of_spark = ("PYSPARK", "SPARK")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(of_spark)}
    process = subprocess.run(
        command, cwd=folder, env={**kept, "PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True
    )
    return RunResult(process.returncode, process.stdout, process.stderr)


@pytest.mark.slow
def test_without_spark_and_pandas(tmp_path):
    """`--engine` is not named: nothing points to a Spark."""
    write_rows(tmp_path / "rankings.parquet", build_ranking([3, 2, 3, 0, 1, 2]))
    ended = run_without_spark(
        tmp_path, "mean-ndcg", "--input", "rankings.parquet", "--output", "metrics/",
        "--per-query-output", "queries/", "--on-invalid", "reject", "--rejects", "bad/",
        "--json", "out.json", "--gate", "ndcg@10>=0.4", *NIGHT,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[-1] == "[]"
    assert json.loads((tmp_path / "out.json").read_text())["metrics"][0]["value"] == pytest.approx(0.948811, abs=5e-7)
    assert "gate ndcg@10>=0.4: met (0.948811)" in ended.out
    for name, n in (("metrics", 3), ("queries", 1), ("bad", 0)):
        assert layout(tmp_path / name)[:2] == ["_SUCCESS", "run_date=2026-01-31"]
        assert len(read_stored_rows(tmp_path / name)) == n
    ended = run_without_spark(
        tmp_path, "flag-changes", "--input", "metrics/", "--per-query", "queries/", "--output", "flags/"
    )
    assert (ended.code, ended.err.splitlines()[-1]) == (0, "['scipy']"), ended.err
    assert "1 with a short history" in ended.out
    assert len(read_stored_rows(tmp_path / "flags")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "environment", "why"),
    [
        (("mean-ndcg", "--input", "prod.rankings"), {}, ""),
        (("mean-ndcg", "--input", "rankings.parquet"), {"SPARK_REMOTE": "sc://host"}, "SPARK_REMOTE is set"),
        (("mean-ndcg", "--input", "rankings.parquet", "--conf", "a=b"), {}, "--conf is for Spark"),
        (
            ("mean-ndcg", "--input", "rankings.parquet", "--output", "prod.metrics"),
            {},
            "--output 'prod.metrics' is not a folder",
        ),
        (("business-link", "--input", "metrics/", "--clicks", "clicks/"), {}, "business-link runs on Spark"),
    ],
    ids=["catalog", "remote", "conf", "output", "another command"],
)
def test_without_spark_a_job_says_why_it_needs_it(tmp_path, arguments, environment, why):
    write_rows(tmp_path / "rankings.parquet", build_ranking([3, 2, 3]))
    ended = run_without_spark(tmp_path, *arguments, **environment)
    assert (ended.code, ended.out) == (2, "")
    line, _ = ended.err.splitlines()
    assert line.startswith("ndcg-spark: Spark is needed (")
    assert why in line
    assert "), and pyspark " in line
    assert "pip install" in line


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory) -> Path:
    """A table that takes some seconds."""
    n = 2_000_000
    numbers = np.random.default_rng(1)
    columns = {
        "query_id": numbers.permutation(n) // 20,
        "item_id": np.arange(n),
        "score": numbers.random(n),
        "relevance": numbers.integers(0, 4, n),
    }
    path = tmp_path_factory.mktemp("many") / "in.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word", "processes"),
    [
        (signal.SIGTERM, 143, "terminated", 1),
        (signal.SIGTERM, 143, "terminated", 2),
        (signal.SIGINT, 130, "interrupted", 2),
    ],
)
def test_a_signal_ends_a_job_in_one_line(tmp_path, many_rows, number, code, word, processes):
    """The run log says so; old rows stay, and no process, temporary folder or claim is left."""
    places = ("--output", tmp_path / "metrics", "--run-log", tmp_path / "runs")
    write_rows(tmp_path / "few.parquet", build_ranking([3, 2, 0]))
    assert run_without_spark(tmp_path, "mean-ndcg", "--input", "few.parquet", *NIGHT, *places[:2]).code == 0
    before, temporary = read_files(tmp_path / "metrics"), tmp_path / "temporary"
    temporary.mkdir()
    command = ["mean-ndcg", "--input", many_rows, *NIGHT, *places, "--processes", processes]
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_SPARK, *map(str, command)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr.readline().endswith(": started\n")
    time.sleep(0.5)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert [line for line in err.splitlines() if line.startswith("ndcg-spark")] == [f"ndcg-spark: {word}"]
    assert "Traceback" not in err
    assert read_files(tmp_path / "metrics") == before
    assert not (tmp_path / "metrics" / ".ndcg-spark").exists()
    assert list(temporary.iterdir()) == []
    assert subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True, text=True).stdout == ""
    assert [row["status"] for row in read_stored_rows(tmp_path / "runs")] == ["interrupted"]
