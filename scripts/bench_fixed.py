"""What a run costs before a row counts: whole processes on a table of six rows."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

JOB = Path(__file__).resolve().parent.parent / "jobs" / "mean_ndcg.py"
BARE = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
with builder.getOrCreate() as spark:
    spark.read.parquet(sys.argv[1]).count()
"""


def fixed_costs(rounds: int) -> list[str]:
    """Lines of a table: a bare Spark job that reads and counts; the main job by each engine, also with an output."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "six.parquet"
        columns = {"query_id": [1, 1, 1, 2, 2, 2], "item_id": list(range(6)), "score": [0.9, 0.8, 0.7] * 2}
        pq.write_table(pa.table(columns | {"relevance": [2, 0, 1, 0, 0, 1]}), table)
        job = [sys.executable, str(JOB), "--input", str(table)]
        processes = {"Spark that starts, reads and counts": [sys.executable, "-c", BARE, str(table)]}
        for engine in ("local", "spark"):
            named = [*job, "--engine", engine]
            processes[f"mean-ndcg, {engine}"] = named
            output = str(Path(folder) / engine)
            processes[f"mean-ndcg, {engine}, with a metric table"] = [*named, "--output", output]
        taken: dict[str, list[float]] = {name: [] for name in processes}
        for _ in range(rounds):
            for name, command in processes.items():
                began = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                taken[name].append(time.perf_counter() - began)
    seconds = {name: statistics.median(found) for name, found in taken.items()}
    bare = next(iter(seconds.values()))
    lines = ["| data | process | seconds | to bare Spark |", "| --- | --- | ---: | ---: |"]
    return lines + [f"| six rows | {name} | {found:.1f} | {found / bare:.2f} |" for name, found in seconds.items()]
