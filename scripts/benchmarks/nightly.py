"""What the nightly job costs beside the evaluation in it, and beside a bare read of the table."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import ndcg_spark
from ndcg_spark.main import main

COLUMNS = ("query_id", "item_id", "score", "relevance")
BARE = "bare read of the four columns"
ALONE = "evaluation alone: `evaluate(path).summary`"
RUN_LOG = "the same, with metric table and run log"
TABLE_ALONE = "read by Spark: evaluation alone"
TABLE_RUN_LOG = "read by Spark: mean-ndcg with metric table and run log"


def nightly_costs(spark: SparkSession, path: Path, folder: Path, k: int, rounds: int) -> list[str]:
    """Lines of a table: contenders in one session, which take turns after a round to warm up."""
    place = folder / "nightly"
    contenders = _contenders(spark, str(path), place, k)
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    parts: list[dict[str, float]] = []
    for at in range(rounds + 1):
        for name, work in contenders.items():
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            if at:
                taken[name].append(seconds)
            if at and name == RUN_LOG:
                parts.append(_parts(spark, place, seconds))
    shutil.rmtree(place)
    found = {name: statistics.median(seconds) for name, seconds in taken.items()}
    bare, alone = found[BARE], found[ALONE]
    lines = ["| contender | seconds | to a bare read | to the evaluation |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {name} | {one:.2f} | {one / bare:.2f} | {one / alone:.2f} |" for name, one in found.items()]
    shares = [1 - found[one] / found[run] for one, run in ((ALONE, RUN_LOG), (TABLE_ALONE, TABLE_RUN_LOG))]
    share = (
        "Checks, accounts, metric table and run log, of the run: {:.0%} where workers read, {:.0%} where Spark does."
    )
    lines += ["", share.format(*shares)]
    lines += ["", f"Parts of '{RUN_LOG}', medians:", "", "| part | seconds | of the run |", "| --- | ---: | ---: |"]
    for name in parts[0]:
        seconds = statistics.median(one[name] for one in parts)
        lines.append(f"| {name} | {seconds:.2f} | {seconds / found[RUN_LOG]:.0%} |")
    return lines


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
    """Where the time of the last run went, as its row in the run log says."""
    runs = spark.read.parquet(str(place / "runs")).orderBy("started_at", ascending=False)
    row = runs.select("steps", "seconds").first()
    if row is None:
        raise RuntimeError("the run log is empty")
    steps = {one["step"].split(" to ")[0]: one["seconds"] for one in json.loads(row["steps"])}
    return {**steps, "everything else: plans, checks, run log": seconds - sum(steps.values())}
