"""The main job as a user starts it: a process of its own, in another folder, and what it says there."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.main_job import (
    RunResult,
    find_value,
    mean_ndcg,
    read_stored_rows,
    run_mean_ndcg,
    write_rows,
    write_table,
)
from support.oracle import build_ranking
from support.processes import INCUBATOR, ROOT, build_package, make_bare_python, run_process

from ndcg_spark import __version__
from ndcg_spark.main import main

ROWS = build_ranking([3, 2, 3, 0, 1, 2])
NDCG = pytest.approx(0.960808, abs=5e-7)
OF_TRACKER = pytest.mark.classic("jobs are counted through sparkContext")
NOISE = ("Traceback", "WARN", "ERROR", "Setting default log level", "org.apache", "\tat ", '"level"')


def of_processes(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts processes."""
    return pytest.mark.spark(pytest.mark.classic("processes with sessions of their own")(test))


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    return make_bare_python(tmp_path_factory.mktemp("python"))


def elsewhere(folder: Path) -> Path:
    """A working directory with a good input and one with a NaN."""
    write_rows(folder / "good.csv", ROWS)
    write_table(
        folder / "bad.parquet",
        {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [1.0, math.nan], "relevance": [1, 0]},
    )
    return folder


def run_all(
    run: Callable[[Path, list[str]], RunResult], folders: list[Path], flags: list[list[str]]
) -> list[RunResult]:
    """Runs that end well or are refused, two at the same time: starting Spark leaves a core idle."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, folders, flags))


REFUSED = ["--input", "bad.parquet", "--output", "out/metrics", "--json", "-"]


def noise_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if line != INCUBATOR and any(sign in line for sign in NOISE)]


# ------------------------------------------------------------------------------------------- python jobs/mean_ndcg.py


@pytest.fixture(scope="module", params=["local", "spark"])
def from_checkout(request, bare_python, tmp_path_factory):
    """How the good and the refused run ended by either engine, each with its working directory."""
    python, environment = bare_python
    folders = [elsewhere(tmp_path_factory.mktemp(name)) for name in ("good", "refused")]
    good = ["--input", "good.csv", "--convention", "linear", "--k", "6"]
    good += ["--output", "out/metrics", "--gate", "ndcg@6>=0.97", "--json", "-"]

    def run(cwd: Path, flags: list[str]) -> RunResult:
        command = [python, ROOT / "jobs" / "mean_ndcg.py", "--engine", request.param]
        return run_process([*command, *flags], cwd, environment)

    return list(zip(run_all(run, folders, [good, REFUSED]), folders, strict=True))


@of_processes
def test_a_run_from_a_checkout(from_checkout):
    ended, folder = from_checkout[0]
    assert ended.code == 3, ended.err
    assert find_value(ended.json, "ndcg", 6) == NDCG
    assert [row["value"] for row in read_stored_rows(folder / "out" / "metrics") if row["metric"] == "ndcg"] == [NDCG]
    assert "gate ndcg@6>=0.97: NOT MET" in ended.out
    assert noise_in(ended.out + ended.err) == []


@of_processes
def test_a_refusal_from_a_checkout(from_checkout):
    ended, folder = from_checkout[1]
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert not (folder / "out").exists()
    refusal = ended.err.splitlines()[-1]
    assert refusal.startswith("mean_ndcg.py: 1 bad row of 2 in the input: nan_score 1 (e.g. query_id=q, item=b)")
    assert noise_in(ended.err) == []


# ------------------------------------------------------------------------------------------------------ spark-submit


@pytest.fixture(scope="module")
def submitted(bare_python, tmp_path_factory):
    """spark-submit with the package as a zip, the job's file on its own: as `from_checkout`."""
    _, environment = bare_python
    folder = tmp_path_factory.mktemp("submit")
    package = build_package(folder, environment)
    (folder / "alone").mkdir()
    job = shutil.copy(ROOT / "jobs" / "mean_ndcg.py", folder / "alone" / "mean_ndcg.py")
    spark_submit = Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"
    settings = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")
    settings += ("--conf", "spark.log.level=OFF")  # Spark logs what its tasks raise as the cluster has it
    spark_flags = ("--master", "local[2]", *settings, "--py-files")

    def run(cwd: Path, flags: list[str]) -> RunResult:
        return run_process([spark_submit, *spark_flags, package, job, *flags], cwd, environment)

    folders = [elsewhere(tmp_path_factory.mktemp(name)) for name in ("good", "refused", "forgotten")]
    good = ["--input", "good.csv", "--convention", "linear", "--k", "6"]
    good += ["--output", "out/metrics", "--per-query-output", "out/queries", "--json", "-"]
    forgotten = ["--input", "absent/", "--k", "6", "--output", "metrics", "--per-query-output", "out/queries"]
    return list(zip(run_all(run, folders, [good, REFUSED, forgotten]), folders, strict=True))


