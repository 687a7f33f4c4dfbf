"""What the nightly job costs beside the evaluation in it, and beside a bare read of the table; and a whole night."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

import ndcg_spark
from ndcg_spark.main import main
from scripts.benchmarks.timing import build_ratio_rows, compute_medians, format_table, run_in_turns, time_contender
from scripts.demos.night import BAD, FIRST, NIGHT_FILE, write_nights

COLUMNS = ("query_id", "item_id", "score", "relevance")
BARE = "bare read of the four columns"
ALONE = "evaluation alone: `evaluate(path).summary`"
RUN_LOG = "the same, with metric table and run log"
TABLE_ALONE = "read by Spark: evaluation alone"
TABLE_RUN_LOG = "read by Spark: mean-ndcg with metric table and run log"


def nightly_costs(spark: SparkSession, path: Path, folder: Path, k: int, rounds: int) -> list[str]:
    """Return table lines: contenders take turns in one session after a warm-up round."""
    place = folder / "nightly"
    contenders = {name: time_contender(work) for name, work in _contenders(spark, str(path), place, k).items()}
    parts: list[dict[str, float]] = []

    def logged() -> tuple[object, float]:
        _, seconds = run()
        parts.append(_parts(spark, place, seconds))
        return None, seconds

    run, contenders[RUN_LOG] = contenders[RUN_LOG], logged
    medians_by_name = compute_medians(run_in_turns(contenders, rounds, warm_ups=1))
    shutil.rmtree(place)
    bare, alone, whole = medians_by_name[BARE], medians_by_name[ALONE], medians_by_name[RUN_LOG]
    rows = [
        (name, f"{duration:.2f}", f"{duration / bare:.2f}", f"{duration / alone:.2f}")
        for name, duration in medians_by_name.items()
    ]
    shares = [
        1 - medians_by_name[duration] / medians_by_name[run]
        for duration, run in ((ALONE, RUN_LOG), (TABLE_ALONE, TABLE_RUN_LOG))
    ]
    share = (
        "Checks, accounts, metric table and run log, of the run: {:.0%} where workers read, {:.0%} where Spark does."
    )
    of_run = compute_medians({name: [duration[name] for duration in parts[1:]] for name in parts[0]})
    return [
        *format_table(("contender",), ("seconds", "to a bare read", "to the evaluation"), rows),
        *("", share.format(*shares), "", f"Parts of '{RUN_LOG}', medians:", ""),
        *format_table(
            ("part",), ("seconds", "of the run"), [(n, f"{s:.2f}", f"{s / whole:.0%}") for n, s in of_run.items()]
        ),
    ]


def _contenders(spark: SparkSession, path: str, place: Path, k: int) -> dict[str, Callable[[], object]]:
    job = ["mean-ndcg", "--input", path, "--k", str(k), "--run-date", "2026-01-31"]
    outputs = ["--output", str(place / "metrics"), "--run-log", str(place / "runs")]
    rejects = ["--on-invalid", "reject", "--rejects", str(place / "rejects")]
    return {
        BARE: lambda: spark.read.parquet(path).select(*COLUMNS).write.format("noop").mode("overwrite").save(),
        ALONE: lambda: ndcg_spark.evaluate(path, k=k).summary.collect(),
        "mean-ndcg, which prints means and counts": lambda: _run(job),
        RUN_LOG: lambda: _run([*job, *outputs]),
        "the same, with bad rows counted and rejected": lambda: _run([*job, *outputs, *rejects]),
        TABLE_ALONE: lambda: ndcg_spark.evaluate(spark.read.parquet(path), k=k).summary.collect(),
        TABLE_RUN_LOG: lambda: _run([*job, *outputs, "--source", "spark"]),
    }


def _run(arguments: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    if code:
        raise RuntimeError(err.getvalue())


def _parts(spark: SparkSession, place: Path, seconds: float) -> dict[str, float]:
    """Return the seconds of the steps of the last run, from the run log."""
    runs = spark.read.parquet(str(place / "runs")).orderBy("started_at", ascending=False)
    row = runs.select("steps", "seconds").first()
    if row is None:
        raise RuntimeError("the run log is empty")
    steps = {step["step"].split(" to ")[0]: step["seconds"] for step in json.loads(row["steps"])}
    return {**steps, "everything else: plans, checks, run log": seconds - sum(steps.values())}


STEPS = (
    "mean-ndcg --input rankings/{night} --run-col run --segment-cols digit,shape --k 1,3,10 --on-invalid reject "
    "--null-score unretrieved --gate ndcg@10>=0.8 --output ./metrics --per-query-output ./queries --run-date {night}",
    "compare-runs --per-query ./queries --baseline thumbnail --output ./comparisons --run-date {night}",
    "flag-changes --input ./metrics --per-query ./queries --output ./flags --to {night}",
    "report --metrics ./metrics --per-query ./queries --comparison ./comparisons --flags ./flags "
    "--output page-{night}.html --index index.html --run-date {night}",
)
"""The steps of the file of the demo of a night, without the weeks and with Spark's own settings, as commands."""


def night_costs(scratch: Path, rounds: int, warm_ups: int) -> list[str]:
    """Return table lines: the bad night of the demo as four commands, each its own process, and with `nightly`."""
    folder = scratch / "night"
    write_nights(folder)
    steps = [step for step in NIGHT_FILE.split("\n[[step]]") if '"roll-up"' not in step]
    (folder / "night.toml").write_text("\n[[step]]".join(steps), encoding="utf-8")
    shared = ["--dataset", "digits", "--run-log", "./run_log"]
    commands = [[*step.format(night=BAD).split(), *shared] for step in STEPS]
    nightly = ["nightly", "--config", "night.toml"]
    # The nights before are in the tables; the night that is missing is refused.
    before = [*nightly, "--backfill", f"{FIRST}..{BAD - timedelta(days=1)}", "--only", "mean-ndcg"]
    _run_processes(folder, [before], code=2)
    processes = {
        "four commands, one after another": commands,
        "`nightly` with these four steps": [[*nightly, "--run-date", str(BAD)]],
    }
    runs = {
        name: time_contender(partial(_run_processes, folder, commands_of_process))
        for name, commands_of_process in processes.items()
    }
    seconds = compute_medians(run_in_turns(runs, rounds, warm_ups=warm_ups))
    return format_table(
        ("data", "process"), ("seconds", "to four"), build_ratio_rows("a night", seconds, next(iter(seconds)))
    )


def _run_processes(folder: Path, commands: list[list[str]], code: int = 0) -> None:
    for command in commands:
        typed = [sys.executable, "-m", "ndcg_spark", *command]
        ended = subprocess.run(typed, cwd=folder, check=False, capture_output=True, text=True)
        if ended.returncode != code:
            raise RuntimeError(ended.stderr)
