"""Files of nights, runs of them, and the status of their steps."""

from __future__ import annotations

from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ndcg_spark.nights.work import NightRun
from support.main_job import RunResult, read_stored_rows, run_command, write_table

NIGHT = date(2026, 1, 31)
FILE = """
dataset = "shop"
run-log = "./log"

[[step]]
command = "mean-ndcg"
input = "rankings/{run_date}.parquet"
run-col = "ranker"
k = [1, 3]
output = "./metrics"
per-query-output = "./queries"

[[step]]
command = "compare-runs"
baseline = "bm25"
replicates = 0
flips = 0
output = "./comparisons"
"""
OTHER = """
[[step]]
command = "mean-ndcg"
name = "other"
dataset = "b"
input = "rankings/{run_date}.parquet"
run-col = "ranker"
output = "./metrics"
"""


def write_file(text: str) -> None:
    Path("night.toml").write_text(text, encoding="utf-8")


def run_night(*more: object) -> RunResult:
    """Run the night of the working directory."""
    days = () if "--backfill" in more else ("--run-date", NIGHT)
    return run_command("nightly", "--config", "night.toml", *days, *more)


def read_statuses(ended: RunResult) -> dict[str, str]:
    """Return the status of each step, from the last lines."""
    out = "\n" + ended.out
    lines = takewhile(lambda line: line.startswith("  "), out[out.rindex("\nsteps of 2026") :].splitlines()[2:])
    return {
        name.strip(): rest.split(" after")[0].split(":")[0].strip()
        for name, _, rest in (line.partition(": ") for line in lines)
    }


def read_log(folder: Path) -> list[tuple[str, str, int]]:
    return sorted((row["command"], row["status"], row["exit_code"]) for row in read_stored_rows(folder / "log"))


def make_night_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write rankings of two nights and a night file into a folder; make it the working directory."""
    for day in (30, 31):
        rows = [
            (run, query, item, float(item == first), float(item == "b"))
            for run, first in (("bm25", "a"), ("vectors", "b" if day == 31 else "a"))
            for query in ("q1", "q2", "q3")
            for item in ("a", "b")
        ]
        names = ("ranker", "query_id", "item_id", "score", "relevance")
        columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        write_table(tmp_path / "rankings" / f"2026-01-{day}.parquet", columns)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")  # whatever session other tests have
    write_file(FILE)
    return tmp_path


def split_by_ranker(folder: Path) -> Path:
    """Turn the rankings of the night into a folder with a file for each ranker."""
    night = folder / "rankings" / NIGHT.isoformat()
    rows = pq.read_table(f"{night}.parquet")
    night.mkdir()
    for ranker in ("bm25", "vectors"):
        pq.write_table(rows.filter(pc.equal(rows.column("ranker"), ranker)), night / f"{ranker}.parquet")
    return night


def assert_resumed_with_late_file(folder: Path, night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a night of one step whose second file arrives after the input was opened; then resume it."""
    (night / "vectors.parquet").rename(folder / "late.parquet")

    def run_late(night_run: NightRun, *arguments: Any) -> None:
        (folder / "late.parquet").rename(night / "vectors.parquet")
        run_steps(night_run, *arguments)

    run_steps = NightRun._run_steps
    with monkeypatch.context() as patch:
        patch.setattr(NightRun, "_run_steps", run_late)
        ended = run_night()
    assert ended.code == 0, ended.err
    assert {row["run"] for row in read_stored_rows(folder / "metrics")} == {"bm25"}
    assert read_statuses(run_night("--resume")) == {"mean-ndcg": "succeeded"}
    assert {row["run"] for row in read_stored_rows(folder / "metrics")} == {"bm25", "vectors"}
    assert read_statuses(run_night("--resume")) == {"mean-ndcg": "succeeded before"}