@of_processes
def test_spark_submit(submitted):
    ended, folder = submitted[0]
    assert ended.code == 0, ended.err[-3000:]
    assert find_value(ended.json, "ndcg", 6) == NDCG
    assert [row["ndcg"] for row in read_stored_rows(folder / "out" / "queries")] == [NDCG]
    assert len(read_stored_rows(folder / "out" / "metrics")) == 3
    assert "Traceback" not in ended.err


@of_processes
def test_spark_submit_refused(submitted):
    """The exit code is ours. spark-submit puts what a Python job writes to standard error on standard output."""
    ended, folder = submitted[1]
    assert ended.code == 2, ended.err[-3000:]
    assert not (folder / "out").exists()
    (line,) = ended.out.splitlines()
    assert line.startswith("mean_ndcg.py: 1 bad row of 2 in the input: nan_score 1 (e.g. query_id=q, item=b)")
    assert "Traceback" not in ended.err


@of_processes
def test_spark_submit_writes_no_table_that_nobody_finds_again(submitted):
    """The catalog of its session is in memory, so that a second night would find files and no table."""
    ended, folder = submitted[2]
    assert ended.code == 2, ended.err[-3000:]
    (line,) = ended.out.splitlines()
    assert line.startswith("mean_ndcg.py: table 'metrics' would be lost when the job ends")
    assert "(./metrics)" in line
    assert sorted(path.name for path in folder.iterdir()) == ["bad.parquet", "good.csv"]


# ------------------------------------------------------------------------------- questions that are answered at once


def test_help_names_every_flag_of_the_contract(capsys):
    assert main(["mean-ndcg", "--help"]) == 0
    shown = capsys.readouterr()
    flags = """
        --input --input-format --judgments --judgments-format --query-col --item-col --score-col --rank-col
        --relevance-col --run-col --segment-cols --weight-col --order-col --k --convention --gain --discount --ties
        --score-precision --ideal --unjudged --negative --no-relevant --missing-query --unjudged-query --pad-to-k
        --duplicates --run-date --dataset --output --output-format --per-query-output --per-query-format
        --on-invalid --rejects --max-reject-fraction --gate --json --explain
    """
    words = set(shown.out.replace(",", " ").split())
    assert [flag for flag in flags.split() if flag not in words] == []
    assert shown.err == ""


def test_version_and_commands(capsys):
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "mean-ndcg" in capsys.readouterr().out


@OF_TRACKER
def test_explain_runs_no_spark_job_and_writes_nothing(spark, tmp_path):
    """A catalog table tells its columns by itself; of files, Spark itself must look at one."""
    spark.sql("CREATE TABLE unexplained (query_id STRING, item_id STRING, score DOUBLE, relevance INT) USING parquet")
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    try:
        ended = run_mean_ndcg(
            *("--input", "unexplained", "--explain", "--k", "3,10", "--dataset", "shop", "--run-date", "2026-01-31"),
            *("--output", tmp_path / "metrics", "--per-query-output", tmp_path / "queries"),
            *("--json", tmp_path / "out.json", "--on-invalid", "reject", "--rejects", tmp_path / "rejects"),
        )
    finally:
        spark.sql("DROP TABLE unexplained")
    assert set(tracker.getJobIdsForGroup()) == before
    assert list(tmp_path.iterdir()) == []
    message = ("at least 5 actions", "unexplained", "3, 10", "default", "shuffle", "2026-01-31", "'shop'")
    assert [element for element in (*message, str(tmp_path / "metrics")) if element not in ended.out] == []


def test_explain_refuses_what_the_job_would_refuse(tmp_path):
    source = write_rows(tmp_path / "rows.parquet", ROWS)
    ended = mean_ndcg("--input", source, "--explain", "--score-col", "points", "--engine", "local")
    assert (ended.code, ended.out) == (2, "")
    assert "'points'" in ended.err


@OF_TRACKER
def test_the_job_tracker_sees_the_jobs_of_a_run(spark, tmp_path):
    """What the test of --explain relies on."""
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    ended = run_mean_ndcg("--input", write_rows(tmp_path / "rows.csv", ROWS), "--convention", "linear", "--json", "-")
    assert set(tracker.getJobIdsForGroup()) - before  # the tracker forgets the first ones after a thousand
    assert json.loads(ended.out.splitlines()[-1])["rows"]["read"] == len(ROWS)
